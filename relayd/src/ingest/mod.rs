//! From packets as they arrive to packets in sequence, each with its index: the way from a data connection to the
//! store and to [`publish`](crate::publish). Sees neither file nor socket.
//!
//! Read in this order: [`stream`] (one stream, as its connections know it), `stream_writer` (what happens in it, also
//! while the disk is full), [`reorder`] and [`reorder_budget`] (early packets, and their memory), [`index_joiner`] (joins packets with their
//! indexes), [`rotation`] (when
//! the stream goes over to another chunk), [`metadata_stream`] (metadata, which comes on the control connection).

pub mod error;
pub mod index_joiner;
pub mod metadata_stream;
pub mod reorder;
pub mod reorder_budget;
pub mod rotation;
pub mod stream;
mod stream_writer;

pub use error::IngestError;
pub use metadata_stream::MetadataStream;
pub use stream::DataStream;
pub use stream_writer::{Resumed, WhenFull};
