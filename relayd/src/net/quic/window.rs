//! The windows of QUIC connections: how many bytes each may have in flight that the relay must
//! keep, until it has handled them or until the peer has acknowledged them. Their sum is bounded.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The memory from which larger windows in one direction are reserved.
#[derive(Debug)]
pub(super) struct WindowMemory {
    /// Bytes that are not reserved.
    free: AtomicU64,
    min: u32,
    max: u32,
}

/// The window of one connection. Dropping the value returns its memory.
#[derive(Debug)]
pub(super) struct Window {
    memory: Arc<WindowMemory>,
    has_reserved: bool,
}

impl WindowMemory {
    /// Memory of `total` bytes for windows of `max` bytes. When it is reserved, windows have `min`
    /// bytes.
    pub(super) fn new(total: u64, min: u32, max: u32) -> Arc<Self> {
        let free = AtomicU64::new(total);
        Arc::new(Self { free, min, max })
    }

    /// Reserves the largest window, or returns the smallest if there is no memory.
    pub(super) fn reserve(self: &Arc<Self>) -> Window {
        let less = |free: u64| free.checked_sub(self.max.into());
        let reserved = self
            .free
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        Window {
            memory: Arc::clone(self),
            has_reserved: reserved.is_ok(),
        }
    }
}

impl Window {
    /// The size of the window in bytes.
    pub(super) fn bytes(&self) -> u32 {
        if self.has_reserved {
            self.memory.max
        } else {
            self.memory.min
        }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        if self.has_reserved {
            let max = self.memory.max.into();
            self.memory.free.fetch_add(max, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_shrink_when_their_memory_is_reserved_and_grow_again() {
        let memory = WindowMemory::new(50, 3, 10);
        let mut windows: Vec<_> = (0..6).map(|_| memory.reserve()).collect();
        let small = windows.pop().unwrap();
        assert_eq!(small.bytes(), 3);
        assert!(windows.iter().all(|window| window.bytes() == 10));
        drop((windows.pop(), small));
        assert_eq!(memory.reserve().bytes(), 10);
    }
}
