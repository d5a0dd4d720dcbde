//! How long to wait before a relay is tried again.

use std::time::Duration;

use crate::limits::{MAX_RECONNECT_DELAY, MIN_RECONNECT_DELAY};

/// Pauses that double with each failure, and differ between sessions: when a relay comes back, not
/// all come at once.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// The next pause. `chance` is any number, and decides where between half of it and all of it.
    pub(super) fn next_delay(&mut self, chance: u32) -> Duration {
        let doubled =
            MIN_RECONNECT_DELAY.saturating_mul(1u32.checked_shl(self.failures).unwrap_or(u32::MAX));
        self.failures = (self.failures + 1).min(u32::BITS);
        let half = doubled.min(MAX_RECONNECT_DELAY) / 2;
        half + half.mul_f64(f64::from(chance) / f64::from(u32::MAX))
    }

    /// All went well meanwhile.
    pub(super) fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_doubles_up_to_the_maximum() {
        let mut backoff = Backoff::default();
        let pauses: Vec<_> = (0..40).map(|_| backoff.next_delay(u32::MAX)).collect();
        assert_eq!(
            pauses[..3],
            [
                MIN_RECONNECT_DELAY,
                MIN_RECONNECT_DELAY * 2,
                MIN_RECONNECT_DELAY * 4
            ]
        );
        assert!(pauses.is_sorted());
        assert_eq!(pauses.last(), Some(&MAX_RECONNECT_DELAY));
        backoff.reset();
        assert_eq!(backoff.next_delay(0), MIN_RECONNECT_DELAY / 2);
    }
}
