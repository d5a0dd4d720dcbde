//! Slows down viewers that read much while a worker of producers has a backlog.
//!
//! Each viewer reads a copy of everything, as fast as it can. Where the processors do not suffice
//! for both, producers come first: a tracer that waits for the relay loses events, and a viewer
//! only sees them later. A data connection reports a backlog when more has arrived than the packet
//! that it is to read. For [`BACKLOG_TIME`] after that each viewer has a token bucket: its share of
//! [`VIEWERS_RATE`], and what comes within [`VIEWER_BURST`] at once. A viewer of a small session
//! reads less, and never waits. Without viewers it costs a read that finds a backlog one store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::limits::{BACKLOG_TIME, MIN_VIEWER_RATE, VIEWER_BURST, VIEWERS_RATE};

/// Whether viewers are slowed down, the same for all.
#[derive(Debug)]
pub(super) struct ViewerThrottle {
    created: Instant,
    /// Until when viewers are slowed down, in nanoseconds since `created`.
    until: AtomicU64,
    /// Number of connections of viewers.
    viewers: AtomicUsize,
}

impl Default for ViewerThrottle {
    fn default() -> Self {
        Self {
            created: Instant::now(),
            until: AtomicU64::new(0),
            viewers: AtomicUsize::new(0),
        }
    }
}

impl ViewerThrottle {
    /// Records that more has arrived from a producer than its worker has read.
    pub(super) fn record_backlog(&self, now: std::time::Instant) {
        let until = Instant::from_std(now) + BACKLOG_TIME - self.created;
        self.until.store(nanos(until), Ordering::Relaxed);
    }

    /// The time for which a viewer has to wait after so many bytes. None: no worker has a backlog.
    fn cost(&self, bytes: usize, now: Instant) -> Option<Duration> {
        if nanos(now - self.created) >= self.until.load(Ordering::Relaxed) {
            return None;
        }
        let viewers = self.viewers.load(Ordering::Relaxed).max(1);
        let rate = (VIEWERS_RATE / viewers as u64).max(MIN_VIEWER_RATE);
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        Some(Duration::from_nanos(
            bytes.saturating_mul(1_000_000_000) / rate,
        ))
    }
}

/// The token bucket of one connection of a viewer.
#[derive(Debug)]
pub(super) struct ConnectionThrottle {
    throttle: Arc<ViewerThrottle>,
    /// Time at which the bucket is full again, plus [`VIEWER_BURST`].
    next_at: Instant,
}

impl ConnectionThrottle {
    pub(super) fn new(throttle: Arc<ViewerThrottle>) -> Self {
        throttle.viewers.fetch_add(1, Ordering::Relaxed);
        Self {
            throttle,
            next_at: Instant::now(),
        }
    }

    /// Waits for as long as these bytes take: not at all without a backlog, and if the viewer reads
    /// less than its share.
    pub(super) async fn throttle(&mut self, bytes: usize) {
        let now = Instant::now();
        let Some(cost) = self.throttle.cost(bytes, now) else {
            return;
        };
        let earliest = now.checked_sub(VIEWER_BURST).unwrap_or(now);
        self.next_at = self.next_at.max(earliest) + cost;
        if self.next_at > now {
            sleep_until(self.next_at).await;
        }
    }
}

impl Drop for ConnectionThrottle {
    fn drop(&mut self) {
        self.throttle.viewers.fetch_sub(1, Ordering::Relaxed);
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn viewers_share_a_rate_while_a_worker_has_a_backlog() {
        let throttle = Arc::<ViewerThrottle>::default();
        let [mut viewer, _other] = [(); 2].map(|()| ConnectionThrottle::new(Arc::clone(&throttle)));
        let mut read = async |bytes: u64| {
            let begun = Instant::now();
            viewer.throttle(usize::try_from(bytes).unwrap()).await;
            begun.elapsed()
        };
        assert_eq!(read(1 << 40).await, Duration::ZERO, "no backlog");
        tokio::time::advance(VIEWER_BURST).await;
        throttle.record_backlog(Instant::now().into_std());
        let share = VIEWERS_RATE / 2;
        // What the viewer has saved comes at once, what is beyond it takes its time.
        let burst = share * u64::try_from(VIEWER_BURST.as_millis()).unwrap() / 1000;
        assert_eq!(read(burst).await, Duration::ZERO);
        let waited = read(share).await;
        assert!(waited > Duration::from_millis(990) && waited < Duration::from_millis(1010));
        // The backlog was long ago.
        assert_eq!(read(share).await, Duration::ZERO);
    }

    #[test]
    fn a_viewer_among_many_has_the_least_rate() {
        let throttle = Arc::<ViewerThrottle>::default();
        throttle.record_backlog(std::time::Instant::now());
        let viewers: Vec<_> = (0..1000)
            .map(|_| ConnectionThrottle::new(Arc::clone(&throttle)))
            .collect();
        let cost = |bytes| throttle.cost(bytes, throttle.created);
        let least = usize::try_from(MIN_VIEWER_RATE).unwrap();
        assert_eq!(cost(least), Some(Duration::from_secs(1)));
        drop(viewers);
        let all = usize::try_from(VIEWERS_RATE).unwrap();
        assert_eq!(cost(all), Some(Duration::from_secs(1)));
    }
}
