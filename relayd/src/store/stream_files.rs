//! The files of one stream: the tracefile being written, those before it that still wait for
//! indexes, and when the next one begins.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ctf::index::{Entry, IndexFormat};
use tracing::warn;
use wire::{Bytes, FileName, NameError, PacketIndex, Timestamp, TracePath};

use super::chunk::Holding;
use super::index_file::IndexFile;
use super::segment::Segment;
use super::tracefile::{Extent, Tracefile};
use super::{StoreError, remove_file};

/// Packets are moved in pieces of so many bytes.
const COPY_BYTES: usize = 64 << 10;

/// Directory of index files beside the tracefiles.
const INDEX_DIRECTORY: &str = "index";

/// How far a stream's tracefiles may grow, and how many are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TracefileLimits {
    /// No packet is written beyond this size, unless it is the only one in its file.
    pub size: Bytes,
    /// So many are kept. None: all.
    pub count: Option<u64>,
}

/// Names and sizes of a stream's files.
#[derive(Debug, Clone)]
pub struct StreamLayout {
    /// Directory below the chunk.
    pub directory: TracePath,
    /// Name of the tracefile, to which a number is added if there may be several.
    pub name: FileName,
    /// If there may be several.
    pub limits: Option<TracefileLimits>,
    /// Form of the index files. None: the producer sends no indexes.
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

/// The files of one stream. In no chunk, it has none to write to.
#[derive(Debug)]
pub struct StreamFiles {
    layout: StreamLayout,
    /// The last is being written, if any is; those before it wait for indexes.
    open: VecDeque<OpenFile>,
    /// Number of the first of them among all that the stream has had.
    first_open: u64,
    is_writing: bool,
    /// Which tracefile of the chunk is being written.
    number: u64,
}

/// A tracefile and its index file.
#[derive(Debug)]
struct OpenFile {
    chunk: Holding,
    number: u64,
    /// Below the chunk.
    data_path: PathBuf,
    index_path: PathBuf,
    index_name: FileName,
    data: Tracefile,
    index: Index,
    /// From the first entry on.
    segment: Option<Arc<Segment>>,
    /// Packets that have been written and have no entry yet.
    unindexed: usize,
}

/// The index file of a tracefile.
#[derive(Debug)]
enum Index {
    /// There is nothing to say yet.
    None,
    /// It is there for the sake of a beacon, and not open: a stream that is idle costs no file
    /// descriptor for it.
    BeaconOnly,
    /// It has entries.
    Open(IndexFile),
}

/// Where a packet was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// In which of the tracefiles that the stream has had.
    file: u64,
    /// Where in that.
    extent: Extent,
}

impl Place {
    /// Whether both lie in the same tracefile.
    #[must_use]
    pub fn is_beside(&self, other: &Self) -> bool {
        self.file == other.file
    }

    /// How long the packet is.
    #[must_use]
    pub fn packet_len(&self) -> Bytes {
        self.extent.len
    }
}

