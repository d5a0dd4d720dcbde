//! The viewer's end of a connection: turns commands into bytes and bytes into the parts of their
//! replies. Any number of commands may be under way: a relay answers them in their order.
//!
//! What is asked behind a command whose answer is not known yet must make sense whatever that is. And
//! whoever sends commands without taking replies may wait for a relay that waits for him.

use std::collections::VecDeque;

use bytes::BufMut;
use thiserror::Error;
use wire::{DecodeError, Field, ViewerId};

use crate::index::NextIndex;
use crate::metadata::MetadataHead;
use crate::packet::PacketHead;
use crate::session::{
    AttachStatus, Attached, CreateStatus, DetachStatus, ListedSession, SessionList,
};
use crate::stream::{NewStreams, NewStreamsStatus, StreamRecord};
use crate::version::{Connect, ConnectionKind, MAJOR};
use crate::{Command, CommandCode, Minor};

/// Most sessions or streams in a reply.
const MAX_RECORDS: u32 = 65_536;
/// Most bytes of metadata in a reply.
const MAX_METADATA: u64 = 256 << 20;

/// One viewer's connection to a relay.
#[derive(Debug)]
pub struct Client {
    /// The highest that this end speaks.
    ours: Minor,
    minor: Option<Minor>,
    /// Commands whose replies have not begun, oldest first.
    under_way: VecDeque<Asked>,
    state: State,
}

/// A command that was sent.
#[derive(Debug, Clone, Copy)]
struct Asked {
    command: CommandCode,
    /// Most bytes of a packet.
    bytes: u32,
}

#[derive(Debug, Clone, Copy)]
enum State {
    /// A reply begins with the next byte, if any is under way.
    Head,
    /// So many records are still to come.
    Records { command: CommandCode, left: u32 },
    /// So many bytes are still to come.
    Body { left: u64 },
}

/// A part of a reply. Each reply begins with [`Head`](Self::Head) and ends with
/// [`Done`](Self::Done).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part<'a> {
    /// What every such reply has.
    Head(Head),
    /// A session of a list.
    Session(ListedSession),
    /// A stream that is announced.
    Stream(Box<StreamRecord>),
    /// Some bytes of a packet or of metadata.
    Bytes(&'a [u8]),
    /// The reply is complete.
    Done,
}

/// What a reply begins with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Head {
    /// The relay's introduction.
    Connected {
        /// Its number for this connection.
        viewer: Option<ViewerId>,
        /// What both ends speak from now on.
        minor: Minor,
    },
    /// To `CREATE_VIEWER_SESSION`.
    Created(CreateStatus),
    /// To `LIST_SESSIONS`; as many [`Part::Session`]s follow.
    Sessions(SessionList),
    /// To `ATTACH_SESSION`; as many [`Part::Stream`]s follow.
    Attached(Attached),
    /// To `GET_NEW_STREAMS`; as many [`Part::Stream`]s follow.
    NewStreams(NewStreams),
    /// To `GET_NEXT_INDEX`.
    Index(NextIndex),
    /// To `GET_PACKET`; as many bytes follow.
    Packet(PacketHead),
    /// To `GET_METADATA`; as many bytes follow.
    Metadata(MetadataHead),
    /// To `DETACH_SESSION`.
    Detached(DetachStatus),
}

/// Why a viewer cannot ask, or cannot go on.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ClientError {
    /// The relay has not introduced itself.
    #[error("{command:?} cannot be sent: the relay has not introduced itself")]
    NotNow {
        /// The command.
        command: CommandCode,
    },
    /// The relay speaks another major version.
    #[error("the relay speaks protocol {major}, not {MAJOR}")]
    Incompatible {
        /// What it speaks.
        major: u32,
    },
    /// The relay said something while nothing was asked.
    #[error("the relay sent {bytes} bytes that nothing asked for")]
    Unasked {
        /// How much.
        bytes: usize,
    },
    /// A reply that cannot be read.
    #[error("malformed reply to {command:?}: {source}")]
    Malformed {
        /// The command it should answer.
        command: CommandCode,
        /// What is wrong with it.
        source: DecodeError,
    },
    /// A reply that announces more than it may.
    #[error("the reply to {command:?} announces {announced}, at most {most} are allowed")]
    TooMuch {
        /// The command it answers.
        command: CommandCode,
        /// Records or bytes it announces.
        announced: u64,
        /// The limit.
        most: u64,
    },
}

impl Client {
    /// A viewer that speaks versions up to `ours`.
    #[must_use]
    pub fn new(ours: Minor) -> Self {
        Self {
            ours,
            minor: None,
            under_way: VecDeque::new(),
            state: State::Head,
        }
    }

    /// The command that a connection begins with.
    #[must_use]
    pub fn hello(&self) -> Command {
        Command::Connect(Connect {
            viewer: None,
            major: MAJOR,
            minor: self.ours.0,
            kind: ConnectionKind::Command.code(),
        })
    }

    /// Appends a command. Its reply comes after those to all commands before.
    ///
    /// # Errors
    /// If it is not `CONNECT`, and the relay has not answered that.
    pub fn send(&mut self, command: &Command, to: &mut impl BufMut) -> Result<(), ClientError> {
        let code = command.code();
        if self.minor.is_none() && code != CommandCode::Connect {
            return Err(ClientError::NotNow { command: code });
        }
        command.encode(to);
        let bytes = if let Command::GetPacket(ask) = command {
            ask.len
        } else {
            0
        };
        self.under_way.push_back(Asked {
            command: code,
            bytes,
        });
        Ok(())
    }

