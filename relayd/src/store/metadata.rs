//! The metadata file of a trace. Each piece that a producer sends is in it whole or not at all.
//!
//! The lock of the file shows that streams of the trace may continue. Therefore the file stays
//! open, and locked, while the pool has room. When the pool is full the file may be closed, as
//! those of other streams, and is reopened by name.

use std::io;
use std::path::Path;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use wire::{Bytes, FileName, TracePath};

use super::StoreError;
use super::chunk::{Chunk, Holding};
use super::eviction::{ClockSlot, Evictable};
use super::pool::{Pool, PooledFile};
use super::reopenable_file::{FileLocation, ReopenableFile};
use super::sync::file::{SyncOrder, SyncStatus};
use super::tracefile::Tracefile;

/// Magic number of metadata packets (CTF 1.8.3, section 7.1) in both byte orders, big-endian first.
pub const PACKET_MAGIC: [[u8; 4]; 2] = [[0x75, 0xd1, 0x1d, 0x57], [0x57, 0x1d, 0xd1, 0x75]];

/// Length of the header of a metadata packet, in bytes.
pub const PACKET_HEADER: usize = 37;

/// The metadata file of a trace, for its stream. While the stream is in no chunk, it has no file.
#[derive(Debug)]
pub struct MetadataFile {
    pool: Arc<Pool>,
    directory: TracePath,
    name: FileName,
    sync: Arc<SyncStatus>,
    current: Option<Current>,
}

#[derive(Debug)]
struct Current {
    chunk: Holding,
    /// The writer has the file open only during a write; in between, only `source` has.
    writer: Tracefile,
    source: Arc<MetadataSource>,
}

/// A metadata file, opened and closed for its writer and readers together.
#[derive(Debug)]
pub struct MetadataSource {
    location: Arc<FileLocation>,
    slot: Arc<ClockSlot>,
    file: Mutex<ReopenableFile>,
}

impl MetadataSource {
    pub(super) fn new(file: ReopenableFile) -> Arc<Self> {
        let source = Arc::new(Self {
            location: Arc::clone(file.location()),
            slot: Arc::default(),
            file: Mutex::new(file),
        });
        // Weak, because the source has the slot: otherwise each would keep the other.
        let weak: Weak<dyn Evictable> = Arc::<Self>::downgrade(&source);
        source.slot.set_owner(weak);
        source.location.pool().clock.add_slot(&source.slot);
        source
    }

    /// The chunk of the file.
    #[must_use]
    pub fn chunk(&self) -> &Arc<Chunk> {
        self.location.chunk()
    }

    /// The file, if it is open. Makes no file call.
    #[must_use]
    pub fn opened(&self) -> Option<Arc<PooledFile>> {
        self.slot.mark_used();
        self.file.lock().handle().cloned()
    }

    /// The file, reopened if it was evicted, which may block.
    ///
    /// # Errors
    /// If it cannot be opened, or its name belongs to another file.
    pub fn open(&self) -> io::Result<Arc<PooledFile>> {
        if let Some(file) = self.opened() {
            return Ok(file);
        }
        // Without the lock: opening a file may evict another one, whose owner is then asked to
        // close it.
        let file = self.location.reopen()?;
        // Another thread may have reopened the file meanwhile. Its handle is the one that stays.
        let file = Arc::clone(self.file.lock().adopt(file));
        self.location.pool().clock.add_slot(&self.slot);
        Ok(file)
    }
}

impl Evictable for MetadataSource {
    fn close_files(&self, is_needed: bool) -> bool {
        // Idle metadata stays open for its lock; only a full pool closes it.
        let file = self.file.try_lock().filter(|_| is_needed);
        file.is_some_and(|mut file| file.close())
    }

    fn stays_open(&self) -> bool {
        true
    }
}

impl MetadataFile {
    /// Creates an empty file. `sync` is the status of the session.
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn create(
        pool: Arc<Pool>,
        directory: TracePath,
        name: FileName,
        chunk: Holding,
        sync: Arc<SyncStatus>,
    ) -> Result<Self, StoreError> {
        let mut file = Self {
            pool,
            directory,
            name,
            sync,
            current: None,
        };
        file.enter_chunk(chunk)?;
        Ok(file)
    }

