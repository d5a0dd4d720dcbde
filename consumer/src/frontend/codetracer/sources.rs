//! What belongs to a recording beside its records: metadata, and copies of source files.
//!
//! A recording in a directory has copies in `files/`. They are sent when a record names the path, or as soon as they
//! appear; at the end all that were not sent, or have changed since. A recording without copies names files of this
//! host: they are read only below the directory that the user gives, when a record names them.
//!
//! Files are read on threads for blocking calls. No symbolic link is followed below the given directory, and nothing but
//! regular files is read.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use codetracer::metadata::RecordingMetadata;
use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};
use tokio::sync::Semaphore;
use tracing::{debug, warn};

use super::session::RecordingSession;
use super::{RecordingSettings, RecordingSource};
use crate::limits::{
    MAX_RECORDING_METADATA_BYTES, MAX_SOURCE_DEPTH, MAX_SOURCE_FILES, MAX_SOURCE_READS,
};
use crate::queue::SessionClosed;

/// The file with the metadata.
const METADATA_FILE: &str = "trace_metadata.json";
/// The directory with copies of source files.
const FILES_DIRECTORY: &str = "files";

/// Limits the files of all recordings that are in memory.
static READS: Semaphore = Semaphore::const_new(MAX_SOURCE_READS);

/// Where source files are.
#[derive(Debug, Clone)]
enum SourceFiles {
    /// Copies in this directory; `/a/b` is `a/b` in it.
    Copies(PathBuf),
    /// The files themselves, if they are below this directory.
    Originals(PathBuf),
    None,
}

/// Sends metadata and source files of one recording.
#[derive(Debug)]
pub(super) struct Sources {
    files: SourceFiles,
    metadata: Option<PathBuf>,
    max_bytes: u64,
    /// The files that were sent, with the state that they had.
    sent: HashMap<String, FileState>,
    /// Paths whose copies were not there yet.
    missing: Vec<String>,
}

/// What tells whether a file has changed: inode, size, and time of the last change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileState([u64; 4]);

/// A file that was read.
#[derive(Debug)]
struct SourceFile {
    /// Where the copy is to be, below `files/`.
    path: String,
    content: Vec<u8>,
    state: FileState,
}

impl Sources {
    /// What a recording has beside its records. Records in a file by itself may have metadata beside them.
    pub(super) fn of_recording(source: &RecordingSource, settings: &RecordingSettings) -> Self {
        let (files, directory) = match source {
            RecordingSource::Directory(path) => {
                let files = path.join(FILES_DIRECTORY);
                (SourceFiles::Copies(files), Some(path.clone()))
            }
            RecordingSource::File(path) => {
                let beside = path.parent().map(Path::to_owned);
                (originals(settings), beside)
            }
            RecordingSource::Pipe => (originals(settings), None),
        };
        Self {
            files,
            metadata: directory.map(|directory| directory.join(METADATA_FILE)),
            max_bytes: settings.max_source_bytes,
            sent: HashMap::new(),
            missing: Vec::new(),
        }
    }

    /// Sends the files that records have named since the last call.
    pub(super) async fn send_new(
        &mut self,
        session: &mut RecordingSession,
    ) -> Result<(), SessionClosed> {
        for path in session.take_new_paths() {
            self.send(session, path).await?;
        }
        Ok(())
    }

    /// Sends what was not there before: the metadata, and copies.
    pub(super) async fn send_late(
        &mut self,
        session: &mut RecordingSession,
    ) -> Result<(), SessionClosed> {
        if !session.has_metadata()
            && let Some(path) = self.metadata.clone()
            && let Some(metadata) = blocking(move || read_metadata(&path)).await
        {
            session.append_metadata(metadata).await?;
        }
        for path in std::mem::take(&mut self.missing) {
            self.send(session, path).await?;
        }
        Ok(())
    }

    /// Sends at the end of the recording what was not sent, or has changed since.
    pub(super) async fn send_all(
        &mut self,
        session: &mut RecordingSession,
    ) -> Result<(), SessionClosed> {
        self.send_new(session).await?;
        self.send_late(session).await?;
        if let SourceFiles::Copies(root) = self.files.clone() {
            let paths = blocking(move || Some(list_files(&root))).await;
            for path in paths.unwrap_or_default() {
                self.send(session, path).await?;
            }
        }
        Ok(())
    }

