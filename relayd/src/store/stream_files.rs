//! The files of one stream: the tracefile that is being written, earlier ones whose packets still
//! wait for indexes, and when the next one begins.

mod restoring;
mod rewinding;

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use ctf::index::{Entry, IndexFormat};
use wire::{Bytes, FileName, NameError, PacketIndex, Timestamp, TracePath};

pub use restoring::{RestoredFiles, RestoredRun, TracefileRange};

use super::chunk::{Holding, INDEX_DIRECTORY};
use super::eviction::ClockSlot;
use super::pipe::Pipe;
use super::pool::Pool;
use super::reopenable_file::ReopenableFile;
use super::segment::Segment;
use super::segment_writer::SegmentWriter;
use super::sync::file::{SyncOrder, SyncStatus};
use super::tracefile::{Extent, Tracefile};
use super::{StoreError, remove_file};

/// Size in bytes of the pieces in which a packet is copied to another chunk.
const COPY_BYTES: usize = 64 << 10;

/// Maximum size and number of a stream's tracefiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TracefileLimits {
    /// Maximum size of a tracefile. A single packet may exceed it.
    pub size: Bytes,
    /// Number of tracefiles that are kept: the next one replaces the oldest. None: all are kept.
    pub count: Option<u64>,
}

/// Names and sizes of a stream's files.
#[derive(Debug, Clone)]
pub struct StreamLayout {
    /// Directory below the chunk.
    pub directory: TracePath,
    /// Name of the tracefile. With `limits`, a number is appended.
    pub name: FileName,
    /// Limits of the tracefiles. None: the stream has one, without a number in its name.
    pub limits: Option<TracefileLimits>,
    /// Format of the index files. None: the producer sends no indexes.
    pub index_format: Option<IndexFormat>,
}

impl StreamLayout {
    /// The longest name that a file of the stream will have.
    ///
    /// # Errors
    /// If it would be too long.
    pub fn longest_name(&self) -> Result<FileName, NameError> {
        // The highest number that there can be, unless the tracefiles are counted.
        let longest = self.limits.map(|limits| limits.count.unwrap_or(u64::MAX));
        self.data_name(longest)?.with_suffix(".idx")
    }

    fn data_name(&self, number: Option<u64>) -> Result<FileName, NameError> {
        match number {
            Some(number) => self.name.with_suffix(&format!("_{number}")),
            None => Ok(self.name.clone()),
        }
    }
}

/// The files of one stream. While the stream is in no chunk, none of them can be written to.
#[derive(Debug)]
pub struct StreamFiles {
    layout: StreamLayout,
    pool: Arc<Pool>,
    slot: Arc<ClockSlot>,
    sync: Arc<SyncStatus>,
    /// The open tracefiles. The last one is being written if `is_writing`; all others wait for the
    /// indexes of their packets.
    open: VecDeque<SegmentWriter>,
    /// Number of the first open tracefile among all tracefiles that the stream has had.
    first_open: u64,
    is_writing: bool,
    /// Number of the tracefile that is being written, counted from 0 in each chunk.
    number: u64,
}

/// The position of a packet in the tracefiles of its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketPlace {
    /// Number of the tracefile among all that the stream has had. It never changes, unlike the
    /// number in the name.
    file: u64,
    /// Position in the tracefile.
    extent: Extent,
}

impl PacketPlace {
    /// Whether both lie in the same tracefile.
    #[must_use]
    pub fn shares_tracefile_with(&self, other: &Self) -> bool {
        self.file == other.file
    }

    /// Length of the packet, padding included.
    #[must_use]
    pub fn packet_len(&self) -> Bytes {
        self.extent.len
    }

    /// Offset of the packet in the tracefile.
    #[must_use]
    pub fn offset(&self) -> Bytes {
        self.extent.offset
    }

    /// End of the packet in the tracefile.
    #[must_use]
    pub fn end(&self) -> Bytes {
        self.extent.end()
    }
}

