//! A piece of a ring in the reader's memory, and how far the walk over its records has come.

use trace_ring_core::format::{Record, Records};

/// A piece of one sub-buffer, copied to the caller's buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk {
    /// Position of its first byte.
    pub begin: u64,
    /// Events before it that were overwritten, or were skipped because bytes were damaged.
    pub overwritten: u64,
    /// Position of the end of its sub-buffer.
    pub(super) sub_buffer_end: u64,
    /// Whether committed bytes of the sub-buffer follow.
    pub(super) is_cut: bool,
}

impl Chunk {
    /// Returns the records of the chunk, whose bytes are in `buffer`.
    #[must_use]
    pub fn records<'a>(&self, buffer: &'a [u8]) -> ChunkRecords<'a> {
        ChunkRecords {
            records: Records::new(buffer, self.begin),
            events: 0,
            is_damaged: false,
        }
    }
}

/// A walk over the records of a chunk, which ends before bytes that are no record.
#[derive(Debug)]
pub struct ChunkRecords<'a> {
    records: Records<'a>,
    events: u64,
    is_damaged: bool,
}

impl<'a> Iterator for ChunkRecords<'a> {
    type Item = Record<'a>;

    fn next(&mut self) -> Option<Record<'a>> {
        if self.is_damaged {
            return None;
        }
        let record = self.records.next()?;
        match &record {
            Ok(_) => self.events += 1,
            Err(_) => self.is_damaged = true,
        }
        record.ok()
    }
}

impl ChunkRecords<'_> {
    /// Returns how far the walk has come.
    #[must_use]
    pub fn end(&self) -> ChunkEnd {
        ChunkEnd {
            position: self.records.position(),
            events: self.events,
            is_damaged: self.is_damaged,
        }
    }
}

/// How the walk over the records of a chunk has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkEnd {
    /// Position after the last whole record.
    pub position: u64,
    /// Number of records that the walk has passed.
    pub events: u64,
    /// Whether the bytes at the position are no record.
    pub is_damaged: bool,
}
