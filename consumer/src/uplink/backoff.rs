//! Reconnect delays: exponential backoff with jitter.
//!
//! The delay doubles with each failure in a row, up to a maximum. Half of it is random ("equal
//! jitter"), so that the sessions of many agents do not reconnect at the same moment when a relay
//! comes back.

use std::time::Duration;

use crate::limits::{MAX_RECONNECT_DELAY, MIN_RECONNECT_DELAY};

/// The delays before the reconnects of one session.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// Returns the next delay: half of the doubled delay, and a part of the other half that is
    /// proportional to `random`.
    pub(super) fn next_delay(&mut self, random: u32) -> Duration {
        let doubled =
            MIN_RECONNECT_DELAY.saturating_mul(1u32.checked_shl(self.failures).unwrap_or(u32::MAX));
        // More failures change nothing: the shift is out of range by then, and gives the maximum.
        self.failures = (self.failures + 1).min(u32::BITS);
        let half = doubled.min(MAX_RECONNECT_DELAY) / 2;
        half + half.mul_f64(f64::from(random) / f64::from(u32::MAX))
    }

    /// Begins with the minimum again, after a stable connection.
    pub(super) fn reset(&mut self) {
        self.failures = 0;
    }
}

/// Returns a random number, or `u32::MAX` if the system has none. Only a delay depends on it.
pub(super) fn random_u32() -> u32 {
    let mut bytes = [0; 4];
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
        Ok(_) => u32::from_be_bytes(bytes),
        Err(_) => u32::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_doubles_up_to_the_maximum() {
        let mut backoff = Backoff::default();
        let delays: Vec<_> = (0..40).map(|_| backoff.next_delay(u32::MAX)).collect();
        assert_eq!(
            delays[..3],
            [
                MIN_RECONNECT_DELAY,
                MIN_RECONNECT_DELAY * 2,
                MIN_RECONNECT_DELAY * 4
            ]
        );
        assert!(delays.is_sorted());
        assert_eq!(delays.last(), Some(&MAX_RECONNECT_DELAY));
        backoff.reset();
        assert_eq!(backoff.next_delay(0), MIN_RECONNECT_DELAY / 2);
    }
}