    /// Continues the file of a relay before this one, of which the first `bytes` bytes are complete
    /// pieces. Whatever follows is removed. A file that does not exist is created.
    ///
    /// # Errors
    /// If it cannot be opened or created.
    pub fn restore(
        pool: Arc<Pool>,
        directory: TracePath,
        name: FileName,
        chunk: Holding,
        bytes: Bytes,
        sync: Arc<SyncStatus>,
    ) -> Result<Self, StoreError> {
        let path: &Path = directory.as_ref();
        let order = SyncOrder::Data;
        let opened = ReopenableFile::open(&pool, chunk.chunk(), path, &name, order, &sync)?;
        let Some(file) = opened else {
            return Self::create(pool, directory, name, chunk, sync);
        };
        let opened = file.opened().and_then(|opened| opened.metadata());
        let len = opened.map_err(StoreError::on("open", path))?.len();
        let mut writer = Tracefile::new(file.share());
        // After a power loss the file may be shorter than the log says.
        writer.restore(Bytes(bytes.0.min(len)));
        writer.release();
        let current = Current {
            chunk,
            writer,
            source: MetadataSource::new(file),
        };
        Ok(Self {
            pool,
            directory,
            name,
            sync,
            current: Some(current),
        })
    }

    /// Continues with an empty file in a chunk. In the same chunk, the file replaces the previous
    /// one, whose readers keep its contents.
    ///
    /// # Errors
    /// If it cannot be created. Nothing can be written then.
    pub fn enter_chunk(&mut self, chunk: Holding) -> Result<(), StoreError> {
        // First: the lock and the claim on the old file would forbid to replace it.
        self.leave_chunk();
        let directory: &Path = self.directory.as_ref();
        let (order, sync) = (SyncOrder::Data, &self.sync);
        let file = ReopenableFile::create(
            &self.pool,
            chunk.chunk(),
            directory,
            &self.name,
            order,
            sync,
        )?;
        let mut writer = Tracefile::new(file.share());
        writer.release();
        self.current = Some(Current {
            chunk,
            writer,
            source: MetadataSource::new(file),
        });
        Ok(())
    }

    /// Stops writing to the chunk.
    pub fn leave_chunk(&mut self) {
        if let Some(left) = self.current.take()
            && let Some(file) = left.source.opened()
        {
            // Readers may keep the file open, and so its lock, for longer.
            // An error only means that the file system has no locks.
            let _ = file_lock::unlock(&file);
        }
    }

    /// The chunk that is being written to. None: the stream is in no chunk.
    #[must_use]
    pub fn chunk(&self) -> Option<&Holding> {
        self.current.as_ref().map(|current| &current.chunk)
    }

    /// The file, for readers.
    #[must_use]
    pub fn source(&self) -> Option<&Arc<MetadataSource>> {
        self.current.as_ref().map(|current| &current.source)
    }

    /// Length of the complete pieces in the file.
    #[must_use]
    pub fn received(&self) -> Bytes {
        let current = self.current.as_ref();
        current.map_or(Bytes(0), |current| current.writer.size())
    }

