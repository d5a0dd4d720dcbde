//! `CREATE_SESSION`, in its four forms.

use std::fmt;

use bytes::BufMut;
use wire::{
    ChunkId, DecodeError, EpochSeconds, Field, FixedText, Flagged, Message, Micros, Text,
    wire_enum, wire_struct,
};

use crate::Minor;

/// Opens a session; once per control connection. (`CREATE_SESSION`)
///
/// The default is the form of version 2.1, which has no fields.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CreateSession {
    /// Name of the session. Empty before 2.4.
    pub name: Text,
    /// Name of the traced host.
    pub host: Text,
    /// Directory of the trace that the user has chosen, relative to the host's directory. Since
    /// 2.11; empty for none.
    pub base_path: Text,
    /// Live timer period. None for a session that is not live.
    pub live_timer: Micros,
    /// Whether the session is a single snapshot, whose streams are not announced and have no
    /// indexes.
    pub snapshot: bool,
    /// The recording that the session belongs to. None before 2.11.
    pub recording: Option<Recording>,
    /// Trace format. CTF 1.8 before 2.15.
    pub trace_format: TraceFormat,
}

/// A recording of a session daemon. Its kernel and user-space tracing are separate sessions at the
/// relay.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recording {
    /// Id of the session daemon.
    pub daemon: DaemonId,
    /// Id of the recording at its session daemon.
    pub id: u64,
    /// Time of its creation.
    pub created: EpochSeconds,
    /// Whether the session's name already ends in that date, as automatic names do.
    pub name_has_date: bool,
    /// Id of the chunk, created on another connection, that the session starts in.
    pub current_chunk: Option<ChunkId>,
}

/// Id of a session daemon, which is different each time that it starts.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct DaemonId(pub [u8; 16]);

impl DaemonId {
    /// Whether the id is nil, which the protocol forbids.
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
    /// Trace format.
    #[derive(Default)]
    pub TraceFormat {
        /// CTF 1.8, metadata in TSDL.
        #[default]
        Ctf1 = 1,
        /// CTF 2, metadata in JSON.
        Ctf2 = 2,
    }
}

/// Longest session and host name, and longest base path, in bytes, including the NUL.
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
        /// Lengths in bytes, including the NUL.
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

impl Message<Minor> for CreateSession {
    const MAX_SIZE: usize = CreateSessionV2_11::SIZE
        + TraceFormat::SIZE
        + (NAME_LIMIT + HOST_LIMIT + PATH_LIMIT) as usize;

    fn decode(minor: Minor, mut from: &[u8]) -> Result<Self, DecodeError> {
        let from = &mut from;
        if !minor.names_sessions() {
            return Ok(Self::default());
        }
        if !minor.has_chunks() {
            let old = CreateSessionV2_4::read(from)?;
            return Ok(Self {
                name: old.name.terminated("session name")?,
                host: old.host.terminated("host name")?,
                live_timer: old.live_timer,
                snapshot: old.snapshot != 0,
                ..Self::default()
            });
        }
        let head = CreateSessionV2_11::read(from)?;
        // Since 2.15 the format stands between the fixed part and the names, whose lengths are in
        // the fixed part.
        let trace_format = if minor.names_trace_format() {
            TraceFormat::read(from)?
        } else {
            TraceFormat::default()
        };
        Ok(Self {
            // Lengths count the NUL, so that 1 is an empty name.
            name: Text::read_terminated(from, head.name_len, "session name", 1..=NAME_LIMIT)?,
            host: Text::read_terminated(from, head.host_len, "host name", 1..=HOST_LIMIT)?,
            base_path: Text::read_optional(from, head.base_path_len, "base path", PATH_LIMIT)?
                .unwrap_or_default(),
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

    fn encode(&self, minor: Minor, to: &mut impl BufMut) {
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
        // The form since 2.11 cannot leave it out.
        let none = Recording::default();
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
}
