//! Sends metadata and packets.

use relay_proto::index::SendIndex;
use relay_proto::metadata::SendMetadata;
use relay_proto::resume::SkipPackets;
use relay_proto::stream::QuiescentControl;
use relay_proto::{Command, DataHeader};
use wire::{PacketSeqNum, SeqNum, StreamId};

use super::{AwaitedReply, SessionUpload};
use crate::limits::{MAX_BUFFERED_COMMAND_BYTES, MAX_METADATA_PIECE_BYTES};
use crate::queue::{StreamKey, TraceKey};
use crate::uplink::error::UplinkError;
use crate::uplink::send_queue::PacketOrigin;
use crate::uplink::session_state::{SessionState, StreamState};

impl SessionUpload {
    /// Sends the metadata of a trace that the relay has not been sent yet, as far as the buffer has
    /// room. Returns whether all of it has been sent.
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
        trace.skip_metadata();
        while let Some(bytes) = trace.metadata.get(trace.relay_state.sent.0) {
            let (_, from) = trace.relay_state.sent;
            let to = bytes.len().min(from + MAX_METADATA_PIECE_BYTES);
            let text = bytes.get(from..to).unwrap_or_default();
            if text.is_empty() {
                trace.relay_state.sent = (trace.relay_state.sent.0 + 1, 0);
                continue;
            }
            // The rest follows when these bytes are written: large metadata should not be in memory
            // twice.
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
        if stream.relay_state.closed_at.is_some() {
            return self.finish_closed_stream(key, state);
        }
        let StreamState {
            unconfirmed,
            relay_state,
            next_packet_seq,
            ..
        } = stream;
        let (Some(kept), Some(relay)) = (
            unconfirmed.get(relay_state.in_flight),
            relay_state.stream_id,
        ) else {
            return Ok(());
        };
        let Some((bytes, index)) = kept.packet() else {
            return Ok(());
        };
        if self.opened.is_resumable && kept.seq < relay_state.sent {
            // An earlier process has sent it: the relay has said so when the stream was opened.
            relay_state.in_flight += 1;
            self.streams_to_ask.insert(key);
            return Ok(());
        }
        if kept.is_abandoned {
            let seq = kept.seq;
            return self.pass_abandoned_packet(key, seq, relay, state);
        }
        let seq = SeqNum(if self.opened.is_resumable {
            kept.seq
        } else {
            relay_state.next_seq
        });
        let first_missing = SeqNum(relay_state.sent);
        let missing = kept.seq.saturating_sub(relay_state.sent);
        let size = index.packet_size.to_bytes().unwrap_or_default().0;
        let padding = size.saturating_sub(bytes.len() as u64);
        let header = DataHeader {
            circuit: 0,
            stream: relay,
            seq,
            // Packets that are too long for this were refused when they were added.
            data_size: u32::try_from(bytes.len()).unwrap_or(u32::MAX),
            padding_size: u32::try_from(padding).unwrap_or(u32::MAX),
        };
        let origin = PacketOrigin {
            stream: key,
            seq: kept.seq,
            relay_seq: seq,
            cut_at: kept.queued.cut_at,
        };
        self.out.data.push(&header, bytes, origin);
        relay_state.in_flight += 1;
        relay_state.sent = kept.seq + 1;
        relay_state.next_seq = seq.0 + 1;
        relay_state.unasked_bytes += bytes.len() as u64;
        if let Some(PacketSeqNum(number)) = index.packet_seq {
            *next_packet_seq = number.saturating_add(1);
        }
        // One question for a stream at a time. The answer leads to the next one as long as packets
        // are in flight.
        if relay_state.asked.is_none() && !self.streams_to_ask_again.contains(&key) {
            self.streams_to_ask.insert(key);
        }
        let index = SendIndex {
            stream: relay,
            seq: Some(seq),
            packet: *index,
        };
        state.counters.sent.add(1);
        // The spool has lost or dropped the packets before. Without this command the relay would
        // hold this packet back, and wait for them.
        if self.opened.is_resumable && missing > 0 {
            self.skip_packets(relay, first_missing, missing)?;
        }
        self.send_command(&Command::SendIndex(index), AwaitedReply::Done)
    }
    /// Passes over a packet that an earlier connection has abandoned.
    fn pass_abandoned_packet(
        &mut self,
        key: StreamKey,
        seq: u64,
        relay: StreamId,
        state: &mut SessionState,
    ) -> Result<(), UplinkError> {
        let Some(stream) = state.streams.get_mut(&key) else {
            return Ok(());
        };
        // With the packets before it that the spool has dropped.
        let first = stream.relay_state.sent.min(seq);
        stream.relay_state.in_flight += 1;
        stream.relay_state.sent = seq + 1;
        if !self.opened.is_resumable {
            // The relay counts from the first packet that it gets.
            return Ok(());
        }
        stream.relay_state.next_seq = seq + 1;
        self.streams_to_ask.insert(key);
        self.skip_packets(relay, SeqNum(first), seq + 1 - first)
    }

    /// Gives up packets that were not delivered in time: the relay is told that they will not come.
    pub(in crate::uplink) fn abandon_packets(
        &mut self,
        late: &[PacketOrigin],
        state: &mut SessionState,
    ) -> Result<(), UplinkError> {
        for origin in late {
            let Some(stream) = state.streams.get_mut(&origin.stream) else {
                continue;
            };
            let at = stream
                .unconfirmed
                .binary_search_by_key(&origin.seq, |kept| kept.seq);
            let kept = at.ok().and_then(|at| stream.unconfirmed.get_mut(at));
            // The relay may have confirmed the packet before its end of the connection acknowledged
            // the stream; then nothing is lost.
            let Some(kept) = kept.filter(|kept| !kept.is_abandoned) else {
                continue;
            };
            kept.is_abandoned = true;
            state.counters.lost.add(1);
            state.counters.abandoned.add(1);
            let Some(relay) = stream.relay_state.stream_id else {
                continue;
            };
            self.skip_packets(relay, origin.relay_seq, 1)?;
        }
        Ok(())
    }

    fn skip_packets(
        &mut self,
        stream: StreamId,
        first: SeqNum,
        count: u64,
    ) -> Result<(), UplinkError> {
        let skip = SkipPackets {
            stream,
            first,
            count,
        };
        self.send_command(&Command::SkipPackets(skip), AwaitedReply::Done)
    }
}
