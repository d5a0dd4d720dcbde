//! Traces on disk: which directories are traces, which of their files are one stream, and their
//! packets in order; and new ones, by [`TraceWriter`]. The only part of the crate that opens data
//! files.
//!
//! [`open`] does all of it: a trace is a directory with a file `metadata`. Directories below it,
//! files whose name begins with a dot, and directories behind symbolic links are ignored.
//! Directories whose metadata says the same trace are pieces of it, and files whose packets have
//! the same stream number are pieces of one stream. Its packets are put in order of their numbers,
//! or of time if they have none; those of one file keep their order. A packet that lies in two
//! files counts once.
//!
//! Opening reads the head of every packet, not its events, and no index file: an index may be
//! wrong, and has no information that the packets do not have. Each packet takes some hundred bytes
//! of memory. A [`StreamReader`] holds one file open and copies one packet at a time into a buffer
//! of the caller's.
//!
//! [`open`] does not fail if the metadata of one of several traces cannot be read, which
//! [`OpenedTraces`] says, nor if a data file is invalid somewhere: the packets before that place
//! are read, and then [`StreamReader::next`] returns the error. Bytes that are written later are
//! not seen. Sizes and offsets are in bytes, times in cycles.
#![expect(
    clippy::disallowed_types,
    reason = "this module is where the crate meets the file system"
)]

mod error;
mod find;
mod packets;
mod streams;
mod traces;
mod writer;

pub use error::DirectoryError;
pub use find::traces_below;
pub use packets::{DataFile, StreamReader, UnreadPacket};
pub use streams::{PacketSummary, StreamFiles};
pub use traces::{OpenedTraces, TraceDirectory, open};
pub use writer::{StreamHandle, TraceWriter, WriteError};
