//! The relay's end of a viewer connection: a state machine that decodes commands, asks a [`Relay`],
//! and encodes replies.
//!
//! It guarantees what viewers rely on, whatever the relay does: a viewer sees only streams that it
//! is attached to; the watermark of a stream never decreases; a new stream is announced before the
//! watermark passes its beginning; the end of a stream or session is reported once and after
//! everything else.

mod progress;
mod push;

use std::collections::{BTreeMap, HashMap, VecDeque};

use bytes::{BufMut, BytesMut};
use wire::{Field, SessionId, StreamId, TraceId, ViewerId, split_up_to};

use crate::command::CommandHeader;
use crate::cursor::{
    IndexReply, MetadataCursor, PacketCursor, WatermarkState, failed_metadata, failed_packet,
};
use crate::error::ViewerError;
use crate::index::{IndexStatus, NEW_METADATA, NEW_STREAMS, NextIndex};
use crate::packet::{GetPacket, PacketHead};
use crate::relay::{Awaited, NewStream, Position, Relay, Session, Stream};
use crate::session::{
    AttachSession, AttachStatus, Attached, CreateStatus, DetachStatus, ListedSession, Seek,
    SessionList, TraceFormat,
};
use crate::stream::{NewStreams, NewStreamsStatus, StreamRecord};
use crate::version::{Connect, ConnectionKind, MAJOR};
use crate::{Command, CommandCode, Minor};
use push::{PushState, SessionPushState, StreamPushState};

/// Most bytes that a command may announce beyond its known fields. They are ignored.
const MAX_IGNORED_BYTES: u64 = 4096;

/// Most sessions that one connection may be attached to.
const MAX_ATTACHED: usize = 64;

/// Most streams whose packets may be requested after their end was reported: a viewer may have
/// pipelined many index requests, and requests the packets afterwards.
const MAX_ENDED: usize = 16;

/// The reply to an unknown command, before the connection is closed.
const UNKNOWN_COMMAND: u32 = 11;

pub use progress::Progress;
pub use push::Change;

type StreamOf<R> = <<R as Relay>::Session as Session>::Stream;
type MetadataOf<R> = <<R as Relay>::Session as Session>::Metadata;
type PacketOf<R> = <StreamOf<R> as Stream>::Packet;

/// One viewer's connection, from `CONNECT` on.
pub struct Connection<R: Relay> {
    /// The agreed minor version. None before CONNECT.
    minor: Option<Minor>,
    /// The viewer's id, from the last CONNECT.
    viewer: Option<ViewerId>,
    /// Whether `CREATE_VIEWER_SESSION` was received before the first `LIST_SESSIONS`. None before
    /// either.
    creates_first: Option<bool>,
    has_viewer_session: bool,
    attached: BTreeMap<SessionId, Attachment<R::Session>>,
    cursors: HashMap<StreamId, Cursor<R>>,
    /// The viewer's positions in streams whose end has been reported, oldest first.
    ended: VecDeque<(StreamId, Cursor<R>)>,
    /// The metadata stream of each trace.
    metadata_of: HashMap<TraceId, StreamId>,
    /// Records of the current reply that have not been written.
    records: VecDeque<Record>,
    /// Bytes of the current command that are still to be ignored.
    ignored: u64,
    /// The stream that a reply waits for.
    awaited: Option<StreamId>,
    /// None without a push connection.
    push: Option<PushState>,
}

struct Attachment<S> {
    session: S,
    /// Whether the viewer has been given a hint to the current new streams.
    has_hint: bool,
    pushed: SessionPushState,
}

struct Cursor<R: Relay> {
    session: SessionId,
    trace: TraceId,
    at: At<R>,
    pushed: StreamPushState,
    /// An index was sent with [`NEW_METADATA`], which Babeltrace 1 overlooks in the first index of
    /// each stream of a new trace. It lists sessions before it creates one, and has read some
    /// metadata.
    needs_metadata: bool,
}

enum At<R: Relay> {
    Packets(PacketCursor<StreamOf<R>>),
    Metadata(MetadataCursor<MetadataOf<R>>),
}

enum Record {
    Session(ListedSession),
    Stream(StreamRecord),
}

