//! Why a trace on disk cannot be read.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::decode::DecodeError;
use crate::error::MetadataError;

/// A trace on disk that cannot be read, or not further.
#[derive(Debug, Error)]
pub enum DirectoryError {
    /// The file system refuses.
    #[error("cannot read {}", path.display())]
    Read {
        /// What.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// There is no trace.
    #[error("no trace at or below {}", path.display())]
    NoTrace {
        /// Where the search began.
        path: PathBuf,
    },
    /// The metadata cannot be understood.
    #[error("cannot read {}", path.display())]
    Metadata {
        /// Of the metadata file.
        path: PathBuf,
        /// Why.
        source: MetadataError,
    },
    /// A data file holds something else than packets.
    #[error("{}, packet at byte {offset}", path.display())]
    Packet {
        /// Of the data file.
        path: PathBuf,
        /// Where the packet begins.
        offset: u64,
        /// What is wrong with it.
        source: DecodeError,
    },
}
