//! Deferring reads of a data connection whose producer waits for the reply to each index: some packets are left in the
//! socket, and are read together.
//!
//! A producer of LTTng leaves Nagle's algorithm on. As soon as the header of a packet is read, and so acknowledged, its kernel
//! sends the rest, on the same host in the time of the relay. While nothing is acknowledged, the packets collect at the
//! producer and cost one acknowledgement together. What has been read is decoded one packet at a time, with commands between
//! two of them: the worker has work until the next index comes, and answers it at once.
//!
//! It engages only while indexes come faster than the worker handles packets, and delays packets for viewers by
//! [`COALESCE_INTERVAL`] at most. An idle connection costs nothing.

use std::time::Instant;

use crate::limits::{COALESCE_INTERVAL, MAX_DEFERRED_PACKETS};

/// Decides when one data connection is read.
#[derive(Debug, Default)]
pub(super) struct ReadDeferral {
    /// The last index came while the worker had other work.
    is_busy: bool,
    /// When the socket was last empty.
    last_drained: Option<Instant>,
}

impl ReadDeferral {
    /// Records that the socket is empty.
    pub(super) fn record_drained(&mut self, now: Instant) {
        self.last_drained = Some(now);
    }

    /// Records that a packet begins to arrive, and whether its index has come before it was seen.
    pub(super) fn record_packet(&mut self, now: Instant, has_index: bool) {
        let since = self.last_drained.map(|drained| now - drained);
        let is_soon = since.is_some_and(|since| since < COALESCE_INTERVAL);
        self.is_busy = has_index && is_soon;
    }

    /// Records that commands were handled between two packets, and whether an index was among them.
    pub(super) fn record_commands(&mut self, had_index: bool) {
        self.is_busy = had_index;
    }

    /// Records that an index or [`COALESCE_INTERVAL`] was waited for in place of a read.
    pub(super) fn record_wait(&mut self) {
        self.is_busy = false;
    }

    /// Whether to wait for another index before the next read. `ahead`: number of indexes that have arrived, less that of
    /// the packets that have been read.
    pub(super) fn should_wait(&self, ahead: i64) -> bool {
        self.is_busy && ahead < MAX_DEFERRED_PACKETS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_is_deferred_while_indexes_come_during_other_work() {
        let mut deferral = ReadDeferral::default();
        deferral.record_commands(true);
        assert!(deferral.should_wait(1));
        assert!(!deferral.should_wait(MAX_DEFERRED_PACKETS));
        deferral.record_wait();
        assert!(!deferral.should_wait(2));
        deferral.record_commands(false);
        assert!(!deferral.should_wait(1));
    }

    #[test]
    fn packet_after_a_silence_is_read_at_once_even_if_its_index_has_come() {
        let (mut deferral, now) = (ReadDeferral::default(), Instant::now());
        deferral.record_packet(now, true);
        assert!(!deferral.should_wait(1), "the first packet");
        deferral.record_drained(now);
        deferral.record_packet(now + COALESCE_INTERVAL / 2, true);
        assert!(deferral.should_wait(1));
        deferral.record_packet(now + COALESCE_INTERVAL, true);
        assert!(!deferral.should_wait(1));
        deferral.record_packet(now, false);
        assert!(!deferral.should_wait(0));
    }
}
