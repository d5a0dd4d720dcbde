//! Logs of the sessions that are archived and cannot be resumed, or not any more: what the next
//! relay must know of a session, besides its files, to archive the rest of it. Each session has a
//! log below the output, `.relayd/archive/S.log`, of checksummed records (`record_log`), from its
//! first stream on until the archive has all of it. `doc/store.md` has a table of the records.
//!
//! The log has the names of files, and which packet is the first in each. Packets keep their
//! numbers by that, and the archive has each of them once. A relay holds the lock of its logs, so
//! that another relay with the same output leaves them alone.

mod found;
mod record;
mod resumable;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use record_log::{Magic, Records};
use tracing::{error, warn};
use wire::{ChunkId, SeqNum};

pub use found::{FoundContent, FoundRun, FoundSession, FoundStream};
pub use record::{ArchiveRecord, LoggedArchive, LoggedChunk, SeqMark, StreamNames, TracefileKey};

use super::log_file::{
    LogError, collect_paths, compact_at, open_log, read_log, set_aside, write_whole,
};
use super::pool::{Pool, PooledDescriptor};
use super::{StoreError, disk, make_directory, remove_file};
use crate::limits::MAX_SESSION_LOG_BYTES;

/// First bytes of a log, with the version of its records.
const MAGIC: Magic = *b"rlyarch1";

/// The log of one archived session. Locked for a moment by each connection that changes the
/// session.
#[derive(Debug)]
pub struct ArchiveLog {
    path: PathBuf,
    state: Mutex<LogState>,
}

#[derive(Debug)]
struct LogState {
    session: LoggedArchive,
    /// The open file. None: the log was removed or set aside.
    file: Option<(File, PooledDescriptor)>,
    bytes: u64,
    /// Size at which the log is compacted.
    compact_at: u64,
}

/// The log of a session, for one of its streams of packets.
#[derive(Debug, Clone)]
pub struct StreamNumberLog {
    log: Arc<ArchiveLog>,
    stream: u64,
}

fn directory(output: &Path) -> PathBuf {
    output.join(".relayd").join("archive")
}

/// The paths of the logs below an output directory, those that were written last at the end.
fn paths(output: &Path) -> Vec<PathBuf> {
    let directory = directory(output);
    let mut logs = Vec::new();
    if let Err(error) = collect_paths(&directory, &mut logs)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        warn!(path = %directory.display(), %error, "logs of archived sessions not read: the rest of these sessions is not archived");
    }
    logs.sort_unstable();
    logs.into_iter().map(|(_, path)| path).collect()
}

