//! A chunk: the part of a trace that lies in one directory, and where that directory moves when a
//! recording is rotated, cleared or ended. Several sessions may write to one chunk (kernel and
//! user-space tracing of a recording).

mod power_safety;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use jiff::tz::TimeZone;
use parking_lot::RwLock;
use relay_proto::chunk::CloseCommand;
use rustix::fs::OFlags;
use thiserror::Error;
use tracing::error;
use wire::{ChunkId, EpochSeconds, FileName};

use super::layout::{LayoutError, chunk_date};
use super::pool::Pool;
use super::sync::Syncer;
use super::sync::file::SyncStatus;
use super::{StoreError, create_file, deletion, disk, make_directory, open_marker};

/// Names of directories in that of the session, the same as those of lttng-relayd. A chunk is in
/// `OLD` while its successor is created, and the successor in `NEW` while its predecessor still
/// exists.
pub(super) const OLD: &str = ".tmp_old_chunk";
pub(super) const NEW: &str = ".tmp_new_chunk";
/// Prefix of directories whose chunk is being deleted. The process id and a number follow.
const DELETED: &str = ".tmp_deleted_chunk-";
/// Directory of the chunks that a rotation has completed.
pub(super) const ARCHIVES: &str = "archives";
/// Directory of index files beside tracefiles.
pub(super) const INDEX_DIRECTORY: &str = "index";

/// Whether chunks are moved through a directory of this name in that of their session.
#[must_use]
pub fn is_temporary(name: &OsStr) -> bool {
    [OLD, NEW, ARCHIVES].iter().any(|own| name == *own)
}

/// The reason why a chunk cannot be created.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "both variants are transparent")]
pub enum ChunkError {
    #[error(transparent)]
    Layout(#[from] LayoutError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A chunk. Each of its writers has a [`Holding`]; the last one that is dropped completes the
/// chunk.
#[derive(Debug)]
pub struct Chunk {
    /// Number of the chunk. None: the chunk is the whole output, for producers that know no chunks
    /// (before LTTng 2.11).
    id: Option<ChunkId>,
    /// Time at which the chunk began, as in the name of its directory.
    began: String,
    /// Name of the marker in each directory with files of the chunk.
    marker: String,
    /// Directory of the session. All directories of the chunk lie below it.
    session: PathBuf,
    /// Whether all files of the chunk have been deleted or are about to be. Read for every packet
    /// that a viewer reads.
    is_deleted: AtomicBool,
    /// Whether a file could not be completed, so that the markers stay and the next start examines
    /// the chunk.
    keeps_markers: AtomicBool,
    /// Whether files of the chunk are still being unlinked.
    is_being_removed: AtomicBool,
    /// Number of holdings; the last one counts until the chunk is complete. Changed with `state`
    /// locked, but read without the lock, which is held across file calls: readers of this number
    /// must not wait for a disk.
    holdings: AtomicUsize,
    /// Syncs the directories of the chunk. Set when its first file is created; before, it has
    /// nothing to sync.
    syncer: OnceLock<Arc<Syncer>>,
    state: RwLock<ChunkState>,
}

#[derive(Debug)]
struct ChunkState {
    place: ChunkPlace,
    /// Names of the directories that the chunk has created in its own: `ust`, `kernel`. The
    /// directory of a session also contains what is not of the chunk.
    top_entries: BTreeSet<OsString>,
    /// Directories below that of the chunk in which there is a marker.
    marked: BTreeSet<PathBuf>,
    /// Sync status of each session with files in the chunk. Empty unless files are synced.
    statuses: Vec<Arc<SyncStatus>>,
    /// Time at which the chunk ended, as in the name of its archive. None: it has not ended.
    ended: Option<String>,
    /// The producer's command for the end of the chunk. None: the chunk stays where it is.
    command: Option<CloseCommand>,
    /// Number of moves so far, by which a reader notices that the chunk moved while it opened a
    /// file.
    moves: u64,
}

/// The place of a chunk's directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChunkPlace {
    /// The directory of the session itself.
    Session,
    /// A directory that the producer named: a snapshot.
    Named(FileName),
    /// `.tmp_old_chunk`, while the successor is created.
    Old,
    /// `.tmp_new_chunk`, while the predecessor still exists.
    New,
    /// A directory named after the time at which the chunk began, and its number.
    Dated,
    /// `archives`: the chunk is complete.
    Archived,
}

impl Chunk {
    /// Creates a chunk and its directory at `place`.
    ///
    /// # Errors
    /// If the calendar does not reach as far as `began`, or the directory cannot be created.
    pub fn create(
        id: ChunkId,
        began: EpochSeconds,
        session: &Path,
        place: ChunkPlace,
        time_zone: &TimeZone,
    ) -> Result<Holding, ChunkError> {
        let began = chunk_date(began, time_zone)?;
        let chunk = Self::at(Some(id), began, session, place);
        make_directory(&chunk.current_path(&chunk.state.read()))?;
        Ok(Holding::new(Arc::new(chunk)))
    }

