//! The state of a session that a new connection needs to resume it: its traces with their metadata,
//! its open streams, and the packets that no relay has confirmed.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use wire::{
    Bits, ClassId, FileName, NameError, PacketIndex, SeqNum, StreamId, Text, Timestamp, TracePath,
};

use super::error::UplinkError;
use crate::limits::{
    MAX_CHANNEL_BYTES, MAX_METADATA_BYTES, MAX_PACKET_BYTES, MAX_TRACE_PATH_BYTES,
};
use crate::queue::{QueuedStep, Step, StreamKey, TraceKey};
use crate::status::SessionCounters;

/// The state of a session that outlives a connection to a relay.
#[derive(Debug)]
pub(super) struct SessionState {
    pub(super) traces: BTreeMap<TraceKey, TraceState>,
    /// The streams that are not closed.
    pub(super) streams: BTreeMap<StreamKey, StreamState>,
    pub(super) counters: Arc<SessionCounters>,
    /// Number of the next stream, over all traces.
    next_stream: u32,
    /// Bytes of the metadata of all traces.
    metadata_bytes: usize,
    /// Number of packets that have been added.
    packets: u64,
    /// Whether more than one relay has had the session, or may have had it.
    pub(super) has_moved: bool,
}

/// A trace of the session.
#[derive(Debug)]
pub(super) struct TraceState {
    pub(super) path: Text,
    pub(super) metadata: Vec<Bytes>,
    pub(super) has_had_streams: bool,
    pub(super) relay_state: TraceRelayState,
}

/// The part of a trace that has been sent over the present connection.
#[derive(Debug, Default)]
pub(super) struct TraceRelayState {
    pub(super) is_added: bool,
    /// The relay's id of the trace's metadata stream, once it has replied.
    pub(super) stream_id: Option<StreamId>,
    /// Number of pieces of the metadata that have been sent, and of bytes of the next piece.
    pub(super) sent: (usize, usize),
    /// Bytes of the metadata, from its beginning, that the relay had before this connection and
    /// that are to be skipped. They may not have been added yet, if an earlier process has sent
    /// them.
    pub(super) skip: u64,
}

impl TraceState {
    /// Skips the metadata that the relay has, as far as it has been added.
    pub(super) fn skip_metadata(&mut self) {
        let TraceRelayState { sent, skip, .. } = &mut self.relay_state;
        while *skip > 0
            && let Some(piece) = self.metadata.get(sent.0)
        {
            let left = piece.len().saturating_sub(sent.1);
            match usize::try_from(*skip) {
                Ok(skipped) if skipped < left => {
                    sent.1 += skipped;
                    *skip = 0;
                }
                _ => {
                    *sent = (sent.0 + 1, 0);
                    *skip -= left as u64;
                }
            }
        }
    }
}

/// An open stream of the session.
#[derive(Debug)]
pub(super) struct StreamState {
    pub(super) trace: TraceKey,
    pub(super) channel: Text,
    pub(super) class: ClassId,
    /// Packets that are not confirmed, in order. The relay has, or has been sent, the first
    /// [`StreamRelayState::in_flight`] of them.
    pub(super) unconfirmed: VecDeque<UnconfirmedPacket>,
    /// Lowest number of the next packet that is added, counted from the first of the stream.
    pub(super) next: u64,
    /// A relay has acknowledged the packets before this one as durable, or they are lost.
    pub(super) acknowledged: u64,
    /// The tracer's number (`packet_seq_num`) after that of the last packet that was sent.
    pub(super) next_packet_seq: u64,
    /// The time of the last beacon, if no packet has followed.
    pub(super) idle_until: Option<Timestamp>,
    /// The step that closes the stream when all its packets are confirmed.
    pub(super) closing: Option<QueuedStep>,
    pub(super) relay_state: StreamRelayState,
}

