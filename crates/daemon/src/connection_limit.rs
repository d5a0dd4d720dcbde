//! Limits the connections of a port. When there are too many, one that does nothing is evicted:
//! otherwise peers that connect and then are silent, or take nothing of what they are sent, would
//! lock all others out.
//!
//! A connection is new until its peer has shown that it speaks the protocol. Of new ones the oldest
//! is evicted; without any, the one that has moved nothing for longest, if that was long. Until
//! there is room, the connection that was accepted last waits, and further ones in the backlog of
//! the system.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::time::timeout;

/// Time for which a connection that is not new must have moved nothing to be evicted. Viewers ask
/// more often.
const MIN_IDLE: Duration = Duration::from_secs(10);
/// Time after which it is tried again to make room: a connection may have been idle for long enough
/// by then, or that which was evicted does not close.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Time of a connection that has never moved anything.
const NEW: u64 = 0;
/// Time of a connection that is never evicted.
const KEPT: u64 = u64::MAX;

/// The connections of a port.
#[derive(Debug)]
pub struct ConnectionLimit {
    max: usize,
    /// Time after which a new connection may be evicted.
    min_age: Duration,
    /// The origin of times in `moved_at`.
    start: Instant,
    open: Mutex<OpenConnections>,
    /// Notified when a connection has been closed.
    closed: Notify,
}

#[derive(Debug, Default)]
struct OpenConnections {
    next_id: u64,
    /// The connections by their numbers, the oldest first.
    by_id: BTreeMap<u64, Arc<Standing>>,
}

/// What is known of one connection.
#[derive(Debug)]
struct Standing {
    /// Milliseconds from the start to the begin of the connection.
    begun_at: u64,
    /// Milliseconds from the start to the last bytes that were moved, plus one; or [`NEW`] or
    /// [`KEPT`].
    moved_at: AtomicU64,
    evicted: Notify,
    is_evicted: AtomicBool,
}

/// One connection that was admitted. Dropping the value releases its place.
#[derive(Debug)]
pub struct AdmittedConnection {
    limit: Arc<ConnectionLimit>,
    id: u64,
    standing: Arc<Standing>,
}

impl ConnectionLimit {
    /// Admits up to `max` connections. A new one is evicted after `min_age` at the earliest.
    #[must_use]
    pub fn new(max: usize, min_age: Duration) -> Arc<Self> {
        Arc::new(Self {
            max,
            min_age,
            start: Instant::now(),
            open: Mutex::default(),
            closed: Notify::new(),
        })
    }

    /// Admits a connection that was accepted, as soon as there is room.
    pub async fn admit(self: &Arc<Self>) -> AdmittedConnection {
        loop {
            // Before the limit is checked: what is closed after that is noticed.
            let closed = self.closed.notified();
            let now = Instant::now();
            if let Some(admitted) = self.try_admit(now) {
                return admitted;
            }
            self.evict(now);
            let _ = timeout(RETRY_INTERVAL, closed).await;
        }
    }

    /// Evicts a connection after `accept` has failed, for want of file descriptors for example.
    pub fn make_room(&self, now: Instant) {
        self.evict(now);
    }

    fn try_admit(self: &Arc<Self>, now: Instant) -> Option<AdmittedConnection> {
        let mut open = self.open();
        if open.by_id.len() >= self.max {
            return None;
        }
        let id = open.next_id;
        open.next_id += 1;
        let standing = Arc::new(Standing {
            begun_at: self.milliseconds(now),
            moved_at: AtomicU64::new(NEW),
            evicted: Notify::new(),
            is_evicted: AtomicBool::new(false),
        });
        open.by_id.insert(id, Arc::clone(&standing));
        Some(AdmittedConnection {
            limit: Arc::clone(self),
            id,
            standing,
        })
    }

