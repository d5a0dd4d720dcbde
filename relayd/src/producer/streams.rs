//! Commands about streams: adding and closing them, indexes, metadata, and whether data is pending.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use ctf::index::IndexFormat;
use relay_proto::ReturnCode;
use relay_proto::index::SendIndex;
use relay_proto::metadata::{ResetMetadata, SendMetadata};
use relay_proto::relay::Refusal;
use relay_proto::stream::{AddStream, CloseStream, DataPending};
use thiserror::Error;
use tracing::debug;
use wire::{Bytes, FileName, NameError, StreamId, Text, TracePath};

use super::session::{OpenSession, now, superseded};
use crate::ingest::{DataStream, IngestError, MetadataStream};
use crate::limits::{MAX_METADATA_BYTES, MAX_METADATA_STREAMS, MAX_STREAMS, MAX_STREAMS_IN_ALL};
use crate::registry::stream::SessionStream;
use crate::registry::{Occupied, Registry};
use crate::store::StoreError;
use crate::store::chunk::{ChunkPlace, Holding};
use crate::store::layout::{LayoutError, check_stream_path};
use crate::store::metadata::MetadataFile;
use crate::store::session_log::StreamKey;
use crate::store::stream_files::{StreamFiles, StreamLayout, TracefileLimits};

