//! The health of the relay: whether its threads respond, and its ports are listened on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

use crate::limits::HEALTH_HEARTBEAT_TIMEOUT;

/// The bits of the error mask for producers; those for viewers follow, in the same order.
const DISPATCHER: u64 = 1 << 0;
const WORKER: u64 = 1 << 1;
const LISTENER: u64 = 1 << 2;
const BITS: u32 = 3;

/// The health of the relay.
#[derive(Debug)]
pub struct Health {
    /// Threads and ports for producers.
    pub producers: ThreadHealth,
    /// Threads and ports for viewers.
    pub viewers: ThreadHealth,
}

/// The health of one of the two sets of threads, and of their ports.
#[derive(Debug)]
pub struct ThreadHealth {
    /// The time of the last heartbeat.
    last_heartbeat: Mutex<Instant>,
    /// Whether one of the ports is not listened on any more.
    has_closed_port: AtomicBool,
}

/// A guard of a port that is listened on. Dropping it says that the port is not listened on any
/// more.
#[derive(Debug)]
pub struct ListeningGuard<'a>(&'a ThreadHealth);

impl Health {
    /// Makes the health of a relay that starts now, and is healthy.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        let healthy = || ThreadHealth {
            last_heartbeat: Mutex::new(now),
            has_closed_port: AtomicBool::new(false),
        };
        Self {
            producers: healthy(),
            viewers: healthy(),
        }
    }

    /// Returns the error mask, a bit for each unhealthy part; 0 if the relay is healthy.
    #[must_use]
    pub fn error_mask(&self, now: Instant) -> u64 {
        self.producers.error_mask(now) | self.viewers.error_mask(now) << BITS
    }
}

impl ThreadHealth {
    /// Records a heartbeat: all threads have responded.
    pub fn record_heartbeat(&self, now: Instant) {
        *self.last_heartbeat.lock() = now;
    }

    /// Returns the guard of a port that is listened on.
    #[must_use]
    pub fn listening_guard(&self) -> ListeningGuard<'_> {
        ListeningGuard(self)
    }

    fn error_mask(&self, now: Instant) -> u64 {
        let since = now.saturating_duration_since(*self.last_heartbeat.lock());
        let mut mask = 0;
        if since >= HEALTH_HEARTBEAT_TIMEOUT {
            mask |= WORKER;
        }
        // One task does both: it accepts a connection and dispatches it to a worker.
        if self.has_closed_port.load(Ordering::Relaxed) {
            mask |= LISTENER | DISPATCHER;
        }
        mask
    }
}

impl Drop for ListeningGuard<'_> {
    fn drop(&mut self) {
        self.0.has_closed_port.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_unhealthy_part_sets_its_bit_of_the_error_mask() {
        let start = Instant::now();
        let health = Health::new(start);
        let later = start + HEALTH_HEARTBEAT_TIMEOUT;
        assert_eq!(health.error_mask(start), 0);
        assert_eq!(health.error_mask(later), 0b010_010);
        health.producers.record_heartbeat(later);
        assert_eq!(health.error_mask(later), 0b010_000);
        health.viewers.record_heartbeat(later);
        drop(health.producers.listening_guard());
        assert_eq!(health.error_mask(later), 0b000_101);
        drop(health.viewers.listening_guard());
        assert_eq!(health.error_mask(later), 0b101_101);
    }
}
