//! The files of a stream that a relay before this one has written: which packets they have, and how
//! they continue.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::Arc;

use ctf::index::{Entry, IndexFormat};
use wire::{Bytes, ClassId, FileName, Timestamp};

use super::{INDEX_DIRECTORY, StreamFiles, StreamLayout};
use crate::limits::MAX_TRACEFILES;
use crate::store::chunk::Holding;
use crate::store::pool::Pool;
use crate::store::reopenable_file::ReopenableFile;
use crate::store::repair::index::{Follows, format_of, valid_entries};
use crate::store::segment::Segment;
use crate::store::segment_writer::SegmentWriter;
use crate::store::session_log::FilePosition;
use crate::store::sync::file::{SyncOrder, SyncStatus};
use crate::store::{StoreError, disk, remove_file};

/// The files of a stream that was restored.
#[derive(Debug)]
pub struct RestoredFiles {
    /// The files, to which the next packet is appended.
    pub files: StreamFiles,
    /// Position of the next packet.
    pub end: FilePosition,
    /// The packets that viewers may read, by tracefile, oldest first.
    pub runs: Vec<RestoredRun>,
    /// Latest time in any entry.
    pub latest: Timestamp,
}

/// The tracefiles that a stream had, by their numbers among all that it had.
#[derive(Debug, Clone, Copy)]
pub struct TracefileRange {
    /// All packets before this tracefile have their entries.
    pub first: u64,
    /// The last tracefile that is known to have been begun.
    pub last: u64,
    /// A tracefile without packets, which was to replace an older one. Perhaps that one still has
    /// the name.
    pub replacing: Option<u64>,
}

/// The packets in one tracefile.
#[derive(Debug)]
pub struct RestoredRun {
    /// Number of the tracefile among all that the stream has had.
    pub file: u64,
    /// The tracefile and its index file, for viewers.
    pub segment: Arc<Segment>,
    /// Number of packets that have an entry.
    pub packets: u64,
    /// Class of the stream.
    pub class: ClassId,
    /// End of the last packet in the tracefile.
    pub end: Bytes,
}

/// The files of one tracefile, and the entries whose packets are whole.
struct RestoredPair {
    data: ReopenableFile,
    index: Option<ReopenableFile>,
    entries: u64,
    /// The last of the entries.
    last: Option<Entry>,
}

impl StreamFiles {
    /// Restores the files of a stream that had these tracefiles. Everything without an entry is
    /// removed.
    ///
    /// # Errors
    /// If a file cannot be read or changed, or another stream or relay writes it.
    pub fn restore(
        layout: StreamLayout,
        pool: &Arc<Pool>,
        chunk: Holding,
        range: TracefileRange,
        sync: Arc<SyncStatus>,
    ) -> Result<RestoredFiles, StoreError> {
        let count = layout.limits.and_then(|limits| limits.count);
        // The tracefiles whose names do not belong to newer ones by now.
        let kept = count
            .map_or(u64::MAX, |count| count.max(1))
            // Viewers would not see more of them.
            .min(MAX_TRACEFILES as u64);
        let mut files = Self {
            layout,
            pool: Arc::clone(pool),
            slot: Arc::default(),
            sync,
            open: VecDeque::new(),
            first_open: 0,
            is_writing: false,
            number: 0,
        };
        let first = range.first;
        let last = match range.replacing {
            Some(file) if !files.has_entries(&chunk, file)? => file,
            _ => range.last,
        };
        files.remove_unlogged(&chunk, last + 1, count)?;
        let oldest = (last + 1).saturating_sub(kept);
        files.first_open = first.max(oldest);
        let mut current = None;
        for file in (first.max(oldest)..=last).rev() {
            let pair = files.open_pair(&chunk, file)?;
            // The oldest is continued even without entries, because a stream needs a tracefile.
            if file == files.first_open || pair.as_ref().is_some_and(|pair| pair.entries > 0) {
                current = Some((file, pair));
                break;
            }
            // Its packets have no entries, and will be sent again.
            files.remove_pair(&chunk, file)?;
        }
        let Some((file, pair)) = current else {
            return Err(files.error("restore", "there is no tracefile"));
        };
        let (mut runs, mut latest) = (Vec::new(), Timestamp(0));
        for older in oldest..file {
            if let Some(pair) = files.open_pair(&chunk, older)? {
                pair.complete(files.layout.index_format)?;
                runs.extend(files.run(&pair, older, &mut latest));
            }
        }
        files.first_open = file;
        files.number = files.number_of(file);
        let packets = pair.as_ref().map_or(0, |pair| pair.entries);
        match pair {
            None => files.begin_file(chunk)?,
            Some(pair) => runs.extend(files.continue_file(chunk, pair, &mut latest)?),
        }
        // A producer may resume the stream late, or never.
        files.close_files();
        Ok(RestoredFiles {
            files,
            end: FilePosition { file, packets },
            runs,
            latest,
        })
    }

    /// Number in the name of a tracefile.
    fn number_of(&self, file: u64) -> u64 {
        let limits = self.layout.limits;
        limits.map_or(0, |limits| {
            limits.count.map_or(file, |count| file % count.max(1))
        })
    }

    fn names(&self, file: u64) -> Result<(FileName, FileName), StoreError> {
        let number = self.layout.limits.map(|_| self.number_of(file));
        let directory: &Path = self.layout.directory.as_ref();
        let failed = |error| StoreError::on("name files in", directory)(io::Error::other(error));
        let data = self.layout.data_name(number).map_err(failed)?;
        let index = data.with_suffix(".idx").map_err(failed)?;
        Ok((data, index))
    }

