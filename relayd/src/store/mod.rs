//! The files of a relay, and the order in which they are written: the bytes of a packet first, then the index entry that
//! points at them. Sees no socket and no session. `doc/store.md` describes the files.
//!
//! Read in this order: [`layout`] and [`old_paths`] (names of directories), [`chunk`] (a directory's worth of trace
//! and where it moves), [`pool`] and [`eviction`] (which files are open, and which are closed when idle or for others),
//! `regular_file` and `reopenable_file` (opening by name, closing and opening again), `tracefile` (the bytes of
//! packets), [`index_file`] (their index entries and beacons), `segment_writer` and [`segment`] (both files, as their
//! writer and their readers have them), [`stream_files`] (all the files of one stream), [`metadata`], [`fault`] (kinds
//! of failures), [`deletion`] (of chunks, on a thread of its own), [`repair`] (after a crash).

pub mod chunk;
pub mod deletion;
pub mod eviction;
pub mod fault;
pub mod index_file;
pub mod layout;
pub mod metadata;
pub mod old_paths;

pub mod pool;
mod regular_file;
mod reopenable_file;
pub mod repair;
pub mod segment;
mod segment_writer;
pub mod stream_files;
mod tracefile;

use std::fmt;
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
#[error("cannot {what} {}{}: {source}", .path.display(), At(*.offset))]
pub struct StoreError {
    /// Verb of what was to be done: "write", "create".
    pub what: &'static str,
    /// File or directory.
    pub path: PathBuf,
    /// Position in the file, in bytes. None: the operation has none.
    pub offset: Option<u64>,
    /// Error of the system.
    pub source: io::Error,
}

/// The position in a file, for messages.
struct At(Option<u64>);

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(offset) => write!(f, " at byte {offset}"),
            None => Ok(()),
        }
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

/// Permissions before the umask, as lttng-relayd sets them: group may read traces, others not.
const FILE_MODE: Mode = Mode::from_raw_mode(0o660);
const DIRECTORY_MODE: Mode = Mode::from_raw_mode(0o770);

/// Makes a directory and those above it, as far as they are missing.
///
/// # Errors
/// If one of them cannot be made.
pub fn make_directory(path: &Path) -> Result<(), StoreError> {
    match rustix::fs::mkdir(path, DIRECTORY_MODE) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        // Parents are made only when they are missing: mostly they are there.
        Err(Errno::NOENT) if path.parent().is_some() => {
            if let Some(parent) = path.parent() {
                make_directory(parent)?;
            }
            match rustix::fs::mkdir(path, DIRECTORY_MODE) {
                Ok(()) | Err(Errno::EXIST) => Ok(()),
                Err(error) => Err(StoreError::on("make directory", path)(error.into())),
            }
        }
        Err(error) => Err(StoreError::on("make directory", path)(error.into())),
    }
}

/// Makes a new, empty file. One of that name is unlinked, so that its readers keep what they read.
///
/// # Errors
/// If the file of that name is still being written by another stream: two recordings that were
/// given the same directory.
fn create_file(path: &Path, pool: &Pool) -> Result<File, StoreError> {
    match open_to_look(path) {
        Ok(old) => {
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
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = retry_on_intr(|| rustix::fs::open(path, flags, FILE_MODE))
        .map_err(|error| StoreError::on("create", path)(error.into()))?;
    Ok(File::from(file))
}

/// Opens whatever has this name: it is neither followed nor waited for.
fn open_to_look(path: &Path) -> rustix::io::Result<File> {
    let look = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    retry_on_intr(|| rustix::fs::open(path, look, Mode::empty())).map(File::from)
}

/// Whether some relay has the file open and writes it.
fn is_locked(file: &File) -> bool {
    matches!(file_lock::try_lock_shared(file), Ok(false))
}

/// Whether another relay writes the trace that this tracefile is of. That relay has closed the file if
/// nothing has been written to it for a while, and holds only the lock on the metadata then.
fn is_of_other_relay(tracefile: &Path, pool: &Pool) -> bool {
    let metadata = open_to_look(&tracefile.with_file_name("metadata"));
    metadata.is_ok_and(|metadata| !pool.is_claimed(&metadata) && is_locked(&metadata))
}

fn remove_file(path: &Path) -> Result<(), StoreError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(StoreError::on("remove", path)(error))
        }
        _ => Ok(()),
    }
}
