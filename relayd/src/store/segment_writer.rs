//! A tracefile and its index file, for the stream that writes them: open, or closed until there is
//! something to write.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use ctf::index::{Entry, IndexFormat};
use tracing::warn;
use wire::{Bytes, FileName, Text, Timestamp};

use super::StoreError;
use super::chunk::{Holding, INDEX_DIRECTORY};
use super::eviction::ClockSlot;
use super::index_file::IndexFile;
use super::pool::{Pool, PooledFile};
use super::reopenable_file::ReopenableFile;
use super::segment::Segment;
use super::sync::file::SyncOrder;
use super::tracefile::Tracefile;

/// A tracefile and its index file.
#[derive(Debug)]
pub(super) struct SegmentWriter {
    pub(super) chunk: Holding,
    pub(super) number: u64,
    pub(super) data: Tracefile,
    /// Slot of the stream, which owns the files.
    slot: Arc<ClockSlot>,
    /// The index file. None: neither bytes nor a beacon have been written.
    index: Option<IndexFile>,
    /// The files for readers. None: no entry has been written.
    segment: Option<Arc<Segment>>,
    /// Number of packets that have been written and have no entry yet.
    pub(super) unindexed: usize,
    /// Number of packets whose producer sends no indexes.
    pub(super) without_index: u64,
    /// End of the last packet that has an entry.
    indexed_end: Bytes,
    /// Whether a newer tracefile has the name of this one, which therefore could not be reopened.
    pub(super) is_replaced: bool,
}

impl SegmentWriter {
    /// The writer of a tracefile that has just been created.
    pub(super) fn new(
        chunk: Holding,
        number: u64,
        slot: &Arc<ClockSlot>,
        data: ReopenableFile,
    ) -> Self {
        Self {
            chunk,
            number,
            data: Tracefile::new(data),
            slot: Arc::clone(slot),
            index: None,
            segment: None,
            unindexed: 0,
            without_index: 0,
            indexed_end: Bytes(0),
            is_replaced: false,
        }
    }

    /// Continues files of a relay before this one, which have a number of entries, and the last of
    /// their packets ends there. Whatever follows is removed.
    pub(super) fn restore(
        &mut self,
        index: Option<(ReopenableFile, IndexFormat)>,
        segment: Option<Arc<Segment>>,
        entries: u64,
        end: Bytes,
    ) -> Result<(), StoreError> {
        self.data.restore(end);
        self.indexed_end = end;
        self.segment = segment;
        let Some((file, format)) = index else {
            return Ok(());
        };
        let location = Arc::clone(file.location());
        let restored = IndexFile::restore(file, format, entries);
        self.index = Some(restored.map_err(StoreError::on("write", location.path()))?);
        Ok(())
    }

    fn pool(&self) -> &Arc<Pool> {
        self.data.file().location().pool()
    }

    /// The tracefile, reopened if it was closed.
    pub(super) fn open_data(&mut self) -> Result<&Arc<PooledFile>, StoreError> {
        let reopened = self.data.reopen();
        if let Ok(true) = reopened {
            self.pool().clock.add_slot(&self.slot);
            self.share_with_readers();
        }
        let file = self.data.file();
        let opened = reopened.and_then(|_| file.opened());
        opened.map_err(StoreError::on("reopen", file.location().path()))
    }

    /// Creates the index file, unless it exists. Called before the first bytes of the tracefile are
    /// written: after a crash, the beacon in the index file shows that this relay wrote them.
    pub(super) fn begin_index(&mut self, format: IndexFormat) -> Result<(), StoreError> {
        match self.index {
            Some(_) => Ok(()),
            None => self.open_index(format).map(|_| ()),
        }
    }

    /// The index file, created if it does not exist yet, reopened if it was closed.
    fn open_index(&mut self, format: IndexFormat) -> Result<&mut IndexFile, StoreError> {
        let index = match self.index.take() {
            Some(index) => index,
            None => self.create_index(format)?,
        };
        let index = self.index.insert(index);
        let reopened = index.reopen();
        reopened.map_err(StoreError::on("reopen", index.file().location().path()))?;
        Ok(index)
    }

    fn create_index(&self, format: IndexFormat) -> Result<IndexFile, StoreError> {
        let data = self.data.file().location();
        // Made from the path of the tracefile: thousands of idle streams keep no second one.
        let name = data.path().file_name().unwrap_or_default();
        let name = FileName::parse(&Text::from(name.as_bytes()))
            .and_then(|name| name.with_suffix(".idx"))
            .map_err(|error| {
                StoreError::on("name the index of", data.path())(io::Error::other(error))
            })?;
        let directory = data.path().parent().unwrap_or(Path::new(""));
        let directory = directory.join(INDEX_DIRECTORY);
        let (order, sync) = (SyncOrder::Index, data.sync_status());
        let file = ReopenableFile::create(
            self.pool(),
            self.chunk.chunk(),
            &directory,
            &name,
            order,
            sync,
        )?;
        let location = Arc::clone(file.location());
        IndexFile::begin(file, format).map_err(|error| {
            // A partial header would make readers reject the whole trace.
            let _ = location.remove();
            StoreError::on("write", location.path())(error)
        })
    }

