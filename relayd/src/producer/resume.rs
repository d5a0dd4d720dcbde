//! Commands of the resume extension: a session that is kept when its connections are lost, and
//! continued on others.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ctf::index::IndexFormat;
use daemon::durability::Durability;
use parking_lot::Mutex;
use relay_proto::ReturnCode;
use relay_proto::relay::{Refusal, SessionCreated};
use relay_proto::resume::{MakeResumable, OpenStream, ResumeSession, SkipPackets};
use thiserror::Error;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};
use wire::{SeqNum, StreamId, TracePath};

use super::chunks::SessionChunks;
use super::session::OpenSession;
use super::streams::{create_stream, track_pause};
use crate::ingest::IngestError;
use crate::registry::recording::RecordingKey;
use crate::registry::resumable::Resumable;
use crate::registry::stream::SessionStream;
use crate::registry::{DirectoryInUse, Registry};
use crate::store::StoreError;
use crate::store::layout::is_directory_dated;
use crate::store::session_log::{
    LoggedFiles, LoggedSession, Record, SessionLog, StreamKey, StreamLog,
};

/// A rejected command of the extension.
#[derive(Debug, Error)]
pub(super) enum ResumeError {
    #[error("the session cannot be resumable: it has chunks or streams, or is a snapshot")]
    Late,
    #[error("the session cannot be resumable: its producer has no id")]
    NoId,
    #[error("another resumable session has the ids of this one")]
    Taken,
    #[error("the relay drains: the session is to be opened at another relay")]
    Draining,
    #[error(transparent)]
    Directory(#[from] DirectoryInUse),
    #[error("no resumable session has these ids")]
    NoSession,
    #[error("the session is not resumable")]
    NotResumable,
    #[error("stream {0} was opened with other properties before")]
    Changed(u64),
    #[error("stream {0}: another stream of the session has its files")]
    SameFiles(u64),
    #[error("invalid number of the first packet")]
    First,
    #[error("unknown {0}")]
    Unknown(StreamId),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Ingest(#[from] IngestError),
}

impl From<ResumeError> for Refusal {
    fn from(error: ResumeError) -> Self {
        Self::new(error.consequence(), error)
    }
}

impl ResumeError {
    /// The cost of the failure: the command is refused with this code. Nothing else decides it.
    fn consequence(&self) -> ReturnCode {
        match self {
            Self::Late
            | Self::NoId
            | Self::Taken
            | Self::Changed(_)
            | Self::SameFiles(_)
            | Self::First => ReturnCode::INVALID,
            Self::Directory(_) => ReturnCode::EXISTS,
            Self::NoSession
            | Self::Draining
            | Self::NotResumable
            | Self::Unknown(_)
            | Self::Store(_)
            | Self::Ingest(_) => ReturnCode::UNKNOWN,
        }
    }
}

pub(super) fn make_resumable(
    registry: &Registry,
    open: &OpenSession,
    request: MakeResumable,
) -> Result<(), ResumeError> {
    let settings = registry.settings();
    let session = &open.session;
    let has_begun = open.chunks.current().is_some() || !session.is_empty();
    let Some(directory) = open
        .directory
        .as_ref()
        .filter(|_| !open.is_snapshot && !has_begun)
    else {
        return Err(ResumeError::Late);
    };
    let recording = open.created.recording.as_ref().ok_or(ResumeError::NoId)?;
    let key = (recording.daemon, recording.id);
    if registry.has_resumable(key) || session.is_resumable() {
        return Err(ResumeError::Taken);
    }
    let timeout = Duration::from_secs(request.timeout.into()).min(settings.resume_timeout);
    let log = SessionLog::create(
        &settings.output,
        LoggedSession {
            id: session.id(),
            producer: session.identity().producer,
            timeout: u32::try_from(timeout.as_secs()).unwrap_or(u32::MAX),
            directory: directory.clone(),
            created: open.created.clone(),
            chunk: None,
            is_chunk_closed: false,
            streams: BTreeMap::new(),
            files: LoggedFiles::default(),
        },
        &settings.pool,
    )?;
    if let Some(syncer) = settings.pool.syncer() {
        log.sync_with(syncer, session.sync_status())?;
    }
    let resumable = Resumable {
        log: Arc::clone(&log),
        timeout,
        chunk: Mutex::default(),
    };
    // A directory that the user has named may have recordings in it, as with LTTng.
    let made = if is_directory_dated(&open.created, settings.grouping) {
        registry.make_resumable_alone(key, session, resumable)
    } else {
        Ok(registry.make_resumable(key, session, resumable))
    };
    if !matches!(made, Ok(true)) {
        // Otherwise the next relay would restore the session.
        log.remove();
        made?;
        return Err(match registry.is_draining() {
            true => ResumeError::Draining,
            false => ResumeError::Taken,
        });
    }
    let seconds = timeout.as_secs();
    info!(%session, log = %log.path().display(), seconds, "session is resumable");
    Ok(())
}

pub(super) fn resume_session(
    registry: &Arc<Registry>,
    address: IpAddr,
    connections: CancellationToken,
    request: ResumeSession,
) -> Result<(OpenSession, SessionCreated), ResumeError> {
    let key: RecordingKey = (request.daemon, request.id);
    let resumed = registry.resume(key, connections, address, Instant::now());
    let (session, generation) = resumed.ok_or(ResumeError::NoSession)?;
    let resumable = session.resumable().ok_or(ResumeError::NoSession)?;
    let mut chunks = SessionChunks::default();
    if let Some(chunk) = resumable.chunk.lock().clone() {
        chunks.begin_in(chunk);
    }
    let created = resumable
        .log
        .with_session(|session| session.created.clone());
    let directory = session.identity().directory.clone();
    let path = directory.as_ref().map(TracePath::to_text);
    let reply = SessionCreated {
        session: session.id(),
        path: path.unwrap_or_default(),
    };
    let output = &registry.settings().output;
    let open = OpenSession {
        absolute: directory
            .as_ref()
            .map_or(output.clone(), |own| output.join(own)),
        session,
        generation,
        created,
        is_snapshot: false,
        index_format: Some(IndexFormat::V1_1),
        directory,
        old_paths: None,
        chunks,
        metadata: None,
        paused: BTreeMap::new(),
        durable: HashMap::new(),
    };
    Ok((open, reply))
}

pub(super) fn open_stream(
    registry: &Arc<Registry>,
    open: &mut OpenSession,
    request: &OpenStream,
) -> Result<(Option<StreamId>, u64), Refusal> {
    let resumable = open.session.resumable().ok_or(ResumeError::NotResumable)?;
    let log = Arc::clone(&resumable.log);
    let key = StreamKey::of(request);
    let known = log.with_session(|session| session.streams.get(&key).cloned());
    if let Some(known) = known {
        // `first` is that of a new stream.
        if known.opened.stream != request.stream {
            return Err(ResumeError::Changed(key.number).into());
        }
        if let Some(at) = known.closed_at {
            return Ok((None, at));
        }
        let gone = ResumeError::Unknown(known.id);
        let stream = open.session.stream(known.id).ok_or(gone)?;
        let reopened = registry.reopen_stream(&open.session, &stream);
        let (id, next) = reopened.map_err(ResumeError::Ingest)?;
        debug!(session = %open.session, stream = %known.id, next, "stream continued");
        return Ok((Some(id), next));
    }
    if log.with_session(|session| session.files.contains(&request.stream)) {
        return Err(ResumeError::SameFiles(key.number).into());
    }
    let first = request.first;
    // Metadata is counted in bytes, from its beginning.
    if key.is_metadata && first != SeqNum(0) || first == SeqNum(u64::MAX) {
        return Err(ResumeError::First.into());
    }
    let id = create_stream(registry, open, &request.stream, Some(key), |stream| {
        // In the log before the reply, by which the producer knows the stream.
        log.append(&Record::Stream(stream.id(), request.clone()))?;
        let log = StreamLog::new(log, key);
        match stream {
            SessionStream::Data(stream) => stream.lock().make_resumable(log, first),
            SessionStream::Metadata(stream) => stream.make_resumable(log),
        }
        Ok(())
    })?;
    Ok((Some(id), first.0))
}

pub(super) fn position(
    registry: &Registry,
    open: &mut OpenSession,
    id: StreamId,
) -> Option<(u64, u64)> {
    let (written, durable) = written_position(open, id)?;
    if registry.guarantees_archive() {
        let archived = archived_position(open, id, written)?;
        return Some((written, archived));
    }
    match registry.settings().pool.syncer() {
        Some(syncer) if syncer.settings().durability == Durability::Interval => {
            let status = open.session.sync_status();
            let position = open.durable.entry(id).or_default();
            let durable = position.advance(durable, syncer, status);
            Some((written, durable.min(written)))
        }
        // With `packet`, the reply waits until all of this is synced.
        _ => Some((written, durable)),
    }
}

fn written_position(open: &OpenSession, id: StreamId) -> Option<(u64, u64)> {
    if !open.session.is_resumable() {
        return None;
    }
    match open.session.stream(id)? {
        SessionStream::Data(stream) => {
            let positions = stream.lock().positions();
            Some((positions.written.0, positions.durable.0))
        }
        SessionStream::Metadata(stream) => {
            let received = stream.received().0;
            Some((received, received))
        }
    }
}

/// The first packet or byte of a stream that is not in the archive, at most `written`.
fn archived_position(open: &OpenSession, id: StreamId, written: u64) -> Option<u64> {
    match open.session.stream(id)? {
        SessionStream::Data(stream) => {
            let published = stream.published();
            let archived = published.archived();
            if published.next_packet().0 == archived {
                // What follows is lost, or not written yet.
                return Some(written);
            }
            let (seq, _) = published.seq_of(archived)?;
            Some(seq.0.min(written))
        }
        SessionStream::Metadata(stream) => Some(stream.published().archived().min(written)),
    }
}

pub(super) fn skip_packets(
    registry: &Registry,
    open: &mut OpenSession,
    request: SkipPackets,
) -> Result<(), ResumeError> {
    if !open.session.is_resumable() {
        return Err(ResumeError::NotResumable);
    }
    let unknown = ResumeError::Unknown(request.stream);
    let Some(SessionStream::Data(stream)) = open.session.stream(request.stream) else {
        return Err(unknown);
    };
    let mut writer = stream.lock();
    // The number is that of a connection that was lost.
    if writer.wire_id() != request.stream {
        return Err(unknown);
    }
    writer.skip_packets(request.first, request.count)?;
    drop(writer);
    if stream.is_closed() {
        registry.forget_closed(&open.session, &[stream.id()]);
    }
    track_pause(open, SessionStream::Data(stream));
    Ok(())
}
