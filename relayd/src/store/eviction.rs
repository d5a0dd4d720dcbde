//! Eviction of open trace files by the CLOCK algorithm. Files that have not been used for a while
//! are closed, and reopened when they are written to; when the pool is full, the next file evicts
//! another. So idle streams hold no file descriptor, and busy ones no more than the limit.
//!
//! Each owner of files has a [`ClockSlot`] in a queue, over which a hand advances. A slot that was
//! used since the hand last passed it gets a second chance; otherwise its owner closes its files.
//! CLOCK rather than exact LRU, because a writer of an open file then only sets a flag in its own
//! slot: the queue is locked only when a file is opened, and for each round of idle files.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;

use parking_lot::Mutex;

use crate::limits::IDLE_FILE_TIMEOUT;

/// An owner of files of the pool that can close and reopen them.
pub trait Evictable: Debug + Send + Sync {
    /// Closes the files that can be reopened, without waiting for a lock. Returns whether some were
    /// closed. With `is_needed` the pool is full and another file is to be opened; otherwise the
    /// files are only idle.
    fn close_files(&self, is_needed: bool) -> bool;

    /// Whether the files stay open while they are idle, and are closed for others only.
    fn stays_open(&self) -> bool {
        false
    }
}

/// The slot of an [`Evictable`] in the clock.
#[derive(Debug, Default)]
pub struct ClockSlot {
    was_used: AtomicBool,
    is_in_clock: AtomicBool,
    // Weak, so that the clock keeps no files of ended streams open.
    owner: OnceLock<Weak<dyn Evictable>>,
}

/// The slots, in the order in which the hand passes them.
#[derive(Debug, Default)]
pub(super) struct Clock {
    slots: Mutex<VecDeque<Arc<ClockSlot>>>,
    /// Slots whose files were idle and [stay open](Evictable::stays_open). The rounds of idle files
    /// need not pass them.
    staying: Mutex<Staying>,
    /// Time of the last round that closed idle files. None: there was none.
    last_idle_round: Mutex<Option<Instant>>,
}

#[derive(Debug, Default)]
struct Staying {
    slots: Vec<Arc<ClockSlot>>,
    /// Number of slots at which those without owners are removed.
    prune_at: usize,
}

impl ClockSlot {
    /// Marks the files as used: the hand passes over them once.
    pub fn mark_used(&self) {
        // Relaxed: a hand that misses the mark evicts a file too early, and the file is reopened.
        self.was_used.store(true, Ordering::Relaxed);
    }

    /// Sets the owner. Until then the hand passes over the slot.
    pub fn set_owner(&self, owner: Weak<dyn Evictable>) {
        // Fails only if the owner is set already, and each owner sets itself once.
        let _ = self.owner.set(owner);
    }
}

impl Clock {
    /// Adds a slot to the clock, unless the clock has it.
    pub(super) fn add_slot(&self, slot: &Arc<ClockSlot>) {
        // Swapped, so that of several threads only one adds the slot.
        if !slot.is_in_clock.swap(true, Ordering::Relaxed) {
            self.slots.lock().push_back(Arc::clone(slot));
        }
    }

    /// Takes a slot out of the rounds of idle files, until a file is to be evicted.
    fn set_aside(&self, slot: Arc<ClockSlot>) {
        if slot.is_in_clock.swap(true, Ordering::Relaxed) {
            // Its owner has added it meanwhile.
            return;
        }
        let mut staying = self.staying.lock();
        if staying.slots.len() >= staying.prune_at {
            let has_owner = |slot: &Arc<ClockSlot>| {
                let owner = slot.owner.get();
                owner.is_some_and(|owner| owner.strong_count() > 0)
            };
            staying.slots.retain(has_owner);
            // Doubled, so that the cost of a walk is shared by as many new slots as there were.
            staying.prune_at = (2 * staying.slots.len()).max(64);
        }
        staying.slots.push(slot);
    }

