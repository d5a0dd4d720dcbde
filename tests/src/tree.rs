//! What lies below a directory.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// A file or directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Permissions.
    pub mode: u32,
    /// What a file holds. None: a directory, a socket.
    pub contents: Option<Vec<u8>>,
}

/// Everything below a directory, by its path from there.
///
/// # Panics
/// If it cannot be read.
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

/// The files of a tree whose names end so, by their path.
///
/// # Panics
/// If it cannot be read.
#[must_use]
pub fn files(directory: &Path, ending: &str) -> BTreeMap<String, Vec<u8>> {
    tree(directory)
        .into_iter()
        .filter(|(name, _)| name.ends_with(ending))
        .filter_map(|(name, node)| Some((name, node.contents?)))
        .collect()
}
