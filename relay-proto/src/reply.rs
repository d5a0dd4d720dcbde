//! The replies of a relay. A reply has no header: its form follows from the command.

use std::fmt;

use bytes::BufMut;
use wire::{DecodeError, Field, SessionId, StreamId, Text, wire_struct};

use crate::resume::{StreamOpened, StreamPosition};
use crate::{CommandCode, Minor, Version};

/// Result of a command. Producers only check whether it is [`OK`](Self::OK).
/// (`enum lttcomm_return_code`)
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReturnCode(pub u32);

impl ReturnCode {
    /// The command has been executed.
    pub const OK: Self = Self(10);
    /// Unknown command or stream, or failed file operation.
    pub const UNKNOWN: Self = Self(11);
    /// The session cannot be opened.
    pub const FATAL: Self = Self(25);
    /// The chunk that a command names is unknown.
    pub const NO_MEMORY: Self = Self(26);
    /// The directory of the session has a recording (`LTTNG_ERR_EXIST_SESS`).
    pub const EXISTS: Self = Self(28);
    /// Invalid name or code.
    pub const INVALID: Self = Self(97);
    /// The command is not allowed in the state of the session.
    pub const INVALID_PROTOCOL: Self = Self(152);
    /// Files cannot be created or moved.
    pub const FILE_CREATION: Self = Self(153);
}

impl fmt::Display for ReturnCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::OK => f.write_str("done"),
            Self::UNKNOWN => f.write_str("unknown command or stream (11)"),
            Self::FATAL => f.write_str("session refused (25)"),
            Self::NO_MEMORY => f.write_str("unknown chunk (26)"),
            Self::EXISTS => f.write_str("the directory of the session has a recording (28)"),
            Self::INVALID => f.write_str("invalid (97)"),
            Self::INVALID_PROTOCOL => f.write_str("out of order (152)"),
            Self::FILE_CREATION => f.write_str("files could not be made (153)"),
            Self(code) => write!(f, "code {code}"),
        }
    }
}

impl Field for ReturnCode {
    const SIZE: usize = 4;

    fn read(from: &mut &[u8]) -> Result<Self, DecodeError> {
        Ok(Self(u32::read(from)?))
    }

    fn write(&self, to: &mut impl BufMut) {
        to.put_u32(self.0);
    }
}

wire_struct! {
    /// Answers `GET_CONFIGURATION`.
    #[derive(Copy)]
    pub Configuration [12 bytes] {
        /// Result of the command.
        code: ReturnCode,
        /// [`CLEAR_ALLOWED`] and [`RESUME`]; producers ignore the other bits.
        flags: u64,
    }

    /// Answers `ADD_STREAM`.
    #[derive(Copy)]
    pub StreamAdded [12 bytes] {
        /// Id of the stream, assigned by the relay. None if it was refused.
        stream: Option<StreamId>,
        /// Result of the command.
        code: ReturnCode,
    }

    /// Answers `CREATE_SESSION`: the whole reply before 2.11, else its first part.
    SessionCreatedHead [12 bytes] {
        session: SessionId,
        code: ReturnCode,
    }

    /// Answers `TRACE_CHUNK_EXISTS`.
    #[derive(Copy)]
    pub ChunkExists [5 bytes] {
        /// Result of the command.
        code: ReturnCode,
        /// 1 while the chunk is written to, else 0.
        exists: u8,
    }

    /// Answers `GET_CLOCK`.
    #[derive(Copy)]
    pub RelayClock [36 bytes] {
        /// Result of the command.
        code: ReturnCode,
        /// Nanoseconds since 1970, UTC, when the relay handled the command. (`CLOCK_REALTIME`)
        time: u64,
        /// Nanoseconds of a clock of the relay's host that is never set. (`CLOCK_MONOTONIC`)
        monotonic: u64,
        /// UUID of the start of that host, from which `monotonic` counts. (`boot_id`)
        boot: [u8; 16],
    }
}

/// Bit of [`Configuration::flags`]: recordings may be cleared.
pub const CLEAR_ALLOWED: u64 = 1;

/// Bit of [`Configuration::flags`]: the relay knows the commands of [`resume`](crate::resume) and
/// `GET_CLOCK`. LTTng counts its flags from bit 0 and ignores this one.
pub const RESUME: u64 = 1 << 63;

/// A reply, whatever version it is encoded for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// Reply to `VERSION`: the relay's own version, not the agreed one.
    Version(Version),
    /// Reply to `GET_CONFIGURATION`: whether recordings may be cleared, and the extensions.
    Configuration(Configuration),
    /// Reply to `CREATE_SESSION` and `RESUME_SESSION`.
    SessionCreated {
        /// Id of the session, assigned by the relay. 0 if it was refused.
        session: SessionId,
        /// Result of the command.
        code: ReturnCode,
        /// Path of the trace, relative to the relay's output. None before 2.11, or if the session
        /// was refused.
        path: Option<Text>,
    },
    /// Reply to `ADD_STREAM`: the id of the stream.
    StreamAdded(StreamAdded),
    /// Reply to every command without another result.
    Ended(ReturnCode),
    /// Reply to `DATA_PENDING` and `END_DATA_PENDING`: whether packets are still to arrive.
    Pending(bool),
    /// Reply to `DATA_PENDING` of an unknown stream.
    PendingUnknown,
    /// Reply to `CLOSE_TRACE_CHUNK`: the path of the chunk.
    ChunkClosed {
        /// Result of the command.
        code: ReturnCode,
        /// Path of the chunk, relative to the relay's output. None if the command was refused.
        path: Option<Text>,
    },
    /// Reply to `TRACE_CHUNK_EXISTS`: whether the chunk is written to.
    ChunkExists(ChunkExists),
    /// Reply to `OPEN_STREAM`: the id of the stream, and where the producer continues.
    StreamOpened(StreamOpened),
    /// Reply to `GET_POSITION`: the packets that the relay has.
    Position(StreamPosition),
    /// Reply to `GET_CLOCK`: the time of the relay.
    Clock(RelayClock),
}

