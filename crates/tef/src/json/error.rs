//! The limit of depth, and why bytes are not one JSON object.

use thiserror::Error;

/// Largest number of objects and arrays within each other, the event itself counted: as deep as
/// most readers go.
pub const MAX_DEPTH: usize = 128;

/// Why a line is not one JSON object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{fault} at byte {at}")]
pub struct Reason {
    /// The fault that was found first.
    pub fault: Fault,
    /// The byte of the line that has the fault, counted from 0.
    pub at: usize,
}

/// A fault by which a line is not one JSON object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Fault {
    /// The line begins with something else than a brace.
    #[error("no object")]
    NoObject,
    /// The line ends too early.
    #[error("cut off")]
    Cut,
    /// No name of a member stands where one must be.
    #[error("no name of a member")]
    Name,
    /// No colon stands after a name.
    #[error("no colon")]
    Colon,
    /// No value stands where one must be.
    #[error("no value")]
    Value,
    /// Neither a comma nor the closing bracket stands after a value.
    #[error("neither comma nor closing bracket")]
    Comma,
    /// A number goes on with what numbers do not have.
    #[error("no number")]
    Number,
    /// A string has an escape that JSON does not know.
    #[error("no such escape")]
    Escape,
    /// A string has a control character that is not escaped.
    #[error("control character")]
    Control,
    /// Objects and arrays are nested too deeply.
    #[error("more than {MAX_DEPTH} levels")]
    Depth,
    /// Something stands after the object.
    #[error("more than one object")]
    More,
}
