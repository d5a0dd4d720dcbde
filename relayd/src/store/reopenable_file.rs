//! Files that their writer closes while they are idle or when the pool is full (`eviction`), and
//! reopens by name. The chunk that they lie in may move meanwhile, and somebody may put another
//! file in their place. Therefore device and inode of the reopened file are checked.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use wire::FileName;

use super::chunk::Chunk;
use super::pool::{FileId, Pool, PooledFile};
use super::sync::file::{SyncOrder, SyncStatus, SyncTarget};
use super::{StoreError, remove_file};

/// The path and identity of a file, shared by its writer and readers.
#[derive(Debug)]
pub(super) struct FileLocation {
    chunk: Arc<Chunk>,
    /// The file as the syncer knows it. The path in it is relative to the directory of the chunk,
    /// which may move.
    target: Arc<SyncTarget>,
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

    /// Path relative to the directory of the chunk.
    pub(super) fn path(&self) -> &Path {
        &self.target.path
    }

    /// The status that says whether the files of the session could be synced.
    pub(super) fn sync_status(&self) -> &Arc<SyncStatus> {
        &self.target.status
    }

    /// Absolute path of the file at this moment, for messages.
    pub(super) fn current_path(&self) -> PathBuf {
        self.chunk.with_path(self.path(), Path::to_owned)
    }

    /// Reopens the file for its writer. This may block, and may close another file of the pool.
    ///
    /// # Errors
    /// If it cannot be opened, or its name belongs to another file.
    pub(super) fn reopen(&self) -> io::Result<Arc<PooledFile>> {
        self.pool.check_retained()?;
        let file = self.pool.open(|| self.chunk.open_file(self.path()))?;
        self.id.check(&file)?;
        Ok(file)
    }

    /// Opens whatever regular file has the name, for a reader. This may block.
    ///
    /// # Errors
    /// If it cannot be opened: a user may have removed it, or replaced it by something that is not
    /// a regular file.
    pub(super) fn open_for_reading(&self) -> io::Result<Arc<PooledFile>> {
        self.pool.open(|| self.chunk.open_for_reading(self.path()))
    }

    /// Removes whatever has the file's name.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub(super) fn remove(&self) -> Result<(), StoreError> {
        self.chunk.with_path(self.path(), remove_file)
    }
}

/// A file that is open, or closed until it is reopened.
#[derive(Debug)]
pub(super) struct ReopenableFile {
    location: Arc<FileLocation>,
    /// The open file. None: it is closed.
    handle: Option<Arc<PooledFile>>,
}

impl ReopenableFile {
    /// Creates an empty file, which is open. `order` is its place among the files that are synced
    /// together, and `status` has a failure of that.
    ///
    /// # Errors
    /// If it cannot be created, or another stream writes the file of that name.
    pub(super) fn create(
        pool: &Arc<Pool>,
        chunk: &Arc<Chunk>,
        directory: &Path,
        name: &FileName,
        order: SyncOrder,
        status: &Arc<SyncStatus>,
    ) -> Result<Self, StoreError> {
        let path = directory.join(name);
        pool.check_retained()
            .map_err(StoreError::on("create", &path))?;
        let file = pool.open(|| chunk.create_file(pool, directory, name, status))?;
        let id = FileId::of(&file).map_err(StoreError::on("create", &path))?;
        let target = SyncTarget {
            order,
            path,
            status: Arc::clone(status),
        };
        let location = FileLocation {
            chunk: Arc::clone(chunk),
            id,
            target: Arc::new(target),
            pool: Arc::clone(pool),
        };
        Ok(Self {
            location: Arc::new(location),
            handle: Some(file),
        })
    }

    /// Opens a file of a relay before this one. None: it does not exist.
    ///
    /// # Errors
    /// If it cannot be opened, or another stream or relay writes it.
    pub(super) fn open(
        pool: &Arc<Pool>,
        chunk: &Arc<Chunk>,
        directory: &Path,
        name: &FileName,
        order: SyncOrder,
        status: &Arc<SyncStatus>,
    ) -> Result<Option<Self>, StoreError> {
        let path = directory.join(name);
        let failed = |error| StoreError::on("open", &path)(error);
        let file = match pool.open(|| chunk.adopt_file(directory, name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(failed)?,
        };
        if pool.is_claimed(&file) || super::is_locked(&file) {
            return Err(failed(io::Error::other("another stream is writing it")));
        }
        let location = FileLocation {
            chunk: Arc::clone(chunk),
            id: FileId::of(&file).map_err(failed)?,
            target: Arc::new(SyncTarget {
                order,
                path: path.clone(),
                status: Arc::clone(status),
            }),
            pool: Arc::clone(pool),
        };
        chunk.set_syncer(pool, status);
        Ok(Some(Self {
            location: Arc::new(location),
            handle: Some(file),
        }))
    }

    /// Opens a file of a relay before this one that is not written any more. None: it does not
    /// exist.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub(super) fn open_for_reading(
        pool: &Arc<Pool>,
        chunk: &Arc<Chunk>,
        directory: &Path,
        name: &FileName,
        order: SyncOrder,
    ) -> io::Result<Option<Self>> {
        let path = directory.join(name);
        let file = match pool.open(|| chunk.open_for_reading(&path)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let location = FileLocation {
            chunk: Arc::clone(chunk),
            id: FileId::of(&file)?,
            target: Arc::new(SyncTarget {
                order,
                path,
                status: Arc::default(),
            }),
            pool: Arc::clone(pool),
        };
        Ok(Some(Self {
            location: Arc::new(location),
            handle: Some(file),
        }))
    }

    /// A second holder of the same file, which closes and reopens it independently.
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

    /// The open file, for a caller that expects it to be open.
    ///
    /// # Errors
    /// If it is closed.
    pub(super) fn opened(&self) -> io::Result<&Arc<PooledFile>> {
        let closed = || io::Error::other("the file is closed");
        self.handle.as_ref().ok_or_else(closed)
    }

    /// Reopens the file if it is closed. Returns whether it was.
    ///
    /// # Errors
    /// If it cannot be opened, or its name belongs to another file.
    pub(super) fn reopen(&mut self) -> io::Result<bool> {
        if self.handle.is_some() {
            return Ok(false);
        }
        self.handle = Some(self.location.reopen()?);
        Ok(true)
    }

    /// Adopts a handle that was [reopened](FileLocation::reopen) at this location, unless the file
    /// is open. Returns the open one.
    pub(super) fn adopt(&mut self, handle: Arc<PooledFile>) -> &Arc<PooledFile> {
        self.handle.get_or_insert(handle)
    }

    /// Has the open file synced, to which `bytes` have just been written or which has been
    /// truncated. Costs nothing unless files are synced.
    pub(super) fn mark_written(&self, bytes: u64) {
        if let Some(syncer) = self.location.pool.syncer()
            && let Some(handle) = &self.handle
        {
            syncer.mark_file(handle.synced(), &self.location.target, bytes);
        }
    }

    /// Closes the file for this holder. Returns whether it was open.
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
    let file = ReopenableFile::create(
        &Pool::new(9),
        chunk.chunk(),
        Path::new("ust"),
        &name,
        SyncOrder::Data,
        &Arc::default(),
    );
    (directory, file.unwrap())
}

/// The bytes of an open file, whatever its read position.
#[cfg(test)]
pub(super) fn contents(file: &std::fs::File) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(file.metadata().unwrap().len()).unwrap()];
    std::os::unix::fs::FileExt::read_exact_at(file, &mut bytes, 0).unwrap();
    bytes
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
