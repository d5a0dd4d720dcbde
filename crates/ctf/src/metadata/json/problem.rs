//! The error of a fragment.

use crate::model::Position;

/// The defect of a fragment, and its position, if that is known better than that of the fragment.
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
