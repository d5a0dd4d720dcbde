//! Names of directories and files for traces and streams. They come from outside: each is made
//! safe, and different from those that are there.

use std::io;
use std::path::{Path, PathBuf};

/// Largest number of bytes of one part of a path: file systems take 255, and a number may follow.
const MAX_NAME_PART_BYTES: usize = 200;
/// Largest number of parts of a trace's name that become directories.
const MAX_NAME_PARTS: usize = 16;
/// Largest number of names that are tried before giving up.
const MAX_NAME_ATTEMPTS: u32 = 1 << 20;

/// Directories and files that are there already, on disk or in an archive.
pub trait Tree {
    /// A file that was created.
    type File;

    /// Creates a directory.
    ///
    /// # Errors
    /// `AlreadyExists` if there is one or a file of this name, or it cannot be created.
    fn create_directory(&mut self, path: &Path) -> io::Result<()>;

    /// Whether `path` is a directory.
    ///
    /// # Errors
    /// If that cannot be said.
    fn is_directory(&self, path: &Path) -> io::Result<bool>;

    /// Creates a file.
    ///
    /// # Errors
    /// `AlreadyExists` if there is a directory or file of this name, or it cannot be created.
    fn create_file(&mut self, path: &Path) -> io::Result<Self::File>;
}

/// Creates a directory for a trace below `root`, which no other trace has, and returns its path.
///
/// # Errors
/// If no directory can be created.
pub fn create_trace(tree: &mut impl Tree, root: &Path, name: &str) -> io::Result<PathBuf> {
    let mut parts: Vec<String> = name
        .split('/')
        // These parts name no directory: `a//./b` is `a/b`.
        .filter(|part| !matches!(*part, "" | "."))
        .map(safe)
        .take(MAX_NAME_PARTS)
        .collect();
    let last = parts.pop().unwrap_or_else(|| "trace".to_owned());
    let mut parent = root.to_owned();
    for part in parts {
        // What is there may be shared, unless it is a file.
        let enter = |path: &Path| match tree.create_directory(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                tree.is_directory(path)?.then_some(()).ok_or(error)
            }
            created => created,
        };
        parent = first_free(&parent, &part, enter)?.0;
    }
    let created = first_free(&parent, &last, |path| tree.create_directory(path))?;
    Ok(created.0)
}

/// Creates a file for a stream in the directory of its trace, and returns its path too.
///
/// # Errors
/// If no file can be created.
pub fn create_stream<T: Tree>(
    tree: &mut T,
    directory: &Path,
    name: &str,
) -> io::Result<(PathBuf, T::File)> {
    let name = name.rsplit('/').find(|part| !part.is_empty());
    let name = match name.map(safe) {
        // Readers take these for something else than a stream.
        Some(name) if matches!(name.as_str(), "metadata" | "index") => format!("{name}_"),
        Some(name) => name,
        None => "stream".to_owned(),
    };
    first_free(directory, &name, |path| tree.create_file(path))
}

/// Creates the first of `name`, `name-2`, `name-3`, ... that is not there yet.
fn first_free<T>(
    parent: &Path,
    name: &str,
    mut create: impl FnMut(&Path) -> io::Result<T>,
) -> io::Result<(PathBuf, T)> {
    let mut path = parent.join(name);
    let mut number = 2;
    loop {
        match create(&path) {
            Ok(created) => return Ok((path, created)),
            Err(error)
                if error.kind() == io::ErrorKind::AlreadyExists && number < MAX_NAME_ATTEMPTS =>
            {
                path = parent.join(format!("{name}-{number}"));
                number += 1;
            }
            Err(error) => return Err(error),
        }
    }
}

/// A part of a path that is safe as a file name: without separators, control characters and a dot
/// in front, and neither empty nor too long.
fn safe(part: &str) -> String {
    let mut name = String::with_capacity(part.len());
    for char in part.chars() {
        let safe = !char.is_control() && !matches!(char, '/' | '\\' | ':');
        // Readers pass over what is hidden, and `..` must not be.
        let safe = safe && !(char == '.' && name.is_empty());
        let char = if safe { char } else { '_' };
        // Cut between characters, so that the name stays valid UTF-8.
        if name.len() + char.len_utf8() > MAX_NAME_PART_BYTES {
            break;
        }
        name.push(char);
    }
    if name.is_empty() {
        name.push('_');
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_recorded_name_is_cut_between_characters() {
        let name = safe(&"é".repeat(300));
        assert_eq!(name.len(), MAX_NAME_PART_BYTES);
        assert_eq!(safe(""), "_");
    }
}
