//! Coalescing of small packets: a data connection on which they come one soon after the other is read once in
//! [`COALESCE_INTERVAL`] instead of at each wake-up.
//!
//! It engages after [`COALESCE_AFTER_READS`] reads in a row that each brought a small packet, and ends with the
//! first that did not. It delays packets for viewers by the interval; an idle connection costs nothing.

use std::time::Instant;

use crate::limits::{COALESCE_AFTER_READS, COALESCE_INTERVAL, MAX_COALESCED_PACKET};

/// How fast small packets come on a connection.
///
/// A producer that waits for the answer to each index sends some ten thousand packets in a second, and
/// each would wake the thread twice: for its header, then for the rest, which the system of the producer
/// keeps back until the header is acknowledged. They are cheaper by the dozen, and nobody waits for
/// them: what the producer waits for comes on the control connection.
#[derive(Debug, Default)]
pub(super) struct Coalescing {
    /// The last packet that began was small.
    is_small: bool,
    /// Something has begun since the last look.
    has_come: bool,
    looked: Option<Instant>,
    /// Looks, each of them soon after the one before, that brought something small.
    in_a_row: u32,
}

impl Coalescing {
    /// A packet of so many bytes begins.
    pub(super) fn packet(&mut self, bytes: u32) {
        self.is_small = bytes <= MAX_COALESCED_PACKET;
        self.has_come = true;
    }

    /// All that was there has been taken: whether to let some gather before the next look.
    pub(super) fn should_coalesce(&mut self, now: Instant) -> bool {
        let has_come = std::mem::take(&mut self.has_come);
        let since = self.looked.map(|looked| now - looked);
        let is_soon = since.is_some_and(|since| since <= 4 * COALESCE_INTERVAL);
        self.looked = Some(now);
        self.in_a_row = match self.in_a_row {
            row if is_soon && has_come && self.is_small => row.saturating_add(1),
            // The rest of a packet.
            row if is_soon && row < COALESCE_AFTER_READS => row,
            _ => 0,
        };
        self.in_a_row >= COALESCE_AFTER_READS
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Looks that each find a packet of so many bytes, this far apart: what each comes to.
    fn looks(
        coalescing: &mut Coalescing,
        now: &mut Instant,
        apart: Duration,
        bytes: u32,
    ) -> Vec<bool> {
        let look = |_| {
            *now += apart;
            coalescing.packet(bytes);
            coalescing.should_coalesce(*now)
        };
        (0..COALESCE_AFTER_READS + 2).map(look).collect()
    }

    #[test]
    fn small_packets_gather_once_they_come_all_the_time_and_until_none_has_come() {
        let (mut coalescing, mut now) = (Coalescing::default(), Instant::now());
        let should_coalesce = looks(&mut coalescing, &mut now, COALESCE_INTERVAL, 4096);
        assert_eq!(
            should_coalesce
                .iter()
                .filter(|should_coalesce| **should_coalesce)
                .count(),
            2
        );
        assert!(should_coalesce.is_sorted());
        now += COALESCE_INTERVAL;
        assert!(!coalescing.should_coalesce(now), "nothing has come");
        assert!(!looks(&mut coalescing, &mut now, COALESCE_INTERVAL, 4096)[0]);
    }

    #[test]
    fn packets_that_are_large_or_far_apart_are_taken_at_once() {
        for (apart, bytes) in [
            (COALESCE_INTERVAL, MAX_COALESCED_PACKET + 1),
            (COALESCE_INTERVAL * 5, 4096),
        ] {
            let (mut coalescing, mut now) = (Coalescing::default(), Instant::now());
            let should_coalesce = looks(&mut coalescing, &mut now, apart, bytes);
            assert!(!should_coalesce.contains(&true), "{apart:?} {bytes}");
        }
    }
}
