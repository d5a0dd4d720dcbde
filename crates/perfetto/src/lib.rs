//! Traces in the protobuf format of [Perfetto](https://perfetto.dev), as its page and its trace
//! processor open them. Nothing here reads or writes a file.
//!
//! Read in this order; each module uses only those before it: `message` and `ftrace` (the
//! messages), `argument` (values of arguments), `interner` (texts by number), `batch` (packets in
//! order of time), `encoder` (the trace, with the lanes of [`tef::lanes`]), `fields` (the fields of
//! an event as arguments), `tracks` (hosts, processes, threads, CPUs, asynchronous ids, counters),
//! `canvas` (what is drawn on tracks), `sent` (events in Trace Event Format).

pub mod argument;
mod batch;
pub mod canvas;
pub mod encoder;
pub mod fields;
pub mod ftrace;
mod interner;
pub mod message;
pub mod sent;
pub mod tracks;

pub use argument::{Argument, Text, Value};
pub use encoder::{CounterValue, Cpu, Encoder, Machine, Mark, TrackId};
