//! Opening a session, in the four forms it has had.

use std::fmt;

use bytes::BufMut;
use wire::{
    ChunkId, DecodeError, EpochSeconds, Field, FixedText, Flagged, Micros, Text, wire_enum,
    wire_struct,
};

use crate::Minor;

/// Asks the relay to open a session. One per control connection.
/// (`CREATE_SESSION`)
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateSession {
    /// The session's name. Empty from producers before 2.4, which have none to give.
    pub name: Text,
    /// The traced host.
    pub host: Text,
    /// Where the user wants the trace, relative to the host's directory. Since 2.11; empty for
    /// none.
    pub base_path: Text,
    /// How often a live session sends what it has. None: not a live session.
    pub live_timer: Micros,
    /// A single snapshot: streams are not announced and have no indexes.
    pub snapshot: bool,
    /// Which recording it belongs to. Since 2.11.
    pub recording: Option<Recording>,
    /// What the trace is written in.
    pub trace_format: TraceFormat,
}

/// The recording, at its session daemon, that a session belongs to. Kernel and user-space tracing
/// of one recording reach the relay as sessions of their own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recording {
    /// The session daemon.
    pub daemon: DaemonId,
    /// The recording's number there.
    pub id: u64,
    /// When it was created.
    pub created: EpochSeconds,
    /// The session's name already ends in that date, as automatic names do.
    pub name_has_date: bool,
    /// The chunk, made by another connection, that the session starts in.
    pub current_chunk: Option<ChunkId>,
}

/// A run of a session daemon.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct DaemonId(pub [u8; 16]);

impl DaemonId {
    /// Stands for no daemon; the protocol forbids it.
    #[must_use]
    pub fn is_nil(self) -> bool {
        self.0 == [0; 16]
    }
}

impl fmt::Debug for DaemonId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Field for DaemonId {
    const SIZE: usize = 16;

    fn read(from: &mut &[u8]) -> Result<Self, DecodeError> {
        Ok(Self(Field::read(from)?))
    }

    fn write(&self, to: &mut impl BufMut) {
        self.0.write(to);
    }
}

wire_enum! {
    /// What a trace is written in.
    pub TraceFormat {
        /// CTF 1.8, metadata in TSDL.
        Ctf1 = 1,
        /// CTF 2, metadata in JSON.
        Ctf2 = 2,
    }
}

/// Longest session and host name with its NUL, and longest base path with its NUL.
const NAME_LIMIT: u32 = 255;
const HOST_LIMIT: u32 = 256;
const PATH_LIMIT: u32 = 4096;

wire_struct! {
    /// `struct lttcomm_relayd_create_session_2_4`.
    CreateSessionV2_4 [327 bytes] {
        name: FixedText<255>,
        host: FixedText<64>,
        live_timer: Micros,
        snapshot: u32,
    }

    /// The part of `struct lttcomm_relayd_create_session_2_11` before the names.
    CreateSessionV2_11 [59 bytes] {
        /// Lengths with NUL.
        name_len: u32,
        host_len: u32,
        base_path_len: u32,
        live_timer: Micros,
        snapshot: u8,
        name_has_date: u8,
        daemon: DaemonId,
        id: u64,
        created: EpochSeconds,
        current_chunk: Flagged<ChunkId>,
    }
}

impl CreateSession {
    /// The most bytes that the message can need.
    pub(crate) const MOST: usize = CreateSessionV2_11::SIZE
        + TraceFormat::SIZE
        + (NAME_LIMIT + HOST_LIMIT + PATH_LIMIT) as usize;

    /// Reads the form that `minor` calls for.
    ///
    /// # Errors
    /// If the bytes are not that form.
    pub fn decode(minor: Minor, mut from: &[u8]) -> Result<Self, DecodeError> {
        let from = &mut from;
        if !minor.names_sessions() {
            return Ok(Self::unnamed());
        }
        if !minor.has_chunks() {
            let old = CreateSessionV2_4::read(from)?;
            return Ok(Self {
                name: old.name.terminated("session name")?,
                host: old.host.terminated("host name")?,
                live_timer: old.live_timer,
                snapshot: old.snapshot != 0,
                ..Self::unnamed()
            });
        }
        let head = CreateSessionV2_11::read(from)?;
        let trace_format = if minor.names_trace_format() {
            TraceFormat::read(from)?
        } else {
            TraceFormat::Ctf1
        };
        Ok(Self {
            name: Text::read_terminated(from, head.name_len, "session name", 1..=NAME_LIMIT)?,
            host: Text::read_terminated(from, head.host_len, "host name", 1..=HOST_LIMIT)?,
            base_path: match head.base_path_len {
                0 => Text::default(),
                len => Text::read_terminated(from, len, "base path", 1..=PATH_LIMIT)?,
            },
            live_timer: head.live_timer,
            snapshot: head.snapshot != 0,
            recording: Some(Recording {
                daemon: head.daemon,
                id: head.id,
                created: head.created,
                name_has_date: head.name_has_date != 0,
                current_chunk: head.current_chunk.0,
            }),
            trace_format,
        })
    }

    /// Appends the form that `minor` calls for. What that form has no room for is left out.
    pub fn encode(&self, minor: Minor, to: &mut impl BufMut) {
        if !minor.names_sessions() {
            return;
        }
        if !minor.has_chunks() {
            return CreateSessionV2_4 {
                name: FixedText(self.name.clone()),
                host: FixedText(self.host.clone()),
                live_timer: self.live_timer,
                snapshot: u32::from(self.snapshot),
            }
            .write(to);
        }
        let none = Recording {
            daemon: DaemonId([0; 16]),
            id: 0,
            created: EpochSeconds(0),
            name_has_date: false,
            current_chunk: None,
        };
        let recording = self.recording.as_ref().unwrap_or(&none);
        CreateSessionV2_11 {
            name_len: self.name.terminated_len(),
            host_len: self.host.terminated_len(),
            base_path_len: self.base_path.terminated_len(),
            live_timer: self.live_timer,
            snapshot: u8::from(self.snapshot),
            name_has_date: u8::from(recording.name_has_date),
            daemon: recording.daemon,
            id: recording.id,
            created: recording.created,
            current_chunk: Flagged(recording.current_chunk),
        }
        .write(to);
        if minor.names_trace_format() {
            self.trace_format.write(to);
        }
        self.name.write_terminated(to);
        self.host.write_terminated(to);
        self.base_path.write_terminated(to);
    }

    fn unnamed() -> Self {
        Self {
            name: Text::default(),
            host: Text::default(),
            base_path: Text::default(),
            live_timer: Micros(0),
            snapshot: false,
            recording: None,
            trace_format: TraceFormat::Ctf1,
        }
    }
}