/// What the relay knows of a stream over the present connection. Packets are counted from the first
/// of the stream.
#[derive(Debug, Default)]
pub(super) struct StreamRelayState {
    pub(super) is_added: bool,
    /// The relay's id of the stream, once it has replied.
    pub(super) stream_id: Option<StreamId>,
    /// Number of packets in `unconfirmed` that the relay has, or that were sent to it.
    pub(super) in_flight: usize,
    /// Number of the packet after the last one that was sent, or that the relay had before.
    pub(super) sent: u64,
    /// All packets before this one have been written by the relay, but are not durable yet.
    pub(super) written: u64,
    /// The relay's number (`net_seq_num`) of the next packet. In a session that can be resumed it
    /// is the packet's own; otherwise it counts from the first packet that the session on the relay
    /// gets.
    pub(super) next_seq: u64,
    /// The relay has closed the stream, after the packets before this one.
    pub(super) closed_at: Option<u64>,
    /// The relay is being asked about the packets before this one.
    pub(super) asked: Option<u64>,
    /// Bytes that were sent since the relay was last asked.
    pub(super) unasked_bytes: u64,
    /// The beacon is to be sent when all packets are confirmed: a relay ignores beacons while it
    /// waits for a packet or its index.
    pub(super) beacon_due: bool,
    pub(super) close_sent: bool,
}

impl StreamRelayState {
    /// Returns the relay's number of the last packet that it has, or that was sent to it.
    pub(super) fn last_seq(&self) -> Option<SeqNum> {
        self.next_seq.checked_sub(1).map(SeqNum)
    }
}

/// A packet that is retained until a relay has confirmed it.
#[derive(Debug)]
pub(super) struct UnconfirmedPacket {
    /// The packet's number among all packets of the session, from 0.
    pub(super) order: u64,
    /// The packet's number in its stream, from 0.
    pub(super) seq: u64,
    /// The packet is not sent any more, because it would come too late. The relay counts it lost.
    pub(super) is_abandoned: bool,
    pub(super) queued: QueuedStep,
}

impl UnconfirmedPacket {
    /// Returns the bytes and the index of the packet.
    pub(super) fn packet(&self) -> Option<(&Bytes, &PacketIndex)> {
        match &self.queued.step {
            Step::Packet { bytes, index, .. } => Some((bytes, index)),
            _ => None,
        }
    }
}

impl StreamState {
    pub(super) fn is_all_confirmed(&self) -> bool {
        self.unconfirmed.is_empty()
    }

    /// Whether the relay has written all packets, durable or not.
    pub(super) fn is_all_written(&self) -> bool {
        self.is_all_before(self.relay_state.written)
    }

    fn is_all_before(&self, next: u64) -> bool {
        self.unconfirmed.back().is_none_or(|last| last.seq < next)
    }

    /// Returns the number of the first packet that a relay which does not know the stream would
    /// get.
    pub(super) fn first(&self) -> u64 {
        self.unconfirmed.front().map_or(self.next, |kept| kept.seq)
    }

    /// Records that the relay has all packets before `next`, and expects that one.
    pub(super) fn resume_at(&mut self, next: u64) {
        let relay_state = &mut self.relay_state;
        relay_state.in_flight = self.unconfirmed.partition_point(|kept| kept.seq < next);
        relay_state.sent = next;
        relay_state.written = next;
        relay_state.next_seq = next;
    }
}

impl SessionState {
    pub(super) fn new(counters: Arc<SessionCounters>) -> Self {
        Self {
            traces: BTreeMap::new(),
            streams: BTreeMap::new(),
            counters,
            next_stream: 0,
            metadata_bytes: 0,
            packets: 0,
            has_moved: false,
        }
    }

    /// Resets what the relay knows, for a new connection: its session begins empty.
    pub(super) fn reset_relay_state(&mut self) {
        for trace in self.traces.values_mut() {
            trace.relay_state = TraceRelayState::default();
        }
        for stream in self.streams.values_mut() {
            stream.relay_state = StreamRelayState {
                beacon_due: stream.idle_until.is_some(),
                ..StreamRelayState::default()
            };
        }
    }

    pub(super) fn add_trace(&mut self, path: &str) -> Result<(), UplinkError> {
        let text = Text::from(path);
        // A text of the protocol ends at the first NUL, so the rest of such a path would be lost
        // silently.
        let is_whole = text.as_bytes().len() == path.len();
        if !is_whole || path.len() > MAX_TRACE_PATH_BYTES || TracePath::parse(&text).is_err() {
            return Err(name_error("trace", path));
        }
        let key = TraceKey(u32::try_from(self.traces.len()).unwrap_or(u32::MAX));
        let trace = TraceState {
            path: text,
            metadata: Vec::new(),
            has_had_streams: false,
            relay_state: TraceRelayState::default(),
        };
        self.traces.insert(key, trace);
        Ok(())
    }