    /// Whether [`close_idle_files`](Self::close_idle_files) has anything to do.
    pub(super) fn is_idle_round_due(&self, now: Instant) -> bool {
        let is_over = |last| now.saturating_duration_since(last) >= IDLE_FILE_TIMEOUT;
        self.last_idle_round.lock().is_none_or(is_over) && !self.slots.lock().is_empty()
    }

    /// Closes the files that have not been used since the last round. Does nothing until
    /// [`IDLE_FILE_TIMEOUT`] has passed since that round.
    pub(super) fn close_idle_files(&self, now: Instant) {
        let mut last_round = self.last_idle_round.lock();
        if now.saturating_duration_since(*last_round.get_or_insert(now)) < IDLE_FILE_TIMEOUT {
            return;
        }
        *last_round = Some(now);
        // Unlocked before close(2), which may block.
        drop(last_round);
        // Counted once, so that slots that are put back meanwhile are not passed again.
        let slots = self.slots.lock().len();
        for _ in 0..slots {
            self.advance(false);
        }
    }

    /// Closes the files of one owner to make room. Returns whether some were closed.
    pub(super) fn evict_one(&self) -> bool {
        let staying = std::mem::take(&mut *self.staying.lock()).slots;
        self.slots.lock().extend(staying);
        // Two rounds: the first clears the marks of files in use, so that the second finds one of
        // them.
        let steps = 2 * self.slots.lock().len();
        (0..steps).any(|_| self.advance(true))
    }

