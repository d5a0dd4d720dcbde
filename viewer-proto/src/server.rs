//! The relay's end of a viewer's connection: takes bytes, asks a [`Relay`], gives replies.
//!
//! Here stands what viewers rely on whatever the relay does: they see only streams they are
//! attached to, time in a stream never goes back, a new stream is announced before time moves past
//! its beginning, an end comes once and after everything else.

mod push;

use std::collections::{BTreeMap, HashMap, VecDeque};

use bytes::{BufMut, BytesMut};
use wire::{Field, SessionId, StreamId, TraceId, ViewerId};

use crate::command::CommandHeader;
use crate::cursor::{MetadataCursor, PacketCursor, Time, Told, no_metadata};
use crate::error::ViewerError;
use crate::index::{IndexStatus, NEW_METADATA, NEW_STREAMS, NextIndex};
use crate::packet::{GetPacket, PacketHead, PacketStatus};
use crate::relay::{NewStream, Position, Relay, Session, Stream};
use crate::session::{
    AttachSession, AttachStatus, Attached, CreateStatus, DetachStatus, ListedSession, Seek,
    SessionList, TraceFormat,
};
use crate::stream::{NewStreams, NewStreamsStatus, StreamRecord};
use crate::version::{Connect, ConnectionKind, MAJOR};
use crate::{Command, CommandCode, Minor};
use push::{Push, Pushed, PushedSession};

/// Most bytes that a command may announce beyond what is known of it. They are ignored.
const MAX_IGNORED: u64 = 4096;

/// Most sessions that one connection may be attached to.
const MAX_ATTACHED: usize = 64;

/// Most streams of which packets may be asked for after their end was told: a viewer may have asked
/// for many indexes at once, and comes to their packets then.
const MAX_ENDED: usize = 16;

/// What a command that is not known is answered before the connection ends.
const UNKNOWN_COMMAND: u32 = 11;

pub use push::Change;

type StreamOf<R> = <<R as Relay>::Session as Session>::Stream;
type MetadataOf<R> = <<R as Relay>::Session as Session>::Metadata;
type PacketOf<R> = <StreamOf<R> as Stream>::Packet;

/// What a call to [`Connection::advance`] has come to.
#[derive(Debug)]
pub enum Progress<P> {
    /// Something was done; there may be more to do, even without further input.
    Advanced,
    /// The replies so far end in the head of a packet: send these bytes of it before anything else.
    Packet(P),
    /// This is a push connection, and has had its only command. If there is a command connection of
    /// this number, which is nothing to be guessed, it [`subscribe`](Connection::subscribe)s from now on;
    /// if not, the viewer is hung up on.
    Push(ViewerId),
    /// More bytes must come first.
    NeedsMore,
}

/// One viewer's connection, from `CONNECT` on.
pub struct Connection<R: Relay> {
    minor: Option<Minor>,
    /// The number that it was given last.
    viewer: Option<ViewerId>,
    /// Whether `CREATE_VIEWER_SESSION` came before the first `LIST_SESSIONS`, if either came.
    creates_first: Option<bool>,
    created: bool,
    attached: BTreeMap<SessionId, Attachment<R::Session>>,
    cursors: HashMap<StreamId, Cursor<R>>,
    /// Where the viewer was in streams whose end it has been told, oldest first.
    ended: VecDeque<(StreamId, Cursor<R>)>,
    /// The metadata stream of each trace.
    metadata_of: HashMap<TraceId, StreamId>,
    /// Records of a reply that are still to be written.
    records: VecDeque<Record>,
    /// Bytes at the end of a command that are not known here.
    ignored: u64,
    /// What is new, if there is a push connection.
    push: Option<Push>,
}

struct Attachment<S> {
    session: S,
    /// Whether the viewer has been given a hint to the streams that are new now.
    hinted: bool,
    pushed: PushedSession,
}

struct Cursor<R: Relay> {
    session: SessionId,
    trace: TraceId,
    at: At<R>,
    pushed: Pushed,
}

enum At<R: Relay> {
    Packets(PacketCursor<StreamOf<R>>),
    Metadata(MetadataCursor<MetadataOf<R>>),
}

enum Record {
    Session(ListedSession),
    Stream(StreamRecord),
}

/// What becomes of a connection.
enum Welcome {
    /// It is answered, and commands follow.
    Commands(Connect),
    /// It is another connection's.
    Push(ViewerId),
}

impl<R: Relay> Default for Connection<R> {
    fn default() -> Self {
        Self {
            minor: None,
            viewer: None,
            creates_first: None,
            created: false,
            attached: BTreeMap::new(),
            cursors: HashMap::new(),
            ended: VecDeque::new(),
            metadata_of: HashMap::new(),
            records: VecDeque::new(),
            ignored: 0,
            push: None,
        }
    }
}

impl<R: Relay> Connection<R> {
    /// Whether the viewer has introduced itself.
    #[must_use]
    pub fn is_greeted(&self) -> bool {
        self.minor.is_some()
    }