impl StreamFiles {
    /// Creates the stream's first tracefile and closes it, since a stream may be idle for long
    /// before its first packet. `sync` is the status of the session.
    ///
    /// # Errors
    /// If the tracefile cannot be created.
    pub fn create(
        layout: StreamLayout,
        pool: Arc<Pool>,
        chunk: Holding,
        sync: Arc<SyncStatus>,
    ) -> Result<Self, StoreError> {
        let mut files = Self {
            layout,
            pool,
            slot: Arc::default(),
            sync,
            open: VecDeque::new(),
            first_open: 0,
            is_writing: false,
            number: 0,
        };
        files.enter_chunk(chunk)?;
        files.close_files();
        Ok(files)
    }

    /// Slot by which the pool asks the stream to close files.
    #[must_use]
    pub fn slot(&self) -> &Arc<ClockSlot> {
        &self.slot
    }

    /// Pool that bounds the open files.
    #[must_use]
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Closes the files that can be reopened. Returns whether all are closed.
    pub fn close_files(&mut self) -> bool {
        let mut all = true;
        for file in &mut self.open {
            // Not `Iterator::all`, which would leave those open that follow the first that stays
            // open.
            all &= file.close_files();
        }
        all
    }

    /// Begins to write to a chunk.
    ///
    /// # Errors
    /// If the tracefile cannot be created. Nothing can be written then.
    pub fn enter_chunk(&mut self, chunk: Holding) -> Result<(), StoreError> {
        self.number = 0;
        self.is_writing = false;
        self.begin_file(chunk)
    }

    /// Stops writing to the chunk. Tracefiles whose packets wait for indexes stay open.
    pub fn leave_chunk(&mut self) {
        self.is_writing = false;
        self.close_indexed();
    }

