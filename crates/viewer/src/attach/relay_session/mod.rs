//! The viewer's protocol session on one connection to a relay: attaches to the sessions that the
//! target names, and passes on their packets, until all have ended or the connection fails.
//!
//! The session runs in rounds. Each round requests packets of every stream that may have some and
//! whose backlog has room: one, or as many as the relay has announced. Then it waits until there
//! may be more.
//!
//! Read in this order: this file (the round), `sessions` (which sessions and streams there are),
//! `metadata`, `packets` (the next packets of one stream), `resume` (what an earlier connection has
//! left), `wait` (when the next round begins).

mod metadata;
mod packets;
mod resume;
mod sessions;
mod wait;

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use viewer_proto::push::Notification;
use viewer_proto::session::Seek;
use wire::{SessionId, StreamId, TraceId};

use super::connection::Connection;
use super::error::AttachError;
use super::push;
use super::relay_options::RelayOptions;
use super::relay_selector::SelectedRelay;
use super::resume_state::ResumeState;
use super::shown_trace::{Phase, ShownStream, ShownTrace};
use super::target::RelayTarget;
use super::{Backlog, SourceEvent};
use packets::IndexReply;
use wait::PollTimer;

/// Number of packets of one stream that wait to be decoded from which its backlog may be full:
/// enough to go on while the reader is busy.
const MIN_FULL_BACKLOG_PACKETS: usize = 8;

/// Number of bytes that these packets must have as well for the backlog to be full.
const MIN_FULL_BACKLOG_BYTES: usize = 1 << 20;

/// Number of packets with which a backlog is full, however small they are.
const MAX_BACKLOG_PACKETS: usize = 128;

/// Time in which another relay of the target may list the sessions that were followed, before they
/// are looked for at the next one.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(2);

/// One connection to a relay, with the sessions that are attached on it and their traces and
/// streams.
pub(super) struct RelaySession {
    target: RelayTarget,
    relay: SelectedRelay,
    options: RelayOptions,
    events: mpsc::Sender<SourceEvent>,
    connection: Connection,
    /// Notifications from the push connection. Absent if the relay does not push.
    push: Option<mpsc::Receiver<Notification>>,
    poll_timer: PollTimer,
    /// When to request the list of sessions next.
    list_due: Instant,
    /// Whether the sessions have been listed on this connection.
    has_listed: bool,
    /// Whether sessions can be attached to.
    is_created: bool,
    sessions: BTreeMap<SessionId, AttachedSession>,
    /// Sessions that are listed and not attached to again: they have ended, or cannot be followed.
    skipped_sessions: HashSet<SessionId>,
    traces: BTreeMap<SessionTraceId, AttachedTrace>,
    streams: BTreeMap<StreamId, AttachedStream>,
    /// The relay has pushed that a trace has metadata.
    is_metadata_pushed: bool,
    /// Metadata that has been handed over and not been parsed.
    metadata_backlog: Backlog,
    /// Whether users know that more sessions wait than are attached.
    has_reported_waiting: bool,
    /// When to ask all sessions for new streams next.
    streams_due: Instant,
    /// Whether anything has been read on this connection.
    has_read: bool,
    /// Whether any packet has been handed over on this connection.
    has_sent_packet: bool,
    /// When to look for the sessions at another relay if this one lists none of them. Absent if
    /// there is no other.
    leave_due: Option<Instant>,
    /// Whether the relay has refused to attach to a session that the target names, which has been
    /// reported.
    has_refused: bool,
    /// Whether all that the relay had at first has been handed over, or nobody wants to know.
    has_caught_up: bool,
    /// Whether nothing further is to be followed.
    is_finished: bool,
    /// What was followed on the connections before this one.
    resume: ResumeState,
}

/// A trace, by its session and its number in it.
type SessionTraceId = (SessionId, TraceId);

struct AttachedSession {
    /// The session's name for users.
    name: String,
    /// The place where the session was attached first, on this connection or an earlier one.
    seek: Seek,
    live_timer: Option<Duration>,
    /// Whether no stream will be added to the session.
    is_over: bool,
    /// Whether the traces with which the session begins have been announced. Others that come later
    /// do not delay it.
    has_begun: bool,
    /// Whether to ask for new streams.
    may_have_streams: bool,
}

