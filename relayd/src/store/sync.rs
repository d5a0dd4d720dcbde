//! Syncs files to the disk, on a thread of its own: fdatasync(2) takes as long as the disk, and no
//! event loop may wait for that.
//!
//! Writers mark files as dirty. A round takes all files that are dirty when it begins, and syncs
//! them: packets before the index entries that point at them, directories last. Everybody who needs
//! something synced while a round runs waits for the next one, so that any number of sessions share
//! it (group commit).
//!
//! Each file has its own fdatasync(2). syncfs(2) costs less from about sixteen files on (64
//! streams: 1.6 instead of 9.7 ms), but it also waits for whatever other programs have written to
//! the file system, keeps no order, and does not say which file has failed. Several threads would
//! save a quarter, and take it from the workers.
//!
//! Read in this order: [`mod@file`] (what is shared with writers), [`Syncer`] here, [`position`],
//! [`tally`].

pub mod file;
pub mod position;
pub mod tally;

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use daemon::durability::Durability;
use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};
use tokio::sync::watch;
use tracing::{error, warn};

use super::{StoreError, disk};
use file::{Retained, RetainedFiles, SyncStatus, SyncTarget, SyncedFile};
use tally::SyncTally;

/// Settings that say when files are synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SyncSettings {
    /// The guarantee of a reply to a producer for everything that it acknowledges (`--durability`).
    pub durability: Durability,
    /// Interval between two rounds that nobody waits for. Without meaning for
    /// [`Durability::Process`].
    pub interval: Duration,
}

/// Syncs the files of a relay.
#[derive(Debug)]
pub struct Syncer {
    settings: SyncSettings,
    disk: Disk,
    state: Mutex<SyncState>,
    wake: Condvar,
    /// Number of the last round that is complete.
    completed: watch::Sender<u64>,
    retained: RetainedFiles,
    tally: SyncTally,
}

/// The thread of a [`Syncer`]. Dropped without [`stop`](Self::stop), it ends after the round that
/// runs.
#[derive(Debug)]
pub struct SyncThread(Arc<Syncer>);

/// Waits for a round.
#[derive(Debug)]
pub struct SyncTicket {
    round: u64,
    completed: watch::Receiver<u64>,
}

#[derive(Debug, Default)]
struct SyncState {
    dirty: DirtyFiles,
    /// The calls that are to be made after the next round.
    calls: AfterRound,
    /// Number of the last round that has begun.
    begun: u64,
    /// Whether somebody waits for the next round.
    is_requested: bool,
    stop: Stop,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Stop {
    #[default]
    No,
    /// The thread is to stop after a last round.
    Requested,
    Stopped,
}

/// The files that the next round syncs.
#[derive(Debug, Default)]
struct DirtyFiles {
    files: Vec<(Arc<SyncedFile>, Arc<SyncTarget>)>,
    /// The directories by device and inode, so that each is synced once whatever its path was.
    directories: HashMap<(u64, u64), DirtyDirectory>,
}

/// A directory in which names were created, renamed or removed.
#[derive(Debug)]
struct DirtyDirectory {
    /// The directory, open because it may be renamed before it is synced.
    file: File,
    path: PathBuf,
    /// Sync status of each session whose files were created there.
    statuses: Vec<Arc<SyncStatus>>,
    _retained: Retained,
}

/// The calls of the system. Tests replace them.
struct Disk {
    sync_data: Box<SyncCall>,
    sync_directory: Box<SyncCall>,
}

/// Calls that wait for a round.
#[derive(Default)]
struct AfterRound(Vec<Box<dyn FnOnce() + Send>>);

type SyncCall = dyn Fn(&File) -> io::Result<()> + Send + Sync;

impl std::fmt::Debug for Disk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Disk")
    }
}

impl std::fmt::Debug for AfterRound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AfterRound({})", self.0.len())
    }
}

