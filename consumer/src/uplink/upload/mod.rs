//! The upload of a session to one relay, from its first stream to its end: a state machine that
//! turns steps into commands and packets, and handles the replies. It knows no socket; time comes
//! as an argument.
//!
//! Commands are pipelined; replies arrive in the order of the commands. The reply to an index
//! confirms the index, not its packet. So the relay is asked from time to time (`GET_POSITION`, or
//! `DATA_PENDING` of a relay without the resume extension), and a packet is retained until the
//! relay has confirmed both as durable.
//!
//! `streams` adds streams, or continues those that the relay has; `send` sends metadata and
//! packets; `confirm` asks about packets; `closing` ends the session.

mod closing;
mod confirm;
mod send;
mod streams;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Instant;

use relay_proto::producer::{Producer, ProducerError};
use relay_proto::reply::StreamAdded;
use relay_proto::resume::{StreamOpened, StreamPosition};
use relay_proto::{Command, CommandCode, Reply};
use tracing::warn;
use wire::{ChunkId, EpochSeconds, SeqNum, SessionId, StreamId, Text};

use crate::limits::{MAX_COMMANDS_IN_FLIGHT, MAX_WRITE_BYTES};
use crate::queue::{QueuedStep, Step, StreamKey, TraceKey};
use crate::uplink::error::UplinkError;
use crate::uplink::send_queue::SendQueue;
use crate::uplink::session_state::{SessionState, StreamState};
use closing::SessionClosing;

/// The trace chunk of the whole session, which is never rotated.
pub(super) const CHUNK: ChunkId = ChunkId(0);

/// How the relay is to split streams into tracefiles; 0: no limit.
#[derive(Debug, Clone, Copy)]
pub(super) struct TracefileLimits {
    /// Maximum size of a tracefile.
    pub(super) size: wire::Bytes,
    /// Number of tracefiles that are kept of a stream.
    pub(super) count: u64,
}

/// A session that a relay has opened.
#[derive(Debug)]
pub(super) struct RelaySession {
    pub(super) machine: Producer,
    /// The relay's id of the session.
    pub(super) session: SessionId,
    /// Whether the relay keeps the session when the connection is lost.
    pub(super) is_resumable: bool,
    pub(super) tracefiles: TracefileLimits,
    /// The creation time that was sent to the relay.
    pub(super) created: EpochSeconds,
    /// The moment of `created` by the monotonic clock.
    pub(super) at: Instant,
}

/// The upload of a session over one connection.
#[derive(Debug)]
pub(super) struct SessionUpload {
    opened: RelaySession,
    pub(super) out: SendQueue,
    /// The subjects of the replies to the commands in flight, in order.
    pub(super) awaited: VecDeque<AwaitedReply>,
    /// Number of streams for which the relay has not replied an id yet.
    adding: usize,
    /// Whether streams have been added since the last announcement (`STREAMS_SENT`).
    is_unannounced: bool,
    /// Traces with a metadata stream that is to be added with the next announcement.
    unannounced: BTreeSet<TraceKey>,
    /// Traces with metadata that has not been sent.
    traces_with_unsent_metadata: BTreeSet<TraceKey>,
    /// The steps of that metadata, which count against the capacity of the queue until they are
    /// dropped.
    permits: Vec<QueuedStep>,
    /// Packets that were added before this connection and are to be sent: their streams, in the
    /// order of the packets. Absent until the relay has ids for the streams and has said which
    /// packets it has.
    resend_queue: Option<VecDeque<StreamKey>>,
    /// Streams with packets that the relay has not been asked about.
    streams_to_ask: BTreeSet<StreamKey>,
    /// Streams that the relay has to be asked about again, at `ask_again`.
    streams_to_ask_again: BTreeSet<StreamKey>,
    ask_again: Option<Instant>,
    /// Streams with a beacon to be sent, or to be closed, when all their packets are confirmed.
    due_streams: BTreeSet<StreamKey>,
    pub(super) closing_progress: SessionClosing,
    /// The path of the trace, from the reply to the closing of the chunk.
    pub(super) path: Option<Text>,
}

/// The subject of the reply to a command in flight.
#[derive(Debug)]
pub(super) enum AwaitedReply {
    /// The relay has an id for the stream, and says where it continues if it can be resumed.
    StreamAdded(StreamKey),
    /// The relay has an id for the metadata stream of the trace.
    MetadataAdded(TraceKey),
    /// The relay has received metadata: its permits in the queue are released.
    MetadataReceived { _permits: Vec<QueuedStep> },
    /// Whether packets of a stream have arrived.
    Confirmed {
        stream: StreamKey,
        /// The packets before this one were asked about.
        before: u64,
    },
    /// The relay has closed the stream.
    Closed(StreamKey),
    /// Whether something is pending, while the session is closed.
    Pending,
    /// The relay has closed the trace chunk.
    ChunkClosed,
    /// Success, and nothing else.
    Done,
}

