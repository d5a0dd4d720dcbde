//! The pool of open trace files. Files that have not been used for a while are closed and reopened when they are
//! written to again; when the pool is full, the next file evicts another by the CLOCK algorithm. So idle streams
//! cost no descriptor, and busy ones no more than the limit.
//!
//! A writer of an open file touches only its own [`ClockSlot`]. The pool is locked only when a file is opened:
//! the clock hand advances over the slots then, and passes one that was used since its last turn.

use std::collections::{HashSet, VecDeque};
use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;

use parking_lot::Mutex;
use rustix::io::Errno;

use super::StoreError;
use super::fault::Faults;
use crate::limits::IDLE_FILE_TIMEOUT;

/// The trace files of a relay that are open.
#[derive(Debug)]
pub struct Pool {
    most: usize,
    open: AtomicUsize,
    /// The owners of open files, in the order in which the clock hand passes them.
    slots: Mutex<VecDeque<Arc<ClockSlot>>>,
    /// Files that are being written, open or not.
    written: Mutex<HashSet<FileId>>,
    looked: Mutex<Option<Instant>>,
    faults: Faults,
}

/// An owner of files of the pool that can close and reopen them.
pub trait Evictable: Debug + Send + Sync {
    /// Closes files that can be opened again. Gives whether it did: it does not wait until it can. If it
    /// `is_needed`, another file is to be opened that there is no room for; if not, the files have only
    /// not been used for a while.
    fn close_files(&self, is_needed: bool) -> bool;
}

/// The slot of an [`Evictable`] in the clock.
#[derive(Debug, Default)]
pub struct ClockSlot {
    was_used: AtomicBool,
    is_in_clock: AtomicBool,
    owner: OnceLock<Weak<dyn Evictable>>,
}

/// An open file of the pool.
#[derive(Debug)]
pub struct PooledFile {
    file: File,
    pool: Arc<Pool>,
}

/// A file, whatever it is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileId(u64, u64);

/// The right to write to a file: nobody else of this relay has it.
#[derive(Debug)]
pub struct Claim {
    id: FileId,
    pool: Arc<Pool>,
}

/// An error that comes from the system.
pub trait FromSystem {
    /// What the system said.
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

impl ClockSlot {
    /// Its owner uses his files: they stay for now.
    pub fn mark_used(&self) {
        self.was_used.store(true, Ordering::Relaxed);
    }

    /// Says whose it is. Before, nothing is asked of it.
    pub fn set_owner(&self, owner: Weak<dyn Evictable>) {
        // Nobody gives it away twice.
        let _ = self.owner.set(owner);
    }
}

impl FileId {
    /// Of an open file.
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
    /// One in which so many files may be open.
    #[must_use]
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            open: AtomicUsize::new(0),
            slots: Mutex::default(),
            written: Mutex::default(),
            looked: Mutex::default(),
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
        while self.is_full() && self.evict_one() {}
        let is_exhausted = |error: &E| {
            let of_system = Errno::from_io_error(error.system());
            matches!(of_system, Some(Errno::MFILE | Errno::NFILE))
        };
        let file = match open() {
            // Connections have taken what the pool was meant to have.
            Err(error) if is_exhausted(&error) && self.evict_one() => open()?,
            opened => opened?,
        };
        self.open.fetch_add(1, Ordering::Relaxed);
        Ok(Arc::new(PooledFile {
            file,
            pool: Arc::clone(self),
        }))
    }

    /// What has gone wrong with its files.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// How many files are open, and how many may be.
    #[must_use]
    pub fn open_files(&self) -> (usize, usize) {
        (self.open.load(Ordering::Relaxed), self.most)
    }

    /// Whether so many files are open that the next takes the place of another.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.open.load(Ordering::Relaxed) >= self.most
    }

    /// From now on the owner of this slot can be asked to put files aside.
    pub fn add_slot(&self, slot: &Arc<ClockSlot>) {
        if !slot.is_in_clock.swap(true, Ordering::Relaxed) {
            self.slots.lock().push_back(Arc::clone(slot));
        }
    }

    /// To be called every now and then: files that nobody has used for a while are closed.
    pub fn close_idle(&self, now: Instant) {
        let mut looked = self.looked.lock();
        if now.saturating_duration_since(*looked.get_or_insert(now)) < IDLE_FILE_TIMEOUT {
            return;
        }
        *looked = Some(now);
        // What follows makes file calls.
        drop(looked);
        let slots = self.slots.lock().len();
        for _ in 0..slots {
            self.advance_clock(false);
        }
    }

    /// Gives whether some were.
    fn evict_one(&self) -> bool {
        // Those that were in use the first time round are not the second time.
        let steps = 2 * self.slots.lock().len();
        (0..steps).any(|_| self.advance_clock(true))
    }

    /// Comes by the next slot. Gives whether its owner has put files aside.
    fn advance_clock(&self, is_needed: bool) -> bool {
        let Some(slot) = self.slots.lock().pop_front() else {
            return false;
        };
        if slot.was_used.swap(false, Ordering::Relaxed) {
            self.slots.lock().push_back(slot);
            return false;
        }
        // Before the files are closed: whoever opens them again takes the slot again.
        slot.is_in_clock.store(false, Ordering::Relaxed);
        match slot.owner.get() {
            Some(owner) => match owner.upgrade() {
                Some(owner) if owner.close_files(is_needed) => true,
                Some(_) => {
                    self.add_slot(&slot);
                    false
                }
                // He is gone, and his files with him.
                None => false,
            },
            None => {
                self.add_slot(&slot);
                false
            }
        }
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

    /// Whether somebody of this relay writes the file.
    #[must_use]
    pub fn is_claimed(&self, file: &File) -> bool {
        FileId::of(file).is_ok_and(|id| self.written.lock().contains(&id))
    }
}