/// The kind of a new connection.
enum NewConnection {
    /// A command connection, with the reply to its CONNECT.
    Commands(Connect),
    /// The push connection of another connection.
    Push(ViewerId),
}

impl<R: Relay> Default for Connection<R> {
    fn default() -> Self {
        Self {
            minor: None,
            viewer: None,
            creates_first: None,
            has_viewer_session: false,
            attached: BTreeMap::new(),
            cursors: HashMap::new(),
            ended: VecDeque::new(),
            metadata_of: HashMap::new(),
            records: VecDeque::new(),
            ignored: 0,
            awaited: None,
            push: None,
        }
    }
}

impl<R: Relay> Connection<R> {
    /// Whether the handshake is complete.
    #[must_use]
    pub fn is_greeted(&self) -> bool {
        self.minor.is_some()
    }

    /// Id of the viewer, by which a push connection names it. None before CONNECT.
    #[must_use]
    pub fn viewer(&self) -> Option<ViewerId> {
        self.viewer
    }

    /// Whether a command is incomplete, given the rest of the input.
    #[must_use]
    pub fn in_command(&self, input: &[u8]) -> bool {
        !input.is_empty() || self.ignored > 0
    }

    /// Sessions that the viewer is attached to.
    pub fn attached(&self) -> impl Iterator<Item = SessionId> {
        self.attached.keys().copied()
    }

    /// Takes one command off the front of `input` and appends the reply, or a part of it, to
    /// `replies`. The rest of `input` must be passed again, with the bytes that follow.
    ///
    /// # Errors
    /// If the connection cannot continue: it is to be closed after `replies` are sent.
    pub fn advance(
        &mut self,
        input: &mut &[u8],
        relay: &R,
        replies: &mut BytesMut,
    ) -> Result<Progress<PacketOf<R>>, ViewerError> {
        if let Some(record) = self.records.pop_front() {
            match record {
                Record::Session(session) => session.write(self.minor(), replies),
                Record::Stream(stream) => stream.write(replies),
            }
            return Ok(Progress::Advanced);
        }
        if self.ignored > 0 {
            return Ok(match split_up_to(input, &mut self.ignored) {
                [] => Progress::NeedsMore,
                _ => Progress::Advanced,
            });
        }
        let before = *input;
        let Some(command) = self.read_command(input, replies)? else {
            return Ok(Progress::NeedsMore);
        };
        self.end_wait();
        // A viewer that sends several commands at once is not kept waiting.
        if let Command::GetNextIndex(stream) = command
            && input.is_empty()
            && self.ignored == 0
            && self.begin_wait(stream)
        {
            *input = before;
            return Ok(Progress::PacketArriving);
        }
        if let Some(awaited) = Awaited::by(&command).filter(|it| relay.must_await(*it)) {
            *input = before;
            return Ok(Progress::Awaits(awaited));
        }
        self.handle_command(command, relay, replies)
    }

    /// Whether the reply to `GET_NEXT_INDEX` is to wait. A viewer with a push connection is
    /// notified instead.
    fn begin_wait(&mut self, id: StreamId) -> bool {
        if self.push.is_some() {
            return false;
        }
        let waits = match self.cursors.get_mut(&id).map(|cursor| &mut cursor.at) {
            Some(At::Packets(packets)) => packets.begin_wait(),
            _ => false,
        };
        self.awaited = waits.then_some(id);
        waits
    }

    fn end_wait(&mut self) {
        let Some(id) = self.awaited.take() else {
            return;
        };
        // A push connection that was opened meanwhile keeps the subscription.
        if self.push.is_none()
            && let Some(cursor) = self.cursors.get_mut(&id)
        {
            cursor.at.set_subscribed(false);
        }
    }

    fn minor(&self) -> Minor {
        self.minor.unwrap_or(Minor(0))
    }

