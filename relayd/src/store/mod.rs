//! The files of a relay, and the order in which they are written: the bytes of a packet first, then
//! the index entry that points at them. Knows no socket and no session. `doc/store.md` describes
//! the files.
//!
//! Read in this order: [`layout`] and [`old_paths`] (names of directories), [`chunk`] (the
//! directory of a chunk, and where it moves), [`pool`] and [`eviction`] (which files are open, and
//! which are closed when idle or for others), `reopenable_file` (closing and reopening),
//! `tracefile` (the bytes of packets), [`index_file`] (their index entries and beacons),
//! `segment_writer` and [`segment`] (both files, for their writer and for their readers),
//! [`stream_files`] (all files of one stream), [`metadata`], [`fault`] (kinds of faults),
//! [`deletion`] (of chunks, on a thread of its own), `disk` (the system calls that change files),
//! [`sync`] (to the disk, for `--durability`), `open_marker` (which directories are being written),
//! [`repair`] (after a crash), [`retention`] (removal of old sessions), [`session_directory`]
//! (which of them other relays have open), `log_file` (what the logs of sessions have in common),
//! [`session_log`] (what outlives the relay of a session that is resumed), [`archive_log`] (the
//! same of one that is archived).

pub mod archive_log;
pub mod chunk;
pub mod deletion;
pub(crate) mod disk;
#[cfg(test)]
pub(crate) mod disk_faults;
pub mod eviction;
pub mod fault;
pub mod index_file;
pub mod layout;
mod log_file;
pub mod metadata;
pub mod old_paths;
mod open_marker;
pub mod pipe;
pub mod pool;
mod reopenable_file;
pub mod repair;
pub mod retention;
pub mod segment;
mod segment_writer;
pub mod session_directory;
pub mod session_log;
pub mod stream_files;
pub mod sync;
mod tracefile;

use std::borrow::Borrow;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};
use thiserror::Error;

use fault::FaultKind;
use pool::Pool;

/// A failed operation on a file or directory.
#[derive(Debug, Error)]
#[error("cannot {what} {}{}: {source}", .path.display(), at_byte(*.offset))]
pub struct StoreError {
    /// Verb of the operation: "write", "create".
    pub what: &'static str,
    /// File or directory of the operation: an absolute path, or one in the directory of the chunk.
    pub path: PathBuf,
    /// Position in the file, in bytes. None: the operation has none.
    pub offset: Option<u64>,
    /// Error of the system.
    pub source: io::Error,
}

fn at_byte(offset: Option<u64>) -> String {
    offset.map_or(String::new(), |offset| format!(" at byte {offset}"))
}

impl Borrow<io::Error> for StoreError {
    fn borrow(&self) -> &io::Error {
        &self.source
    }
}

impl StoreError {
    /// Kind of the fault.
    #[must_use]
    pub fn kind(&self) -> FaultKind {
        FaultKind::of(&self.source)
    }

    fn on(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self {
            what,
            path,
            offset: None,
            source,
        }
    }

    fn at(what: &'static str, path: PathBuf, offset: u64, source: io::Error) -> Self {
        Self {
            what,
            path,
            offset: Some(offset),
            source,
        }
    }
}

/// Creates a directory and those of its parents that are missing.
///
/// # Errors
/// If one of them cannot be created.
pub fn make_directory(path: &Path) -> Result<(), StoreError> {
    disk::make_directories(path).map_err(StoreError::on("make directory", path))
}

/// Creates an empty file. An existing file of that name is unlinked, not truncated, so that its
/// readers keep its contents.
///
/// # Errors
/// If another stream still writes the file of that name. That happens if two recordings use the
/// same directory.
fn create_file(path: &Path, pool: &Pool) -> Result<File, StoreError> {
    match open_to_inspect(path) {
        Ok(old) => {
            // A lock, or a file of this relay that is closed while it is idle, or one of another
            // relay.
            if is_locked(&old) || pool.is_claimed(&old) || is_of_other_relay(path, pool) {
                let busy = io::Error::other("another stream is writing it");
                return Err(StoreError::on("replace", path)(busy));
            }
            remove_file(path)?;
        }
        // A symbolic link: the link is replaced, not the file that it points at.
        Err(Errno::LOOP) => remove_file(path)?,
        Err(Errno::NOENT) => {}
        Err(error) => return Err(StoreError::on("replace", path)(error.into())),
    }
    // O_EXCL does not follow a symbolic link that is created in between.
    disk::create(path, OFlags::RDWR | OFlags::EXCL).map_err(StoreError::on("create", path))
}

/// Opens whatever has this name. Does not follow a symbolic link, and does not wait for the other
/// end of a FIFO.
fn open_to_inspect(path: &Path) -> rustix::io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty())).map(File::from)
}

/// Whether some relay has the file open for writing.
fn is_locked(file: &File) -> bool {
    // A shared lock, so that readers, which have one too, do not count. An error means that the
    // file system has no locks.
    matches!(file_lock::try_lock_shared(file), Ok(false))
}

/// Whether another relay writes the trace of this tracefile. That relay closes tracefiles that are
/// idle, and then holds only the lock on the metadata.
fn is_of_other_relay(tracefile: &Path, pool: &Pool) -> bool {
    let metadata = open_to_inspect(&tracefile.with_file_name("metadata"));
    metadata.is_ok_and(|metadata| !pool.is_claimed(&metadata) && is_locked(&metadata))
}

fn remove_file(path: &Path) -> Result<(), StoreError> {
    match disk::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(StoreError::on("remove", path)(error))
        }
        _ => Ok(()),
    }
}
