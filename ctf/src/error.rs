//! What can be wrong with a trace, and where.

use thiserror::Error;

use crate::model::Position;

/// Metadata that cannot be read. Nothing after it is read either.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum MetadataError {
    /// The text says something that it must not.
    #[error("metadata, line {}, column {}: {what}", at.line, at.column)]
    Text {
        /// In the text, without packet headers.
        at: Position,
        /// What is wrong there.
        what: String,
    },
    /// The text lies in packets, and one of them is malformed.
    #[error("metadata packet at byte {at}: {what}")]
    Packet {
        /// Where the packet begins, in bytes from the beginning of the metadata.
        at: u64,
        /// What is wrong with it.
        what: String,
    },
    /// The metadata ends within a packet or a declaration.
    #[error("metadata ends within what begins at line {}, column {}", at.line, at.column)]
    Incomplete {
        /// Where the unfinished declaration begins.
        at: Position,
    },
}

impl MetadataError {
    pub(crate) fn text(at: Position, what: impl Into<String>) -> Self {
        Self::Text {
            at,
            what: what.into(),
        }
    }
}