    fn read_command(
        &mut self,
        input: &mut &[u8],
        replies: &mut BytesMut,
    ) -> Result<Option<Command>, ViewerError> {
        let mut at = *input;
        let Ok(header) = CommandHeader::read(&mut at) else {
            return Ok(None);
        };
        let Ok(command) = CommandCode::from_code(header.code) else {
            replies.put_u32(UNKNOWN_COMMAND);
            return Err(ViewerError::UnknownCommand { code: header.code });
        };
        if self.minor.is_none() && command != CommandCode::Connect {
            let why = "CONNECT must come first";
            return Err(ViewerError::OutOfPlace { command, why });
        }
        let expected = command.size() as u64;
        let ignored = match header.data_size {
            // The first viewers sent the size in the byte order of their host.
            size if size == expected || size == expected.swap_bytes() => 0,
            size if size > expected && size <= MAX_IGNORED_BYTES => size - expected,
            // The reference has never looked at the size of a command without payload.
            _ if expected == 0 => 0,
            announced => return Err(ViewerError::Size { command, announced }),
        };
        let Some((payload, rest)) = at.split_at_checked(command.size()) else {
            return Ok(None);
        };
        *input = rest;
        self.ignored = ignored;
        let command = Command::decode(command, payload)
            .map_err(|source| ViewerError::Malformed { command, source })?;
        Ok(Some(command))
    }

    fn handle_command(
        &mut self,
        command: Command,
        relay: &R,
        replies: &mut BytesMut,
    ) -> Result<Progress<PacketOf<R>>, ViewerError> {
        match command {
            Command::Connect(hello) => match self.connect(&hello, relay)? {
                NewConnection::Commands(ours) => ours.write(replies),
                NewConnection::Push(viewer) => return Ok(Progress::Push(viewer)),
            },
            Command::ListSessions => {
                self.creates_first.get_or_insert(false);
                self.list_sessions(relay).write(replies);
            }
            Command::CreateViewerSession => {
                self.creates_first.get_or_insert(true);
                self.has_viewer_session = true;
                CreateStatus::Ok.write(replies);
            }
            Command::AttachSession(attach) => self.attach(&attach, relay).write(replies),
            Command::GetNewStreams(session) => self.new_streams(session).write(replies),
            Command::GetMetadata(stream) => {
                self.write_metadata(stream, replies);
                self.queue_stream(stream);
            }
            Command::GetNextIndex(stream) => {
                self.next_index(stream).write(replies);
                self.queue_stream(stream);
            }
            Command::GetPacket(ask) => {
                let (head, packet) = self.packet(&ask);
                head.write(replies);
                if let Some(packet) = packet {
                    return Ok(Progress::Packet(packet));
                }
            }
            Command::DetachSession(session) => self.detach(session, relay).write(replies),
        }
        Ok(Progress::Advanced)
    }

    fn connect(&mut self, hello: &Connect, relay: &R) -> Result<NewConnection, ViewerError> {
        let command = CommandCode::Connect;
        if hello.major != MAJOR {
            return Err(ViewerError::Incompatible { major: hello.major });
        }
        let kind = ConnectionKind::from_code(hello.kind)
            .map_err(|source| ViewerError::Malformed { command, source })?;
        if kind == ConnectionKind::Notification {
            let why = "a push connection must name a command connection, and have no other command";
            return match hello.viewer {
                Some(viewer) if self.minor.is_none() => Ok(NewConnection::Push(viewer)),
                _ => Err(ViewerError::OutOfPlace { command, why }),
            };
        }
        self.minor = Some(Minor(hello.minor).common(Minor::OURS));
        self.viewer = Some(relay.next_viewer());
        Ok(NewConnection::Commands(Connect {
            viewer: self.viewer,
            major: MAJOR,
            minor: Minor::OURS.0,
            kind: 0,
        }))
    }

    fn list_sessions(&mut self, relay: &R) -> SessionList {
        let mut sessions = relay.sessions();
        if !self.minor().names_trace_format() {
            sessions.retain(|session| session.trace_format == TraceFormat::Ctf1);
        }
        let count = record_count(sessions.len());
        self.records
            .extend(sessions.into_iter().map(Record::Session));
        SessionList { count }
    }