impl SessionUpload {
    /// Begins the upload in a session that the relay has just opened, and sends the known state
    /// again.
    pub(super) fn begin(
        opened: RelaySession,
        state: &mut SessionState,
    ) -> Result<Self, UplinkError> {
        let mut upload = Self {
            opened,
            out: SendQueue::default(),
            awaited: VecDeque::new(),
            adding: 0,
            is_unannounced: false,
            unannounced: BTreeSet::new(),
            traces_with_unsent_metadata: BTreeSet::new(),
            permits: Vec::new(),
            resend_queue: None,
            streams_to_ask: BTreeSet::new(),
            streams_to_ask_again: BTreeSet::new(),
            ask_again: None,
            due_streams: BTreeSet::new(),
            closing_progress: SessionClosing::default(),
            path: None,
        };
        upload.resend_known_state(state)?;
        Ok(upload)
    }

    fn resend_known_state(&mut self, state: &mut SessionState) -> Result<(), UplinkError> {
        // Ids of streams are those of one connection, even in a session that is resumed.
        state.reset_relay_state();
        for (key, trace) in &state.traces {
            if !trace.has_had_streams {
                self.unannounced.insert(*key);
                self.is_unannounced = true;
            }
        }
        let streams: Vec<StreamKey> = state.streams.keys().copied().collect();
        for key in streams {
            self.add_stream(key, state)?;
            let Some(stream) = state.streams.get(&key) else {
                continue;
            };
            if stream.relay_state.beacon_due || stream.closing.is_some() {
                self.due_streams.insert(key);
            }
        }
        if self.is_unannounced {
            self.announce_streams(state)?;
        }
        Ok(())
    }

    /// Sends the packets that were added before this connection, as far as the limits allow.
    /// Returns whether all of them are in flight.
    fn resend_packets(&mut self, state: &mut SessionState) -> Result<bool, UplinkError> {
        if !self.send_missing_metadata(state)? {
            return Ok(false);
        }
        let resend_queue = self.resend_queue.get_or_insert_with(|| {
            // By `order`: packets are sent again in the order in which they were added, over all
            // streams.
            let mut packets = Vec::new();
            for (key, stream) in &state.streams {
                let unsent = stream.unconfirmed.iter().skip(stream.relay_state.in_flight);
                packets.extend(unsent.map(|kept| (kept.order, *key)));
            }
            packets.sort_unstable();
            packets.into_iter().map(|(_, key)| key).collect()
        });
        if resend_queue.is_empty() {
            return Ok(true);
        }
        while self.has_room()
            && let Some(key) = self.resend_queue.as_mut().and_then(VecDeque::pop_front)
        {
            self.send_packet(key, state)?;
        }
        Ok(self.has_resent())
    }

    fn has_resent(&self) -> bool {
        self.resend_queue.as_ref().is_some_and(VecDeque::is_empty)
    }

    /// Handles steps of the backlog as far as the limits of commands and bytes in flight allow, and
    /// asks for confirmations. If `is_last`, no step follows those in the backlog.
    pub(super) fn advance(
        &mut self,
        state: &mut SessionState,
        backlog: &mut VecDeque<QueuedStep>,
        is_last: bool,
        now: Instant,
    ) -> Result<(), UplinkError> {
        if self.closing_progress.has_begun() {
            return self.advance_closing(state, now);
        }
        let has_resent = self.has_resent() || self.resend_packets(state)?;
        while has_resent
            && let Some(next) = backlog.front()
            && self.is_ready_for(&next.step, state)?
            && let Some(next) = backlog.pop_front()
        {
            self.handle_step(next, state)?;
        }
        let is_idle = backlog.is_empty() && has_resent;
        if is_idle && is_last {
            // Streams without any further step must exist on the relay as well.
            self.send_missing_metadata(state)?;
        }
        self.send_due_beacons_and_closes(state)?;
        self.ask_confirmations(state, is_idle, now)?;
        let is_done =
            is_idle && self.traces_with_unsent_metadata.is_empty() && self.awaited.is_empty();
        if is_last && is_done && !self.is_unannounced && state.is_all_confirmed() {
            return self.advance_closing(state, now);
        }
        Ok(())
    }

    /// Returns when [`advance`](Self::advance) has to be called even if nothing happens.
    pub(super) fn wake(&self) -> Option<Instant> {
        self.ask_again.or(self.closing_progress.wake())
    }

