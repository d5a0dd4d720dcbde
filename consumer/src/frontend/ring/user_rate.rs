//! The limit on the bytes per second that are read from the rings of one user: a token bucket.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

use crate::limits::MAX_RING_USER_BYTES_PER_SECOND;

/// The bucket of one user. Clones share it. A full bucket holds the bytes of a second.
#[derive(Debug, Clone)]
pub(super) struct UserRate(Arc<Mutex<Bucket>>);

#[derive(Debug)]
struct Bucket {
    bytes: u64,
    filled_at: Instant,
}

impl UserRate {
    /// A full bucket, which nothing else shares yet.
    #[must_use]
    pub(super) fn new(now: Instant) -> Self {
        Self(Arc::new(Mutex::new(Bucket {
            bytes: MAX_RING_USER_BYTES_PER_SECOND,
            filled_at: now,
        })))
    }

    /// Whether anything may be read now.
    #[must_use]
    pub(super) fn has_bytes(&self, now: Instant) -> bool {
        let mut bucket = self.0.lock();
        let since = now.saturating_duration_since(bucket.filled_at);
        let micros = u64::try_from(since.as_micros()).unwrap_or(u64::MAX);
        let new = micros.saturating_mul(MAX_RING_USER_BYTES_PER_SECOND) / 1_000_000;
        // Calls that come faster than a byte would otherwise move the time on, and fill nothing.
        if new > 0 {
            bucket.filled_at = now;
            bucket.bytes = bucket
                .bytes
                .saturating_add(new)
                .min(MAX_RING_USER_BYTES_PER_SECOND);
        }
        bucket.bytes > 0
    }

    /// Counts bytes that were read. The last read may take more than there was.
    pub(super) fn take(&self, bytes: usize) {
        let mut bucket = self.0.lock();
        bucket.bytes = bucket.bytes.saturating_sub(bytes as u64);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn user_that_has_used_up_its_rate_may_read_again_later() {
        let begin = Instant::now();
        let rate = UserRate::new(begin);
        assert!(rate.has_bytes(begin));
        rate.take(usize::try_from(MAX_RING_USER_BYTES_PER_SECOND).unwrap());
        assert!(!rate.has_bytes(begin));
        assert!(rate.has_bytes(begin + Duration::from_millis(1)));
    }
}
