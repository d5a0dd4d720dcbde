//! The viewer's end of a connection: a state machine that encodes commands and decodes their
//! replies in parts. Any number of commands may be in flight: a relay replies in the order of the
//! commands.
//!
//! A pipelined command must be valid whatever the replies before it are. A viewer that sends
//! commands without reading replies can deadlock: the relay waits for it to read.

use std::collections::VecDeque;

use bytes::BufMut;
use thiserror::Error;
use wire::{DecodeError, Field, ViewerId, split_up_to};

use crate::index::NextIndex;
use crate::metadata::MetadataHead;
use crate::packet::PacketHead;
use crate::session::{
    AttachStatus, Attached, CreateStatus, DetachStatus, ListedSession, SessionList,
};
use crate::stream::{NewStreams, NewStreamsStatus, StreamRecord};
use crate::version::{Connect, ConnectionKind, MAJOR};
use crate::{Command, CommandCode, Minor};

/// Maximum number of sessions or streams in a reply: far more than any relay has, because a viewer
/// keeps a record of each.
const MAX_RECORDS: u32 = 65_536;
/// Maximum metadata in a reply, in bytes.
const MAX_METADATA_BYTES: u64 = 256 << 20;

/// One viewer's connection to a relay.
#[derive(Debug)]
pub struct Client {
    /// The highest minor version that this end speaks.
    ours: Minor,
    /// The agreed minor version. None before the relay's CONNECT.
    minor: Option<Minor>,
    /// Commands whose replies have not begun, oldest first.
    in_flight: VecDeque<SentCommand>,
    state: State,
}

/// A command whose reply has not begun.
#[derive(Debug, Clone, Copy)]
struct SentCommand {
    command: CommandCode,
    /// Requested length of `GET_PACKET`; 0 for other commands.
    max_packet_bytes: u32,
}

#[derive(Debug, Clone, Copy)]
enum State {
    /// The next byte begins a reply, if a command is in flight.
    Head,
    /// `left` records of the reply are still to arrive.
    Records { command: CommandCode, left: u32 },
    /// `left` bytes of the reply are still to arrive.
    Body { left: u64 },
}

/// A part of a reply. Each reply begins with [`Head`](Self::Head) and ends with
/// [`Done`](Self::Done).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part<'a> {
    /// The fixed part of the reply.
    Head(Head),
    /// A session of the list.
    Session(ListedSession),
    /// A stream that the reply announces.
    Stream(Box<StreamRecord>),
    /// Some bytes of a packet or of metadata.
    Bytes(&'a [u8]),
    /// The reply is complete.
    Done,
}

/// The fixed part of a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Head {
    /// Reply to `CONNECT`: the connection is open.
    Connected {
        /// The viewer's id, by which a push connection names this connection.
        viewer: Option<ViewerId>,
        /// The agreed minor version.
        minor: Minor,
    },
    /// Reply to `CREATE_VIEWER_SESSION`: whether it was created.
    Created(CreateStatus),
    /// Reply to `LIST_SESSIONS`; as many [`Part::Session`]s follow.
    Sessions(SessionList),
    /// Reply to `ATTACH_SESSION`; as many [`Part::Stream`]s follow.
    Attached(Attached),
    /// Reply to `GET_NEW_STREAMS`; as many [`Part::Stream`]s follow.
    NewStreams(NewStreams),
    /// Reply to `GET_NEXT_INDEX`: the index of a packet, or why there is none.
    Index(NextIndex),
    /// Reply to `GET_PACKET`; as many bytes follow.
    Packet(PacketHead),
    /// Reply to `GET_METADATA`; as many bytes follow.
    Metadata(MetadataHead),
    /// Reply to `DETACH_SESSION`: whether the viewer was attached.
    Detached(DetachStatus),
}

