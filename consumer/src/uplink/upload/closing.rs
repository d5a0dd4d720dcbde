//! The closing of a session, in the order in which LTTng does it: wait until no packet is in
//! flight, rotate all streams out of the chunk, close the chunk, then the streams.
//!
//! Relays of LTTng crash if streams leave a chunk while a part of a packet is missing, so the
//! questions at the beginning are necessary.

use std::time::Instant;

use relay_proto::Command;
use relay_proto::chunk::{CloseTraceChunk, RotateStreams, RotationPosition};
use relay_proto::stream::{
    BeginDataPending, CloseStream, DataPending, EndDataPending, QuiescentControl,
};
use wire::{Flagged, PacketSeqNum, StreamId};

use super::{AwaitedReply, CHUNK, SessionUpload};
use crate::limits::CONFIRM_RETRY_INTERVAL;
use crate::uplink::error::UplinkError;
use crate::uplink::session_state::SessionState;

/// The progress of the closing of a session.
#[derive(Debug, Default)]
pub(in crate::uplink) struct SessionClosing {
    stage: ClosingStage,
    /// Whether a reply of this round reports something as pending.
    is_pending: bool,
    /// When the next round of questions begins.
    retry_at: Option<Instant>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum ClosingStage {
    #[default]
    NotBegun,
    /// The relay is asked whether anything is pending.
    Round,
    /// The relay is closing the chunk.
    Chunk,
    /// The relay is closing the streams.
    Streams,
    Done,
}

impl SessionClosing {
    pub(in crate::uplink) fn has_begun(&self) -> bool {
        self.stage != ClosingStage::NotBegun
    }

    pub(in crate::uplink) fn is_done(&self) -> bool {
        self.stage == ClosingStage::Done
    }

    pub(super) fn wake(&self) -> Option<Instant> {
        self.retry_at
    }

    /// Records a reply in [`ClosingStage::Round`].
    pub(super) fn record_pending(&mut self, is_pending: bool) {
        self.is_pending |= is_pending;
    }
}

impl SessionUpload {
    /// Begins the next stage of the closing, once no commands are in flight.
    pub(super) fn advance_closing(
        &mut self,
        state: &mut SessionState,
        now: Instant,
    ) -> Result<(), UplinkError> {
        let retry_at = self.closing_progress.retry_at;
        if self.is_awaiting() || retry_at.is_some_and(|retry_at| now < retry_at) {
            return Ok(());
        }
        self.closing_progress.retry_at = None;
        self.closing_progress.stage = match self.closing_progress.stage {
            ClosingStage::NotBegun => {
                self.ask_all_pending(state)?;
                ClosingStage::Round
            }
            // Bytes of the last packets may still be on their way through the data connection.
            ClosingStage::Round if std::mem::take(&mut self.closing_progress.is_pending) => {
                self.closing_progress.retry_at = Some(now + CONFIRM_RETRY_INTERVAL);
                ClosingStage::NotBegun
            }
            ClosingStage::Round => {
                self.leave_chunk(state, now)?;
                ClosingStage::Chunk
            }
            ClosingStage::Chunk => {
                self.close_streams(state)?;
                ClosingStage::Streams
            }
            ClosingStage::Streams | ClosingStage::Done => ClosingStage::Done,
        };
        // A session without streams awaits no reply, which would call this function again.
        if self.closing_progress.stage == ClosingStage::Streams && !self.is_awaiting() {
            self.closing_progress.stage = ClosingStage::Done;
        }
        Ok(())
    }

    fn ask_all_pending(&mut self, state: &SessionState) -> Result<(), UplinkError> {
        let session = self.session();
        // At `END_DATA_PENDING` a relay of LTTng reports as pending also each stream about which
        // nothing was asked since this command. So none may be left out.
        let begin = Command::BeginDataPending(BeginDataPending { session });
        self.send_command(&begin, AwaitedReply::Done)?;
        for (stream, (last, _)) in Self::open_streams(state) {
            let ask = Command::DataPending(DataPending { stream, last });
            self.send_command(&ask, AwaitedReply::Pending)?;
        }
        for stream in metadata_streams(state) {
            let ask = Command::QuiescentControl(QuiescentControl { stream });
            self.send_command(&ask, AwaitedReply::Done)?;
        }
        let end = Command::EndDataPending(EndDataPending { session });
        self.send_command(&end, AwaitedReply::Pending)
    }

    fn leave_chunk(&mut self, state: &SessionState, now: Instant) -> Result<(), UplinkError> {
        let close = Command::CloseTraceChunk(CloseTraceChunk {
            chunk: CHUNK,
            closed: self.wall_clock(now),
            command: Flagged(None),
        });
        if self.opened.is_resumable {
            // Such a session has one chunk, which its streams do not leave before they are closed.
            return self.send_command(&close, AwaitedReply::ChunkClosed);
        }
        let leave = |positions| {
            let target = None;
            Command::RotateStreams(RotateStreams { target, positions })
        };
        let positions: Vec<_> = Self::open_streams(state)
            .into_iter()
            .map(|(stream, (_, next))| RotationPosition {
                stream,
                at: PacketSeqNum(next),
            })
            .collect();
        if !positions.is_empty() {
            self.send_command(&leave(positions), AwaitedReply::Done)?;
        }
        // One command for each metadata stream, as LTTng sends them.
        for stream in metadata_streams(state) {
            let at = PacketSeqNum(0);
            let position = RotationPosition { stream, at };
            self.send_command(&leave(vec![position]), AwaitedReply::Done)?;
        }
        self.send_command(&close, AwaitedReply::ChunkClosed)
    }

    fn close_streams(&mut self, state: &SessionState) -> Result<(), UplinkError> {
        let streams = Self::open_streams(state).into_iter();
        let streams = streams.map(|(stream, (last, _))| CloseStream { stream, last });
        let metadata = metadata_streams(state).into_iter();
        let metadata = metadata.map(|stream| CloseStream { stream, last: None });
        for close in streams.chain(metadata) {
            self.send_command(&Command::CloseStream(close), AwaitedReply::Done)?;
        }
        Ok(())
    }
}

fn metadata_streams(state: &SessionState) -> Vec<StreamId> {
    let traces = state.traces.values();
    traces
        .filter_map(|trace| trace.relay_state.stream_id)
        .collect()
}
