//! The pool of open trace files: how many are open, and which of them are being written. When the pool is full, the
//! next file evicts another (`eviction`).

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use rustix::io::Errno;

use super::StoreError;
use super::eviction::{Clock, ClockSlot};
use super::fault::Faults;

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

/// An error that comes from the system.
pub trait FromSystem {
    /// The error as the system gave it.
    fn system(&self) -> &io::Error;
}

impl FromSystem for io::Error {
    fn system(&self) -> &io::Error {
        self
    }
}

impl FromSystem for StoreError {
    fn system(&self) -> &io::Error {
        &self.source
    }
}

impl FileId {
    /// The identity of an open file.
    ///
    /// # Errors
    /// As the system says.
    pub fn of(file: &File) -> io::Result<Self> {
        let about = file.metadata()?;
        Ok(Self(about.dev(), about.ino()))
    }

    /// Whether this is the file, opened again.
    ///
    /// # Errors
    /// If another file has taken its name.
    pub fn check(&self, file: &File) -> io::Result<()> {
        if Self::of(file)? == *self {
            return Ok(());
        }
        Err(io::Error::other("another file has its name"))
    }
}

impl Pool {
    /// A pool in which so many files may be open.
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

    /// Opens a file as `open` says, for which others are closed if it is one too many. If all are
    /// in use at this moment it is opened all the same.
    ///
    /// # Errors
    /// Those of `open`.
    pub fn open<E: FromSystem>(
        self: &Arc<Self>,
        open: impl Fn() -> Result<File, E>,
    ) -> Result<Arc<PooledFile>, E> {
        while self.is_full() && self.clock.evict_one() {}
        let is_exhausted = |error: &E| {
            let of_system = Errno::from_io_error(error.system());
            matches!(of_system, Some(Errno::MFILE | Errno::NFILE))
        };
        let file = match open() {
            // Connections have taken descriptors that were meant for the pool.
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

    /// Number of open files, and how many may be open.
    #[must_use]
    pub fn open_files(&self) -> (usize, usize) {
        (self.open.load(Ordering::Relaxed), self.max)
    }

    /// Whether so many files are open that the next takes the place of another.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.open.load(Ordering::Relaxed) >= self.max
    }

    /// Puts the slot of an owner that has opened a file into the clock: from now on it can be asked to close files.
    pub fn add_slot(&self, slot: &Arc<ClockSlot>) {
        self.clock.add_slot(slot);
    }

    /// Closes files that have not been used for [`IDLE_FILE_TIMEOUT`](crate::limits::IDLE_FILE_TIMEOUT), and at most
    /// twice that. To be called every now and then.
    pub fn close_idle_files(&self, now: Instant) {
        self.clock.close_idle_files(now);
    }

    /// Claims a file that has just been made.
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
    /// Gives the claim up: another stream may replace the file.
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