    /// Leaves the chunk for another and moves these packets there: the last ones that were written,
    /// in order, none of them indexed.
    ///
    /// # Errors
    /// If a file of the other chunk cannot be created or written. Then nothing has changed.
    pub fn carry_over<'a>(
        &mut self,
        packets: impl Iterator<Item = &'a mut PacketPlace>,
        chunk: Holding,
    ) -> Result<(), StoreError> {
        let mut packets: Vec<_> = packets.collect();
        let moved = self.copy_packets(packets.iter().map(|place| **place), chunk)?;
        // The first packet in each tracefile that is moved.
        let mut cuts: Vec<PacketPlace> = Vec::new();
        for (place, moved) in packets.iter_mut().zip(moved) {
            let Some((from, moved)) = self.writer_of(place).zip(moved) else {
                continue;
            };
            from.unindexed -= 1;
            if cuts.last().is_none_or(|cut| cut.file != place.file) {
                cuts.push(**place);
            }
            **place = moved;
        }
        // Only now: until all packets are in the other chunk, a failed write must lose none of
        // them.
        for cut in cuts {
            if let Some(from) = self.writer_of(&cut) {
                from.open_data()?;
                from.data.truncate(cut.extent.offset);
            }
        }
        self.close_indexed();
        Ok(())
    }

    /// Copies packets to the first tracefile of another chunk. Returns their new places; none for a
    /// packet whose tracefile has been closed.
    fn copy_packets(
        &mut self,
        packets: impl Iterator<Item = PacketPlace>,
        chunk: Holding,
    ) -> Result<Vec<Option<PacketPlace>>, StoreError> {
        let before = (self.number, self.is_writing);
        let had = self.first_open + self.open.len() as u64;
        self.number = 0;
        let copied = self.begin_file(chunk).and_then(|()| {
            packets
                .map(|place| {
                    let Some(from) = self.writer_of(&place) else {
                        return Ok(None);
                    };
                    // Cloned, because the copy borrows the whole stream.
                    let bytes = Arc::clone(from.open_data()?);
                    self.copy_packet(&bytes, place.extent).map(Some)
                })
                .collect()
        });
        if copied.is_err() {
            (self.number, self.is_writing) = before;
            // The tracefile may not have been created at all.
            if self.first_open + self.open.len() as u64 > had
                && let Some(begun) = self.open.pop_back()
            {
                // An error leaves a file of copies, and the packets are still in the old chunk.
                let _ = begun.data.file().location().remove();
                begun.close();
            }
        }
        copied
    }

    /// The chunk that is being written to. None: the stream is in no chunk.
    #[must_use]
    pub fn chunk(&self) -> Option<&Holding> {
        self.open
            .back()
            .filter(|_| self.is_writing)
            .map(|file| &file.chunk)
    }

    /// Whether the next tracefile replaces an older one. In a chunk that is not the first one it
    /// may be said to replace one that is not there.
    #[must_use]
    pub fn next_replaces(&self) -> bool {
        let count = self.layout.limits.and_then(|limits| limits.count);
        let begun = self.first_open + self.open.len() as u64;
        count.is_some_and(|count| begun >= count)
    }

    /// The number of the tracefile that a packet with `data_size` bytes begins, padding not
    /// included. None: the packet fits the current tracefile.
    #[must_use]
    pub fn next_number(&self, data_size: u32) -> Option<u64> {
        let limits = self.layout.limits?;
        // A packet that is larger than a whole file gets one of its own.
        if self.has_room(u64::from(data_size)) || self.open.back()?.data.size() == Bytes(0) {
            return None;
        }
        let next = self.number + 1;
        Some(limits.count.map_or(next, |count| next % count.max(1)))
    }

    /// Whether the current tracefile has room for so many bytes.
    #[must_use]
    pub fn has_room(&self, bytes: u64) -> bool {
        let size = self.open.back().map_or(Bytes(0), |file| file.data.size());
        let limits = self.layout.limits;
        limits.is_none_or(|limits| size.0.saturating_add(bytes) <= limits.size.0)
    }

    /// Begins the tracefile with this number. An older one with the number is replaced.
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn begin_next(&mut self, number: u64) -> Result<(), StoreError> {
        let Some(current) = self.open.back() else {
            return Ok(());
        };
        let chunk = current.chunk.clone();
        let before = std::mem::replace(&mut self.number, number);
        self.begin_file(chunk).inspect_err(|_| self.number = before)
    }

    /// Writes the next bytes of the packet in flight.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn append_payload(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.write(|data| data.append(bytes))
    }

    /// Moves the next bytes of the packet in flight, up to `len`, from a pipe to the tracefile.
    /// Returns how many: not all if they cannot be written.
    ///
    /// # Errors
    /// If the tracefile cannot be written to at all.
    pub fn splice_payload(&mut self, pipe: &mut Pipe, len: usize) -> Result<usize, StoreError> {
        self.write(|data| data.splice(pipe, len))
    }

    /// Writes the last bytes of the packet in flight, followed by `padding` zeros.
    ///
    /// # Errors
    /// If they cannot be written. The packet stays in flight.
    pub fn finish_packet(&mut self, bytes: &[u8], padding: u32) -> Result<PacketPlace, StoreError> {
        let extent = self.write(|data| data.finish_packet(bytes, padding))?;
        // A packet of no bytes has no index: that would be a beacon.
        if extent.len > Bytes(0) {
            self.count_packets(1);
        }
        Ok(PacketPlace {
            file: self.first_open + self.open.len() as u64 - 1,
            extent,
        })
    }

    /// Writes whole packets, none of which is empty, by one write: the bytes of each, and the
    /// number of zeros that follow them. Returns their places. No packet may be in flight.
    ///
    /// # Errors
    /// If they cannot be written like that. None of them remains in the tracefile.
    pub fn append_packets<'a>(
        &mut self,
        packets: impl Iterator<Item = (&'a [u8], u32)> + Clone,
    ) -> Result<Vec<PacketPlace>, StoreError> {
        let mut offset = self.write(|data| data.append_packets(packets.clone()))?;
        let file = self.first_open + self.open.len() as u64 - 1;
        let places: Vec<_> = packets
            .map(|(bytes, padding)| {
                let len = Bytes(bytes.len() as u64 + u64::from(padding));
                let extent = Extent { offset, len };
                offset = extent.end();
                PacketPlace { file, extent }
            })
            .collect();
        self.count_packets(places.len());
        Ok(places)
    }

    fn count_packets(&mut self, packets: usize) {
        let has_indexes = self.layout.index_format.is_some();
        match self.open.back_mut() {
            Some(file) if has_indexes => file.unindexed += packets,
            Some(file) => file.without_index += packets as u64,
            None => {}
        }
    }

    /// Drops the packet in flight.
    pub fn drop_packet(&mut self) {
        if let Some(file) = self.open.back_mut() {
            file.data.drop_packet();
        }
    }

    /// Writes the entries of packets that lie in one tracefile, the one of `place`. Returns the
    /// segment that they belong to. None: another tracefile has replaced theirs; the packets are
    /// lost and nothing is written, because both names belong to the newer files.
    ///
    /// # Errors
    /// If they cannot be written, or the stream has no indexes.
    pub fn write_entries(
        &mut self,
        place: &PacketPlace,
        packets: impl Iterator<Item = (PacketPlace, PacketIndex)>,
    ) -> Result<Option<Arc<Segment>>, StoreError> {
        self.sync.check()?;
        let format = self.layout.index_format;
        let Some((file, format)) = self.writer_of(place).zip(format) else {
            return Err(self.error("index", "the packet's tracefile has been closed"));
        };
        let entry = |(place, packet): (PacketPlace, PacketIndex)| Entry {
            offset: place.extent.offset,
            packet,
        };
        let entries: Vec<_> = packets.map(entry).collect();
        let segment = match file.is_replaced {
            true => None,
            false => Some(file.append_entries(format, &entries)?),
        };
        file.unindexed -= entries.len();
        self.close_indexed();
        Ok(segment)
    }

    /// The segment of a packet that has just been written, and whose producer sends no indexes.
    pub fn unindexed_segment(&mut self, place: &PacketPlace) -> Option<Arc<Segment>> {
        self.writer_of(place).map(SegmentWriter::unindexed_segment)
    }

    /// Gives up the packets without an index, because no index will arrive any more. Returns their
    /// number.
    pub fn give_up_indexes(&mut self) -> usize {
        let files = self.open.iter_mut();
        let unindexed = files.map(|file| std::mem::take(&mut file.unindexed)).sum();
        self.close_indexed();
        unindexed
    }

    /// Writes a beacon to the end of the current index file. Does nothing if the stream has no
    /// indexes or is in no chunk.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write_beacon(&mut self, until: Timestamp) -> Result<(), StoreError> {
        match (self.layout.index_format, self.open.back_mut()) {
            (Some(format), Some(file)) if self.is_writing => file.write_beacon(format, until),
            _ => Ok(()),
        }
    }

    fn begin_file(&mut self, chunk: Holding) -> Result<(), StoreError> {
        let number = self.layout.limits.map(|_| self.number);
        let directory: &Path = self.layout.directory.as_ref();
        let failed = |error| StoreError::on("name files in", directory)(io::Error::other(error));
        let data_name = self.layout.data_name(number).map_err(failed)?;
        for older in &mut self.open {
            // Its packets still wait for indexes, but its claim and lock must not keep us from
            // replacing it.
            if older.chunk.is(&chunk) && older.number == self.number {
                older.is_replaced = true;
                older.data.give_up_name();
            }
        }
        let (order, sync) = (SyncOrder::Data, &self.sync);
        let data = ReopenableFile::create(
            &self.pool,
            chunk.chunk(),
            directory,
            &data_name,
            order,
            sync,
        )?;
        self.pool.clock.add_slot(&self.slot);
        if self.layout.index_format.is_some() {
            // The index file of the tracefile that this one replaces.
            let index_name = data_name.with_suffix(".idx").map_err(failed)?;
            let index = directory.join(INDEX_DIRECTORY).join(index_name);
            chunk.with_path(&index, remove_file)?;
        }
        let writer = SegmentWriter::new(chunk, self.number, &self.slot, data);
        self.push_writer(writer);
        self.close_indexed();
        Ok(())
    }

    /// Writes to this tracefile from now on.
    fn push_writer(&mut self, writer: SegmentWriter) {
        // Most streams have one, and there may be thousands: a deque would begin with room for
        // four.
        if self.open.is_empty() {
            self.open.reserve_exact(1);
        }
        self.open.push_back(writer);
        self.is_writing = true;
    }

    /// Closes the tracefiles in front to which nothing will be added.
    fn close_indexed(&mut self) {
        let kept = usize::from(self.is_writing);
        while self.open.len() > kept && self.open.front().is_some_and(|file| file.unindexed == 0) {
            if let Some(file) = self.open.pop_front() {
                // The place of a packet counts the tracefiles that were closed before its own.
                self.first_open += 1;
                file.close();
            }
        }
    }

    fn write<T>(
        &mut self,
        write: impl FnOnce(&mut Tracefile) -> io::Result<T>,
    ) -> Result<T, StoreError> {
        match self.open.back_mut() {
            Some(file) if self.is_writing => {
                self.sync.check()?;
                self.slot.mark_used();
                if file.data.position() == 0
                    && let Some(format) = self.layout.index_format
                {
                    file.begin_index(format)?;
                }
                file.open_data()?;
                write(&mut file.data).map_err(|error| file.data_error(error))
            }
            _ => Err(self.error("write", "the stream is in no chunk")),
        }
    }

    fn error(&self, what: &'static str, reason: &str) -> StoreError {
        StoreError::on(what, self.layout.directory.as_ref())(io::Error::other(reason))
    }

    /// Appends a packet that lies in another file.
    fn copy_packet(&mut self, from: &File, packet: Extent) -> Result<PacketPlace, StoreError> {
        let mut buffer = vec![0; COPY_BYTES];
        let mut at = packet.offset.0;
        while at < packet.end().0 {
            let left = usize::try_from(packet.end().0 - at).unwrap_or(usize::MAX);
            let (piece, _) = buffer.split_at_mut(left.min(COPY_BYTES));
            from.read_exact_at(piece, at)
                .map_err(StoreError::on("read", self.layout.directory.as_ref()))?;
            self.append_payload(piece)?;
            at += piece.len() as u64;
        }
        // The extent includes the padding, which has been copied with the bytes.
        self.finish_packet(&[], 0)
    }

    /// The writer of a packet's tracefile. None: the tracefile has been closed.
    fn writer_of(&mut self, place: &PacketPlace) -> Option<&mut SegmentWriter> {
        let at = place.file.checked_sub(self.first_open)?;
        self.open.get_mut(usize::try_from(at).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::super::chunk::Chunk;
    use super::super::sync::tests::{Lab, inode};
    use super::*;

    #[test]
    fn a_stream_of_a_failed_session_cannot_be_written_to() {
        let (lab, status) = (Lab::new(), Arc::<SyncStatus>::default());
        let output = tempfile::tempdir().unwrap();
        let pool = Pool::with_syncer(100, Arc::clone(lab.syncer()));
        let layout = StreamLayout {
            directory: TracePath::parse(&wire::Text::from("ust/uid")).unwrap(),
            name: FileName::parse(&wire::Text::from("chan_0")).unwrap(),
            limits: None,
            index_format: Some(IndexFormat::V1_1),
        };
        let chunk = Chunk::whole_output(output.path());
        let mut files = StreamFiles::create(layout, pool, chunk, Arc::clone(&status)).unwrap();
        lab.sync();
        let synced = lab.synced();
        for directory in [output.path().join("ust/uid"), output.path().join("ust")] {
            let inode = inode(&File::open(directory).unwrap());
            assert!(synced.contains(&inode), "a name was created there");
        }
        files.append_payload(b"payload").unwrap();
        let tracefile = File::open(output.path().join("ust/uid/chan_0")).unwrap();
        let index = File::open(output.path().join("ust/uid/index/chan_0.idx")).unwrap();
        lab.calls.failing.lock().insert(inode(&tracefile));
        lab.sync();
        let synced = lab.synced();
        assert_eq!(synced.first(), Some(&inode(&tracefile)));
        let is_index_synced = synced.contains(&inode(&index));
        assert!(!is_index_synced, "entries of packets that may be lost");
        let error = files.append_payload(b"more").unwrap_err();
        assert!(error.to_string().starts_with("cannot sync"), "{error}");
    }
}
