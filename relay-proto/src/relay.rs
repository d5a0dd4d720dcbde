//! What a relay must be able to do for the producer at the other end of a control connection.

use thiserror::Error;
use wire::{SessionId, StreamId, Text};

use crate::chunk::{CloseTraceChunk, CreateTraceChunk, RotateStreams, TraceChunkExists};
use crate::index::SendIndex;
use crate::metadata::{ResetMetadata, SendMetadata};
use crate::session::CreateSession;
use crate::stream::{AddStream, CloseStream, DataPending};
use crate::{Minor, ReturnCode};

/// Why a relay will not do what it was asked.
#[derive(Debug, Error)]
#[error("{why}")]
pub struct Refusal {
    /// What the peer is told.
    pub code: ReturnCode,
    /// What the log is told.
    pub why: Box<dyn std::error::Error + Send + Sync>,
}

impl Refusal {
    /// A refusal.
    pub fn new(code: ReturnCode, why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self {
            code,
            why: why.into(),
        }
    }
}

/// What a relay does for the producer at the other end of one control connection. All commands but
/// [`create_session`](Self::create_session) come after it and concern its session only: a stream
/// of another session is to be refused like an unknown one.
pub trait Relay {
    /// Whether recordings may be cleared.
    fn clear_allowed(&self) -> bool;

    /// Opens the connection's session; called once.
    ///
    /// # Errors
    /// If the session may not be opened. Ends the connection.
    fn create_session(
        &mut self,
        minor: Minor,
        session: CreateSession,
    ) -> Result<SessionCreated, Refusal>;

    /// Adds a stream.
    ///
    /// # Errors
    /// If the stream may not be. The connection goes on.
    fn add_stream(&mut self, stream: AddStream) -> Result<StreamId, Refusal>;

    /// The streams added so far may be shown to viewers.
    ///
    /// # Errors
    /// As of every command from here on: ends the connection.
    fn streams_sent(&mut self) -> Result<(), Refusal>;

    /// `length` bytes of metadata text follow, then `padding_size` zeros are to be appended.
    fn begin_metadata(&mut self, metadata: SendMetadata, length: u64) -> Result<(), Refusal>;

    /// Some of the text that was announced.
    fn metadata_text(&mut self, text: &[u8]) -> Result<(), Refusal>;

    /// All of the text that was announced has come.
    fn end_metadata(&mut self) -> Result<(), Refusal>;

    /// The metadata starts anew.
    fn reset_metadata(&mut self, reset: ResetMetadata) -> Result<(), Refusal>;

    /// The index of a packet, or a beacon.
    fn index(&mut self, index: SendIndex) -> Result<(), Refusal>;

    /// No more of a stream is to come.
    fn close_stream(&mut self, close: CloseStream) -> Result<(), Refusal>;

    /// A round of questions about data under way begins.
    fn begin_data_pending(&mut self);

    /// Whether data of a stream is still under way. `None`: there is no such stream.
    fn data_pending(&mut self, ask: DataPending) -> Option<bool>;

    /// In the round, whether a metadata stream has come to rest: by now it has.
    fn quiescent(&mut self, stream: StreamId);

    /// The round ends: whether data of any stream is still under way.
    fn end_data_pending(&mut self) -> bool;

    /// A new chunk is current from now on.
    fn create_chunk(&mut self, chunk: CreateTraceChunk) -> Result<(), Refusal>;

    /// Streams go over to another chunk or to none.
    fn rotate_streams(&mut self, rotation: RotateStreams) -> Result<(), Refusal>;

    /// A chunk ends. Gives where it will lie, below the relay's output.
    fn close_chunk(&mut self, close: CloseTraceChunk) -> Result<Text, Refusal>;

    /// Whether something is still written to a chunk.
    fn chunk_exists(&mut self, ask: TraceChunkExists) -> bool;
}

/// A session that was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionCreated {
    /// The relay's number for it, from 1.
    pub session: SessionId,
    /// Where its trace will lie, below the relay's output.
    pub path: Text,
}
