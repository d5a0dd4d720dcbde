//! Finds out which of two ways to serve a producer is faster, by trying both.
//!
//! That depends on the host. One of the ways is preferred, because it takes less processor time on most hosts: it need not be
//! faster.
//!
//! - A producer that waits for the reply to each index may be faster if reads are deferred (`deferral`), which is preferred.
//!   While packets are left in the socket, the worker has nothing to do, and sleeps until the next index comes. Where it takes
//!   long to wake a thread up, the producer waits for that each time; a worker that reads each packet at once is still busy,
//!   or has just gone to sleep, when the next one begins to arrive. Where waking up is fast, fewer and larger reads are faster.
//! - Large packets of a producer that is alone may be faster if they are spliced (`data::spliced`), which is preferred, or if
//!   they are copied by way of a buffer. That depends on the caches of the processor.
//!
//! Periods are measured that have the same amount of work. Now and then one of them tries the other way, and is compared with
//! the periods before and after it.

use std::time::{Duration, Instant};

use crate::limits::{MAX_TRIAL_INTERVAL, MIN_TRIAL_INTERVAL};

/// Decides between two ways.
#[derive(Debug, Clone)]
pub(super) struct SpeedTrial {
    rules: TrialRules,
    /// Whether the preferred way is used except in trials of the other one.
    is_preferred_usual: bool,
    period: Period,
    /// Work of this period so far.
    work: u64,
    /// When the part of it began that is measured.
    since: Option<Instant>,
    /// Periods that are left before the next trial.
    left: u32,
    /// Periods between the last trial and the next one.
    interval: u32,
}

/// How two ways are compared. Work is a number of indexes, or of bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct TrialRules {
    /// Work at the beginning of a period that is not measured: what was begun in the other way comes to its end.
    pub(super) settling: u64,
    /// The rest of the work of a period.
    pub(super) measured: u64,
    /// The preferred way is given up for one that is faster by more than this part: 16 is a sixteenth.
    pub(super) margin: u32,
}

/// What the present period is for.
#[derive(Debug, Clone, Copy)]
enum Period {
    /// The way that was faster.
    Usual,
    /// Tries the other way. `before`: how long the period before it took.
    Trial { before: Duration },
    /// The usual way again, to be compared with the trial before it.
    After { before: Duration, trial: Duration },
}

impl SpeedTrial {
    /// Begins with the preferred way, or with the other one. The second period is a trial.
    pub(super) fn new(is_preferred_usual: bool, rules: TrialRules) -> Self {
        Self {
            rules,
            is_preferred_usual,
            period: Period::Usual,
            work: 0,
            since: None,
            left: 0,
            interval: MIN_TRIAL_INTERVAL,
        }
    }

    /// One that uses the preferred way, and does not try the other one.
    #[cfg(test)]
    pub(super) fn without_trials(rules: TrialRules) -> Self {
        let left = u32::MAX;
        Self {
            left,
            ..Self::new(true, rules)
        }
    }

    /// Whether to use the preferred way now.
    pub(super) fn should_use_preferred(&self) -> bool {
        self.is_preferred_usual != matches!(self.period, Period::Trial { .. })
    }

    /// Records that so much work has been done. A period with a silence is measured anew. Returns, when a trial is decided,
    /// whether it is for the preferred way.
    pub(super) fn record(
        &mut self,
        now: Instant,
        work: u64,
        is_after_silence: bool,
    ) -> Option<bool> {
        if is_after_silence {
            (self.work, self.since) = (0, None);
            return None;
        }
        self.work = self.work.saturating_add(work);
        if self.work < self.rules.settling {
            return None;
        }
        let since = *self.since.get_or_insert(now);
        if self.work < self.rules.settling + self.rules.measured {
            return None;
        }
        (self.work, self.since) = (0, None);
        self.end_period(now - since)
    }