    /// Returns the relay's id of the session.
    pub(super) fn session(&self) -> SessionId {
        self.opened.session
    }

    /// Returns `now` as seconds since the epoch, never before the creation time of the session.
    pub(super) fn wall_clock(&self, now: Instant) -> EpochSeconds {
        // By the monotonic clock, because the time of day may be set back during the session.
        let lasted = now.saturating_duration_since(self.opened.at);
        EpochSeconds(self.opened.created.0.saturating_add(lasted.as_secs()))
    }

    /// Returns the command that the next reply answers.
    pub(super) fn next_answered(&self) -> Option<CommandCode> {
        self.opened.machine.next_answered()
    }

    /// Whether commands are in flight.
    pub(super) fn is_awaiting(&self) -> bool {
        !self.awaited.is_empty()
    }

    fn has_room(&self) -> bool {
        self.awaited.len() < MAX_COMMANDS_IN_FLIGHT && self.out.data.len() < MAX_WRITE_BYTES
    }

    /// Whether a step can be taken now. Sends the announcements and metadata that must come before
    /// it.
    fn is_ready_for(&mut self, step: &Step, state: &mut SessionState) -> Result<bool, UplinkError> {
        if !self.has_room() {
            return Ok(false);
        }
        match step {
            Step::AddTrace { .. } | Step::AddStream { .. } => return Ok(true),
            Step::Metadata { trace, .. } => {
                // If all streams of the trace were closed before a reconnect, its metadata stream
                // is not added yet.
                if state
                    .traces
                    .get(trace)
                    .is_some_and(|of| !of.relay_state.is_added)
                {
                    self.unannounced.insert(*trace);
                    self.is_unannounced = true;
                }
            }
            Step::Packet { .. }
            | Step::Beacon { .. }
            | Step::Gap { .. }
            | Step::CloseStream { .. } => {}
        }
        self.send_missing_metadata(state)
    }

    /// Announces streams and sends metadata, as far as possible now. Returns whether the relay has
    /// ids for all streams and has been sent all metadata.
    fn send_missing_metadata(&mut self, state: &mut SessionState) -> Result<bool, UplinkError> {
        if self.is_unannounced {
            self.announce_streams(state)?;
        }
        if self.adding > 0 {
            return Ok(false);
        }
        while let Some(&trace) = self.traces_with_unsent_metadata.first() {
            if !self.send_metadata(trace, state)? {
                return Ok(false);
            }
            self.traces_with_unsent_metadata.remove(&trace);
        }
        Ok(true)
    }

    fn handle_step(
        &mut self,
        queued: QueuedStep,
        state: &mut SessionState,
    ) -> Result<(), UplinkError> {
        match &queued.step {
            Step::AddTrace { path } => {
                state.add_trace(path)?;
                if let Some((key, _)) = state.traces.last_key_value() {
                    self.unannounced.insert(*key);
                    self.is_unannounced = true;
                }
            }
            Step::AddStream {
                trace,
                channel,
                class,
            } => {
                let key = state.add_stream(*trace, channel, *class, queued.seq)?;
                self.add_stream(key, state)?;
            }
            Step::Metadata { bytes, .. } if bytes.is_empty() => {}
            Step::Metadata { trace, bytes } => {
                let trace = *trace;
                state.add_metadata(trace, bytes.clone())?;
                // The step keeps its part of the capacity until the relay has the bytes: otherwise
                // metadata could be queued without a limit.
                self.permits.push(queued);
                self.traces_with_unsent_metadata.insert(trace);
                self.send_missing_metadata(state)?;
            }
            Step::Packet { stream, .. } => {
                let stream = *stream;
                match state.add_packet(stream, queued) {
                    None => self.send_packet(stream, state)?,
                    Some(refused) => drop_packet(&refused, state),
                }
            }
            Step::Beacon { stream, until } => {
                if let Some(of) = state.streams.get_mut(stream) {
                    of.idle_until = of.idle_until.max(Some(*until));
                    // The beacon waits for the confirmation of the packets before it.
                    of.relay_state.beacon_due = true;
                    self.due_streams.insert(*stream);
                }
            }
            Step::Gap {
                stream,
                before,
                packets,
            } => {
                state.counters.lost.add(*packets);
                if let Some(of) = state.streams.get_mut(stream) {
                    of.next = of.next.max(*before);
                }
            }
            Step::CloseStream { stream } => {
                let stream = *stream;
                if let Some(of) = state.streams.get_mut(&stream) {
                    of.closing = Some(queued);
                    let is_closed = of.relay_state.closed_at.is_some();
                    self.due_streams.insert(stream);
                    if is_closed {
                        self.finish_closed_stream(stream, state)?;
                    }
                }
            }
        }
        Ok(())
    }

