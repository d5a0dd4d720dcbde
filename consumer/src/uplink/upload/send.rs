//! Sends streams, metadata and packets.

use relay_proto::index::SendIndex;
use relay_proto::metadata::SendMetadata;
use relay_proto::stream::{AddStream, METADATA_CHANNEL, QuiescentControl};
use relay_proto::{Command, DataHeader};
use wire::{PacketSeqNum, SeqNum, Text};

use super::{AwaitedReply, CHUNK, SessionUpload};
use crate::limits::{MAX_BUFFERED_COMMAND_BYTES, MAX_METADATA_PIECE_BYTES};
use crate::queue::{StreamKey, TraceKey};
use crate::uplink::error::UplinkError;
use crate::uplink::session_state::{SessionState, StreamState};

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
        self.adding += 1;
        self.is_unannounced = true;
        if !trace.relay_state.is_added {
            self.unannounced.insert(stream.trace);
        }
        self.send_command(&Command::AddStream(add), AwaitedReply::StreamAdded(key))
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
                tracefile_size: wire::Bytes(0),
                tracefile_count: 0,
                chunk: Some(CHUNK),
            };
            self.adding += 1;
            self.send_command(&Command::AddStream(add), AwaitedReply::MetadataAdded(key))?;
        }
        self.send_command(&Command::StreamsSent, AwaitedReply::Done)
    }

    /// Sends the metadata of a trace that the relay has not been sent yet, as far as the buffer has room.
    /// Returns whether all of it has been sent.
    pub(super) fn send_metadata(
        &mut self,
        key: TraceKey,
        state: &mut SessionState,
    ) -> Result<bool, UplinkError> {
        let Some(trace) = state.traces.get_mut(&key) else {
            return Ok(true);
        };
        let Some(stream) = trace.relay_state.stream_id else {
            return Ok(false);
        };
        while let Some(bytes) = trace.metadata.get(trace.relay_state.sent.0) {
            let (_, from) = trace.relay_state.sent;
            let to = bytes.len().min(from + MAX_METADATA_PIECE_BYTES);
            let text = bytes.get(from..to).unwrap_or_default();
            if text.is_empty() {
                trace.relay_state.sent = (trace.relay_state.sent.0 + 1, 0);
                continue;
            }
            if self.out.control.len() >= MAX_BUFFERED_COMMAND_BYTES {
                return Ok(false);
            }
            let metadata = SendMetadata { stream, padding: 0 };
            self.opened
                .machine
                .send_metadata(metadata, text, &mut self.out.control)?;
            self.out.control.extend_from_slice(text);
            trace.relay_state.sent.1 = to;
        }
        // Metadata has no reply; the reply to this command confirms all metadata before it.
        let _permits = std::mem::take(&mut self.permits);
        let quiescent = Command::QuiescentControl(QuiescentControl { stream });
        self.send_command(&quiescent, AwaitedReply::MetadataReceived { _permits })?;
        Ok(true)
    }

    /// Sends the next packet of a stream that is not in flight yet.
    pub(super) fn send_packet(
        &mut self,
        key: StreamKey,
        state: &mut SessionState,
    ) -> Result<(), UplinkError> {
        let Some(stream) = state.streams.get_mut(&key) else {
            return Ok(());
        };
        let at = stream.in_flight();
        let StreamState {
            unconfirmed,
            relay_state,
            ..
        } = stream;
        let (Some(kept), Some(relay)) = (unconfirmed.get(at), relay_state.stream_id) else {
            return Ok(());
        };
        let Some((bytes, index)) = kept.packet() else {
            return Ok(());
        };
        let seq = SeqNum(relay_state.sent);
        let size = index.packet_size.to_bytes().unwrap_or_default().0;
        let padding = size.saturating_sub(bytes.len() as u64);
        let header = DataHeader {
            circuit: 0,
            stream: relay,
            seq,
            data_size: u32::try_from(bytes.len()).unwrap_or(u32::MAX),
            padding_size: u32::try_from(padding).unwrap_or(u32::MAX),
        };
        self.out.data.push(&header, bytes);
        relay_state.sent += 1;
        relay_state.unasked_bytes += bytes.len() as u64;
        if let Some(PacketSeqNum(number)) = index.packet_seq {
            relay_state.next_packet_seq = number.saturating_add(1);
        }
        if relay_state.asked.is_none() && !self.streams_to_ask_again.contains(&key) {
            self.streams_to_ask.insert(key);
        }
        let index = SendIndex {
            stream: relay,
            seq: Some(seq),
            packet: *index,
        };
        state.counters.sent.add(1);
        self.send_command(&Command::SendIndex(index), AwaitedReply::Done)
    }
}