    fn end_period(&mut self, taken: Duration) -> Option<bool> {
        let (next, decided) = match self.period {
            Period::Usual if self.left > 0 => {
                self.left -= 1;
                (Period::Usual, None)
            }
            Period::Usual => (Period::Trial { before: taken }, None),
            Period::Trial { before } => {
                let trial = taken;
                (Period::After { before, trial }, None)
            }
            Period::After { before, trial } => {
                if self.is_better(trial, (before + taken) / 2) {
                    self.is_preferred_usual = !self.is_preferred_usual;
                    self.interval = MIN_TRIAL_INTERVAL;
                } else {
                    self.interval = (2 * self.interval).min(MAX_TRIAL_INTERVAL);
                }
                self.left = self.interval;
                (Period::Usual, Some(self.is_preferred_usual))
            }
        };
        self.period = next;
        decided
    }

    /// Whether the other way is better, with which a period took `trial`.
    fn is_better(&self, trial: Duration, usual: Duration) -> bool {
        match self.is_preferred_usual {
            false => trial <= usual,
            true => trial + trial / self.rules.margin < usual,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);

    const RULES: TrialRules = TrialRules {
        settling: 64,
        measured: 256,
        margin: 16,
    };

    /// Periods in which a unit of work takes `preferred` or `other` microseconds. Returns which of them used the preferred
    /// way.
    fn run(trial: &mut SpeedTrial, periods: usize, other: u32, preferred: u32) -> Vec<bool> {
        let mut now = Instant::now();
        let mut period = || {
            let uses_preferred = trial.should_use_preferred();
            for _ in 0..RULES.settling + RULES.measured {
                now += US * if uses_preferred { preferred } else { other };
                trial.record(now, 1, false);
            }
            uses_preferred
        };
        (0..periods).map(|_| period()).collect()
    }

    fn count(periods: &[bool]) -> usize {
        periods
            .iter()
            .filter(|uses_preferred| **uses_preferred)
            .count()
    }

    #[test]
    fn the_preferred_way_is_not_used_where_it_is_slower() {
        let mut trial = SpeedTrial::new(false, RULES);
        assert_eq!(run(&mut trial, 3, 50, 80), [false, true, false]);
        let interval = MIN_TRIAL_INTERVAL as usize;
        // Trials become less frequent.
        let next = run(&mut trial, 2 * interval + 2, 50, 80);
        assert_eq!(count(&next), 1);
        assert!(next[2 * interval + 1]);
        let max = MAX_TRIAL_INTERVAL as usize;
        run(&mut trial, 10 * max, 50, 80);
        assert!(count(&run(&mut trial, 10 * max, 50, 80)) <= 10);
    }

    #[test]
    fn the_preferred_way_is_used_where_it_is_not_slower() {
        for begins_with_preferred in [false, true] {
            let mut trial = SpeedTrial::new(begins_with_preferred, RULES);
            run(&mut trial, 3, 50, 50);
            let max = MAX_TRIAL_INTERVAL as usize;
            // A little slower is no reason to stop.
            assert!(count(&run(&mut trial, 10 * max, 49, 50)) > 9 * max);
            run(&mut trial, 2 * max, 40, 50);
            assert!(!trial.should_use_preferred());
        }
    }

    #[test]
    fn a_period_with_a_silence_is_measured_anew() {
        let mut trial = SpeedTrial::new(false, RULES);
        let mut now = Instant::now();
        let mut record = |trial: &mut SpeedTrial, is_after_silence| {
            now += US * if is_after_silence { 1_000_000 } else { 50 };
            trial.record(now, 1, is_after_silence);
        };
        for _ in 0..RULES.measured {
            record(&mut trial, false);
        }
        record(&mut trial, true);
        for _ in 1..RULES.settling + RULES.measured {
            record(&mut trial, false);
        }
        assert!(!trial.should_use_preferred());
        record(&mut trial, false);
        assert!(trial.should_use_preferred());
        let Period::Trial { before } = trial.period else {
            panic!("{trial:?}");
        };
        assert_eq!(before, US * 50 * 256);
    }
}
