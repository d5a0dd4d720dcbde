//! A tracefile and its index file, as the stream has them that writes them: open, or closed until
//! there is something to write.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ctf::index::{Entry, IndexFormat};
use tracing::warn;
use wire::{FileName, Timestamp};

use super::chunk::Holding;
use super::index_file::IndexFile;
use super::pool::{ClockSlot, Pool, PooledFile};
use super::segment::Segment;
use super::tracefile::Tracefile;
use super::{StoreError, remove_file};

/// A tracefile and its index file.
#[derive(Debug)]
pub(super) struct SegmentWriter {
    pub(super) chunk: Holding,
    pub(super) number: u64,
    /// Below the chunk.
    pub(super) data_path: PathBuf,
    pub(super) index_path: PathBuf,
    pub(super) index_name: FileName,
    pub(super) data: Tracefile,
    /// None: there is nothing to say yet. It is there without entries for the sake of a beacon.
    index: Option<IndexFile>,
    /// From the first entry on.
    segment: Option<Arc<Segment>>,
    /// Packets that have been written and have no entry yet.
    pub(super) unindexed: usize,
    /// A newer one has its name, so that it could not be opened again.
    pub(super) is_replaced: bool,
}

impl SegmentWriter {
    /// One that has just been made.
    pub(super) fn new(
        chunk: Holding,
        number: u64,
        data: Tracefile,
        data_path: PathBuf,
        (index_path, index_name): (PathBuf, FileName),
    ) -> Self {
        Self {
            chunk,
            number,
            data_path,
            index_path,
            index_name,
            data,
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
        if self.data.file().is_none() {
            let opened = pool
                .open(|| self.chunk.open_file(&self.data_path))
                .and_then(|file| self.data.resume(file));
            opened.map_err(StoreError::on("go on with", &self.data_path))?;
            pool.slot(slot);
            self.tell_readers();
        }
        match self.data.file() {
            Some(file) => Ok(file),
            None => unreachable!("it has just been opened"),
        }
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
        let failed = || StoreError::on("write", &self.index_path);
        if let Some(index) = &mut self.index {
            if index.file().is_none() {
                pool.open(|| self.chunk.open_file(&self.index_path))
                    .and_then(|file| index.resume(file))
                    .map_err(failed())?;
            }
        } else {
            let directory = self.index_path.parent().unwrap_or(&self.index_path);
            let create = || self.chunk.create_file(pool, directory, &self.index_name);
            let begun = IndexFile::begin(pool.open(create)?, format).map_err(failed());
            self.index = Some(begun.inspect_err(|_| {
                // Pending a header would make readers give the whole trace up.
                let _ = self.chunk.with_path(&self.index_path, remove_file);
            })?);
        }
        match &mut self.index {
            Some(index) => Ok(index),
            None => unreachable!("it has just been opened"),
        }
    }

    pub(super) fn append_entries(
        &mut self,
        pool: &Arc<Pool>,
        slot: &Arc<ClockSlot>,
        format: IndexFormat,
        entries: &[Entry],
    ) -> Result<Arc<Segment>, StoreError> {
        slot.used();
        let was_open = self.has_open_index();
        let index = self.open_index(pool, format)?;
        if let Err(error) = index.append(entries) {
            let at = index.position();
            let path = self.chunk.with_path(&self.index_path, Path::to_owned);
            return Err(StoreError::at("write", path, at, error));
        }
        if !was_open || self.segment.is_none() {
            pool.slot(slot);
            let paths = || (self.data_path.clone(), self.index_path.clone());
            let chunk = self.chunk.chunk();
            self.segment.get_or_insert_with(|| {
                Arc::new(Segment::new(chunk, self.number, paths(), format, pool))
            });
            self.tell_readers();
        }
        match &self.segment {
            Some(segment) => Ok(Arc::clone(segment)),
            None => unreachable!("it has just been made"),
        }
    }

    pub(super) fn beacon(
        &mut self,
        pool: &Arc<Pool>,
        format: IndexFormat,
        until: Timestamp,
    ) -> Result<(), StoreError> {
        let was_open = self.has_open_index();
        let index = self.open_index(pool, format)?;
        let mut written = index.beacon(until);
        if written.is_ok() && !was_open {
            // A stream that is idle costs no file descriptor.
            written = index.close_files();
        }
        written.map_err(StoreError::on("write", &self.index_path))
    }

    /// What went wrong with its tracefile, and where.
    pub(super) fn data_error(&self, source: io::Error) -> StoreError {
        let path = self.chunk.with_path(&self.data_path, Path::to_owned);
        StoreError::at("write", path, self.data.position(), source)
    }

    fn has_open_index(&self) -> bool {
        self.index
            .as_ref()
            .is_some_and(|index| index.file().is_some())
    }

    /// Which files readers need not open themselves.
    fn tell_readers(&self) {
        if let Some(segment) = &self.segment {
            let index = self.index.as_ref().and_then(IndexFile::file);
            segment.opened(self.data.file(), index);
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
            warn!(path = %self.index_path.display(), %error, "index file stays open");
            return false;
        }
        self.data.close_files()
    }

    pub(super) fn close(mut self, pool: &Arc<Pool>) {
        let is_empty = match &self.index {
            // What has its name is not its index.
            _ if self.is_replaced => return,
            None => return,
            Some(index) => index.is_empty(),
        };
        let closed = if is_empty {
            self.chunk.with_path(&self.index_path, remove_file)
        } else {
            self.end_index(pool)
        };
        if let Err(error) = closed {
            warn!(%error, "a beacon stays behind");
        }
    }

    /// Takes the beacon off the end of the index.
    fn end_index(&mut self, pool: &Arc<Pool>) -> Result<(), StoreError> {
        let Some(index) = self.index.as_mut().filter(|index| index.has_beacon()) else {
            return Ok(());
        };
        let ended = match index.file() {
            Some(_) => Ok(()),
            None => pool
                .open(|| self.chunk.open_file(&self.index_path))
                .and_then(|file| index.resume(file)),
        };
        ended
            .and_then(|()| index.end())
            .map_err(StoreError::on("write", &self.index_path))
    }
}