/// A command that cannot be sent, or an error that ends the connection.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ClientError {
    /// The command was to be sent before the handshake was complete.
    #[error("cannot send {command:?}: the relay has not answered CONNECT")]
    NotNow {
        /// The command to be sent.
        command: CommandCode,
    },
    /// The relay has another major version.
    #[error("the relay speaks protocol {major}, not {MAJOR}")]
    Incompatible {
        /// Major version of the relay.
        major: u32,
    },
    /// The peer answers as a server of HTTP does.
    #[error(
        "the port speaks HTTP, like --http of the relay; viewers use --live-port, 5344 by default"
    )]
    Http,
    /// The relay sent bytes while no command was in flight.
    #[error("the relay sent {bytes} bytes without a command")]
    Unasked {
        /// The number of bytes that were received.
        bytes: usize,
    },
    /// A reply cannot be decoded.
    #[error("malformed reply to {command:?}: {source}")]
    Malformed {
        /// The command that the reply answers.
        command: CommandCode,
        /// Error of the decoder.
        source: DecodeError,
    },
    /// A reply announces more records or bytes than allowed.
    #[error("reply to {command:?} announces {announced}, at most {max} are allowed")]
    TooMuch {
        /// The command that the reply answers.
        command: CommandCode,
        /// Announced records or bytes.
        announced: u64,
        /// Maximum number of them.
        max: u64,
    },
}

impl Client {
    /// A client that speaks minor versions up to `ours`.
    #[must_use]
    pub fn new(ours: Minor) -> Self {
        Self {
            ours,
            minor: None,
            in_flight: VecDeque::new(),
            state: State::Head,
        }
    }

    /// The first command of a connection.
    #[must_use]
    pub fn connect_command(&self) -> Command {
        Command::Connect(Connect {
            viewer: None,
            major: MAJOR,
            minor: self.ours.0,
            kind: ConnectionKind::Command.code(),
        })
    }

    /// Encodes a command. Its reply follows those to all commands before.
    ///
    /// # Errors
    /// If the command is not `CONNECT`, and the relay has not answered that.
    pub fn send(&mut self, command: &Command, to: &mut impl BufMut) -> Result<(), ClientError> {
        let code = command.code();
        if self.minor.is_none() && code != CommandCode::Connect {
            return Err(ClientError::NotNow { command: code });
        }
        command.encode(to);
        // Kept, because the reply to `GET_PACKET` may have as many bytes and no more.
        let max_packet_bytes = match command {
            Command::GetPacket(request) => request.len,
            _ => 0,
        };
        self.in_flight.push_back(SentCommand {
            command: code,
            max_packet_bytes,
        });
        Ok(())
    }

    /// Whether a reply, or the rest of one, is still to arrive.
    #[must_use]
    pub fn awaits_reply(&self) -> bool {
        !self.in_flight.is_empty() || !matches!(self.state, State::Head)
    }

