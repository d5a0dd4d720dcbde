//! Finds traces: directories that hold a file named `metadata`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Deepest nesting that is searched. LTTng nests seven deep.
const MAX_DEPTH: usize = 64;

/// The directories at or below `root` that are traces, in byte order of their paths. A directory in
/// a trace is none.
///
/// # Errors
/// If a directory cannot be read.
pub fn traces_below(root: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut left = vec![(root.to_owned(), 0)];
    while let Some((directory, depth)) = left.pop() {
        if directory.join("metadata").is_file() {
            found.push(directory);
            continue;
        }
        for entry in fs::read_dir(&directory)? {
            let entry = entry?;
            // Links are not followed: they may lead back.
            if entry.file_type()?.is_dir() && depth < MAX_DEPTH {
                left.push((entry.path(), depth + 1));
            }
        }
    }
    found.sort_by(|one, other| one.as_os_str().cmp(other.as_os_str()));
    Ok(found)
}