    /// Whether any reply is still to come, or the rest of one.
    #[must_use]
    pub fn awaits_reply(&self) -> bool {
        !self.under_way.is_empty() || !matches!(self.state, State::Head)
    }

    /// Takes the next part of the oldest reply off the front of `input`; `None` if more bytes must
    /// come first, or none are awaited.
    ///
    /// # Errors
    /// If the connection cannot go on.
    pub fn receive<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Part<'a>>, ClientError> {
        match self.state {
            State::Head if input.is_empty() => Ok(None),
            State::Head => {
                let Some(&asked) = self.under_way.front() else {
                    return Err(ClientError::Unasked { bytes: input.len() });
                };
                let mut at = *input;
                let Some(head) = whole(asked.command, self.head(asked, &mut at))? else {
                    return Ok(None);
                };
                *input = at;
                self.under_way.pop_front();
                Ok(Some(Part::Head(head)))
            }
            State::Records { left: 0, .. } | State::Body { left: 0 } => {
                self.state = State::Head;
                Ok(Some(Part::Done))
            }
            State::Records { command, left } => {
                let mut at = *input;
                let record = if command == CommandCode::ListSessions {
                    ListedSession::read(self.minor.unwrap_or(Minor(0)), &mut at).map(Part::Session)
                } else {
                    StreamRecord::read(&mut at).map(|stream| Part::Stream(Box::new(stream)))
                };
                let malformed = |source| ClientError::Malformed { command, source };
                let Some(part) = whole(command, record.map_err(malformed))? else {
                    return Ok(None);
                };
                *input = at;
                self.state = State::Records {
                    command,
                    left: left - 1,
                };
                Ok(Some(part))
            }
            State::Body { .. } if input.is_empty() => Ok(None),
            State::Body { left } => {
                let here = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
                let (bytes, rest) = input.split_at(here);
                *input = rest;
                self.state = State::Body {
                    left: left - here as u64,
                };
                Ok(Some(Part::Bytes(bytes)))
            }
        }
    }

    /// Reads the fixed part of a reply and decides what is to follow it.
    fn head(&mut self, asked: Asked, from: &mut &[u8]) -> Result<Head, ClientError> {
        let command = asked.command;
        let malformed = |source| ClientError::Malformed { command, source };
        let within = |announced: u64, most: u64| {
            if announced > most {
                return Err(ClientError::TooMuch {
                    command,
                    announced,
                    most,
                });
            }
            Ok(announced)
        };
        let records = |count: u32| {
            within(u64::from(count), u64::from(MAX_RECORDS))?;
            Ok(State::Records {
                command,
                left: count,
            })
        };
        let nothing = State::Body { left: 0 };
        let (head, state) = match command {
            CommandCode::Connect => {
                let theirs = Connect::read(from).map_err(malformed)?;
                if theirs.major != MAJOR {
                    return Err(ClientError::Incompatible {
                        major: theirs.major,
                    });
                }
                let minor = Minor(theirs.minor).common(self.ours);
                self.minor = Some(minor);
                (
                    Head::Connected {
                        viewer: theirs.viewer,
                        minor,
                    },
                    nothing,
                )
            }
            CommandCode::ListSessions => {
                let list = SessionList::read(from).map_err(malformed)?;
                (Head::Sessions(list), records(list.count)?)
            }
            CommandCode::AttachSession => {
                let attached = Attached::read(from).map_err(malformed)?;
                let follow = attached.status == AttachStatus::Ok;
                (
                    Head::Attached(attached),
                    records(if follow { attached.count } else { 0 })?,
                )
            }
            CommandCode::GetNewStreams => {
                let new = NewStreams::read(from).map_err(malformed)?;
                let follow = new.status == NewStreamsStatus::Ok;
                (
                    Head::NewStreams(new),
                    records(if follow { new.count } else { 0 })?,
                )
            }
            CommandCode::GetNextIndex => (
                Head::Index(NextIndex::read(from).map_err(malformed)?),
                nothing,
            ),
            CommandCode::GetPacket => {
                let head = PacketHead::read(from).map_err(malformed)?;
                let left = within(u64::from(head.len), u64::from(asked.bytes))?;
                (Head::Packet(head), State::Body { left })
            }
            CommandCode::GetMetadata => {
                let head = MetadataHead::read(from).map_err(malformed)?;
                let left = within(head.len, MAX_METADATA)?;
                (Head::Metadata(head), State::Body { left })
            }
            CommandCode::CreateViewerSession => (
                Head::Created(Field::read(from).map_err(malformed)?),
                nothing,
            ),
            CommandCode::DetachSession => (
                Head::Detached(Field::read(from).map_err(malformed)?),
                nothing,
            ),
        };
        self.state = state;
        Ok(head)
    }
}

/// Too few bytes are no error: more may come.
fn whole<T>(command: CommandCode, part: Result<T, ClientError>) -> Result<Option<T>, ClientError> {
    match part {
        Ok(part) => Ok(Some(part)),
        Err(ClientError::Malformed {
            source: DecodeError::Truncated { .. },
            ..
        }) => Ok(None),
        Err(ClientError::Malformed { source, .. }) => {
            Err(ClientError::Malformed { command, source })
        }
        Err(error) => Err(error),
    }
}
