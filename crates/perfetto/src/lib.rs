//! Traces in the protobuf format of [Perfetto](https://perfetto.dev), as its page and its trace
//! processor open them. Nothing here reads or writes a file.
//!
//! Read in this order: `message` and `ftrace` (the messages), `argument` (values of arguments),
//! `interner` (texts by number), `batch` (packets in order of time), `encoder` (the trace, with the
//! lanes of [`tef::lanes`]).

pub mod argument;
mod batch;
pub mod encoder;
pub mod ftrace;
mod interner;
pub mod message;

pub use argument::{Argument, Value};
pub use encoder::{CounterValue, Encoder, Mark, TrackId};
