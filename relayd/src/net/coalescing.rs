//! Coalescing: decides whether the small packets of a connection are read together. It engages
//! after [`COALESCE_AFTER_READS`] reads in a row that each brought a small packet, and ends with
//! the first read that did not. It delays packets for viewers by [`COALESCE_INTERVAL`]; an idle
//! connection costs nothing.

use std::time::Instant;

use crate::limits::{COALESCE_AFTER_READS, COALESCE_INTERVAL, MAX_COALESCED_PACKET};

/// Detects small packets in quick succession on one connection.
#[derive(Debug, Default)]
pub(super) struct Coalescing {
    /// The last packet that began has at most [`MAX_COALESCED_PACKET`] bytes.
    is_small: bool,
    /// A packet has begun since the last read that emptied the socket.
    has_packet: bool,
    /// Time at which the socket was last empty.
    last_drained: Option<Instant>,
    /// Consecutive reads, each soon after the one before, that brought a small packet.
    fast_reads: u32,
}

impl Coalescing {
    /// Records that a packet of `bytes` bytes begins.
    pub(super) fn record_packet(&mut self, bytes: u32) {
        self.is_small = bytes <= MAX_COALESCED_PACKET;
        self.has_packet = true;
    }

    /// Whether to wait for [`COALESCE_INTERVAL`] before the next read. To be called when the socket
    /// is empty. `is_alone`: no other connection of the worker is active.
    pub(super) fn should_coalesce(&mut self, now: Instant, is_alone: bool) -> bool {
        let has_packet = std::mem::take(&mut self.has_packet);
        let since = self.last_drained.map(|drained| now - drained);
        let is_soon = since.is_some_and(|since| since <= 4 * COALESCE_INTERVAL);
        self.last_drained = Some(now);
        self.fast_reads = match self.fast_reads {
            reads if is_soon && has_packet && self.is_small => reads.saturating_add(1),
            // This read brought the rest of a packet.
            reads if is_soon && reads < COALESCE_AFTER_READS => reads,
            _ => 0,
        };
        self.fast_reads >= COALESCE_AFTER_READS && !is_alone
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Reads that each bring a packet of `bytes` bytes, `apart` from each other. Returns for each
    /// whether the next is delayed.
    fn reads(
        coalescing: &mut Coalescing,
        now: &mut Instant,
        apart: Duration,
        bytes: u32,
    ) -> Vec<bool> {
        let read = |_| {
            *now += apart;
            coalescing.record_packet(bytes);
            coalescing.should_coalesce(*now, false)
        };
        (0..COALESCE_AFTER_READS + 2).map(read).collect()
    }

    #[test]
    fn coalescing_engages_after_consecutive_small_packets_and_ends_with_a_read_without_one() {
        let (mut coalescing, mut now) = (Coalescing::default(), Instant::now());
        let should_coalesce = reads(&mut coalescing, &mut now, COALESCE_INTERVAL, 4096);
        let delayed = should_coalesce.iter().filter(|delayed| **delayed);
        assert_eq!(delayed.count(), 2);
        assert!(should_coalesce.is_sorted());
        now += COALESCE_INTERVAL;
        assert!(!coalescing.should_coalesce(now, false), "no packet");
        assert!(!reads(&mut coalescing, &mut now, COALESCE_INTERVAL, 4096)[0]);
    }

    #[test]
    fn large_or_infrequent_packets_are_not_coalesced() {
        for (apart, bytes) in [
            (COALESCE_INTERVAL, MAX_COALESCED_PACKET + 1),
            (COALESCE_INTERVAL * 5, 4096),
        ] {
            let (mut coalescing, mut now) = (Coalescing::default(), Instant::now());
            let should_coalesce = reads(&mut coalescing, &mut now, apart, bytes);
            assert!(!should_coalesce.contains(&true), "{apart:?} {bytes}");
        }
    }
}
