//! The table of control commands: codes, sizes and requests.

use bytes::BufMut;
use wire::{DecodeError, Field, wire_enum, wire_struct};

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

wire_enum! {
    /// The codes of all control commands. (`enum lttcomm_relayd_command`)
    ///
    /// 4, 12, 14 and 15 are reserved, and rejected like any other unknown code.
    pub CommandCode {
        /// [`AddStream`].
        AddStream = 1,
        /// [`CreateSession`].
        CreateSession = 2,
        /// No effect; never sent.
        StartData = 3,
        /// [`Version`].
        Version = 5,
        /// [`SendMetadata`]: the only command without a reply.
        SendMetadata = 6,
        /// [`CloseStream`].
        CloseStream = 7,
        /// [`DataPending`].
        DataPending = 8,
        /// [`QuiescentControl`].
        QuiescentControl = 9,
        /// [`BeginDataPending`].
        BeginDataPending = 10,
        /// [`EndDataPending`].
        EndDataPending = 11,
        /// [`SendIndex`].
        SendIndex = 13,
        /// Ends a batch of streams.
        StreamsSent = 16,
        /// [`ResetMetadata`].
        ResetMetadata = 17,
        /// [`RotateStreams`].
        RotateStreams = 18,
        /// [`CreateTraceChunk`].
        CreateTraceChunk = 19,
        /// [`CloseTraceChunk`].
        CloseTraceChunk = 20,
        /// [`TraceChunkExists`].
        TraceChunkExists = 21,
        /// [`GetConfiguration`].
        GetConfiguration = 22,
        /// [`MakeResumable`], of the resume extension.
        MakeResumable = 0x4558_0001,
        /// [`ResumeSession`], of the resume extension.
        ResumeSession = 0x4558_0002,
        /// [`OpenStream`], of the resume extension.
        OpenStream = 0x4558_0003,
        /// [`GetPosition`], of the resume extension.
        GetPosition = 0x4558_0004,
        /// [`SkipPackets`], of the resume extension.
        SkipPackets = 0x4558_0005,
        /// Asks for the relay's clock.
        GetClock = 0x4558_0006,
    }
}

/// Maximum number of streams of one [`RotateStreams`]: more than any host has CPUs times channels.
pub const MAX_ROTATED_STREAMS: usize = 1 << 16;

impl CommandCode {
    /// The first minor version that has the command.
    #[must_use]
    pub fn since(self) -> Minor {
        Minor(match self {
            Self::SendIndex | Self::StreamsSent => 4,
            Self::ResetMetadata => 8,
            Self::RotateStreams
            | Self::CreateTraceChunk
            | Self::CloseTraceChunk
            | Self::TraceChunkExists => 11,
            Self::GetConfiguration => 12,
            _ if self.is_extension() => 12,
            _ => 1,
        })
    }

    /// Whether the command belongs to the extensions that a relay offers by
    /// [`RESUME`](crate::reply::RESUME) in its configuration.
    #[must_use]
    pub fn is_extension(self) -> bool {
        matches!(
            self,
            Self::MakeResumable
                | Self::ResumeSession
                | Self::OpenStream
                | Self::GetPosition
                | Self::SkipPackets
                | Self::GetClock
        )
    }

