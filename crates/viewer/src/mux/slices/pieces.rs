//! What is in a slice, on its way from the thread that reads it to the one that shows it.

use std::sync::mpsc::{Receiver, Sender, channel};

use super::progress::SliceProgress;
use crate::attach::{StreamInfo, TraceInfo};
use crate::sink::Loss;
use crate::sink::render::RenderedRun;

/// What is in a slice, in its order.
pub(super) enum SlicePiece {
    Rendered(RenderedRun),
    /// The number of events, where they are only counted.
    Counted(u64),
    Lost(Box<LostInStream>),
    /// There is nothing more in the slice.
    End,
    /// What follows must be read without slices.
    Unusual,
}

/// A loss, and where it was found.
pub(super) struct LostInStream {
    pub(super) loss: Loss,
    pub(super) trace: TraceInfo,
    pub(super) stream: StreamInfo,
}

/// Hands over the pieces of one slice.
pub(super) struct PieceSender<'a> {
    progress: &'a SliceProgress,
    slice: usize,
    pieces: Sender<SlicePiece>,
}

impl SlicePiece {
    /// The number of bytes of text that the piece has.
    fn bytes(&self) -> usize {
        match self {
            Self::Rendered(run) => run.bytes(),
            _ => 0,
        }
    }
}

impl<'a> PieceSender<'a> {
    /// A sender for a slice, and the receiver of its pieces.
    pub(super) fn new(progress: &'a SliceProgress, slice: usize) -> (Self, Receiver<SlicePiece>) {
        let (pieces, receiver) = channel();
        let sender = Self {
            progress,
            slice,
            pieces,
        };
        (sender, receiver)
    }

    /// Hands a piece over, when there is room for it. Returns whether more is wanted.
    pub(super) fn send(&self, piece: SlicePiece) -> bool {
        match piece.bytes() {
            // What has no text takes no room, and never waits.
            0 => {}
            bytes => self.progress.reserve(self.slice, bytes),
        }
        self.pieces.send(piece).is_ok()
    }

    /// A buffer for the text of a piece.
    pub(super) fn take_buffer(&self) -> RenderedRun {
        self.progress.buffers().take_buffer()
    }

    /// Returns a buffer that was not handed over.
    pub(super) fn return_buffer(&self, run: RenderedRun) {
        self.progress.buffers().return_buffer(run);
    }
}
