//! A disk in memory that fails or stops at an operation, and that knows what would be left after a
//! power failure.
//!
//! The spool names files by paths below one directory and needs ten calls, so that a whole disk in
//! memory can stand in for them. The failing disk of `relayd` (`store/disk/plan.rs`) differs,
//! because its store works on open descriptors and pipes: it fails the real calls.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::spool::disk::{Disk, DiskEntry};

#[derive(Debug, Clone, Default)]
pub(super) struct MemoryDisk(pub(super) Arc<Mutex<DiskState>>);

/// When operations fail. Operations count from 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Fault {
    #[default]
    None,
    /// The process is killed in this operation: half of its bytes are written, and nothing after it
    /// happens.
    StopAt(u64),
    /// The operation of this number fails, after half of its bytes.
    FailAt(u64, ErrorKind),
    /// All writes fail from now on.
    Full,
}

#[derive(Debug, Clone, Default)]
pub(super) struct DiskState {
    pub(super) fault: Fault,
    pub(super) operations: u64,
    /// Paths of files and directories; a directory has no file.
    names: BTreeMap<String, Option<usize>>,
    /// The names as they were when their directories were synced.
    synced_names: BTreeMap<String, Option<usize>>,
    files: Vec<Content>,
}

#[derive(Debug, Clone, Default)]
struct Content {
    bytes: Vec<u8>,
    synced: Vec<u8>,
}

impl MemoryDisk {
    pub(super) fn failing(fault: Fault) -> Self {
        let disk = Self::default();
        disk.0.lock().fault = fault;
        disk
    }

    /// Returns what the next process finds after a kill.
    pub(super) fn after_kill(&self) -> Self {
        let mut state = self.0.lock().clone();
        (state.fault, state.operations) = (Fault::None, 0);
        Self(Arc::new(Mutex::new(state)))
    }

    /// Returns what the next process finds after a power failure: only what was synced.
    pub(super) fn after_power_failure(&self) -> Self {
        let after = self.after_kill();
        let mut state = after.0.lock();
        state.names = state.synced_names.clone();
        for file in &mut state.files {
            file.bytes.clone_from(&file.synced);
        }
        drop(state);
        after
    }

    pub(super) fn paths(&self) -> Vec<String> {
        let state = self.0.lock();
        let files = state.names.iter().filter(|(_, file)| file.is_some());
        files.map(|(path, _)| path.clone()).collect()
    }

    /// Changes the bytes of a file.
    pub(super) fn change(&self, path: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.0.lock();
        let file = state.names[path].unwrap();
        change(&mut state.files[file].bytes);
    }

    pub(super) fn length(&self, path: &str) -> usize {
        let state = self.0.lock();
        state.files[state.names[path].unwrap()].bytes.len()
    }

    fn begin(&self) -> Result<(), io::Error> {
        let mut state = self.0.lock();
        let operation = state.operations;
        state.operations += 1;
        match state.fault {
            Fault::StopAt(at) if operation >= at => Err(io::Error::other("stopped")),
            Fault::FailAt(at, kind) if operation == at => Err(kind.into()),
            _ => Ok(()),
        }
    }

    /// Whether the operation that has just failed is the one at which the process is killed.
    fn is_at_fault(&self) -> bool {
        let state = self.0.lock();
        match state.fault {
            Fault::StopAt(at) | Fault::FailAt(at, _) => state.operations == at + 1,
            Fault::None | Fault::Full => false,
        }
    }

    fn with_file<T>(&self, path: &str, run: impl FnOnce(&mut Content) -> T) -> io::Result<T> {
        let mut state = self.0.lock();
        let file = state.names.get(path).copied().flatten();
        let file = file.ok_or(ErrorKind::NotFound)?;
        Ok(run(&mut state.files[file]))
    }
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

impl Disk for MemoryDisk {
    fn list(&mut self, directory: &str) -> io::Result<Vec<DiskEntry>> {
        self.begin()?;
        let state = self.0.lock();
        let entries = state
            .names
            .iter()
            .filter(|(path, _)| parent(path) == directory);
        let entry = |(path, file): (&String, &Option<usize>)| DiskEntry {
            name: path.rsplit('/').next().unwrap().to_owned(),
            length: file.map(|file| state.files[file].bytes.len() as u64),
        };
        Ok(entries.map(entry).collect())
    }

