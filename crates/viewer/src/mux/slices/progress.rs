//! How far the slices have been read and shown, and how much text waits to be shown.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

use super::buffers::{Buffers, locked};
use crate::sink::render::RenderedRun;

/// Bytes of text that wait to be shown, for each thread: a slice of 2 MiB has about as many.
const WAITING_BYTES_OF_THREAD: usize = 16 << 20;
/// Largest number of bytes of text that wait to be shown. Besides, each thread may have one piece.
const MAX_WAITING_BYTES: usize = 256 << 20;

/// The progress of all slices, shared by the threads that read them and the one that shows them.
pub(super) struct SliceProgress {
    slices: usize,
    threads: usize,
    buffers: Buffers,
    state: Mutex<ProgressState>,
    /// Notified when something has been shown, and when the threads shall stop.
    changed: Condvar,
    is_stopped: AtomicBool,
}

#[derive(Debug, Default)]
struct ProgressState {
    /// The next slice to be taken.
    next: usize,
    /// Slices that have been shown.
    shown: usize,
    /// Bytes of text that wait to be shown, of each slice that has been taken.
    waiting: BTreeMap<usize, usize>,
}

/// Stops the threads when it is dropped.
pub(super) struct StopGuard<'a>(&'a SliceProgress);

impl Drop for StopGuard<'_> {
    fn drop(&mut self) {
        // Under the lock: a thread that is about to wait must not miss it.
        let _state = locked(&self.0.state);
        self.0.is_stopped.store(true, Ordering::Relaxed);
        self.0.changed.notify_all();
    }
}

impl SliceProgress {
    pub(super) fn new(slices: usize, threads: usize) -> Self {
        Self {
            slices,
            threads,
            buffers: Buffers::default(),
            state: Mutex::default(),
            changed: Condvar::new(),
            is_stopped: AtomicBool::new(false),
        }
    }

    pub(super) fn stop_when_dropped(&self) -> StopGuard<'_> {
        StopGuard(self)
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    /// Buffers of text, which all threads share.
    pub(super) fn buffers(&self) -> &Buffers {
        &self.buffers
    }

    /// Takes the next slice. Waits while the slices that have been taken and not been shown are
    /// more than the threads. None: no slice is left, or the threads shall stop.
    pub(super) fn take_slice(&self) -> Option<usize> {
        let must_wait = |state: &mut ProgressState| {
            !self.is_stopped() && state.next > state.shown + self.threads
        };
        let state = self.changed.wait_while(locked(&self.state), must_wait);
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        if self.is_stopped() || state.next >= self.slices {
            return None;
        }
        state.next += 1;
        Some(state.next - 1)
    }

    /// Waits until text of a slice may be handed over. The slice that is shown at the moment waits
    /// only for its own text.
    pub(super) fn reserve(&self, slice: usize, bytes: usize) {
        let max = (self.threads * WAITING_BYTES_OF_THREAD).min(MAX_WAITING_BYTES);
        let must_wait = |state: &mut ProgressState| {
            let waiting = if state.shown == slice {
                state.waiting.get(&slice).copied().unwrap_or(0)
            } else {
                state.waiting.values().sum()
            };
            !self.is_stopped() && waiting >= max / 2
        };
        let state = self.changed.wait_while(locked(&self.state), must_wait);
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        let shown = state.shown;
        state.waiting.retain(|slice, _| *slice >= shown);
        *state.waiting.entry(slice).or_default() += bytes;
    }

    /// Records that text of a slice has been shown, and takes its buffer.
    pub(super) fn take_back(&self, slice: usize, run: RenderedRun) {
        let mut state = locked(&self.state);
        if let Some(waiting) = state.waiting.get_mut(&slice) {
            *waiting = waiting.saturating_sub(run.bytes());
        }
        // Unlocked before the threads that are woken want the same lock.
        drop(state);
        self.changed.notify_all();
        self.buffers.return_buffer(run);
    }

    /// Records that a slice has been shown.
    pub(super) fn set_shown(&self, slice: usize) {
        locked(&self.state).shown = slice + 1;
        self.changed.notify_all();
    }
}