/// A rejected command about a stream.
#[derive(Debug, Error)]
enum StreamError {
    #[error("invalid {what} {name:?}: {source}")]
    Name {
        what: &'static str,
        name: Text,
        source: NameError,
    },
    #[error("invalid path {0:?}: {1}")]
    Path(Text, LayoutError),
    #[error("the session has no current chunk")]
    NoChunk,
    #[error("too many streams in the session: {MAX_STREAMS} are allowed")]
    TooMany,
    #[error("too many metadata streams in the session: {MAX_METADATA_STREAMS} are allowed")]
    TooManyTraces,
    #[error("too many streams in all sessions: {MAX_STREAMS_IN_ALL} are allowed")]
    TooManyInAll,
    #[error("too much metadata of {0}: {MAX_METADATA_BYTES} bytes are allowed")]
    TooMuchMetadata(StreamId),
    #[error("the session has no open {1}{0}")]
    Unknown(StreamId, &'static str),
    #[error("{0} has no chunk")]
    NoChunkOfStream(StreamId),
    #[error("metadata of a live session cannot be reset: viewers may have read it")]
    ResetLive,
    #[error("metadata of a resumable session cannot be reset")]
    ResetResumable,
    #[error("a resumable session has only streams with keys: OPEN_STREAM adds them")]
    NoKey,
    #[error(transparent)]
    Occupied(Occupied),
    #[error(transparent)]
    Ingest(#[from] IngestError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<StreamError> for Refusal {
    /// lttng-relayd has one code for all refusals of commands about streams.
    fn from(error: StreamError) -> Self {
        Self::new(ReturnCode::UNKNOWN, error)
    }
}

pub(super) fn add_stream(
    registry: &Arc<Registry>,
    open: &mut OpenSession,
    request: &AddStream,
) -> Result<StreamId, Refusal> {
    if open.session.is_resumable() {
        return Err(StreamError::NoKey.into());
    }
    create_stream(registry, open, request, None, |_| Ok(()))
}

/// Adds a stream. `key` is the number by which its producer names it in a resumable session.
/// `prepare` is called when its files exist, before it takes packets.
pub(super) fn create_stream(
    registry: &Arc<Registry>,
    open: &mut OpenSession,
    request: &AddStream,
    key: Option<StreamKey>,
    prepare: impl FnOnce(&SessionStream) -> Result<(), StoreError>,
) -> Result<StreamId, Refusal> {
    let id = registry.next_stream();
    let named = |what, name: &Text, source| StreamError::Name {
        what,
        name: name.clone(),
        source,
    };
    let path = match &open.old_paths {
        Some(old) => old.directory(&request.path),
        None => TracePath::parse_rooted(&request.path),
    };
    let path = path.map_err(|source| named("path", &request.path, source))?;
    // A trace may have thousands of streams, which share the bytes of its path.
    let path = open.session.share_path(path);
    let name = FileName::parse(&request.channel)
        .map_err(|source| named("channel name", &request.channel, source))?;
    let layout = layout(request, path.clone(), name.clone(), open.index_format);
    let longest = layout
        .longest_name()
        .map_err(|source| named("channel name", &request.channel, source))?;
    let settings = registry.settings();
    check_stream_path(&settings.output, open.directory.as_ref(), &path, &longest)
        .map_err(|source| StreamError::Path(request.path.clone(), source))?;
    if !open.session.has_room() {
        return Err(StreamError::TooMany.into());
    }
    if !registry.make_room(Instant::now()) {
        return Err(StreamError::TooManyInAll.into());
    }
    if request.is_metadata() && !open.session.has_room_for_metadata() {
        return Err(StreamError::TooManyTraces.into());
    }
    let chunk = open.chunks.current().ok_or(StreamError::NoChunk)?.clone();
    // Before the directory is locked: the lock of a host's neighbourhood is always taken first.
    if let Some(directory) = claimed_directory(open.directory.as_ref(), &chunk, &path) {
        registry
            .claim(&open.session, &directory, now())
            .map_err(StreamError::Occupied)?;
    }
    let session = Arc::clone(&open.session);
    let _directory = session
        .lock_directory(open.generation)
        .ok_or_else(superseded)?;
    let pool = Arc::clone(&registry.settings().pool);
    let when_full = registry.settings().when_full;
    let counted = |error| {
        registry.settings().pool.faults().count(&error);
        StreamError::Store(error)
    };
    let sync = Arc::clone(session.sync_status());
    let file_name = name.clone();
    let has_indexes = layout.index_format.is_some();
    let stream = if request.is_metadata() {
        let file_name = settings.metadata_file.clone().unwrap_or(name);
        let file = MetadataFile::create(pool, path.clone(), file_name, chunk, sync);
        let file = file.map_err(counted)?;
        let stream = MetadataStream::new(id, path.clone(), file, when_full);
        SessionStream::Metadata(Arc::new(stream))
    } else {
        let files = StreamFiles::create(layout, pool, chunk, sync).map_err(counted)?;
        let window = registry.settings().window;
        SessionStream::Data(DataStream::new(id, files, window, has_indexes, when_full))
    };
    prepare(&stream).map_err(counted)?;
    let key = key.unwrap_or(StreamKey {
        number: id.0,
        is_metadata: request.is_metadata(),
    });
    registry.archive(&session, key, &path, &file_name, &stream, false);
    if let Some(chunk) = open.chunks.current() {
        session.log_chunk_for_archive(chunk);
    }
    if let SessionStream::Data(stream) = &stream {
        registry.add_data_stream(&open.session, Arc::clone(stream));
    }
    debug!(session = %open.session, stream = %id, %path, channel = %request.channel, "stream added");
    let channel = request.channel.clone();
    open.session
        .add_stream(stream, path, channel, || registry.next_trace());
    Ok(id)
}

/// The names and sizes of the files of a data stream.
pub(super) fn layout(
    request: &AddStream,
    directory: TracePath,
    name: FileName,
    index_format: Option<IndexFormat>,
) -> StreamLayout {
    StreamLayout {
        directory,
        name,
        limits: (request.tracefile_size > Bytes(0)).then_some(TracefileLimits {
            size: request.tracefile_size,
            count: (request.tracefile_count > 0).then_some(request.tracefile_count),
        }),
        index_format,
    }
}

/// The directory that a stream at `path` claims for its recording: the first one below the session
/// directory, because chunks move those. None for producers without chunks.
pub(super) fn claimed_directory(
    directory: Option<&TracePath>,
    chunk: &Holding,
    path: &TracePath,
) -> Option<PathBuf> {
    let directory: &Path = directory?.as_ref();
    match chunk.place() {
        ChunkPlace::Named(name) => Some(directory.join(name)),
        _ => {
            let path: &Path = path.as_ref();
            Some(directory.join(path.components().next()?))
        }
    }
}

fn data_stream(open: &OpenSession, id: StreamId) -> Result<Arc<DataStream>, StreamError> {
    match open.session.stream(id) {
        Some(SessionStream::Data(stream)) => Ok(stream),
        _ => Err(StreamError::Unknown(id, "data ")),
    }
}

fn metadata_stream(open: &OpenSession, id: StreamId) -> Result<Arc<MetadataStream>, StreamError> {
    match open.session.stream(id) {
        Some(SessionStream::Metadata(stream)) => Ok(stream),
        _ => Err(StreamError::Unknown(id, "metadata ")),
    }
}

/// Adds an index or a beacon. Returns its stream, and whether no more indexes should be read before
/// the stream has more packets.
pub(super) fn add_index(
    open: &OpenSession,
    index: &SendIndex,
) -> Result<(Arc<DataStream>, bool), Refusal> {
    let stream = data_stream(open, index.stream)?;
    open.session.watermark().observe(index.packet.end);
    if !index.packet.is_beacon() {
        open.session.arrivals().record_index();
    }
    let mut writer = stream.lock();
    let added = writer.add_index(index);
    let lacks_packets = writer.lacks_packets();
    drop(writer);
    added.map_err(StreamError::Ingest)?;
    if index.packet.is_beacon() {
        open.session.request_beacons();
    }
    Ok((stream, lacks_packets))
}

/// Writes the index entries of a stream that have become ready.
pub(super) fn write_ready_entries(
    registry: &Registry,
    open: &mut OpenSession,
    stream: Arc<DataStream>,
) -> Result<(), Refusal> {
    let flushed = stream.lock().flush_entries();
    flushed.map_err(StreamError::Ingest)?;
    remove_if_closed(registry, open, &stream);
    track_pause(open, SessionStream::Data(stream));
    Ok(())
}

/// Records a stream that waits for space on the disk: the replies to its session's commands wait
/// too.
pub(super) fn track_pause(open: &mut OpenSession, stream: SessionStream) {
    if stream.is_paused() {
        open.paused.insert(stream.id(), stream);
    }
}

/// Tries again to write what there was no space for. Returns whether no stream of the session waits
/// any more: it has written everything, or has failed.
pub(super) fn resume(registry: &Registry, open: &mut OpenSession) -> bool {
    let session = &open.session;
    let mut closed = Vec::new();
    open.paused.retain(|id, stream| {
        let is_resumed = session.resume_stream(stream);
        if is_resumed && stream.is_closed() {
            closed.push(*id);
        }
        !is_resumed
    });
    registry.forget_closed(&open.session, &closed);
    open.paused.is_empty()
}

pub(super) fn close_stream(
    registry: &Registry,
    open: &mut OpenSession,
    request: &CloseStream,
) -> Result<(), Refusal> {
    let unknown = StreamError::Unknown(request.stream, "");
    let stream = open.session.stream(request.stream).ok_or(unknown)?;
    let id = stream.id();
    match &stream {
        SessionStream::Data(stream) => {
            let mut writer = stream.lock();
            // The stream has another number since its producer has resumed the session.
            if writer.wire_id() != request.stream {
                return Err(superseded());
            }
            let closed = writer.close_after(request.last);
            closed.map_err(StreamError::Ingest)?;
        }
        SessionStream::Metadata(stream) if stream.wire_id() != request.stream => {
            return Err(superseded());
        }
        SessionStream::Metadata(stream) => stream.close(),
    }
    track_pause(open, stream);
    debug!(session = %open.session, stream = %id, "stream closed");
    registry.forget_closed(&open.session, &[id]);
    Ok(())
}

pub(super) fn begin_metadata(
    open: &mut OpenSession,
    metadata: &SendMetadata,
    length: u64,
) -> Result<(), Refusal> {
    let stream = metadata_stream(open, metadata.stream)?;
    if !stream.has_room(length + u64::from(metadata.padding)) {
        return Err(StreamError::TooMuchMetadata(metadata.stream).into());
    }
    if !stream.begin_piece(metadata) {
        return Err(StreamError::NoChunkOfStream(metadata.stream).into());
    }
    open.metadata = Some((metadata.stream, stream));
    Ok(())
}

pub(super) fn metadata_text(open: &mut OpenSession, text: &[u8]) -> Result<(), Refusal> {
    let Some((named, stream)) = open.metadata.clone() else {
        return Ok(());
    };
    stream
        .append_text(named, text)
        .map_err(StreamError::Store)?;
    track_pause(open, SessionStream::Metadata(stream));
    Ok(())
}

pub(super) fn end_metadata(open: &mut OpenSession) -> Result<(), Refusal> {
    let Some((named, stream)) = open.metadata.take() else {
        return Ok(());
    };
    stream.end_piece(named).map_err(StreamError::Store)?;
    open.session.announce_described(&stream);
    track_pause(open, SessionStream::Metadata(stream));
    Ok(())
}

pub(super) fn reset_metadata(open: &OpenSession, reset: &ResetMetadata) -> Result<(), Refusal> {
    let stream = metadata_stream(open, reset.stream)?;
    if open.session.identity().live_timer.period().is_some() {
        return Err(StreamError::ResetLive.into());
    }
    if open.session.is_resumable() {
        return Err(StreamError::ResetResumable.into());
    }
    let _directory = open
        .session
        .lock_directory(open.generation)
        .ok_or_else(superseded)?;
    debug!(session = %open.session, stream = %reset.stream, "metadata reset");
    Ok(stream.restart().map_err(StreamError::Store)?)
}

pub(super) fn is_pending(
    registry: &Registry,
    open: &OpenSession,
    ask: &DataPending,
) -> Option<bool> {
    let stream = data_stream(open, ask.stream).ok()?;
    open.session.mark_asked(stream.id());
    let is_pending = stream.lock().is_pending(ask.last);
    remove_if_closed(registry, open, &stream);
    Some(is_pending)
}

pub(super) fn quiescent(registry: &Registry, open: &OpenSession, stream: StreamId) {
    let Some(stream) = open.session.stream(stream) else {
        return;
    };
    open.session.mark_asked(stream.id());
    if let SessionStream::Data(stream) = stream {
        // The answer does not matter: asking lets the stream close.
        let _ = stream.lock().is_pending(None);
        remove_if_closed(registry, open, &stream);
    }
}

/// Removes a stream from the registry if it has closed: a stream stays open until its last packet
/// is written.
fn remove_if_closed(registry: &Registry, open: &OpenSession, stream: &DataStream) {
    if stream.is_closed() {
        registry.forget_closed(&open.session, &[stream.id()]);
    }
}
