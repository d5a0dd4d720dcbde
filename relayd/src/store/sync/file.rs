//! Files that the syncer shares with their writers: what has to be synced, in which order, and what
//! a failure costs.

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use super::super::StoreError;

/// The order in which the files of a round are synced. After a power failure the relay trusts index
/// entries, so that the packets that they point at come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SyncOrder {
    /// Tracefiles and metadata, at which entries point.
    Data,
    /// Session logs, which say which packets the entries belong to.
    Log,
    /// Index files, whose entries the repair trusts.
    Index,
}

/// An open file. Its writer and the syncer share it, so that what was written is synced even after
/// the writer has closed the file: the kernel reports an error of its own writes only to
/// descriptors that were open at that time.
#[derive(Debug)]
pub struct SyncedFile {
    file: File,
    /// Whether the file is among those that the next round syncs.
    is_dirty: AtomicBool,
    /// Bytes that were written since the last round began.
    unsynced: AtomicU64,
    /// Counts the descriptor. Set when the writer closes the file before it is synced.
    retained: OnceLock<Retained>,
}

/// The properties of a file that the syncer knows besides its descriptor.
#[derive(Debug)]
pub struct SyncTarget {
    /// The place of the file in the order of a round.
    pub order: SyncOrder,
    /// Path for messages, relative to the chunk.
    pub path: PathBuf,
    /// The status of the session that the file belongs to.
    pub status: Arc<SyncStatus>,
}

/// Whether what was written to the files of one session could be synced. A failure is final: the
/// kernel drops the pages that it could not write, so that a later fsync(2) of the same file
/// succeeds although they are lost.
#[derive(Debug, Default)]
pub struct SyncStatus(OnceLock<SyncFailure>);

#[derive(Debug)]
struct SyncFailure {
    path: PathBuf,
    why: String,
}

/// Descriptors that are open only until their file is synced.
#[derive(Debug, Default)]
pub(super) struct RetainedFiles(Arc<AtomicUsize>);

/// Counts one descriptor until it is dropped.
#[derive(Debug)]
pub(super) struct Retained(Arc<AtomicUsize>);

impl SyncedFile {
    /// A file to which nothing has been written.
    #[must_use]
    pub fn new(file: File) -> Arc<Self> {
        Arc::new(Self {
            file,
            is_dirty: AtomicBool::new(false),
            unsynced: AtomicU64::new(0),
            retained: OnceLock::new(),
        })
    }

    /// Adds bytes that were written. Returns whether the file was clean.
    pub(super) fn add_written(&self, bytes: u64) -> bool {
        self.unsynced.fetch_add(bytes, Ordering::Relaxed);
        // Reads what `begin_sync` stores, or is read by it: then the bytes are in the file before
        // it is synced.
        !self.is_dirty.swap(true, Ordering::AcqRel)
    }

    /// Marks the file as clean, because it is about to be synced.
    pub(super) fn begin_sync(&self) {
        // Exchanged, not stored: it has to read what `add_written` stores.
        self.is_dirty.swap(false, Ordering::AcqRel);
    }

    /// Takes the number of bytes that are about to be synced.
    pub(super) fn take_unsynced(&self) -> u64 {
        self.unsynced.swap(0, Ordering::Relaxed)
    }

    /// Counts the descriptor as retained until the file is closed.
    pub(super) fn retain(&self, files: &RetainedFiles) {
        self.retained.get_or_init(|| files.add());
    }
}

impl Deref for SyncedFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

impl SyncStatus {
    /// Checks that no sync of a file of the session has failed.
    ///
    /// # Errors
    /// If one has. What was written since the sync before it may be lost. The kind of the error is
    /// never one that passes, even if the disk was full: the bytes are no longer in memory and
    /// cannot be written again.
    pub fn check(&self) -> Result<(), StoreError> {
        match self.0.get() {
            None => Ok(()),
            Some(SyncFailure { path, why }) => {
                Err(StoreError::on("sync", path)(io::Error::other(why.clone())))
            }
        }
    }

    /// Whether a sync has failed.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.0.get().is_some()
    }

    pub(super) fn set_failed(&self, path: &Path, error: &io::Error) {
        // The first failure stays: from then on nothing is certain.
        self.0.get_or_init(|| SyncFailure {
            path: path.to_owned(),
            why: error.to_string(),
        });
    }
}

impl RetainedFiles {
    pub(super) fn add(&self) -> Retained {
        self.0.fetch_add(1, Ordering::Relaxed);
        Retained(Arc::clone(&self.0))
    }

    pub(super) fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Retained {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
