//! The pause of a connection that reads no further until something else has happened: space on the
//! disk, or the arrival of indexes or packets on the other connection of the producer.

use std::time::{Duration, Instant};

use crate::limits::{MIN_RETRY_INTERVAL, SPACE_RETRY_INTERVAL};

/// A pause, which is tried to end again and again.
#[derive(Debug)]
pub(super) struct Pause {
    begun: Instant,
    next: Duration,
}

impl Pause {
    pub(super) fn begin() -> Self {
        Self {
            begun: Instant::now(),
            next: MIN_RETRY_INTERVAL,
        }
    }

    /// The time until the next attempt.
    pub(super) fn next_interval(&mut self) -> Duration {
        let next = self.next;
        self.next = (2 * next).min(SPACE_RETRY_INTERVAL);
        next
    }

    /// Begins to measure the time again, because the peer cannot end the pause.
    pub(super) fn restart_timeout(&mut self) {
        self.begun = Instant::now();
    }

    /// Whether the pause has taken longer.
    pub(super) fn exceeds(&self, timeout: Duration) -> bool {
        self.begun.elapsed() > timeout
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_double_up_to_a_quarter_of_a_second() {
        let mut pause = Pause::begin();
        let intervals: Vec<_> = (0..10).map(|_| pause.next_interval().as_millis()).collect();
        assert_eq!(intervals, [1, 2, 4, 8, 16, 32, 64, 128, 250, 250]);
    }
}