impl Default for Disk {
    fn default() -> Self {
        Self {
            sync_data: Box::new(disk::sync_file),
            sync_directory: Box::new(|directory| match disk::sync_directory(directory) {
                // Some file systems have nothing to sync in a directory.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
                synced => synced,
            }),
        }
    }
}

impl DirtyFiles {
    fn is_empty(&self) -> bool {
        self.files.is_empty() && self.directories.is_empty()
    }
}

impl Syncer {
    /// Starts the thread that syncs. None: nothing is to be synced.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn start(settings: SyncSettings) -> io::Result<Option<SyncThread>> {
        if settings.durability == Durability::Process {
            return Ok(None);
        }
        Self::start_on(Disk::default(), settings).map(Some)
    }

    /// Starts a syncer whose every sync of a file fails.
    #[cfg(test)]
    pub(crate) fn start_failing() -> SyncThread {
        let disk = Disk {
            sync_data: Box::new(|_| Err(Errno::IO.into())),
            ..Disk::default()
        };
        let settings = SyncSettings {
            durability: Durability::Packet,
            interval: Duration::from_secs(3600),
        };
        Self::start_on(disk, settings).expect("a thread")
    }

    fn new(disk: Disk, settings: SyncSettings) -> Arc<Self> {
        Arc::new(Self {
            settings,
            disk,
            state: Mutex::default(),
            wake: Condvar::new(),
            completed: watch::Sender::new(0),
            retained: RetainedFiles::default(),
            tally: SyncTally::default(),
        })
    }

    /// A syncer without a thread, whose rounds a test [runs](Self::run_round) on its own.
    #[cfg(test)]
    pub(crate) fn without_thread(settings: SyncSettings) -> Arc<Self> {
        Self::new(Disk::default(), settings)
    }

    /// Runs a round on the thread of the caller.
    #[cfg(test)]
    pub(crate) fn run_round(&self) {
        let state = self.state.lock();
        self.complete_round(state);
    }

    fn start_on(disk: Disk, settings: SyncSettings) -> io::Result<SyncThread> {
        let syncer = Self::new(disk, settings);
        let own = Arc::clone(&syncer);
        let thread = std::thread::Builder::new().name("sync".to_owned());
        thread.spawn(move || own.run())?;
        Ok(SyncThread(syncer))
    }

    /// The settings that say when files are synced.
    #[must_use]
    pub fn settings(&self) -> SyncSettings {
        self.settings
    }

    /// Counters of rounds, files and failures, for metrics.
    #[must_use]
    pub fn tally(&self) -> &SyncTally {
        &self.tally
    }

    /// Number of files and directories that are to be synced.
    #[must_use]
    pub fn dirty_files(&self) -> usize {
        let state = self.state.lock();
        state.dirty.files.len() + state.dirty.directories.len()
    }

    // Writers.

    /// Marks a file to which `bytes` have just been written, or which has been truncated.
    pub fn mark_file(&self, file: &Arc<SyncedFile>, target: &Arc<SyncTarget>, bytes: u64) {
        self.tally.unsynced.fetch_add(bytes, Ordering::Relaxed);
        if file.add_written(bytes) {
            let dirty = (Arc::clone(file), Arc::clone(target));
            self.state.lock().dirty.files.push(dirty);
        }
    }

    /// Marks a directory in which names have been created, renamed or removed. `status` is that of
    /// the session whose file was created.
    ///
    /// # Errors
    /// If the directory cannot be opened.
    pub fn mark_directory(
        &self,
        path: &Path,
        status: Option<&Arc<SyncStatus>>,
    ) -> Result<(), StoreError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // Opened without the lock, because open(2) may block.
        let opened = retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty()));
        let opened = opened.map(File::from).map_err(io::Error::from);
        let opened = opened.and_then(|file| Ok((file.metadata()?, file)));
        let (about, file) = opened.map_err(StoreError::on("open directory", path))?;
        let id = (about.dev(), about.ino());
        let mut state = self.state.lock();
        let directories = &mut state.dirty.directories;
        let directory = directories.entry(id).or_insert_with(|| DirtyDirectory {
            file,
            path: path.to_owned(),
            statuses: Vec::new(),
            _retained: self.retained.add(),
        });
        let is_listed = |status| {
            directory
                .statuses
                .iter()
                .any(|own| Arc::ptr_eq(own, status))
        };
        if let Some(status) = status.filter(|status| !is_listed(status)) {
            directory.statuses.push(Arc::clone(status));
        }
        Ok(())
    }

    /// Keeps a file open that its writer has closed, until it is synced.
    pub(super) fn retain(&self, file: &Arc<SyncedFile>) {
        // The other holder is the syncer, or has just been.
        if Arc::strong_count(file) > 1 {
            file.retain(&self.retained);
        }
    }

    /// Number of descriptors that are open only because their files are not synced yet.
    #[must_use]
    pub fn retained_files(&self) -> usize {
        self.retained.count()
    }

    // Those who wait.

    /// Requests a round for everything that has been written so far. None: all of it is synced.
    #[must_use]
    pub fn request_round(&self) -> Option<SyncTicket> {
        let mut state = self.state.lock();
        let round = self.pending_round_of(&state)?;
        if round > state.begun && !state.is_requested {
            state.is_requested = true;
            self.wake.notify_all();
        }
        drop(state);
        // Nothing is missed meanwhile: the receiver starts with the number of the last round.
        let completed = self.completed.subscribe();
        Some(SyncTicket { round, completed })
    }

    /// Calls `call` after a round for everything that has been written so far, some of which may
    /// have failed. On the thread of the syncer, or at once if all of it is synced. Does not
    /// request the round.
    pub(super) fn call_after_round(&self, call: impl FnOnce() + Send + 'static) {
        let mut state = self.state.lock();
        if self.pending_round_of(&state).is_some() {
            state.calls.0.push(Box::new(call));
        } else {
            // The call may ask the syncer something, or wait for a disk.
            drop(state);
            call();
        }
    }

    /// Number of the round after which everything that has been written so far is synced. None: it
    /// is synced already.
    #[must_use]
    pub fn pending_round(&self) -> Option<u64> {
        self.pending_round_of(&self.state.lock())
    }

    fn pending_round_of(&self, state: &SyncState) -> Option<u64> {
        if !state.dirty.is_empty() {
            return Some(state.begun + 1);
        }
        // What the round that runs has taken.
        (state.begun > self.completed_round()).then_some(state.begun)
    }

    /// Number of the last round that is complete.
    #[must_use]
    pub fn completed_round(&self) -> u64 {
        *self.completed.borrow()
    }

    // The thread.

    fn run(&self) {
        let mut is_last = false;
        while !is_last {
            let mut state = self.state.lock();
            is_last = self.await_round(&mut state);
            self.complete_round(state);
        }
        self.state.lock().stop = Stop::Stopped;
        self.wake.notify_all();
    }

    fn complete_round(&self, mut state: MutexGuard<'_, SyncState>) {
        let dirty = std::mem::take(&mut state.dirty);
        let calls = std::mem::take(&mut state.calls);
        for (file, _) in &dirty.files {
            // With the lock held: a writer that finds the file dirty has it in the list or in the
            // round.
            file.begin_sync();
        }
        state.is_requested = false;
        state.begun += 1;
        let round = state.begun;
        drop(state);
        if !dirty.is_empty() {
            self.sync(dirty);
        }
        // Not `send`, which changes nothing while there is no receiver.
        self.completed.send_replace(round);
        for call in calls.0 {
            call();
        }
    }

    /// Waits until a round is to begin. Returns whether it is the last.
    fn await_round(&self, state: &mut MutexGuard<'_, SyncState>) -> bool {
        loop {
            // From the end of the round before, so that rounds leave a slow disk some time for
            // writers.
            let due = Instant::now() + self.settings.interval;
            while !state.is_requested && state.stop == Stop::No {
                if self.wake.wait_until(state, due).timed_out() {
                    break;
                }
            }
            let is_last = state.stop != Stop::No;
            if is_last || !state.dirty.is_empty() || !state.calls.0.is_empty() {
                return is_last;
            }
            state.is_requested = false;
        }
    }

    /// Syncs the files of a round. The failure of one does not keep the others from being synced.
    fn sync(&self, dirty: DirtyFiles) {
        let began = Instant::now();
        let DirtyFiles {
            mut files,
            directories,
        } = dirty;
        files.sort_by_key(|(_, target)| target.order);
        let mut synced = 0;
        for (file, target) in files {
            // Taken before fdatasync(2): what is written meanwhile belongs to the next round.
            let bytes = file.take_unsynced();
            synced += usize::from(self.sync_file(&file, &target));
            self.tally.unsynced.fetch_sub(bytes, Ordering::Relaxed);
        }
        for directory in directories.into_values() {
            let done = (self.disk.sync_directory)(&directory.file);
            if let Err(error) = done {
                let statuses = directory.statuses.iter().map(Arc::as_ref);
                self.fail(&directory.path, error, statuses);
            }
            synced += 1;
        }
        self.tally.count_round(synced, began.elapsed());
    }

    /// Syncs a file. Returns false if there was no need.
    fn sync_file(&self, file: &SyncedFile, target: &SyncTarget) -> bool {
        // A file without a name would be gone after a power failure anyway.
        let is_unlinked = || file.metadata().is_ok_and(|about| about.nlink() == 0);
        // Once a sync of the session has failed, another could succeed, and would mean nothing.
        if target.status.has_failed() || is_unlinked() {
            return false;
        }
        if let Err(error) = (self.disk.sync_data)(file) {
            self.fail(&target.path, error, [&*target.status]);
        }
        true
    }

    fn fail<'a>(
        &self,
        path: &Path,
        error: io::Error,
        statuses: impl IntoIterator<Item = &'a SyncStatus>,
    ) {
        for status in statuses {
            status.set_failed(path, &error);
        }
        let error = StoreError::on("sync", path)(error);
        error!(%error, "file not synced: what was written to it may be lost; its session fails");
        // After the statuses, which are looked at when this number has changed.
        self.tally.count_failure(&error);
    }
}

