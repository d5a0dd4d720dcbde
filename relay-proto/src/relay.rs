//! The trait that [`server`](crate::server) calls: what a relay does for the producer at the other
//! end of a control connection.

use thiserror::Error;
use wire::{SessionId, StreamId, Text};

use crate::chunk::{CloseTraceChunk, CreateTraceChunk, RotateStreams, TraceChunkExists};
use crate::index::SendIndex;
use crate::metadata::{ResetMetadata, SendMetadata};
use crate::reply::RelayClock;
use crate::resume::{MakeResumable, OpenStream, ResumeSession, SkipPackets};
use crate::session::CreateSession;
use crate::stream::{AddStream, CloseStream, DataPending};
use crate::{Minor, ReturnCode};

/// The refusal of a command.
#[derive(Debug, Error)]
#[error("{why}")]
pub struct Refusal {
    /// Code that is replied to the producer.
    pub code: ReturnCode,
    /// Reason, for the log.
    pub why: Box<dyn std::error::Error + Send + Sync>,
}

impl Refusal {
    /// Creates a refusal with this code for the producer, and the reason for the log.
    pub fn new(code: ReturnCode, why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self {
            code,
            why: why.into(),
        }
    }
}

/// Executes the commands of one control connection. [`create_session`](Self::create_session) comes
/// first; all other commands concern its session only: a stream of another session must be refused
/// like an unknown one.
pub trait Relay {
    /// Whether recordings may be cleared (`lttng clear`).
    fn clear_allowed(&self) -> bool;

    /// Opens the connection's session. Called once.
    ///
    /// # Errors
    /// If the session cannot be opened. The connection is closed.
    fn create_session(
        &mut self,
        minor: Minor,
        session: CreateSession,
    ) -> Result<SessionCreated, Refusal>;

    /// Adds a stream.
    ///
    /// # Errors
    /// If the stream cannot be added. The connection stays open.
    fn add_stream(&mut self, stream: AddStream) -> Result<StreamId, Refusal>;

    /// Publishes the streams added so far to viewers.
    ///
    /// # Errors
    /// An error of this command, or of any of those below, closes the connection.
    fn streams_sent(&mut self) -> Result<(), Refusal>;

    /// Begins a piece of metadata: `length` bytes of text follow, then `metadata.padding` zero
    /// bytes are to be appended.
    fn begin_metadata(&mut self, metadata: SendMetadata, length: u64) -> Result<(), Refusal>;

    /// Appends some of the announced text.
    fn metadata_text(&mut self, text: &[u8]) -> Result<(), Refusal>;

    /// Ends the piece of metadata: all of its text has arrived.
    fn end_metadata(&mut self) -> Result<(), Refusal>;

    /// Discards the metadata written so far. All of it will be sent again.
    fn reset_metadata(&mut self, reset: ResetMetadata) -> Result<(), Refusal>;

    /// Adds the index of a packet, or a beacon.
    fn add_index(&mut self, index: SendIndex) -> Result<(), Refusal>;

    /// Closes a stream after its last packet.
    fn close_stream(&mut self, close: CloseStream) -> Result<(), Refusal>;

    /// Begins a round of data pending checks.
    fn begin_data_pending(&mut self);

    /// Whether packets of a stream are still to arrive. None if the stream is unknown.
    fn data_pending(&mut self, request: DataPending) -> Option<bool>;

    /// Marks a metadata stream as checked in the round: its metadata arrives on this connection,
    /// and so has arrived.
    fn quiescent_control(&mut self, stream: StreamId);

    /// Ends the round. Returns whether packets of any stream are still to arrive.
    fn end_data_pending(&mut self) -> bool;

    /// Creates a chunk and makes it current.
    fn create_chunk(&mut self, chunk: CreateTraceChunk) -> Result<(), Refusal>;

    /// Moves streams to another chunk, or to none.
    fn rotate_streams(&mut self, rotation: RotateStreams) -> Result<(), Refusal>;

    /// Closes a chunk. Returns its final path, relative to the relay's output.
    fn close_chunk(&mut self, close: CloseTraceChunk) -> Result<Text, Refusal>;

    /// Whether a chunk is still written to.
    fn chunk_exists(&mut self, request: TraceChunkExists) -> bool;

    /// Whether the relay has the resume extension, which consists of the methods below. They are
    /// not called otherwise.
    fn has_resume(&self) -> bool {
        false
    }

    /// Keeps the session when its connections are lost.
    ///
    /// # Errors
    /// An error closes the connection, here and in [`skip_packets`](Self::skip_packets), except
    /// that with [`ReturnCode::EXISTS`] the session stays open and is not kept.
    fn make_resumable(&mut self, _request: MakeResumable) -> Result<(), Refusal> {
        Err(no_extension())
    }

    /// Continues a session in place of [`create_session`](Self::create_session).
    ///
    /// # Errors
    /// If the relay does not have the session. The connection stays open, and may create one.
    fn resume_session(
        &mut self,
        _minor: Minor,
        _request: ResumeSession,
    ) -> Result<SessionCreated, Refusal> {
        Err(no_extension())
    }

    /// Adds a stream to a resumable session, or continues it. Returns its id, or none if it has
    /// been closed, and its position: see [`StreamOpened`](crate::resume::StreamOpened).
    ///
    /// # Errors
    /// If the stream cannot be added. The connection stays open.
    fn open_stream(&mut self, _request: OpenStream) -> Result<(Option<StreamId>, u64), Refusal> {
        Err(no_extension())
    }

    /// The positions of a stream, written and durable: see
    /// [`StreamPosition`](crate::resume::StreamPosition). None if the stream is unknown: the
    /// connection is closed.
    fn position(&mut self, _stream: StreamId) -> Option<(u64, u64)> {
        None
    }

    /// The clocks of the relay.
    fn clock(&self) -> RelayClock {
        RelayClock {
            code: ReturnCode::UNKNOWN,
            time: 0,
            monotonic: 0,
            boot: [0; 16],
        }
    }

    /// Gives up packets that have not arrived.
    fn skip_packets(&mut self, _request: SkipPackets) -> Result<(), Refusal> {
        Err(no_extension())
    }
}

fn no_extension() -> Refusal {
    Refusal::new(ReturnCode::UNKNOWN, "the relay has no resume extension")
}

/// A session that was opened or continued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionCreated {
    /// Id of the session, assigned by the relay, from 1.
    pub session: SessionId,
    /// Path of its trace, relative to the relay's output.
    pub path: Text,
}
