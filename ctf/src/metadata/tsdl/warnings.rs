//! Warnings: oddities of metadata that are no reason to refuse it.

use super::limits::MAX_WARNINGS;
use crate::model::Position;

/// The warnings that have not been taken yet.
#[derive(Debug, Clone, Default)]
pub(super) struct Warnings(Vec<String>);

impl Warnings {
    pub(super) fn add(&mut self, at: Position, what: &str) {
        if self.0.len() < MAX_WARNINGS {
            self.0.push(format!(
                "metadata, line {}, column {}: {what}",
                at.line, at.column
            ));
        }
    }

    pub(super) fn take_all(&mut self) -> Vec<String> {
        std::mem::take(&mut self.0)
    }
}
