//! The files of a trace, and the traces of a directory.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::OFlags;

use crate::open::{open_regular, remove_if_exists};

/// Ending of the events' file.
const EVENTS: &str = ".jsonl";
/// Ending of the file of refused lines.
const REJECTED: &str = ".rejected.jsonl";
/// Ending of the record, which begins with a dot.
const RECORD: &str = ".state.json";

/// The files of a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceFiles {
    /// The events, one to a line.
    pub events: PathBuf,
    /// Refused lines with the reasons. The file exists only if there are any.
    pub rejected: PathBuf,
    /// The file of the [`TraceRecord`](crate::record::TraceRecord).
    pub record: PathBuf,
}

/// A trace that is stored in a directory.
#[derive(Debug, Clone)]
pub struct StoredTrace {
    /// The files of the trace.
    pub files: TraceFiles,
    /// When the events' file was last written to.
    pub modified: SystemTime,
    /// Size of the events' file, in bytes.
    pub size: u64,
}

impl TraceFiles {
    /// Returns the files of the trace of this name in a directory.
    #[must_use]
    pub fn in_directory(directory: &Path, name: &str) -> Self {
        Self {
            events: directory.join(format!("{name}{EVENTS}")),
            rejected: directory.join(format!("{name}{REJECTED}")),
            record: directory.join(format!(".{name}{RECORD}")),
        }
    }

    /// Returns the files of the trace that has its events in the file `events`.
    #[must_use]
    pub fn of_events(events: PathBuf) -> Self {
        let file = events.file_name().unwrap_or_default().as_bytes();
        let name = file.strip_suffix(EVENTS.as_bytes()).unwrap_or(file);
        let sibling = |parts: [&[u8]; 3]| events.with_file_name(OsStr::from_bytes(&parts.concat()));
        Self {
            rejected: sibling([name, REJECTED.as_bytes(), b""]),
            record: sibling([b".", name, RECORD.as_bytes()]),
            events,
        }
    }

    /// Returns the name of the trace that has these files in a directory, if it is text.
    pub(crate) fn name(&self) -> Option<&str> {
        self.events.file_name()?.to_str()?.strip_suffix(EVENTS)
    }

    /// Whether a daemon has the trace open.
    pub(crate) fn is_open(&self) -> bool {
        let file = open_regular(&self.events, OFlags::RDONLY);
        // The lock, if it is taken, ends when the file is closed here.
        file.is_ok_and(|file| matches!(file_lock::try_lock_exclusive(&file), Ok(false)))
    }

    /// Returns the files of the trace that has its record at this path; none if the name is not
    /// that of a record.
    pub(crate) fn of_record(record: &Path) -> Option<Self> {
        let file = record.file_name()?.to_str()?;
        let name = file.strip_prefix('.')?.strip_suffix(RECORD)?;
        Some(Self::in_directory(record.parent()?, name))
    }
}

/// Lists the traces of a directory, in the order of their paths' bytes.
///
/// # Errors
/// If the directory cannot be read.
pub fn list_traces(directory: &Path) -> io::Result<Vec<StoredTrace>> {
    let mut traces = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().as_bytes();
        let is_trace = name.ends_with(EVENTS.as_bytes())
            && !name.ends_with(REJECTED.as_bytes())
            && !name.starts_with(b".");
        // The file may have been removed since. A symbolic link is not a trace: another user may
        // have made it.
        let Ok(metadata) = path.symlink_metadata() else {
            continue;
        };
        if is_trace && metadata.is_file() {
            traces.push(StoredTrace {
                modified: metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH),
                size: metadata.len(),
                files: TraceFiles::of_events(path),
            });
        }
    }
    traces.sort_by(|a, b| a.files.events.as_os_str().cmp(b.files.events.as_os_str()));
    Ok(traces)
}

/// Lists the files of those traces of a directory that have records.
pub(crate) fn with_records(directory: &Path) -> io::Result<Vec<TraceFiles>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        found.extend(TraceFiles::of_record(&entry?.path()));
    }
    found.sort_by(|a, b| a.record.cmp(&b.record));
    Ok(found)
}

/// The exclusive lock on a trace, which is needed to remove it. A daemon holds a shared lock on the
/// events' file of every trace that it has open.
#[derive(Debug)]
pub struct TraceLock {
    _file: File,
}

impl StoredTrace {
    /// Takes the lock; returns none if a daemon has the trace open.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub fn lock(&self) -> io::Result<Option<TraceLock>> {
        let file = open_regular(&self.files.events, OFlags::RDONLY)?;
        let is_locked = file_lock::try_lock_exclusive(&file)?;
        Ok(is_locked.then_some(TraceLock { _file: file }))
    }

    /// Removes all files of the trace, which stays locked until then.
    ///
    /// # Errors
    /// If a file cannot be removed.
    pub fn remove(&self, _lock: TraceLock) -> io::Result<()> {
        fs::remove_file(&self.files.events)?;
        remove_if_exists(&self.files.rejected)?;
        remove_if_exists(&self.files.record)
    }

    /// Truncates the events' file, while a daemon may be writing to it.
    ///
    /// # Errors
    /// If the file cannot be opened or truncated.
    pub fn empty(&self) -> io::Result<()> {
        let file = open_regular(&self.files.events, OFlags::WRONLY)?;
        file.set_len(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_a_trace_are_in_one_directory() {
        let files = TraceFiles::in_directory(Path::new("/d"), "run-1");
        assert_eq!(TraceFiles::of_events("/d/run-1.jsonl".into()), files);
        assert_eq!(TraceFiles::of_record(&files.record), Some(files));
        let named = TraceFiles::of_events("/d/all.json".into());
        assert_eq!(named.rejected, Path::new("/d/all.json.rejected.jsonl"));
    }

    #[test]
    fn trace_that_a_symlink_has_replaced_is_neither_locked_nor_emptied() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("a.jsonl"), "{}\n").unwrap();
        fs::write(at("precious"), "do not lose me").unwrap();
        let traces = list_traces(directory.path()).unwrap();
        let trace = traces.first().unwrap();
        fs::remove_file(at("a.jsonl")).unwrap();
        std::os::unix::fs::symlink("precious", at("a.jsonl")).unwrap();
        assert!(trace.lock().is_err());
        assert!(trace.empty().is_err());
        assert_eq!(
            fs::read_to_string(at("precious")).unwrap(),
            "do not lose me"
        );
    }

    #[test]
    fn listing_a_directory_returns_only_traces() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        for name in [
            "b.jsonl",
            "a.jsonl",
            "a.rejected.jsonl",
            ".a.state.json",
            ".x.jsonl",
            "notes.txt",
        ] {
            fs::write(path(name), "{}\n").unwrap();
        }
        fs::create_dir(path("c.jsonl")).unwrap();
        let traces = list_traces(directory.path()).unwrap();
        let found: Vec<_> = traces.iter().map(|trace| &trace.files.events).collect();
        assert_eq!(found, [&path("a.jsonl"), &path("b.jsonl")]);
        let lock = traces.first().unwrap().lock().unwrap().unwrap();
        assert!(traces.first().unwrap().lock().unwrap().is_none());
        traces.first().unwrap().remove(lock).unwrap();
        for gone in ["a.jsonl", "a.rejected.jsonl", ".a.state.json"] {
            assert!(!path(gone).exists(), "{gone}");
        }
    }
}
