//! One connection's life: attaches to the sessions that are meant, and passes on what their streams
//! have, until they have all ended or the connection fails.
//!
//! It goes in rounds. In each, every stream that may have something and whose backlog has room is
//! asked, once or for as much as the relay says there is; then it waits until there may be more.

mod metadata;
mod packets;
mod sessions;
mod wait;

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use viewer_proto::push::Notification;
use viewer_proto::session::Seek;
use wire::{SessionId, StreamId, TraceId};

use super::backlog::{Backlog, Room};
use super::connection::Connection;
use super::error::AttachError;
use super::push;
use super::relay::{Missing, Options};
use super::resume::Memory;
use super::target::RelayTarget;
use super::{SourceEvent, StreamKey, TraceKey};
use packets::Answer;
use wait::Pace;

/// Packets of one stream that may wait to be decoded: enough to go on while the reader is busy.
const STREAM_PACKETS: usize = 8;

/// The same of packets that are small: as many as come to so many bytes.
const STREAM_BYTES: usize = 1 << 20;

/// And however small they are.
const SMALL_PACKETS: usize = 128;

/// One connection and what it brings.
pub(super) struct Visit {
    target: RelayTarget,
    options: Options,
    events: mpsc::Sender<SourceEvent>,
    connection: Connection,
    /// What the relay pushes, or may yet.
    push: Option<mpsc::Receiver<Notification>>,
    pace: Pace,
    room: Room,
    /// When to ask next which sessions there are.
    list_due: Instant,
    /// Whether that has been asked before.
    has_listed: bool,
    /// Whether sessions can be attached to.
    is_created: bool,
    sessions: BTreeMap<SessionId, Session>,
    /// Sessions that are listed and not attached to again: they have ended, or cannot be followed.
    passed_over: HashSet<SessionId>,
    traces: BTreeMap<TraceOf, Trace>,
    streams: BTreeMap<StreamId, Stream>,
    /// The relay has pushed that a trace has metadata.
    is_metadata_pushed: bool,
    /// Any session has been attached to.
    has_followed: bool,
    /// Nothing further is to be followed.
    is_finished: bool,
}

/// A trace of a session.
type TraceOf = (SessionId, TraceId);

struct Session {
    /// As users know it.
    name: String,
    live_timer: Option<Duration>,
    /// No stream will be added.
    is_over: bool,
    /// Whether to ask for new streams.
    may_have_streams: bool,
}

struct Trace {
    key: TraceKey,
    metadata: Option<StreamId>,
    /// Any of its metadata has been passed on.
    has_metadata: bool,
    /// No metadata will be added.
    is_complete: bool,
    /// Whether to ask for metadata.
    may_have_metadata: bool,
    /// It was read on an earlier connection.
    is_known: bool,
    /// Any stream of packets has been announced.
    has_had_streams: bool,
    /// Of packets.
    streams: usize,
}

struct Stream {
    key: StreamKey,
    /// As users know it.
    name: String,
    trace: TraceOf,
    backlog: Backlog,
    /// Whether to ask for the next packet.
    may_have_packets: bool,
    /// Packets that the relay has said are there and that have not been asked for.
    unread: u64,
    /// What it has answered, oldest first, and has not been dealt with.
    answers: VecDeque<Answer>,
    /// Quiet time that has been passed on.
    quiet: Option<u64>,
    /// It makes no sense: nothing more of it is passed on, only its end awaited.
    is_broken: bool,
}

impl Visit {
    /// Connects.
    pub(super) async fn begin(
        target: &RelayTarget,
        options: &Options,
        events: mpsc::Sender<SourceEvent>,
        is_held_back: &watch::Receiver<bool>,
    ) -> Result<Self, AttachError> {
        let connection = Connection::open(target, options.connect_patience).await?;
        let push = match connection.identity() {
            // 0 is nobody.
            (relay, Some(viewer)) if options.push && viewer.0 != 0 => {
                Some(push::open(relay, viewer, is_held_back.clone()))
            }
            _ => None,
        };
        Ok(Self {
            target: target.clone(),
            options: options.clone(),
            events,
            connection,
            push,
            pace: Pace::new(Instant::now()),
            room: Room::default(),
            list_due: Instant::now(),
            has_listed: false,
            is_created: false,
            sessions: BTreeMap::new(),
            passed_over: HashSet::new(),
            traces: BTreeMap::new(),
            streams: BTreeMap::new(),
            is_metadata_pushed: false,
            has_followed: false,
            is_finished: false,
        })
    }