impl ArchiveLog {
    /// Creates the log of a session. Its descriptor counts in the pool.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn create(
        output: &Path,
        session: LoggedArchive,
        pool: &Arc<Pool>,
    ) -> Result<Arc<Self>, StoreError> {
        let directory = directory(output);
        make_directory(&directory)?;
        let path = directory.join(format!("{}.log", session.key));
        let descriptor = pool.reserve();
        let (file, bytes) = write_whole(&path, MAGIC, &session.bodies(), false)?;
        Ok(Self::new(path, session, (file, descriptor), bytes))
    }

    fn new(
        path: PathBuf,
        session: LoggedArchive,
        file: (File, PooledDescriptor),
        bytes: u64,
    ) -> Arc<Self> {
        let state = LogState {
            session,
            file: Some(file),
            bytes,
            compact_at: compact_at(bytes),
        };
        Arc::new(Self {
            path,
            state: Mutex::new(state),
        })
    }

    /// Opens the logs that relays before this one have left below an output directory. One that
    /// cannot be understood is logged, and set aside.
    #[must_use]
    pub fn open_all(output: &Path, pool: &Arc<Pool>) -> Vec<Arc<Self>> {
        let mut logs = Vec::new();
        for path in paths(output) {
            match Self::open(&path, pool) {
                // None: another relay has it.
                Ok(log) => logs.extend(log),
                Err(error) => {
                    let path = path.display();
                    error!(%path, %error, "session not archived further: its log cannot be read; its traces stay as they are");
                }
            }
        }
        logs
    }

    fn open(path: &Path, pool: &Arc<Pool>) -> Result<Option<Arc<Self>>, LogError> {
        let opened = open_log(path, pool, MAGIC, |records| LoggedArchive::decode(records))?;
        Ok(opened.map(|log| {
            let file = (log.file, log.descriptor);
            Self::new(path.to_owned(), log.session, file, log.bytes)
        }))
    }

    /// The directories, relative to the output, of the sessions of which the archive may lack
    /// something. Logs that cannot be understood are skipped: their sessions will not be archived.
    #[must_use]
    pub fn directories(output: &Path) -> BTreeSet<PathBuf> {
        let mut directories = BTreeSet::new();
        for path in paths(output) {
            let Ok((_, log)) = read_log(&path) else {
                continue;
            };
            let Ok(session) = LoggedArchive::decode(Records::new(MAGIC, &log)) else {
                continue;
            };
            match &session.directory {
                Some(directory) => _ = directories.insert(Path::new(directory.as_ref()).to_owned()),
                None => {
                    let paths = session.streams.values();
                    let paths = paths.map(|own| Path::new(own.path.as_ref()).to_owned());
                    directories.extend(paths);
                }
            }
        }
        directories
    }

    /// Calls `with` with the session as the log describes it.
    pub fn with_session<T>(&self, with: impl FnOnce(&LoggedArchive) -> T) -> T {
        with(&self.state.lock().session)
    }

    /// Appends a change. If that fails, the log is removed: packets with wrong numbers would be
    /// worse than none.
    pub fn append(&self, record: ArchiveRecord) {
        let mut state = self.state.lock();
        let LogState {
            session,
            file: Some((file, _)),
            bytes,
            ..
        } = &mut *state
        else {
            return;
        };
        let (mut body, mut encoded) = (Vec::new(), Vec::new());
        record.encode(&mut body);
        record_log::encode(&[&body], &mut encoded);
        let end = *bytes + encoded.len() as u64;
        let written = if end > MAX_SESSION_LOG_BYTES {
            // The next relay would refuse to read a longer one.
            Err(std::io::Error::other("it is full"))
        } else {
            disk::write_all_at(file, &encoded, *bytes)
        };
        if let Err(error) = written {
            let path = self.path.display();
            warn!(%path, %error, "log of an archived session not written: if this relay is killed, the rest of the session is not archived");
            state.file = None;
            let _ = remove_file(&self.path);
            return;
        }
        session.apply(record);
        *bytes = end;
        if end > state.compact_at {
            self.compact(&mut state);
        }
    }

    /// Replaces the log by a shorter one that describes the same session.
    fn compact(&self, state: &mut LogState) {
        match write_whole(&self.path, MAGIC, &state.session.bodies(), false) {
            Ok((file, bytes)) => {
                if let Some(open) = &mut state.file {
                    open.0 = file;
                }
                state.bytes = bytes;
            }
            Err(error) => warn!(%error, "log of an archived session not compacted: it grows"),
        }
        // Also after a failure, so that not every record tries it again.
        state.compact_at = compact_at(state.bytes);
    }

    /// Removes the log: the archive has all of the session.
    pub fn remove(&self) {
        if self.state.lock().file.take().is_some()
            && let Err(error) = remove_file(&self.path)
        {
            warn!(%error, "log of an archived session not removed: the next start removes it");
        }
    }

    /// Renames the log, because the session cannot be archived further.
    pub fn set_aside(&self) {
        if self.state.lock().file.take().is_some() {
            set_aside(&self.path);
        }
    }

    /// Path of the log, for messages.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl StreamNumberLog {
    /// The part of a log that is about this stream.
    #[must_use]
    pub fn new(log: Arc<ArchiveLog>, stream: u64) -> Self {
        Self { log, stream }
    }

    /// Logs the number of the packet after the first `packets` of a tracefile.
    pub fn mark(&self, chunk: Option<ChunkId>, file: u64, packets: u64, seq: SeqNum) {
        let tracefile = TracefileKey {
            stream: self.stream,
            chunk,
            file,
        };
        let mark = SeqMark { packets, seq };
        self.log.append(ArchiveRecord::Mark(tracefile, mark));
    }
}
