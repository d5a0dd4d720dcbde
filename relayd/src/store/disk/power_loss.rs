//! Reconstructs the directory that a journal of operations leaves after power loss.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use super::plan::Change;

/// The changes that are on the disk besides what was synced.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Unsynced {
    /// Nothing: each file has the content of its last sync, each directory the names of its last
    /// sync.
    Lost,
    /// Everything is lost as with `Lost`, but a sync of one file or directory syncs all names: file
    /// systems with a journal write them in order.
    Journaled,
    /// Chance decides: the changes of names up to some moment are there, and the changes of each
    /// file up to some moment, the last one partly or as zeros. File systems with a journal behave
    /// like this. The number seeds the choice.
    Partial(u64),
}

#[derive(Debug, Clone)]
enum Node {
    Directory {
        names: BTreeMap<OsString, usize>,
        synced: BTreeMap<OsString, usize>,
    },
    File {
        synced: Vec<u8>,
        /// Changes since the last sync.
        unsynced: Vec<Change>,
    },
}

/// The directories and files below `root`, by number. The first is `root` itself.
#[derive(Debug)]
struct Model<'a> {
    root: &'a Path,
    nodes: Vec<Node>,
    /// The newest file of each inode.
    inodes: BTreeMap<u64, usize>,
}

/// Writes to `to` what is left of `root`, which was empty before the journal.
pub(crate) fn reconstruct(root: &Path, journal: &[Change], unsynced: Unsynced, to: &Path) {
    let mut model = Model {
        root,
        nodes: vec![Node::empty_directory()],
        inodes: BTreeMap::new(),
    };
    let names_until = match unsynced {
        Unsynced::Lost => journal.len(),
        // Names after the last commit may have reached the disk as well.
        Unsynced::Partial(seed) => {
            let last = last_commit(journal);
            last + choose(seed, journal.len() as u64, journal.len() - last)
        }
        Unsynced::Journaled => last_commit(journal),
    };
    for (at, change) in journal.iter().enumerate() {
        model.apply(change, at < names_until);
    }
    model.write(0, unsynced, to);
}

/// Number of changes of names that a file system with a journal has committed: all before the last
/// sync, of whatever file or directory (ext4, XFS).
fn last_commit(journal: &[Change]) -> usize {
    let is_sync = |change: &Change| {
        matches!(
            change,
            Change::SyncDirectory { .. } | Change::SyncFile { .. }
        )
    };
    journal.iter().rposition(is_sync).map_or(0, |last| last + 1)
}

/// A number from 0 to `max`, always the same for the same arguments (splitmix64).
fn choose(seed: u64, which: u64, max: usize) -> usize {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(which);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    usize::try_from((x ^ (x >> 31)) % (max as u64 + 1)).unwrap()
}

impl Node {
    fn empty_directory() -> Self {
        Self::Directory {
            names: BTreeMap::new(),
            synced: BTreeMap::new(),
        }
    }
}

