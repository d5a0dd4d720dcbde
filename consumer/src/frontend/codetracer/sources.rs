//! What belongs to a recording beside its records: metadata, and copies of source files.
//!
//! A recording in a directory has copies in `files/`. They are sent when a record names the path,
//! or as soon as they appear; at the end all that were not sent, or have changed since. A recording
//! without copies names files of this host: they are read only below the directory that the user
//! gives, when a record names them.
//!
//! Files are read on threads for blocking calls. The directory may be another user's: no symbolic
//! link is followed below it, `files` included, and nothing but regular files is read.

use std::collections::HashMap;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use codetracer::metadata::RecordingMetadata;
use regular_file::{open_at, open_below, open_directory, open_directory_at};
use rustix::fs::{AtFlags, Dir, FileType, OFlags, fstat, statat};
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
    /// Copies in `files` of this directory, the recording's; `/a/b` is `files/a/b` in it.
    Copies(PathBuf),
    /// The files themselves, if they are below this directory.
    Originals(PathBuf),
    None,
}

/// Sends metadata and source files of one recording.
#[derive(Debug)]
pub(super) struct Sources {
    files: SourceFiles,
    /// The directory that may have metadata.
    directory: Option<PathBuf>,
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
    /// Returns what a recording has beside its records. Records in a file by itself may have
    /// metadata beside them.
    pub(super) fn of_recording(source: &RecordingSource, settings: &RecordingSettings) -> Self {
        let (files, directory) = match source {
            RecordingSource::Directory(path) => {
                (SourceFiles::Copies(path.clone()), Some(path.clone()))
            }
            RecordingSource::File(path) => {
                let beside = path.parent().map(|parent| match parent.as_os_str() {
                    name if name.is_empty() => PathBuf::from("."),
                    _ => parent.to_owned(),
                });
                (originals(settings), beside)
            }
            RecordingSource::Pipe => (originals(settings), None),
        };
        Self {
            files,
            directory,
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
            && let Some(directory) = self.directory.clone()
            && let Some(metadata) = blocking(move || read_metadata(&directory)).await
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
            let paths = blocking(move || list_files(&root).ok()).await;
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
        // Files are in memory as a whole until they are queued.
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

    /// Finds the file of a path that a record names: the directory below which it has to be, its
    /// path there, and where its copy is to be. `None` if it is not to be read.
    fn locate(&self, path: &str, workdir: &str) -> Option<(PathBuf, PathBuf, String)> {
        match &self.files {
            SourceFiles::Copies(root) => {
                let copy = copy_path(path)?;
                Some((root.clone(), Path::new(FILES_DIRECTORY).join(&copy), copy))
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

/// Returns where the copy of a path is below `files/`. `None` if it would be elsewhere.
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

fn read_metadata(directory: &Path) -> Option<RecordingMetadata> {
    let directory = open_directory(directory).ok()?;
    let file = open_at(directory, METADATA_FILE, OFlags::RDONLY).ok()?;
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
    let file = open_below(open_directory(root)?, below, OFlags::RDONLY)?;
    let found = fstat(&file)?;
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
    // The file may grow while it is read, so its size alone is no limit.
    let mut content = Vec::new();
    file.take(max_bytes.saturating_add(1))
        .read_to_end(&mut content)?;
    if content.len() as u64 > max_bytes {
        return Err(too_long());
    }
    Ok(Some((content, state)))
}

/// Returns the regular files in `files` of a recording's directory, as paths of records name them.
fn list_files(root: &Path) -> io::Result<Vec<String>> {
    let files = open_directory_at(open_directory(root)?, FILES_DIRECTORY)?;
    let mut found = Vec::new();
    add_files(&files, "", 1, &mut found)?;
    // The order of a directory is arbitrary.
    found.sort();
    Ok(found)
}

/// Adds the regular files below a directory, whose path ends with a slash or is empty. As many
/// directories are open at a time as the path has levels.
fn add_files(
    directory: &OwnedFd,
    path: &str,
    depth: usize,
    to: &mut Vec<String>,
) -> io::Result<()> {
    for entry in Dir::read_from(directory)?.flatten() {
        let name = entry.file_name();
        let Ok(text) = name.to_str() else {
            continue;
        };
        let kind = match entry.file_type() {
            // Some file systems do not store the type in the directory (readdir(3)).
            FileType::Unknown => statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
                .map_or(FileType::Unknown, |stat| {
                    FileType::from_raw_mode(stat.st_mode)
                }),
            known => known,
        };
        let is_parent = matches!(text, "." | "..");
        if kind == FileType::RegularFile && to.len() < MAX_SOURCE_FILES {
            to.push(format!("{path}{text}"));
        } else if kind == FileType::Directory
            && !is_parent
            && depth < MAX_SOURCE_DEPTH
            && let Ok(below) = open_directory_at(directory, name)
        {
            // What cannot be read of it is missing; the rest is not.
            let _ = add_files(&below, &format!("{path}{text}/"), depth + 1, to);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use rustix::fs::{CWD, Mode, mkfifoat};

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
    fn only_regular_files_of_the_recording_are_read() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("root");
        fs::create_dir_all(root.join("files/a/b")).unwrap();
        fs::write(root.join("files/a/b/file"), "text").unwrap();
        fs::write(directory.path().join("secret"), "secret").unwrap();
        symlink("../../secret", root.join("files/link")).unwrap();
        symlink("../..", root.join("files/up")).unwrap();
        let read = |path: &str, max| read_source(&root, Path::new(path), None, max);
        let (content, state) = read("files/a/b/file", 4).unwrap().unwrap();
        assert_eq!(content, b"text");
        let again = read_source(&root, Path::new("files/a/b/file"), Some(state), 4);
        assert!(again.unwrap().is_none());
        for (path, max) in [
            ("files/a/b/file", 3),
            ("files/a/b", 100),
            ("files/link", 100),
            ("files/up/secret", 100),
            ("files/none", 100),
        ] {
            assert!(read(path, max).is_err(), "{path}");
        }
        assert_eq!(list_files(&root).unwrap(), ["a/b/file"]);
    }

    #[test]
    fn links_and_fifos_in_the_place_of_files_of_a_recording_are_not_read() {
        let directory = tempfile::tempdir().unwrap();
        let (root, other) = (
            directory.path().join("root"),
            directory.path().join("other"),
        );
        for made in [&root, &other] {
            fs::create_dir(made).unwrap();
        }
        fs::write(other.join("secret"), "secret").unwrap();
        fs::write(other.join("metadata"), r#"{"program":"p"}"#).unwrap();
        symlink("../other", root.join(FILES_DIRECTORY)).unwrap();
        assert!(read_source(&root, Path::new("files/secret"), None, 100).is_err());
        assert!(list_files(&root).is_err());
        symlink("../other/metadata", root.join(METADATA_FILE)).unwrap();
        assert_eq!(read_metadata(&root), None);
        fs::remove_file(root.join(METADATA_FILE)).unwrap();
        mkfifoat(CWD, root.join(METADATA_FILE), Mode::RUSR).unwrap();
        assert_eq!(read_metadata(&root), None);
        fs::rename(other.join("metadata"), root.join(METADATA_FILE)).unwrap();
        assert_eq!(read_metadata(&root).unwrap().program, "p");
    }
}