    /// The chunk of a producer that knows none: the whole output.
    #[must_use]
    pub fn whole_output(output: &Path) -> Holding {
        Holding::new(Arc::new(Self::at(
            None,
            String::new(),
            output,
            ChunkPlace::Session,
        )))
    }

    /// A chunk of a relay before this one, for readers. `directory` is its place. None: its files
    /// were deleted.
    #[must_use]
    pub(super) fn found(id: Option<ChunkId>, directory: Option<&Path>) -> Arc<Self> {
        let place = directory.unwrap_or(Path::new(""));
        let chunk = Self::at(id, String::new(), place, ChunkPlace::Session);
        let is_deleted = AtomicBool::new(directory.is_none());
        Arc::new(Self {
            is_deleted,
            ..chunk
        })
    }

    fn at(id: Option<ChunkId>, began: String, session: &Path, place: ChunkPlace) -> Self {
        let state = ChunkState {
            place,
            top_entries: BTreeSet::new(),
            marked: BTreeSet::new(),
            statuses: Vec::new(),
            ended: None,
            command: None,
            moves: 0,
        };
        Self {
            id,
            marker: open_marker::name(&began, id.map(|id| id.0)),
            began,
            session: session.to_owned(),
            is_deleted: AtomicBool::new(false),
            keeps_markers: AtomicBool::new(false),
            is_being_removed: AtomicBool::new(false),
            holdings: AtomicUsize::new(0),
            syncer: OnceLock::new(),
            state: RwLock::new(state),
        }
    }

    /// Number of the chunk. None: the producer knows no chunks.
    #[must_use]
    pub fn id(&self) -> Option<ChunkId> {
        self.id
    }

    /// Time at which the chunk began, as in the name of its directory.
    #[must_use]
    pub fn began(&self) -> &str {
        &self.began
    }

    /// Current place of the chunk.
    #[must_use]
    pub fn place(&self) -> ChunkPlace {
        self.state.read().place.clone()
    }

    /// Whether the chunk is a snapshot, which is never moved.
    #[must_use]
    pub fn is_named(&self) -> bool {
        matches!(self.place(), ChunkPlace::Named(_))
    }

    /// Whether the files of the chunk have been deleted.
    #[must_use]
    pub fn is_deleted(&self) -> bool {
        self.is_deleted.load(Ordering::Acquire)
    }