struct AttachedTrace {
    /// What of it has been handed over, on this connection and those before it.
    shown: ShownTrace,
    /// The metadata of the trace, as long as it does not tell whether the trace is one that was
    /// followed before. Nothing of the trace is announced or read until then. Absent afterwards.
    unidentified: Option<Vec<u8>>,
    metadata: Option<StreamId>,
    /// Whether the trace is new, and waits until the reader has less metadata to parse. Nothing of
    /// the trace is announced or read until then.
    is_waiting: bool,
    /// Whether no metadata will be added to the trace.
    is_complete: bool,
    /// Whether to ask for metadata.
    may_have_metadata: bool,
    /// Whether any stream of packets of the trace has been announced.
    has_had_streams: bool,
    /// The number of streams of the trace that have packets and have not ended.
    streams: usize,
}

struct AttachedStream {
    /// What of it has been handed over, on this connection and those before it.
    shown: ShownStream,
    trace: SessionTraceId,
    /// Whether to ask for the next packet.
    may_have_packets: bool,
    /// Packets that the relay has said are there and that have not been asked for.
    unread: u64,
    /// Whether the last reply was that there is no further packet.
    is_at_end: bool,
    /// Replies to `GET_NEXT_INDEX` that have not been handled, oldest first.
    replies: VecDeque<IndexReply>,
}

impl AttachedTrace {
    /// Whether any of its metadata has been handed over, on any connection.
    fn has_metadata(&self) -> bool {
        self.shown.has_metadata()
    }
}

impl RelaySession {
    /// Connects to the relay, and opens a push connection beside it if the relay may push.
    pub(super) async fn connect(
        target: &RelayTarget,
        relay: &SelectedRelay,
        options: &RelayOptions,
        events: mpsc::Sender<SourceEvent>,
        is_held_back: &watch::Receiver<bool>,
    ) -> Result<Self, AttachError> {
        let mut connection = Connection::open(target, relay, options.connect_timeout).await?;
        connection.set_reply_timeout(options.reply_timeout);
        let push = match connection.viewer() {
            // No viewer has the number 0: the relay has given none.
            Some(viewer) if options.push && viewer.0 != 0 => {
                let (target, relay) = (target.clone(), relay.clone());
                Some(push::open(target, relay, viewer, is_held_back.clone()))
            }
            _ => None,
        };
        Ok(Self {
            target: target.clone(),
            relay: relay.clone(),
            options: options.clone(),
            events,
            connection,
            push,
            poll_timer: PollTimer::new(Instant::now()),
            list_due: Instant::now(),
            has_listed: false,
            is_created: false,
            sessions: BTreeMap::new(),
            skipped_sessions: HashSet::new(),
            traces: BTreeMap::new(),
            streams: BTreeMap::new(),
            is_metadata_pushed: false,
            metadata_backlog: Backlog::default(),
            has_reported_waiting: false,
            streams_due: Instant::now(),
            has_read: false,
            has_sent_packet: false,
            leave_due: None,
            has_refused: false,
            has_caught_up: !options.reports_catch_up,
            is_finished: false,
            resume: ResumeState::default(),
        })
    }