    /// Attaches to a session. Checks everything before it changes any state.
    fn attach(&mut self, attach: &AttachSession, relay: &R) -> Attached {
        let rejected = |status| Attached { status, count: 0 };
        if !self.has_viewer_session {
            return rejected(AttachStatus::NoViewerSession);
        }
        let Some(facts) = relay.find(attach.session) else {
            return rejected(AttachStatus::Unknown);
        };
        if !facts.is_live {
            return rejected(AttachStatus::NotLive);
        }
        if facts.trace_format == TraceFormat::Ctf2 && !self.minor().names_trace_format() {
            return rejected(AttachStatus::Unknown);
        }
        let Ok(seek) = Seek::from_code(attach.seek) else {
            return rejected(AttachStatus::SeekError);
        };
        if self.attached.contains_key(&attach.session) {
            return rejected(AttachStatus::Already);
        }
        if self.attached.len() >= MAX_ATTACHED {
            return rejected(AttachStatus::Unknown);
        }
        let Some(mut session) = relay.attach(attach.session, seek) else {
            return rejected(AttachStatus::Unknown);
        };
        if self.push.is_some() {
            session.set_subscribed(true);
        }
        self.attached.insert(
            attach.session,
            Attachment {
                session,
                has_hint: false,
                pushed: SessionPushState::default(),
            },
        );
        Attached {
            status: AttachStatus::Ok,
            count: self.announce_streams(attach.session),
        }
    }

    fn new_streams(&mut self, session: SessionId) -> NewStreams {
        let reply = |status, count| NewStreams { status, count };
        let Some(attachment) = self.attached.get(&session) else {
            return reply(NewStreamsStatus::Failed, 0);
        };
        if attachment.session.is_rotating() {
            return reply(NewStreamsStatus::NoNew, 0);
        }
        // Asked before looking for streams: none is published after the end.
        let is_over = attachment.session.is_over();
        let count = self.announce_streams(session);
        // Some viewers abandon unread packets when the end of the session is reported.
        let mut cursors = self.cursors.values();
        let mut has_more = || cursors.any(|cursor| cursor.session == session && cursor.has_more());
        if count == 0 && is_over && !has_more() {
            if let Some(attachment) = self.attached.get_mut(&session) {
                attachment.session.leave();
            }
            return reply(NewStreamsStatus::HungUp, 0);
        }
        reply(NewStreamsStatus::Ok, count)
    }

    /// Queues the records of a session's new streams after the reply, and returns their number.
    fn announce_streams(&mut self, id: SessionId) -> u32 {
        let Some(attachment) = self.attached.get_mut(&id) else {
            return 0;
        };
        if attachment.session.is_rotating() {
            return 0;
        }
        attachment.has_hint = false;
        attachment.pushed.has_new_streams = false;
        let new = attachment.session.new_streams();
        let count = record_count(new.len());
        for NewStream { record, position } in new {
            let (stream, trace) = (record.stream, record.trace);
            let mut at = match position {
                Position::Packets(stream) => At::Packets(PacketCursor::new(stream)),
                Position::Metadata(metadata) => {
                    self.metadata_of.insert(trace, stream);
                    At::Metadata(MetadataCursor::new(metadata))
                }
            };
            if self.push.is_some() {
                at.set_subscribed(true);
            }
            self.cursors.insert(
                stream,
                Cursor {
                    session: id,
                    trace,
                    at,
                    pushed: StreamPushState::default(),
                    needs_metadata: false,
                },
            );
            self.records.push_back(Record::Stream(record));
            self.queue_stream(stream);
        }
        count
    }

    fn write_metadata(&mut self, stream: StreamId, replies: &mut BytesMut) {
        match self.cursors.get_mut(&stream) {
            Some(cursor) => cursor.write_metadata(replies),
            None => failed_metadata().write(replies),
        }
    }

