//! The time up to which all rings of a process are read: that of beacons and ends of packets.
//!
//! The clock is read before the rings are, and the time holds only when everything is read that was
//! committed then, which may take several turns. A later clock would be that of events that are
//! unread, and these would get it as their time.

use std::collections::BTreeMap;

use wire::Timestamp;

use crate::limits::RING_WATERMARK_DELAY;

#[derive(Debug, Default)]
pub(super) struct Watermark {
    time: Timestamp,
    /// The time that is reached when `unread` is empty.
    next: Timestamp,
    /// For each ring, the position up to which it has to be read.
    unread: BTreeMap<u32, u64>,
}

impl Watermark {
    /// The watermark of rings that are read, and in which nothing is written after `time`.
    pub(super) fn at(time: Timestamp) -> Self {
        Self {
            time,
            next: time,
            unread: BTreeMap::new(),
        }
    }

    pub(super) fn time(&self) -> Timestamp {
        self.time
    }

    /// Takes the positions up to which the rings that are read are committed. `now` is a time from
    /// before these were read.
    pub(super) fn begin_turn(&mut self, now: Timestamp, committed: &[(u32, u64)]) {
        if self.unread.is_empty() {
            // An event gets its time before it is committed.
            let delay = u64::try_from(RING_WATERMARK_DELAY.as_nanos()).unwrap_or(0);
            self.next = Timestamp(now.0.saturating_sub(delay));
            self.unread.extend(committed.iter().copied());
        }
    }

    /// Takes how far each ring is read; `None`: it is closed.
    pub(super) fn end_turn(&mut self, position_of: impl Fn(u32) -> Option<u64>) {
        self.unread.retain(|number, end| {
            let position = position_of(*number);
            position.is_some_and(|position| position < *end)
        });
        if self.unread.is_empty() {
            self.time = self.next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RING: u32 = 7;
    const OTHER: u32 = 8;

    fn delayed(time: u64) -> Timestamp {
        Timestamp(time - u64::try_from(RING_WATERMARK_DELAY.as_nanos()).unwrap())
    }

    #[test]
    fn the_watermark_is_the_time_before_the_rings_were_read() {
        let mut watermark = Watermark::default();
        watermark.begin_turn(Timestamp(1_000_000_000), &[(RING, 64)]);
        assert_eq!(watermark.time(), Timestamp(0));
        watermark.end_turn(|_| Some(64));
        assert_eq!(watermark.time(), delayed(1_000_000_000));
    }

    #[test]
    fn a_ring_that_takes_several_turns_holds_the_watermark_until_its_first_end() {
        let mut watermark = Watermark::default();
        watermark.begin_turn(Timestamp(1_000_000_000), &[(RING, 64), (OTHER, 640)]);
        watermark.end_turn(|_| Some(64));
        watermark.begin_turn(Timestamp(2_000_000_000), &[(RING, 128), (OTHER, 6400)]);
        assert_eq!(watermark.time(), Timestamp(0));
        watermark.end_turn(|ring| Some(if ring == OTHER { 640 } else { 64 }));
        assert_eq!(watermark.time(), delayed(1_000_000_000));
    }

    #[test]
    fn a_closed_ring_holds_nothing() {
        let mut watermark = Watermark::default();
        watermark.begin_turn(Timestamp(1_000_000_000), &[(RING, 64)]);
        watermark.end_turn(|_| None);
        assert_eq!(watermark.time(), delayed(1_000_000_000));
    }
}