    fn create_directory(&mut self, directory: &str) -> io::Result<()> {
        self.begin()?;
        self.0.lock().names.insert(directory.to_owned(), None);
        Ok(())
    }

    fn remove_directory(&mut self, directory: &str) -> io::Result<()> {
        self.begin()?;
        let mut state = self.0.lock();
        assert!(state.names.keys().all(|path| parent(path) != directory));
        let removed = state.names.remove(directory);
        removed.map(drop).ok_or(ErrorKind::NotFound.into())
    }

    fn write_at(&mut self, path: &str, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let begun = self.begin();
        let bytes = match &begun {
            Ok(()) if self.0.lock().fault == Fault::Full => {
                return Err(ErrorKind::StorageFull.into());
            }
            Ok(()) => bytes,
            Err(_) if self.is_at_fault() => &bytes[..bytes.len() / 2],
            Err(_) => return begun,
        };
        let mut state = self.0.lock();
        assert!(
            path == parent(path)
                || parent(path).is_empty()
                || state.names.contains_key(parent(path)),
            "{path}"
        );
        let file = match state.names.get(path) {
            Some(file) => file.unwrap(),
            None => {
                state.files.push(Content::default());
                let file = state.files.len() - 1;
                state.names.insert(path.to_owned(), Some(file));
                file
            }
        };
        let content = &mut state.files[file].bytes;
        let offset = usize::try_from(offset).unwrap();
        content.resize(content.len().max(offset + bytes.len()), 0);
        content[offset..offset + bytes.len()].copy_from_slice(bytes);
        begun
    }

    fn read_at(&mut self, path: &str, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.begin()?;
        let offset = usize::try_from(offset).unwrap();
        let read = self.with_file(path, |file| {
            let bytes = file.bytes.get(offset..offset + buffer.len())?;
            buffer.copy_from_slice(bytes);
            Some(())
        });
        read?.ok_or(ErrorKind::UnexpectedEof.into())
    }

    fn truncate(&mut self, path: &str, length: u64) -> io::Result<()> {
        self.begin()?;
        let length = usize::try_from(length).unwrap();
        self.with_file(path, |file| file.bytes.resize(length, 0))
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        self.begin()?;
        let mut state = self.0.lock();
        let inside = format!("{from}/");
        let names = std::mem::take(&mut state.names);
        for (path, file) in names {
            let renamed = match path.strip_prefix(&inside) {
                Some(rest) => format!("{to}/{rest}"),
                None if path == from => to.to_owned(),
                None => path,
            };
            state.names.insert(renamed, file);
        }
        Ok(())
    }

    fn unlink(&mut self, path: &str) -> io::Result<()> {
        self.begin()?;
        let removed = self.0.lock().names.remove(path);
        removed.map(drop).ok_or(ErrorKind::NotFound.into())
    }

    fn sync_file(&mut self, path: &str) -> io::Result<()> {
        self.begin()?;
        self.with_file(path, |file| file.synced.clone_from(&file.bytes))
    }

    fn sync_directory(&mut self, directory: &str) -> io::Result<()> {
        self.begin()?;
        let mut state = self.0.lock();
        let is_in = |path: &str| !path.is_empty() && parent(path) == directory;
        let names: Vec<_> = state.names.clone().into_iter().collect();
        state.synced_names.retain(|path, _| !is_in(path));
        let names = names.into_iter().filter(|(path, _)| is_in(path));
        state.synced_names.extend(names);
        Ok(())
    }
}
