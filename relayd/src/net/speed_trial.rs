//! Finds out whether a producer that waits for the reply to each index is faster if reads are deferred, by trying both.
//!
//! That depends on the host. While packets are left in the socket, the worker has nothing to do, and sleeps until the next
//! index comes. Where it takes long to wake a thread up, the producer waits for that each time; a worker that reads each
//! packet at once is still busy, or has just gone to sleep, when the next one begins to arrive. Where waking up is fast, fewer
//! and larger reads are faster.
//!
//! Periods of [`TRIAL_INDEXES`] indexes are measured. Now and then one of them tries the other way, and is compared with
//! the periods before and after it.

use std::time::{Duration, Instant};

use crate::limits::{
    MAX_TRIAL_INTERVAL, MIN_TRIAL_INTERVAL, TRIAL_INDEXES, TRIAL_SETTLING_INDEXES,
};

/// Decides whether reads are deferred.
#[derive(Debug, Clone)]
pub(super) struct SpeedTrial {
    /// Which way was faster.
    defers: bool,
    period: Period,
    /// Indexes of this period so far.
    indexes: u32,
    /// When the first of them that is measured came.
    since: Option<Instant>,
    /// Periods that are left before the next trial.
    left: u32,
    /// Periods between the last trial and the next one.
    interval: u32,
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

impl Default for SpeedTrial {
    fn default() -> Self {
        Self {
            defers: false,
            period: Period::Usual,
            indexes: 0,
            since: None,
            left: 0,
            interval: MIN_TRIAL_INTERVAL,
        }
    }
}

impl SpeedTrial {
    /// One that defers reads, and does not try anything else.
    #[cfg(test)]
    pub(super) fn deferring() -> Self {
        Self {
            defers: true,
            left: u32::MAX,
            ..Self::default()
        }
    }

    /// Whether to defer reads now.
    pub(super) fn defers(&self) -> bool {
        self.defers != matches!(self.period, Period::Trial { .. })
    }

    /// Records that so many indexes have come. A period with a silence is measured anew.
    pub(super) fn record(&mut self, now: Instant, indexes: u32, is_after_silence: bool) {
        if is_after_silence {
            (self.indexes, self.since) = (0, None);
            return;
        }
        self.indexes = self.indexes.saturating_add(indexes);
        if self.indexes < TRIAL_SETTLING_INDEXES {
            return;
        }
        let since = *self.since.get_or_insert(now);
        if self.indexes >= TRIAL_SETTLING_INDEXES + TRIAL_INDEXES {
            (self.indexes, self.since) = (0, None);
            self.end_period(now - since);
        }
    }

    fn end_period(&mut self, taken: Duration) {
        self.period = match self.period {
            Period::Usual if self.left > 0 => {
                self.left -= 1;
                Period::Usual
            }
            Period::Usual => Period::Trial { before: taken },
            Period::Trial { before } => Period::After {
                before,
                trial: taken,
            },
            Period::After { before, trial } => {
                if self.is_better(trial, (before + taken) / 2) {
                    self.defers = !self.defers;
                    self.interval = MIN_TRIAL_INTERVAL;
                } else {
                    self.interval = (2 * self.interval).min(MAX_TRIAL_INTERVAL);
                }
                self.left = self.interval;
                Period::Usual
            }
        };
    }

    /// Whether the other way is better, with which a period took `trial`. Deferred reads take less processor time: they
    /// need not be faster, and are given up only for what is faster by a sixteenth.
    fn is_better(&self, trial: Duration, usual: Duration) -> bool {
        match self.defers {
            false => trial <= usual,
            true => trial + trial / 16 < usual,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);

    /// Periods in which an index takes `direct` or `deferred` microseconds. Returns in which of them reads were deferred.
    fn run(trial: &mut SpeedTrial, periods: usize, direct: u32, deferred: u32) -> Vec<bool> {
        let mut now = Instant::now();
        let mut period = || {
            let defers = trial.defers();
            for _ in 0..TRIAL_SETTLING_INDEXES + TRIAL_INDEXES {
                now += US * if defers { deferred } else { direct };
                trial.record(now, 1, false);
            }
            defers
        };
        (0..periods).map(|_| period()).collect()
    }

    fn count(periods: &[bool]) -> usize {
        periods.iter().filter(|defers| **defers).count()
    }

    #[test]
    fn reads_are_not_deferred_where_that_is_slower() {
        let mut trial = SpeedTrial::default();
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
    fn reads_are_deferred_where_that_is_not_slower() {
        let mut trial = SpeedTrial::default();
        run(&mut trial, 3, 50, 50);
        let max = MAX_TRIAL_INTERVAL as usize;
        // A little slower is no reason to stop.
        assert!(count(&run(&mut trial, 10 * max, 49, 50)) > 9 * max);
        run(&mut trial, 2 * max, 40, 50);
        assert!(!trial.defers());
    }

    #[test]
    fn a_period_with_a_silence_is_measured_anew() {
        let mut trial = SpeedTrial::default();
        let mut now = Instant::now();
        let mut record = |trial: &mut SpeedTrial, is_after_silence| {
            now += US * if is_after_silence { 1_000_000 } else { 50 };
            trial.record(now, 1, is_after_silence);
        };
        for _ in 0..TRIAL_INDEXES {
            record(&mut trial, false);
        }
        record(&mut trial, true);
        for _ in 1..TRIAL_SETTLING_INDEXES + TRIAL_INDEXES {
            record(&mut trial, false);
        }
        assert!(!trial.defers());
        record(&mut trial, false);
        assert!(trial.defers());
        let Period::Trial { before } = trial.period else {
            panic!("{trial:?}");
        };
        assert_eq!(before, US * 50 * TRIAL_INDEXES);
    }
}
