//! The files and directories below a directory, and the sizes of CTF index files.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::{fs, io};

/// The size of the header of an index file (`struct ctf_packet_index_file_hdr`), in bytes.
pub const INDEX_HEADER: usize = 16;

/// The size of an entry of an index file of version 1.1 (`struct ctf_packet_index`), in bytes.
pub const INDEX_ENTRY: usize = 72;

/// A file or directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// The permission bits of the file or directory.
    pub mode: u32,
    /// The contents of a regular file; `None` of anything else, as a directory or a socket.
    pub contents: Option<Vec<u8>>,
}

/// Returns everything below a directory, by relative path, without what is removed while it is
/// read.
///
/// # Panics
/// If a file cannot be read, or there is no such directory.
#[must_use]
pub fn tree(directory: &Path) -> BTreeMap<String, Node> {
    let mut nodes = BTreeMap::new();
    collect(directory, directory, &mut nodes).unwrap();
    nodes
}

fn collect(top: &Path, directory: &Path, nodes: &mut BTreeMap<String, Node>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.strip_prefix(top).unwrap().display().to_string();
        match read_node(top, &path, nodes) {
            Ok(node) => drop(nodes.insert(name, node)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => panic!("{}: {error}", path.display()),
        }
    }
    Ok(())
}

/// Returns a file or directory; collects what is below a directory.
fn read_node(top: &Path, path: &Path, nodes: &mut BTreeMap<String, Node>) -> io::Result<Node> {
    let metadata = fs::symlink_metadata(path)?;
    let contents = if metadata.is_dir() {
        collect(top, path, nodes)?;
        None
    } else if metadata.is_file() {
        Some(fs::read(path)?)
    } else {
        None
    };
    let mode = metadata.permissions().mode() & 0o777;
    Ok(Node { mode, contents })
}

/// Returns the contents of the files whose relative path ends with `ending`, by that path.
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

/// Returns the contents of the first file, by path, whose relative path ends with `ending`.
///
/// # Panics
/// If there is no such file, or it cannot be read.
#[must_use]
pub fn first_file(directory: &Path, ending: &str) -> Vec<u8> {
    let first = files(directory, ending).into_values().next();
    first.unwrap_or_else(|| panic!("no file {ending} below {}", directory.display()))
}