impl SyncThread {
    /// The syncer whose thread this is.
    #[must_use]
    pub fn syncer(&self) -> &Arc<Syncer> {
        &self.0
    }

    /// Syncs what is dirty, and ends the thread. Returns whether that happened within `timeout`.
    #[must_use]
    pub fn stop(self, timeout: Duration) -> bool {
        let due = Instant::now() + timeout;
        let mut state = self.0.state.lock();
        if state.stop == Stop::No {
            state.stop = Stop::Requested;
            self.0.wake.notify_all();
        }
        while state.stop != Stop::Stopped {
            if self.0.wake.wait_until(&mut state, due).timed_out() {
                return false;
            }
        }
        true
    }
}

impl Drop for SyncThread {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        if state.stop == Stop::No {
            state.stop = Stop::Requested;
            self.0.wake.notify_all();
        }
    }
}

impl SyncTicket {
    /// Waits until the round is complete. It may have failed for some files: see
    /// [`SyncStatus::check`].
    pub async fn wait(mut self) {
        // An error means that the syncer is gone, and with it the relay.
        let _ = self.completed.wait_for(|done| *done >= self.round).await;
    }
}

/// Syncs everything that has been written to the file system of `directory`, by whatever program:
/// what an earlier relay left in the memory of the kernel.
///
/// # Errors
/// If something could not be written.
pub fn sync_file_system(directory: &Path) -> Result<(), StoreError> {
    let synced = File::open(directory).and_then(|file| Ok(rustix::fs::syncfs(file)?));
    match synced {
        Err(error) if Errno::from_io_error(&error) == Some(Errno::NOSYS) => {
            warn!(%error, "file system not synced: what an earlier relay has written may be lost by a power failure");
            Ok(())
        }
        synced => synced.map_err(StoreError::on("sync the file system of", directory)),
    }
}

#[cfg(test)]
pub(crate) mod tests;
