//! Files that their writer may close and open again by their name: while nothing is written to them for a while, or
//! when the pool needs room (`eviction`). The chunk that they lie in may move meanwhile, and another file may be put
//! in their place: what is opened again is checked to be the same file.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use wire::FileName;

use super::chunk::Chunk;
use super::pool::{FileId, Pool, PooledFile};
use super::{StoreError, remove_file};

/// The place and identity of a file, shared by its writer and readers.
#[derive(Debug)]
pub(super) struct FileLocation {
    chunk: Arc<Chunk>,
    /// Below the chunk's directory, which may move.
    path: PathBuf,
    id: FileId,
    pool: Arc<Pool>,
}

impl FileLocation {
    pub(super) fn chunk(&self) -> &Arc<Chunk> {
        &self.chunk
    }

    pub(super) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    pub(super) fn id(&self) -> FileId {
        self.id
    }

    /// Below the chunk's directory.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Path of the file at this moment, for messages.
    pub(super) fn current_path(&self) -> PathBuf {
        self.chunk.with_path(&self.path, Path::to_owned)
    }

    /// Opens the file again to write on. To open one file may close another, and may block.
    ///
    /// # Errors
    /// If it cannot be opened, or another file has its name.
    pub(super) fn reopen(&self) -> io::Result<Arc<PooledFile>> {
        let file = self.pool.open(|| self.chunk.open_file(&self.path))?;
        self.id.check(&file)?;
        Ok(file)
    }

    /// Opens whatever has the file's name for a reader, which may block.
    ///
    /// # Errors
    /// If it cannot be opened: it may have been removed by hand, or replaced by something that is no regular file.
    pub(super) fn open_for_reading(&self) -> io::Result<Arc<PooledFile>> {
        self.pool.open(|| self.chunk.open_for_reading(&self.path))
    }

    /// Removes whatever has the file's name.
    ///
    /// # Errors
    /// As the system says.
    pub(super) fn remove(&self) -> Result<(), StoreError> {
        self.chunk.with_path(&self.path, remove_file)
    }
}

/// A file that is open, or closed until it is opened again.
#[derive(Debug)]
pub(super) struct ReopenableFile {
    location: Arc<FileLocation>,
    /// None: the file is closed.
    handle: Option<Arc<PooledFile>>,
}

impl ReopenableFile {
    /// Makes a new, empty file, which is open.
    ///
    /// # Errors
    /// If it cannot be made, or another stream is writing the file of that name.
    pub(super) fn create(
        pool: &Arc<Pool>,
        chunk: &Arc<Chunk>,
        directory: &Path,
        name: &FileName,
    ) -> Result<Self, StoreError> {
        let file = pool.open(|| chunk.create_file(pool, directory, name))?;
        let path = directory.join(name);
        let location = FileLocation {
            chunk: Arc::clone(chunk),
            id: FileId::of(&file).map_err(StoreError::on("create", &path))?,
            path,
            pool: Arc::clone(pool),
        };
        Ok(Self {
            location: Arc::new(location),
            handle: Some(file),
        })
    }

    /// A second holder of the same file, opened and closed on its own from now on.
    pub(super) fn share(&self) -> Self {
        Self {
            location: Arc::clone(&self.location),
            handle: self.handle.clone(),
        }
    }

    pub(super) fn location(&self) -> &Arc<FileLocation> {
        &self.location
    }

    /// The open file. None: it is closed.
    pub(super) fn handle(&self) -> Option<&Arc<PooledFile>> {
        self.handle.as_ref()
    }

    /// The open file, for a caller that has opened it.
    ///
    /// # Errors
    /// If it is closed.
    pub(super) fn opened(&self) -> io::Result<&Arc<PooledFile>> {
        let closed = || io::Error::other("the file is closed");
        self.handle.as_ref().ok_or_else(closed)
    }

    /// Opens the file again if it is closed. Gives whether it was.
    ///
    /// # Errors
    /// If it cannot be opened, or another file has its name.
    pub(super) fn reopen(&mut self) -> io::Result<bool> {
        if self.handle.is_some() {
            return Ok(false);
        }
        self.handle = Some(self.location.reopen()?);
        Ok(true)
    }

    /// Takes a file that was [opened again](FileLocation::reopen) at this location, unless this one is open. Gives
    /// the one that is.
    pub(super) fn adopt(&mut self, handle: Arc<PooledFile>) -> &Arc<PooledFile> {
        self.handle.get_or_insert(handle)
    }

    /// Closes the file, for this holder of it. Gives whether it was open.
    pub(super) fn close(&mut self) -> bool {
        self.handle.take().is_some()
    }
}

/// An empty file in a directory of its own.
#[cfg(test)]
pub(super) fn test_file() -> (tempfile::TempDir, ReopenableFile) {
    let directory = tempfile::tempdir().unwrap();
    let chunk = Chunk::whole_output(directory.path());
    let name = FileName::parse(&wire::Text::from("file")).unwrap();
    let file = ReopenableFile::create(&Pool::new(9), chunk.chunk(), Path::new("ust"), &name);
    (directory, file.unwrap())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_closed_file_is_opened_again_by_its_name_unless_another_has_it() {
        let (directory, mut file) = test_file();
        let path = directory.path().join("ust/file");
        assert_eq!(file.location().current_path(), path);
        assert!(!file.reopen().unwrap(), "it is open");
        assert!(file.close() && !file.close());
        assert!(file.opened().is_err());
        let aside = path.with_extension("aside");
        std::fs::rename(&path, &aside).unwrap();
        assert!(file.reopen().is_err(), "nothing has its name");
        std::fs::write(&path, "other").unwrap();
        assert!(file.reopen().is_err() && file.handle().is_none());
        std::fs::rename(&aside, &path).unwrap();
        assert!(file.reopen().unwrap());
        (&***file.opened().unwrap()).write_all(b"ours").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"ours");
    }

    #[test]
    fn each_holder_of_a_shared_file_closes_it_for_itself() {
        let (_directory, mut file) = test_file();
        let pool = Arc::clone(file.location().pool());
        let mut other = file.share();
        file.close();
        assert_eq!(pool.open_files().0, 1);
        let handle = Arc::clone(other.handle().unwrap());
        assert!(Arc::ptr_eq(file.adopt(Arc::clone(&handle)), &handle));
        drop(handle);
        file.close();
        other.close();
        assert_eq!(pool.open_files().0, 0);
    }
}
