//! Deferring reads of a data connection whose producer waits for the reply to each index: several packets are left in the
//! socket, and are read together.
//!
//! Such a producer sends a packet, then its index, and sleeps until the index is answered. What is read at once costs the
//! producer time: each read acknowledges what it took, and a producer of LTTng, which leaves Nagle's algorithm on, then sends
//! the next bytes by themselves. While nothing is acknowledged, its kernel collects them, and they cost one acknowledgement
//! together. What has been read is decoded one packet at a time, with commands between two of them.
//!
//! It engages where it is not slower ([`SpeedTrial`]), after [`DEFER_AFTER_INDEXES`] indexes that came within
//! [`MAX_INDEX_INTERVAL`] of each other, while the data connection is the only active one of its worker, and delays packets
//! for viewers by [`COALESCE_INTERVAL`] at most. If no index comes in that time, twice as many are required: the producer may
//! have no room for a packet until another one is read. An idle connection costs nothing.

use std::time::Instant;

use super::speed_trial::{SpeedTrial, TrialRules};
use crate::limits::{
    COALESCE_INTERVAL, DEFER_AFTER_INDEXES, MAX_DEFER_AFTER_INDEXES, MAX_DEFERRED_BYTES,
    MAX_DEFERRED_PACKETS, MAX_INDEX_INTERVAL, TRIAL_INDEXES, TRIAL_SETTLING_INDEXES,
};

/// Of the trial, which compares the times that indexes take.
const TRIAL_RULES: TrialRules = TrialRules {
    settling: TRIAL_SETTLING_INDEXES,
    measured: TRIAL_INDEXES,
    margin: 16,
};

/// Decides when one data connection is read.
#[derive(Debug, Clone)]
pub(super) struct ReadDeferral {
    /// Number of indexes at the last call of `record_indexes`.
    indexes: u64,
    last_index: Option<Instant>,
    /// Indexes in a row that came soon after the one before.
    frequent: u32,
    /// How many of them are required.
    required: u32,
    /// When the first packet was left in the socket.
    since: Option<Instant>,
    trial: SpeedTrial,
}

impl Default for ReadDeferral {
    fn default() -> Self {
        Self {
            indexes: 0,
            last_index: None,
            frequent: 0,
            required: DEFER_AFTER_INDEXES,
            since: None,
            trial: SpeedTrial::new(false, TRIAL_RULES),
        }
    }
}

impl ReadDeferral {
    /// Records how many indexes of the session have arrived so far.
    pub(super) fn record_indexes(&mut self, now: Instant, indexes: u64) {
        let new = indexes.wrapping_sub(self.indexes);
        if new == 0 {
            return;
        }
        let is_soon = self.is_soon(now);
        self.trial.record(now, new, !is_soon);
        let new = u32::try_from(new).unwrap_or(u32::MAX);
        self.frequent = match is_soon {
            true => self.frequent.saturating_add(new),
            false => 0,
        };
        (self.indexes, self.last_index) = (indexes, Some(now));
    }

    /// Until when to wait for another index before the socket is read. None: it is to be read now. `ahead`: number of indexes
    /// that have arrived, less that of the packets that have been read. `packet`: size of a packet in bytes.
    pub(super) fn deadline(&mut self, now: Instant, ahead: i64, packet: usize) -> Option<Instant> {
        let max = MAX_DEFERRED_PACKETS.min(MAX_DEFERRED_BYTES / packet.max(1));
        let ahead = usize::try_from(ahead).unwrap_or(0);
        let since = self.since.take();
        if !self.trial.should_use_preferred()
            || self.frequent < self.required
            || ahead == 0
            || max < 2
        {
            return None;
        }
        if ahead >= max {
            if since.is_some() {
                self.required = (self.required / 2).max(DEFER_AFTER_INDEXES);
            }
            return None;
        }
        let since = since.unwrap_or(now);
        let deadline = since + COALESCE_INTERVAL;
        if now >= deadline {
            return None;
        }
        self.since = Some(since);
        Some(deadline)
    }

