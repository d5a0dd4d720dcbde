//! One session on one relay, from its first stream to its end: which commands and packets follow
//! from the steps, and what the answers mean. Knows no socket; time comes as an argument.
//!
//! Commands are not waited for one by one: answers come in order. An answer to an index says that the
//! index has arrived, not that the packet has: that is asked for now and then (`DATA_PENDING`), and a
//! packet is kept until the relay says that it has both.

mod closing;
mod confirm;
mod send;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Instant;

use relay_proto::producer::{Producer, ProducerError};
use relay_proto::reply::StreamAdded;
use relay_proto::{Command, CommandCode, Reply};
use tracing::warn;
use wire::{ChunkId, EpochSeconds, SeqNum, SessionId, StreamId, Text};

use crate::limits::{MAX_COMMANDS_IN_FLIGHT, MAX_WRITE_BYTES};
use crate::queue::{QueuedStep, Step, StreamKey, TraceKey};
use crate::uplink::error::UplinkError;
use crate::uplink::send_queue::SendQueue;
use crate::uplink::session_state::{SessionState, StreamState};
use closing::SessionClosing;

/// The chunk that all of a session lies in: it is never rotated.
pub(super) const CHUNK: ChunkId = ChunkId(0);

/// How the relay is to cut streams into files.
#[derive(Debug, Clone, Copy)]
pub(super) struct TracefileLimits {
    pub(super) size: wire::Bytes,
    pub(super) count: u64,
}

/// A session that a relay has opened.
#[derive(Debug)]
pub(super) struct RelaySession {
    pub(super) machine: Producer,
    /// The relay's number for it.
    pub(super) session: SessionId,
    pub(super) tracefiles: TracefileLimits,
    /// When it was created, in both ways of telling the time.
    pub(super) created: EpochSeconds,
    pub(super) at: Instant,
}

/// One session on one relay.
#[derive(Debug)]
pub(super) struct SessionUpload {
    opened: RelaySession,
    pub(super) out: SendQueue,
    pub(super) awaited: VecDeque<AwaitedReply>,
    /// Streams whose number is awaited.
    adding: usize,
    /// Streams have been added since viewers were last told.
    is_unannounced: bool,
    /// Traces whose metadata stream is to be added with that.
    unannounced: BTreeSet<TraceKey>,
    /// Traces with metadata that was not sent.
    traces_with_unsent_metadata: BTreeSet<TraceKey>,
    /// The steps of that metadata, which hold its permits in the queue.
    permits: Vec<QueuedStep>,
    /// Packets of an earlier connection that are to be sent again, by their streams.
    resend_queue: VecDeque<StreamKey>,
    /// Streams with packets that the relay has not been asked about.
    streams_to_ask: BTreeSet<StreamKey>,
    /// Streams that it is to be asked about again, from then on.
    streams_to_ask_again: BTreeSet<StreamKey>,
    ask_again: Option<Instant>,
    /// Streams with a beacon to be sent, or to be closed, when all their packets are confirmed.
    due_streams: BTreeSet<StreamKey>,
    pub(super) closing_progress: SessionClosing,
    /// Where the trace lies, as the relay said at its end.
    pub(super) path: Option<Text>,
}

/// What an answer will be about.
#[derive(Debug)]
pub(super) enum AwaitedReply {
    StreamAdded(StreamKey),
    MetadataAdded(TraceKey),
    /// The relay has received metadata: its permits in the queue are released.
    MetadataReceived {
        _permits: Vec<QueuedStep>,
    },
    /// Whether the packets before this one have arrived.
    Confirmed {
        stream: StreamKey,
        before: u64,
    },
    Closed(StreamKey),
    /// In the closing: whether something is still pending.
    Pending,
    ChunkClosed,
    /// Nothing follows but that it was done.
    Done,
}