    /// Size of the largest form of the command without its header, in bytes. Further bytes are
    /// ignored, except after [`SendMetadata`], where they are the text.
    #[must_use]
    pub fn max_size(self) -> usize {
        match self {
            Self::AddStream => AddStream::MAX_SIZE,
            Self::CreateSession => CreateSession::MAX_SIZE,
            Self::CreateTraceChunk => CreateTraceChunk::MAX_SIZE,
            Self::RotateStreams => RotateStreams::max_size(MAX_ROTATED_STREAMS),
            Self::StartData | Self::StreamsSent | Self::GetClock => 0,
            Self::Version => Version::SIZE,
            Self::SendMetadata => SendMetadata::SIZE,
            Self::CloseStream => CloseStream::SIZE,
            Self::DataPending => DataPending::SIZE,
            Self::QuiescentControl => QuiescentControl::SIZE,
            Self::BeginDataPending => BeginDataPending::SIZE,
            Self::EndDataPending => EndDataPending::SIZE,
            Self::SendIndex => SendIndex::SIZE,
            Self::ResetMetadata => ResetMetadata::SIZE,
            Self::CloseTraceChunk => CloseTraceChunk::SIZE,
            Self::TraceChunkExists => TraceChunkExists::SIZE,
            Self::GetConfiguration => GetConfiguration::SIZE,
            Self::MakeResumable => MakeResumable::SIZE,
            Self::ResumeSession => ResumeSession::SIZE,
            Self::GetPosition => GetPosition::SIZE,
            Self::SkipPackets => SkipPackets::SIZE,
            Self::OpenStream => OpenStream::MAX_SIZE,
        }
    }
}

/// A control command, whatever version it is encoded for.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is described at its message")]
pub enum Command {
    AddStream(AddStream),
    CreateSession(CreateSession),
    /// No effect; answered with OK.
    StartData,
    Version(Version),
    /// The metadata text follows the command.
    SendMetadata(SendMetadata),
    CloseStream(CloseStream),
    DataPending(DataPending),
    QuiescentControl(QuiescentControl),
    BeginDataPending(BeginDataPending),
    EndDataPending(EndDataPending),
    SendIndex(SendIndex),
    /// Ends a batch of streams: they may be announced to viewers.
    StreamsSent,
    ResetMetadata(ResetMetadata),
    RotateStreams(RotateStreams),
    CreateTraceChunk(CreateTraceChunk),
    CloseTraceChunk(CloseTraceChunk),
    TraceChunkExists(TraceChunkExists),
    GetConfiguration(GetConfiguration),
    MakeResumable(MakeResumable),
    ResumeSession(ResumeSession),
    OpenStream(OpenStream),
    GetPosition(GetPosition),
    SkipPackets(SkipPackets),
    /// Asks for the relay's clock.
    GetClock,
}

impl Command {
    /// Code of the command.
    #[must_use]
    pub fn code(&self) -> CommandCode {
        match self {
            Self::AddStream(_) => CommandCode::AddStream,
            Self::CreateSession(_) => CommandCode::CreateSession,
            Self::StartData => CommandCode::StartData,
            Self::Version(_) => CommandCode::Version,
            Self::SendMetadata(_) => CommandCode::SendMetadata,
            Self::CloseStream(_) => CommandCode::CloseStream,
            Self::DataPending(_) => CommandCode::DataPending,
            Self::QuiescentControl(_) => CommandCode::QuiescentControl,
            Self::BeginDataPending(_) => CommandCode::BeginDataPending,
            Self::EndDataPending(_) => CommandCode::EndDataPending,
            Self::SendIndex(_) => CommandCode::SendIndex,
            Self::StreamsSent => CommandCode::StreamsSent,
            Self::ResetMetadata(_) => CommandCode::ResetMetadata,
            Self::RotateStreams(_) => CommandCode::RotateStreams,
            Self::CreateTraceChunk(_) => CommandCode::CreateTraceChunk,
            Self::CloseTraceChunk(_) => CommandCode::CloseTraceChunk,
            Self::TraceChunkExists(_) => CommandCode::TraceChunkExists,
            Self::GetConfiguration(_) => CommandCode::GetConfiguration,
            Self::MakeResumable(_) => CommandCode::MakeResumable,
            Self::ResumeSession(_) => CommandCode::ResumeSession,
            Self::GetPosition(_) => CommandCode::GetPosition,
            Self::SkipPackets(_) => CommandCode::SkipPackets,
            Self::OpenStream(_) => CommandCode::OpenStream,
            Self::GetClock => CommandCode::GetClock,
        }
    }

