//! Big-endian fields, messages as tables of fields, and the ids and units that all crates of the
//! workspace share. The crate knows no socket, file, clock or task.
//!
//! Read in this order: [`Field`] (what can be read and written), [`wire_struct!`] and
//! [`wire_enum!`] (messages as tables of fields), [`Message`] (what has several forms or no fixed
//! size) and [`wire_commands!`] (commands as a table of messages), [`number`] (numbers with a
//! meaning), [`text`] (names as peers send them), [`path`] (names that have been checked and may
//! become files), [`PacketIndex`] (the one record that producers, relay, files and viewers all pass
//! on).

#[macro_use]
mod table;

mod error;
mod field;
pub mod hex;
mod message;
pub mod number;
mod packet_index;
pub mod path;
pub mod text;

pub use error::DecodeError;
pub use field::{Field, Flagged, split_up_to};
pub use message::Message;
pub use number::{
    Bits, Bytes, ChunkId, ClassId, EpochSeconds, InstanceId, Micros, PacketSeqNum, SeqNum,
    SessionId, StreamId, Timestamp, TraceId, ViewerId,
};
pub use packet_index::{PacketIndex, PacketIndexV1_0};
pub use path::{FileName, NAME_MAX, NameError, TracePath};
pub use text::{FixedText, Text};

/// The names that the macros use, under a path that works in every crate.
#[doc(hidden)]
pub mod __private {
    pub use bytes::BufMut;
}

/// The examples in the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