impl SessionUpload {
    /// In a session that a relay has just opened. Adds all that is known of it already.
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
            resend_queue: VecDeque::new(),
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
        state.reset_relay_state();
        for (key, trace) in &state.traces {
            if !trace.has_had_streams {
                self.unannounced.insert(*key);
                self.is_unannounced = true;
            }
        }
        let streams: Vec<StreamKey> = state.streams.keys().copied().collect();
        let mut packets = Vec::new();
        for key in streams {
            self.add_stream(key, state)?;
            let Some(stream) = state.streams.get(&key) else {
                continue;
            };
            packets.extend(stream.unconfirmed.iter().map(|kept| (kept.order, key)));
            if stream.relay_state.beacon_due || stream.closing.is_some() {
                self.due_streams.insert(key);
            }
        }
        packets.sort_unstable();
        self.resend_queue = packets.into_iter().map(|(_, key)| key).collect();
        if self.is_unannounced {
            self.announce_streams(state)?;
        }
        Ok(())
    }

    /// Does what can be done now: takes steps from the backlog as far as the window allows, and asks
    /// about what was sent. `is_last`: no step will follow.
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
        while let Some(&key) = self.resend_queue.front() {
            if !self.send_missing_metadata(state)? || !self.has_room() {
                break;
            }
            self.resend_queue.pop_front();
            self.send_packet(key, state)?;
        }
        while self.resend_queue.is_empty()
            && let Some(next) = backlog.front()
            && self.is_ready_for(&next.step, state)?
            && let Some(next) = backlog.pop_front()
        {
            self.handle_step(next, state)?;
        }
        let is_idle = backlog.is_empty() && self.resend_queue.is_empty();
        if is_idle && is_last {
            // So that even streams nobody has said anything of are there.
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

    /// When [`advance`](Self::advance) may have something to do without an event.
    pub(super) fn wake(&self) -> Option<Instant> {
        self.ask_again.or(self.closing_progress.wake())
    }

    /// The relay's number for the session.
    pub(super) fn session(&self) -> SessionId {
        self.opened.session
    }

    /// That time by the clock that the session's creation was told by.
    pub(super) fn wall_clock(&self, now: Instant) -> EpochSeconds {
        let lasted = now.saturating_duration_since(self.opened.at);
        EpochSeconds(self.opened.created.0.saturating_add(lasted.as_secs()))
    }

    /// The command whose answer comes next.
    pub(super) fn next_answered(&self) -> Option<CommandCode> {
        self.opened.machine.next_answered()
    }

    /// Whether the relay owes an answer.
    pub(super) fn is_awaiting(&self) -> bool {
        !self.awaited.is_empty()
    }

    fn has_room(&self) -> bool {
        self.awaited.len() < MAX_COMMANDS_IN_FLIGHT && self.out.data.len() < MAX_WRITE_BYTES
    }

    /// Whether a step can be taken; whatever must come before it is sent.
    fn is_ready_for(&mut self, step: &Step, state: &mut SessionState) -> Result<bool, UplinkError> {
        if !self.has_room() {
            return Ok(false);
        }
        match step {
            Step::AddTrace { .. } | Step::AddStream { .. } => return Ok(true),
            Step::Metadata { trace, .. } => {
                // All of its streams may have been closed before the relay was found again.
                if state
                    .traces
                    .get(trace)
                    .is_some_and(|of| !of.relay_state.is_added)
                {
                    self.unannounced.insert(*trace);
                    self.is_unannounced = true;
                }
            }
            Step::Packet { .. } | Step::Beacon { .. } | Step::CloseStream { .. } => {}
        }
        self.send_missing_metadata(state)
    }

    /// Whether the relay has numbered all streams and has been sent all metadata; if not, sends what
    /// can be sent of it.
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
                let key = state.add_stream(*trace, channel, *class)?;
                self.add_stream(key, state)?;
            }
            Step::Metadata { bytes, .. } if bytes.is_empty() => {}
            Step::Metadata { trace, bytes } => {
                let trace = *trace;
                state.add_metadata(trace, bytes.clone())?;
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
                    of.relay_state.beacon_due = true;
                    self.due_streams.insert(*stream);
                }
            }
            Step::CloseStream { stream } => {
                let stream = *stream;
                if let Some(of) = state.streams.get_mut(&stream) {
                    of.closing = Some(queued);
                    self.due_streams.insert(stream);
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

    /// Takes the answers off the front of `input`. Whether there were any.
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
            (AwaitedReply::MetadataAdded(key), Reply::StreamAdded(StreamAdded { stream, .. })) => {
                self.adding -= 1;
                if let Some(of) = state.traces.get_mut(&key) {
                    of.relay_state.stream_id = Some(stream.ok_or_else(refused)?);
                }
            }
            (AwaitedReply::Confirmed { stream, before }, Reply::Pending(is_pending)) => {
                self.handle_confirmation(stream, before, *is_pending, state, now);
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

    /// The relay's numbers of all open streams, and of their last packets.
    pub(super) fn open_streams(state: &SessionState) -> BTreeMap<StreamId, (Option<SeqNum>, u64)> {
        let numbered = |stream: &StreamState| {
            let relay_state = &stream.relay_state;
            let last = relay_state.sent.checked_sub(1).map(SeqNum);
            Some((relay_state.stream_id?, (last, relay_state.next_packet_seq)))
        };
        state.streams.values().filter_map(numbered).collect()
    }
}

/// A packet that no relay could take: whoever made it has made a mistake.
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
            "packet dropped: its index does not fit it, or its stream is not open"
        );
        state.counters.lost.add(1);
        state.counters.queued_packets.subtract(1);
        state.counters.queued_bytes.subtract(bytes.len() as u64);
    }
}
