//! The table of control commands: codes, versions and requests.

use bytes::BufMut;
use wire::{DecodeError, wire_commands, wire_struct};

pub use crate::chunk::MAX_ROTATED_STREAMS;
use crate::chunk::{CloseTraceChunk, CreateTraceChunk, RotateStreams, TraceChunkExists};
use crate::index::SendIndex;
use crate::metadata::{ResetMetadata, SendMetadata};
use crate::resume::{GetPosition, MakeResumable, OpenStream, ResumeSession, SkipPackets};
use crate::session::CreateSession;
use crate::stream::{
    AddStream, BeginDataPending, CloseStream, DataPending, EndDataPending, QuiescentControl,
};
use crate::{Minor, Version};

wire_struct! {
    /// The header of every command. (`struct lttcomm_relayd_hdr`)
    #[derive(Copy)]
    pub ControlHeader [24 bytes] {
        /// Id of a circuit, which no relay has used yet: sent as 0, and ignored.
        circuit: u64,
        /// Bytes of the command that follow this header.
        data_size: u64,
        /// The command's [`CommandCode`], or an unknown code.
        code: u32,
        /// Version of the command, of which there is one: sent as 0, and ignored.
        code_version: u32,
    }

    /// Asks for the relay's configuration. (`struct lttcomm_relayd_get_configuration`, 2.12)
    #[derive(Copy)]
    pub GetConfiguration [8 bytes] {
        /// 0; no other query is defined.
        query: u64,
    }
}

impl ControlHeader {
    /// Creates the header of a command of which `data_size` bytes follow.
    #[must_use]
    pub fn new(code: CommandCode, data_size: u64) -> Self {
        Self {
            circuit: 0,
            data_size,
            code: code.code(),
            code_version: 0,
        }
    }
}

/// The table of commands, [`wire_commands!`], with one more column: the first minor version that
/// has the command.
macro_rules! commands {
    ($(
        $(#[$meta:meta])* $name:ident $( ($request:ty) )? = $code:literal, since $minor:literal;
    )*) => {
        wire_commands! {
            /// The codes of all control commands. (`enum lttcomm_relayd_command`)
            ///
            /// 4, 12, 14 and 15 are reserved, and rejected like any other unknown code.
            pub enum CommandCode;
            /// A control command, whatever version it is encoded for.
            pub enum Command, form Minor;

            $( $(#[$meta])* $name $( ($request) )? = $code; )*
        }

        impl CommandCode {
            /// The first minor version that has the command.
            #[must_use]
            pub fn since(self) -> Minor {
                Minor(match self {
                    $( Self::$name => $minor, )*
                })
            }
        }
    };
}

commands! {
    /// Adds a stream to the session.
    AddStream(AddStream) = 1, since 1;
    /// Opens the session of the connection.
    CreateSession(CreateSession) = 2, since 1;
    /// No effect; never sent, and answered with OK.
    StartData = 3, since 1;
    /// Agrees on a version, before any other command.
    Version(Version) = 5, since 1;
    /// Appends metadata, the text of which follows the command. The only command without a reply.
    SendMetadata(SendMetadata) = 6, since 1;
    /// Closes a stream after its last packet.
    CloseStream(CloseStream) = 7, since 1;
    /// Checks whether packets of a stream are still to arrive.
    DataPending(DataPending) = 8, since 1;
    /// Checks, in a round of data pending checks, whether metadata has arrived.
    QuiescentControl(QuiescentControl) = 9, since 1;
    /// Begins a round of data pending checks.
    BeginDataPending(BeginDataPending) = 10, since 1;
    /// Ends a round of data pending checks.
    EndDataPending(EndDataPending) = 11, since 1;
    /// Adds the index of a packet, or a beacon.
    SendIndex(SendIndex) = 13, since 4;
    /// Ends a batch of streams: they may be announced to viewers.
    StreamsSent = 16, since 4;
    /// Discards the metadata of a stream, all of which is sent again.
    ResetMetadata(ResetMetadata) = 17, since 8;
    /// Moves streams to another chunk, or to none.
    RotateStreams(RotateStreams) = 18, since 11;
    /// Creates a chunk and makes it current.
    CreateTraceChunk(CreateTraceChunk) = 19, since 11;
    /// Closes a chunk.
    CloseTraceChunk(CloseTraceChunk) = 20, since 11;
    /// Checks whether a chunk is still written to.
    TraceChunkExists(TraceChunkExists) = 21, since 11;
    /// Asks for the relay's configuration.
    GetConfiguration(GetConfiguration) = 22, since 12;

    /// Makes the session resumable. (resume extension)
    MakeResumable(MakeResumable) = 0x4558_0001, since 12;
    /// Continues a resumable session. (resume extension)
    ResumeSession(ResumeSession) = 0x4558_0002, since 12;
    /// Adds a stream to a resumable session, or continues it. (resume extension)
    OpenStream(OpenStream) = 0x4558_0003, since 12;
    /// Asks which packets of a stream the relay has. (resume extension)
    GetPosition(GetPosition) = 0x4558_0004, since 12;
    /// Gives up packets that have not arrived. (resume extension)
    SkipPackets(SkipPackets) = 0x4558_0005, since 12;
    /// Asks for the relay's clock. (extension)
    GetClock = 0x4558_0006, since 12;
}

/// The upper half of the codes of extensions: "EX".
const EXTENSION: u32 = 0x4558;

impl CommandCode {
    /// Whether the command belongs to the extensions that a relay offers by
    /// [`RESUME`](crate::reply::RESUME) in its configuration.
    #[must_use]
    pub fn is_extension(self) -> bool {
        // LTTng counts its codes from 1, so that these do not meet.
        self.code() >> 16 == EXTENSION
    }

    /// Size of the largest form of the command without its header, in bytes. Further bytes are
    /// ignored, except after [`SendMetadata`], where they are the text.
    #[must_use]
    pub fn max_size(self) -> usize {
        self.request_size()
    }
}

impl Command {
    /// Decodes the bytes after the header, in the form of version `minor`. Metadata text is
    /// ignored.
    ///
    /// # Errors
    /// If the bytes are no such command.
    pub fn decode(code: CommandCode, minor: Minor, from: &[u8]) -> Result<Self, DecodeError> {
        Self::decode_request(code, minor, from)
    }

    /// Encodes the bytes after the header, in the form of version `minor`.
    pub fn encode(&self, minor: Minor, to: &mut impl BufMut) {
        self.encode_request(minor, to);
    }
}
