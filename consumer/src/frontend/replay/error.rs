//! The failures of a replay.

use ctf::directory::DirectoryError;
use thiserror::Error;

use crate::queue::SessionClosed;

/// A replay cannot begin, or its reader has failed.
#[derive(Debug, Error)]
pub enum ReplayError {
    /// There is no trace, or none can be read.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// The uplink has stopped before the session was opened.
    #[error(transparent)]
    SessionClosed(#[from] SessionClosed),
    /// The thread that reads the traces has panicked.
    #[error("the reading thread has panicked")]
    Reader,
}
