//! What is wrong with a fragment.

use crate::model::Position;

/// What is wrong with a fragment, and where, if that is known.
#[derive(Debug)]
pub(super) struct Problem {
    pub(super) at: Option<Position>,
    pub(super) what: String,
}

impl Problem {
    pub(super) fn new(what: impl Into<String>) -> Self {
        let what = what.into();
        Self { at: None, what }
    }

    /// Says in which member or option it is.
    pub(super) fn within(mut self, name: &str) -> Self {
        self.what = format!("{name:?}: {}", self.what);
        self
    }
}
