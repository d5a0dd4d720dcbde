//! The errors of reading an archive.

use archive::catalog::CatalogError;
use archive::store::OpenError;
use thiserror::Error;

/// An error that ends the reading of an archive.
#[derive(Debug, Error)]
pub enum ArchiveError {
    /// The URL or the settings of the store are wrong.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// There is no directory of this name, which is not made by readers.
    #[error("no such directory")]
    NoDirectory,
    /// The archive cannot be read.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// The archive has none of the sessions that the target names. The text says which it has.
    #[error("{0}")]
    NoSession(String),
    /// The archive has the sessions, and nothing of the wanted time. The text says what it has.
    #[error("{0}")]
    NothingInTime(String),
    /// The archive, or what is wanted of it, has more than is read.
    #[error("more than {limit} {what}; --begin and --end select some")]
    Limit {
        /// What there is too much of.
        what: &'static str,
        /// The largest number that is read.
        limit: usize,
    },
    /// The receiver of the events has been dropped.
    #[error("the receiver of the events has been dropped")]
    ReceiverGone,
    /// The system has no thread for the work.
    #[error("cannot decode a block: the thread ended")]
    Thread,
}
