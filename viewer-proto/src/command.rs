//! The table of commands.

use bytes::BufMut;
use wire::{DecodeError, Field, SessionId, StreamId, wire_enum, wire_struct};

use crate::packet::GetPacket;
use crate::session::AttachSession;
use crate::version::Connect;

wire_struct! {
    /// Stands before every command. (`struct lttng_viewer_cmd`)
    #[derive(Copy)]
    pub CommandHeader [16 bytes] {
        /// Bytes of the command that follow this header.
        data_size: u64,
        /// The command's [`CommandCode`], or one that is not known here.
        code: u32,
        /// 0; not looked at.
        code_version: u32,
    }
}

wire_enum! {
    /// What a viewer can ask. (`enum lttng_viewer_command`)
    pub CommandCode {
        /// Opens the connection.
        Connect = 1,
        /// Which sessions are there?
        ListSessions = 2,
        /// Follow a session.
        AttachSession = 3,
        /// Where does a stream's next packet lie?
        GetNextIndex = 4,
        /// Bytes of a packet.
        GetPacket = 5,
        /// Metadata that this viewer has not seen.
        GetMetadata = 6,
        /// Streams that this viewer has not been told of.
        GetNewStreams = 7,
        /// Prepare for attaching.
        CreateViewerSession = 8,
        /// Follow a session no more. Since 2.8, but viewers that speak 2.4 use it.
        DetachSession = 9,
    }
}

impl CommandCode {
    /// Bytes behind the header.
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

/// One command.
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
    /// Its number in the table.
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

    /// Reads what follows the header.
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

    /// Appends the command with its header.
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