    pub(super) fn send_command(
        &mut self,
        command: &Command,
        then: AwaitedReply,
    ) -> Result<(), UplinkError> {
        self.opened.machine.send(command, &mut self.out.control)?;
        self.awaited.push_back(then);
        Ok(())
    }

    /// Takes the complete replies off the front of `input`. Returns whether there were any.
    pub(super) fn receive_replies(
        &mut self,
        input: &mut &[u8],
        state: &mut SessionState,
        now: Instant,
    ) -> Result<bool, UplinkError> {
        let mut some = false;
        while let Some((command, reply)) = self.opened.machine.receive(input)? {
            some = true;
            let Some(awaited) = self.awaited.pop_front() else {
                return Err(ProducerError::Unasked { bytes: 0 }.into());
            };
            self.handle_reply(awaited, command, &reply, state, now)?;
        }
        Ok(some)
    }

    fn handle_reply(
        &mut self,
        awaited: AwaitedReply,
        command: CommandCode,
        reply: &Reply,
        state: &mut SessionState,
        now: Instant,
    ) -> Result<(), UplinkError> {
        let refused = || UplinkError::refused(command, reply);
        if !reply.is_ok() {
            return Err(refused());
        }
        match (awaited, reply) {
            (AwaitedReply::StreamAdded(key), Reply::StreamAdded(StreamAdded { stream, .. })) => {
                self.adding -= 1;
                if let Some(of) = state.streams.get_mut(&key) {
                    of.relay_state.stream_id = Some(stream.ok_or_else(refused)?);
                }
            }
            (AwaitedReply::StreamAdded(key), Reply::StreamOpened(opened)) => {
                self.adding -= 1;
                self.continue_stream(key, opened, state)?;
            }
            (AwaitedReply::MetadataAdded(key), Reply::StreamAdded(StreamAdded { stream, .. })) => {
                self.adding -= 1;
                if let Some(of) = state.traces.get_mut(&key) {
                    of.relay_state.stream_id = Some(stream.ok_or_else(refused)?);
                }
            }
            (AwaitedReply::MetadataAdded(key), Reply::StreamOpened(opened)) => {
                self.adding -= 1;
                let StreamOpened { stream, next, .. } = *opened;
                if let Some(of) = state.traces.get_mut(&key) {
                    of.relay_state.stream_id = Some(stream.ok_or_else(refused)?);
                    of.relay_state.skip = next;
                }
            }
            (AwaitedReply::Confirmed { stream, before }, Reply::Pending(is_pending)) => {
                // Such a relay does not say what is on its disk. What it has written counts as
                // durable.
                let durable = if *is_pending { 0 } else { before };
                self.handle_position(stream, durable, durable, state, now);
            }
            (AwaitedReply::Confirmed { stream, .. }, Reply::Position(position)) => {
                let StreamPosition {
                    written, durable, ..
                } = *position;
                self.handle_position(stream, written, durable, state, now);
            }
            (AwaitedReply::Closed(key), Reply::Ended(_)) => {
                state.streams.remove(&key);
            }
            (AwaitedReply::Pending, Reply::Pending(is_pending)) => {
                self.closing_progress.record_pending(*is_pending)
            }
            (AwaitedReply::ChunkClosed, Reply::ChunkClosed { path, .. }) => {
                self.path.clone_from(path)
            }
            (AwaitedReply::Done | AwaitedReply::MetadataReceived { .. }, Reply::Ended(_)) => {}
            _ => return Err(refused()),
        }
        Ok(())
    }

    /// Returns the open streams by the relay's ids, with the last packet that was sent and the
    /// tracer's number of the next one.
    pub(super) fn open_streams(state: &SessionState) -> BTreeMap<StreamId, (Option<SeqNum>, u64)> {
        let numbered = |stream: &StreamState| {
            let relay_state = &stream.relay_state;
            let last = relay_state.last_seq();
            Some((relay_state.stream_id?, (last, stream.next_packet_seq)))
        };
        state.streams.values().filter_map(numbered).collect()
    }
}

/// Counts and logs a packet that no relay could take: a defect of the frontend.
fn drop_packet(refused: &QueuedStep, state: &SessionState) {
    if let Step::Packet {
        stream,
        bytes,
        index,
    } = &refused.step
    {
        warn!(
            stream = stream.0,
            bytes = bytes.len(),
            packet_size = index.packet_size.0,
            "packet dropped: its index is inconsistent, or its stream is not open"
        );
        state.counters.lost.add(1);
        state.counters.queued_packets.subtract(1);
        state.counters.queued_bytes.subtract(bytes.len() as u64);
    }
}