    /// Records that the deadline passed. The producer does not wait for a read if its last index came just before it.
    pub(super) fn record_timeout(&mut self, now: Instant) {
        if !self.is_soon(now) {
            self.frequent = 0;
            self.required = (2 * self.required).min(MAX_DEFER_AFTER_INDEXES);
        }
    }

    /// Whether an index that comes now is frequent.
    fn is_soon(&self, now: Instant) -> bool {
        self.last_index
            .is_some_and(|last| now - last < MAX_INDEX_INTERVAL)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SOON: Duration = Duration::from_micros(30);
    /// Of such packets 16 are read together.
    const SMALL: usize = 4 << 10;

    /// A deferral that has seen so many indexes, each soon after the one before, and the time of the last.
    fn after(indexes: u32) -> (ReadDeferral, Instant) {
        let mut now = Instant::now();
        let mut deferral = ReadDeferral {
            trial: SpeedTrial::without_trials(TRIAL_RULES),
            ..ReadDeferral::default()
        };
        for index in 0..=indexes {
            now += SOON;
            deferral.record_indexes(now, u64::from(index) + 1);
        }
        (deferral, now)
    }

    #[test]
    fn read_is_deferred_after_frequent_indexes_until_there_are_enough_packets() {
        let (mut deferral, now) = after(DEFER_AFTER_INDEXES - 1);
        assert_eq!(deferral.deadline(now, 1, SMALL), None);
        let (mut deferral, now) = after(DEFER_AFTER_INDEXES);
        let deadline = deferral.deadline(now, 1, SMALL);
        assert_eq!(deadline, Some(now + COALESCE_INTERVAL));
        assert_eq!(deferral.deadline(now + SOON, 2, SMALL), deadline);
        assert_eq!(deferral.deadline(now + SOON, 16, SMALL), None);
        // Nothing to read, or nothing that is worth it.
        assert_eq!(deferral.deadline(now, 0, SMALL), None);
        assert_eq!(deferral.deadline(now, 1, MAX_DEFERRED_BYTES), None);
    }

    #[test]
    fn packets_are_not_left_for_longer_than_the_interval() {
        let (mut deferral, now) = after(DEFER_AFTER_INDEXES);
        assert!(deferral.deadline(now, 1, SMALL).is_some());
        let late = now + COALESCE_INTERVAL;
        // The last index came just before the deadline, or long before it.
        for index in [late - SOON, late - MAX_INDEX_INTERVAL] {
            let mut deferral = deferral.clone();
            deferral.last_index = Some(index);
            deferral.record_timeout(late);
            assert_eq!(deferral.deadline(late, 2, SMALL), None);
        }
        assert_eq!(deferral.deadline(late, 2, SMALL), None);
        assert!(
            deferral.deadline(late, 2, SMALL).is_some(),
            "after the read"
        );
    }

    #[test]
    fn index_after_a_silence_is_not_frequent() {
        let (mut deferral, now) = after(DEFER_AFTER_INDEXES);
        deferral.record_indexes(now + MAX_INDEX_INTERVAL, 1 << 20);
        assert_eq!(deferral.deadline(now, 1, SMALL), None);
    }

    #[test]
    fn timeout_requires_more_indexes_until_enough_packets_are_deferred() {
        let (mut deferral, mut now) = after(DEFER_AFTER_INDEXES);
        // The interval is over, and the producer is not slow.
        deferral.record_timeout(now);
        assert!(deferral.deadline(now, 1, SMALL).is_some());
        now += COALESCE_INTERVAL;
        deferral.record_timeout(now);
        let mut indexes = u64::from(DEFER_AFTER_INDEXES) + 1;
        let mut record = |deferral: &mut ReadDeferral, now: &mut Instant| {
            // The first one comes after a silence.
            for _ in 0..=DEFER_AFTER_INDEXES {
                *now += SOON;
                indexes += 1;
                deferral.record_indexes(*now, indexes);
            }
        };
        record(&mut deferral, &mut now);
        assert_eq!(deferral.deadline(now, 1, SMALL), None);
        record(&mut deferral, &mut now);
        assert!(deferral.deadline(now, 1, SMALL).is_some());
        assert_eq!(deferral.deadline(now, 16, SMALL), None);
        assert_eq!(deferral.required, DEFER_AFTER_INDEXES);
    }
}
