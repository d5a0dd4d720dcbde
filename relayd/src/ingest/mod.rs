//! The streams of producers: packets are put in sequence, joined with their indexes, written by the
//! store, and passed to [`publish`](crate::publish). Opens no file and knows no socket.
//!
//! Read in this order: [`stream`] (one stream, for its connections), `stream_writer` (the owner of
//! its state, which delegates to the parts that follow), `packet_writer` (packets in sequence to
//! the tracefile), [`reorder`] and [`reorder_budget`] (early packets, and their memory),
//! [`index_joiner`] (joins packets with their indexes), `lifecycle` and `rotation` (when the stream
//! enters another chunk, and when it closes), `backpressure` (what happens while the disk is full),
//! [`metadata_stream`] (metadata, which arrives on the control connection), `stream_class_search`
//! (whether viewers can begin to read it).

mod backpressure;
pub mod error;
pub mod index_joiner;
mod lifecycle;
pub mod metadata_stream;
mod packet_writer;
pub mod reorder;
pub mod reorder_budget;
mod rotation;
pub mod stream;
mod stream_class_search;
mod stream_writer;

pub use backpressure::Resumed;
pub use error::{DiskFullPolicy, IngestError};
pub use metadata_stream::MetadataStream;
pub use packet_writer::ConnectionId;
pub use stream::{DataStream, StreamGuard};
pub use stream_writer::{Arrival, StreamWriter};
