//! The table of commands: codes, sizes and requests.

use bytes::BufMut;
use wire::{DecodeError, Field, SessionId, StreamId, wire_enum, wire_struct};

use crate::packet::GetPacket;
use crate::session::AttachSession;
use crate::version::Connect;

wire_struct! {
    /// The header of every command. (`struct lttng_viewer_cmd`)
    #[derive(Copy)]
    pub CommandHeader [16 bytes] {
        /// Bytes of the command that follow this header.
        data_size: u64,
        /// The command's [`CommandCode`], or an unknown code.
        code: u32,
        /// 0; ignored.
        code_version: u32,
    }
}

wire_enum! {
    /// The codes of all commands. (`enum lttng_viewer_command`)
    pub CommandCode {
        /// Opens the connection (handshake).
        Connect = 1,
        /// Lists all sessions.
        ListSessions = 2,
        /// Attaches to a session.
        AttachSession = 3,
        /// Requests the index of a stream's next packet.
        GetNextIndex = 4,
        /// Requests bytes of a packet.
        GetPacket = 5,
        /// Requests metadata that the viewer has not been sent.
        GetMetadata = 6,
        /// Requests streams that have not been announced to the viewer.
        GetNewStreams = 7,
        /// Must precede `ATTACH_SESSION`.
        CreateViewerSession = 8,
        /// Detaches from a session. Since 2.8, but viewers with protocol 2.4 use it.
        DetachSession = 9,
    }
}

impl CommandCode {
    /// Size of the request without the header, in bytes.
    #[must_use]
    pub fn size(self) -> usize {
        match self {
            Self::Connect => Connect::SIZE,
            Self::AttachSession => AttachSession::SIZE,
            Self::GetPacket => GetPacket::SIZE,
            Self::GetNextIndex | Self::GetMetadata => StreamId::SIZE,
            Self::GetNewStreams | Self::DetachSession => SessionId::SIZE,
            Self::ListSessions | Self::CreateViewerSession => 0,
        }
    }
}

/// A command with its request.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is described in the table")]
pub enum Command {
    Connect(Connect),
    ListSessions,
    AttachSession(AttachSession),
    GetNextIndex(StreamId),
    GetPacket(GetPacket),
    GetMetadata(StreamId),
    GetNewStreams(SessionId),
    CreateViewerSession,
    DetachSession(SessionId),
}

impl Command {
    /// Code of the command.
    #[must_use]
    pub fn code(&self) -> CommandCode {
        match self {
            Self::Connect(_) => CommandCode::Connect,
            Self::ListSessions => CommandCode::ListSessions,
            Self::AttachSession(_) => CommandCode::AttachSession,
            Self::GetNextIndex(_) => CommandCode::GetNextIndex,
            Self::GetPacket(_) => CommandCode::GetPacket,
            Self::GetMetadata(_) => CommandCode::GetMetadata,
            Self::GetNewStreams(_) => CommandCode::GetNewStreams,
            Self::CreateViewerSession => CommandCode::CreateViewerSession,
            Self::DetachSession(_) => CommandCode::DetachSession,
        }
    }

    /// Decodes the request behind the header.
    ///
    /// # Errors
    /// If there are too few bytes.
    pub fn decode(code: CommandCode, mut from: &[u8]) -> Result<Self, DecodeError> {
        let from = &mut from;
        Ok(match code {
            CommandCode::Connect => Self::Connect(Field::read(from)?),
            CommandCode::ListSessions => Self::ListSessions,
            CommandCode::AttachSession => Self::AttachSession(Field::read(from)?),
            CommandCode::GetNextIndex => Self::GetNextIndex(Field::read(from)?),
            CommandCode::GetPacket => Self::GetPacket(Field::read(from)?),
            CommandCode::GetMetadata => Self::GetMetadata(Field::read(from)?),
            CommandCode::GetNewStreams => Self::GetNewStreams(Field::read(from)?),
            CommandCode::CreateViewerSession => Self::CreateViewerSession,
            CommandCode::DetachSession => Self::DetachSession(Field::read(from)?),
        })
    }

    /// Encodes the command with its header.
    pub fn encode(&self, to: &mut impl BufMut) {
        let code = self.code();
        CommandHeader {
            data_size: code.size() as u64,
            code: code.code(),
            code_version: 0,
        }
        .write(to);
        match self {
            Self::Connect(connect) => connect.write(to),
            Self::ListSessions | Self::CreateViewerSession => {}
            Self::AttachSession(attach) => attach.write(to),
            Self::GetPacket(packet) => packet.write(to),
            Self::GetNextIndex(stream) | Self::GetMetadata(stream) => stream.write(to),
            Self::GetNewStreams(session) | Self::DetachSession(session) => session.write(to),
        }
    }
}
