//! Finds traces: directories that hold a file named `metadata`.

use std::fs::{self, DirEntry};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::error::DirectoryError;

/// Deepest nesting that is searched. LTTng nests seven deep.
const MAX_DEPTH: usize = 64;

/// The traces that were found below a directory.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// The traces, in byte order of their paths.
    pub(super) traces: Vec<PathBuf>,
    /// Directories below it that cannot be searched.
    pub(super) unreadable: Vec<DirectoryError>,
}

/// The directories at or below `root` that are traces, in byte order of their paths. A directory in
/// a trace is none. Directories below `root` that cannot be read are left out.
///
/// # Errors
/// If `root` cannot be read.
pub fn traces_below(root: &Path) -> io::Result<Vec<PathBuf>> {
    find(root).map(|found| found.traces)
}

/// Searches `root` and the directories below it.
pub(super) fn find(root: &Path) -> io::Result<Found> {
    let mut found = Found::default();
    let mut left = vec![(root.to_owned(), 0)];
    while let Some((directory, depth)) = left.pop() {
        // A trace is not searched further: below it are its index files.
        if directory.join("metadata").is_file() {
            found.traces.push(directory);
            continue;
        }
        match directories_in(&directory) {
            Ok(below) if depth < MAX_DEPTH => {
                left.extend(below.into_iter().map(|path| (path, depth + 1)));
            }
            Ok(_) => {}
            Err(error) if depth == 0 => return Err(error),
            // Removed, or moved, since it was found.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(source) => found.unreadable.push(DirectoryError::Read {
                path: directory,
                source,
            }),
        }
    }
    found
        .traces
        .sort_by(|one, other| one.as_os_str().cmp(other.as_os_str()));
    Ok(found)
}

fn directories_in(directory: &Path) -> io::Result<Vec<PathBuf>> {
    // Links are not followed: they may lead back.
    let is_directory = |entry: &DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if is_directory(&entry) {
            found.push(entry.path());
        }
    }
    Ok(found)
}
