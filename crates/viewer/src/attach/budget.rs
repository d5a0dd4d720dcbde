//! The limit of the memory that packets take, in the whole program.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::spill::{SpillExtent, SpillFile};

/// Bytes of packets that may be in memory, from all sources together: received and not passed on,
/// waiting to be decoded, or being decoded. What exceeds it lies in a file and is decoded from
/// there.
pub const MAX_MEMORY_BYTES: usize = 64 << 20;

/// The memory that packets may take. Clones share it.
///
/// Memory is reserved before a packet is received, and given back when the packet is dropped. A
/// packet that gets none goes to a temporary file: nothing waits for memory, because the other
/// streams may wait for the next packet of this one.
#[derive(Debug, Clone)]
pub struct MemoryBudget(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    max: usize,
    reserved: AtomicUsize,
    /// The temporary file, made when it is needed first.
    spill: Mutex<Option<Arc<SpillFile>>>,
}

/// Memory that has been reserved. Dropping it gives the memory back.
#[derive(Debug)]
pub struct Reservation {
    budget: MemoryBudget,
    bytes: usize,
}

impl Default for MemoryBudget {
    fn default() -> Self {
        Self::new(MAX_MEMORY_BYTES)
    }
}

impl MemoryBudget {
    /// A budget of `max` bytes.
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self(Arc::new(Shared {
            max,
            reserved: AtomicUsize::new(0),
            spill: Mutex::default(),
        }))
    }

    /// Bytes that are reserved now.
    #[must_use]
    pub fn reserved(&self) -> usize {
        self.0.reserved.load(Ordering::Acquire)
    }

    /// Whether the budget has this many bytes left at the moment.
    #[must_use]
    pub fn has_room(&self, bytes: usize) -> bool {
        let after = self.reserved().checked_add(bytes);
        after.is_some_and(|after| after <= self.0.max)
    }

    /// Reserves this many bytes, unless less is left.
    #[must_use]
    pub fn reserve(&self, bytes: usize) -> Option<Reservation> {
        let mut reservation = Reservation::none(self);
        reservation.grow(bytes).then_some(reservation)
    }

    /// Space for a packet in the temporary file.
    ///
    /// # Errors
    /// If there is no such file and none can be made.
    pub(crate) fn spill(&self, bytes: u64) -> io::Result<SpillExtent> {
        let spill = self.0.spill.lock();
        let mut spill = spill.unwrap_or_else(PoisonError::into_inner);
        // Under the lock, so that two threads do not make two files.
        let file = match &*spill {
            Some(file) => file,
            None => spill.insert(Arc::new(SpillFile::new()?)),
        };
        Ok(file.allocate(bytes))
    }
}

impl Reservation {
    /// A reservation of no bytes.
    #[must_use]
    pub fn none(budget: &MemoryBudget) -> Self {
        Self {
            budget: budget.clone(),
            bytes: 0,
        }
    }

    /// Enlarges the reservation to `bytes` in all. Returns false, and changes nothing, if less is
    /// left.
    pub fn grow(&mut self, bytes: usize) -> bool {
        // Never made smaller, because what is reserved may be in use.
        let Some(more) = bytes.checked_sub(self.bytes) else {
            return true;
        };
        let shared = &self.budget.0;
        let add = |reserved: usize| {
            let after = reserved.checked_add(more)?;
            (after <= shared.max).then_some(after)
        };
        // In one step: with a check before the addition, two threads might both find room.
        let grown = shared
            .reserved
            .try_update(Ordering::AcqRel, Ordering::Acquire, add);
        if grown.is_ok() {
            self.bytes = bytes;
        }
        grown.is_ok()
    }

    /// Gives all reserved memory back.
    pub(crate) fn release(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        self.budget.0.reserved.fetch_sub(bytes, Ordering::AcqRel);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reservations_stay_within_the_memory_budget_and_are_released_on_drop() {
        let budget = MemoryBudget::new(100);
        let one = budget.reserve(60).unwrap();
        assert!(budget.reserve(41).is_none());
        let mut other = budget.reserve(40).unwrap();
        assert!(!budget.has_room(1));
        assert!(!other.grow(41));
        assert!(other.grow(10), "less than it has");
        drop(one);
        assert!(other.grow(100));
        assert_eq!(budget.reserved(), 100);
        drop(other);
        assert_eq!(budget.reserved(), 0);
        assert!(budget.reserve(usize::MAX).is_none());
    }
}
