//! Shedding under overload: above a limit of events per second, the least important severities are
//! left out first.

use std::fmt;
use std::time::{Duration, Instant};

use trace_ring_core::Severity;
use tracing::warn;

/// Time over which events are counted.
const WINDOW: Duration = Duration::from_secs(1);
/// Time without overload after which one more severity is let through again.
const CALM_PERIOD: Duration = Duration::from_secs(10);

/// The severities that are let through. One is shed per [`WINDOW`] of overload; WARN and ERROR
/// always pass.
#[derive(Debug)]
pub(super) struct Overload {
    max_per_second: u64,
    max_severity: Severity,
    window: Option<Instant>,
    events: u64,
    calm_since: Option<Instant>,
    /// The last change of `max_severity`, until it is taken.
    step: Option<SheddingStep>,
}

/// A change of what is let through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SheddingStep {
    /// The least important severity that passes.
    pub(super) max_severity: Severity,
    /// The limit, which is the reason: events per second.
    pub(super) max_per_second: u64,
}

impl fmt::Display for SheddingStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            max_severity,
            max_per_second,
        } = self;
        write!(
            f,
            "events limited to {max_per_second} per second: only {max_severity} and above pass"
        )
    }
}

impl Overload {
    /// Lets everything through until there are more events per second than `max_per_second`.
    #[must_use]
    pub(super) fn new(max_per_second: u64) -> Self {
        Self {
            max_per_second,
            max_severity: Severity::Trace,
            window: None,
            events: 0,
            calm_since: None,
            step: None,
        }
    }

    /// Whether an event of this severity, which was read at `now`, is let through.
    pub(super) fn admits(&mut self, severity: Severity, now: Instant) -> bool {
        let window = *self.window.get_or_insert(now);
        if now.saturating_duration_since(window) >= WINDOW {
            self.window = Some(now);
            self.events = 0;
            if now.saturating_duration_since(*self.calm_since.get_or_insert(now)) >= CALM_PERIOD {
                self.calm_since = Some(now);
                self.set_max_severity(next(self.max_severity, 1));
            }
        }
        if severity > self.max_severity {
            return false;
        }
        self.events += 1;
        if self.events > self.max_per_second {
            self.calm_since = Some(now);
            // A new window begins, in which the next severity is left out only if the others alone
            // are too many.
            self.window = Some(now);
            self.events = 0;
            self.set_max_severity(next(self.max_severity, -1).max(Severity::Warn));
        }
        severity <= self.max_severity
    }

    fn set_max_severity(&mut self, max_severity: Severity) {
        if self.max_severity != max_severity {
            self.max_severity = max_severity;
            let step = SheddingStep {
                max_severity,
                max_per_second: self.max_per_second,
            };
            warn!("{step}");
            self.step = Some(step);
        }
    }

    /// Returns the change of what is let through since the last call.
    pub(super) fn take_step(&mut self) -> Option<SheddingStep> {
        self.step.take()
    }
}

/// Returns the severity `steps` below (positive: less important) another, within the range.
fn next(severity: Severity, steps: i8) -> Severity {
    let code = severity.code().saturating_add_signed(steps);
    Severity::from_code(code).unwrap_or(severity)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overload_sheds_trace_first_and_never_a_warning() {
        let begin = Instant::now();
        let mut overload = Overload::new(10);
        let mut admitted = |severity: Severity, at: Instant, count: usize| {
            (0..count).filter(|_| overload.admits(severity, at)).count()
        };
        assert_eq!(admitted(Severity::Trace, begin, 100), 10);
        assert_eq!(admitted(Severity::Trace, begin, 100), 0);
        assert_eq!(admitted(Severity::Debug, begin, 100), 10);
        assert_eq!(admitted(Severity::Info, begin, 100), 10);
        assert_eq!(admitted(Severity::Warn, begin, 1000), 1000);
        assert_eq!(admitted(Severity::Error, begin, 1000), 1000);
    }

    #[test]
    fn severities_pass_again_after_a_calm_period() {
        let begin = Instant::now();
        let mut overload = Overload::new(1);
        for _ in 0..3 {
            overload.admits(Severity::Trace, begin);
        }
        assert!(!overload.admits(Severity::Trace, begin + WINDOW));
        let later = begin + CALM_PERIOD + WINDOW;
        assert!(overload.admits(Severity::Trace, later));
    }
}
