//! Whether a line is one JSON object, and what is put right if it nearly is.
//!
//! | in the line | becomes |
//! |---|---|
//! | `nan`, `inf`, `infinity` for a value, any case, with or without sign, as `printf` writes them | a string of the same text |
//! | an escape of half a surrogate pair, alone | an escape of U+FFFD |
//! | a byte that is not UTF-8 | U+FFFD |
//! | a comma after the last brace | nothing |
//!
//! Everything else stays byte by byte, and a line in which nothing is wrong stays as a whole.
//! Members that have one name are nothing wrong here.

#[cfg(test)]
mod oracle;
mod repair;
#[cfg(test)]
mod tests;

use thiserror::Error;

use crate::json::scan_object;

/// How deep objects and arrays may be within each other, the event itself counted: as deep as most
/// readers go.
pub const MAX_DEPTH: usize = 128;

/// What a line is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Checked<'a> {
    /// One JSON object. These are its bytes.
    Valid(&'a str),
    /// One JSON object since these were put right.
    Repaired(String, Repairs),
    /// None.
    Rejected(Reason),
}

/// What was put right, and how often.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Repairs {
    /// Values that are no finite numbers.
    pub not_finite: u64,
    /// Unpaired surrogates.
    pub surrogates: u64,
    /// Sequences of bytes that are not UTF-8.
    pub not_utf8: u64,
    /// Commas after the last brace.
    pub commas: u64,
}

impl Repairs {
    /// Of all kinds.
    #[must_use]
    pub fn total(&self) -> u64 {
        let some = self.not_finite.saturating_add(self.surrogates);
        some.saturating_add(self.not_utf8)
            .saturating_add(self.commas)
    }
}

impl std::ops::AddAssign for Repairs {
    fn add_assign(&mut self, other: Self) {
        for (sum, more) in [
            (&mut self.not_finite, other.not_finite),
            (&mut self.surrogates, other.surrogates),
            (&mut self.not_utf8, other.not_utf8),
            (&mut self.commas, other.commas),
        ] {
            *sum = sum.saturating_add(more);
        }
    }
}

/// Why a line is not one JSON object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{fault} at byte {at}")]
pub struct Reason {
    /// What is wrong.
    pub fault: Fault,
    /// With which byte of the line, counted from 0.
    pub at: usize,
}

/// What can be wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Fault {
    /// It begins with something else than a brace.
    #[error("no object")]
    NoObject,
    /// It ends too early.
    #[error("cut off")]
    Cut,
    /// There is no name of a member.
    #[error("no name of a member")]
    Name,
    /// There is no colon behind a name.
    #[error("no colon")]
    Colon,
    /// There is no value.
    #[error("no value")]
    Value,
    /// There is neither a comma nor the bracket that is due.
    #[error("neither comma nor closing bracket")]
    Comma,
    /// A number goes on with what numbers do not have.
    #[error("no number")]
    Number,
    /// A string has an escape that there is not.
    #[error("no such escape")]
    Escape,
    /// A string has a control character that is not escaped.
    #[error("control character")]
    Control,
    /// Too many brackets within each other.
    #[error("more than {MAX_DEPTH} levels")]
    Depth,
    /// Something comes after the object.
    #[error("more than one object")]
    More,
}

/// Looks at a line, blanks at its ends already removed.
#[must_use]
pub fn check(line: &[u8]) -> Checked<'_> {
    match std::str::from_utf8(line) {
        Ok(line) => check_str(line),
        Err(_) => repair::repaired(line),
    }
}

/// [`check`], where it is already known that all is UTF-8.
#[must_use]
pub fn check_str(line: &str) -> Checked<'_> {
    match scan_object(line.as_bytes(), &mut ()) {
        Ok(false) => Checked::Valid(line),
        Ok(true) | Err(_) => match repair::repaired(line.as_bytes()) {
            // A surrogate pair.
            Checked::Repaired(_, repairs) if repairs.total() == 0 => Checked::Valid(line),
            other => other,
        },
    }
}
