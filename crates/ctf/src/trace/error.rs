//! The errors of reading a trace.

use std::path::PathBuf;
use std::sync::Arc;

use thiserror::Error;

use crate::decode::DecodeError;
use crate::directory::DirectoryError;

/// A trace that cannot be opened, or a part of it that cannot be read.
#[derive(Debug, Clone, Error)]
pub enum Error {
    /// No trace can be opened; or a file cannot be read, or not further, and its stream ends.
    #[error(transparent)]
    Directory(#[from] Arc<DirectoryError>),
    /// The rest of a packet cannot be decoded. The next packet of the stream follows.
    #[error("cannot decode {}, packet at byte {offset}; the rest of the packet is not read", path.display())]
    Packet {
        /// The path of the data file.
        path: PathBuf,
        /// The offset of the packet in the file, in bytes.
        offset: u64,
        /// The error of the decoder.
        source: DecodeError,
    },
    /// The time of an event is more than 292 years from the clock's origin. The rest of its packet
    /// is not read.
    #[error("{}, packet at byte {offset}: an event at {cycles} cycles of its clock: out of range; the rest of the packet is not read", path.display())]
    Time {
        /// The path of the data file.
        path: PathBuf,
        /// The offset of the packet in the file, in bytes.
        offset: u64,
        /// The time of the event in cycles.
        cycles: u64,
    },
    /// An event has more than 2^20 values, labels included. It is left out.
    #[error("{}, packet at byte {offset}: an event with too many values; it is left out", path.display())]
    TooManyValues {
        /// The path of the data file.
        path: PathBuf,
        /// The offset of the packet in the file, in bytes.
        offset: u64,
    },
}
