//! Chunks of a session: which is current, which gives way, and where their directories go when.
//!
//! The steps and their moments are those of the reference, so that the trees compare equal at every
//! point. `doc/store.md` tells them as a table.

use std::sync::Arc;

use relay_proto::ReturnCode;
use relay_proto::chunk::{CloseCommand, CloseTraceChunk, CreateTraceChunk, RotateStreams};
use relay_proto::relay::Refusal;
use thiserror::Error;
use tracing::{debug, info};
use wire::{ChunkId, FileName, NameError, Text, TracePath};

use super::session::{OpenSession, now};
use super::streams::heed_pause;
use crate::ingest::IngestError;
use crate::registry::stream::Stream;
use crate::registry::{Occupied, Registry};
use crate::store::StoreError;
use crate::store::chunk::{Chunk, ChunkError, ChunkPlace, Holding};
use crate::store::layout::LayoutError;

/// The chunks that one session knows.
#[derive(Debug)]
pub(super) struct SessionChunks {
    is_snapshot: bool,
    current: Option<Holding>,
    /// The one before, until the producer closes it.
    pending: Option<Holding>,
    /// A chunk has been archived: those that follow have directories of their own.
    has_rotated: bool,
}

/// Why something about a chunk is refused.
#[derive(Debug, Error)]
enum ChunksError {
    #[error("chunk name {name:?} will not do: {source}")]
    Name { name: Text, source: NameError },
    #[error("chunk name {0:?} will not do: it has a dot")]
    Dotted(Text),
    #[error("there is no {0}")]
    Unknown(ChunkId),
    #[error("{0} exists")]
    Exists(ChunkId),
    #[error("{0} still waits to be closed")]
    Pending(ChunkId),
    #[error("{0} is named by its producer: it stays where it is")]
    Named(ChunkId),
    #[error("what {0} has may not be deleted: the relay was told so")]
    ClearDisallowed(ChunkId),
    #[error("the producer has no chunks")]
    Chunkless,
    #[error("another session has taken its place")]
    Superseded,
    #[error(transparent)]
    Occupied(#[from] Occupied),
    #[error(transparent)]
    Chunk(#[from] ChunkError),
    #[error(transparent)]
    Layout(#[from] LayoutError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Stream(#[from] IngestError),
    #[error("{0}")]
    UnknownStream(wire::StreamId),
}

impl From<ChunksError> for Refusal {
    fn from(error: ChunksError) -> Self {
        let code = match &error {
            ChunksError::Name { .. }
            | ChunksError::Dotted(_)
            | ChunksError::Named(_)
            | ChunksError::UnknownStream(_) => ReturnCode::INVALID,
            ChunksError::Unknown(_) => ReturnCode::NO_MEMORY,
            ChunksError::Layout(_) | ChunksError::Chunk(ChunkError::Layout(_)) => {
                ReturnCode::NO_MEMORY
            }
            ChunksError::Pending(_)
            | ChunksError::Exists(_)
            | ChunksError::ClearDisallowed(_)
            | ChunksError::Chunkless
            | ChunksError::Occupied(_) => ReturnCode::INVALID_PROTOCOL,
            ChunksError::Superseded => ReturnCode::UNKNOWN,
            ChunksError::Stream(_) => ReturnCode::FILE_CREATION,
            ChunksError::Store(_) | ChunksError::Chunk(ChunkError::Store(_)) => ReturnCode::UNKNOWN,
        };
        Self::new(code, error)
    }
}

impl SessionChunks {
    pub(super) fn new(is_snapshot: bool) -> Self {
        Self {
            is_snapshot,
            current: None,
            pending: None,
            has_rotated: false,
        }
    }

    /// The one that new streams are added to.
    pub(super) fn current(&self) -> Option<&Holding> {
        self.current.as_ref()
    }

    /// Begins in a chunk that is there.
    pub(super) fn join(&mut self, chunk: Holding) {
        self.current = Some(chunk);
    }
}

pub(super) fn create(
    registry: &Registry,
    open: &mut OpenSession,
    request: &CreateTraceChunk,
) -> Result<(), Refusal> {
    Ok(create_chunk(registry, open, request)?)
}

fn create_chunk(
    registry: &Registry,
    open: &mut OpenSession,
    request: &CreateTraceChunk,
) -> Result<(), ChunksError> {
    let chunks = &mut open.chunks;
    if open.directory.is_none() {
        return Err(ChunksError::Chunkless);
    }
    if let Some(pending) = &chunks.pending {
        return Err(ChunksError::Pending(pending.id().unwrap_or_default()));
    }
    let name = request.name.as_ref().map(chunk_name).transpose()?;
    let recording = open.session.recording();
    let chunk = match recording.chunk(request.chunk) {
        Some(own)
            if chunks
                .current
                .as_ref()
                .is_some_and(|current| current.is(&own)) =>
        {
            return Err(ChunksError::Exists(request.chunk));
        }
        // Another session of the recording has made it.
        Some(shared) => shared,
        None => {
            let current = chunks.current.as_ref();
            let rotates = current.is_some_and(|current| !current.is_named() || name.is_none());
            registry.begin_chunk(&open.session, rotates, now())?;
            let session = Arc::clone(&open.session);
            let _directory = session.lock_directory().ok_or(ChunksError::Superseded)?;
            if let Some(current) = chunks
                .current
                .as_ref()
                .filter(|current| !current.is_named())
            {
                current.move_to(ChunkPlace::Old)?;
            }
            let place = match name {
                Some(name) => ChunkPlace::Named(name),
                None if chunks.current.is_some() => ChunkPlace::New,
                None if !chunks.has_rotated => ChunkPlace::Session,
                None => ChunkPlace::Dated,
            };
            let time_zone = &registry.settings().time_zone;
            Chunk::create(
                request.chunk,
                request.created,
                &open.absolute,
                place,
                time_zone,
            )?
        }
    };
    recording.add_chunk(request.chunk, &chunk);
    if let Some(current) = chunks.current.replace(chunk) {
        recording.succeed(&current);
        chunks.pending = Some(current);
    }
    debug!(session = %open.session, chunk = %request.chunk, "chunk created");
    Ok(())
}

/// Name of a snapshot's directory.
fn chunk_name(name: &Text) -> Result<FileName, ChunksError> {
    if name.as_bytes().contains(&b'.') {
        return Err(ChunksError::Dotted(name.clone()));
    }
    FileName::parse(name).map_err(|source| ChunksError::Name {
        name: name.clone(),
        source,
    })
}

pub(super) fn rotate(open: &mut OpenSession, request: &RotateStreams) -> Result<(), Refusal> {
    Ok(rotate_streams(open, request)?)
}

fn rotate_streams(open: &mut OpenSession, request: &RotateStreams) -> Result<(), ChunksError> {
    let session = Arc::clone(&open.session);
    let _directory = session.lock_directory().ok_or(ChunksError::Superseded)?;
    let target = match request.target {
        Some(id) => {
            let current = open
                .chunks
                .current()
                .filter(|current| current.id() == Some(id));
            Some(current.ok_or(ChunksError::Pending(id))?.clone())
        }
        None => None,
    };
    for position in &request.positions {
        let stream = open.session.stream(position.stream);
        match stream.ok_or(ChunksError::UnknownStream(position.stream))? {
            Stream::Data(stream) => {
                stream.lock().begin_rotation(position.at, target.clone())?;
                heed_pause(open, Stream::Data(stream));
            }
            Stream::Metadata(stream) => stream.rotate(target.clone())?,
        }
    }
    Ok(())
}

pub(super) fn close(
    registry: &Registry,
    open: &mut OpenSession,
    request: &CloseTraceChunk,
) -> Result<Text, Refusal> {
    Ok(close_chunk(registry, open, request)?)
}

fn close_chunk(
    registry: &Registry,
    open: &mut OpenSession,
    request: &CloseTraceChunk,
) -> Result<Text, ChunksError> {
    let unknown = ChunksError::Unknown(request.chunk);
    let Some(directory) = &open.directory else {
        return Err(ChunksError::Chunkless);
    };
    let chunk = open
        .session
        .recording()
        .chunk(request.chunk)
        .ok_or(unknown)?;
    let chunks = &mut open.chunks;
    if let Some(other) = chunks
        .pending
        .as_ref()
        .filter(|pending| !pending.is(&chunk))
    {
        return Err(ChunksError::Pending(other.id().unwrap_or_default()));
    }
    let command = request.command.0;
    if command == Some(CloseCommand::Delete) && !registry.settings().allows_clear {
        return Err(ChunksError::ClearDisallowed(request.chunk));
    }
    if chunk.is_named() && command == Some(CloseCommand::MoveToCompleted) {
        return Err(ChunksError::Named(request.chunk));
    }
    if command == Some(CloseCommand::MoveToCompleted) {
        registry.begin_archiving(&open.session, now())?;
    }
    let _directory = open
        .session
        .lock_directory()
        .ok_or(ChunksError::Superseded)?;
    let successor = chunks
        .current
        .as_ref()
        .filter(|current| !current.is(&chunk));
    if let Some(successor) = successor.filter(|successor| !successor.is_named()) {
        let goes_on = command == Some(CloseCommand::Delete) && !chunks.has_rotated;
        successor.move_to(if goes_on {
            ChunkPlace::Session
        } else {
            ChunkPlace::Dated
        })?;
    }
    let stays = matches!(command, None | Some(CloseCommand::NoOperation));
    if stays && !chunk.is_named() {
        chunk.move_to(if chunks.has_rotated {
            ChunkPlace::Dated
        } else {
            ChunkPlace::Session
        })?;
    }
    chunk.end(request.closed, command, &registry.settings().time_zone)?;
    let path = output_path(directory, chunks, &chunk);
    if command == Some(CloseCommand::MoveToCompleted) {
        chunks.has_rotated = true;
    }
    if command == Some(CloseCommand::Delete) {
        for stream in open.session.streams() {
            if let Stream::Data(stream) = stream {
                stream.lock().leave_deleted_chunk()?;
            }
        }
    }
    chunks.pending = None;
    chunks.current.take_if(|current| current.is(&chunk));
    info!(session = %open.session, chunk = %request.chunk, ?command, "chunk closed");
    Ok(path)
}

/// Where the producer is told that the chunk lies. Of the first rotation that is not where it will
/// lie; the reference says so.
fn output_path(directory: &TracePath, chunks: &SessionChunks, chunk: &Chunk) -> Text {
    let below = match chunk.place() {
        ChunkPlace::Named(name) if chunks.is_snapshot => Some(name.to_string()),
        _ if chunks.is_snapshot || !chunks.has_rotated => None,
        _ => Some(chunk.archive_path().display().to_string()),
    };
    match below {
        Some(below) => Text::from(format!("{directory}/{below}").as_str()),
        None => directory.to_text(),
    }
}
