//! Commands about the chunks of a session: which chunk is current, which is pending, and when their
//! directories are moved where.
//!
//! Each command moves directories in the same steps as `lttng-relayd`, so that the output trees of
//! both are equal after each command. `doc/store.md` has a table of them.

use std::sync::Arc;

use relay_proto::ReturnCode;
use relay_proto::chunk::{CloseCommand, CloseTraceChunk, CreateTraceChunk, RotateStreams};
use relay_proto::relay::Refusal;
use thiserror::Error;
use tracing::{debug, info};
use wire::{ChunkId, FileName, NameError, Text, TracePath};

use super::session::{OpenSession, now};
use super::streams::track_pause;
use crate::ingest::IngestError;
use crate::registry::stream::SessionStream;
use crate::registry::{Occupied, Registry};
use crate::store::StoreError;
use crate::store::chunk::{Chunk, ChunkError, ChunkPlace, Holding};
use crate::store::layout::LayoutError;
use crate::store::session_log::Record;

/// The chunks of one session, as its control connection sees them.
#[derive(Debug, Default)]
pub(super) struct SessionChunks {
    /// The chunk that new streams are added to. None before the first and after the last.
    current: Option<Holding>,
    /// The chunk before the current one, until the producer closes it.
    pending: Option<Holding>,
    /// Whether a chunk has been archived: chunks after it have directories of their own.
    has_rotated: bool,
}

/// A rejected command about a chunk.
#[derive(Debug, Error)]
pub(super) enum ChunkCommandError {
    #[error("invalid chunk name {name:?}: {source}")]
    Name { name: Text, source: NameError },
    #[error("invalid chunk name {0:?}: dots are not allowed")]
    Dotted(Text),
    #[error("unknown {0}")]
    Unknown(ChunkId),
    #[error("{0} already exists")]
    Exists(ChunkId),
    #[error("{0} is not closed yet")]
    Pending(ChunkId),
    #[error("{0} cannot be archived: its producer has named it")]
    Named(ChunkId),
    #[error("{0} cannot be deleted: --disallow-clear is set")]
    ClearDisallowed(ChunkId),
    #[error("the session has no directory of its own: chunks are not supported")]
    Chunkless,
    #[error("the session has ended, or another connection has taken it over")]
    Superseded,
    #[error("a resumable session has one chunk, which is not rotated, named, moved or deleted")]
    Resumable,
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
    #[error("unknown {0}")]
    UnknownStream(wire::StreamId),
}

impl ChunkCommandError {
    /// The cost of the failure: the command is refused with this code. Nothing else decides it.
    fn consequence(&self) -> ReturnCode {
        match self {
            Self::Name { .. } | Self::Dotted(_) | Self::Named(_) | Self::UnknownStream(_) => {
                ReturnCode::INVALID
            }
            Self::Unknown(_) | Self::Layout(_) | Self::Chunk(ChunkError::Layout(_)) => {
                ReturnCode::NO_MEMORY
            }
            Self::Pending(_)
            | Self::Exists(_)
            | Self::ClearDisallowed(_)
            | Self::Resumable
            | Self::Chunkless
            | Self::Occupied(_) => ReturnCode::INVALID_PROTOCOL,
            Self::Stream(_) => ReturnCode::FILE_CREATION,
            Self::Superseded | Self::Store(_) | Self::Chunk(ChunkError::Store(_)) => {
                ReturnCode::UNKNOWN
            }
        }
    }
}

impl From<ChunkCommandError> for Refusal {
    fn from(error: ChunkCommandError) -> Self {
        Self::new(error.consequence(), error)
    }
}

impl SessionChunks {
    /// The chunk that new streams are added to.
    pub(super) fn current(&self) -> Option<&Holding> {
        self.current.as_ref()
    }

    fn is_current(&self, chunk: &Holding) -> bool {
        let current = self.current.as_ref();
        current.is_some_and(|current| current.is(chunk))
    }

    /// Makes an existing chunk current.
    pub(super) fn begin_in(&mut self, chunk: Holding) {
        self.current = Some(chunk);
    }
}

