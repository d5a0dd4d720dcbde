//! The slices of some traces, of which threads take one after the other.

use std::sync::mpsc::{Receiver, Sender};

use super::pieces::{PieceSender, SlicePiece};
use super::progress::SliceProgress;
use super::renderer::SliceRenderer;
use super::{CompleteTrace, SlicePlan};
use crate::attach::MemoryBudget;
use crate::mux::Mux;
use crate::sink::Renderer;

/// All slices, and how far they are.
pub(super) struct SliceQueue<'a> {
    traces: &'a [CompleteTrace],
    plan: &'a SlicePlan,
    memory: &'a MemoryBudget,
    progress: SliceProgress,
}

/// A slice that a thread has begun to read.
pub(super) struct StartedSlice {
    pub(super) slice: usize,
    pub(super) pieces: Receiver<SlicePiece>,
}

impl<'a> SliceQueue<'a> {
    pub(super) fn new(
        traces: &'a [CompleteTrace],
        plan: &'a SlicePlan,
        memory: &'a MemoryBudget,
    ) -> Self {
        Self {
            traces,
            plan,
            memory,
            progress: SliceProgress::new(plan.slices(), plan.threads()),
        }
    }

    pub(super) fn slices(&self) -> usize {
        self.plan.slices()
    }

    pub(super) fn progress(&self) -> &SliceProgress {
        &self.progress
    }

    /// Bytes of the packets of a slice.
    pub(super) fn bytes(&self, slice: usize) -> u64 {
        self.plan.bytes(slice)
    }

    /// Reads slices until none is left. `started` is told of each.
    pub(super) fn read_slices(
        &self,
        mut renderer: Option<Box<dyn Renderer>>,
        started: &Sender<StartedSlice>,
    ) {
        while let Some(slice) = self.progress.take_slice() {
            let Some(part) = self.plan.part(slice) else {
                return;
            };
            let (sender, pieces) = PieceSender::new(&self.progress, slice);
            if started.send(StartedSlice { slice, pieces }).is_err() {
                return;
            }
            let mut renderer = renderer.as_deref_mut();
            if let Some(renderer) = &mut renderer {
                // This slice begins in the middle of streams, perhaps not where the last one ended.
                renderer.forget_streams();
            }
            let mut slice_renderer = SliceRenderer::new(renderer, sender);
            let mut mux = Mux::with_memory(self.memory.clone());
            let is_stopped = || self.progress.is_stopped();
            let shown = mux.show_part(self.traces, &part, &mut slice_renderer, &is_stopped);
            slice_renderer.end(shown.map(drop));
        }
    }
}
