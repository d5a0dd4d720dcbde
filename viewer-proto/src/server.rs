//! The relay's end of a viewer's connection: takes bytes, asks a [`Relay`], gives replies.
//!
//! Here stands what viewers rely on whatever the relay does: they see only streams they are
//! attached to, time in a stream never goes back, a new stream is announced before time moves past
//! its beginning, an end comes once and after everything else.

use std::collections::{BTreeMap, HashMap, VecDeque};

use bytes::{BufMut, BytesMut};
use thiserror::Error;
use wire::{ClassId, DecodeError, Field, SessionId, StreamId, Timestamp, TraceId};

use crate::command::CommandHeader;
use crate::index::{IndexStatus, NEW_METADATA, NEW_STREAMS, NextIndex};
use crate::metadata::{MetadataHead, MetadataStatus};
use crate::packet::{GetPacket, PacketHead, PacketStatus};
use crate::relay::{Metadata, Next, Position, Relay, Session, Stream};
use crate::session::{
    AttachSession, AttachStatus, Attached, CreateStatus, DetachStatus, ListedSession, Seek,
    SessionList, TraceFormat,
};
use crate::stream::{NewStreams, NewStreamsStatus, StreamRecord};
use crate::version::{Connect, ConnectionKind, MAJOR};
use crate::{Command, CommandCode, Minor};

/// Most bytes that a command may announce beyond what is known of it. They are ignored.
const MOST_IGNORED: u64 = 4096;

/// Most sessions that one connection may be attached to.
const MOST_ATTACHED: usize = 64;

/// What a command that is not known is answered before the connection ends.
const UNKNOWN_COMMAND: u32 = 11;

type StreamOf<R> = <<R as Relay>::Session as Session>::Stream;
type MetadataOf<R> = <<R as Relay>::Session as Session>::Metadata;
type PacketOf<R> = <StreamOf<R> as Stream>::Packet;

/// Why a viewer's connection cannot go on.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ViewerError {
    /// The viewer speaks another major version.
    #[error("the viewer speaks protocol {major}, not {MAJOR}")]
    Incompatible {
        /// What it speaks.
        major: u32,
    },
    /// A command that is not in the table.
    #[error("unknown command {code}")]
    UnknownCommand {
        /// Its number.
        code: u32,
    },
    /// A command that makes no sense yet.
    #[error("{command:?} out of place: {why}")]
    OutOfPlace {
        /// The command.
        command: CommandCode,
        /// What should have been.
        why: &'static str,
    },
    /// A command of the wrong size.
    #[error("{command:?} announces {announced} bytes instead of {}", command.size())]
    Size {
        /// The command.
        command: CommandCode,
        /// What it announces.
        announced: u64,
    },
    /// A command that cannot be read.
    #[error("malformed {command:?}: {source}")]
    Malformed {
        /// The command.
        command: CommandCode,
        /// What is wrong with it.
        source: DecodeError,
    },
}

/// What a call to [`Connection::advance`] has come to.
#[derive(Debug)]
pub enum Progress<P> {
    /// Something was done; there may be more to do, even without further input.
    Advanced,
    /// The replies so far end in the head of a packet: send these bytes of it before anything else.
    Packet(P),
    /// More bytes must come first.
    NeedsMore,
}

/// One viewer's connection, from `CONNECT` on.
pub struct Connection<R: Relay> {
    minor: Option<Minor>,
    /// Whether `CREATE_VIEWER_SESSION` came before the first `LIST_SESSIONS`, if either came.
    creates_first: Option<bool>,
    created: bool,
    attached: BTreeMap<SessionId, Attachment<R::Session>>,
    cursors: HashMap<StreamId, Cursor<R>>,
    /// Records of a reply that are still to be written.
    records: VecDeque<Record>,
    /// Bytes at the end of a command that are not known here.
    ignored: u64,
}

struct Attachment<S> {
    session: S,
    /// Whether the viewer has been given a hint to the streams that are new now.
    hinted: bool,
}

struct Cursor<R: Relay> {
    session: SessionId,
    trace: TraceId,
    at: At<R>,
}