    /// Follows until nothing is left to be followed.
    pub(super) async fn run(&mut self, memory: &mut Memory) -> Result<(), AttachError> {
        loop {
            let is_polling = self.poll_if_due();
            if Instant::now() >= self.list_due {
                self.look_for_sessions().await?;
            }
            let mut is_progress = self.look_for_streams().await?;
            is_progress |= self.look_for_metadata(memory).await?;
            for stream in self.ready_streams() {
                is_progress |= self.advance(stream, memory).await?;
            }
            self.end_what_is_over(memory).await?;
            if self.is_finished {
                return Ok(());
            }
            self.pace.note(is_polling, is_progress, Instant::now());
            self.wait_for_changes(memory).await?;
        }
    }

    /// Tells the relay that this viewer leaves.
    pub(super) async fn leave(&mut self) -> Result<(), AttachError> {
        self.connection.settle().await?;
        while let Some((session, _)) = self.sessions.pop_first() {
            self.connection.detach(session).await?;
        }
        Ok(())
    }

    /// Everything that was announced has ended.
    pub(super) async fn end_everything(&mut self) -> Result<(), AttachError> {
        while let Some((_, stream)) = self.streams.pop_first() {
            self.say(SourceEvent::StreamEnd { stream: stream.key })
                .await?;
        }
        while let Some((_, trace)) = self.traces.pop_first() {
            self.say(SourceEvent::TraceEnd { trace: trace.key }).await?;
        }
        Ok(())
    }

    /// Passes on what has happened, once there is room for it.
    pub(super) async fn say(&self, event: SourceEvent) -> Result<(), AttachError> {
        let said = self.events.send(event).await;
        said.map_err(|_| AttachError::Unheard)
    }

    async fn notice(&self, text: impl std::fmt::Display) -> Result<(), AttachError> {
        let text = format!("{}: {text}", self.target);
        self.say(SourceEvent::Notice(text)).await
    }

    /// Whether a stream has to wait for the reader: it has enough packets that wait to be decoded, or
    /// any and its next one gets no memory. Where none waits, the reader may need the next to go on
    /// with the other streams; it is had whether or not there is memory for it.
    fn is_full(&self, stream: &Stream) -> bool {
        if stream.backlog.is_empty() {
            return false;
        }
        let next = stream.answers.front().map_or(0, Answer::missing_bytes);
        is_enough(&stream.backlog, 0, 0) || !self.options.memory.has_room(next)
    }

    fn ready_streams(&self) -> Vec<StreamId> {
        let is_ready = |(id, stream): (&StreamId, &Stream)| {
            (stream.may_have_packets && !self.is_full(stream)).then_some(*id)
        };
        self.streams.iter().filter_map(is_ready).collect()
    }

    /// Where to begin in a session that has just been found.
    fn seek(&self) -> Seek {
        if self.has_listed {
            Seek::Beginning
        } else {
            self.options.seek
        }
    }

    fn waits_for_sessions(&self) -> bool {
        self.options.follow || (self.options.missing == Missing::Wait && !self.has_followed)
    }
}

/// Whether a stream has enough packets that wait to be decoded, once so many more of so many bytes do.
fn is_enough(backlog: &Backlog, more: usize, more_bytes: usize) -> bool {
    let packets = backlog.len() + more;
    let is_much = packets >= STREAM_PACKETS && backlog.bytes() + more_bytes >= STREAM_BYTES;
    is_much || packets >= SMALL_PACKETS
}
