//! The receive windows of QUIC connections: how many bytes each peer may have in flight that the relay must buffer until
//! it has handled them. Their sum is bounded.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::limits::{MAX_RECEIVE_WINDOW, MIN_RECEIVE_WINDOW, RECEIVE_WINDOW_MEMORY};

/// The memory from which larger windows are reserved.
#[derive(Debug)]
pub(super) struct WindowMemory {
    /// Bytes that are not reserved.
    free: AtomicU64,
}

/// The window of one connection. Dropping the value returns its memory.
#[derive(Debug)]
pub(super) struct ReceiveWindow {
    memory: Arc<WindowMemory>,
    /// Bytes that are reserved. None: the window is the minimum, which takes no reservation.
    reserved: Option<u32>,
}

impl WindowMemory {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            free: AtomicU64::new(RECEIVE_WINDOW_MEMORY),
        })
    }

    /// Reserves the largest window, or returns the smallest if there is no memory.
    pub(super) fn reserve(self: &Arc<Self>) -> ReceiveWindow {
        let less = |free: u64| free.checked_sub(MAX_RECEIVE_WINDOW.into());
        let reserved = self
            .free
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        ReceiveWindow {
            memory: Arc::clone(self),
            reserved: reserved.is_ok().then_some(MAX_RECEIVE_WINDOW),
        }
    }
}

impl ReceiveWindow {
    /// The size of the window in bytes.
    pub(super) fn bytes(&self) -> u32 {
        self.reserved.unwrap_or(MIN_RECEIVE_WINDOW)
    }
}

impl Drop for ReceiveWindow {
    fn drop(&mut self) {
        let reserved = self.reserved.unwrap_or_default();
        self.memory
            .free
            .fetch_add(reserved.into(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receive_windows_shrink_when_their_memory_is_reserved_and_grow_again() {
        let memory = WindowMemory::new();
        let large = RECEIVE_WINDOW_MEMORY / u64::from(MAX_RECEIVE_WINDOW);
        let mut windows: Vec<_> = (0..=large).map(|_| memory.reserve()).collect();
        let small = windows.pop().unwrap();
        assert_eq!(small.bytes(), MIN_RECEIVE_WINDOW);
        assert!(
            windows
                .iter()
                .all(|window| window.bytes() == MAX_RECEIVE_WINDOW)
        );
        drop((windows.pop(), small));
        assert_eq!(memory.reserve().bytes(), MAX_RECEIVE_WINDOW);
    }
}
