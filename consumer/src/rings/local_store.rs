//! The files of recorded traces below one directory, and the quota on their size.

use std::collections::{HashSet, VecDeque};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use parking_lot::Mutex;
use tracing::{info, warn};

/// Name of the metadata of a trace.
pub(super) const METADATA: &str = "metadata";
/// Name of the directory of a trace's index files.
pub(super) const INDEX: &str = "index";
/// The end of the name of an index file, after the name of its tracefile.
const INDEX_SUFFIX: &str = ".idx";

/// Limits of a recording.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoreLimits {
    /// Size in bytes at which the next tracefile of a stream is begun. 0: no limit.
    pub file_bytes: u64,
    /// Number of tracefiles that are kept of a stream. 0: all.
    pub files: u64,
    /// Size in bytes of all tracefiles, indexes and metadata in the directory, also those of
    /// earlier recordings. 0: no limit.
    pub quota: u64,
}

/// A part of the quota: tracefiles are this small, so that the oldest can be removed in good time.
const FILES_OF_A_QUOTA: u64 = 16;
/// Smallest tracefile that follows from a quota, in bytes.
const MIN_FILE_BYTES: u64 = 64 << 10;

/// The tracefiles of a directory.
#[derive(Debug)]
pub(super) struct LocalStore {
    root: PathBuf,
    limits: StoreLimits,
    files: Mutex<StoredFiles>,
}

#[derive(Debug, Default)]
struct StoredFiles {
    /// Size of all tracefiles, indexes and metadata, in bytes.
    bytes: u64,
    /// The tracefiles that are complete, the oldest first.
    complete: VecDeque<StoredFile>,
    /// The directories of sessions that are being written: they stay, also without a tracefile.
    open_sessions: HashSet<PathBuf>,
}

/// A tracefile that is complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StoredFile {
    pub(super) path: PathBuf,
    /// Size of the tracefile and of its index, in bytes.
    pub(super) bytes: u64,
}

impl LocalStore {
    /// Makes the directory, and finds what earlier recordings have left there.
    pub(super) fn open(root: &Path, mut limits: StoreLimits) -> io::Result<Self> {
        fs::create_dir_all(root)?;
        if limits.quota > 0 && limits.file_bytes == 0 {
            limits.file_bytes = (limits.quota / FILES_OF_A_QUOTA).max(MIN_FILE_BYTES);
        }
        let (mut found, mut bytes) = (Vec::new(), 0);
        for session in subdirectories(root)? {
            for trace in subdirectories(&session)? {
                found.extend(tracefiles(&trace)?);
                bytes += size_of_file(&trace.join(METADATA));
            }
        }
        // Names say nothing about the order of recordings of several programs.
        found.sort_by_key(|(changed, _)| *changed);
        let complete: VecDeque<_> = found.into_iter().map(|(_, file)| file).collect();
        bytes += complete.iter().map(|file| file.bytes).sum::<u64>();
        Ok(Self {
            root: root.to_owned(),
            limits,
            files: Mutex::new(StoredFiles {
                bytes,
                complete,
                open_sessions: HashSet::new(),
            }),
        })
    }

    pub(super) fn limits(&self) -> StoreLimits {
        self.limits
    }

    /// Makes the directory of a session, whose name gets a number if there is one already. It stays
    /// until [`Self::close_session`], also when its tracefiles are removed.
    pub(super) fn create_session(&self, name: &str) -> io::Result<PathBuf> {
        let mut path = self.root.join(name);
        for number in 1_u32.. {
            match fs::create_dir(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    path = self.root.join(format!("{name}-{number}"));
                }
                Err(error) => return Err(error),
                Ok(()) => {
                    self.files.lock().open_sessions.insert(path.clone());
                    return Ok(path);
                }
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Lets the directory of a session be removed with its last tracefile.
    pub(super) fn close_session(&self, session: &Path) {
        self.files.lock().open_sessions.remove(session);
    }

    /// Takes space for a packet, for which the oldest complete tracefiles are removed. Returns
    /// false if there is none.
    pub(super) fn take_space(&self, bytes: u64) -> bool {
        let mut files = self.files.lock();
        let quota = self.limits.quota;
        while quota > 0 && files.bytes.saturating_add(bytes) > quota {
            let Some(oldest) = files.complete.pop_front() else {
                return false;
            };
            files.remove(&oldest);
        }
        files.bytes = files.bytes.saturating_add(bytes);
        true
    }

    /// Counts bytes that are written whatever the quota: the next packet makes room for them.
    pub(super) fn add_bytes(&self, bytes: u64) {
        let mut files = self.files.lock();
        files.bytes = files.bytes.saturating_add(bytes);
    }

    /// Adds a tracefile that is complete.
    pub(super) fn add_complete(&self, file: StoredFile) {
        self.files.lock().complete.push_back(file);
    }

    /// Removes a tracefile, if it still exists.
    pub(super) fn remove_complete(&self, path: &Path) {
        let mut files = self.files.lock();
        if let Some(place) = files.complete.iter().position(|file| file.path == path)
            && let Some(file) = files.complete.remove(place)
        {
            files.remove(&file);
        }
    }
}

impl StoredFiles {
    /// Removes a tracefile and its index, and its session when it was the last.
    fn remove(&mut self, file: &StoredFile) {
        let StoredFile { path, bytes } = file;
        self.bytes = self.bytes.saturating_sub(*bytes);
        info!(file = %path.display(), "tracefile removed");
        for path in [path, &index_path(path)] {
            if let Err(error) = fs::remove_file(path)
                && error.kind() != io::ErrorKind::NotFound
            {
                warn!(file = %path.display(), %error, "tracefile not removed");
            }
        }
        let Some(trace) = path.parent() else { return };
        let Some(session) = trace.parent() else {
            return;
        };
        let is_empty = tracefiles(trace).is_ok_and(|files| files.is_empty());
        if is_empty && !self.open_sessions.contains(session) {
            let metadata = size_of_file(&trace.join(METADATA));
            self.bytes = self.bytes.saturating_sub(metadata);
            let removed = fs::remove_dir_all(trace).and_then(|()| fs::remove_dir(session));
            if let Err(error) = removed {
                warn!(session = %session.display(), %error, "session not removed");
            }
        }
    }
}

/// Returns the path of a tracefile's index.
pub(super) fn index_path(tracefile: &Path) -> PathBuf {
    let mut name = tracefile.file_name().unwrap_or_default().to_owned();
    name.push(INDEX_SUFFIX);
    tracefile.with_file_name(INDEX).join(name)
}

/// Returns the size of a file in bytes; 0 if there is none.
fn size_of_file(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |metadata| metadata.len())
}

fn subdirectories(path: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            found.push(entry.path());
        }
    }
    Ok(found)
}

/// Returns the tracefiles of a trace, with the times of their last change.
fn tracefiles(trace: &Path) -> io::Result<Vec<(SystemTime, StoredFile)>> {
    // The user may name a directory with other files, which no quota may remove.
    if !trace.join(METADATA).is_file() {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for entry in fs::read_dir(trace)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        if metadata.is_file() && entry.file_name() != METADATA {
            let path = entry.path();
            let bytes = metadata.len() + size_of_file(&index_path(&path));
            found.push((metadata.modified()?, StoredFile { path, bytes }));
        }
    }
    Ok(found)
}
