//! Session logs: what the next relay must know of a resumable session, besides its files, to
//! continue it. Each session has a log below the output, `.relayd/sessions/PRODUCER-ID.log`, of
//! checksummed records (`record_log`). A change is in the log before the producer is told of it.
//! `doc/store.md` has a table of the records.
//!
//! A relay holds the lock of the logs of its sessions, so that another relay with the same output
//! leaves them alone.

mod logged_session;
mod record;

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use record_log::{Magic, Records};
use rustix::fs::OFlags;
use tracing::warn;
use wire::TracePath;

pub use logged_session::{FilePosition, LoggedFiles, LoggedSession, LoggedStream, Mark, StreamKey};
pub use record::Record;

use super::log_file::{
    LogError, collect_paths, compact_at, open_log, read_log, set_aside, write_whole,
};
use super::pool::{Pool, PooledDescriptor};
use super::sync::Syncer;
use super::sync::file::{SyncOrder, SyncStatus, SyncTarget, SyncedFile};
use super::{StoreError, disk, make_directory, remove_file};
use crate::limits::MAX_SESSION_LOG_BYTES;

/// First bytes of a log, with the version of its records.
const MAGIC: Magic = *b"rlysess1";

/// Directories of the logs, below the output. A session cannot have a directory of this name, which
/// begins with a dot.
const DIRECTORY: [&str; 2] = [".relayd", "sessions"];

/// The log of one session. Locked for a moment by each connection that changes the session.
#[derive(Debug)]
pub struct SessionLog {
    path: PathBuf,
    state: Mutex<LogState>,
}

#[derive(Debug)]
struct LogState {
    session: LoggedSession,
    /// The open log. None: it was removed or set aside, and changes are not logged any more.
    file: Option<LogFile>,
    bytes: u64,
    /// Syncs the log with the files of the session. None: nothing is synced.
    sync: Option<LogSync>,
    /// Size at which the log is compacted.
    compact_at: u64,
}

/// The open file of a log.
#[derive(Debug)]
struct LogFile {
    file: Arc<SyncedFile>,
    _descriptor: PooledDescriptor,
}

/// The syncer of a log, and what it knows of the log.
#[derive(Debug)]
struct LogSync {
    syncer: Arc<Syncer>,
    target: Arc<SyncTarget>,
}

fn directory(output: &Path) -> PathBuf {
    DIRECTORY
        .iter()
        .fold(output.to_owned(), |path, name| path.join(name))
}

impl SessionLog {
    /// Creates the log of a session. Its descriptor counts in the pool.
    ///
    /// # Errors
    /// If it cannot be written, or the producer's ids are those of a session of another relay.
    pub fn create(
        output: &Path,
        session: LoggedSession,
        pool: &Arc<Pool>,
    ) -> Result<Arc<Self>, StoreError> {
        let directory = directory(output);
        make_directory(&directory)?;
        let recording = session.created.recording.as_ref();
        let (daemon, id) = recording.map_or(([0; 16], 0), |own| (own.daemon.0, own.id));
        let path = directory.join(format!("{:032x}-{id}.log", u128::from_be_bytes(daemon)));
        if regular_file::open(&path, OFlags::RDONLY).is_ok_and(|old| super::is_locked(&old)) {
            let busy = io::Error::other("another relay has a session with these ids");
            return Err(StoreError::on("replace", &path)(busy));
        }
        let descriptor = pool.reserve();
        let (file, bytes) = write_whole(&path, MAGIC, &session.bodies(), false)?;
        Ok(Self::new(path, session, file, descriptor, bytes))
    }

    fn new(
        path: PathBuf,
        session: LoggedSession,
        file: File,
        descriptor: PooledDescriptor,
        bytes: u64,
    ) -> Arc<Self> {
        let file = SyncedFile::new(file);
        let state = LogState {
            session,
            file: Some(LogFile {
                file,
                _descriptor: descriptor,
            }),
            bytes,
            sync: None,
            compact_at: compact_at(bytes),
        };
        Arc::new(Self {
            path,
            state: Mutex::new(state),
        })
    }

    /// The paths of the logs below an output directory, those that were written last at the end.
    /// What keeps logs from being found is logged.
    #[must_use]
    pub fn paths(output: &Path) -> Vec<PathBuf> {
        let directory = directory(output);
        let mut logs = Vec::new();
        if let Err(error) = collect_paths(&directory, &mut logs)
            && error.kind() != io::ErrorKind::NotFound
        {
            warn!(path = %directory.display(), %error, "session logs not read: their sessions are not restored");
        }
        logs.sort_unstable();
        logs.into_iter().map(|(_, path)| path).collect()
    }

