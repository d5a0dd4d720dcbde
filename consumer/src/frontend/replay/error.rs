//! Why a replay fails.

use ctf::directory::DirectoryError;
use thiserror::Error;

use crate::queue::SessionClosed;

/// Why nothing can be sent.
#[derive(Debug, Error)]
pub enum ReplayError {
    /// The traces cannot be read.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// The uplink has stopped.
    #[error(transparent)]
    SessionClosed(#[from] SessionClosed),
    /// The thread that reads has ended.
    #[error("reading has failed")]
    Reader,
}