    pub(super) fn add_stream(
        &mut self,
        trace: TraceKey,
        channel: &str,
        class: ClassId,
        first: u64,
    ) -> Result<StreamKey, UplinkError> {
        let text = Text::from(channel);
        let is_whole = text.as_bytes().len() == channel.len();
        let name: Result<FileName, NameError> = FileName::parse(&text);
        // The relay would take a stream of that name for metadata.
        let is_taken = channel == relay_proto::stream::METADATA_CHANNEL;
        if !is_whole || channel.len() > MAX_CHANNEL_BYTES || name.is_err() || is_taken {
            return Err(name_error("stream", channel));
        }
        self.trace_mut(trace)?.has_had_streams = true;
        let key = StreamKey(self.next_stream);
        self.next_stream = self.next_stream.saturating_add(1);
        let stream = StreamState {
            trace,
            channel: text,
            class,
            unconfirmed: VecDeque::new(),
            next: first,
            acknowledged: first,
            next_packet_seq: 0,
            idle_until: None,
            closing: None,
            relay_state: StreamRelayState::default(),
        };
        self.streams.insert(key, stream);
        Ok(key)
    }

    pub(super) fn add_metadata(
        &mut self,
        trace: TraceKey,
        bytes: Bytes,
    ) -> Result<(), UplinkError> {
        self.metadata_bytes = self.metadata_bytes.saturating_add(bytes.len());
        if self.metadata_bytes > MAX_METADATA_BYTES {
            let max = MAX_METADATA_BYTES;
            return Err(UplinkError::TooMuchMetadata { max });
        }
        self.trace_mut(trace)?.metadata.push(bytes);
        Ok(())
    }

    fn trace_mut(&mut self, key: TraceKey) -> Result<&mut TraceState, UplinkError> {
        let unknown = || UplinkError::Unknown {
            what: format!("trace {}", key.0),
        };
        self.traces.get_mut(&key).ok_or_else(unknown)
    }

    /// Adds a packet. Returns it if no relay could take it.
    pub(super) fn add_packet(
        &mut self,
        stream: StreamKey,
        queued: QueuedStep,
    ) -> Option<QueuedStep> {
        let Some(of) = self.streams.get_mut(&stream) else {
            return Some(queued);
        };
        let kept = UnconfirmedPacket {
            order: self.packets,
            seq: queued.seq,
            is_abandoned: false,
            queued,
        };
        // Checked for all frontends here, and so for packets that an earlier version has left in
        // the spool.
        if !kept
            .packet()
            .is_some_and(|(bytes, index)| has_valid_index(bytes, index))
        {
            return Some(kept.queued);
        }
        self.packets += 1;
        of.next = kept.seq + 1;
        // The end of the packet is a later watermark than that of the beacon, if that was not sent
        // yet.
        of.idle_until = None;
        of.relay_state.beacon_due = false;
        of.unconfirmed.push_back(kept);
        None
    }

    /// Whether every packet has been confirmed and no beacon or close is due.
    pub(super) fn is_all_confirmed(&self) -> bool {
        let settled = |stream: &StreamState| {
            stream.is_all_confirmed() && !stream.relay_state.beacon_due && stream.closing.is_none()
        };
        self.streams.values().all(settled)
    }

    /// Returns the number of packets that no relay has confirmed.
    pub(super) fn unconfirmed(&self) -> u64 {
        let packets = self.streams.values().map(|stream| stream.unconfirmed.len());
        packets.sum::<usize>() as u64
    }
}

/// Whether a packet's index is consistent with its size. Otherwise relays would wait for bytes that
/// are never sent, or take the index for a beacon.
fn has_valid_index(bytes: &Bytes, index: &PacketIndex) -> bool {
    let Bits(content) = index.content_size;
    let Some(wire::Bytes(size)) = index.packet_size.to_bytes() else {
        return false;
    };
    let length = bytes.len() as u64;
    (1..=MAX_PACKET_BYTES).contains(&size)
        && (1..=size).contains(&length)
        && content <= index.packet_size.0
}

fn name_error(what: &'static str, name: &str) -> UplinkError {
    let name = name.to_owned();
    UplinkError::Name { what, name }
}
