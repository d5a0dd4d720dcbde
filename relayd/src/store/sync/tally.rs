//! Counters of the syncer, for metrics.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::super::StoreError;
use super::super::fault::Faults;

/// Counters of a syncer. All of them count since the relay was started.
#[derive(Debug, Default)]
pub struct SyncTally {
    rounds: AtomicU64,
    files: AtomicU64,
    micros: AtomicU64,
    max_micros: AtomicU64,
    failures: AtomicU64,
    faults: Faults,
    /// Bytes that were written and are not synced.
    pub(super) unsynced: AtomicU64,
}

/// The duration of all rounds together, and of the longest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SyncDurations {
    /// Duration of all rounds together.
    pub sum: Duration,
    /// Duration of the longest round.
    pub max: Duration,
}

impl SyncTally {
    pub(super) fn count_round(&self, files: usize, taken: Duration) {
        let micros = u64::try_from(taken.as_micros()).unwrap_or(u64::MAX);
        self.files.fetch_add(files as u64, Ordering::Relaxed);
        self.micros.fetch_add(micros, Ordering::Relaxed);
        self.max_micros.fetch_max(micros, Ordering::Relaxed);
        // Last, so that a reader that sees the round sees its files.
        self.rounds.fetch_add(1, Ordering::Release);
    }

    pub(super) fn count_failure(&self, error: &StoreError) {
        self.faults.count(error);
        self.failures.fetch_add(1, Ordering::Release);
    }

    /// Number of rounds that had something to sync.
    #[must_use]
    pub fn rounds(&self) -> u64 {
        self.rounds.load(Ordering::Acquire)
    }

    /// Number of files and directories that were synced, in all rounds together.
    #[must_use]
    pub fn files(&self) -> u64 {
        self.files.load(Ordering::Relaxed)
    }

    /// The durations of the rounds.
    #[must_use]
    pub fn durations(&self) -> SyncDurations {
        let duration = |micros: &AtomicU64| Duration::from_micros(micros.load(Ordering::Relaxed));
        SyncDurations {
            sum: duration(&self.micros),
            max: duration(&self.max_micros),
        }
    }

    /// Number of files that could not be synced.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Acquire)
    }

    /// Number of failed syncs, by the kind of fault.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Bytes that were written and are not synced yet.
    #[must_use]
    pub fn unsynced_bytes(&self) -> u64 {
        self.unsynced.load(Ordering::Relaxed)
    }
}
