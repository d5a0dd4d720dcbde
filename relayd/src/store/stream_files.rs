//! The files of one stream: the tracefile being written, those before it that still wait for
//! indexes, and when the next one begins.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use ctf::index::{Entry, IndexFormat};
use wire::{Bytes, FileName, NameError, PacketIndex, Timestamp, TracePath};

use super::chunk::Holding;
use super::eviction::ClockSlot;
use super::pool::Pool;
use super::reopenable_file::ReopenableFile;
use super::segment::Segment;
use super::segment_writer::SegmentWriter;
use super::tracefile::{Extent, Tracefile};
use super::{StoreError, remove_file};

/// Packets are moved in pieces of so many bytes.
const COPY_BYTES: usize = 64 << 10;

/// Directory of index files beside the tracefiles.
const INDEX_DIRECTORY: &str = "index";

/// Bounds of a stream's tracefiles: their size and number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TracefileLimits {
    /// Bytes beyond which no packet is written, unless it is the only one in its file.
    pub size: Bytes,
    /// Number of tracefiles that are kept. None: all.
    pub count: Option<u64>,
}

/// Names and sizes of a stream's files.
#[derive(Debug, Clone)]
pub struct StreamLayout {
    /// Directory below the chunk.
    pub directory: TracePath,
    /// Name of the tracefile, to which a number is added if there may be several.
    pub name: FileName,
    /// Bounds of the tracefiles. None: there is one, without a number in its name.
    pub limits: Option<TracefileLimits>,
    /// Format of the index files. None: the producer sends no indexes.
    pub index_format: Option<IndexFormat>,
}

impl StreamLayout {
    /// Checks that every name that will be made of the stream's can be a file's.
    ///
    /// # Errors
    /// If one would be too long.
    pub fn check(&self) -> Result<(), NameError> {
        let longest = self.limits.map(|limits| limits.count.unwrap_or(u64::MAX));
        self.data_name(longest)?.with_suffix(".idx").map(|_| ())
    }

    fn data_name(&self, number: Option<u64>) -> Result<FileName, NameError> {
        match number {
            Some(number) => self.name.with_suffix(&format!("_{number}")),
            None => Ok(self.name.clone()),
        }
    }
}

/// The files of one stream. While the stream is in no chunk there is none to write to.
#[derive(Debug)]
pub struct StreamFiles {
    layout: StreamLayout,
    pool: Arc<Pool>,
    slot: Arc<ClockSlot>,
    /// The last is being written, if any is; those before it wait for indexes.
    open: VecDeque<SegmentWriter>,
    /// Number of the first of them among all that the stream has had.
    first_open: u64,
    is_writing: bool,
    /// Number of the tracefile that is being written, counted from 0 in each chunk.
    number: u64,
}

/// The place of a packet in the tracefiles of its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketPlace {
    /// Number of the tracefile among all that the stream has had.
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

    /// End of the packet in the tracefile.
    #[must_use]
    pub fn end(&self) -> Bytes {
        self.extent.end()
    }
}

