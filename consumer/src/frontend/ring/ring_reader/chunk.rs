//! A piece of a ring in the reader's memory, and how far the walk over its records has come.

use trace_ring_core::format::Records;

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
    /// The records of the chunk, whose bytes are in `buffer`.
    #[must_use]
    pub fn records<'a>(&self, buffer: &'a [u8]) -> Records<'a> {
        Records::new(buffer, self.begin)
    }
}

/// How the walk over the records of a chunk has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ChunkEnd {
    /// Position behind the last whole record.
    pub position: u64,
    /// Number of records.
    pub events: u64,
    /// Whether the bytes at the position are no record.
    pub is_damaged: bool,
}
