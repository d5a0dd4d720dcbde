//! Reads `meta`: who the process is, and the classes of its events, as the file grows.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use thiserror::Error;
use trace_ring_core::format::{
    EventClass, FormatError, MAX_META_RECORD_SIZE, META_HEADER_SIZE, META_LOST_OFFSET,
    META_RECORD_HEADER_SIZE, MetaHeader, MetaRecords,
};

use super::user_budget::ProcessBudget;
use crate::limits::MAX_RING_META_BYTES;

/// Bytes of records that are read at a time: some of usual size, and at least one of any.
const CHUNK_BYTES: u64 = (META_RECORD_HEADER_SIZE + MAX_META_RECORD_SIZE) as u64 * 2;

/// Offset of the part of `lost_no_ring` that the drainer has reported, a u64. Written by the
/// drainer only, for the next one.
pub(super) const META_REPORTED_LOST_OFFSET: usize = META_LOST_OFFSET + 64;

/// `meta` cannot be used.
#[derive(Debug, Error)]
pub enum MetaFault {
    /// The system does not read the file.
    #[error("cannot read meta: {0}")]
    Read(#[from] io::Error),
    /// The header is malformed.
    #[error(transparent)]
    Format(#[from] FormatError),
}

/// The reader of one process's `meta`.
#[derive(Debug)]
pub struct MetaReader {
    file: File,
    header: MetaHeader,
    classes: HashMap<u32, EventClass>,
    /// Bytes of records that have been read.
    read: u64,
    /// Records that were refused.
    refused: u64,
    /// Whether the user has no memory for further classes.
    is_full: bool,
    /// The part of `lost_no_ring` that is reported.
    reported_lost: u64,
}

impl MetaReader {
    /// Reads the header and the first records, whose memory is taken from the budget.
    ///
    /// # Errors
    /// If the header cannot be read or is malformed.
    pub fn open(file: File, budget: &mut ProcessBudget) -> Result<Self, MetaFault> {
        let mut reader = Self::open_header(file)?;
        reader.read_classes(budget)?;
        Ok(reader)
    }

    /// Reads the header only.
    ///
    /// # Errors
    /// If it cannot be read or is malformed.
    pub fn open_header(file: File) -> Result<Self, MetaFault> {
        let header = read_header(&file)?;
        let mut reported_lost = [0; 8];
        read_at_most(&file, &mut reported_lost, META_REPORTED_LOST_OFFSET as u64)?;
        Ok(Self {
            file,
            header,
            classes: HashMap::new(),
            read: 0,
            refused: 0,
            is_full: false,
            reported_lost: u64::from_le_bytes(reported_lost),
        })
    }

    /// Returns the open file, on which the process holds a lock for as long as it lives.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Returns the header as it was first read, with the lost events and the clock offset of the
    /// last update.
    #[must_use]
    pub fn header(&self) -> &MetaHeader {
        &self.header
    }

    /// Returns a class of events.
    #[must_use]
    pub fn class(&self, id: u32) -> Option<&EventClass> {
        self.classes.get(&id)
    }

    /// Returns the number of records that were refused.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Whether the process has more classes than its user may have in memory: later ones are not
    /// known.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// Returns the lost events of no ring that no drainer has reported, as of the last update; they
    /// count as reported from now on.
    pub fn take_lost(&mut self) -> u64 {
        let lost = self.header.lost_no_ring;
        let new = lost.saturating_sub(self.reported_lost);
        self.reported_lost = self.reported_lost.max(lost);
        new
    }

    /// Returns the number of lost events of no ring that are reported.
    #[must_use]
    pub fn reported_lost(&self) -> u64 {
        self.reported_lost
    }

    /// Tells the next drainer how many lost events of no ring are reported. The file is open for
    /// writing.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn release_lost(&self, reported: u64) -> io::Result<()> {
        let word = reported.to_le_bytes();
        self.file
            .write_all_at(&word, META_REPORTED_LOST_OFFSET as u64)
    }

    /// Reads what the process has added, whose memory is taken from the budget.
    ///
    /// # Errors
    /// If the file cannot be read, or its header has become malformed.
    pub fn update(&mut self, budget: &mut ProcessBudget) -> Result<(), MetaFault> {
        let header = read_header(&self.file)?;
        // Neither number goes back in a process that keeps to the format.
        self.header.committed = header.committed.max(self.header.committed);
        self.header.lost_no_ring = header.lost_no_ring.max(self.header.lost_no_ring);
        self.header.clock_offset = header.clock_offset;
        self.read_classes(budget)
    }

    /// Reads records up to the committed length, or to the first one that cannot be true. The
    /// number of records is bounded by the length, and each is bounded by the format. Nothing is
    /// read after the budget was too small.
    fn read_classes(&mut self, budget: &mut ProcessBudget) -> Result<(), MetaFault> {
        let committed = self.header.committed.min(MAX_RING_META_BYTES);
        let mut buffer = Vec::new();
        while self.read < committed && !self.is_full {
            let length = (committed - self.read).min(CHUNK_BYTES);
            buffer.resize(usize::try_from(length).unwrap_or(0), 0);
            let got = read_at_most(&self.file, &mut buffer, META_HEADER_SIZE as u64 + self.read)?;
            let mut records = MetaRecords::new(buffer.get(..got).unwrap_or_default());
            for record in &mut records {
                match record {
                    // The first declaration counts: events may have been written with it.
                    Ok(class) if self.classes.contains_key(&class.id) => {}
                    Ok(class) if budget.take_class(&class) => {
                        self.classes.insert(class.id, class);
                    }
                    Ok(_) => {
                        self.is_full = true;
                        return Ok(());
                    }
                    Err(_) => self.refused += 1,
                }
            }
            let passed = records.consumed() as u64;
            // The process has not written the rest of the record yet, or never will.
            if passed == 0 {
                break;
            }
            self.read += passed;
        }
        Ok(())
    }
}

/// Reads the header. The writer changes three of its words while it is read; each is used as it is.
fn read_header(file: &File) -> Result<MetaHeader, MetaFault> {
    let mut bytes = [0; META_HEADER_SIZE];
    let got = read_at_most(file, &mut bytes, 0)?;
    Ok(MetaHeader::decode(bytes.get(..got).unwrap_or_default())?)
}

/// Reads up to the end of the buffer or of the file.
pub(crate) fn read_at_most(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut got = 0;
    while let Some(rest) = buffer.get_mut(got..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset.saturating_add(got as u64)) {
            Ok(0) => break,
            Ok(bytes) => got += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}