pub(super) fn create_chunk(
    registry: &Registry,
    open: &mut OpenSession,
    request: &CreateTraceChunk,
) -> Result<(), ChunkCommandError> {
    if is_created(open, request)? {
        return Ok(());
    }
    let chunks = &mut open.chunks;
    if open.directory.is_none() {
        return Err(ChunkCommandError::Chunkless);
    }
    if let Some(pending) = &chunks.pending {
        return Err(ChunkCommandError::Pending(pending.id().unwrap_or_default()));
    }
    let name = request.name.as_ref().map(chunk_name).transpose()?;
    let recording = open.session.recording();
    let chunk = match recording.chunk(request.chunk) {
        Some(own) if chunks.is_current(&own) => {
            return Err(ChunkCommandError::Exists(request.chunk));
        }
        // Another session of the recording has created it.
        Some(shared) => shared,
        None => {
            let current = chunks.current.as_ref();
            // Snapshots lie in directories of their own, and one after another moves nothing.
            let rotates = current.is_some_and(|current| !current.is_named() || name.is_none());
            // Before the directory is locked: the lock of a host's neighbourhood is always taken
            // first.
            registry.begin_chunk(&open.session, rotates, now())?;
            let session = Arc::clone(&open.session);
            let _directory = session
                .lock_directory(open.generation)
                .ok_or(ChunkCommandError::Superseded)?;
            if let Some(current) = current.filter(|current| !current.is_named()) {
                current.move_to(ChunkPlace::Old)?;
            }
            let place = match name {
                Some(name) => ChunkPlace::Named(name),
                None if chunks.current.is_some() => ChunkPlace::New,
                None if !chunks.has_rotated => ChunkPlace::Session,
                None => ChunkPlace::Dated,
            };
            let (id, created) = (request.chunk, request.created);
            let time_zone = &registry.settings().time_zone;
            Chunk::create(id, created, &open.absolute, place, time_zone)?
        }
    };
    // In the log before the reply, by which the producer knows that the chunk exists.
    if let Some(resumable) = open.session.resumable() {
        resumable.log.append(&Record::Chunk(request.clone()))?;
        *resumable.chunk.lock() = Some(chunk.clone());
    }
    open.session.log_chunk_for_archive(&chunk);
    recording.add_chunk(request.chunk, &chunk);
    if let Some(current) = chunks.current.replace(chunk) {
        recording.succeed(&current);
        chunks.pending = Some(current);
    }
    debug!(session = %open.session, chunk = %request.chunk, "chunk created");
    Ok(())
}

/// Whether the session is resumable and has this chunk already, which the producer creates again on
/// each connection.
fn is_created(open: &OpenSession, request: &CreateTraceChunk) -> Result<bool, ChunkCommandError> {
    let Some(resumable) = open.session.resumable() else {
        return Ok(false);
    };
    let chunk = resumable.log.with_session(|session| session.chunk.clone());
    match chunk {
        Some(chunk) if chunk.chunk == request.chunk => Ok(true),
        None if request.name.is_none() && !open.session.recording().has_chunk(request.chunk) => {
            Ok(false)
        }
        _ => Err(ChunkCommandError::Resumable),
    }
}

/// Checks the name of a snapshot's directory.
fn chunk_name(name: &Text) -> Result<FileName, ChunkCommandError> {
    if name.as_bytes().contains(&b'.') {
        return Err(ChunkCommandError::Dotted(name.clone()));
    }
    FileName::parse(name).map_err(|source| ChunkCommandError::Name {
        name: name.clone(),
        source,
    })
}

pub(super) fn rotate_streams(
    open: &mut OpenSession,
    request: &RotateStreams,
) -> Result<(), ChunkCommandError> {
    let session = Arc::clone(&open.session);
    if session.is_resumable() {
        return Err(ChunkCommandError::Resumable);
    }
    let _directory = session
        .lock_directory(open.generation)
        .ok_or(ChunkCommandError::Superseded)?;
    let target = match request.target {
        Some(id) => {
            let current = open.chunks.current();
            let target = current.filter(|current| current.id() == Some(id));
            Some(target.ok_or(ChunkCommandError::Pending(id))?.clone())
        }
        None => None,
    };
    for position in &request.positions {
        let stream = open.session.stream(position.stream);
        match stream.ok_or(ChunkCommandError::UnknownStream(position.stream))? {
            SessionStream::Data(stream) => {
                stream.lock().begin_rotation(position.at, target.clone())?;
                track_pause(open, SessionStream::Data(stream));
            }
            SessionStream::Metadata(stream) => stream.rotate(target.clone())?,
        }
    }
    Ok(())
}

