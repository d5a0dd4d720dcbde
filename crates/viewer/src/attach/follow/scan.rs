//! The scan for traces and their files below a directory. Files and directories move, vanish and
//! are replaced while it runs, so that a file is recognized by its [`FileId`], not by its path.

use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::time::SystemTime;

/// Deepest nesting that is searched, as [`ctf::directory::traces_below`] does.
const MAX_DEPTH: usize = 64;
/// Directories in which chunks lie while they are being moved.
const CHUNK_MOVE_DIRECTORIES: [&str; 2] = [".tmp_old_chunk", ".tmp_new_chunk"];
/// Where completed chunks lie.
const ARCHIVES: &str = "archives";

/// The identity of a file or directory, wherever it lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct FileId {
    device: u64,
    inode: u64,
    /// The time of creation, because an inode number may be used again as soon as a file is gone.
    /// Absent if the file system does not say it.
    born: Option<SystemTime>,
}

impl FileId {
    pub(super) fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            born: metadata.created().ok(),
        }
    }

    /// The identity of what a path leads to.
    pub(super) fn at(path: &Path) -> Option<Self> {
        fs::metadata(path).ok().as_ref().map(Self::of)
    }
}

/// A tracefile that was found.
#[derive(Debug)]
pub(super) struct FoundFile {
    pub(super) path: PathBuf,
    pub(super) id: FileId,
    pub(super) modified: SystemTime,
}

/// A directory that is a trace.
#[derive(Debug)]
pub(super) struct FoundTrace {
    pub(super) directory: PathBuf,
    pub(super) id: FileId,
    /// The path below the root of the scan, without the directories of chunks: the same in all
    /// chunks.
    pub(super) trace_path: PathBuf,
    /// The time of the last write to its metadata file.
    pub(super) modified: SystemTime,
    /// The tracefiles, empty ones too, in byte order of their names.
    pub(super) files: Vec<FoundFile>,
}

/// The result of a scan.
#[derive(Debug, Default)]
pub(super) struct Scan {
    /// The traces, in byte order of their directories.
    pub(super) traces: Vec<FoundTrace>,
    /// All directories: a trace or tracefile may appear in any of them.
    pub(super) directories: Vec<PathBuf>,
}

/// Scans for traces at or below a directory.
///
/// # Errors
/// If `root` itself cannot be read.
pub(super) fn scan(root: &Path) -> io::Result<Scan> {
    // Only the root must be readable: what is below may vanish at any time.
    fs::read_dir(root)?;
    let mut scan = Scan::default();
    let mut left = vec![(root.to_owned(), 0)];
    while let Some((directory, depth)) = left.pop() {
        if let Some(trace) = trace_at(root, &directory) {
            scan.traces.push(trace);
        } else if depth < MAX_DEPTH {
            let below = entries(&directory).filter(|(_, metadata)| metadata.is_dir());
            // A list instead of recursion: others decide how deep directories are.
            left.extend(below.map(|(path, _)| (path, depth + 1)));
        }
        scan.directories.push(directory);
    }
    scan.traces
        .sort_by(|one, other| one.directory.cmp(&other.directory));
    Ok(scan)
}

fn trace_at(root: &Path, directory: &Path) -> Option<FoundTrace> {
    let metadata = fs::metadata(directory.join("metadata")).ok()?;
    if !metadata.is_file() {
        return None;
    }
    let is_tracefile =
        |name: &OsStr| name != "metadata" && !name.as_encoded_bytes().starts_with(b".");
    let mut files: Vec<FoundFile> = entries(directory)
        .filter(|(path, found)| found.is_file() && path.file_name().is_some_and(is_tracefile))
        .map(|(path, found)| FoundFile {
            path,
            id: FileId::of(&found),
            modified: modified(&found),
        })
        .collect();
    files.sort_by(|one, other| one.path.cmp(&other.path));
    Some(FoundTrace {
        directory: directory.to_owned(),
        id: FileId::at(directory)?,
        trace_path: path_without_chunks(directory.strip_prefix(root).unwrap_or(directory)),
        modified: modified(&metadata),
        files,
    })
}

fn modified(metadata: &Metadata) -> SystemTime {
    metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH)
}

/// The entries of a directory that are still there. Links are not followed: they may lead back.
fn entries(directory: &Path) -> impl Iterator<Item = (PathBuf, Metadata)> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| Some((entry.path(), entry.metadata().ok()?)))
}

/// A path without the directories of chunks.
fn path_without_chunks(path: &Path) -> PathBuf {
    let is_chunk = |part: &Component<'_>| {
        let name = part.as_os_str().to_string_lossy();
        name == ARCHIVES || CHUNK_MOVE_DIRECTORIES.contains(&&*name) || is_chunk_name(&name)
    };
    path.components().filter(|part| !is_chunk(part)).collect()
}

/// Whether a name is `YYYYmmddTHHMMSS+hhmm-…`, as LTTng calls chunks.
fn is_chunk_name(name: &str) -> bool {
    let form = b"00000000T000000+0000-";
    let fits = |(byte, like): (u8, &u8)| match like {
        b'0' => byte.is_ascii_digit(),
        b'+' => byte == b'+' || byte == b'-',
        like => byte == *like,
    };
    name.len() > form.len() && name.bytes().zip(form).all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_has_the_same_path_in_all_chunks() {
        let chunk = "20261120T213831+0000-20261120T213901+0000-0";
        for path in [
            "host/s-1/ust/64-bit".to_owned(),
            "host/s-1/20261120T213831-0300-1/ust/64-bit".to_owned(),
            "host/s-1/.tmp_new_chunk/ust/64-bit".to_owned(),
            format!("host/s-1/archives/{chunk}/ust/64-bit"),
        ] {
            assert_eq!(
                path_without_chunks(Path::new(&path)),
                Path::new("host/s-1/ust/64-bit"),
                "{path}"
            );
        }
        for name in [
            "s-20261120-213831",
            "20261120T213831",
            "20261120T213831x0000-1",
        ] {
            assert!(!is_chunk_name(name), "{name}");
        }
    }

    #[test]
    fn a_scan_finds_empty_tracefiles_and_no_index_files() {
        let root = tempfile::tempdir().unwrap();
        let trace = root.path().join("host/s/ust");
        fs::create_dir_all(trace.join("index")).unwrap();
        for name in ["metadata", "a_1", "a_0", ".hidden", "index/a_0.idx"] {
            fs::write(trace.join(name), "").unwrap();
        }
        let scan = scan(root.path()).unwrap();
        assert_eq!(scan.traces.len(), 1);
        let files = scan.traces[0].files.iter();
        let names: Vec<_> = files.map(|file| file.path.file_name().unwrap()).collect();
        assert_eq!(names, ["a_0", "a_1"]);
        assert_eq!(scan.directories.len(), 4);
    }
}
