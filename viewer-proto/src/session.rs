//! Listing sessions, attaching to them, and detaching.

use bytes::BufMut;
use wire::{DecodeError, Field, FixedText, Micros, SessionId, Text, wire_enum, wire_struct};

use crate::Minor;

/// A session of the reply to `LIST_SESSIONS`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedSession {
    /// Id of the session, assigned by the relay.
    pub session: SessionId,
    /// Live timer period. A session without one cannot be attached to.
    pub live_timer: Micros,
    /// Number of viewers attached to it.
    pub viewers: u32,
    /// Number of its streams, including metadata streams.
    pub streams: u32,
    /// Name of the traced host.
    pub host: Text,
    /// Name of the session.
    pub name: Text,
    /// Trace format. CTF 1.8 below protocol 2.15, which has no such field.
    pub trace_format: TraceFormat,
}

wire_enum! {
    /// Trace format. The values differ from those of `relay-proto`.
    pub TraceFormat {
        /// CTF 1.8, metadata in TSDL.
        Ctf1 = 0,
        /// CTF 2, metadata in JSON.
        Ctf2 = 1,
    }
}

wire_struct! {
    /// The common first part of all forms of a listed session. (`struct lttng_viewer_session`)
    ListedHead [20 bytes] {
        session: SessionId,
        live_timer: Micros,
        viewers: u32,
        streams: u32,
    }

    /// The names, before 2.15.
    NamesV2_4 [319 bytes] {
        host: FixedText<64>,
        name: FixedText<255>,
    }

    /// Lengths of the names in bytes, without NUL, since 2.15. The names follow.
    NamesV2_15 [12 bytes] {
        host_len: u32,
        name_len: u32,
        trace_format: TraceFormat,
    }

    /// Answers `LIST_SESSIONS`; as many [`ListedSession`]s follow.
    /// (`struct lttng_viewer_list_sessions`)
    #[derive(Copy)]
    pub SessionList [4 bytes] {
        /// Number of sessions that follow.
        count: u32,
    }
}

/// Longest name that a viewer accepts, in bytes.
const MAX_NAME_BYTES: u32 = 4096;

impl ListedSession {
    /// Decodes the form of version `minor`.
    ///
    /// # Errors
    /// If the bytes do not have that form.
    pub fn read(minor: Minor, from: &mut &[u8]) -> Result<Self, DecodeError> {
        let mut at = *from;
        let head = ListedHead::read(&mut at)?;
        let (host, name, trace_format) = if minor.names_trace_format() {
            let names = NamesV2_15::read(&mut at)?;
            let host = Text::read(&mut at, names.host_len, "host name", 0..=MAX_NAME_BYTES)?;
            let name = Text::read(&mut at, names.name_len, "session name", 0..=MAX_NAME_BYTES)?;
            (host, name, names.trace_format)
        } else {
            let names = NamesV2_4::read(&mut at)?;
            // Not `terminated`: a name that fills its array is shown as it is.
            (names.host.0, names.name.0, TraceFormat::Ctf1)
        };
        *from = at;
        Ok(Self {
            session: head.session,
            live_timer: head.live_timer,
            viewers: head.viewers,
            streams: head.streams,
            host,
            name,
            trace_format,
        })
    }

    /// Encodes the form of version `minor`. Names that are too long for it are truncated.
    pub fn write(&self, minor: Minor, to: &mut impl BufMut) {
        ListedHead {
            session: self.session,
            live_timer: self.live_timer,
            viewers: self.viewers,
            streams: self.streams,
        }
        .write(to);
        if !minor.names_trace_format() {
            return NamesV2_4 {
                host: FixedText(self.host.clone()),
                name: FixedText(self.name.clone()),
            }
            .write(to);
        }
        NamesV2_15 {
            // No underflow: the length counts the NUL, which is not sent here.
            host_len: self.host.terminated_len() - 1,
            name_len: self.name.terminated_len() - 1,
            trace_format: self.trace_format,
        }
        .write(to);
        to.put_slice(self.host.as_bytes());
        to.put_slice(self.name.as_bytes());
    }
}

wire_struct! {
    /// Attaches to a session. (`struct lttng_viewer_attach_session_request`)
    #[derive(Copy)]
    pub AttachSession [20 bytes] {
        /// Id of the session.
        session: SessionId,
        /// 0; ignored.
        offset: u64,
        /// A [`Seek`], or an unknown value.
        seek: u32,
    }

    /// Answers `ATTACH_SESSION`; as many [`StreamRecord`](crate::stream::StreamRecord)s follow.
    /// (`struct lttng_viewer_attach_session_response`)
    #[derive(Copy)]
    pub Attached [8 bytes] {
        /// Result of the command.
        status: AttachStatus,
        /// Number of streams that follow. 0 unless `status` is `Ok`.
        count: u32,
    }
}

wire_enum! {
    /// Where a viewer starts to read streams that exist when it attaches. Later streams are read
    /// from their beginning. (`enum lttng_viewer_seek`)
    pub Seek {
        /// At the oldest packet that is stored.
        Beginning = 1,
        /// At the next packet that arrives.
        Last = 2,
    }

    /// (`enum lttng_viewer_attach_return_code`)
    pub AttachStatus {
        /// Attached.
        Ok = 1,
        /// The viewer is already attached to the session.
        Already = 2,
        /// The session is unknown, or over.
        Unknown = 3,
        /// The session has no live timer.
        NotLive = 4,
        /// `seek` is unknown.
        SeekError = 5,
        /// `CREATE_VIEWER_SESSION` has not been sent.
        NoViewerSession = 6,
    }

    /// Answers `CREATE_VIEWER_SESSION`. (`enum lttng_viewer_create_session_return_code`)
    pub CreateStatus {
        /// Created.
        Ok = 1,
        /// Not created.
        Failed = 2,
    }

    /// Answers `DETACH_SESSION`. (`enum lttng_viewer_detach_session_return_code`)
    pub DetachStatus {
        /// Detached.
        Ok = 1,
        /// The session is unknown.
        Unknown = 2,
        /// The viewer was not attached to the session.
        NotAttached = 3,
    }
}
