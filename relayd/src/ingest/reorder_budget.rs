//! The memory budgets of early packets: one for each session, and one for all sessions together.
//! Only early packets are counted, so that packets in sequence never touch these shared counters.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::limits::{EARLY_PACKET_BYTES, SESSIONS_IN_REORDER_MEMORY};

/// The memory for early packets of a session, or of the relay.
#[derive(Debug)]
pub struct ReorderBudget {
    limit: u64,
    used: AtomicU64,
    /// The part of `used` that belongs to complete packets, which can be written as soon as the
    /// missing packets before them are given up.
    complete: AtomicU64,
    /// The budget of the relay. None: this is the budget of the relay.
    relay: Option<Arc<Self>>,
}

/// The budget that has no room for more bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exhausted {
    /// The budget of the session.
    Session,
    /// The budget of the relay.
    Relay,
}

impl ReorderBudget {
    /// The budget of a relay, in bytes.
    #[must_use]
    pub fn of_relay(limit: u64) -> Arc<Self> {
        Arc::new(Self::new(limit, None))
    }

    /// The budget of one session of a relay: a fixed share, so that no session can take all.
    #[must_use]
    pub fn of_session(relay: &Arc<Self>) -> Arc<Self> {
        let limit = relay.limit / SESSIONS_IN_REORDER_MEMORY;
        Arc::new(Self::new(limit, Some(Arc::clone(relay))))
    }

    fn new(limit: u64, relay: Option<Arc<Self>>) -> Self {
        Self {
            limit,
            used: AtomicU64::new(0),
            complete: AtomicU64::new(0),
            relay,
        }
    }

    /// Reserved bytes, including those of packets that are still arriving.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Maximum number of reserved bytes.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// The exhausted budget, of this session or of the relay.
    #[must_use]
    pub fn scope(&self, exhausted: Exhausted) -> &Self {
        match (&self.relay, exhausted) {
            (Some(relay), Exhausted::Relay) => relay,
            _ => self,
        }
    }

    /// Whether complete packets hold at least a quarter of the budget. Only then is it worth to
    /// search for streams that can give up missing packets: the search visits every stream, and is
    /// repeated at most once for each quarter of the budget that arrives.
    #[must_use]
    pub fn can_be_freed(&self) -> bool {
        self.complete.load(Ordering::Relaxed) >= self.limit / 4
    }

    /// Whether half of the budget is free.
    #[must_use]
    pub fn has_ample_room(&self) -> bool {
        self.used() <= self.limit / 2
    }

    fn try_add(&self, bytes: u64) -> bool {
        let add = |used: u64| {
            let sum = used.checked_add(bytes)?;
            (sum <= self.limit).then_some(sum)
        };
        // Relaxed, because the number guards no other memory.
        self.used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add)
            .is_ok()
    }

    fn try_reserve(&self, bytes: u64) -> Result<(), Exhausted> {
        // The session first, so that one at its limit does not touch the counter that all share.
        if !self.try_add(bytes) {
            return Err(Exhausted::Session);
        }
        if let Some(relay) = &self.relay
            && !relay.try_add(bytes)
        {
            // The bytes will not be kept, so that no budget may count them.
            self.used.fetch_sub(bytes, Ordering::Relaxed);
            return Err(Exhausted::Relay);
        }
        Ok(())
    }

    fn with_relay(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(self.relay.as_deref())
    }
}

/// The bytes of an early packet. Memory is reserved for them before they are kept.
#[derive(Debug, Default)]
pub struct EarlyBuffer {
    bytes: Vec<u8>,
    /// The budget of the session. None: no budget counts the packet.
    budget: Option<Arc<ReorderBudget>>,
    reserved: u64,
    is_complete: bool,
}

impl EarlyBuffer {
    /// An empty buffer for a packet of the session that has this budget.
    #[must_use]
    pub fn new(budget: &Arc<ReorderBudget>) -> Self {
        let mut buffer = Self::default();
        buffer.budget = Some(Arc::clone(budget));
        buffer
    }

    /// Keeps more bytes of a packet that has `size` bytes in all.
    ///
    /// # Errors
    /// If a budget has no room. None of the bytes is kept then.
    pub fn try_extend(&mut self, bytes: &[u8], size: usize) -> Result<(), Exhausted> {
        let (capacity, more) = self.growth(bytes, size);
        if let Some(budget) = &self.budget {
            budget.try_reserve(more)?;
            self.reserved += more;
        }
        self.keep(bytes, capacity);
        Ok(())
    }

    /// Keeps bytes even if that exceeds the budgets, because they have been received already.
    pub fn extend(&mut self, bytes: &[u8], size: usize) {
        let (capacity, more) = self.growth(bytes, size);
        if let Some(budget) = &self.budget {
            for budget in budget.with_relay() {
                budget.used.fetch_add(more, Ordering::Relaxed);
            }
            self.reserved += more;
        }
        self.keep(bytes, capacity);
    }

