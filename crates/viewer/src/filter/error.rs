//! Syntax errors of a filter.

use std::fmt;

use daemon::event_text::printable;

/// Number of characters of the filter that are shown on each side of an error.
const EXCERPT_CHARACTERS: usize = 60;

/// A syntax error of a filter. Its `Display` shows where, with a mark below the place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilterError {
    /// The position of the error, in characters from 1.
    pub column: usize,
    /// The error, in words.
    pub what: String,
    /// The text around the error.
    excerpt: String,
    /// Number of characters of the excerpt before the error.
    before: usize,
}

impl FilterError {
    /// An error at `column`, which counts from 0.
    pub(crate) fn new(text: &str, column: usize, what: impl Into<String>) -> Self {
        let begin = column.saturating_sub(EXCERPT_CHARACTERS);
        let shown = text.chars().skip(begin).take(2 * EXCERPT_CHARACTERS);
        Self {
            column: column + 1,
            // The words quote parts of the filter, which may have control characters.
            what: printable(&what.into()),
            excerpt: shown
                // One space for each, so that the mark below stays in its column.
                .map(|char| if char.is_control() { ' ' } else { char })
                .collect(),
            before: column - begin,
        }
    }
}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (column, what, excerpt, before) = (self.column, &self.what, &self.excerpt, self.before);
        write!(
            f,
            "column {column} of the filter: {what}\n  {excerpt}\n  {:before$}^",
            ""
        )
    }
}

impl std::error::Error for FilterError {}
