//! The error of metadata.

use thiserror::Error;

use crate::model::Position;

/// Metadata that cannot be read. Nothing after the error is read either.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum MetadataError {
    /// The text of the metadata is invalid.
    #[error("{}: {what}", place(*at))]
    Text {
        /// The place in the text, packet headers not counted; the default if the error has none.
        at: Position,
        /// The rule that the text breaks.
        what: String,
    },
    /// A packet that carries the metadata is malformed.
    #[error("metadata packet at byte {at}: {what}")]
    Packet {
        /// The offset of the packet from the beginning of the metadata, in bytes.
        at: u64,
        /// The rule that the packet breaks.
        what: String,
    },
    /// The metadata ends within a packet or a declaration.
    #[error("metadata ends within what begins at line {}, column {}", at.line, at.column)]
    Incomplete {
        /// The place where the unfinished declaration begins.
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

/// The place of an error as messages name it. An error that concerns all of the metadata has none.
pub(crate) fn place(at: Position) -> String {
    if at == Position::default() {
        return "metadata".to_owned();
    }
    format!("metadata, line {}, column {}", at.line, at.column)
}
