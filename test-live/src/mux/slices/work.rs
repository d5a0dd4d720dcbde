//! The slices of some traces, of which threads take one after the other.

use std::sync::mpsc::{Receiver, Sender, sync_channel};
use std::sync::{Condvar, Mutex, PoisonError};

use super::buffers::{Buffers, locked};
use super::reading::{Piece, Reading};
use super::{CompleteTrace, Plan};
use crate::attach::MemoryBudget;
use crate::mux::Mux;
use crate::sink::Renderer;
use crate::sink::render::RenderedRun;

/// Largest number of pieces that wait to be shown, of the slices of all threads together; and fewest for a slice.
const MAX_PIECES: usize = 128;
const MIN_PIECES: usize = 8;

/// All slices, and how far they are.
pub(super) struct Work<'a> {
    traces: &'a [CompleteTrace],
    plan: &'a Plan,
    threads: usize,
    memory: &'a MemoryBudget,
    buffers: Buffers,
    progress: Mutex<SliceProgress>,
    /// Notified when a slice has been shown, and at the end.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct SliceProgress {
    /// The next slice to be taken.
    next: usize,
    /// Slices that have been shown.
    shown: usize,
    is_stopped: bool,
}

/// A slice that a thread has begun to read.
pub(super) struct StartedSlice {
    pub(super) number: usize,
    pub(super) pieces: Receiver<Piece>,
}

/// Stops the threads when it is dropped.
pub(super) struct StopGuard<'a>(&'a Work<'a>);

impl Drop for StopGuard<'_> {
    fn drop(&mut self) {
        locked(&self.0.progress).is_stopped = true;
        self.0.changed.notify_all();
    }
}

impl<'a> Work<'a> {
    pub(super) fn new(
        traces: &'a [CompleteTrace],
        plan: &'a Plan,
        threads: usize,
        memory: &'a MemoryBudget,
    ) -> Self {
        Self {
            traces,
            plan,
            threads,
            memory,
            buffers: Buffers::default(),
            progress: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    pub(super) fn stop_when_dropped(&self) -> StopGuard<'_> {
        StopGuard(self)
    }

    pub(super) fn slices(&self) -> usize {
        self.plan.slices()
    }

    /// Records that a slice has been shown. Returns the bytes of its packets.
    pub(super) fn set_shown(&self, slice: usize) -> u64 {
        locked(&self.progress).shown = slice + 1;
        self.changed.notify_all();
        self.plan.bytes(slice)
    }

    /// Takes the buffer of text that has been shown.
    pub(super) fn reuse(&self, run: RenderedRun) {
        self.buffers.give_back(run);
    }

    /// Reads slices until none is left. `started` is told of each.
    pub(super) fn run(
        &self,
        mut renderer: Option<Box<dyn Renderer>>,
        started: &Sender<StartedSlice>,
    ) {
        while let Some(number) = self.take_slice() {
            let Some(part) = self.plan.part(number) else {
                return;
            };
            let (sender, pieces) = sync_channel((MAX_PIECES / self.threads).max(MIN_PIECES));
            if started.send(StartedSlice { number, pieces }).is_err() {
                return;
            }
            let mut renderer = renderer.as_deref_mut();
            if let Some(renderer) = &mut renderer {
                renderer.forget_packets();
            }
            let mut reading = Reading::new(renderer, &sender, &self.buffers);
            let mut mux = Mux::with_memory(self.memory.clone());
            let shown = mux.show_part(self.traces, &part, &mut reading);
            reading.end(shown.map(drop));
        }
    }

    /// The next slice. Waits while those before it that have not been shown are many: their text is in memory.
    fn take_slice(&self) -> Option<usize> {
        let may_not_begin = |progress: &mut SliceProgress| {
            !progress.is_stopped && progress.next > progress.shown + self.threads
        };
        let progress = self
            .changed
            .wait_while(locked(&self.progress), may_not_begin);
        let mut progress = progress.unwrap_or_else(PoisonError::into_inner);
        if progress.is_stopped || progress.next >= self.slices() {
            return None;
        }
        progress.next += 1;
        Some(progress.next - 1)
    }
}