    /// Creates a file in the chunk.
    ///
    /// # Errors
    /// If it cannot be created, or another stream writes the file of that name.
    pub fn create_file(
        &self,
        pool: &Pool,
        directory: &Path,
        name: &FileName,
        status: &Arc<SyncStatus>,
    ) -> Result<File, StoreError> {
        // Locked until the file exists, so that the chunk does not move meanwhile.
        let mut state = self.state.write();
        if let Some(entry) = directory.components().next()
            && !state.top_entries.contains(entry.as_os_str())
        {
            state.top_entries.insert(entry.as_os_str().to_owned());
        }
        let chunk = self.current_path(&state);
        let path = chunk.join(directory);
        // Asked before the directory is made, and only if something is synced: it costs a stat(2).
        let is_new = pool.syncer().is_some() && !path.is_dir();
        make_directory(&path)?;
        // Before the file: after a crash, the repair does not look at files without a marker.
        self.mark(&mut state, directory)?;
        let file = create_file(&path.join(name), pool)?;
        if let Some(syncer) = pool.syncer() {
            state.add_status(status);
            self.mark_created(syncer, &chunk, &path, is_new, status)?;
        }
        Ok(file)
    }

    /// Opens a file that a relay before this one has written in the chunk.
    ///
    /// # Errors
    /// If it cannot be opened, or its directory cannot be marked as being written.
    pub fn adopt_file(&self, directory: &Path, name: &FileName) -> io::Result<File> {
        if let Some(entry) = directory.components().next() {
            let mut state = self.state.write();
            state.top_entries.insert(entry.as_os_str().to_owned());
        }
        // Opened first: without the file there may be no directory in which to create a marker.
        let file = self.open_file(&directory.join(name))?;
        self.mark(&mut self.state.write(), directory)
            .map_err(io::Error::other)?;
        Ok(file)
    }

    /// Opens a file in the chunk for its writer.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open_file(&self, below: &Path) -> io::Result<File> {
        self.with_path(below, |path| regular_file::open(path, OFlags::RDWR))
    }

