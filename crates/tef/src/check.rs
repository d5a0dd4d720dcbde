//! Checks whether a line is one JSON object, and repairs it if it nearly is.
//!
//! | in the line | becomes |
//! |---|---|
//! | `nan`, `inf`, `infinity` as a value, in any case, with any sign | a string of that text |
//! | an escape of half a surrogate pair, alone | an escape of U+FFFD |
//! | a byte that is not UTF-8 | U+FFFD |
//! | a comma after the last brace | nothing |
//!
//! Everything else stays byte by byte, and a line in which nothing is wrong stays as a whole.
//! Members of the same name are not looked for.

#[cfg(test)]
mod oracle;
mod repair;
#[cfg(test)]
mod tests;

use crate::json::scan_object;
pub use crate::json::{Fault, MAX_DEPTH, Reason};

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Checked<'a> {
    /// The line is one JSON object as it is.
    Valid(&'a str),
    /// The line has become one JSON object by these repairs.
    Repaired(String, Repairs),
    /// The line is no JSON object and cannot be repaired.
    Rejected(Reason),
}

/// The number of repairs of each kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Repairs {
    /// Values like `nan` and `inf`, which became strings.
    pub not_finite: u64,
    /// Unpaired surrogates, which became U+FFFD.
    pub surrogates: u64,
    /// Sequences of bytes that are not UTF-8, which became U+FFFD.
    pub not_utf8: u64,
    /// Commas after the last brace, which were removed.
    pub commas: u64,
}

impl Repairs {
    /// The number of repairs of all kinds together.
    #[must_use]
    pub fn total(&self) -> u64 {
        let some = self.not_finite.saturating_add(self.surrogates);
        // Saturating, here and below: a count is for people, and must not end a program.
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

/// Checks a line whose leading and trailing blanks have been removed, and repairs it if it nearly
/// is JSON.
#[must_use]
pub fn check(line: &[u8]) -> Checked<'_> {
    match std::str::from_utf8(line) {
        Ok(line) => check_str(line),
        Err(_) => repair::repair_line(line),
    }
}

/// Checks a line that is known to be UTF-8, like [`check`].
#[must_use]
pub fn check_str(line: &str) -> Checked<'_> {
    match scan_object(line.as_bytes(), &mut ()) {
        Ok(false) => Checked::Valid(line),
        // Few lines come here, so that they may be scanned a second time.
        Ok(true) | Err(_) => match repair::repair_line(line.as_bytes()) {
            // A surrogate pair.
            Checked::Repaired(_, repairs) if repairs.total() == 0 => Checked::Valid(line),
            other => other,
        },
    }
}