    /// The trace directories, relative to the output, of the sessions whose logs are below it. Logs
    /// that cannot be understood are skipped: their sessions will not be restored.
    #[must_use]
    pub fn trace_directories(output: &Path) -> BTreeSet<PathBuf> {
        let mut directories = BTreeSet::new();
        for path in Self::paths(output) {
            let Ok((_, log)) = read_log(&path) else {
                continue;
            };
            let mut records = Records::new(MAGIC, &log);
            let Ok(session) = LoggedSession::decode(&mut records) else {
                continue;
            };
            if session.is_complete() {
                // It will not be continued: its traces are to be closed.
                continue;
            }
            let streams = session.streams.values();
            let paths =
                streams.filter_map(|of| TracePath::parse_rooted(&of.opened.stream.path).ok());
            let directory: &Path = session.directory.as_ref();
            directories.extend(paths.map(|path| directory.join(path)));
        }
        directories
    }

    /// Opens a log to restore its session. None: another relay has locked it.
    ///
    /// # Errors
    /// If it cannot be read or understood. It is set aside then, so that the next start does not
    /// try again.
    pub fn open(path: &Path, pool: &Arc<Pool>) -> Result<Option<Arc<Self>>, LogError> {
        let opened = open_log(path, pool, MAGIC, |records| LoggedSession::decode(records))?;
        Ok(opened.map(|log| {
            let path = path.to_owned();
            Self::new(path, log.session, log.file, log.descriptor, log.bytes)
        }))
    }

    /// Has the log synced with the other files of its session, from now on, and what is in it
    /// already.
    ///
    /// # Errors
    /// If its directory cannot be opened.
    pub fn sync_with(
        &self,
        syncer: &Arc<Syncer>,
        status: &Arc<SyncStatus>,
    ) -> Result<(), StoreError> {
        let target = SyncTarget {
            order: SyncOrder::Log,
            path: self.path.clone(),
            status: Arc::clone(status),
        };
        let mut state = self.state.lock();
        state.sync = Some(LogSync {
            syncer: Arc::clone(syncer),
            target: Arc::new(target),
        });
        state.mark_written(state.bytes);
        state.mark_directories(&self.path)
    }

    /// Length of the log in bytes, which the memory for the session is a small multiple of.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.state.lock().bytes
    }

    /// Path of the log, for messages.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Calls `with` with the session as the log describes it.
    pub fn with_session<T>(&self, with: impl FnOnce(&LoggedSession) -> T) -> T {
        with(&self.state.lock().session)
    }

    /// Appends a change.
    ///
    /// # Errors
    /// If it cannot be written, or the log would be too long. The change is not in the log then.
    pub fn append(&self, record: &Record) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        let LogState {
            session,
            file: Some(LogFile { file, .. }),
            bytes,
            ..
        } = &mut *state
        else {
            // The log was removed or set aside, or the relay is stopping.
            return Ok(());
        };
        let failed = |error| StoreError::on("write", &self.path)(error);
        let mut body = Vec::new();
        record.encode(&mut body);
        let mut encoded = Vec::new();
        record_log::encode(&[&body], &mut encoded);
        let end = *bytes + encoded.len() as u64;
        // The next relay would refuse to read a longer one.
        if end > MAX_SESSION_LOG_BYTES {
            return Err(failed(io::Error::other("the log of the session is full")));
        }
        if let Err(error) = disk::write_all_at(file, &encoded, *bytes) {
            // What was written of it would be taken for a torn record, and the next one overwrites
            // it.
            let _ = disk::set_len(file, *bytes);
            return Err(failed(error));
        }
        // After the write, so that memory never has what the log has not.
        if let Err(error) = session.apply(record) {
            let _ = disk::set_len(file, *bytes);
            return Err(failed(io::Error::other(error)));
        }
        *bytes = end;
        state.mark_written(encoded.len() as u64);
        if end > state.compact_at {
            self.compact(&mut state);
        }
        Ok(())
    }

    /// Appends a change that must be on the disk before another file changes. Waits for the disk,
    /// if files are synced.
    fn append_synced(&self, record: &Record) -> Result<(), StoreError> {
        self.append(record)?;
        let state = self.state.lock();
        match &state.file {
            Some(LogFile { file, .. }) if state.sync.is_some() => {
                disk::sync_file(file).map_err(StoreError::on("sync", &self.path))
            }
            _ => Ok(()),
        }
    }

    /// Replaces the log by a shorter one that describes the same session.
    fn compact(&self, state: &mut LogState) {
        let is_synced = state.sync.is_some();
        let written = write_whole(&self.path, MAGIC, &state.session.bodies(), is_synced);
        let marked = written.and_then(|(file, bytes)| {
            if let Some(open) = &mut state.file {
                open.file = SyncedFile::new(file);
            }
            state.bytes = bytes;
            state.mark_written(bytes);
            state.mark_directories(&self.path)
        });
        if let Err(error) = marked {
            warn!(%error, "session log not compacted: it grows");
        }
        // Also after a failure, so that not every record tries it again.
        state.compact_at = compact_at(state.bytes);
    }

    /// Removes the log, because the session has ended, and its directories if no other session has
    /// a log.
    pub fn remove(&self) {
        let file = self.state.lock().file.take();
        if file.is_none() {
            return;
        }
        if let Err(error) = remove_file(&self.path) {
            warn!(%error, "log of an ended session not removed: the next start removes it");
        }
        // Directories with logs are not empty, and stay.
        let mut directories = self.path.ancestors().skip(1).take(DIRECTORY.len());
        let _ = directories.try_for_each(disk::remove_directory);
    }

    /// Renames the log, because its session cannot be restored, so that the next start does not try
    /// again.
    pub fn set_aside(&self) {
        if self.state.lock().file.take().is_some() {
            set_aside(&self.path);
        }
    }

    /// Stops logging: the relay ends, and the next one is to restore the session as it is now.
    pub fn keep(&self) {
        self.state.lock().file = None;
    }
}