/// Longest path in a reply, in bytes, including its NUL.
const MAX_PATH_BYTES: u32 = 4096;

impl Reply {
    /// Whether the command has been executed.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        match self {
            Self::Version(_) | Self::Pending(_) => true,
            Self::PendingUnknown => false,
            Self::Configuration(Configuration { code, .. })
            | Self::SessionCreated { code, .. }
            | Self::StreamAdded(StreamAdded { code, .. })
            | Self::Ended(code)
            | Self::ChunkClosed { code, .. }
            | Self::ChunkExists(ChunkExists { code, .. })
            | Self::StreamOpened(StreamOpened { code, .. })
            | Self::Position(StreamPosition { code, .. })
            | Self::Clock(RelayClock { code, .. }) => *code == ReturnCode::OK,
        }
    }

    /// Encodes the reply in the form of version `minor`.
    pub fn encode(&self, minor: Minor, to: &mut impl BufMut) {
        match self {
            Self::Version(version) => version.write(to),
            Self::Configuration(configuration) => configuration.write(to),
            Self::SessionCreated {
                session,
                code,
                path,
            } => {
                SessionCreatedHead {
                    session: *session,
                    code: *code,
                }
                .write(to);
                // Before 2.11 the reply ends with the code: a producer would take a path for the
                // next reply.
                if minor.has_chunks() {
                    write_path(path.as_ref(), to);
                }
            }
            Self::StreamAdded(added) => added.write(to),
            Self::Ended(code) => code.write(to),
            Self::Pending(pending) => to.put_u32(u32::from(*pending)),
            // -1 of the C code.
            Self::PendingUnknown => to.put_u32(u32::MAX),
            Self::ChunkClosed { code, path } => {
                code.write(to);
                write_path(path.as_ref(), to);
            }
            Self::ChunkExists(exists) => exists.write(to),
            Self::StreamOpened(opened) => opened.write(to),
            Self::Position(position) => position.write(to),
            Self::Clock(clock) => clock.write(to),
        }
    }

    /// Takes the reply to a command off the front of `from`. None if it is incomplete.
    ///
    /// # Errors
    /// If the bytes are no such reply.
    pub fn decode(
        to: CommandCode,
        minor: Minor,
        from: &mut &[u8],
    ) -> Result<Option<Self>, DecodeError> {
        let mut at = *from;
        match Self::read(to, minor, &mut at) {
            Ok(reply) => {
                *from = at;
                Ok(Some(reply))
            }
            // A reply has no length of its own: too few bytes may be the first of them.
            Err(DecodeError::Truncated { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn read(to: CommandCode, minor: Minor, from: &mut &[u8]) -> Result<Self, DecodeError> {
        Ok(match to {
            CommandCode::Version => Self::Version(Field::read(from)?),
            CommandCode::GetConfiguration => Self::Configuration(Field::read(from)?),
            CommandCode::CreateSession | CommandCode::ResumeSession => {
                let head = SessionCreatedHead::read(from)?;
                let path = if minor.has_chunks() {
                    read_path(from)?
                } else {
                    None
                };
                Self::SessionCreated {
                    session: head.session,
                    code: head.code,
                    path,
                }
            }
            CommandCode::AddStream => Self::StreamAdded(Field::read(from)?),
            CommandCode::DataPending | CommandCode::EndDataPending => match u32::read(from)? {
                0 => Self::Pending(false),
                1 => Self::Pending(true),
                u32::MAX => Self::PendingUnknown,
                // An error has its code in place of the answer.
                code => Self::Ended(ReturnCode(code)),
            },
            CommandCode::CloseTraceChunk => {
                let code = ReturnCode::read(from)?;
                Self::ChunkClosed {
                    code,
                    path: read_path(from)?,
                }
            }
            CommandCode::TraceChunkExists => Self::ChunkExists(Field::read(from)?),
            CommandCode::OpenStream => Self::StreamOpened(Field::read(from)?),
            CommandCode::GetPosition => Self::Position(Field::read(from)?),
            CommandCode::GetClock => Self::Clock(Field::read(from)?),
            _ => Self::Ended(Field::read(from)?),
        })
    }
}

fn write_path(path: Option<&Text>, to: &mut impl BufMut) {
    to.put_u32(path.map_or(0, Text::terminated_len));
    if let Some(path) = path {
        path.write_terminated(to);
    }
}

fn read_path(from: &mut &[u8]) -> Result<Option<Text>, DecodeError> {
    let length = u32::read(from)?;
    Text::read_optional(from, length, "path", MAX_PATH_BYTES)
}