/// [`Position`] and what the viewer has been told at it.
enum At<R: Relay> {
    Packets {
        stream: StreamOf<R>,
        /// No event from before this will come: the viewer has been told.
        promised: Timestamp,
        /// The promise was made by a beacon, so that it can be repeated.
        inactive: bool,
    },
    Metadata {
        metadata: MetadataOf<R>,
        /// The viewer knows that it has everything of a stream that has ended.
        told_end: bool,
    },
}

enum Record {
    Session(ListedSession),
    Stream(StreamRecord),
}

impl<R: Relay> Default for Connection<R> {
    fn default() -> Self {
        Self {
            minor: None,
            creates_first: None,
            created: false,
            attached: BTreeMap::new(),
            cursors: HashMap::new(),
            records: VecDeque::new(),
            ignored: 0,
        }
    }
}

impl<R: Relay> Connection<R> {
    /// Whether the viewer has introduced itself.
    #[must_use]
    pub fn is_greeted(&self) -> bool {
        self.minor.is_some()
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
            size if size > expected && size <= MOST_IGNORED => size - expected,
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
            Command::Connect(hello) => self.connect(&hello, relay)?.write(replies),
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
            Command::GetMetadata(stream) => self.metadata(stream, replies),
            Command::GetNextIndex(stream) => self.next_index(stream).write(replies),
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

    fn connect(&mut self, hello: &Connect, relay: &R) -> Result<Connect, ViewerError> {
        let command = CommandCode::Connect;
        if hello.major != MAJOR {
            return Err(ViewerError::Incompatible { major: hello.major });
        }
        let kind = ConnectionKind::from_code(hello.kind)
            .map_err(|source| ViewerError::Malformed { command, source })?;
        if kind == ConnectionKind::Notification {
            return Err(ViewerError::OutOfPlace {
                command,
                why: "nothing is notified",
            });
        }
        self.minor = Some(Minor(hello.minor).common(Minor::OURS));
        Ok(Connect {
            viewer: Some(relay.next_viewer()),
            major: MAJOR,
            minor: Minor::OURS.0,
            kind: 0,
        })
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
        if self.attached.len() >= MOST_ATTACHED {
            return refused(AttachStatus::Unknown);
        }
        let Some(session) = relay.attach(attach.session, seek) else {
            return refused(AttachStatus::Unknown);
        };
        self.attached.insert(
            attach.session,
            Attachment {
                session,
                hinted: false,
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
                .any(|cursor| cursor.session == session && matches!(cursor.at, At::Packets { .. }))
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
        let new = attachment.session.new_streams();
        let count = count(new.len());
        for stream in new {
            let at = match stream.position {
                Position::Packets(stream) => At::Packets {
                    stream,
                    promised: Timestamp(0),
                    inactive: false,
                },
                Position::Metadata(metadata) => At::Metadata {
                    metadata,
                    told_end: false,
                },
            };
            let cursor = Cursor {
                session: id,
                trace: stream.record.trace,
                at,
            };
            self.cursors.insert(stream.record.stream, cursor);
            self.records.push_back(Record::Stream(stream.record));
        }
        count
    }

    fn metadata(&mut self, stream: StreamId, replies: &mut BytesMut) {
        let head = |status, len| MetadataHead { len, status };
        let Some(Cursor {
            at: At::Metadata { metadata, told_end },
            ..
        }) = self.cursors.get_mut(&stream)
        else {
            return head(MetadataStatus::Failed, 0).write(replies);
        };
        // Asked before looking for metadata: none comes after the end.
        let is_over = metadata.is_over();
        if !metadata.has_unread() {
            // At the end "none now" comes before "none ever": viewers take the latter for an
            // error while they still wait for some.
            let status = if is_over && std::mem::replace(told_end, is_over) {
                MetadataStatus::Failed
            } else {
                MetadataStatus::NoNew
            };
            return head(status, 0).write(replies);
        }
        // The length is announced after the bytes have been read: a promise that cannot be kept
        // would cost the connection its rhythm.
        let start = replies.len();
        head(MetadataStatus::Ok, 0).write(replies);
        let body = replies.len();
        let read = metadata.read(replies);
        let len = replies.len() - body;
        let announced = if read.is_ok() && len > 0 {
            head(MetadataStatus::Ok, len as u64)
        } else {
            replies.truncate(body);
            head(MetadataStatus::Failed, 0)
        };
        if let Some(mut place) = replies.get_mut(start..body) {
            announced.write(&mut place);
        }
    }

    fn next_index(&mut self, id: StreamId) -> NextIndex {
        let new_streams = self
            .attached
            .values()
            .any(|attached| attached.session.has_new_streams());
        let failed = NextIndex::bare(IndexStatus::Failed, 0);
        let Some(cursor) = self.cursors.get_mut(&id) else {
            return failed;
        };
        let Some(attachment) = self.attached.get_mut(&cursor.session) else {
            return failed;
        };
        let streams_flag = if new_streams { NEW_STREAMS } else { 0 };
        let trace = cursor.trace;
        let At::Packets {
            stream,
            promised,
            inactive,
        } = &mut cursor.at
        else {
            return NextIndex::bare(IndexStatus::HungUp, streams_flag);
        };
        if attachment.session.is_rotating() {
            return NextIndex::bare(IndexStatus::Retry, streams_flag);
        }
        let mut reply = match stream.next() {
            Next::Packet { offset, index } => {
                *promised = index.end.max(*promised);
                *inactive = false;
                let mut reply = NextIndex::bare(IndexStatus::Ready, 0);
                reply.offset = offset;
                reply.packet = index.into();
                reply
            }
            Next::Over => {
                self.cursors.remove(&id);
                NextIndex::bare(IndexStatus::HungUp, 0)
            }
            Next::Quiet { until } => {
                let class = stream.class();
                if new_streams {
                    // The streams that are waiting may begin before the beacon: time must not move
                    // on until the viewer has them.
                    let hint = !attachment.hinted && self.creates_first == Some(true);
                    match class {
                        Some(class) if hint => {
                            attachment.hinted = true;
                            hint_at_new_streams(class)
                        }
                        Some(class) if *inactive => NextIndex::inactive(*promised, class, 0),
                        _ => NextIndex::bare(IndexStatus::Retry, 0),
                    }
                } else {
                    match (until, class) {
                        // What has been promised stays: a beacon from before it says nothing.
                        (Some(until), Some(class)) if until >= *promised => {
                            *promised = until;
                            *inactive = true;
                            NextIndex::inactive(until, class, 0)
                        }
                        _ => NextIndex::bare(IndexStatus::Retry, 0),
                    }
                }
            }
        };
        reply.flags = streams_flag;
        // After the index has been chosen: metadata is received before the index that needs it.
        if self.has_new_metadata(trace) {
            reply.flags |= NEW_METADATA;
        }
        reply
    }

    fn has_new_metadata(&self, trace: TraceId) -> bool {
        self.cursors.values().any(|cursor| match &cursor.at {
            At::Metadata { metadata, .. } => cursor.trace == trace && metadata.has_unread(),
            At::Packets { .. } => false,
        })
    }

    fn packet(&self, ask: &GetPacket) -> (PacketHead, Option<PacketOf<R>>) {
        let packet = match self.cursors.get(&ask.stream) {
            // No bytes at all would be an answer that viewers do not survive.
            Some(Cursor {
                at: At::Packets { stream, .. },
                ..
            }) if ask.len > 0 => stream.packet(ask.offset, ask.len),
            _ => None,
        };
        let head = match packet {
            Some(_) => PacketHead {
                status: PacketStatus::Ok,
                len: ask.len,
                flags: 0,
            },
            None => PacketHead {
                status: PacketStatus::Failed,
                len: 0,
                flags: 0,
            },
        };
        (head, packet)
    }

    fn detach(&mut self, session: SessionId, relay: &R) -> DetachStatus {
        if self.attached.remove(&session).is_some() {
            self.cursors.retain(|_, cursor| cursor.session != session);
            DetachStatus::Ok
        } else if relay.find(session).is_some() {
            DetachStatus::NotAttached
        } else {
            DetachStatus::Unknown
        }
    }
}

/// Says that streams are waiting to viewers that only look at the flags of an index that is ready
/// (babeltrace2 2.0): an index of nothing at all, which they then do not fetch.
///
/// Other viewers (babeltrace 1) are lost at it. What tells them apart is the order of their first
/// commands: see [`Connection::creates_first`].
fn hint_at_new_streams(class: ClassId) -> NextIndex {
    let mut hint = NextIndex::bare(IndexStatus::Ready, 0);
    hint.packet.class = class;
    hint
}

fn count(records: usize) -> u32 {
    u32::try_from(records).expect("a relay has less than 2^32 streams")
}