impl LogState {
    /// Has the file synced, to which bytes have been written.
    fn mark_written(&self, bytes: u64) {
        if let (Some(open), Some(sync)) = (&self.file, &self.sync) {
            sync.syncer.mark_file(&open.file, &sync.target, bytes);
        }
    }

    /// Has the names synced that lead to the log: its own, and those of its directories.
    fn mark_directories(&self, log: &Path) -> Result<(), StoreError> {
        let Some(sync) = &self.sync else {
            return Ok(());
        };
        let mut directories = log.ancestors().skip(1).take(1 + DIRECTORY.len());
        directories.try_for_each(|directory| {
            sync.syncer
                .mark_directory(directory, Some(&sync.target.status))
        })
    }
}

/// The log of a session, for one of its streams.
#[derive(Debug, Clone)]
pub struct StreamLog {
    log: Arc<SessionLog>,
    key: StreamKey,
}

impl StreamLog {
    /// The part of a log that is about this stream.
    #[must_use]
    pub fn new(log: Arc<SessionLog>, key: StreamKey) -> Self {
        Self { log, key }
    }

    /// Logs that packets continue with another number than the next one, or in another tracefile.
    /// All packets before `indexed` have an entry.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn mark(&self, mark: Mark, indexed: FilePosition) -> Result<(), StoreError> {
        let key = self.key.number;
        let record = Record::Mark { key, mark, indexed };
        let replaces = self.log.with_session(|session| {
            let stream = session.streams.get(&self.key);
            let replacing = stream.and_then(|stream| stream.replacing);
            replacing.is_some_and(|replacing| replacing.at.file <= mark.at.file)
        });
        if replaces {
            // Otherwise an entry of the new tracefile could be taken for one of the older
            // tracefile.
            return self.log.append_synced(&record);
        }
        self.log.append(&record)
    }

    /// Whether the log may have many more marks of the stream.
    #[must_use]
    pub fn has_room_for_marks(&self) -> bool {
        self.log.with_session(|session| {
            let stream = session.streams.get(&self.key);
            stream.is_none_or(LoggedStream::has_room_for_marks)
        })
    }

    /// Logs that a tracefile that begins with a packet is about to replace an older one of the same
    /// name: the packets of that one are not asked for again.
    ///
    /// # Errors
    /// If it cannot be written. Nothing may be replaced then.
    pub fn replacing(&self, mark: Mark) -> Result<(), StoreError> {
        let key = self.key.number;
        self.log.append_synced(&Record::Replacing { key, mark })
    }

    /// Logs that everything from a position on was removed from the tracefiles, unless that changes
    /// nothing.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn rewind(&self, at: FilePosition) -> Result<(), StoreError> {
        let is_behind = self.log.with_session(|session| {
            let stream = session.streams.get(&self.key);
            let last = stream.and_then(|stream| stream.marks.back());
            last.is_some_and(|last| last.at > at)
        });
        if !is_behind {
            return Ok(());
        }
        let key = self.key.number;
        self.log.append(&Record::Rewound { key, at })
    }

    /// Logs the length of the metadata, in bytes.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn set_metadata_bytes(&self, bytes: u64) -> Result<(), StoreError> {
        let key = self.key.number;
        self.log.append(&Record::Metadata { key, bytes })
    }

    /// Logs that the stream is closed after packet `at` - 1, or byte `at` - 1 of the metadata.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn close(&self, at: u64) -> Result<(), StoreError> {
        let key = self.key;
        self.log.append(&Record::Closed { key, at })
    }
}

#[cfg(test)]
mod tests;
