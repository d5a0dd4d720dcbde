//! The slices of some traces, of which threads take one after the other.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Condvar, Mutex, PoisonError};

use super::buffers::{Buffers, locked};
use super::reading::{Reading, SlicePiece};
use super::{CompleteTrace, Plan};
use crate::attach::MemoryBudget;
use crate::mux::Mux;
use crate::sink::Renderer;
use crate::sink::render::RenderedRun;

/// Bytes of text that wait to be shown, for each thread: a slice of 2 MiB has about as many.
const WAITING_BYTES_OF_THREAD: usize = 16 << 20;
/// Largest number of bytes of text that wait to be shown. Besides, each thread may have one piece.
const MAX_WAITING_BYTES: usize = 256 << 20;

/// All slices, and how far they are.
pub(super) struct Work<'a> {
    traces: &'a [CompleteTrace],
    plan: &'a Plan,
    memory: &'a MemoryBudget,
    buffers: Buffers,
    progress: Mutex<SliceProgress>,
    /// Notified when something has been shown, and at the end.
    changed: Condvar,
    is_stopped: AtomicBool,
}

#[derive(Debug, Default)]
struct SliceProgress {
    /// The next slice to be taken.
    next: usize,
    /// Slices that have been shown.
    shown: usize,
    /// Bytes of text that wait to be shown, of each slice that has been taken.
    waiting: BTreeMap<usize, usize>,
}

/// A slice that a thread has begun to read.
pub(super) struct StartedSlice {
    pub(super) number: usize,
    pub(super) pieces: Receiver<SlicePiece>,
}

/// The way of the pieces of a slice to the one who shows them.
pub(super) struct Delivery<'a> {
    work: &'a Work<'a>,
    slice: usize,
    pieces: Sender<SlicePiece>,
}

/// Stops the threads when it is dropped.
pub(super) struct StopGuard<'a>(&'a Work<'a>);

impl Drop for StopGuard<'_> {
    fn drop(&mut self) {
        // Under the lock: a thread that is about to wait must not miss it.
        let _progress = locked(&self.0.progress);
        self.0.is_stopped.store(true, Ordering::Relaxed);
        self.0.changed.notify_all();
    }
}

impl<'a> Work<'a> {
    pub(super) fn new(
        traces: &'a [CompleteTrace],
        plan: &'a Plan,
        memory: &'a MemoryBudget,
    ) -> Self {
        Self {
            traces,
            plan,
            memory,
            buffers: Buffers::default(),
            progress: Mutex::default(),
            changed: Condvar::new(),
            is_stopped: AtomicBool::new(false),
        }
    }

    pub(super) fn stop_when_dropped(&self) -> StopGuard<'_> {
        StopGuard(self)
    }

    fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
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

    /// Records that text has been shown, and takes its buffer.
    pub(super) fn take_back(&self, slice: usize, run: RenderedRun) {
        let mut progress = locked(&self.progress);
        if let Some(waiting) = progress.waiting.get_mut(&slice) {
            *waiting = waiting.saturating_sub(run.bytes());
        }
        drop(progress);
        self.changed.notify_all();
        self.buffers.put(run);
    }

    /// Reads slices until none is left. `started` is told of each.
    pub(super) fn run(
        &'a self,
        mut renderer: Option<Box<dyn Renderer>>,
        started: &Sender<StartedSlice>,
    ) {
        while let Some(slice) = self.take_slice() {
            let Some(part) = self.plan.part(slice) else {
                return;
            };
            let (sender, pieces) = channel();
            let number = slice;
            if started.send(StartedSlice { number, pieces }).is_err() {
                return;
            }
            let mut renderer = renderer.as_deref_mut();
            if let Some(renderer) = &mut renderer {
                renderer.forget_streams();
            }
            let delivery = Delivery {
                work: self,
                slice,
                pieces: sender,
            };
            let mut reading = Reading::new(renderer, delivery);
            let mut mux = Mux::with_memory(self.memory.clone());
            let is_stopped = || self.is_stopped();
            let shown = mux.show_part(self.traces, &part, &mut reading, &is_stopped);
            reading.end(shown.map(drop));
        }
    }

    /// The next slice. Waits while slices that have not been shown are more than the threads.
    fn take_slice(&self) -> Option<usize> {
        let may_not_begin = |progress: &mut SliceProgress| {
            !self.is_stopped() && progress.next > progress.shown + self.plan.threads()
        };
        let progress = self
            .changed
            .wait_while(locked(&self.progress), may_not_begin);
        let mut progress = progress.unwrap_or_else(PoisonError::into_inner);
        if self.is_stopped() || progress.next >= self.slices() {
            return None;
        }
        progress.next += 1;
        Some(progress.next - 1)
    }

    /// Waits until text of a slice may be handed over. The slice that is shown at the moment waits only for its own text.
    fn reserve(&self, slice: usize, bytes: usize) {
        let max = (self.plan.threads() * WAITING_BYTES_OF_THREAD).min(MAX_WAITING_BYTES);
        let may_not_wait = |progress: &mut SliceProgress| {
            let waiting = if progress.shown == slice {
                progress.waiting.get(&slice).copied().unwrap_or(0)
            } else {
                progress.waiting.values().sum()
            };
            !self.is_stopped() && waiting >= max / 2
        };
        let progress = self
            .changed
            .wait_while(locked(&self.progress), may_not_wait);
        let mut progress = progress.unwrap_or_else(PoisonError::into_inner);
        let shown = progress.shown;
        progress.waiting.retain(|slice, _| *slice >= shown);
        *progress.waiting.entry(slice).or_default() += bytes;
    }
}

impl Delivery<'_> {
    /// Hands a piece over, when there is room for it. Returns whether more is wanted.
    pub(super) fn send(&self, piece: SlicePiece) -> bool {
        match piece.bytes() {
            0 => {}
            bytes => self.work.reserve(self.slice, bytes),
        }
        self.pieces.send(piece).is_ok()
    }

    pub(super) fn take_buffer(&self) -> RenderedRun {
        self.work.buffers.take()
    }

    pub(super) fn return_buffer(&self, run: RenderedRun) {
        self.work.buffers.put(run);
    }
}
