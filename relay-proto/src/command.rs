//! The table of control commands.

use bytes::BufMut;
use wire::{DecodeError, Field, wire_enum, wire_struct};

use crate::chunk::{CloseTraceChunk, CreateTraceChunk, RotateStreams, TraceChunkExists};
use crate::index::SendIndex;
use crate::metadata::{ResetMetadata, SendMetadata};
use crate::session::CreateSession;
use crate::stream::{
    AddStream, BeginDataPending, CloseStream, DataPending, EndDataPending, QuiescentControl,
};
use crate::{Minor, Version};

wire_struct! {
    /// Stands before every command. (`struct lttcomm_relayd_hdr`)
    #[derive(Copy)]
    pub ControlHeader [24 bytes] {
        /// 0; not looked at.
        circuit: u64,
        /// Bytes of the command that follow this header.
        data_size: u64,
        /// The command's [`CommandCode`], or one that is not known here.
        code: u32,
        /// 0; not looked at.
        code_version: u32,
    }

    /// Asks for the relay's configuration. (`struct lttcomm_relayd_get_configuration`, 2.12)
    #[derive(Copy)]
    pub GetConfiguration [8 bytes] {
        /// 0; no question is defined.
        query: u64,
    }
}

wire_enum! {
    /// What a control connection can be asked. (`enum lttcomm_relayd_command`)
    ///
    /// 4, 12, 14 and 15 are reserved, and refused like any other unknown number.
    pub CommandCode {
        /// [`AddStream`].
        AddStream = 1,
        /// [`CreateSession`].
        CreateSession = 2,
        /// Without meaning, never sent.
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
        /// A batch of streams is complete.
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
    }
}

/// Most streams that one [`RotateStreams`] may name: more than any host has CPUs times channels.
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
            _ => 1,
        })
    }

    /// The most bytes behind the header that the command can mean anything by. A peer that sends
    /// more is heard, and the rest ignored. For metadata the text comes on top.
    #[must_use]
    pub fn most(self) -> usize {
        match self {
            Self::AddStream => AddStream::MOST,
            Self::CreateSession => CreateSession::MOST,
            Self::CreateTraceChunk => CreateTraceChunk::MOST,
            Self::RotateStreams => RotateStreams::most(MAX_ROTATED_STREAMS),
            Self::StartData | Self::StreamsSent => 0,
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
        }
    }
}

/// One control command, whatever version it came in.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is described at its message")]
pub enum Command {
    AddStream(AddStream),
    CreateSession(CreateSession),
    /// Without meaning; answered all the same.
    StartData,
    Version(Version),
    /// The text follows the command.
    SendMetadata(SendMetadata),
    CloseStream(CloseStream),
    DataPending(DataPending),
    QuiescentControl(QuiescentControl),
    BeginDataPending(BeginDataPending),
    EndDataPending(EndDataPending),
    SendIndex(SendIndex),
    /// A batch of streams is complete: viewers may be told of them.
    StreamsSent,
    ResetMetadata(ResetMetadata),
    RotateStreams(RotateStreams),
    CreateTraceChunk(CreateTraceChunk),
    CloseTraceChunk(CloseTraceChunk),
    TraceChunkExists(TraceChunkExists),
    GetConfiguration(GetConfiguration),
}

impl Command {
    /// Its number in the table.
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
        }
    }

    /// Reads what follows the header, in the form that `minor` calls for. Metadata text is not
    /// looked at.
    ///
    /// # Errors
    /// If the bytes are not that command.
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
        })
    }

    /// Appends what follows the header, in the form that `minor` calls for.
    pub fn encode(&self, minor: Minor, to: &mut impl BufMut) {
        match self {
            Self::AddStream(command) => command.encode(minor, to),
            Self::CreateSession(command) => command.encode(minor, to),
            Self::StartData | Self::StreamsSent => {}
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
        }
    }
}
