//! Listing sessions, and attaching to them.

use bytes::BufMut;
use wire::{DecodeError, Field, FixedText, Micros, SessionId, Text, wire_enum, wire_struct};

use crate::Minor;

/// A session in the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedSession {
    /// Its number at the relay.
    pub session: SessionId,
    /// How often it sends what it has. None: it cannot be followed.
    pub live_timer: Micros,
    /// Viewers attached to it.
    pub viewers: u32,
    /// Its streams, metadata streams included.
    pub streams: u32,
    /// The traced host.
    pub host: Text,
    /// The session's name.
    pub name: Text,
    /// What its trace is written in. CTF 1.8 if the relay is too old to say.
    pub trace_format: TraceFormat,
}

wire_enum! {
    /// What a trace is written in. The numbers differ from those of the producers' protocol.
    pub TraceFormat {
        /// CTF 1.8, metadata in TSDL.
        Ctf1 = 0,
        /// CTF 2, metadata in JSON.
        Ctf2 = 1,
    }
}

wire_struct! {
    /// What both forms of a listed session begin with. (`struct lttng_viewer_session`)
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

    /// Lengths of the names without NUL, since 2.15. The names follow.
    NamesV2_15 [12 bytes] {
        host_len: u32,
        name_len: u32,
        trace_format: TraceFormat,
    }

    /// How many sessions follow. (`struct lttng_viewer_list_sessions`)
    #[derive(Copy)]
    pub SessionList [4 bytes] {
        /// How many.
        count: u32,
    }
}

/// Longest name that a viewer takes from a relay.
const NAME_LIMIT: u32 = 4096;

impl ListedSession {
    /// Reads the form that `minor` calls for.
    ///
    /// # Errors
    /// If the bytes are not that form.
    pub fn read(minor: Minor, from: &mut &[u8]) -> Result<Self, DecodeError> {
        let mut at = *from;
        let head = ListedHead::read(&mut at)?;
        let (host, name, trace_format) = if minor.names_trace_format() {
            let names = NamesV2_15::read(&mut at)?;
            let host = counted(&mut at, names.host_len, "host name")?;
            let name = counted(&mut at, names.name_len, "session name")?;
            (host, name, names.trace_format)
        } else {
            let names = NamesV2_4::read(&mut at)?;
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

    /// Appends the form that `minor` calls for. Names too long for it are cut.
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
            host_len: self.host.terminated_len() - 1,
            name_len: self.name.terminated_len() - 1,
            trace_format: self.trace_format,
        }
        .write(to);
        to.put_slice(self.host.as_bytes());
        to.put_slice(self.name.as_bytes());
    }
}

fn counted(from: &mut &[u8], length: u32, what: &'static str) -> Result<Text, DecodeError> {
    if length > NAME_LIMIT {
        let (got, most) = (u64::from(length), u64::from(NAME_LIMIT));
        return Err(DecodeError::Length {
            what,
            got,
            min: 0,
            max: most,
        });
    }
    let need = length as usize;
    let Some((text, rest)) = from.split_at_checked(need) else {
        return Err(DecodeError::Truncated {
            what,
            need,
            have: from.len(),
        });
    };
    *from = rest;
    Ok(Text::from(text))
}

wire_struct! {
    /// Follow a session. (`struct lttng_viewer_attach_session_request`)
    #[derive(Copy)]
    pub AttachSession [20 bytes] {
        /// The session.
        session: SessionId,
        /// 0; not looked at.
        offset: u64,
        /// A [`Seek`], or one that is not known here.
        seek: u32,
    }

    /// Answers `ATTACH_SESSION`; as many [`StreamRecord`](crate::stream::StreamRecord)s follow.
    /// (`struct lttng_viewer_attach_session_response`)
    #[derive(Copy)]
    pub Attached [8 bytes] {
        /// How it ended.
        status: AttachStatus,
        /// Streams that follow. 0 unless it was done.
        count: u32,
    }
}

wire_enum! {
    /// Where reading starts in the streams that there are when a viewer attaches. Streams that
    /// come later are read from their beginning. (`enum lttng_viewer_seek`)
    pub Seek {
        /// At the oldest packet still held.
        Beginning = 1,
        /// At the next packet to come.
        Last = 2,
    }

    /// (`enum lttng_viewer_attach_return_code`)
    pub AttachStatus {
        /// Attached.
        Ok = 1,
        /// This viewer is attached already.
        Already = 2,
        /// There is no such session, or it has ended.
        Unknown = 3,
        /// The session has no live timer.
        NotLive = 4,
        /// Neither of the [`Seek`]s.
        SeekError = 5,
        /// `CREATE_VIEWER_SESSION` has not been sent.
        NoViewerSession = 6,
    }

    /// Answers `CREATE_VIEWER_SESSION`. (`enum lttng_viewer_create_session_return_code`)
    pub CreateStatus {
        /// Created.
        Ok = 1,
        /// It could not be.
        Failed = 2,
    }

    /// Answers `DETACH_SESSION`. (`enum lttng_viewer_detach_session_return_code`)
    pub DetachStatus {
        /// Detached.
        Ok = 1,
        /// There is no such session.
        Unknown = 2,
        /// This viewer was not attached to it.
        NotAttached = 3,
    }
}
