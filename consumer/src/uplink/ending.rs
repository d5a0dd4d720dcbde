//! The end of a session, in the order that relays know from LTTng: nothing is under way any more, all
//! streams leave the chunk, the chunk is closed, then the streams.
//!
//! Relays of LTTng die when streams leave a chunk while half of a packet is missing, so that the round
//! of questions before is not only for show.

use std::time::Instant;

use relay_proto::Command;
use relay_proto::chunk::{CloseTraceChunk, RotateStreams, RotationPosition};
use relay_proto::stream::{
    BeginDataPending, CloseStream, DataPending, EndDataPending, QuiescentControl,
};
use wire::{Flagged, PacketSeqNum, StreamId};

use super::catalogue::Catalogue;
use super::conversation::{Awaited, CHUNK, Conversation};
use super::error::UplinkError;
use crate::limits::CONFIRM_PAUSE;

/// How far the end of a session has come.
#[derive(Debug, Default)]
pub(super) struct Ending {
    stage: Stage,
    is_pending: bool,
    again: Option<Instant>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    NotBegun,
    /// The relay is asked whether it has everything.
    Round,
    /// It is closing the chunk.
    Chunk,
    /// It is closing streams.
    Streams,
    Done,
}

impl Ending {
    pub(super) fn has_begun(&self) -> bool {
        self.stage != Stage::NotBegun
    }

    pub(super) fn is_done(&self) -> bool {
        self.stage == Stage::Done
    }

    pub(super) fn wake(&self) -> Option<Instant> {
        self.again
    }

    /// An answer in the round.
    pub(super) fn heard(&mut self, is_pending: bool) {
        self.is_pending |= is_pending;
    }
}

impl Conversation {
    /// Goes on with the end, once everything before has been answered.
    pub(super) fn end(&mut self, book: &mut Catalogue, now: Instant) -> Result<(), UplinkError> {
        if self.is_awaiting() || self.ending.again.is_some_and(|again| now < again) {
            return Ok(());
        }
        self.ending.again = None;
        self.ending.stage = match self.ending.stage {
            Stage::NotBegun => {
                self.ask_all(book)?;
                Stage::Round
            }
            Stage::Round if std::mem::take(&mut self.ending.is_pending) => {
                self.ending.again = Some(now + CONFIRM_PAUSE);
                Stage::NotBegun
            }
            Stage::Round => {
                self.leave_chunk(book, now)?;
                Stage::Chunk
            }
            Stage::Chunk => {
                self.close_streams(book)?;
                Stage::Streams
            }
            Stage::Streams | Stage::Done => Stage::Done,
        };
        if self.ending.stage == Stage::Streams && !self.is_awaiting() {
            self.ending.stage = Stage::Done;
        }
        Ok(())
    }

    fn ask_all(&mut self, book: &Catalogue) -> Result<(), UplinkError> {
        let session = self.session();
        let begin = Command::BeginDataPending(BeginDataPending { session });
        self.send(&begin, Awaited::Done)?;
        for (stream, (last, _)) in Self::open_streams(book) {
            let ask = Command::DataPending(DataPending { stream, last });
            self.send(&ask, Awaited::Pending)?;
        }
        for stream in metadata_streams(book) {
            let ask = Command::QuiescentControl(QuiescentControl { stream });
            self.send(&ask, Awaited::Done)?;
        }
        let end = Command::EndDataPending(EndDataPending { session });
        self.send(&end, Awaited::Pending)
    }

    fn leave_chunk(&mut self, book: &Catalogue, now: Instant) -> Result<(), UplinkError> {
        let leave = |positions| {
            let target = None;
            Command::RotateStreams(RotateStreams { target, positions })
        };
        let positions: Vec<_> = Self::open_streams(book)
            .into_iter()
            .map(|(stream, (_, next))| RotationPosition {
                stream,
                at: PacketSeqNum(next),
            })
            .collect();
        if !positions.is_empty() {
            self.send(&leave(positions), Awaited::Done)?;
        }
        // Metadata goes on its own, as from LTTng.
        for stream in metadata_streams(book) {
            let at = PacketSeqNum(0);
            let position = RotationPosition { stream, at };
            self.send(&leave(vec![position]), Awaited::Done)?;
        }
        let close = CloseTraceChunk {
            chunk: CHUNK,
            closed: self.wall_clock(now),
            command: Flagged(None),
        };
        self.send(&Command::CloseTraceChunk(close), Awaited::ChunkClosed)
    }

    fn close_streams(&mut self, book: &Catalogue) -> Result<(), UplinkError> {
        for (stream, (last, _)) in Self::open_streams(book) {
            let close = Command::CloseStream(CloseStream { stream, last });
            self.send(&close, Awaited::Done)?;
        }
        for stream in metadata_streams(book) {
            let last = None;
            let close = Command::CloseStream(CloseStream { stream, last });
            self.send(&close, Awaited::Done)?;
        }
        Ok(())
    }
}

fn metadata_streams(book: &Catalogue) -> Vec<StreamId> {
    let traces = book.traces.values();
    traces.filter_map(|trace| trace.here.relay).collect()
}