    /// Opens a file in the chunk for a reader. The chunk is not locked during open(2): if that
    /// hangs, the writer can still move the chunk.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open_for_reading(&self, below: &Path) -> io::Result<File> {
        loop {
            let (path, moves) = {
                let state = self.state.read();
                (self.current_path(&state).join(below), state.moves)
            };
            let opened = regular_file::open(&path, OFlags::RDONLY);
            // If the chunk was moved meanwhile, this may be the file of the same name in its
            // successor.
            if self.state.read().moves == moves {
                return opened;
            }
        }
    }

    /// Calls `with` with the path of a file in the chunk, which does not move meanwhile.
    pub fn with_path<T>(&self, below: &Path, with: impl FnOnce(&Path) -> T) -> T {
        let state = self.state.read();
        with(&self.current_path(&state).join(below))
    }

    fn current_path(&self, state: &ChunkState) -> PathBuf {
        self.path(state, &state.place)
    }

    fn path(&self, state: &ChunkState, place: &ChunkPlace) -> PathBuf {
        let id = self.id.unwrap_or_default().0;
        match place {
            ChunkPlace::Session => self.session.clone(),
            ChunkPlace::Named(name) => self.session.join(name),
            ChunkPlace::Old => self.session.join(OLD),
            ChunkPlace::New => self.session.join(NEW),
            ChunkPlace::Dated => self.session.join(format!("{}-{id}", self.began)),
            ChunkPlace::Archived => self.session.join(self.archive(state)),
        }
    }

    fn archive(&self, state: &ChunkState) -> PathBuf {
        let id = self.id.unwrap_or_default().0;
        let ended = state.ended.as_deref().unwrap_or_default();
        Path::new(ARCHIVES).join(format!("{}-{ended}-{id}", self.began))
    }

    /// Moves the chunk, unless it is at `place` already.
    ///
    /// # Errors
    /// If a directory cannot be created, renamed or removed. The chunk may then lie partly at both
    /// places.
    pub fn move_to(&self, place: ChunkPlace) -> Result<(), StoreError> {
        self.move_state(&mut self.state.write(), place)
    }

    fn move_state(&self, state: &mut ChunkState, place: ChunkPlace) -> Result<(), StoreError> {
        if state.place == place {
            return Ok(());
        }
        // Counted even if the move fails: a part of it may have been done.
        state.moves += 1;
        let (from, to) = (self.current_path(state), self.path(state, &place));
        match (&state.place, &place) {
            // The session's directory stays, so that the chunk's entries in it are moved one by
            // one.
            (ChunkPlace::Session, _) => {
                make_directory(&to)?;
                state.rename_entries(&from, &to)?;
            }
            (_, ChunkPlace::Session) => {
                state.rename_entries(&from, &to)?;
                // Only an empty directory is removed: what a user has put there is not lost.
                disk::remove_directory(&from).map_err(StoreError::on("remove", &from))?;
            }
            _ => {
                if let Some(parent) = to.parent() {
                    make_directory(parent)?;
                }
                rename(&from, &to)?;
            }
        }
        self.mark_moved(state, &from, &to);
        state.place = place;
        Ok(())
    }

    /// Ends the chunk. `command` is executed when the last writer is gone; None leaves an earlier
    /// command in effect.
    ///
    /// # Errors
    /// If the calendar does not reach as far as `ended`.
    pub fn end(
        &self,
        ended: EpochSeconds,
        command: Option<CloseCommand>,
        time_zone: &TimeZone,
    ) -> Result<(), LayoutError> {
        let ended = chunk_date(ended, time_zone)?;
        let mut state = self.state.write();
        state.ended = Some(ended);
        state.command = command.or(state.command);
        Ok(())
    }

    /// Path of the archived chunk, relative to the session's directory.
    #[must_use]
    pub fn archive_path(&self) -> PathBuf {
        self.archive(&self.state.read())
    }

    /// Whether the chunk still has a writer.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.holdings.load(Ordering::Acquire) > 0
    }

    /// Whether the chunk still has a writer, or is still being deleted.
    #[must_use]
    pub fn is_present(&self) -> bool {
        self.is_held() || self.is_being_removed.load(Ordering::Acquire)
    }

    /// Completes the chunk although it may still have writers, because its producer is dead. A
    /// chunk that has not ended is archived, unless it is a snapshot.
    pub fn archive_now(self: &Arc<Self>, ended: EpochSeconds, time_zone: &TimeZone) {
        let mut state = self.state.write();
        let done = if state.ended.is_some() {
            self.complete(&mut state)
        // A snapshot stays where its producer wanted it, and an archive without files is of no use.
        } else if matches!(state.place, ChunkPlace::Named(_)) || state.top_entries.is_empty() {
            Ok(())
        } else {
            // Without a date the archive has an incomplete name, but its files do not block the
            // next recording.
            state.ended = chunk_date(ended, time_zone).ok();
            self.move_state(&mut state, ChunkPlace::Archived)
        };
        self.log_incomplete(done);
        // The last holding has nothing more to do when it is dropped.
        state.command = None;
    }

    fn log_incomplete(&self, done: Result<(), StoreError>) {
        if let Err(error) = done {
            error!(session = %self.session.display(), %error, "chunk not completed: it stays where it is");
        }
    }

    /// Executes the producer's command for the end of the chunk.
    fn complete(self: &Arc<Self>, state: &mut ChunkState) -> Result<(), StoreError> {
        match state.command {
            Some(CloseCommand::MoveToCompleted) => {
                if state.place == ChunkPlace::Session {
                    // Gathered in one directory first, so that the archive appears whole, by one
                    // rename.
                    self.move_state(state, ChunkPlace::Old)?;
                }
                self.move_state(state, ChunkPlace::Archived)
            }
            Some(CloseCommand::Delete) => {
                // Set first, so that readers that no longer find the files know the reason.
                self.is_deleted.store(true, Ordering::Release);
                self.delete(state)
            }
            Some(CloseCommand::NoOperation) | None => Ok(()),
        }
    }

    /// Renames the chunk at once and has it deleted later, so that its name is free for the next
    /// chunk. If the relay dies meanwhile, the next one completes the deletion.
    fn delete(self: &Arc<Self>, state: &ChunkState) -> Result<(), StoreError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // A number as well: several chunks may be in deletion at the same time.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{DELETED}{}-{number}", std::process::id());
        let (from, to) = (self.current_path(state), self.session.join(name));
        if state.place == ChunkPlace::Session {
            if state.top_entries.is_empty() {
                return Ok(());
            }
            make_directory(&to)?;
            state.rename_entries(&from, &to)?;
        } else {
            rename(&from, &to)?;
        }
        self.mark_moved(state, &from, &to);
        // Before it is enqueued: the deletion may have been done when `enqueue` returns.
        self.is_being_removed.store(true, Ordering::Release);
        let chunk = Arc::clone(self);
        deletion::enqueue(move || {
            if let Err(error) = disk::remove_tree(&to) {
                error!(path = %to.display(), %error, "deleted chunk not removed: the next start does it");
            }
            chunk.is_being_removed.store(false, Ordering::Release);
        });
        Ok(())
    }
}