    /// Writes some text of a piece.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn append_text(&mut self, text: &[u8]) -> Result<(), StoreError> {
        self.write(|file| file.append(text))
    }

    /// Ends the piece with `padding` zeros. Returns the new length of the file.
    ///
    /// # Errors
    /// If they cannot be written. The piece is not complete then.
    pub fn finish_piece(&mut self, padding: u32) -> Result<Bytes, StoreError> {
        self.write(|file| file.finish_packet(&[], padding))
            .map(|extent| extent.end())
    }

    /// Pool that bounds the open files.
    #[must_use]
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Drops an incomplete piece.
    ///
    /// # Errors
    /// If the file cannot be reopened.
    pub fn drop_piece(&mut self) -> Result<(), StoreError> {
        if self.current.is_none() {
            return Ok(());
        }
        self.write(|file| {
            file.drop_packet();
            Ok(())
        })
    }

    /// Removes the file if it is empty: no trace is read from it, and babeltrace2 would refuse all
    /// traces beside it.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub fn remove_empty(&self) -> Result<(), StoreError> {
        match &self.current {
            Some(current) if self.received() == Bytes(0) => current.source.location.remove(),
            _ => Ok(()),
        }
    }

    fn write<T>(
        &mut self,
        write: impl FnOnce(&mut Tracefile) -> io::Result<T>,
    ) -> Result<T, StoreError> {
        let path: &Path = self.directory.as_ref();
        let Some(Current { writer, source, .. }) = &mut self.current else {
            let none = io::Error::other("the metadata stream is in no chunk");
            return Err(StoreError::on("write metadata of", path)(none));
        };
        // After a failed sync nothing of the session becomes durable: more data would be of no use.
        self.sync.check()?;
        let opened = source.open().map(|file| writer.adopt(file));
        let written = opened.and_then(|()| write(writer));
        // In between only the source has the file open, so that the pool can close it.
        writer.release();
        written.map_err(|error| {
            let path = source.location.current_path();
            StoreError::at("write", path, writer.position(), error)
        })
    }
}

impl Drop for MetadataFile {
    fn drop(&mut self) {
        self.leave_chunk();
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use wire::Text;

    use super::super::chunk::Chunk;
    use super::super::reopenable_file::contents;
    use super::*;

    fn metadata(pool: &Arc<Pool>, output: &Path) -> MetadataFile {
        let directory = TracePath::parse(&Text::from("ust/uid")).unwrap();
        let name = FileName::parse(&Text::from("metadata")).unwrap();
        let chunk = Chunk::whole_output(output);
        MetadataFile::create(Arc::clone(pool), directory, name, chunk, Arc::default()).unwrap()
    }

    #[test]
    fn a_metadata_file_is_closed_when_the_pool_needs_room_and_goes_on_where_it_was() {
        let (output, pool) = (tempfile::tempdir().unwrap(), Pool::new(1));
        let mut file = metadata(&pool, output.path());
        let source = Arc::clone(file.source().unwrap());
        file.append_text(b"first, ").unwrap();
        file.finish_piece(1).unwrap();
        file.append_text(b"half of the next").unwrap();
        let path = output.path().join("ust/uid/metadata");
        let reader = File::open(&path).unwrap();
        assert!(
            reader.try_lock_shared().is_err(),
            "its writer has it locked"
        );
        // Another file needs the only place, after the first has had its second chance.
        let other = pool.open(tempfile::tempfile).unwrap();
        assert!(source.opened().is_none());
        assert_eq!(pool.open_files().0, 1);
        drop(other);
        assert_eq!(
            contents(&source.open().unwrap()),
            b"first, \0half of the next"
        );
        file.drop_piece().unwrap();
        file.append_text(b"second").unwrap();
        assert_eq!(file.finish_piece(0).unwrap(), Bytes(14));
        assert!(reader.try_lock_shared().is_err(), "it is locked again");
        assert_eq!(contents(&reader), b"first, \0second");
        file.leave_chunk();
        assert!(reader.try_lock_shared().is_ok());
        assert_eq!(contents(&source.open().unwrap()), b"first, \0second");
    }

    #[test]
    fn a_metadata_file_stays_open_while_the_pool_has_room() {
        let (output, pool) = (tempfile::tempdir().unwrap(), Pool::new(9));
        let file = metadata(&pool, output.path());
        let source = file.source().unwrap();
        assert!(!source.close_files(false));
        assert!(source.opened().is_some());
    }

    #[test]
    fn another_file_of_that_name_is_not_taken_for_the_metadata() {
        let (output, pool) = (tempfile::tempdir().unwrap(), Pool::new(9));
        let mut file = metadata(&pool, output.path());
        let source = Arc::clone(file.source().unwrap());
        assert!(source.close_files(true));
        let path = output.path().join("ust/uid/metadata");
        std::fs::rename(&path, path.with_extension("old")).unwrap();
        std::fs::write(&path, "other").unwrap();
        assert!(source.open().is_err());
        assert!(file.append_text(b"text").is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"other");
    }
}