    /// Decodes the bytes behind the header, in the form of version `minor`. Metadata text is
    /// ignored.
    ///
    /// # Errors
    /// If the bytes are no such command.
    pub fn decode(code: CommandCode, minor: Minor, from: &[u8]) -> Result<Self, DecodeError> {
        let fixed = &mut { from };
        Ok(match code {
            CommandCode::AddStream => Self::AddStream(AddStream::decode(minor, from)?),
            CommandCode::CreateSession => Self::CreateSession(CreateSession::decode(minor, from)?),
            CommandCode::StartData => Self::StartData,
            CommandCode::Version => Self::Version(Field::read(fixed)?),
            CommandCode::SendMetadata => Self::SendMetadata(Field::read(fixed)?),
            CommandCode::CloseStream => Self::CloseStream(Field::read(fixed)?),
            CommandCode::DataPending => Self::DataPending(Field::read(fixed)?),
            CommandCode::QuiescentControl => Self::QuiescentControl(Field::read(fixed)?),
            CommandCode::BeginDataPending => Self::BeginDataPending(Field::read(fixed)?),
            CommandCode::EndDataPending => Self::EndDataPending(Field::read(fixed)?),
            CommandCode::SendIndex => Self::SendIndex(SendIndex::decode(minor, from)?),
            CommandCode::StreamsSent => Self::StreamsSent,
            CommandCode::ResetMetadata => Self::ResetMetadata(Field::read(fixed)?),
            CommandCode::RotateStreams => Self::RotateStreams(RotateStreams::decode(from)?),
            CommandCode::CreateTraceChunk => {
                Self::CreateTraceChunk(CreateTraceChunk::decode(from)?)
            }
            CommandCode::CloseTraceChunk => Self::CloseTraceChunk(Field::read(fixed)?),
            CommandCode::TraceChunkExists => Self::TraceChunkExists(Field::read(fixed)?),
            CommandCode::GetConfiguration => Self::GetConfiguration(Field::read(fixed)?),
            CommandCode::MakeResumable => Self::MakeResumable(Field::read(fixed)?),
            CommandCode::ResumeSession => Self::ResumeSession(Field::read(fixed)?),
            CommandCode::GetPosition => Self::GetPosition(Field::read(fixed)?),
            CommandCode::SkipPackets => Self::SkipPackets(Field::read(fixed)?),
            CommandCode::OpenStream => Self::OpenStream(OpenStream::decode(minor, from)?),
            CommandCode::GetClock => Self::GetClock,
        })
    }

    /// Encodes the bytes behind the header, in the form of version `minor`.
    pub fn encode(&self, minor: Minor, to: &mut impl BufMut) {
        match self {
            Self::AddStream(command) => command.encode(minor, to),
            Self::CreateSession(command) => command.encode(minor, to),
            Self::StartData | Self::StreamsSent | Self::GetClock => {}
            Self::Version(command) => command.write(to),
            Self::SendMetadata(command) => command.write(to),
            Self::CloseStream(command) => command.write(to),
            Self::DataPending(command) => command.write(to),
            Self::QuiescentControl(command) => command.write(to),
            Self::BeginDataPending(command) => command.write(to),
            Self::EndDataPending(command) => command.write(to),
            Self::SendIndex(command) => command.encode(minor, to),
            Self::ResetMetadata(command) => command.write(to),
            Self::RotateStreams(command) => command.encode(to),
            Self::CreateTraceChunk(command) => command.encode(to),
            Self::CloseTraceChunk(command) => command.write(to),
            Self::TraceChunkExists(command) => command.write(to),
            Self::GetConfiguration(command) => command.write(to),
            Self::MakeResumable(command) => command.write(to),
            Self::ResumeSession(command) => command.write(to),
            Self::GetPosition(command) => command.write(to),
            Self::SkipPackets(command) => command.write(to),
            Self::OpenStream(command) => command.encode(minor, to),
        }
    }
}
