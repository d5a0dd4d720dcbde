//! Restores the resumable sessions of the relay before this one, from their logs and files.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ctf::index::IndexFormat;
use parking_lot::Mutex;
use thiserror::Error;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info};
use wire::{Bytes, FileName, NameError, SessionId, StreamId, TracePath};

use super::session::now;
use super::streams::{claimed_directory, layout};
use crate::ingest::{DataStream, MetadataStream};
use crate::limits::MAX_RESTORED_NUMBER;
use crate::registry::resumable::Resumable;
use crate::registry::session::{Session, SessionIdentity};
use crate::registry::stream::SessionStream;
use crate::registry::{Occupied, Registry};
use crate::store::StoreError;
use crate::store::chunk::{Chunk, ChunkError, ChunkPlace, Holding};
use crate::store::metadata::MetadataFile;
use crate::store::session_directory::SessionDirectory;
use crate::store::session_log::{
    LoggedSession, LoggedStream, Mark, SessionLog, StreamKey, StreamLog,
};
use crate::store::stream_files::{StreamFiles, TracefileRange};

/// The reason why a session cannot be restored.
#[derive(Debug, Error)]
enum RestoreError {
    #[error("its directory {} does not exist", .0.display())]
    NoDirectory(PathBuf),
    #[error("its producer has no id")]
    NoId,
    #[error("another session has its ids")]
    Taken,
    #[error("it has streams, but no chunk")]
    NoChunk,
    #[error("invalid name of a stream: {0}")]
    Name(#[from] NameError),
    #[error(transparent)]
    Chunk(#[from] ChunkError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Occupied(#[from] Occupied),
}

/// The numbers that sessions and streams had. Each is given once.
#[derive(Debug, Default)]
struct RestoredNumbers {
    sessions: HashSet<SessionId>,
    streams: HashSet<StreamId>,
}

/// Restores the sessions whose logs are below the output of the relay. They wait for their
/// producers from `now` on. To be called before the relay accepts connections.
pub fn restore_sessions(registry: &Arc<Registry>, now: Instant) {
    let settings = registry.settings();
    let mut numbers = RestoredNumbers::default();
    // One after the other: of very many, only the newest are kept, and the others closed.
    for path in SessionLog::paths(&settings.output) {
        let opened = SessionLog::open(&path, &settings.pool);
        let restored = match &opened {
            // Another relay has it.
            Ok(None) => continue,
            Ok(Some(log)) => restore_session(registry, log, &mut numbers, now)
                .inspect_err(|_| log.set_aside())
                .map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        if let Err(error) = restored {
            let path = path.display();
            error!(%path, %error, "session not restored; its traces stay as they are");
        }
    }
}

impl RestoredNumbers {
    fn session(&mut self, registry: &Registry, wanted: SessionId) -> SessionId {
        // Logs may have been copied or edited: a number that is given already or too high is
        // replaced.
        registry.reserve_session(SessionId(wanted.0.min(MAX_RESTORED_NUMBER)));
        let mut number = wanted;
        while number.0 > MAX_RESTORED_NUMBER || !self.sessions.insert(number) {
            number = registry.next_session();
        }
        number
    }

    fn stream(&mut self, registry: &Registry, wanted: StreamId) -> StreamId {
        registry.reserve_stream(StreamId(wanted.0.min(MAX_RESTORED_NUMBER)));
        let mut number = wanted;
        while number.0 > MAX_RESTORED_NUMBER || !self.streams.insert(number) {
            number = registry.next_stream();
        }
        number
    }
}

fn restore_session(
    registry: &Arc<Registry>,
    log: &Arc<SessionLog>,
    numbers: &mut RestoredNumbers,
    now: Instant,
) -> Result<(), RestoreError> {
    let settings = registry.settings();
    let logged = log.with_session(LoggedSession::clone);
    // Its producer has closed everything, or this relay resumes no sessions.
    if logged.is_complete() || settings.resume_timeout.is_zero() {
        registry.log_unresumable(log);
        log.remove();
        return Ok(());
    }
    let recording = logged
        .created
        .recording
        .as_ref()
        .ok_or(RestoreError::NoId)?;
    let key = (recording.daemon, recording.id);
    if registry.has_resumable(key) {
        return Err(RestoreError::Taken);
    }
    let absolute = settings.output.join(&logged.directory);
    if !absolute.is_dir() {
        return Err(RestoreError::NoDirectory(absolute));
    }
    let locked = SessionDirectory::create(&settings.output, &logged.directory, &settings.pool)?;
    let chunk = match &logged.chunk {
        None => None,
        Some(chunk) => Some(Chunk::create(
            chunk.chunk,
            chunk.created,
            &absolute,
            ChunkPlace::Session,
            &settings.time_zone,
        )?),
    };
    let identity = SessionIdentity {
        id: numbers.session(registry, logged.id),
        name: logged.created.name.clone(),
        host: logged.created.host.clone(),
        live_timer: logged.created.live_timer,
        trace_format: logged.created.trace_format,
        directory: Some(logged.directory.clone()),
        producer: logged.producer,
        recording: Some(key),
    };
    let shared = registry.recordings().of(Some(key));
    if let Some(chunk) = &chunk
        && let Some(id) = chunk.id()
    {
        shared.add_chunk(id, chunk);
    }
    let connections = CancellationToken::new();
    let session = registry.new_session(identity, Some(locked), shared, connections);
    registry.identify_restored(&session, key);
    registry.add_session(Arc::clone(&session))?;
    if let Some(syncer) = settings.pool.syncer() {
        log.sync_with(syncer, session.sync_status())?;
    }
    let restored = restore_streams(registry, &session, log, &logged, chunk.as_ref(), numbers);
    if let Err(error) = restored {
        // First, so that the end of the streams is not logged.
        log.set_aside();
        registry.discard(&session);
        return Err(error);
    }
    // The timeout of this relay may be shorter than that of the one before.
    let timeout = Duration::from_secs(logged.timeout.into()).min(settings.resume_timeout);
    let resumable = Resumable {
        log: Arc::clone(log),
        timeout,
        chunk: Mutex::new(chunk.filter(|_| !logged.is_chunk_closed)),
    };
    if !registry.make_resumable(key, &session, resumable) {
        return Err(RestoreError::Taken);
    }
    registry.restore(&session, now);
    let (streams, seconds) = (logged.streams.len(), timeout.as_secs());
    info!(%session, streams, seconds, "session restored: it waits for its producer");
    Ok(())
}

fn restore_streams(
    registry: &Arc<Registry>,
    session: &Arc<Session>,
    log: &Arc<SessionLog>,
    logged: &LoggedSession,
    chunk: Option<&Holding>,
    numbers: &mut RestoredNumbers,
) -> Result<(), RestoreError> {
    let mut described = Vec::new();
    // Metadata last, so that the watermark of the session is known when its streams are announced.
    for (key, stream) in &logged.streams {
        let chunk = chunk.ok_or(RestoreError::NoChunk)?;
        let id = numbers.stream(registry, stream.id);
        let path = TracePath::parse_rooted(&stream.opened.stream.path)?;
        if let Some(directory) = claimed_directory(Some(&logged.directory), chunk, &path) {
            registry.claim(session, &directory, now())?;
        }
        let log = StreamLog::new(Arc::clone(log), *key);
        let restored = restore_stream(registry, session, id, *key, stream, chunk, log);
        let restored = match restored {
            Err(error) if stream.closed_at.is_some() => {
                debug!(%session, stream = %id, %error, "closed stream not restored for viewers");
                continue;
            }
            restored => restored?,
        };
        if let SessionStream::Metadata(metadata) = &restored
            && metadata.received() > Bytes(0)
        {
            described.push(path.clone());
        }
        let channel = stream.opened.stream.channel.clone();
        session.add_stream(restored, path, channel, || registry.next_trace());
    }
    session.publish_streams();
    for path in described {
        session.announce_trace(&path);
    }
    registry.forget_all_closed(session);
    Ok(())
}

fn restore_stream(
    registry: &Arc<Registry>,
    session: &Arc<Session>,
    id: StreamId,
    key: StreamKey,
    logged: &LoggedStream,
    chunk: &Holding,
    log: StreamLog,
) -> Result<SessionStream, RestoreError> {
    let settings = registry.settings();
    let pool = &settings.pool;
    let sync = Arc::clone(session.sync_status());
    let request = &logged.opened.stream;
    let path = TracePath::parse_rooted(&request.path)?;
    let name = FileName::parse(&request.channel)?;
    let channel = name.clone();
    if key.is_metadata {
        let bytes = Bytes(logged.metadata_bytes);
        let pool = Arc::clone(pool);
        let file = MetadataFile::restore(pool, path.clone(), name, chunk.clone(), bytes, sync)?;
        let stream = Arc::new(MetadataStream::new(
            id,
            path.clone(),
            file,
            settings.when_full,
        ));
        let restored = SessionStream::Metadata(Arc::clone(&stream));
        registry.archive(session, key, &path, &channel, &restored, true);
        stream.make_resumable(log);
        if logged.closed_at.is_some() {
            stream.close_restored();
        }
        return Ok(restored);
    }
    let layout = layout(request, path.clone(), name, Some(IndexFormat::V1_1));
    layout.longest_name()?;
    let marks = &logged.marks;
    let file = |mark: Option<&Mark>| mark.map_or(0, |mark| mark.at.file);
    let range = TracefileRange {
        first: file(marks.front()),
        last: file(marks.back()),
        replacing: logged.replacing.map(|mark| mark.at.file),
    };
    let restored = StreamFiles::restore(layout, pool, chunk.clone(), range, sync)?;
    let next = logged.seq_at(restored.end);
    let (window, when_full) = (settings.window, settings.when_full);
    let stream = DataStream::new(id, restored.files, window, true, when_full);
    session.watermark().observe(restored.latest);
    registry.archive(
        session,
        key,
        &path,
        &channel,
        &SessionStream::Data(Arc::clone(&stream)),
        true,
    );
    for run in &restored.runs {
        let seqs = logged.seqs_in(run.file);
        let (class, packets) = (run.class, run.packets);
        let published = stream.published();
        published.add_tracefile(&run.segment, class, packets, run.end, seqs);
    }
    debug!(%session, stream = %id, next = next.0, "stream restored");
    let mut writer = stream.lock();
    writer.restore(log, next);
    if logged.closed_at.is_some() {
        writer.close_restored();
    }
    // Unlocked, because the tables of the registry are locked before a stream, never after.
    drop(writer);
    if logged.closed_at.is_none() {
        registry.add_data_stream(session, Arc::clone(&stream));
    }
    Ok(SessionStream::Data(stream))
}
