//! The pool of open trace files: how many are open, and which of them are being written. When the pool is full, the
//! next file evicts another (`eviction`).

use std::borrow::Borrow;
use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

use super::eviction::Clock;
use super::fault::{FaultKind, Faults};

/// The trace files of a relay that are open.
#[derive(Debug)]
pub struct Pool {
    max: usize,
    open: AtomicUsize,
    pub(super) clock: Clock,
    /// The claimed files, open or closed.
    written: Mutex<HashSet<FileId>>,
    faults: Faults,
}

/// An open file of the pool.
#[derive(Debug)]
pub struct PooledFile {
    file: File,
    pool: Arc<Pool>,
}

/// The identity of a file: its device and inode. A file keeps it when it is renamed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileId(u64, u64);

/// The right to write to a file. No other stream of this relay may replace a file that is claimed.
#[derive(Debug)]
pub struct Claim {
    id: FileId,
    pool: Arc<Pool>,
}

impl FileId {
    /// The identity of an open file.
    ///
    /// # Errors
    /// If fstat(2) fails.
    pub fn of(file: &File) -> io::Result<Self> {
        let about = file.metadata()?;
        Ok(Self(about.dev(), about.ino()))
    }

    /// Checks that `file` has this identity.
    ///
    /// # Errors
    /// If it has another: the name of the file that was opened by name belongs to another file now.
    pub fn check(&self, file: &File) -> io::Result<()> {
        if Self::of(file)? == *self {
            return Ok(());
        }
        Err(io::Error::other("another file has its name"))
    }
}

impl Pool {
    /// A pool in which at most `max` files are open.
    #[must_use]
    pub fn new(max: usize) -> Arc<Self> {
        Arc::new(Self {
            max,
            open: AtomicUsize::new(0),
            clock: Clock::default(),
            written: Mutex::default(),
            faults: Faults::default(),
        })
    }

    /// Opens a file by calling `open`. A full pool closes others for it; if all are in use at this moment, the file is
    /// opened nevertheless, and the pool exceeds its limit.
    ///
    /// # Errors
    /// Those of `open`.
    pub fn open<E: Borrow<io::Error>>(
        self: &Arc<Self>,
        open: impl Fn() -> Result<File, E>,
    ) -> Result<Arc<PooledFile>, E> {
        while self.is_full() && self.clock.evict_one() {}
        let is_exhausted = |error: &E| FaultKind::of(error.borrow()) == FaultKind::Descriptors;
        let file = match open() {
            // The limit of descriptors is of the whole process: connections may use some that were meant for the pool.
            Err(error) if is_exhausted(&error) && self.clock.evict_one() => open()?,
            opened => opened?,
        };
        self.open.fetch_add(1, Ordering::Relaxed);
        Ok(Arc::new(PooledFile {
            file,
            pool: Arc::clone(self),
        }))
    }

    /// Counters of faults of the files.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Number of open files, and their maximum.
    #[must_use]
    pub fn open_files(&self) -> (usize, usize) {
        (self.open.load(Ordering::Relaxed), self.max)
    }

    /// Whether the next file evicts another.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.open.load(Ordering::Relaxed) >= self.max
    }

    /// Closes files that have not been used for [`IDLE_FILE_TIMEOUT`](crate::limits::IDLE_FILE_TIMEOUT), and at most
    /// twice that. Must be called at intervals that are short against that timeout.
    pub fn close_idle_files(&self, now: Instant) {
        self.clock.close_idle_files(now);
    }

    /// Claims a file that has just been created.
    #[must_use]
    pub fn claim(self: &Arc<Self>, id: FileId) -> Claim {
        self.written.lock().insert(id);
        Claim {
            id,
            pool: Arc::clone(self),
        }
    }

    /// Whether a stream of this relay writes the file.
    #[must_use]
    pub fn is_claimed(&self, file: &File) -> bool {
        FileId::of(file).is_ok_and(|id| self.written.lock().contains(&id))
    }
}

impl Claim {
    /// Releases the claim: another stream may replace the file.
    pub fn release(&self) {
        self.pool.written.lock().remove(&self.id);
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.release();
    }
}

impl PooledFile {
    /// The pool that counts the file.
    #[must_use]
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }
}

impl Deref for PooledFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

impl Drop for PooledFile {
    fn drop(&mut self) {
        self.pool.open.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claimed_file_is_written_by_one_stream_only() {
        let pool = Pool::new(1);
        let (ours, other) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        let id = FileId::of(&ours).unwrap();
        let claim = pool.claim(id);
        assert!(pool.is_claimed(&ours) && !pool.is_claimed(&other));
        assert!(id.check(&ours).is_ok() && id.check(&other).is_err());
        drop(claim);
        assert!(!pool.is_claimed(&ours));
    }
}
