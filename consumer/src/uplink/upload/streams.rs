//! Adds the streams of a session, or continues those that the relay has.

use relay_proto::Command;
use relay_proto::resume::{OpenStream, StreamOpened};
use relay_proto::stream::{AddStream, METADATA_CHANNEL};
use tracing::warn;
use wire::{SeqNum, Text};

use super::{AwaitedReply, CHUNK, SessionUpload};
use crate::queue::StreamKey;
use crate::uplink::error::UplinkError;
use crate::uplink::session_state::SessionState;

impl SessionUpload {
    pub(super) fn add_stream(
        &mut self,
        key: StreamKey,
        state: &mut SessionState,
    ) -> Result<(), UplinkError> {
        let Some(stream) = state.streams.get_mut(&key) else {
            return Ok(());
        };
        let Some(trace) = state.traces.get(&stream.trace) else {
            return Ok(());
        };
        stream.relay_state.is_added = true;
        let add = AddStream {
            channel: stream.channel.clone(),
            path: trace.path.clone(),
            tracefile_size: self.opened.tracefiles.size,
            tracefile_count: self.opened.tracefiles.count,
            chunk: Some(CHUNK),
        };
        let first = stream.first();
        self.is_unannounced = true;
        if !trace.relay_state.is_added {
            self.unannounced.insert(stream.trace);
        }
        let awaited = AwaitedReply::StreamAdded(key);
        self.send_stream(add, u64::from(key.0), first, awaited)
    }

    /// Sends the command that adds a stream, or continues the one with this key.
    fn send_stream(
        &mut self,
        stream: AddStream,
        key: u64,
        first: u64,
        awaited: AwaitedReply,
    ) -> Result<(), UplinkError> {
        // Metadata and packets wait for the reply, because they name the stream by the id in it.
        self.adding += 1;
        let command = if self.opened.is_resumable {
            let first = SeqNum(first);
            Command::OpenStream(OpenStream { key, first, stream })
        } else {
            Command::AddStream(stream)
        };
        self.send_command(&command, awaited)
    }

    /// Continues a stream that the relay has opened where the relay says.
    pub(super) fn continue_stream(
        &mut self,
        key: StreamKey,
        opened: &StreamOpened,
        state: &mut SessionState,
    ) -> Result<(), UplinkError> {
        let Some(stream) = state.streams.get_mut(&key) else {
            return Ok(());
        };
        let StreamOpened {
            stream: id, next, ..
        } = *opened;
        let Some(id) = id else {
            stream.relay_state.closed_at = Some(next);
            // It was closed on request only, when all its packets were confirmed.
            return self.finish_closed_stream(key, state);
        };
        stream.relay_state.stream_id = Some(id);
        stream.resume_at(next);
        if let Some(lost) = stream
            .acknowledged
            .checked_sub(next)
            .filter(|lost| *lost > 0)
        {
            if state.has_moved {
                // The relay has an older part of the session, from before that moved elsewhere.
                warn!(
                    channel = %stream.channel,
                    packets = lost,
                    "the relay does not have packets that were acknowledged before: another relay of the list has them"
                );
            } else {
                // A power failure of the relay's host, if the relay synced its files less often
                // than it acknowledged.
                warn!(
                    channel = %stream.channel,
                    packets = lost,
                    "packets are lost: the relay had acknowledged them, and does not have them any more"
                );
                state.counters.lost.add(lost);
            }
        }
        // An earlier connection has sent these, and the answer about them was lost with it.
        if stream.relay_state.in_flight > 0 {
            self.streams_to_ask.insert(key);
        }
        Ok(())
    }

    /// Releases the packets of a stream that the relay has closed already: the reply to
    /// `CLOSE_STREAM` was lost, or an earlier process has received it. The stream ends with its
    /// step.
    pub(super) fn finish_closed_stream(
        &mut self,
        key: StreamKey,
        state: &mut SessionState,
    ) -> Result<(), UplinkError> {
        let closed_at = state
            .streams
            .get(&key)
            .and_then(|of| of.relay_state.closed_at);
        self.confirm_before(key, closed_at.unwrap_or(0), state);
        let Some(stream) = state.streams.get(&key) else {
            return Ok(());
        };
        if !stream.is_all_confirmed() {
            let channel = stream.channel.to_string();
            return Err(UplinkError::ClosedEarly { channel });
        }
        if stream.closing.is_some() {
            state.streams.remove(&key);
            self.due_streams.remove(&key);
        }
        Ok(())
    }

    /// Adds the metadata streams that are missing, and announces all new streams to viewers.
    pub(super) fn announce_streams(&mut self, state: &mut SessionState) -> Result<(), UplinkError> {
        self.is_unannounced = false;
        for key in std::mem::take(&mut self.unannounced) {
            let Some(trace) = state.traces.get_mut(&key) else {
                continue;
            };
            if std::mem::replace(&mut trace.relay_state.is_added, true) {
                continue;
            }
            if !trace.metadata.is_empty() {
                self.traces_with_unsent_metadata.insert(key);
            }
            let add = AddStream {
                channel: Text::from(METADATA_CHANNEL),
                path: trace.path.clone(),
                // Metadata is one file whatever the limits are: without its beginning no packet can
                // be read.
                tracefile_size: wire::Bytes(0),
                tracefile_count: 0,
                chunk: Some(CHUNK),
            };
            let awaited = AwaitedReply::MetadataAdded(key);
            self.send_stream(add, u64::from(key.0), 0, awaited)?;
        }
        self.send_command(&Command::StreamsSent, AwaitedReply::Done)
    }
}
