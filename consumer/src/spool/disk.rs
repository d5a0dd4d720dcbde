//! The disk as the spool uses it: a few calls, so that tests can run the spool on a disk that fails
//! or stops.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::limits::MAX_OPEN_SPOOL_FILES;

/// A directory of the spool. Paths are relative to it; the empty path is the directory itself.
pub(super) trait Disk: Send + 'static {
    /// Lists the entries of a directory.
    fn list(&mut self, directory: &str) -> io::Result<Vec<DiskEntry>>;
    /// Makes a directory, unless it exists.
    fn create_directory(&mut self, directory: &str) -> io::Result<()>;
    /// Removes an empty directory.
    fn remove_directory(&mut self, directory: &str) -> io::Result<()>;
    /// Writes bytes at an offset of a file, and creates the file if it does not exist. After a
    /// failure, any part of the bytes may have been written.
    fn write_at(&mut self, file: &str, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Fills the buffer from an offset of a file.
    fn read_at(&mut self, file: &str, offset: u64, buffer: &mut [u8]) -> io::Result<()>;
    /// Truncates a file to a length in bytes.
    fn truncate(&mut self, file: &str, length: u64) -> io::Result<()>;
    /// Renames a file or directory.
    fn rename(&mut self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file, which must exist.
    fn unlink(&mut self, file: &str) -> io::Result<()>;
    /// Makes the content of a file safe against a power failure.
    fn sync_file(&mut self, file: &str) -> io::Result<()>;
    /// Makes the names in a directory safe against a power failure.
    fn sync_directory(&mut self, directory: &str) -> io::Result<()>;
}

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DiskEntry {
    pub(super) name: String,
    /// Length of a file, in bytes. None if the entry is a directory.
    pub(super) length: Option<u64>,
}

/// A directory of the host. Keeps the files open that were used last.
#[derive(Debug)]
pub(super) struct HostDisk {
    root: PathBuf,
    /// The open files, with the number of their last use.
    open: HashMap<String, (File, u64)>,
    uses: u64,
}

impl HostDisk {
    pub(super) fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            open: HashMap::new(),
            uses: 0,
        }
    }

    /// Returns an open file, which is opened or created if necessary.
    fn file(&mut self, path: &str, should_create: bool) -> io::Result<&File> {
        self.uses += 1;
        if !self.open.contains_key(path) {
            if self.open.len() >= MAX_OPEN_SPOOL_FILES {
                // A linear search is enough: the map is small, and each search is paid for by
                // opening a file.
                let oldest = self.open.iter().min_by_key(|(_, (_, used))| *used);
                let oldest = oldest.map(|(path, _)| path.clone());
                oldest.and_then(|path| self.open.remove(&path));
            }
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(should_create);
            // Packets show what programs do, which is nothing for the other users of the host.
            let file = options.mode(0o600).open(self.root.join(path))?;
            self.open.insert(path.to_owned(), (file, 0));
        }
        let uses = self.uses;
        let open = self.open.get_mut(path);
        let (file, used) = open.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        *used = uses;
        Ok(file)
    }
}

impl Disk for HostDisk {
    fn list(&mut self, directory: &str) -> io::Result<Vec<DiskEntry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(self.root.join(directory))? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            entries.push(DiskEntry {
                // A name that is not UTF-8 is none of the spool's, and stays none of them.
                name: entry.file_name().to_string_lossy().into_owned(),
                length: (!metadata.is_dir()).then_some(metadata.len()),
            });
        }
        Ok(entries)
    }

    fn create_directory(&mut self, directory: &str) -> io::Result<()> {
        let made = DirBuilder::new()
            .mode(0o700)
            .create(self.root.join(directory));
        match made {
            // An earlier attempt may have made the directory and failed at the file in it.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            made => made,
        }
    }

    fn remove_directory(&mut self, directory: &str) -> io::Result<()> {
        fs::remove_dir(self.root.join(directory))
    }

    fn write_at(&mut self, file: &str, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file(file, true)?.write_all_at(bytes, offset)
    }

    fn read_at(&mut self, file: &str, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file(file, false)?.read_exact_at(buffer, offset)
    }

    fn truncate(&mut self, file: &str, length: u64) -> io::Result<()> {
        self.file(file, false)?.set_len(length)
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        // Both may be open. A file that stays open under its old name would get later writes to
        // that name, although the name belongs to another file, or to none, by then.
        self.open.remove(from);
        self.open.remove(to);
        fs::rename(self.root.join(from), self.root.join(to))
    }

    fn unlink(&mut self, file: &str) -> io::Result<()> {
        // The system frees the blocks of a file only when it is not open any more either, and space
        // is why most files of the spool are removed.
        self.open.remove(file);
        fs::remove_file(self.root.join(file))
    }

    fn sync_file(&mut self, file: &str) -> io::Result<()> {
        // The length is synced as well, because the data cannot be read without it. Only times are
        // not.
        self.file(file, false)?.sync_data()
    }

    fn sync_directory(&mut self, directory: &str) -> io::Result<()> {
        File::open(self.root.join(directory))?.sync_all()
    }
}