impl ChunkState {
    fn rename_entries(&self, from: &Path, to: &Path) -> Result<(), StoreError> {
        let mut entries = self.top_entries.iter();
        entries.try_for_each(|entry| rename(&from.join(entry), &to.join(entry)))
    }
}

fn rename(from: &Path, to: &Path) -> Result<(), StoreError> {
    disk::rename(from, to).map_err(StoreError::on("move a chunk to", to))
}

/// Whether a directory of this name holds a chunk that was being deleted.
pub(super) fn is_being_deleted(name: &[u8]) -> bool {
    name.starts_with(DELETED.as_bytes())
}

/// The right to write to a chunk. When the last holding of a chunk that has ended is dropped, the
/// chunk is completed.
#[derive(Debug)]
pub struct Holding(Arc<Chunk>);

impl Holding {
    // Locked although the counter is atomic: `drop` decides under the lock whether it is the last.
    fn new(chunk: Arc<Chunk>) -> Self {
        let state = chunk.state.write();
        chunk.holdings.fetch_add(1, Ordering::AcqRel);
        drop(state);
        Self(chunk)
    }

    /// Whether both belong to the same chunk.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Another holding of a chunk that still has one. None: the last one has been dropped.
    #[must_use]
    pub fn of(chunk: Arc<Chunk>) -> Option<Self> {
        // Read and counted under one lock: the last holding may be dropped at this moment.
        let state = chunk.state.write();
        let is_held = chunk.is_held();
        if is_held {
            chunk.holdings.fetch_add(1, Ordering::AcqRel);
        }
        drop(state);
        is_held.then_some(Self(chunk))
    }

    /// The chunk, for readers, which do not keep it from being completed.
    #[must_use]
    pub fn chunk(&self) -> &Arc<Chunk> {
        &self.0
    }
}

impl Clone for Holding {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.0))
    }
}

impl Deref for Holding {
    type Target = Chunk;

    fn deref(&self) -> &Chunk {
        &self.0
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        let mut state = self.0.state.write();
        let is_last = self.0.holdings.load(Ordering::Acquire) == 1;
        let syncer = self.0.syncer.get();
        if is_last {
            if state.ended.is_some() {
                self.log_incomplete(self.0.complete(&mut state));
            }
            if syncer.is_none() {
                // After the move: until then the markers show that the rotation has to be
                // completed.
                let marked = std::mem::take(&mut state.marked);
                self.0.remove_markers(&state, &marked);
            }
        }
        // Only now: until then the chunk still counts as written to.
        self.0.holdings.fetch_sub(1, Ordering::AcqRel);
        if let Some(syncer) = syncer.filter(|_| is_last) {
            self.0.remove_markers_when_synced(syncer, state);
        }
    }
}