impl Claim {
    /// Lets others have the name of the file.
    pub fn give_up(&self) {
        self.pool.written.lock().remove(&self.id);
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.give_up();
    }
}

impl PooledFile {
    /// The pool that it is of.
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

    #[derive(Debug)]
    struct Files {
        open: Mutex<Vec<Arc<PooledFile>>>,
        slot: Arc<ClockSlot>,
    }

    impl Evictable for Files {
        fn close_files(&self, _is_needed: bool) -> bool {
            self.open.try_lock().is_some_and(|mut open| {
                open.clear();
                true
            })
        }
    }

    fn holders(pool: &Arc<Pool>, count: usize) -> Vec<Arc<Files>> {
        let one = |_| {
            let slot = Arc::<ClockSlot>::default();
            let files = Arc::new(Files {
                open: Mutex::default(),
                slot: Arc::clone(&slot),
            });
            let weak: Weak<dyn Evictable> = Arc::<Files>::downgrade(&files);
            slot.set_owner(weak);
            open(pool, &files);
            files
        };
        (0..count).map(one).collect()
    }

    fn open(pool: &Arc<Pool>, files: &Files) {
        let file = pool.open(tempfile::tempfile).unwrap();
        files.open.lock().push(file);
        pool.add_slot(&files.slot);
    }

    fn are_open(files: &[Arc<Files>]) -> Vec<bool> {
        let is_open = |files: &Arc<Files>| !files.open.lock().is_empty();
        files.iter().map(is_open).collect()
    }

    #[test]
    fn the_least_used_make_room_for_one_more() {
        let pool = Pool::new(3);
        let files = holders(&pool, 3);
        files[0].slot.mark_used();
        open(&pool, &files[2]);
        assert_eq!(are_open(&files), [true, false, true]);
        assert_eq!(pool.open.load(Ordering::Relaxed), 3);
        // Not asked twice in a row.
        open(&pool, &files[1]);
        assert_eq!(pool.open.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn who_is_busy_is_not_waited_for() {
        let pool = Pool::new(1);
        let files = holders(&pool, 1);
        let busy = files[0].open.lock();
        let one_more = pool.open(tempfile::tempfile).unwrap();
        assert_eq!(pool.open.load(Ordering::Relaxed), 2);
        drop((one_more, busy));
        drop(files);
        assert_eq!(pool.open.load(Ordering::Relaxed), 0);
        assert!(!pool.evict_one());
    }

    #[test]
    fn what_nobody_uses_for_a_while_is_put_aside() {
        let pool = Pool::new(100);
        let files = holders(&pool, 2);
        let start = Instant::now();
        pool.close_idle(start);
        assert_eq!(are_open(&files), [true, true]);
        files[1].slot.mark_used();
        pool.close_idle(start + IDLE_FILE_TIMEOUT);
        assert_eq!(are_open(&files), [false, true]);
        pool.close_idle(start + IDLE_FILE_TIMEOUT);
        assert_eq!(are_open(&files), [false, true]);
        pool.close_idle(start + 2 * IDLE_FILE_TIMEOUT);
        assert_eq!(are_open(&files), [false, false]);
    }

    #[test]
    fn files_are_opened_when_the_system_had_none_left() {
        let pool = Pool::new(100);
        let files = holders(&pool, 1);
        let opened = pool.open(|| {
            if are_open(&files)[0] {
                return Err(io::Error::from(Errno::MFILE));
            }
            tempfile::tempfile()
        });
        assert!(opened.is_ok());
        assert!(
            pool.open(|| Err::<File, _>(io::Error::from(Errno::MFILE)))
                .is_err()
        );
    }

    #[test]
    fn a_file_is_written_by_one_only() {
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