    /// The number that the viewer has been given, by which a push connection may name it.
    #[must_use]
    pub fn viewer(&self) -> Option<ViewerId> {
        self.viewer
    }

    /// Whether a command has begun and not ended, given what is left of the input.
    #[must_use]
    pub fn in_command(&self, input: &[u8]) -> bool {
        !input.is_empty() || self.ignored > 0
    }

    /// Sessions that the viewer is attached to.
    pub fn attached(&self) -> impl Iterator<Item = SessionId> {
        self.attached.keys().copied()
    }

    /// Takes one command off the front of `input` and appends the reply, or some of it, to
    /// `replies`. What is left of `input` must be shown again with what follows.
    ///
    /// # Errors
    /// If the connection cannot go on: it is to be closed after what is in `replies` is sent.
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
            let here = usize::try_from(self.ignored)
                .unwrap_or(usize::MAX)
                .min(input.len());
            if here == 0 {
                return Ok(Progress::NeedsMore);
            }
            *input = input.split_at(here).1;
            self.ignored -= here as u64;
            return Ok(Progress::Advanced);
        }
        let Some(command) = self.read(input, replies)? else {
            return Ok(Progress::NeedsMore);
        };
        self.answer(command, relay, replies)
    }

    fn minor(&self) -> Minor {
        self.minor.unwrap_or(Minor(0))
    }

    fn read(
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
            return Err(ViewerError::OutOfPlace {
                command,
                why: "CONNECT must come first",
            });
        }
        let expected = command.size() as u64;
        let ignored = match header.data_size {
            // The first viewers sent the size in the byte order of their host.
            size if size == expected || size == expected.swap_bytes() => 0,
            size if size > expected && size <= MAX_IGNORED => size - expected,
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

    fn answer(
        &mut self,
        command: Command,
        relay: &R,
        replies: &mut BytesMut,
    ) -> Result<Progress<PacketOf<R>>, ViewerError> {
        match command {
            Command::Connect(hello) => match self.connect(&hello, relay)? {
                Welcome::Commands(ours) => ours.write(replies),
                Welcome::Push(viewer) => return Ok(Progress::Push(viewer)),
            },
            Command::ListSessions => {
                self.creates_first.get_or_insert(false);
                self.list(relay).write(replies);
            }
            Command::CreateViewerSession => {
                self.creates_first.get_or_insert(true);
                self.created = true;
                CreateStatus::Ok.write(replies);
            }
            Command::AttachSession(attach) => self.attach(&attach, relay).write(replies),
            Command::GetNewStreams(session) => self.new_streams(session).write(replies),
            Command::GetMetadata(stream) => {
                self.metadata(stream, replies);
                self.look_at(stream);
            }
            Command::GetNextIndex(stream) => {
                self.next_index(stream).write(replies);
                self.look_at(stream);
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

    fn connect(&mut self, hello: &Connect, relay: &R) -> Result<Welcome, ViewerError> {
        let command = CommandCode::Connect;
        if hello.major != MAJOR {
            return Err(ViewerError::Incompatible { major: hello.major });
        }
        let kind = ConnectionKind::from_code(hello.kind)
            .map_err(|source| ViewerError::Malformed { command, source })?;
        if kind == ConnectionKind::Notification {
            let why = "a push connection names a command connection, and is none";
            return match hello.viewer {
                Some(viewer) if self.minor.is_none() => Ok(Welcome::Push(viewer)),
                _ => Err(ViewerError::OutOfPlace { command, why }),
            };
        }
        self.minor = Some(Minor(hello.minor).common(Minor::OURS));
        self.viewer = Some(relay.next_viewer());
        Ok(Welcome::Commands(Connect {
            viewer: self.viewer,
            major: MAJOR,
            minor: Minor::OURS.0,
            kind: 0,
        }))
    }

    fn list(&mut self, relay: &R) -> SessionList {
        let mut sessions = relay.sessions();
        if !self.minor().names_trace_format() {
            sessions.retain(|session| session.trace_format == TraceFormat::Ctf1);
        }
        let count = count(sessions.len());
        self.records
            .extend(sessions.into_iter().map(Record::Session));
        SessionList { count }
    }

    /// Checks everything before it changes anything.
    fn attach(&mut self, attach: &AttachSession, relay: &R) -> Attached {
        let refused = |status| Attached { status, count: 0 };
        if !self.created {
            return refused(AttachStatus::NoViewerSession);
        }
        let Some(facts) = relay.find(attach.session) else {
            return refused(AttachStatus::Unknown);
        };
        if !facts.is_live {
            return refused(AttachStatus::NotLive);
        }
        if facts.trace_format == TraceFormat::Ctf2 && !self.minor().names_trace_format() {
            return refused(AttachStatus::Unknown);
        }
        let Ok(seek) = Seek::from_code(attach.seek) else {
            return refused(AttachStatus::SeekError);
        };
        if self.attached.contains_key(&attach.session) {
            return refused(AttachStatus::Already);
        }
        if self.attached.len() >= MAX_ATTACHED {
            return refused(AttachStatus::Unknown);
        }
        let Some(mut session) = relay.attach(attach.session, seek) else {
            return refused(AttachStatus::Unknown);
        };
        if self.push.is_some() {
            session.set_subscribed(true);
        }
        self.attached.insert(
            attach.session,
            Attachment {
                session,
                hinted: false,
                pushed: PushedSession::default(),
            },
        );
        Attached {
            status: AttachStatus::Ok,
            count: self.announce(attach.session),
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
        let count = self.announce(session);
        // Some viewers abandon what they have not read when they hear of the end.
        let drained = || {
            !self
                .cursors
                .values()
                .any(|cursor| cursor.session == session && cursor.has_more())
        };
        if count == 0 && is_over && drained() {
            return reply(NewStreamsStatus::HungUp, 0);
        }
        reply(NewStreamsStatus::Ok, count)
    }

    /// Puts the records of a session's new streams behind the reply and gives their number.
    fn announce(&mut self, id: SessionId) -> u32 {
        let Some(attachment) = self.attached.get_mut(&id) else {
            return 0;
        };
        if attachment.session.is_rotating() {
            return 0;
        }
        attachment.hinted = false;
        attachment.pushed.streams = false;
        let new = attachment.session.new_streams();
        let count = count(new.len());
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
                    pushed: Pushed::default(),
                },
            );
            self.records.push_back(Record::Stream(record));
            self.look_at(stream);
        }
        count
    }

    fn metadata(&mut self, stream: StreamId, replies: &mut BytesMut) {
        match self.cursors.get_mut(&stream) {
            Some(
                cursor @ Cursor {
                    at: At::Metadata(_),
                    ..
                },
            ) => cursor.next_metadata(replies),
            _ => no_metadata().write(replies),
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
        let failed = NextIndex::bare(IndexStatus::Failed, 0);
        let Some(cursor) = cursors.get_mut(&id) else {
            return failed;
        };
        let Some(own) = attached.get(&cursor.session) else {
            return failed;
        };
        let (session, trace) = (cursor.session, cursor.trace);
        let has_new_streams = || {
            attached
                .values()
                .any(|other| other.session.has_new_streams())
        };
        let told = match &mut cursor.at {
            At::Metadata(_) => Told::Index(NextIndex::bare(IndexStatus::HungUp, 0)),
            At::Packets(_) if own.session.is_rotating() => {
                Told::Index(NextIndex::bare(IndexStatus::Retry, 0))
            }
            At::Packets(packets) => packets.next(|| {
                let hint = !own.hinted && *creates_first == Some(true);
                if has_new_streams() {
                    Time::Stands { hint }
                } else {
                    Time::Flows
                }
            }),
        };
        if matches!(told, Told::Index(index) if index.status != IndexStatus::Ready) {
            cursor.pushed.announce_packets_again();
        }
        let streams_flag = if has_new_streams() { NEW_STREAMS } else { 0 };
        let mut index = match told {
            Told::Index(index) => index,
            Told::Hint(index) => {
                if let Some(own) = attached.get_mut(&session) {
                    own.hinted = true;
                }
                index
            }
            Told::Over => {
                if ended.len() >= MAX_ENDED {
                    ended.pop_front();
                }
                if let Some((id, mut cursor)) = cursors.remove_entry(&id) {
                    cursor.at.set_subscribed(false);
                    ended.push_back((id, cursor));
                }
                NextIndex::bare(IndexStatus::HungUp, 0)
            }
        };
        index.flags = streams_flag;
        // After the index has been chosen: metadata is received before the index that needs it.
        if self.has_new_metadata(trace) {
            index.flags |= NEW_METADATA;
        }
        index
    }

    fn has_new_metadata(&self, trace: TraceId) -> bool {
        let cursor = self
            .metadata_of
            .get(&trace)
            .and_then(|stream| self.cursors.get(stream));
        match cursor.map(|cursor| &cursor.at) {
            Some(At::Metadata(metadata)) => metadata.has_unread(),
            _ => false,
        }
    }

    fn packet(&self, ask: &GetPacket) -> (PacketHead, Option<PacketOf<R>>) {
        let is_it = |(id, _): &&(StreamId, _)| *id == ask.stream;
        let ended = || Some(&self.ended.iter().find(is_it)?.1);
        match self.cursors.get(&ask.stream).or_else(ended) {
            Some(Cursor {
                at: At::Packets(packets),
                ..
            }) => packets.packet(ask),
            _ => (
                PacketHead {
                    status: PacketStatus::Failed,
                    len: 0,
                    flags: 0,
                },
                None,
            ),
        }
    }

    fn detach(&mut self, session: SessionId, relay: &R) -> DetachStatus {
        if self.attached.remove(&session).is_some() {
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

fn count(records: usize) -> u32 {
    u32::try_from(records).expect("a relay has less than 2^32 streams")
}