    /// Appends entries to the index file. Returns the segment for readers of their packets.
    pub(super) fn append_entries(
        &mut self,
        format: IndexFormat,
        entries: &[Entry],
    ) -> Result<Arc<Segment>, StoreError> {
        self.slot.mark_used();
        let was_open = self.has_open_index();
        let index = self.open_index(format)?;
        if let Err(error) = index.append(entries) {
            let path = index.file().location().current_path();
            return Err(StoreError::at("write", path, index.position(), error));
        }
        if let Some(Entry { offset, packet }) = entries.last() {
            let size = packet.packet_size.to_bytes().unwrap_or_default();
            self.indexed_end = Bytes(offset.0.saturating_add(size.0));
        }
        let segment = match (&self.segment, &self.index) {
            // Readers have the handles already.
            (Some(segment), _) if was_open => return Ok(Arc::clone(segment)),
            (Some(segment), _) => Arc::clone(segment),
            (None, Some(index)) => {
                let (data, index) = (self.data.file(), index.file());
                Arc::new(Segment::new(self.number, data, Some((index, format))))
            }
            (None, None) => unreachable!("the index file has just been opened"),
        };
        self.pool().clock.add_slot(&self.slot);
        self.segment = Some(Arc::clone(&segment));
        self.share_with_readers();
        Ok(segment)
    }

    /// The segment for readers of packets whose producer sends no indexes.
    pub(super) fn unindexed_segment(&mut self) -> Arc<Segment> {
        if let Some(segment) = &self.segment {
            return Arc::clone(segment);
        }
        let segment = Arc::new(Segment::new(self.number, self.data.file(), None));
        self.segment = Some(Arc::clone(&segment));
        self.share_with_readers();
        segment
    }

    pub(super) fn write_beacon(
        &mut self,
        format: IndexFormat,
        until: Timestamp,
    ) -> Result<(), StoreError> {
        let was_open = self.has_open_index();
        let index = self.open_index(format)?;
        let mut written = index.write_beacon(until);
        if written.is_ok() && !was_open {
            // It was closed because the stream is idle, and idle streams hold no file descriptor.
            written = index.close_files();
        }
        written.map_err(StoreError::on("write", index.file().location().path()))
    }

    /// Number of packets that have an entry.
    pub(super) fn entries(&self) -> u64 {
        self.index.as_ref().map_or(0, IndexFile::entries)
    }

    /// Removes the packets that have no entry from the tracefile.
    pub(super) fn drop_unindexed(&mut self) -> Result<(), StoreError> {
        self.unindexed = 0;
        if self.data.size() > self.indexed_end {
            self.open_data()?;
            self.data.truncate(self.indexed_end);
        }
        Ok(())
    }

    /// Removes both files. No packet may have an entry.
    pub(super) fn remove(self) -> Result<(), StoreError> {
        let data = self.data.file().location().remove();
        let index = self.index.as_ref();
        let index = index.map_or(Ok(()), |index| index.file().location().remove());
        // Both are removed even if one fails.
        data.and(index)
    }

    /// An error of the tracefile, with the position that was written to.
    pub(super) fn data_error(&self, source: io::Error) -> StoreError {
        let path = self.data.file().location().current_path();
        StoreError::at("write", path, self.data.position(), source)
    }

    fn has_open_index(&self) -> bool {
        let index = self.index.as_ref();
        index.is_some_and(|index| index.file().handle().is_some())
    }

    /// Shares the open files with readers, which then need not open them.
    fn share_with_readers(&self) {
        if let Some(segment) = &self.segment {
            let index = self.index.as_ref();
            let index = index.and_then(|index| index.file().handle());
            segment.set_handles(self.data.file().handle(), index);
        }
    }

    /// Closes the files that can be reopened. Returns whether both are closed.
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

    /// Completes both files: nothing will be appended.
    pub(super) fn close(mut self) {
        if !self.is_replaced {
            self.data.remove_excess();
        }
        let index = match &mut self.index {
            Some(index) if !self.is_replaced => index,
            // The index file of a tracefile that was replaced has been unlinked.
            _ => return,
        };
        let closed = if index.is_empty() {
            index.file().location().remove()
        } else {
            remove_beacon(index)
        };
        if let Err(error) = closed {
            warn!(%error, "beacon not removed: the index file says that it is open, until the next start examines it");
            self.chunk.keep_markers();
        }
    }
}

/// Removes the beacon from the end of an index file.
fn remove_beacon(index: &mut IndexFile) -> Result<(), StoreError> {
    if !index.has_beacon() {
        return Ok(());
    }
    let removed = index.reopen().and_then(|_| index.remove_beacon());
    removed.map_err(StoreError::on("write", index.file().location().path()))
}