impl StreamFiles {
    /// Makes the stream's first tracefile.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn create(layout: StreamLayout, chunk: Holding) -> Result<Self, StoreError> {
        let (open, first_open) = (VecDeque::new(), 0);
        let mut files = Self {
            layout,
            open,
            first_open,
            is_writing: false,
            number: 0,
        };
        files.enter(chunk)?;
        Ok(files)
    }

    /// Begins to write to a chunk.
    ///
    /// # Errors
    /// If the tracefile cannot be made. Nothing can be written then.
    pub fn enter(&mut self, chunk: Holding) -> Result<(), StoreError> {
        self.number = 0;
        self.is_writing = false;
        self.begin_file(chunk)
    }

    /// Stops writing to the chunk. Files that wait for indexes stay until they have them.
    pub fn leave(&mut self) {
        self.is_writing = false;
        self.close_indexed();
    }

    /// Leaves the chunk for another and takes these packets along: the last that were written, in
    /// order, none of them indexed.
    ///
    /// # Errors
    /// If a file of the other chunk cannot be made or written.
    pub fn carry_over<'a>(
        &mut self,
        packets: impl Iterator<Item = &'a mut Place>,
        chunk: Holding,
    ) -> Result<(), StoreError> {
        self.enter(chunk)?;
        // Where the first packet that goes lies, in each file.
        let mut cuts: Vec<Place> = Vec::new();
        for place in packets {
            let Some(from) = self.file_of(place) else {
                continue;
            };
            from.unindexed -= 1;
            let bytes = Arc::clone(from.data.file());
            if cuts.last().is_none_or(|cut| cut.file != place.file) {
                cuts.push(*place);
            }
            *place = self.copy(&bytes, place.extent)?;
        }
        for cut in cuts {
            if let Some(from) = self.file_of(&cut) {
                from.data.cut(cut.extent.offset);
            }
        }
        self.close_indexed();
        Ok(())
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
        self.number = number;
        self.begin_file(chunk)
    }

    /// Writes the next bytes of the packet under way.
    ///
    /// # Errors
    /// As the system says.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.write(|data| data.append(bytes))
    }

    /// Writes the last bytes of the packet and so many zeros.
    ///
    /// # Errors
    /// As the system says. The packet is not whole then.
    pub fn finish(&mut self, bytes: &[u8], padding: u32) -> Result<Place, StoreError> {
        let extent = self.write(|data| data.finish(bytes, padding))?;
        // A packet of no bytes has no index: that would be a beacon.
        if self.layout.index_format.is_some()
            && extent.len > Bytes(0)
            && let Some(file) = self.open.back_mut()
        {
            file.unindexed += 1;
        }
        Ok(Place {
            file: self.first_open + self.open.len() as u64 - 1,
            extent,
        })
    }

    /// Forgets the packet under way.
    pub fn abandon(&mut self) {
        if let Some(file) = self.open.back_mut() {
            file.data.abandon();
        }
    }

    /// Writes the entries of packets that lie in the same tracefile. Gives the segment that they belong
    /// to.
    ///
    /// # Errors
    /// As the system says, and for a stream that has no indexes.
    pub fn index(
        &mut self,
        place: &Place,
        packets: impl Iterator<Item = (Place, PacketIndex)>,
    ) -> Result<Arc<Segment>, StoreError> {
        let format = self.layout.index_format;
        let Some((file, format)) = self.file_of(place).zip(format) else {
            let none = io::Error::other("the packet's file has been closed");
            return Err(StoreError::on("index", self.layout.directory.as_ref())(
                none,
            ));
        };
        let entry = |(place, packet): (Place, PacketIndex)| Entry {
            offset: place.extent.offset,
            packet,
        };
        let entries: Vec<_> = packets.map(entry).collect();
        let segment = file.append_entries(format, &entries)?;
        file.unindexed -= entries.len();
        self.close_indexed();
        Ok(segment)
    }

    /// No more indexes will come. Gives how many packets have none.
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
    pub fn beacon(&mut self, until: Timestamp) -> Result<(), StoreError> {
        match (self.layout.index_format, self.open.back_mut()) {
            (Some(format), Some(file)) if self.is_writing => file.beacon(format, until),
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
        let index_path = directory.join(INDEX_DIRECTORY).join(&index_name);
        let data = Tracefile::new(chunk.create_file(directory, &data_name)?);
        if self.layout.index_format.is_some() {
            // That of the tracefile that this one replaces.
            chunk.with_path(&index_path, remove_file)?;
        }
        self.open.push_back(OpenFile {
            data_path: directory.join(&data_name),
            chunk,
            number: self.number,
            index_path,
            index_name,
            data,
            index: Index::None,
            segment: None,
            unindexed: 0,
        });
        self.is_writing = true;
        self.close_indexed();
        Ok(())
    }

    /// Closes the files that nothing is to be added to.
    fn close_indexed(&mut self) {
        let kept = usize::from(self.is_writing);
        while self.open.len() > kept && self.open.front().is_some_and(|file| file.unindexed == 0) {
            if let Some(file) = self.open.pop_front() {
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
                write(&mut file.data).map_err(StoreError::on("write", &file.data_path))
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
    fn copy(&mut self, from: &File, packet: Extent) -> Result<Place, StoreError> {
        let mut buffer = vec![0; COPY_BYTES];
        let mut at = packet.offset.0;
        while at < packet.end().0 {
            let left = usize::try_from(packet.end().0 - at).unwrap_or(usize::MAX);
            let (piece, _) = buffer.split_at_mut(left.min(COPY_BYTES));
            from.read_exact_at(piece, at)
                .map_err(StoreError::on("read", self.layout.directory.as_ref()))?;
            self.append(piece)?;
            at += piece.len() as u64;
        }
        self.finish(&[], 0)
    }

    fn file_of(&mut self, place: &Place) -> Option<&mut OpenFile> {
        let at = usize::try_from(place.file.checked_sub(self.first_open)?).ok()?;
        self.open.get_mut(at)
    }
}

impl OpenFile {
    fn open_index(&mut self, format: IndexFormat) -> Result<&mut IndexFile, StoreError> {
        let there = match self.index {
            Index::BeaconOnly => self.chunk.open_file(&self.index_path).ok(),
            Index::None | Index::Open(_) => None,
        };
        if !matches!(self.index, Index::Open(_)) {
            self.index = Index::Open(match there {
                Some(file) => IndexFile::resume(file, format),
                None => {
                    let directory = self.index_path.parent().unwrap_or(&self.index_path);
                    let file = self.chunk.create_file(directory, &self.index_name)?;
                    let begun = IndexFile::begin(file, format);
                    begun.map_err(StoreError::on("write", &self.index_path))?
                }
            });
        }
        match &mut self.index {
            Index::Open(index) => Ok(index),
            Index::None | Index::BeaconOnly => unreachable!("it has just been opened"),
        }
    }

    fn append_entries(
        &mut self,
        format: IndexFormat,
        entries: &[Entry],
    ) -> Result<Arc<Segment>, StoreError> {
        let index = self.open_index(format)?;
        let appended = index.append(entries);
        let index = Arc::clone(index.file());
        appended.map_err(StoreError::on("write", &self.index_path))?;
        let segment = self.segment.get_or_insert_with(|| {
            let paths = (self.data_path.clone(), self.index_path.clone());
            let files = (self.data.file(), &index);
            Arc::new(Segment::new(
                self.chunk.chunk(),
                self.number,
                paths,
                format,
                files,
            ))
        });
        Ok(Arc::clone(segment))
    }

    fn beacon(&mut self, format: IndexFormat, until: Timestamp) -> Result<(), StoreError> {
        let index = self.open_index(format)?;
        let written = index.beacon(until);
        let is_all = index.is_empty();
        written.map_err(StoreError::on("write", &self.index_path))?;
        if is_all {
            self.index = Index::BeaconOnly;
        }
        Ok(())
    }

    fn close(mut self) {
        let closed = match &mut self.index {
            Index::None => Ok(()),
            Index::BeaconOnly => self.chunk.with_path(&self.index_path, remove_file),
            Index::Open(index) => index
                .end()
                .map_err(StoreError::on("write", &self.index_path)),
        };
        if let Err(error) = closed {
            warn!(%error, "a beacon stays behind");
        }
    }
}
