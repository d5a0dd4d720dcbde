//! What keeps a chunk safe from a power failure: markers, which show that its directories are to be
//! examined after a crash, and the directories whose names are synced.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use daemon::host_clock::boot_id;
use parking_lot::RwLockWriteGuard;
use rustix::fs::OFlags;
use tracing::warn;

use super::super::pool::Pool;
use super::super::sync::Syncer;
use super::super::sync::file::SyncStatus;
use super::super::{StoreError, disk, remove_file};
use super::{Chunk, ChunkState, INDEX_DIRECTORY};

impl Chunk {
    /// Marks a directory of the chunk as being written, before anything else is in it. A marker of
    /// an earlier relay that wrote the same chunk is adopted.
    pub(super) fn mark(&self, state: &mut ChunkState, directory: &Path) -> Result<(), StoreError> {
        // Index files lie below a directory of tracefiles, whose marker covers them.
        let is_index = directory.file_name() == Some(OsStr::new(INDEX_DIRECTORY));
        if is_index || state.marked.contains(directory) {
            return Ok(());
        }
        let marker = self.current_path(state).join(directory).join(&self.marker);
        // Without EXCL: a marker of an earlier relay is adopted, so that the directory never lacks
        // one.
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW;
        let created = disk::create(&marker, flags).map_err(StoreError::on("create", &marker))?;
        if let Some(boot) = boot_id() {
            // A marker that is empty, because the disk is full, only has the next start read more
            // of the trace.
            let _ = disk::write_all_at(&created, boot.as_bytes(), 0);
        }
        state.marked.insert(directory.to_owned());
        Ok(())
    }

    /// Has the next start examine the directories of the chunk, because a file could not be
    /// completed.
    pub(in crate::store) fn keep_markers(&self) {
        self.keeps_markers.store(true, Ordering::Relaxed);
    }

    /// Removes the markers in these directories.
    pub(super) fn remove_markers(&self, state: &ChunkState, marked: &BTreeSet<PathBuf>) {
        // The markers of a deleted chunk are unlinked with its files.
        if self.is_deleted() || self.keeps_markers.load(Ordering::Relaxed) {
            return;
        }
        let chunk = self.current_path(state);
        for directory in marked {
            if let Err(error) = remove_file(&chunk.join(directory).join(&self.marker)) {
                warn!(%error, "marker not removed: the next start examines the directory");
            }
        }
    }

    /// Removes the markers once the files of the chunk and its last move are synced: after a power
    /// failure before that, they show that the directory is to be examined. If a sync fails, they
    /// stay.
    pub(super) fn remove_markers_when_synced(
        self: &Arc<Self>,
        syncer: &Syncer,
        mut state: RwLockWriteGuard<'_, ChunkState>,
    ) {
        let marked = std::mem::take(&mut state.marked);
        let statuses = std::mem::take(&mut state.statuses);
        drop(state);
        let chunk = Arc::clone(self);
        syncer.call_after_round(move || {
            if statuses.iter().any(|status| status.has_failed()) {
                warn!(session = %chunk.session.display(), "markers not removed: the next start examines the chunk");
            } else {
                chunk.remove_markers(&chunk.state.read(), &marked);
            }
        });
    }

    /// Has the directories of the chunk synced when it moves. For a chunk whose files were created
    /// before: the names that lead to them are synced already. `status` is that of the session
    /// whose files they are.
    pub(in crate::store) fn set_syncer(&self, pool: &Pool, status: &Arc<SyncStatus>) {
        if let Some(syncer) = pool.syncer() {
            self.syncer.get_or_init(|| Arc::clone(syncer));
            self.state.write().add_status(status);
        }
    }

    /// Has the names synced that lead to a new file: its own, and those of the directories that
    /// were created for it.
    pub(super) fn mark_created(
        &self,
        syncer: &Arc<Syncer>,
        chunk: &Path,
        directory: &Path,
        is_new: bool,
        status: &Arc<SyncStatus>,
    ) -> Result<(), StoreError> {
        syncer.mark_directory(directory, Some(status))?;
        // That of the session may be as new as that of the chunk.
        let is_first = self.syncer.set(Arc::clone(syncer)).is_ok();
        if is_new || is_first {
            let above = directory.ancestors().skip(1);
            for parent in above.take_while(|parent| parent.starts_with(chunk)) {
                syncer.mark_directory(parent, Some(status))?;
            }
        }
        if is_first {
            for parent in chunk.ancestors().skip(1) {
                // Not those that were there before the relay, which it perhaps may not read.
                if syncer.mark_directory(parent, Some(status)).is_err() {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Has the names synced that were moved.
    pub(super) fn mark_moved(&self, state: &ChunkState, from: &Path, to: &Path) {
        let Some(syncer) = self.syncer.get() else {
            return;
        };
        let statuses = state.statuses.iter().map(Some);
        let statuses: Vec<_> = match state.statuses.is_empty() {
            true => vec![None],
            false => statuses.collect(),
        };
        // Entries that were moved one by one, or the directory itself. One of the two may be gone.
        let parents = [from.parent(), to.parent()].into_iter().flatten();
        for directory in [from, to].into_iter().chain(parents) {
            let mut marked = statuses.iter();
            let marked = marked.try_for_each(|status| syncer.mark_directory(directory, *status));
            if let Err(error) = marked
                && error.source.kind() != io::ErrorKind::NotFound
            {
                warn!(%error, "directory not synced: after a power failure the chunk may be where it was");
            }
        }
    }
}

impl ChunkState {
    pub(super) fn add_status(&mut self, status: &Arc<SyncStatus>) {
        if !self.statuses.iter().any(|own| Arc::ptr_eq(own, status)) {
            self.statuses.push(Arc::clone(status));
        }
    }
}
