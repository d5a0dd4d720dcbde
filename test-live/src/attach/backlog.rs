//! The packets that have been handed over and not yet been decoded: backpressure on the sources.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// The packets of a stream that have been handed over and not yet been decoded. The source adds, the
/// reader takes away; a source fetches no more of a stream while the backlog is long enough, so that
/// memory stays bounded whatever the other streams do.
#[derive(Debug, Clone, Default)]
pub struct Backlog(Arc<BacklogState>);

/// The bytes in all backlogs of a source.
#[derive(Debug, Clone, Default)]
pub struct BacklogTotal(Arc<TotalState>);

#[derive(Debug, Default)]
struct BacklogState {
    pending: Mutex<PendingPackets>,
    total: BacklogTotal,
}

#[derive(Debug, Default)]
struct PendingPackets {
    /// The size of each packet in bytes, oldest first.
    sizes: VecDeque<usize>,
    /// The sum of the sizes in bytes.
    bytes: usize,
}

#[derive(Debug, Default)]
struct TotalState {
    bytes: AtomicUsize,
    taken: Notify,
}

impl Backlog {
    /// Adds a packet of unknown size, which has been handed over.
    pub fn add_packet(&self) {
        self.add_sized_packet(0);
    }

    /// Adds a packet of so many bytes, which has been handed over.
    pub fn add_sized_packet(&self, bytes: usize) {
        self.pending().add(bytes);
        self.0.total.0.bytes.fetch_add(bytes, Ordering::AcqRel);
    }

    /// Removes the oldest packet, which has been decoded.
    pub fn remove_packet(&self) {
        let taken = self.pending().remove_oldest();
        self.0.total.free(taken);
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
        pending.unwrap_or_else(PoisonError::into_inner)
    }
}

impl PendingPackets {
    fn add(&mut self, bytes: usize) {
        self.sizes.push_back(bytes);
        self.bytes += bytes;
    }

    /// Removes the oldest packet, and gives its size in bytes.
    fn remove_oldest(&mut self) -> usize {
        let bytes = self.sizes.pop_front().unwrap_or(0);
        self.bytes -= bytes;
        bytes
    }
}

impl Drop for BacklogState {
    /// Frees the bytes of packets that are never decoded, because source and reader have forgotten the
    /// stream.
    fn drop(&mut self) {
        let pending = self.pending.get_mut();
        let pending = pending.unwrap_or_else(PoisonError::into_inner);
        self.total.free(pending.bytes);
    }
}

impl BacklogTotal {
    /// An empty backlog that counts here.
    #[must_use]
    pub fn backlog(&self) -> Backlog {
        Backlog(Arc::new(BacklogState {
            pending: Mutex::default(),
            total: self.clone(),
        }))
    }

    /// Bytes that wait, in all backlogs together.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.bytes.load(Ordering::Acquire)
    }

    /// Waits until something is taken, if nothing has been since the last time.
    pub async fn wait_for_removal(&self) {
        self.0.taken.notified().await;
    }

    fn free(&self, bytes: usize) {
        self.0.bytes.fetch_sub(bytes, Ordering::AcqRel);
        self.0.taken.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backlog_bytes_are_freed_when_packets_are_removed_and_when_the_backlog_is_dropped() {
        let total = BacklogTotal::default();
        let (one, other) = (total.backlog(), total.backlog());
        one.add_sized_packet(10);
        one.add_sized_packet(20);
        other.add_sized_packet(5);
        assert_eq!((one.len(), one.bytes(), total.bytes()), (2, 30, 35));
        one.remove_packet();
        assert_eq!((one.len(), one.bytes(), total.bytes()), (1, 20, 25));
        drop(one);
        assert_eq!(total.bytes(), 5);
    }
}
