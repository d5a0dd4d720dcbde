//! How much has been handed over and not yet been decoded.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// The packets of a stream that have been handed over and not yet been decoded. The source adds, the
/// reader takes away; a source fetches no more of a stream while the backlog is long enough, so that
/// memory stays bounded whatever the other streams do.
#[derive(Debug, Clone, Default)]
pub struct Backlog(Arc<Held>);

/// The bytes in all backlogs of a source.
#[derive(Debug, Clone, Default)]
pub struct Room(Arc<Shared>);

#[derive(Debug, Default)]
struct Held {
    waiting: Mutex<Waiting>,
    room: Room,
}

#[derive(Debug, Default)]
struct Waiting {
    /// Of each packet, oldest first.
    sizes: VecDeque<usize>,
    /// Their sum.
    bytes: usize,
}

#[derive(Debug, Default)]
struct Shared {
    bytes: AtomicUsize,
    taken: Notify,
}

impl Backlog {
    /// One packet of unknown size has been handed over.
    pub fn add(&self) {
        self.add_sized(0);
    }

    /// One packet of so many bytes has been handed over.
    pub fn add_sized(&self, bytes: usize) {
        self.waiting().add(bytes);
        self.0.room.0.bytes.fetch_add(bytes, Ordering::AcqRel);
    }

    /// One packet, the oldest, has been decoded.
    pub fn take(&self) {
        let taken = self.waiting().take();
        self.0.room.free(taken);
    }

    /// Packets that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting().sizes.len()
    }

    /// Bytes that wait.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.waiting().bytes
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        let waiting = self.0.waiting.lock();
        waiting.unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    fn add(&mut self, bytes: usize) {
        self.sizes.push_back(bytes);
        self.bytes += bytes;
    }

    /// Gives how many bytes the oldest had.
    fn take(&mut self) -> usize {
        let bytes = self.sizes.pop_front().unwrap_or(0);
        self.bytes -= bytes;
        bytes
    }
}

impl Drop for Held {
    /// What is not decoded before everybody has forgotten the stream never will be.
    fn drop(&mut self) {
        let waiting = self.waiting.get_mut();
        let waiting = waiting.unwrap_or_else(PoisonError::into_inner);
        self.room.free(waiting.bytes);
    }
}

impl Room {
    /// An empty backlog that counts here.
    #[must_use]
    pub fn backlog(&self) -> Backlog {
        Backlog(Arc::new(Held {
            waiting: Mutex::default(),
            room: self.clone(),
        }))
    }

    /// Bytes that wait, in all backlogs together.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.bytes.load(Ordering::Acquire)
    }

    /// Waits until something is taken, if nothing has been since the last time.
    pub async fn taken(&self) {
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
    fn bytes_are_free_when_taken_and_when_forgotten() {
        let room = Room::default();
        let (one, other) = (room.backlog(), room.backlog());
        one.add_sized(10);
        one.add_sized(20);
        other.add_sized(5);
        assert_eq!((one.len(), one.bytes(), room.bytes()), (2, 30, 35));
        one.take();
        assert_eq!((one.len(), one.bytes(), room.bytes()), (1, 20, 25));
        drop(one);
        assert_eq!(room.bytes(), 5);
    }
}