impl Model<'_> {
    fn apply(&mut self, change: &Change, has_names: bool) {
        match change {
            Change::Create { path, inode } => {
                // An existing marker is opened, not replaced.
                if has_names && self.find(path).is_none() {
                    self.nodes.push(Node::File {
                        synced: Vec::new(),
                        unsynced: Vec::new(),
                    });
                    self.inodes.insert(*inode, self.nodes.len() - 1);
                    self.insert(path, self.nodes.len() - 1);
                } else if !has_names {
                    // The kernel uses inodes again: later writes must not go to the old file with
                    // that number.
                    self.inodes.remove(inode);
                }
            }
            Change::Write { inode, .. } | Change::SetLen { inode, .. } => {
                if let Some(Node::File { unsynced, .. }) = self.file(*inode) {
                    unsynced.push(change.clone());
                }
            }
            Change::SyncFile { inode } => {
                if let Some(Node::File { synced, unsynced }) = self.file(*inode) {
                    for change in unsynced.drain(..) {
                        apply_to_content(synced, &change, false);
                    }
                }
            }
            Change::SyncDirectory { path } => self.sync_directory(path),
            _ if !has_names => {}
            Change::MakeDirectory { path } => {
                self.nodes.push(Node::empty_directory());
                self.insert(path, self.nodes.len() - 1);
            }
            Change::Remove { path } => {
                self.remove(path);
            }
            Change::Rename { from, to } => {
                let node = self.remove(from);
                self.insert(to, node);
            }
        }
    }

    fn file(&mut self, inode: u64) -> Option<&mut Node> {
        let node = self.inodes.get(&inode)?;
        self.nodes.get_mut(*node)
    }

    fn find(&self, path: &Path) -> Option<usize> {
        // Directories above the output are synced as well.
        let below = path.strip_prefix(self.root).ok()?;
        below
            .iter()
            .try_fold(0, |node, name| match &self.nodes[node] {
                Node::Directory { names, .. } => names.get(name).copied(),
                Node::File { .. } => None,
            })
    }

    fn names(&mut self, directory: usize) -> &mut BTreeMap<OsString, usize> {
        match &mut self.nodes[directory] {
            Node::Directory { names, .. } => names,
            Node::File { .. } => panic!("not a directory"),
        }
    }

    fn split(&self, path: &Path) -> (usize, OsString) {
        let parent = self.find(path.parent().unwrap());
        let parent = parent.unwrap_or_else(|| panic!("{}", path.display()));
        (parent, path.file_name().unwrap().to_owned())
    }

    fn insert(&mut self, path: &Path, node: usize) {
        let (parent, name) = self.split(path);
        self.names(parent).insert(name, node);
    }

    fn remove(&mut self, path: &Path) -> usize {
        let (parent, name) = self.split(path);
        let removed = self.names(parent).remove(&name);
        removed.unwrap_or_else(|| panic!("{}", path.display()))
    }

    /// A rename is atomic: what has left a synced directory for another is in the other one, and
    /// the other way round.
    fn sync_directory(&mut self, path: &Path) {
        let Some(directory) = self.find(path) else {
            return;
        };
        let Node::Directory { names, synced } = &mut self.nodes[directory] else {
            return;
        };
        let before = std::mem::replace(synced, names.clone());
        let now = names.clone();
        let left: Vec<_> = before
            .into_values()
            .filter(|node| !has(&now, *node))
            .collect();
        for (number, other) in self.nodes.iter_mut().enumerate() {
            if let Node::Directory { names, synced } = other
                && number != directory
            {
                synced.retain(|_, node| !has(&now, *node));
                for (name, node) in names.iter().filter(|(_, node)| left.contains(node)) {
                    synced.insert(name.clone(), *node);
                }
            }
        }
    }

    fn write(&self, node: usize, unsynced_changes: Unsynced, to: &Path) {
        match (&self.nodes[node], unsynced_changes) {
            (Node::Directory { names, synced }, _) => {
                std::fs::create_dir_all(to).unwrap();
                let names = match unsynced_changes {
                    Unsynced::Lost => synced,
                    Unsynced::Partial(_) | Unsynced::Journaled => names,
                };
                for (name, node) in names {
                    self.write(*node, unsynced_changes, &to.join(name));
                }
            }
            (Node::File { synced, .. }, Unsynced::Lost | Unsynced::Journaled) => {
                std::fs::write(to, synced).unwrap();
            }
            (Node::File { synced, unsynced }, Unsynced::Partial(seed)) => {
                let mut content = synced.clone();
                let which = node as u64;
                let count = choose(seed, which, unsynced.len());
                for (at, change) in unsynced[..count].iter().enumerate() {
                    let is_last = at + 1 == count;
                    // Numbers far apart, so that the choices do not depend on each other.
                    let is_zeros = is_last && choose(seed, which + 1_000_000, 2) == 0;
                    apply_to_content(&mut content, change, is_zeros);
                    if is_last && choose(seed, which + 2_000_000, 2) == 0 {
                        let len = content.len().max(synced.len()) - synced.len();
                        content.truncate(synced.len() + choose(seed, which + 3_000_000, len));
                    }
                }
                std::fs::write(to, content).unwrap();
            }
        }
    }
}

fn has(names: &BTreeMap<OsString, usize>, node: usize) -> bool {
    names.values().any(|own| *own == node)
}

/// Applies a change to the content of a file. With `is_zeros`, the bytes after the old end have not
/// reached the disk.
fn apply_to_content(content: &mut Vec<u8>, change: &Change, is_zeros: bool) {
    match change {
        Change::Write { at, bytes, .. } => {
            let at = usize::try_from(*at).unwrap();
            let (old, end) = (content.len(), at + bytes.len());
            content.resize(old.max(end), 0);
            content[at..end].copy_from_slice(bytes);
            if is_zeros {
                content[old..].fill(0);
            }
        }
        Change::SetLen { len, .. } => content.resize(usize::try_from(*len).unwrap(), 0),
        _ => {}
    }
}