    async fn send(
        &mut self,
        session: &mut RecordingSession,
        path: String,
    ) -> Result<(), SessionClosed> {
        let Some((root, below, copy)) = self.locate(&path, session.workdir()) else {
            return Ok(());
        };
        if !self.sent.contains_key(&copy) && self.sent.len() >= MAX_SOURCE_FILES {
            return Ok(());
        }
        let before = self.sent.get(&copy).copied();
        let max_bytes = self.max_bytes;
        let Ok(_permit) = READS.acquire().await else {
            return Ok(());
        };
        let read = blocking(move || {
            let file = read_source(&root, &below, before, max_bytes);
            Some(file.map(|file| {
                file.map(|(content, state)| SourceFile {
                    path: copy,
                    content,
                    state,
                })
            }))
        });
        match read.await {
            Some(Ok(Some(file))) => {
                session.append_file(&file.path, &file.content).await?;
                self.sent.insert(file.path, file.state);
            }
            Some(Err(error)) if error.kind() == io::ErrorKind::NotFound => {
                let is_copy = matches!(self.files, SourceFiles::Copies(_));
                if is_copy && self.missing.len() < MAX_SOURCE_FILES {
                    self.missing.push(path);
                }
            }
            Some(Err(error)) => warn!(path, %error, "source file is not sent"),
            // It was sent before.
            Some(Ok(None)) | None => {}
        }
        Ok(())
    }

    /// Finds the file of a path that a record names: the directory below which it has to be, its path there, and where
    /// its copy is to be. `None` if it is not to be read.
    fn locate(&self, path: &str, workdir: &str) -> Option<(PathBuf, PathBuf, String)> {
        match &self.files {
            SourceFiles::Copies(root) => {
                let copy = copy_path(path)?;
                Some((root.clone(), PathBuf::from(&copy), copy))
            }
            SourceFiles::Originals(root) => {
                let workdir = Path::new(workdir);
                let base = if workdir.is_absolute() { workdir } else { root };
                let original = base.join(path);
                let below = original.strip_prefix(root).ok()?;
                let below = copy_path(below.to_str()?)?;
                Some((root.clone(), below.into(), copy_path(path)?))
            }
            SourceFiles::None => None,
        }
    }
}

fn originals(settings: &RecordingSettings) -> SourceFiles {
    match &settings.source_root {
        Some(root) => SourceFiles::Originals(root.clone()),
        None => SourceFiles::None,
    }
}

/// Where the copy of a path is below `files/`. `None` if it would be elsewhere.
fn copy_path(path: &str) -> Option<String> {
    let mut parts = Vec::new();
    for component in Path::new(path).components() {
        match component {
            Component::Normal(name) => parts.push(name.to_str()?),
            Component::RootDir | Component::CurDir => {}
            Component::ParentDir | Component::Prefix(_) => return None,
        }
    }
    let is_sane = (1..=MAX_SOURCE_DEPTH).contains(&parts.len()) && !path.contains('\0');
    is_sane.then(|| parts.join("/"))
}

/// Runs file calls on a thread for them. `None` if there is no result.
async fn blocking<T: Send + 'static>(
    call: impl FnOnce() -> Option<T> + Send + 'static,
) -> Option<T> {
    tokio::task::spawn_blocking(call).await.ok().flatten()
}

fn read_metadata(path: &Path) -> Option<RecordingMetadata> {
    let file = File::open(path).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut text = String::new();
    let limited = file
        .take(MAX_RECORDING_METADATA_BYTES)
        .read_to_string(&mut text);
    if let Err(error) = limited {
        debug!(%error, "metadata cannot be read yet");
        return None;
    }
    // Recorders write the file in place: half of it is no object yet.
    RecordingMetadata::parse(&text)
        .inspect_err(|error| debug!(%error, "metadata is not complete yet"))
        .ok()
}