    /// Moves the hand over the next slot. Returns whether its owner has closed files.
    fn advance(&self, is_needed: bool) -> bool {
        // Unlocked again at once: the owner closes its files below, and close(2) may block.
        let Some(slot) = self.slots.lock().pop_front() else {
            return false;
        };
        if slot.was_used.swap(false, Ordering::Relaxed) {
            self.slots.lock().push_back(slot);
            return false;
        }
        // Before the files are closed: their owner adds the slot again when it reopens them.
        slot.is_in_clock.store(false, Ordering::Relaxed);
        let owner = match slot.owner.get().map(Weak::upgrade) {
            // The owner is gone, and its files with it.
            Some(None) => return false,
            owner => owner.flatten(),
        };
        let is_closed = (owner.as_ref()).is_some_and(|owner| owner.close_files(is_needed));
        if is_closed {
            return true;
        }
        match owner {
            Some(owner) if !is_needed && owner.stays_open() => self.set_aside(slot),
            _ => self.add_slot(&slot),
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io;

    use rustix::io::Errno;

    use super::super::pool::{Pool, PooledFile};
    use super::*;

    #[derive(Debug)]
    struct Files {
        open: Mutex<Vec<Arc<PooledFile>>>,
        slot: Arc<ClockSlot>,
    }

    impl Evictable for Files {
        fn close_files(&self, _is_needed: bool) -> bool {
            self.open.try_lock().is_some_and(|mut open| {
                open.clear();
                true
            })
        }
    }

    fn owners(pool: &Arc<Pool>, count: usize) -> Vec<Arc<Files>> {
        let one = |_| {
            let slot = Arc::<ClockSlot>::default();
            let files = Arc::new(Files {
                open: Mutex::default(),
                slot: Arc::clone(&slot),
            });
            let weak: Weak<dyn Evictable> = Arc::<Files>::downgrade(&files);
            slot.set_owner(weak);
            open(pool, &files);
            files
        };
        (0..count).map(one).collect()
    }

    fn open(pool: &Arc<Pool>, files: &Files) {
        let file = pool.open(tempfile::tempfile).unwrap();
        files.open.lock().push(file);
        pool.clock.add_slot(&files.slot);
    }

    fn are_open(files: &[Arc<Files>]) -> Vec<bool> {
        let is_open = |files: &Arc<Files>| !files.open.lock().is_empty();
        files.iter().map(is_open).collect()
    }

    #[test]
    fn the_file_that_was_not_used_since_the_last_turn_is_evicted() {
        let pool = Pool::new(3);
        let files = owners(&pool, 3);
        files[0].slot.mark_used();
        open(&pool, &files[2]);
        assert_eq!(are_open(&files), [true, false, true]);
        assert_eq!(pool.open_files().0, 3);
        // Not asked twice in a row.
        open(&pool, &files[1]);
        assert_eq!(pool.open_files().0, 2);
    }

    #[test]
    fn eviction_does_not_wait_for_an_owner_that_is_busy() {
        let pool = Pool::new(1);
        let files = owners(&pool, 1);
        let busy = files[0].open.lock();
        let one_more = pool.open(tempfile::tempfile).unwrap();
        assert_eq!(pool.open_files().0, 2);
        drop((one_more, busy));
        drop(files);
        assert_eq!(pool.open_files().0, 0);
        assert!(!pool.clock.evict_one());
    }

    /// As metadata: its files stay open while they are idle.
    #[derive(Debug, Default)]
    struct Kept {
        /// How often it was asked to close its files.
        asked: Mutex<usize>,
    }

    impl Evictable for Kept {
        fn close_files(&self, is_needed: bool) -> bool {
            *self.asked.lock() += 1;
            is_needed
        }

        fn stays_open(&self) -> bool {
            true
        }
    }

    #[test]
    fn files_that_stay_open_are_passed_by_one_round_of_idle_files_and_evicted_when_needed() {
        let pool = Pool::new(100);
        let kept = Arc::new(Kept::default());
        let slot = Arc::<ClockSlot>::default();
        let weak: Weak<dyn Evictable> = Arc::<Kept>::downgrade(&kept);
        slot.set_owner(weak);
        pool.clock.add_slot(&slot);
        let start = Instant::now();
        pool.close_idle_files(start);
        for round in 1..4 {
            pool.close_idle_files(start + round * IDLE_FILE_TIMEOUT);
        }
        assert_eq!(*kept.asked.lock(), 1);
        assert!(!pool.is_idle_round_due(start + 9 * IDLE_FILE_TIMEOUT));
        assert!(pool.clock.evict_one());
        assert_eq!(*kept.asked.lock(), 2);
    }

    #[test]
    fn slots_that_were_set_aside_are_forgotten_with_their_owners() {
        let pool = Pool::new(100);
        let start = Instant::now();
        pool.close_idle_files(start);
        for round in 1..1000 {
            let kept = Arc::new(Kept::default());
            let slot = Arc::<ClockSlot>::default();
            let weak: Weak<dyn Evictable> = Arc::<Kept>::downgrade(&kept);
            slot.set_owner(weak);
            pool.clock.add_slot(&slot);
            pool.close_idle_files(start + round * IDLE_FILE_TIMEOUT);
        }
        assert!(pool.clock.staying.lock().slots.len() <= 64);
    }

    #[test]
    fn files_that_are_idle_for_the_timeout_are_closed() {
        let pool = Pool::new(100);
        let files = owners(&pool, 2);
        let start = Instant::now();
        pool.close_idle_files(start);
        assert_eq!(are_open(&files), [true, true]);
        files[1].slot.mark_used();
        pool.close_idle_files(start + IDLE_FILE_TIMEOUT);
        assert_eq!(are_open(&files), [false, true]);
        pool.close_idle_files(start + IDLE_FILE_TIMEOUT);
        assert_eq!(are_open(&files), [false, true]);
        pool.close_idle_files(start + 2 * IDLE_FILE_TIMEOUT);
        assert_eq!(are_open(&files), [false, false]);
    }

    #[test]
    fn a_lack_of_descriptors_evicts_a_file_and_the_open_call_is_repeated() {
        let pool = Pool::new(100);
        let files = owners(&pool, 1);
        let opened = pool.open(|| {
            if are_open(&files)[0] {
                return Err(io::Error::from(Errno::MFILE));
            }
            tempfile::tempfile()
        });
        assert!(opened.is_ok());
        assert!(
            pool.open(|| Err::<File, _>(io::Error::from(Errno::MFILE)))
                .is_err()
        );
    }
}