    fn next_index(&mut self, id: StreamId) -> NextIndex {
        let Self {
            attached,
            cursors,
            ended,
            creates_first,
            ..
        } = self;
        let failed = NextIndex::without_packet(IndexStatus::Failed, 0);
        let Some(cursor) = cursors.get_mut(&id) else {
            return failed;
        };
        let Some(own) = attached.get(&cursor.session) else {
            return failed;
        };
        let (session, trace) = (cursor.session, cursor.trace);
        let reply = match &mut cursor.at {
            At::Metadata(_) => IndexReply::Index(NextIndex::without_packet(IndexStatus::HungUp, 0)),
            At::Packets(_) if own.session.is_rotating() => {
                IndexReply::Index(NextIndex::without_packet(IndexStatus::Retry, 0))
            }
            At::Packets(packets) => packets.next_index(|| {
                let hint = !own.has_hint && *creates_first == Some(true);
                if has_new_streams(attached) {
                    WatermarkState::Held { hint }
                } else {
                    WatermarkState::Advancing
                }
            }),
        };
        if matches!(reply, IndexReply::Index(index) if index.status != IndexStatus::Ready) {
            cursor.pushed.push_packets_again();
        }
        let streams_flag = if has_new_streams(attached) {
            NEW_STREAMS
        } else {
            0
        };
        let mut index = match reply {
            IndexReply::Index(index) => index,
            IndexReply::Hint(index) => {
                if let Some(own) = attached.get_mut(&session) {
                    own.has_hint = true;
                }
                index
            }
            IndexReply::Over => {
                if ended.len() >= MAX_ENDED {
                    ended.pop_front();
                }
                if let Some((id, mut cursor)) = cursors.remove_entry(&id) {
                    cursor.at.set_subscribed(false);
                    ended.push_back((id, cursor));
                }
                NextIndex::without_packet(IndexStatus::HungUp, 0)
            }
        };
        index.flags = streams_flag;
        // Asked after the index has been chosen: metadata is received before the index that needs
        // it.
        if let Some(metadata) = self.new_metadata(trace) {
            index.flags |= NEW_METADATA;
            let is_overlooked = metadata.is_read() && self.creates_first == Some(false);
            if let Some(cursor) = self.cursors.get_mut(&id) {
                cursor.needs_metadata = is_overlooked;
            }
        }
        index
    }

    /// The metadata of a trace, if there is some that the viewer has not been sent.
    fn new_metadata(&self, trace: TraceId) -> Option<&MetadataCursor<MetadataOf<R>>> {
        let cursor = self.cursors.get(self.metadata_of.get(&trace)?)?;
        match &cursor.at {
            At::Metadata(metadata) => Some(metadata).filter(|metadata| metadata.has_unread()),
            At::Packets(_) => None,
        }
    }

    fn packet(&mut self, ask: &GetPacket) -> (PacketHead, Option<PacketOf<R>>) {
        if self.must_fetch_metadata(ask.stream) {
            return (failed_packet(NEW_METADATA), None);
        }
        let is_it = |(id, _): &&(StreamId, _)| *id == ask.stream;
        let ended = || Some(&self.ended.iter().find(is_it)?.1);
        match self.cursors.get(&ask.stream).or_else(ended) {
            Some(Cursor {
                at: At::Packets(packets),
                ..
            }) => packets.packet(ask),
            _ => (failed_packet(0), None),
        }
    }

    /// Whether the viewer is told, once for each index, to fetch metadata before the packet.
    fn must_fetch_metadata(&mut self, id: StreamId) -> bool {
        let cursor = self.cursors.get_mut(&id);
        let needs = cursor.map(|cursor| (cursor.trace, std::mem::take(&mut cursor.needs_metadata)));
        matches!(needs, Some((trace, true)) if self.new_metadata(trace).is_some())
    }

    fn detach(&mut self, session: SessionId, relay: &R) -> DetachStatus {
        if let Some(mut attachment) = self.attached.remove(&session) {
            attachment.session.leave();
            self.cursors.retain(|_, cursor| cursor.session != session);
            self.ended.retain(|(_, cursor)| cursor.session != session);
            self.metadata_of
                .retain(|_, stream| self.cursors.contains_key(stream));
            DetachStatus::Ok
        } else if relay.find(session).is_some() {
            DetachStatus::NotAttached
        } else {
            DetachStatus::Unknown
        }
    }
}

/// Whether any of the sessions has streams that have not been announced to the viewer. All are
/// asked: events of all sessions are shown in one order of time.
fn has_new_streams<S: Session>(attached: &BTreeMap<SessionId, Attachment<S>>) -> bool {
    let mut attached = attached.values();
    attached.any(|attachment| attachment.session.has_new_streams())
}

/// The count of a reply.
fn record_count(records: usize) -> u32 {
    u32::try_from(records).expect("a relay has less than 2^32 streams")
}