    /// Marks the packet as complete: it can be written as soon as it is the next in sequence.
    pub fn complete(&mut self) {
        if !std::mem::replace(&mut self.is_complete, true) {
            let budgets = self.budget.iter().flat_map(|budget| budget.with_relay());
            budgets.for_each(|budget| {
                budget.complete.fetch_add(self.reserved, Ordering::Relaxed);
            });
        }
    }

    /// The capacity with these bytes, and the bytes by which the budgets must grow for it.
    fn growth(&self, bytes: &[u8], size: usize) -> (usize, u64) {
        let (had, needed) = (self.bytes.capacity(), self.bytes.len() + bytes.len());
        let capacity = if needed <= had {
            had
        } else {
            // Doubled, but never beyond the size of the packet, unless it turns out larger than its
            // header says.
            (2 * had).min(size).max(needed)
        };
        // Counted once for each packet, so that many small ones are not free.
        let first = if self.reserved == 0 {
            EARLY_PACKET_BYTES
        } else {
            0
        };
        (capacity, (capacity - had) as u64 + first)
    }

    fn keep(&mut self, bytes: &[u8], capacity: usize) {
        // Exactly, because the budgets count the capacity.
        self.bytes.reserve_exact(capacity - self.bytes.len());
        self.bytes.extend_from_slice(bytes);
    }
}

impl From<Vec<u8>> for EarlyBuffer {
    fn from(bytes: Vec<u8>) -> Self {
        let mut buffer = Self::default();
        buffer.bytes = bytes;
        buffer
    }
}

impl Deref for EarlyBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for EarlyBuffer {
    fn drop(&mut self) {
        for budget in self.budget.iter().flat_map(|budget| budget.with_relay()) {
            budget.used.fetch_sub(self.reserved, Ordering::Relaxed);
            if self.is_complete {
                budget.complete.fetch_sub(self.reserved, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_reserved_before_bytes_are_kept_and_free_again_when_they_go() {
        let relay = ReorderBudget::of_relay(1 << 20);
        let session = ReorderBudget::of_session(&relay);
        let share = session.limit();
        assert_eq!(share, (1 << 20) / SESSIONS_IN_REORDER_MEMORY);
        let large = usize::try_from(share).unwrap();
        let mut first = EarlyBuffer::new(&session);
        first.try_extend(&[1; 1000], large).unwrap();
        assert_eq!(session.used(), 1000 + EARLY_PACKET_BYTES);
        assert_eq!(relay.used(), session.used());
        let refused = first.try_extend(&vec![2; large], 2 * large);
        assert_eq!(refused, Err(Exhausted::Session));
        assert_eq!((first.len(), session.used()), (1000, relay.used()));
        assert!(!session.can_be_freed());
        first.extend(&vec![2; large], 2 * large);
        assert_eq!(first.len(), large + 1000);
        assert!(session.used() > share);
        first.complete();
        assert!(session.can_be_freed() && !session.has_ample_room());
        drop(first);
        assert!(!session.can_be_freed() && session.has_ample_room());
        assert_eq!((session.used(), relay.used()), (0, 0));
    }

    #[test]
    fn sessions_share_the_budget_of_the_relay() {
        let relay = ReorderBudget::of_relay(1 << 20);
        let whole = (1 << 20) / SESSIONS_IN_REORDER_MEMORY - EARLY_PACKET_BYTES;
        let whole = vec![0; usize::try_from(whole).unwrap()];
        let sessions: Vec<_> = (0..SESSIONS_IN_REORDER_MEMORY)
            .map(|_| {
                let session = ReorderBudget::of_session(&relay);
                let mut buffer = EarlyBuffer::new(&session);
                buffer.try_extend(&whole, whole.len()).unwrap();
                buffer
            })
            .collect();
        let one_more = ReorderBudget::of_session(&relay);
        let mut buffer = EarlyBuffer::new(&one_more);
        assert_eq!(buffer.try_extend(&[1], 1), Err(Exhausted::Relay));
        assert_eq!(one_more.used(), 0);
        assert_eq!(one_more.scope(Exhausted::Relay).used(), relay.used());
        drop(sessions);
        assert_eq!(buffer.try_extend(&[1], 1), Ok(()));
    }

    #[test]
    fn a_packet_takes_no_more_than_its_size_and_a_fixed_part() {
        let relay = ReorderBudget::of_relay(1 << 20);
        let session = ReorderBudget::of_session(&relay);
        let mut buffer = EarlyBuffer::new(&session);
        for _ in 0..1000 {
            buffer.try_extend(&[1; 7], 7000).unwrap();
        }
        assert_eq!(session.used(), 7000 + EARLY_PACKET_BYTES);
        assert_eq!(buffer.bytes.capacity(), 7000);
        let mut empty = EarlyBuffer::new(&session);
        empty.try_extend(&[], 0).unwrap();
        assert_eq!(session.used(), 7000 + 2 * EARLY_PACKET_BYTES);
    }
}
