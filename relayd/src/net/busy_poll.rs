//! Busy-polling: decides for which packets the index is polled for, on one worker for two
//! processors at most. After [`MAX_LATE_INDEXES`] packets in a row whose index has not come in
//! time, the next [`SPIN_COOLDOWN`] are read at once. An idle connection costs nothing.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use super::read_turn::handle_commands;
use crate::limits::{MAX_LATE_INDEXES, SPIN_COOLDOWN, SPIN_DURATION};

/// The workers of this process that may busy-poll at the same time: one for two processors, because
/// the producer may run on this host and need the other.
static SLOTS: LazyLock<Slots> = LazyLock::new(|| {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    Slots::new(processors / 2)
});

/// Decides before which packets of a connection the worker polls for their index.
#[derive(Debug)]
pub(super) struct BusyPoll {
    slots: &'static Slots,
    /// Indexes ahead of the packets ([`indexes_ahead`]) when the next packet begins and its index
    /// has not come. 0, but after packets or indexes were lost.
    ///
    /// [`indexes_ahead`]: crate::registry::arrivals::Arrivals::indexes_ahead
    level: i64,
    /// Packets in a row whose index has not come in time.
    late: u32,
    /// Packets in a row whose index was there before them.
    early: u32,
    /// Packets that are still to be read at once.
    unpolled: u32,
}

/// The right to busy-poll. A worker that does so occupies a processor.
#[derive(Debug)]
pub(super) struct Slot {
    slots: &'static Slots,
    /// The index has come when there are more indexes ahead than these.
    level: i64,
}

#[derive(Debug)]
struct Slots {
    taken: AtomicUsize,
    max: usize,
}

impl Default for BusyPoll {
    fn default() -> Self {
        Self::with_slots(&SLOTS)
    }
}

impl BusyPoll {
    fn with_slots(slots: &'static Slots) -> Self {
        Self {
            slots,
            level: 0,
            late: 0,
            early: 0,
            unpolled: 0,
        }
    }

    /// Whether to poll for the index of the packet that begins now, and the right to do so. To be
    /// called once for each packet. `ahead`: number of the session's indexes that have arrived,
    /// less that of its packets.
    pub(super) fn begin(&mut self, ahead: i64) -> Option<Slot> {
        if self.unpolled > 0 {
            self.unpolled -= 1;
            self.level = ahead;
            return None;
        }
        if ahead > self.level {
            self.early += 1;
            if self.early >= SPIN_COOLDOWN {
                // Always there: or is it the index of a packet that was lost?
                self.early = 0;
                self.level = ahead;
            }
            return None;
        }
        self.early = 0;
        self.slots.try_take(self.level)
    }

    /// Polls until the index has come, for [`SPIN_DURATION`] at most.
    pub(super) async fn poll(&mut self, slot: Slot, ahead: impl Fn() -> i64) {
        let deadline = Instant::now() + SPIN_DURATION;
        let has_come = loop {
            handle_commands().await;
            let has_come = slot.has_come(ahead());
            if has_come || Instant::now() >= deadline {
                break has_come;
            }
        };
        self.end(has_come);
    }

    /// Records whether the index has come in time.
    fn end(&mut self, has_come: bool) {
        self.late = if has_come { 0 } else { self.late + 1 };
        if self.late >= MAX_LATE_INDEXES {
            self.late = 0;
            self.unpolled = SPIN_COOLDOWN;
        }
    }
}

impl Slots {
    const fn new(max: usize) -> Self {
        let taken = AtomicUsize::new(0);
        Self { taken, max }
    }

    fn try_take(&'static self, level: i64) -> Option<Slot> {
        let one_more = |taken: usize| (taken < self.max).then_some(taken + 1);
        self.taken
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more)
            .ok()
            .map(|_| Slot { slots: self, level })
    }
}

impl Slot {
    fn has_come(&self, ahead: i64) -> bool {
        ahead > self.level
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A `BusyPoll` whose only slot is not taken by other tests.
    fn with_own_slot() -> BusyPoll {
        BusyPoll::with_slots(Box::leak(Box::new(Slots::new(1))))
    }

    #[test]
    fn the_index_of_a_packet_is_polled_for_unless_it_is_there() {
        let mut poll = with_own_slot();
        let slot = poll.begin(0).unwrap();
        assert!(!slot.has_come(0) && slot.has_come(1));
        drop(slot);
        assert!(poll.begin(1).is_none());
    }

    #[test]
    fn packets_are_read_at_once_for_a_while_after_indexes_that_do_not_come() {
        let mut poll = with_own_slot();
        for _ in 0..MAX_LATE_INDEXES {
            assert!(poll.begin(0).is_some());
            poll.end(false);
        }
        for _ in 0..SPIN_COOLDOWN {
            assert!(poll.begin(0).is_none());
        }
        assert!(poll.begin(0).is_some());
    }

    #[test]
    fn lost_packets_and_lost_indexes_do_not_end_busy_polling_for_good() {
        for ahead in [3, -3] {
            let mut poll = with_own_slot();
            let mut polls = 0;
            for _ in 0..10 * SPIN_COOLDOWN {
                if let Some(slot) = poll.begin(ahead) {
                    polls += 1;
                    // The index of this packet comes: one more than before.
                    poll.end(slot.has_come(ahead + 1));
                }
            }
            assert!(polls > SPIN_COOLDOWN, "{ahead}: {polls}");
        }
    }

    #[test]
    fn a_slot_is_free_again_after_busy_polling() {
        static ONE: Slots = Slots::new(1);
        let taken = ONE.try_take(0);
        assert!(taken.is_some() && ONE.try_take(0).is_none());
        drop(taken);
        assert!(ONE.try_take(0).is_some());
    }
}
