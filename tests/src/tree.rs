//! The files and directories below a directory, and the sizes of CTF index files.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// The size of the header of an index file (`struct ctf_packet_index_file_hdr`), in bytes.
pub const INDEX_HEADER: usize = 16;

/// The size of an entry of an index file of version 1.1 (`struct ctf_packet_index`), in bytes.
pub const INDEX_ENTRY: usize = 72;

/// A file or directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// The permission bits.
    pub mode: u32,
    /// The contents of a regular file; `None` of anything else, as a directory or a socket.
    pub contents: Option<Vec<u8>>,
}

/// Everything below a directory, by relative path.
///
/// # Panics
/// If a file cannot be read.
#[must_use]
pub fn tree(directory: &Path) -> BTreeMap<String, Node> {
    let mut nodes = BTreeMap::new();
    collect(directory, directory, &mut nodes);
    nodes
}

fn collect(top: &Path, directory: &Path, nodes: &mut BTreeMap<String, Node>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let metadata = fs::symlink_metadata(&path).unwrap();
        let name = path.strip_prefix(top).unwrap().display().to_string();
        let mode = metadata.permissions().mode() & 0o777;
        let contents = if metadata.is_dir() {
            collect(top, &path, nodes);
            None
        } else if metadata.is_file() {
            Some(fs::read(&path).unwrap())
        } else {
            None
        };
        nodes.insert(name, Node { mode, contents });
    }
}

/// The contents of the files whose relative path ends with `ending`, by that path.
///
/// # Panics
/// If a file cannot be read.
#[must_use]
pub fn files(directory: &Path, ending: &str) -> BTreeMap<String, Vec<u8>> {
    tree(directory)
        .into_iter()
        .filter(|(name, _)| name.ends_with(ending))
        .filter_map(|(name, node)| Some((name, node.contents?)))
        .collect()
}

/// The contents of the first file, by path, whose relative path ends with `ending`.
///
/// # Panics
/// If there is no such file, or it cannot be read.
#[must_use]
pub fn first_file(directory: &Path, ending: &str) -> Vec<u8> {
    let first = files(directory, ending).into_values().next();
    first.unwrap_or_else(|| panic!("no file {ending} below {}", directory.display()))
}