    /// Follows until nothing is left to be followed. What was handed over on earlier connections,
    /// as `resume` says, is not handed over again.
    pub(super) async fn run(&mut self, resume: ResumeState) -> Result<(), AttachError> {
        // One notification for packets and metadata, because the session waits for either.
        self.metadata_backlog = Backlog::with_notify(Arc::clone(&resume.packet_removed));
        self.resume = resume;
        if self.resume.has_orphans() {
            let now = Instant::now();
            let due = now + self.options.grace_period;
            self.resume.orphans_due.get_or_insert(due);
            self.leave_due = self.relay.is_one_of_several.then_some(now + SEARCH_TIMEOUT);
        }
        loop {
            let is_polling = self.mark_all_if_poll_due();
            let is_listing = Instant::now() >= self.list_due;
            if is_listing {
                self.request_sessions().await?;
            }
            let mut is_progress = self.request_streams().await?;
            is_progress |= self.request_metadata().await?;
            self.identify_traces_without_metadata().await?;
            // After everything that there is has been requested: a slow relay may have used up the
            // grace period by then.
            if is_listing {
                self.end_orphans_if_due().await?;
            }
            for stream in self.ready_streams() {
                is_progress |= self.read_stream(stream).await?;
            }
            self.end_finished_traces_and_sessions().await?;
            if self.is_finished {
                return Ok(());
            }
            // Only a round that has requested everything says that there is nothing.
            let is_left = || self.streams.values().any(|stream| stream.may_have_packets);
            let has_all = is_polling && !is_progress && self.waiting_traces() == 0 && !is_left();
            if has_all && !std::mem::replace(&mut self.has_caught_up, true) {
                self.send_event(SourceEvent::CaughtUp).await?;
            }
            self.poll_timer
                .end_round(is_polling, is_progress, Instant::now());
            self.wait_for_changes().await?;
        }
    }

    /// Whether anything has been read on this connection.
    pub(super) fn has_read(&self) -> bool {
        self.has_read
    }

    /// Detaches from all sessions.
    pub(super) async fn detach_sessions(&mut self) -> Result<(), AttachError> {
        // A round may have been interrupted between a command and its reply.
        self.connection.drain_replies().await?;
        while let Some((session, _)) = self.sessions.pop_first() {
            self.connection.detach(session).await?;
        }
        Ok(())
    }

    /// Passes on what has happened, once the channel has room for it.
    pub(super) async fn send_event(&self, event: SourceEvent) -> Result<(), AttachError> {
        let said = self.events.send(event).await;
        said.map_err(|_| AttachError::ReceiverGone)
    }

    /// Reports that something could not be read, which the exit status says too.
    async fn send_error(&self, text: impl std::fmt::Display) -> Result<(), AttachError> {
        let text = format!("{}: {text}", self.target);
        self.send_event(SourceEvent::Missing(text)).await
    }

    async fn send_notice(&self, text: impl std::fmt::Display) -> Result<(), AttachError> {
        let text = format!("{}: {text}", self.target);
        self.send_event(SourceEvent::Notice(text)).await
    }

    /// Whether a stream has to wait for the reader: it has enough packets that wait to be decoded,
    /// or any and its next one gets no memory. Where none waits, the reader may need the next to
    /// continue with the other streams: it is fetched whether or not there is memory for it.
    fn is_full(&self, stream: &AttachedStream) -> bool {
        if stream.shown.backlog.is_empty() {
            return false;
        }
        let next = stream.replies.front().map_or(0, IndexReply::missing_bytes);
        is_backlog_full(&stream.shown.backlog, 0, 0) || !self.options.memory.has_room(next)
    }

    /// The streams that may have packets for which there is room. None while it is not known of a
    /// trace whether it is one that was followed when the connection was lost: what it still has
    /// may be earlier.
    fn ready_streams(&self) -> Vec<StreamId> {
        let mut unidentified = self.traces.values();
        let may_be_earlier = |trace: &AttachedTrace| {
            trace.unidentified.is_some() && self.resume.is_followed(&trace.shown.name)
        };
        if unidentified.any(may_be_earlier) {
            return Vec::new();
        }
        let is_ready = |(id, stream): (&StreamId, &AttachedStream)| {
            let is_announced = stream.shown.phase != Phase::Unannounced;
            (stream.may_have_packets && is_announced && !self.is_full(stream)).then_some(*id)
        };
        self.streams.iter().filter_map(is_ready).collect()
    }
}

/// Whether a stream has enough packets that wait to be decoded, once `more` of `more_bytes` bytes
/// do too.
fn is_backlog_full(backlog: &Backlog, more: usize, more_bytes: usize) -> bool {
    let packets = backlog.len() + more;
    let is_much = packets >= MIN_FULL_BACKLOG_PACKETS
        && backlog.bytes() + more_bytes >= MIN_FULL_BACKLOG_BYTES;
    is_much || packets >= MAX_BACKLOG_PACKETS
}
