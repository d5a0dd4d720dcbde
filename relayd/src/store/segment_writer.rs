//! A tracefile and its index file, as the stream has them that writes them: open, or closed until
//! there is something to write.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use ctf::index::{Entry, IndexFormat};
use tracing::warn;
use wire::{FileName, Timestamp};

use super::StoreError;
use super::chunk::Holding;
use super::eviction::ClockSlot;
use super::index_file::IndexFile;
use super::pool::{Pool, PooledFile};
use super::reopenable_file::ReopenableFile;
use super::segment::Segment;
use super::tracefile::Tracefile;

/// A tracefile and its index file.
#[derive(Debug)]
pub(super) struct SegmentWriter {
    pub(super) chunk: Holding,
    pub(super) number: u64,
    pub(super) data: Tracefile,
    /// Below the chunk.
    index_directory: PathBuf,
    index_name: FileName,
    /// None: neither bytes nor a beacon have been written. With a beacon alone, the file has no entries.
    index: Option<IndexFile>,
    /// None: no entry has been written.
    segment: Option<Arc<Segment>>,
    /// Number of packets that have been written and have no entry yet.
    pub(super) unindexed: usize,
    /// Whether a newer tracefile has this one's name, so that it could not be opened again.
    pub(super) is_replaced: bool,
}

impl SegmentWriter {
    /// The writer of a tracefile that has just been made.
    pub(super) fn new(
        chunk: Holding,
        number: u64,
        data: ReopenableFile,
        (index_directory, index_name): (PathBuf, FileName),
    ) -> Self {
        Self {
            chunk,
            number,
            data: Tracefile::new(data),
            index_directory,
            index_name,
            index: None,
            segment: None,
            unindexed: 0,
            is_replaced: false,
        }
    }

    /// The tracefile, opened if it was closed.
    pub(super) fn open_data(
        &mut self,
        pool: &Arc<Pool>,
        slot: &Arc<ClockSlot>,
    ) -> Result<&Arc<PooledFile>, StoreError> {
        let failed = |error, data: &Tracefile| {
            StoreError::on("go on with", data.file().location().path())(error)
        };
        match self.data.reopen() {
            Ok(false) => {}
            Ok(true) => {
                pool.clock.add_slot(slot);
                self.share_with_readers();
            }
            Err(error) => return Err(failed(error, &self.data)),
        }
        let opened = self.data.file().opened();
        opened.map_err(|error| failed(error, &self.data))
    }

    /// Makes the index file, unless there is one. It comes before the first bytes of the tracefile, so
    /// that after a crash a tracefile with bytes but without entries is known to be ours.
    pub(super) fn begin_index(
        &mut self,
        pool: &Arc<Pool>,
        format: IndexFormat,
    ) -> Result<(), StoreError> {
        match self.index {
            Some(_) => Ok(()),
            None => self.open_index(pool, format).map(|_| ()),
        }
    }

    /// The index file, made if there is none yet, opened if it was closed.
    fn open_index(
        &mut self,
        pool: &Arc<Pool>,
        format: IndexFormat,
    ) -> Result<&mut IndexFile, StoreError> {
        let index = match self.index.take() {
            Some(index) => index,
            None => self.create_index(pool, format)?,
        };
        let index = self.index.insert(index);
        if let Err(error) = index.reopen() {
            return Err(StoreError::on("write", index.file().location().path())(
                error,
            ));
        }
        Ok(index)
    }

    fn create_index(&self, pool: &Arc<Pool>, format: IndexFormat) -> Result<IndexFile, StoreError> {
        let chunk = self.chunk.chunk();
        let file = ReopenableFile::create(pool, chunk, &self.index_directory, &self.index_name)?;
        let location = Arc::clone(file.location());
        IndexFile::begin(file, format).map_err(|error| {
            // Half a header would make readers give the whole trace up.
            let _ = location.remove();
            StoreError::on("write", location.path())(error)
        })
    }

    pub(super) fn append_entries(
        &mut self,
        pool: &Arc<Pool>,
        slot: &Arc<ClockSlot>,
        format: IndexFormat,
        entries: &[Entry],
    ) -> Result<Arc<Segment>, StoreError> {
        slot.mark_used();
        let was_open = self.has_open_index();
        let index = self.open_index(pool, format)?;
        if let Err(error) = index.append(entries) {
            let path = index.file().location().current_path();
            return Err(StoreError::at("write", path, index.position(), error));
        }
        let segment = match (&self.segment, &self.index) {
            (Some(segment), _) if was_open => return Ok(Arc::clone(segment)),
            (Some(segment), _) => Arc::clone(segment),
            (None, Some(index)) => {
                let files = (self.data.file(), index.file());
                Arc::new(Segment::new(self.number, files, format))
            }
            (None, None) => unreachable!("it has just been opened"),
        };
        pool.clock.add_slot(slot);
        self.segment = Some(Arc::clone(&segment));
        self.share_with_readers();
        Ok(segment)
    }

    pub(super) fn write_beacon(
        &mut self,
        pool: &Arc<Pool>,
        format: IndexFormat,
        until: Timestamp,
    ) -> Result<(), StoreError> {
        let was_open = self.has_open_index();
        let index = self.open_index(pool, format)?;
        let mut written = index.write_beacon(until);
        if written.is_ok() && !was_open {
            // A stream that is idle costs no file descriptor.
            written = index.close_files();
        }
        written.map_err(StoreError::on("write", index.file().location().path()))
    }

    /// An error of the tracefile, with its position.
    pub(super) fn data_error(&self, source: io::Error) -> StoreError {
        let path = self.data.file().location().current_path();
        StoreError::at("write", path, self.data.position(), source)
    }

    fn has_open_index(&self) -> bool {
        let index = self.index.as_ref();
        index.is_some_and(|index| index.file().handle().is_some())
    }

    /// Gives readers the files that they need not open themselves.
    fn share_with_readers(&self) {
        if let Some(segment) = &self.segment {
            let index = self.index.as_ref();
            let index = index.and_then(|index| index.file().handle());
            segment.set_handles(self.data.file().handle(), index);
        }
    }

    /// Closes what can be opened again. Gives whether all is closed.
    pub(super) fn close_files(&mut self) -> bool {
        if self.is_replaced {
            return false;
        }
        if let Some(index) = &mut self.index
            && let Err(error) = index.close_files()
        {
            let path = index.file().location().path().display();
            warn!(%path, %error, "index file not closed: it stays open");
            return false;
        }
        self.data.close_files()
    }

    /// Ends both files: nothing will be added.
    pub(super) fn close(mut self) {
        let index = match &mut self.index {
            // What has its name is not its index.
            _ if self.is_replaced => return,
            None => return,
            Some(index) => index,
        };
        let closed = if index.is_empty() {
            index.file().location().remove()
        } else {
            remove_beacon(index)
        };
        if let Err(error) = closed {
            warn!(%error, "beacon not removed: the index file still says that it is open");
        }
    }
}

/// Takes the beacon off the end of an index.
fn remove_beacon(index: &mut IndexFile) -> Result<(), StoreError> {
    if !index.has_beacon() {
        return Ok(());
    }
    let removed = index.reopen().and_then(|_| index.remove_beacon());
    removed.map_err(StoreError::on("write", index.file().location().path()))
}
