//! The pool of open trace files: how many are open, and which of them are being written. When the
//! pool is full, the next file evicts another (`eviction`).

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
use rustix::io::Errno;

use super::eviction::Clock;
use super::fault::{FaultKind, Faults};
use super::sync::Syncer;
use super::sync::file::SyncedFile;

/// Divisor of the maximum number of open files: this part is reserved for files that are closed and
/// not synced yet.
const RETAINED_PART: usize = 4;

/// The trace files of a relay that are open.
#[derive(Debug)]
pub struct Pool {
    max: usize,
    open: AtomicUsize,
    pub(super) clock: Clock,
    /// The claimed files, open or closed.
    written: Mutex<HashSet<FileId>>,
    faults: Faults,
    /// Syncs the files. None: nothing is synced.
    syncer: Option<Arc<Syncer>>,
    /// Maximum number of files that their writers have closed and that are not synced yet.
    max_retained: usize,
}

/// An open file of the pool.
#[derive(Debug)]
pub struct PooledFile {
    file: Arc<SyncedFile>,
    descriptor: PooledDescriptor,
}

/// A descriptor that counts in the pool.
#[derive(Debug)]
pub struct PooledDescriptor(Arc<Pool>);

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
            syncer: None,
            max_retained: 0,
        })
    }

    /// A pool whose files are synced. Of the `max` open files, a part is reserved for those that
    /// their writers have closed and that are not synced yet.
    #[must_use]
    pub fn with_syncer(max: usize, syncer: Arc<Syncer>) -> Arc<Self> {
        let max_retained = max / RETAINED_PART;
        Arc::new(Self {
            max: max - max_retained,
            open: AtomicUsize::new(0),
            clock: Clock::default(),
            written: Mutex::default(),
            faults: Faults::default(),
            syncer: Some(syncer),
            max_retained,
        })
    }

    /// The syncer of the files. None: nothing is synced.
    #[must_use]
    pub fn syncer(&self) -> Option<&Arc<Syncer>> {
        self.syncer.as_ref()
    }

    /// Checks that a writer may open another file. To be called before.
    ///
    /// # Errors
    /// As for a lack of descriptors, if too many files that were closed are not synced yet. Their
    /// producers are paused until that has been done.
    pub(super) fn check_retained(&self) -> io::Result<()> {
        let Some(syncer) = &self.syncer else {
            return Ok(());
        };
        let retained = syncer.retained_files();
        // From half of the maximum on, so that the round has ended before a writer has to wait.
        if 2 * retained > self.max_retained {
            // Nobody waits for it.
            drop(syncer.request_round());
        }
        if retained > self.max_retained {
            return Err(Errno::MFILE.into());
        }
        Ok(())
    }

    /// Opens a file by calling `open`. A full pool closes others for it; if all are in use at this
    /// moment, the file is opened nevertheless, and the pool exceeds its limit.
    ///
    /// # Errors
    /// Those of `open`.
    pub fn open<E: Borrow<io::Error>>(
        self: &Arc<Self>,
        open: impl Fn() -> Result<File, E>,
    ) -> Result<Arc<PooledFile>, E> {
        // Counted before open(2), so that threads that open files side by side do not all find
        // room.
        let descriptor = self.reserve();
        let is_exhausted = |error: &E| FaultKind::of(error.borrow()) == FaultKind::Descriptors;
        let file = match open() {
            // The limit of descriptors is of the whole process: connections may use some that were
            // meant for the pool.
            Err(error) if is_exhausted(&error) && self.clock.evict_one() => open()?,
            opened => opened?,
        };
        Ok(Arc::new(PooledFile {
            file: SyncedFile::new(file),
            descriptor,
        }))
    }

    /// Counts a descriptor of a file that is not in the pool and cannot be evicted. A full pool
    /// closes another file for it.
    #[must_use]
    pub fn reserve(self: &Arc<Self>) -> PooledDescriptor {
        while self.is_full() && self.clock.evict_one() {}
        self.open.fetch_add(1, Ordering::Relaxed);
        PooledDescriptor(Arc::clone(self))
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

    /// Whether [`close_idle_files`](Self::close_idle_files) has anything to do.
    #[must_use]
    pub fn is_idle_round_due(&self, now: Instant) -> bool {
        self.clock.is_idle_round_due(now)
    }

    /// Closes files that have not been used for
    /// [`IDLE_FILE_TIMEOUT`](crate::limits::IDLE_FILE_TIMEOUT), and at most twice that. Must be
    /// called at intervals that are short against that timeout.
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
        &self.descriptor.0
    }

    /// The file, to be shared with the syncer.
    pub(super) fn synced(&self) -> &Arc<SyncedFile> {
        &self.file
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
        // The kernel reports a failed write only to descriptors that were open then, and the
        // syncer therefore keeps a dirty file open.
        if let Some(syncer) = &self.pool().syncer {
            syncer.retain(&self.file);
        }
    }
}

impl Drop for PooledDescriptor {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::super::sync::file::{SyncOrder, SyncStatus};
    use super::super::sync::tests::{Lab, file, inode, target};
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

    #[test]
    fn a_file_that_its_writer_has_closed_stays_open_until_it_is_synced() {
        let (lab, status) = (Lab::new(), Arc::<SyncStatus>::default());
        let pool = Pool::with_syncer(8, Arc::clone(lab.syncer()));
        assert_eq!(pool.open_files(), (0, 6));
        let (named, _) = file();
        let open = || pool.open(|| named.reopen()).unwrap();
        let mark = |file: &PooledFile| {
            let target = target(SyncOrder::Data, &status);
            lab.syncer().mark_file(file.synced(), &target, 1);
        };
        drop(open());
        assert_eq!(lab.syncer().retained_files(), 0, "nothing was written");
        let opened = open();
        mark(&opened);
        let renamed = named.path().with_extension("renamed");
        std::fs::rename(named.path(), &renamed).unwrap();
        let inode = inode(&opened);
        drop(opened);
        assert_eq!(pool.open_files().0, 0);
        assert_eq!(lab.syncer().retained_files(), 1);
        lab.sync();
        assert_eq!(lab.synced(), [inode]);
        std::fs::rename(&renamed, named.path()).unwrap();
    }

    #[test]
    fn writers_wait_while_too_many_closed_files_are_not_synced() {
        let (lab, status) = (Lab::new(), Arc::<SyncStatus>::default());
        let pool = Pool::with_syncer(8, Arc::clone(lab.syncer()));
        let (begun, go_on) = lab.hold_up();
        let files: Vec<_> = (0..3).map(|_| file().0).collect();
        let write = |at: usize| {
            pool.check_retained()?;
            let file = pool.open(|| files[at].reopen())?;
            let target = target(SyncOrder::Data, &status);
            lab.syncer().mark_file(file.synced(), &target, 1);
            Ok::<_, io::Error>(())
        };
        (0..3).for_each(|at| write(at).unwrap());
        // Before that: the round is requested when half of the descriptors are taken.
        begun.recv().unwrap();
        let error = write(0).unwrap_err();
        assert_eq!(FaultKind::of(&error), FaultKind::Descriptors);
        drop((go_on, begun));
        *lab.calls.gate.lock() = None;
        lab.sync();
        while lab.syncer().retained_files() > 0 {
            std::thread::yield_now();
        }
        write(0).unwrap();
    }
}
