//! The state of a session that a new connection needs to resume it: its traces with their metadata, its
//! open streams, and the packets that no relay has confirmed.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use wire::{Bits, ClassId, FileName, NameError, PacketIndex, StreamId, Text, Timestamp, TracePath};

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
}

/// An open stream of the session.
#[derive(Debug)]
pub(super) struct StreamState {
    pub(super) trace: TraceKey,
    pub(super) channel: Text,
    pub(super) class: ClassId,
    /// Packets that are not confirmed, in order. The first [`in_flight`](Self::in_flight) of them have been
    /// sent over the present connection.
    pub(super) unconfirmed: VecDeque<UnconfirmedPacket>,
    /// The time of the last beacon, if no packet has followed.
    pub(super) idle_until: Option<Timestamp>,
    /// The step that closes the stream when all its packets are confirmed.
    pub(super) closing: Option<QueuedStep>,
    pub(super) relay_state: StreamRelayState,
}

/// The part of a stream that has been sent over the present connection.
#[derive(Debug, Default)]
pub(super) struct StreamRelayState {
    pub(super) is_added: bool,
    /// The relay's id of the stream, once it has replied.
    pub(super) stream_id: Option<StreamId>,
    /// Number of packets that were sent.
    pub(super) sent: u64,
    /// Number of packets that were confirmed.
    pub(super) confirmed: u64,
    /// The number of packets, from the first of this connection, that the relay is being asked about.
    pub(super) asked: Option<u64>,
    /// Bytes that were sent since the relay was last asked.
    pub(super) unasked_bytes: u64,
    /// The beacon is to be sent when all packets are confirmed: a relay ignores beacons while it waits
    /// for a packet or its index.
    pub(super) beacon_due: bool,
    pub(super) close_sent: bool,
    /// The tracer's number (`packet_seq_num`) after that of the last packet that was sent.
    pub(super) next_packet_seq: u64,
}

/// A packet that is retained until a relay has confirmed it.
#[derive(Debug)]
pub(super) struct UnconfirmedPacket {
    /// The packet's number among all packets of the session, from 0.
    pub(super) order: u64,
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
    /// Number of packets that are in flight.
    pub(super) fn in_flight(&self) -> usize {
        usize::try_from(self.relay_state.sent - self.relay_state.confirmed).unwrap_or(usize::MAX)
    }

    pub(super) fn is_all_confirmed(&self) -> bool {
        self.unconfirmed.is_empty()
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
        let order = self.packets;
        let kept = UnconfirmedPacket { order, queued };
        if !kept
            .packet()
            .is_some_and(|(bytes, index)| has_valid_index(bytes, index))
        {
            return Some(kept.queued);
        }
        self.packets += 1;
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

/// Whether a packet's index is consistent with its size. Otherwise relays would wait for bytes that are
/// never sent, or take the index for a beacon.
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