    /// Takes the next part of the oldest reply off the front of `input`. None if more bytes are
    /// needed, or no reply is awaited.
    ///
    /// # Errors
    /// If the reply is invalid. The connection is to be closed.
    pub fn receive<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Part<'a>>, ClientError> {
        match &mut self.state {
            State::Head if input.is_empty() => Ok(None),
            State::Head => {
                let Some(&sent) = self.in_flight.front() else {
                    return Err(ClientError::Unasked { bytes: input.len() });
                };
                // `input` stays as it is while the head is incomplete.
                let mut at = *input;
                let Some(head) = none_if_truncated(self.read_head(sent, &mut at))? else {
                    return Ok(None);
                };
                *input = at;
                self.in_flight.pop_front();
                Ok(Some(Part::Head(head)))
            }
            // Also a reply of which nothing follows ends with `Done`, so that callers need no
            // second case.
            State::Records { left: 0, .. } | State::Body { left: 0 } => {
                self.state = State::Head;
                Ok(Some(Part::Done))
            }
            State::Records { command, left } => {
                let (command, mut at) = (*command, *input);
                let record = if command == CommandCode::ListSessions {
                    ListedSession::read(self.minor.unwrap_or(Minor(0)), &mut at).map(Part::Session)
                } else {
                    // Boxed, because a record of 4 KiB would make every part as large.
                    StreamRecord::read(&mut at).map(|stream| Part::Stream(Box::new(stream)))
                };
                let malformed = |source| ClientError::Malformed { command, source };
                let part = none_if_truncated(record.map_err(malformed))?;
                if part.is_some() {
                    *input = at;
                    *left -= 1;
                }
                Ok(part)
            }
            State::Body { .. } if input.is_empty() => Ok(None),
            State::Body { left } => Ok(Some(Part::Bytes(split_up_to(input, left)))),
        }
    }

    /// Decodes the fixed part of a reply, and sets the state for what follows it.
    fn read_head(&mut self, sent: SentCommand, from: &mut &[u8]) -> Result<Head, ClientError> {
        let command = sent.command;
        // A relay may announce anything: checked before the viewer makes room for it.
        let within = |announced: u64, max: u64| {
            if announced > max {
                return Err(ClientError::TooMuch {
                    command,
                    announced,
                    max,
                });
            }
            Ok(announced)
        };
        let records = |left: u32| {
            within(u64::from(left), u64::from(MAX_RECORDS))?;
            Ok(State::Records { command, left })
        };
        let nothing = State::Body { left: 0 };
        let (head, state) = match command {
            CommandCode::Connect => {
                let is_http = from.starts_with(b"HTTP");
                let Connect {
                    viewer,
                    major,
                    minor,
                    ..
                } = read(command, from)?;
                // A viewer's number may begin with the same bytes.
                if major != MAJOR && is_http {
                    return Err(ClientError::Http);
                }
                if major != MAJOR {
                    return Err(ClientError::Incompatible { major });
                }
                let minor = Minor(minor).common(self.ours);
                self.minor = Some(minor);
                (Head::Connected { viewer, minor }, nothing)
            }
            CommandCode::ListSessions => {
                let list: SessionList = read(command, from)?;
                (Head::Sessions(list), records(list.count)?)
            }
            CommandCode::AttachSession => {
                let attached: Attached = read(command, from)?;
                // Without success the count has no meaning, and nothing follows.
                let follow = attached.status == AttachStatus::Ok;
                let state = records(if follow { attached.count } else { 0 })?;
                (Head::Attached(attached), state)
            }
            CommandCode::GetNewStreams => {
                let new: NewStreams = read(command, from)?;
                let follow = new.status == NewStreamsStatus::Ok;
                let state = records(if follow { new.count } else { 0 })?;
                (Head::NewStreams(new), state)
            }
            CommandCode::GetNextIndex => (Head::Index(read(command, from)?), nothing),
            CommandCode::GetPacket => {
                // The requested length is the limit: the viewer has room for no more.
                let head: PacketHead = read(command, from)?;
                let left = within(u64::from(head.len), u64::from(sent.max_packet_bytes))?;
                (Head::Packet(head), State::Body { left })
            }
            CommandCode::GetMetadata => {
                let head: MetadataHead = read(command, from)?;
                let left = within(head.len, MAX_METADATA_BYTES)?;
                (Head::Metadata(head), State::Body { left })
            }
            CommandCode::CreateViewerSession => (Head::Created(read(command, from)?), nothing),
            CommandCode::DetachSession => (Head::Detached(read(command, from)?), nothing),
        };
        // At the end: as long as bytes are missing, the head is read again.
        self.state = state;
        Ok(head)
    }
}

/// Decodes a message of the reply to `command`.
fn read<T: Field>(command: CommandCode, from: &mut &[u8]) -> Result<T, ClientError> {
    T::read(from).map_err(|source| ClientError::Malformed { command, source })
}

/// Turns the error for too few bytes into None: the rest may still arrive.
fn none_if_truncated<T>(part: Result<T, ClientError>) -> Result<Option<T>, ClientError> {
    match part {
        Err(ClientError::Malformed {
            source: DecodeError::Truncated { .. },
            ..
        }) => Ok(None),
        part => part.map(Some),
    }
}
