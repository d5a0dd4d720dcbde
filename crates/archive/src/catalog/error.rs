//! What can go wrong when an archive is read. Names come from the archive, and are shown escaped.

use thiserror::Error;

use crate::object::ObjectError;
use crate::store::{FormatError, StoreError, StoreErrorKind};

/// Something in an archive that cannot be read.
#[derive(Debug, Error)]
pub enum CatalogError {
    /// A call to the store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// There is no archive, or another version has written it.
    #[error(transparent)]
    Format(FormatError),
    /// An object is not what its name says.
    #[error("object {}", name.escape_debug())]
    Object {
        /// The name of the object.
        name: String,
        /// What is wrong with it.
        source: ObjectError,
    },
    /// A document is not what its name says.
    #[error("object {}: {}", name.escape_debug(), reason.escape_debug())]
    Document {
        /// The name of the object.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The archive, or one session, has more than is read.
    #[error("{}: more than {limit}, which is the limit", what.escape_debug())]
    Limit {
        /// What there is too much of.
        what: String,
        /// The limit, in the unit of `what`.
        limit: u64,
    },
}

impl From<FormatError> for CatalogError {
    fn from(error: FormatError) -> Self {
        match error {
            FormatError::Store(error) => Self::Store(error),
            error => Self::Format(error),
        }
    }
}

impl CatalogError {
    /// Whether the store fails, and not only one object: other reads will fail as well.
    #[must_use]
    pub fn is_of_store(&self) -> bool {
        matches!(
            self.kind(),
            Some(StoreErrorKind::Unknown | StoreErrorKind::Refused)
        )
    }

    /// Whether the outcome of a call is unknown, so that it can be made again.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        self.kind() == Some(StoreErrorKind::Unknown)
    }

    /// Whether an object is not there.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.kind() == Some(StoreErrorKind::NotFound)
    }

    fn kind(&self) -> Option<StoreErrorKind> {
        match self {
            Self::Store(error) => Some(error.kind),
            _ => None,
        }
    }
}
