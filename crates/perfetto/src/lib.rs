//! Traces in the protobuf format of [Perfetto](https://perfetto.dev), as its page and its trace
//! processor open them. Nothing here reads or writes a file.
//!
//! Read in this order: `message` and `ftrace` (the messages), `argument` (values of arguments),
//! `interner` (texts by number), `lanes` (tracks for slices that do not nest), `batch` (packets in
//! order of time), `encoder` (the trace).

pub mod argument;
mod batch;
pub mod encoder;
pub mod ftrace;
mod interner;
mod lanes;
pub mod message;

pub use argument::{Argument, Value};
pub use encoder::{CounterValue, Encoder, Mark, Placed, TrackId};
