//! The packets that have been handed over and not yet been decoded: backpressure on the sources.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// The packets of a stream that have been handed over and not yet been decoded. The source adds
/// packets, the reader removes them; a source fetches no more of a stream while the backlog is long
/// enough, so that memory stays bounded whatever the other streams do.
#[derive(Debug, Clone, Default)]
pub struct Backlog(Arc<BacklogState>);

#[derive(Debug, Default)]
struct BacklogState {
    pending: Mutex<PendingPackets>,
    removed: Arc<Notify>,
}

#[derive(Debug, Default)]
struct PendingPackets {
    /// The size of each packet in bytes, oldest first.
    sizes: VecDeque<usize>,
    /// The sum of the sizes in bytes.
    bytes: usize,
}

impl Backlog {
    /// An empty backlog that notifies `removed` whenever a packet is removed.
    #[must_use]
    pub fn with_notify(removed: Arc<Notify>) -> Self {
        let pending = Mutex::default();
        Self(Arc::new(BacklogState { pending, removed }))
    }

    /// Adds a packet of this size in bytes, which has been handed over.
    pub fn add_packet(&self, bytes: usize) {
        let mut pending = self.pending();
        pending.sizes.push_back(bytes);
        pending.bytes += bytes;
    }

    /// Removes the oldest packet, which has been decoded.
    pub fn remove_packet(&self) {
        let mut pending = self.pending();
        pending.bytes -= pending.sizes.pop_front().unwrap_or(0);
        // Unlocked first: the source that wakes up takes the same lock.
        drop(pending);
        // A source that does not wait yet finds this at its next wait: no removal is missed.
        self.0.removed.notify_one();
    }

    /// The number of packets that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pending().sizes.len()
    }

    /// The number of bytes that wait.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.pending().bytes
    }

    /// Whether no packet waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn pending(&self) -> MutexGuard<'_, PendingPackets> {
        let pending = self.0.pending.lock();
        // Nothing under this lock can panic halfway: the counts are right even if it is poisoned.
        pending.unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for BacklogState {
    /// Wakes the source: packets that are dropped undecoded, with their stream, leave memory to the
    /// others.
    fn drop(&mut self) {
        self.removed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    #[test]
    fn a_backlog_counts_its_packets_and_notifies_of_removed_and_dropped_ones() {
        let removed = Arc::new(Notify::new());
        let is_notified = || {
            let mut context = Context::from_waker(Waker::noop());
            pin!(removed.notified()).poll(&mut context).is_ready()
        };
        let one = Backlog::with_notify(Arc::clone(&removed));
        let other = Backlog::with_notify(Arc::clone(&removed));
        one.add_packet(10);
        one.add_packet(20);
        other.add_packet(5);
        assert_eq!((one.len(), one.bytes()), (2, 30));
        assert!(!is_notified());
        one.remove_packet();
        assert_eq!((one.len(), one.bytes(), other.bytes()), (1, 20, 5));
        assert!(is_notified() && !is_notified());
        drop(one);
        assert!(is_notified());
    }
}
