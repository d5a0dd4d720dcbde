//! A disk that fails or stops at the n-th operation, and a journal of the operations. The plan is
//! of one thread: operations of other threads are not counted.
//!
//! The disk in memory of `consumer` (`spool/tests/memory_disk.rs`) cannot stand in for it: the
//! store splices from pipes and works on open descriptors, which only real files have. A plan for
//! both would be an enum of two variants with different effects: here an operation that fails does
//! nothing, there it writes half of its bytes.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::io::Errno;

/// An operation on files or directories.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Create,
    Write,
    SetLen,
    SyncFile,
    SyncDirectory,
    MakeDirectory,
    Remove,
    Rename,
}

/// A fault that happens at the n-th operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The operation fails, and the next ones succeed.
    Error(Errno),
    /// The process dies: the operation happens partly, and no later one does.
    Stop,
}

/// An operation that has happened. Files are named by their inodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    Create { path: PathBuf, inode: u64 },
    Write { inode: u64, at: u64, bytes: Vec<u8> },
    SetLen { inode: u64, len: u64 },
    SyncFile { inode: u64 },
    SyncDirectory { path: PathBuf },
    MakeDirectory { path: PathBuf },
    Remove { path: PathBuf },
    Rename { from: PathBuf, to: PathBuf },
}

#[derive(Debug, Default)]
struct Plan {
    /// Number of operations so far.
    count: usize,
    /// The fault, and the number of the operation that has it, from 1.
    fault: Option<(usize, Fault)>,
    is_dead: bool,
    journal: Vec<Change>,
}

// One for each thread: the tests of a process run side by side.
thread_local! {
    static PLAN: RefCell<Option<Plan>> = const { RefCell::new(None) };
}

/// The record of what the operations of a thread have done.
#[derive(Debug)]
pub(crate) struct Record {
    /// Number of operations, including those that failed.
    pub operations: usize,
    pub journal: Vec<Change>,
}

/// Calls `script` while the operations of this thread are counted, with a fault at the operation of
/// that number.
pub(crate) fn run<T>(fault: Option<(usize, Fault)>, script: impl FnOnce() -> T) -> (T, Record) {
    let plan = Plan {
        fault,
        ..Plan::default()
    };
    PLAN.set(Some(plan));
    let result = script();
    let plan = PLAN.take().unwrap();
    let record = Record {
        operations: plan.count,
        journal: plan.journal,
    };
    (result, record)
}

/// Number of changes in the journal so far.
pub(crate) fn journal_len() -> usize {
    PLAN.with_borrow(|plan| plan.as_ref().map_or(0, |plan| plan.journal.len()))
}

/// Whether the process of the script has died.
pub(crate) fn is_dead() -> bool {
    PLAN.with_borrow(|plan| plan.as_ref().is_some_and(|plan| plan.is_dead))
}

/// Counts an operation. Fails if the plan says so.
pub(super) fn before(_: Operation) -> io::Result<()> {
    PLAN.with_borrow_mut(|plan| {
        let Some(plan) = plan else { return Ok(()) };
        // Nothing may happen after the death, also not what destructors would do.
        if plan.is_dead {
            return Err(io::Error::other("the process is dead"));
        }
        plan.count += 1;
        match plan.fault {
            Some((at, Fault::Error(error))) if at == plan.count => Err(error.into()),
            Some((at, Fault::Stop)) if at == plan.count => {
                plan.is_dead = true;
                Err(io::Error::other("the process dies"))
            }
            _ => Ok(()),
        }
    })
}

/// Counts a write as [`before`] does. A process that dies has written the first half.
pub(super) fn before_write(file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
    let was_dead = is_dead();
    before(Operation::Write).inspect_err(|_| {
        if is_dead() && !was_dead {
            let half = &bytes[..bytes.len() / 2];
            file.write_all_at(half, at).unwrap();
            written(file, half, at);
        }
    })
}

/// Creates the missing directories one by one.
pub(super) fn before_directories(path: &Path) -> io::Result<()> {
    // Each directory is an operation of its own, since a kill may come between two.
    let missing: Vec<_> = path.ancestors().take_while(|path| !path.exists()).collect();
    for path in missing.into_iter().rev() {
        before(Operation::MakeDirectory)?;
        std::fs::create_dir(path)?;
        made_directory(path);
    }
    Ok(())
}

fn record(change: impl FnOnce() -> Change) {
    PLAN.with_borrow_mut(|plan| {
        if let Some(plan) = plan {
            plan.journal.push(change());
        }
    });
}

fn inode(file: &File) -> u64 {
    file.metadata().unwrap().ino()
}

pub(super) fn created(file: &File, path: &Path) {
    record(|| Change::Create {
        path: path.to_owned(),
        inode: inode(file),
    });
}

pub(super) fn written(file: &File, bytes: &[u8], at: u64) {
    record(|| Change::Write {
        inode: inode(file),
        at,
        bytes: bytes.to_vec(),
    });
}

fn concatenated(slices: &[IoSlice<'_>]) -> Vec<u8> {
    slices.iter().flat_map(|slice| slice.to_vec()).collect()
}

/// Counts a vectored write as one write of all its slices.
pub(super) fn before_vectored_write(
    file: &File,
    slices: &[IoSlice<'_>],
    at: u64,
) -> io::Result<()> {
    before_write(file, &concatenated(slices), at)
}

pub(super) fn written_slices(file: &File, slices: &[IoSlice<'_>], written: usize, at: u64) {
    let mut bytes = concatenated(slices);
    bytes.truncate(written);
    self::written(file, &bytes, at);
}

/// Reads the bytes back, which have not passed through this process.
pub(super) fn spliced(file: &File, len: usize, at: u64) {
    let mut bytes = vec![0; len];
    file.read_exact_at(&mut bytes, at).unwrap();
    written(file, &bytes, at);
}

pub(super) fn truncated(file: &File, len: u64) {
    record(|| Change::SetLen {
        inode: inode(file),
        len,
    });
}

/// Counts and records a sync. Returns whether there is a plan: then nothing has to be synced.
pub(super) fn sync_file(file: &File) -> io::Result<bool> {
    before(Operation::SyncFile)?;
    record(|| Change::SyncFile { inode: inode(file) });
    Ok(PLAN.with_borrow(Option::is_some))
}

/// Counts and records a sync of a directory. Returns whether there is a plan: then nothing has to
/// be synced.
pub(super) fn sync_directory(directory: BorrowedFd<'_>) -> io::Result<bool> {
    before(Operation::SyncDirectory)?;
    record(|| Change::SyncDirectory {
        path: path_of(directory),
    });
    Ok(PLAN.with_borrow(Option::is_some))
}

pub(super) fn made_directory(path: &Path) {
    record(|| Change::MakeDirectory {
        path: path.to_owned(),
    });
}

pub(super) fn removed(path: &Path) {
    record(|| Change::Remove {
        path: path.to_owned(),
    });
}

pub(super) fn renamed(from: &Path, to: &Path) {
    record(|| Change::Rename {
        from: from.to_owned(),
        to: to.to_owned(),
    });
}

/// Path of a name in an open directory.
pub(super) fn path_at(directory: BorrowedFd<'_>, name: &[u8]) -> PathBuf {
    path_of(directory).join(std::ffi::OsStr::from_bytes(name))
}

fn path_of(directory: BorrowedFd<'_>) -> PathBuf {
    // The journal has paths, and only the kernel knows the one of a descriptor.
    std::fs::read_link(format!("/proc/self/fd/{}", directory.as_raw_fd())).unwrap()
}
