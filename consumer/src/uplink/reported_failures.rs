//! Failures that the log has, so that each is logged once.

use std::collections::BTreeSet;

use super::error::UplinkError;
use crate::limits::MAX_REPORTED_FAILURES;

/// Failures to reach relays, each with its relay and its text.
#[derive(Debug, Default)]
pub(super) struct ReportedFailures(BTreeSet<String>);

impl ReportedFailures {
    /// Adds a failure, and returns whether it is new. Beyond [`MAX_REPORTED_FAILURES`] none is: the
    /// text may have words of the relay, and those may differ each time.
    pub(super) fn add(&mut self, relay: &str, error: &UplinkError) -> bool {
        self.0.len() < MAX_REPORTED_FAILURES && self.0.insert(format!("{relay} {error}"))
    }

    /// Whether there was no failure.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