    fn evict(&self, now: Instant) {
        let open = self.open();
        let now = self.milliseconds(now);
        let is_long =
            |since: u64, min: Duration| u128::from(now.saturating_sub(since)) >= min.as_millis();
        let is_candidate = |standing: &Standing, moved_at: u64| match moved_at {
            NEW => is_long(standing.begun_at, self.min_age),
            KEPT => false,
            moved_at => is_long(moved_at, MIN_IDLE),
        };
        let standings = open.by_id.values();
        let candidates = standings.filter_map(|standing| {
            let moved_at = standing.moved_at.load(Ordering::Relaxed);
            let is_evicted = standing.is_evicted.load(Ordering::Relaxed);
            (!is_evicted && is_candidate(standing, moved_at)).then_some((moved_at, standing))
        });
        // New ones first, and of equal ones the oldest.
        let Some((_, standing)) = candidates.min_by_key(|(moved_at, _)| *moved_at) else {
            return;
        };
        standing.is_evicted.store(true, Ordering::Relaxed);
        // The permit is kept if nobody waits: the task may be about to, or in the middle of a
        // write.
        standing.evicted.notify_one();
    }

    fn milliseconds(&self, now: Instant) -> u64 {
        let since = now.saturating_duration_since(self.start).as_millis();
        // No time may be equal to `NEW` or `KEPT`.
        u64::try_from(since).unwrap_or(KEPT - 2) + 1
    }

    fn open(&self) -> MutexGuard<'_, OpenConnections> {
        // Also after a panic elsewhere, since no statement leaves the table half changed.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AdmittedConnection {
    /// Completes when the connection is to be closed at once.
    pub async fn evicted(&self) {
        self.standing.evicted.notified().await;
    }

    /// Records that the peer speaks the protocol and that something was moved: the connection is
    /// new no longer, and not idle now.
    pub fn set_active(&self, now: Instant) {
        let now = self.limit.milliseconds(now);
        self.standing.moved_at.store(now, Ordering::Relaxed);
    }

    /// Keeps the connection from being evicted from now on.
    pub fn keep(&self) {
        self.standing.moved_at.store(KEPT, Ordering::Relaxed);
    }
}

impl Drop for AdmittedConnection {
    fn drop(&mut self) {
        self.limit.open().by_id.remove(&self.id);
        self.limit.closed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Admits so many connections.
    fn open(limit: &Arc<ConnectionLimit>, count: usize) -> Vec<AdmittedConnection> {
        let admitted = (0..count).map(|_| limit.try_admit(limit.start).unwrap());
        admitted.collect()
    }

    /// Returns the places of the connections that are evicted.
    fn evicted(open: &[AdmittedConnection]) -> Vec<usize> {
        let is_evicted = |(place, one): (usize, &AdmittedConnection)| {
            one.standing
                .is_evicted
                .load(Ordering::Relaxed)
                .then_some(place)
        };
        open.iter().enumerate().filter_map(is_evicted).collect()
    }

    #[test]
    fn oldest_new_connection_is_evicted_first_and_then_the_one_that_was_idle_longest() {
        let limit = ConnectionLimit::new(5, Duration::from_secs(4));
        let open = open(&limit, 5);
        let start = limit.start;
        assert!(limit.try_admit(start).is_none());
        for (place, after) in [(0, 3), (3, 2), (4, 1)] {
            open[place].set_active(start + Duration::from_secs(after));
        }
        open[4].keep();
        limit.evict(start + Duration::from_secs(3));
        assert!(evicted(&open).is_empty(), "all are too new");
        let now = start + Duration::from_secs(4);
        for want in [&[1][..], &[1, 2], &[1, 2]] {
            limit.evict(now);
            assert_eq!(evicted(&open), want, "the others were not idle for long");
        }
        let later = start + MIN_IDLE + Duration::from_secs(3);
        for want in [&[1, 2, 3][..], &[0, 1, 2, 3], &[0, 1, 2, 3]] {
            limit.evict(later);
            assert_eq!(evicted(&open), want, "one is kept");
        }
    }

    #[tokio::test]
    async fn connection_that_finds_no_room_is_admitted_when_the_evicted_one_has_closed() {
        let limit = ConnectionLimit::new(1, Duration::ZERO);
        let first = limit.admit().await;
        let close = async {
            first.evicted().await;
            drop(first);
        };
        let (second, ()) = tokio::join!(limit.admit(), close);
        assert!(limit.try_admit(Instant::now()).is_none());
        limit.make_room(Instant::now());
        second.evicted().await;
        drop(second);
        assert!(limit.try_admit(Instant::now()).is_some());
    }
}
