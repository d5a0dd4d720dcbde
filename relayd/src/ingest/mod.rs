//! From packets as they arrive to packets in sequence, each with its index: the way from a data
//! connection to the store. Sees neither file nor socket.
//!
//! Read in this order: [`connection`] (one data connection), [`reorder`] (whose turn it is),
//! [`stream`] (one stream, as its connections know it) and `stream_writer` (what happens in it, also while the disk is full),
//! [`rotation`] (when it goes over to another chunk), [`metadata_stream`] (metadata, which comes on the control connection).

pub mod error;
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
