//! The table of commands: codes and requests.

use bytes::BufMut;
use wire::{DecodeError, Field, SessionId, StreamId, wire_commands, wire_struct};

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

wire_commands! {
    /// The codes of all commands. (`enum lttng_viewer_command`)
    pub enum CommandCode;
    /// A command with its request, which has the same form in every version.
    pub enum Command, form ();

    /// Opens the connection (handshake).
    Connect(Connect) = 1;
    /// Lists all sessions.
    ListSessions = 2;
    /// Attaches to a session.
    AttachSession(AttachSession) = 3;
    /// Requests the index of a stream's next packet.
    GetNextIndex(StreamId) = 4;
    /// Requests bytes of a packet.
    GetPacket(GetPacket) = 5;
    /// Requests metadata that the viewer has not been sent.
    GetMetadata(StreamId) = 6;
    /// Requests streams that have not been announced to the viewer.
    GetNewStreams(SessionId) = 7;
    /// Must precede `ATTACH_SESSION`.
    CreateViewerSession = 8;
    /// Detaches from a session. Since 2.8, but viewers with protocol 2.4 use it.
    DetachSession(SessionId) = 9;
}

impl CommandCode {
    /// Size of the request without the header, in bytes.
    #[must_use]
    pub fn size(self) -> usize {
        self.request_size()
    }
}

impl Command {
    /// Decodes the request after the header.
    ///
    /// # Errors
    /// If there are too few bytes.
    pub fn decode(code: CommandCode, from: &[u8]) -> Result<Self, DecodeError> {
        Self::decode_request(code, (), from)
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
        self.encode_request((), to);
    }
}
