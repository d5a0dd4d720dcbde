//! The errors of traces on disk.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::decode::DecodeError;
use crate::error::MetadataError;

/// A trace on disk that cannot be read, or not further.
#[derive(Debug, Error)]
pub enum DirectoryError {
    /// The file system refuses access to a file or directory.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file or directory.
        path: PathBuf,
        /// The error of the file system.
        source: io::Error,
    },
    /// No directory at or below the given one holds metadata.
    #[error("no trace at or below {}", path.display())]
    NoTrace {
        /// The directory where the search began.
        path: PathBuf,
    },
    /// The metadata cannot be parsed.
    #[error("cannot read {}", path.display())]
    Metadata {
        /// The path of the metadata file.
        path: PathBuf,
        /// The error of the parser.
        source: MetadataError,
    },
    /// A data file holds something else than packets.
    #[error("{}, packet at byte {offset}", path.display())]
    Packet {
        /// The path of the data file.
        path: PathBuf,
        /// The offset of the packet in the file, in bytes.
        offset: u64,
        /// The error of the packet.
        source: DecodeError,
    },
}