    /// Removes a tracefile without entries that was begun before the log said so: its first packet
    /// will be sent again, or was dropped. In a ring, the log says first which older tracefile is
    /// replaced.
    fn remove_unlogged(
        &self,
        chunk: &Holding,
        file: u64,
        count: Option<u64>,
    ) -> Result<(), StoreError> {
        let is_new_name = self.layout.limits.is_some() && count.is_none_or(|count| file < count);
        if is_new_name && !self.has_entries(chunk, file)? {
            self.remove_pair(chunk, file)?;
        }
        Ok(())
    }

    /// Whether the index file of a tracefile, or of the older one that still has its name, has an
    /// entry.
    fn has_entries(&self, chunk: &Holding, file: u64) -> Result<bool, StoreError> {
        let pair = self.open_pair(chunk, file)?;
        Ok(pair.is_some_and(|pair| pair.entries > 0))
    }

    fn remove_pair(&self, chunk: &Holding, file: u64) -> Result<(), StoreError> {
        let (data, index) = self.names(file)?;
        let directory: &Path = self.layout.directory.as_ref();
        chunk.with_path(&directory.join(data), remove_file)?;
        chunk.with_path(&directory.join(INDEX_DIRECTORY).join(index), remove_file)
    }

    /// Opens a tracefile and its index file. None: the tracefile does not exist.
    fn open_pair(&self, chunk: &Holding, file: u64) -> Result<Option<RestoredPair>, StoreError> {
        let (data_name, index_name) = self.names(file)?;
        let directory: &Path = self.layout.directory.as_ref();
        let index_directory = directory.join(INDEX_DIRECTORY);
        let Some(data) = ReopenableFile::open(
            &self.pool,
            chunk.chunk(),
            directory,
            &data_name,
            SyncOrder::Data,
            &self.sync,
        )?
        else {
            return Ok(None);
        };
        let index = ReopenableFile::open(
            &self.pool,
            chunk.chunk(),
            &index_directory,
            &index_name,
            SyncOrder::Index,
            &self.sync,
        )?;
        let mut pair = RestoredPair {
            data,
            index,
            entries: 0,
            last: None,
        };
        let counted = pair.count_entries(self.layout.index_format);
        counted.map_err(StoreError::on(
            "read the index of",
            &directory.join(&data_name),
        ))?;
        Ok(Some(pair))
    }

    fn run(&self, pair: &RestoredPair, file: u64, latest: &mut Timestamp) -> Option<RestoredRun> {
        let (index, last) = pair.index.as_ref().zip(pair.last.as_ref())?;
        *latest = (*latest).max(last.packet.end);
        Some(RestoredRun {
            file,
            segment: Arc::new(Segment::new(
                self.number_of(file),
                &pair.data,
                Some((index, self.layout.index_format?)),
            )),
            packets: pair.entries,
            class: last.packet.class,
            end: end_of(last),
        })
    }

    fn continue_file(
        &mut self,
        chunk: Holding,
        pair: RestoredPair,
        latest: &mut Timestamp,
    ) -> Result<Option<RestoredRun>, StoreError> {
        let run = self.run(&pair, self.first_open, latest);
        let mut writer = SegmentWriter::new(chunk, self.number, &self.slot, pair.data);
        let segment = run.as_ref().map(|run| Arc::clone(&run.segment));
        let end = pair.last.as_ref().map_or(Bytes(0), end_of);
        let index = pair.index.zip(self.layout.index_format);
        writer.restore(index, segment, pair.entries, end)?;
        self.pool.clock.add_slot(&self.slot);
        self.push_writer(writer);
        Ok(run)
    }
}

impl RestoredPair {
    /// Removes what follows the last entry and its packet, because nothing will be appended: the
    /// relay may have died before it removed the beacon.
    fn complete(&self, format: Option<IndexFormat>) -> Result<(), StoreError> {
        let Some((index, format)) = self.index.as_ref().zip(format) else {
            return Ok(());
        };
        let Some(last) = &self.last else {
            return index.location().remove();
        };
        truncate(index, format.position(self.entries))?;
        truncate(&self.data, end_of(last).0)
    }

    /// Counts the entries, all of which the repair has found to have their packets.
    fn count_entries(&mut self, format: Option<IndexFormat>) -> io::Result<()> {
        let Some((index, format)) = self.index.as_ref().zip(format) else {
            return Ok(());
        };
        let data_len = self.data.opened()?.metadata()?.len();
        let file = index.opened()?;
        // None: the relay died before it wrote the header.
        let Some(found) = format_of(file)? else {
            return Ok(());
        };
        if found != format {
            return Err(io::Error::other("it has another format"));
        }
        let valid = valid_entries(file, format, data_len)?;
        if let Follows::Invalid(reason) = valid.follows {
            return Err(io::Error::other(reason));
        }
        (self.entries, self.last) = (valid.count, valid.last);
        Ok(())
    }
}

/// Truncates a file that is longer than `len` bytes.
fn truncate(file: &ReopenableFile, len: u64) -> Result<(), StoreError> {
    let truncated = file.opened().and_then(|opened| {
        if opened.metadata()?.len() <= len {
            return Ok(());
        }
        disk::set_len(opened, len)?;
        file.mark_written(0);
        Ok(())
    });
    truncated.map_err(StoreError::on("truncate", file.location().path()))
}

/// End of the packet of an entry in its tracefile.
fn end_of(entry: &Entry) -> Bytes {
    let size = entry.packet.packet_size.to_bytes().unwrap_or_default();
    Bytes(entry.offset.0.saturating_add(size.0))
}