pub(super) fn close_chunk(
    registry: &Registry,
    open: &mut OpenSession,
    request: &CloseTraceChunk,
) -> Result<Text, ChunkCommandError> {
    let unknown = ChunkCommandError::Unknown(request.chunk);
    let Some(directory) = &open.directory else {
        return Err(ChunkCommandError::Chunkless);
    };
    let chunk = open.session.recording().chunk(request.chunk);
    let chunk = chunk.ok_or(unknown)?;
    let chunks = &mut open.chunks;
    let pending = chunks.pending.as_ref();
    if let Some(other) = pending.filter(|pending| !pending.is(&chunk)) {
        return Err(ChunkCommandError::Pending(other.id().unwrap_or_default()));
    }
    let command = request.command.0;
    let (deletes, archives) = (
        command == Some(CloseCommand::Delete),
        command == Some(CloseCommand::MoveToCompleted),
    );
    if (deletes || archives) && open.session.is_resumable() {
        return Err(ChunkCommandError::Resumable);
    }
    if deletes && !registry.settings().allows_clear {
        return Err(ChunkCommandError::ClearDisallowed(request.chunk));
    }
    if archives && chunk.is_named() {
        return Err(ChunkCommandError::Named(request.chunk));
    }
    if archives {
        // Before the directory is locked, as in `create_chunk`.
        registry.begin_archiving(&open.session, now())?;
    }
    let _directory = open
        .session
        .lock_directory(open.generation)
        .ok_or(ChunkCommandError::Superseded)?;
    // Where the chunk would have begun: the first chunk is the session directory itself, until one
    // has been archived. `move_to` may be called again: each connection of the recording sends its
    // own CLOSE_TRACE_CHUNK.
    let begin = if chunks.has_rotated {
        ChunkPlace::Dated
    } else {
        ChunkPlace::Session
    };
    let current = chunks.current.as_ref();
    let successor = current.filter(|current| !current.is(&chunk));
    if let Some(successor) = successor.filter(|successor| !successor.is_named()) {
        successor.move_to(if deletes {
            begin.clone()
        } else {
            ChunkPlace::Dated
        })?;
    }
    if !deletes && !archives && !chunk.is_named() {
        chunk.move_to(begin)?;
    }
    if deletes {
        // Before the chunk is gone, so that no relay looks for it.
        open.session.log_deletion_for_archive(chunk.id());
    }
    chunk.end(request.closed, command, &registry.settings().time_zone)?;
    let path = output_path(directory, open.is_snapshot, chunks, &chunk);
    // After the path: lttng-relayd replies to the first rotation with the session directory,
    // although the chunk moves to the archives.
    chunks.has_rotated |= archives;
    if deletes {
        for stream in open.session.streams() {
            if let SessionStream::Data(stream) = stream {
                stream.lock().leave_deleted_chunk()?;
            }
        }
    }
    chunks.pending = None;
    // No stream can be added before the next chunk is created, as with lttng-relayd.
    chunks.current.take_if(|current| current.is(&chunk));
    if let Some(resumable) = open.session.resumable() {
        resumable.log.append(&Record::ChunkClosed)?;
        resumable.chunk.lock().take();
    }
    registry.complete_if_done(&open.session);
    info!(session = %open.session, chunk = %request.chunk, ?command, "chunk closed");
    Ok(path)
}

/// The path of the chunk in the reply to the producer. After the first rotation it is not the path
/// that the chunk has; `lttng-relayd` replies the same.
fn output_path(
    directory: &TracePath,
    is_snapshot: bool,
    chunks: &SessionChunks,
    chunk: &Chunk,
) -> Text {
    let below = match chunk.place() {
        ChunkPlace::Named(name) if is_snapshot => Some(name.to_string()),
        _ if is_snapshot || !chunks.has_rotated => None,
        _ => Some(chunk.archive_path().display().to_string()),
    };
    match below {
        Some(below) => Text::from(format!("{directory}/{below}").as_str()),
        None => directory.to_text(),
    }
}