impl StreamFiles {
    /// Makes the stream's first tracefile, and closes it until there is something to write.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn create(
        layout: StreamLayout,
        pool: Arc<Pool>,
        chunk: Holding,
    ) -> Result<Self, StoreError> {
        let (open, first_open) = (VecDeque::new(), 0);
        let mut files = Self {
            layout,
            pool,
            slot: Arc::default(),
            open,
            first_open,
            is_writing: false,
            number: 0,
        };
        files.enter_chunk(chunk)?;
        files.close_files();
        Ok(files)
    }

    /// Slot by which the pool asks for files to be closed.
    #[must_use]
    pub fn slot(&self) -> &Arc<ClockSlot> {
        &self.slot
    }

    /// Pool that bounds the open files.
    #[must_use]
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Closes the files that can be opened again. Gives whether all are closed.
    pub fn close_files(&mut self) -> bool {
        let mut all = true;
        for file in &mut self.open {
            all &= file.close_files();
        }
        all
    }

    /// Begins to write to a chunk.
    ///
    /// # Errors
    /// If the tracefile cannot be made. Nothing can be written then.
    pub fn enter_chunk(&mut self, chunk: Holding) -> Result<(), StoreError> {
        self.number = 0;
        self.is_writing = false;
        self.begin_file(chunk)
    }

    /// Stops writing to the chunk. Files that wait for indexes stay until they have them.
    pub fn leave_chunk(&mut self) {
        self.is_writing = false;
        self.close_indexed();
    }

    /// Leaves the chunk for another and takes these packets along: the last that were written, in
    /// order, none of them indexed.
    ///
    /// # Errors
    /// If a file of the other chunk cannot be made or written. Then all is as it was.
    pub fn carry_over<'a>(
        &mut self,
        packets: impl Iterator<Item = &'a mut PacketPlace>,
        chunk: Holding,
    ) -> Result<(), StoreError> {
        let mut packets: Vec<_> = packets.collect();
        let moved = self.copy_packets(packets.iter().map(|place| **place), chunk)?;
        // Where the first packet that goes lies, in each file.
        let mut cuts: Vec<PacketPlace> = Vec::new();
        for (place, moved) in packets.iter_mut().zip(moved) {
            let at = self.file_of(place);
            let Some((from, moved)) = at.and_then(|at| self.open.get_mut(at)).zip(moved) else {
                continue;
            };
            from.unindexed -= 1;
            if cuts.last().is_none_or(|cut| cut.file != place.file) {
                cuts.push(**place);
            }
            **place = moved;
        }
        // Only now: until all packets are in the other chunk, a failed write must lose none of them.
        for cut in cuts {
            let at = self.file_of(&cut);
            if let Some(from) = at.and_then(|at| self.open.get_mut(at)) {
                from.open_data(&self.pool, &self.slot)?;
                from.data.truncate(cut.extent.offset);
            }
        }
        self.close_indexed();
        Ok(())
    }

    /// Copies packets to the first tracefile of another chunk. Gives where they lie now, those that are
    /// still there.
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
                    let at = self.file_of(&place);
                    let Some(from) = at.and_then(|at| self.open.get_mut(at)) else {
                        return Ok(None);
                    };
                    let bytes = Arc::clone(from.open_data(&self.pool, &self.slot)?);
                    self.copy_packet(&bytes, place.extent).map(Some)
                })
                .collect()
        });
        if copied.is_err() {
            (self.number, self.is_writing) = before;
            if self.first_open + self.open.len() as u64 > had
                && let Some(begun) = self.open.pop_back()
            {
                let _ = begun.data.file().location().remove();
                begun.close();
            }
        }
        copied
    }

    /// The chunk being written to, if any.
    #[must_use]
    pub fn chunk(&self) -> Option<&Holding> {
        self.open
            .back()
            .filter(|_| self.is_writing)
            .map(|file| &file.chunk)
    }

    /// Whether beginning the tracefile with this number replaces an older one.
    #[must_use]
    pub fn replaces(&self, number: u64) -> bool {
        self.layout
            .limits
            .is_some_and(|limits| limits.count.is_some())
            && number <= self.number
    }

    /// The number of the tracefile that a packet of so many sent bytes is to begin, if it does not
    /// fit the current one.
    #[must_use]
    pub fn next_number(&self, data_size: u32) -> Option<u64> {
        let limits = self.layout.limits?;
        let size = self.open.back()?.data.size();
        let fits = size.0.saturating_add(u64::from(data_size)) <= limits.size.0;
        // A packet that is larger than a whole file gets one of its own.
        if fits || size == Bytes(0) {
            return None;
        }
        let next = self.number + 1;
        Some(limits.count.map_or(next, |count| next % count.max(1)))
    }

    /// Begins the tracefile with this number, in place of an older one if there is one.
    ///
    /// # Errors
    /// If it cannot be made.
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
    /// As the system says.
    pub fn append_payload(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.write(|data| data.append(bytes))
    }

    /// Writes the last bytes of the packet and so many zeros.
    ///
    /// # Errors
    /// As the system says. The packet is not whole then.
    pub fn finish_packet(&mut self, bytes: &[u8], padding: u32) -> Result<PacketPlace, StoreError> {
        let extent = self.write(|data| data.finish_packet(bytes, padding))?;
        // A packet of no bytes has no index: that would be a beacon.
        if self.layout.index_format.is_some()
            && extent.len > Bytes(0)
            && let Some(file) = self.open.back_mut()
        {
            file.unindexed += 1;
        }
        Ok(PacketPlace {
            file: self.first_open + self.open.len() as u64 - 1,
            extent,
        })
    }

    /// Drops the packet in flight.
    pub fn drop_packet(&mut self) {
        if let Some(file) = self.open.back_mut() {
            file.data.drop_packet();
        }
    }

    /// Writes the entries of packets that lie in the same tracefile. Gives the segment that they belong
    /// to; none if another tracefile has replaced theirs. Then the packets are gone, nothing is written,
    /// and neither name may be used for them: both are those of the newer files.
    ///
    /// # Errors
    /// As the system says, and for a stream that has no indexes.
    pub fn write_entries(
        &mut self,
        place: &PacketPlace,
        packets: impl Iterator<Item = (PacketPlace, PacketIndex)>,
    ) -> Result<Option<Arc<Segment>>, StoreError> {
        let format = self.layout.index_format;
        let at = self.file_of(place);
        let file = at.and_then(|at| self.open.get_mut(at));
        let Some((file, format)) = file.zip(format) else {
            let none = io::Error::other("the packet's file has been closed");
            return Err(StoreError::on("index", self.layout.directory.as_ref())(
                none,
            ));
        };
        let entry = |(place, packet): (PacketPlace, PacketIndex)| Entry {
            offset: place.extent.offset,
            packet,
        };
        let entries: Vec<_> = packets.map(entry).collect();
        let segment = match file.is_replaced {
            true => None,
            false => Some(file.append_entries(&self.pool, &self.slot, format, &entries)?),
        };
        file.unindexed -= entries.len();
        self.close_indexed();
        Ok(segment)
    }

    /// Gives up the packets without an index, because no more will come. Gives how many there are.
    pub fn give_up_indexes(&mut self) -> usize {
        let unindexed = self
            .open
            .iter_mut()
            .map(|file| std::mem::take(&mut file.unindexed))
            .sum();
        self.close_indexed();
        unindexed
    }

    /// Puts a beacon at the end of the current index file.
    ///
    /// # Errors
    /// As the system says.
    pub fn write_beacon(&mut self, until: Timestamp) -> Result<(), StoreError> {
        match (self.layout.index_format, self.open.back_mut()) {
            (Some(format), Some(file)) if self.is_writing => {
                file.write_beacon(&self.pool, format, until)
            }
            _ => Ok(()),
        }
    }

    fn begin_file(&mut self, chunk: Holding) -> Result<(), StoreError> {
        let limited = self.layout.limits.map(|_| self.number);
        let long_name = |error: NameError| io::Error::other(error);
        let directory: &Path = self.layout.directory.as_ref();
        let failed = || StoreError::on("name", directory);
        let data_name = self
            .layout
            .data_name(limited)
            .map_err(long_name)
            .map_err(failed())?;
        let index_name = data_name
            .with_suffix(".idx")
            .map_err(long_name)
            .map_err(failed())?;
        let index_directory = directory.join(INDEX_DIRECTORY);
        for older in &mut self.open {
            // It waits for indexes, and needs no protection from ourselves.
            if older.chunk.is(&chunk) && older.number == self.number {
                older.is_replaced = true;
                older.data.give_up_name();
            }
        }
        let data = ReopenableFile::create(&self.pool, chunk.chunk(), directory, &data_name)?;
        self.pool.clock.add_slot(&self.slot);
        if self.layout.index_format.is_some() {
            // That of the tracefile that this one replaces.
            chunk.with_path(&index_directory.join(&index_name), remove_file)?;
        }
        let index = (index_directory, index_name);
        let writer = SegmentWriter::new(chunk, self.number, data, index);
        self.open.push_back(writer);
        self.is_writing = true;
        self.close_indexed();
        Ok(())
    }

    /// Closes the files that nothing is to be added to.
    fn close_indexed(&mut self) {
        let kept = usize::from(self.is_writing);
        while self.open.len() > kept && self.open.front().is_some_and(|file| file.unindexed == 0) {
            if let Some(file) = self.open.pop_front() {
                // The place of a packet counts the files that were closed before its own.
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
                self.slot.mark_used();
                if file.data.position() == 0
                    && let Some(format) = self.layout.index_format
                {
                    file.begin_index(&self.pool, format)?;
                }
                file.open_data(&self.pool, &self.slot)?;
                write(&mut file.data).map_err(|error| file.data_error(error))
            }
            _ => {
                let none = io::Error::other("the stream is in no chunk");
                Err(StoreError::on("write", self.layout.directory.as_ref())(
                    none,
                ))
            }
        }
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
        self.finish_packet(&[], 0)
    }

    /// Position of a packet's tracefile among the open files.
    fn file_of(&self, place: &PacketPlace) -> Option<usize> {
        usize::try_from(place.file.checked_sub(self.first_open)?).ok()
    }
}
