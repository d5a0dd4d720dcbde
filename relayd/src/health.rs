//! How the relay is: whether its threads still come round, and its ports are still listened on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

use crate::limits::HEALTH_HEARTBEAT_TIMEOUT;

/// The bits of the answer, lowest first, for producers; those for viewers come next.
const DISPATCHER: u64 = 1 << 0;
const WORKER: u64 = 1 << 1;
const LISTENER: u64 = 1 << 2;
const BITS: u32 = 3;

/// How the relay is.
#[derive(Debug)]
pub struct Health {
    /// What serves producers.
    pub producers: Side,
    /// What serves viewers.
    pub viewers: Side,
}

/// One of the two sets of threads.
#[derive(Debug)]
pub struct Side {
    /// When its tasks last had their turn.
    beat: Mutex<Instant>,
    /// A port of it is listened on no more.
    is_deaf: AtomicBool,
}

/// As long as there is one, a port is listened on.
#[derive(Debug)]
pub struct Listening<'a>(&'a Side);

impl Health {
    /// Of a relay that starts now.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        let side = || Side {
            beat: Mutex::new(now),
            is_deaf: AtomicBool::new(false),
        };
        Self {
            producers: side(),
            viewers: side(),
        }
    }

    /// What is not well, a bit for each part; 0: all is.
    #[must_use]
    pub fn mask(&self, now: Instant) -> u64 {
        self.producers.mask(now) | self.viewers.mask(now) << BITS
    }
}

impl Side {
    /// Its tasks have their turn.
    pub fn beat(&self, now: Instant) {
        *self.beat.lock() = now;
    }

    /// A port is listened on.
    #[must_use]
    pub fn listening(&self) -> Listening<'_> {
        Listening(self)
    }

    fn mask(&self, now: Instant) -> u64 {
        let since = now.saturating_duration_since(*self.beat.lock());
        let mut mask = 0;
        if since >= HEALTH_HEARTBEAT_TIMEOUT {
            mask |= WORKER;
        }
        // The same task accepts a connection and finds it a place.
        if self.is_deaf.load(Ordering::Relaxed) {
            mask |= LISTENER | DISPATCHER;
        }
        mask
    }
}

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        self.0.is_deaf.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_well_has_its_bit() {
        let start = Instant::now();
        let health = Health::new(start);
        let later = start + HEALTH_HEARTBEAT_TIMEOUT;
        assert_eq!(health.mask(start), 0);
        assert_eq!(health.mask(later), 0b010_010);
        health.producers.beat(later);
        assert_eq!(health.mask(later), 0b010_000);
        health.viewers.beat(later);
        drop(health.producers.listening());
        assert_eq!(health.mask(later), 0b000_101);
        drop(health.viewers.listening());
        assert_eq!(health.mask(later), 0b101_101);
    }
}