/// Reads a regular file below a directory. `None` if it still has the state `before`.
fn read_source(
    root: &Path,
    below: &Path,
    before: Option<FileState>,
    max_bytes: u64,
) -> io::Result<Option<(Vec<u8>, FileState)>> {
    let file = open_below(root, below)?;
    let found = fstat(&file)?;
    if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
        return Err(io::Error::other("not a regular file"));
    }
    let too_long = || io::Error::other(format!("longer than {max_bytes} bytes"));
    let size = u64::try_from(found.st_size).unwrap_or(u64::MAX);
    let changed = [found.st_mtime.cast_unsigned(), found.st_mtime_nsec];
    let [seconds, nanoseconds] = changed;
    let state = FileState([found.st_ino, size, seconds, nanoseconds]);
    if before == Some(state) {
        return Ok(None);
    }
    if size > max_bytes {
        return Err(too_long());
    }
    let mut content = Vec::new();
    File::from(file)
        .take(max_bytes.saturating_add(1))
        .read_to_end(&mut content)?;
    if content.len() as u64 > max_bytes {
        return Err(too_long());
    }
    Ok(Some((content, state)))
}

/// Opens a file below a directory, without following symbolic links below it.
fn open_below(root: &Path, below: &Path) -> io::Result<OwnedFd> {
    let search = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut directory = openat(CWD, root, search, Mode::empty())?;
    let mut names: Vec<_> = below.iter().collect();
    let name = names.pop().ok_or(io::ErrorKind::NotFound)?;
    for name in names {
        directory = openat(&directory, name, search | OFlags::NOFOLLOW, Mode::empty())?;
    }
    // Opening a pipe must not block.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(openat(
        &directory,
        name,
        flags | OFlags::NOCTTY,
        Mode::empty(),
    )?)
}

/// The regular files below a directory, as paths of records name them.
fn list_files(root: &Path) -> Vec<String> {
    let mut files = Vec::new();
    let mut directories = vec![(String::new(), 0)];
    while let Some((directory, depth)) = directories.pop() {
        let Ok(entries) = fs::read_dir(root.join(&directory)) else {
            continue;
        };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let (Some(name), Ok(kind)) = (name.to_str(), entry.file_type()) else {
                continue;
            };
            let separator = if directory.is_empty() { "" } else { "/" };
            let path = format!("{directory}{separator}{name}");
            if kind.is_file() && files.len() < MAX_SOURCE_FILES {
                files.push(path);
            } else if kind.is_dir() && depth < MAX_SOURCE_DEPTH {
                directories.push((path, depth + 1));
            }
        }
    }
    // The order of a directory is arbitrary.
    files.sort();
    files
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn copies_of_paths_lie_below_the_directory_of_copies() {
        for (path, copy) in [
            ("/demo/main.small", Some("demo/main.small")),
            ("demo//./main.small", Some("demo/main.small")),
            ("../demo", None),
            ("/demo/../../etc/passwd", None),
            ("/", None),
            ("", None),
            ("a\0b", None),
        ] {
            assert_eq!(copy_path(path).as_deref(), copy, "{path}");
        }
        assert_eq!(copy_path(&"d/".repeat(MAX_SOURCE_DEPTH + 1)), None);
    }

    #[test]
    fn only_regular_files_below_the_directory_are_read() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("root");
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::write(root.join("a/b/file"), "text").unwrap();
        fs::write(directory.path().join("secret"), "secret").unwrap();
        symlink("../secret", root.join("link")).unwrap();
        symlink("..", root.join("up")).unwrap();
        let read = |path: &str, max| read_source(&root, Path::new(path), None, max);
        let (content, state) = read("a/b/file", 4).unwrap().unwrap();
        assert_eq!(content, b"text");
        let again = read_source(&root, Path::new("a/b/file"), Some(state), 4);
        assert!(again.unwrap().is_none());
        for (path, max) in [
            ("a/b/file", 3),
            ("a/b", 100),
            ("link", 100),
            ("up/secret", 100),
            ("none", 100),
        ] {
            assert!(read(path, max).is_err(), "{path}");
        }
        assert_eq!(list_files(&root), ["a/b/file"]);
    }
}
