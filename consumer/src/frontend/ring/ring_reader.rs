//! Reads one ring file. Every byte of it may be wrong at any time: the reader copies pieces into
//! its own memory (`pread`, never `mmap`), checks the copies, and keeps its position to itself.
//!
//! The order of a turn: [`RingReader::update`] reads the control words; [`RingReader::read_chunk`]
//! copies the next piece of at most one sub-buffer; the caller walks its records and reports the
//! end of the walk to [`RingReader::finish_chunk`]. In overwrite mode the writer may change the
//! bytes during the copy: `reserve` is read again afterwards, and what is overwritten by then is
//! dropped, as in a seqlock.

mod chunk;
mod control;
mod overwritten;

use std::fs::File;
use std::io;

use thiserror::Error;
use trace_ring_core::format::{
    END_MARK, FormatError, MIN_RECORD_SIZE, Mode, RING_HEADER_SIZE, RingControl, RingHeader,
};

use super::meta_reader::read_at_most;
use crate::limits::RING_TURN_BYTES;
pub use chunk::{Chunk, ChunkEnd, ChunkRecords};
use control::{EVENTS_OFFSET, REPORTED_LOST_OFFSET, word};

/// Attempts to read the control words until two copies agree, and to copy a piece that is not being
/// overwritten.
const READ_ATTEMPTS: usize = 4;

/// A ring cannot be read, or not any further.
#[derive(Debug, Error)]
pub enum RingFault {
    /// The system does not read the file.
    #[error("cannot read the ring: {0}")]
    Read(#[from] io::Error),
    /// The header is malformed.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The file has another size than its header says, or another number than its name.
    #[error("the file does not match its header")]
    Mismatch,
    /// `commit` has gone back, or is further ahead than the ring is large.
    #[error("commit {commit} is not possible after {before}")]
    Commit {
        /// The value that was read.
        commit: u64,
        /// The last value that was possible.
        before: u64,
    },
}

/// What a reader is to its ring, and where it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The only reader that the producer waits for. It begins at what no drainer has taken.
    Drainer,
    /// One of any number of readers beside the drainer, for which no producer waits. It begins at
    /// the oldest event in the ring, whether a drainer has taken it or not.
    Observer,
}

/// A point in a ring up to which events and losses are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RingPoint {
    /// Position in bytes since the ring was made.
    pub position: u64,
    /// Number of events that were committed before the position; `None` if a drainer has not
    /// counted them.
    pub events: Option<u64>,
    /// Number of lost events, by the ring's counters, that are reported.
    pub lost: u64,
}

/// The reader of one ring.
#[derive(Debug)]
pub struct RingReader {
    file: File,
    header: RingHeader,
    role: Role,
    point: RingPoint,
    /// Position at which the number of events was last known.
    counted_at: u64,
    commit: u64,
    reserve: u64,
    consumed: u64,
    lost: u64,
    is_ended: bool,
    is_frozen: bool,
    /// Position up to which the producer may write over what was read.
    released: u64,
    /// Bytes of the next chunk: more than usual while a record is longer.
    chunk_bytes: usize,
    damaged: u64,
}

impl RingReader {
    /// Checks the header of a ring file of `size` bytes.
    ///
    /// # Errors
    /// If the header cannot be read, is malformed, or does not match the file's size or number.
    pub fn open(file: File, size: u64, number: u32, role: Role) -> Result<Self, RingFault> {
        let mut bytes = [0; RING_HEADER_SIZE];
        let got = read_at_most(&file, &mut bytes, 0)?;
        let header = RingHeader::decode(bytes.get(..got).unwrap_or_default())?;
        if header.file_size() != size || header.number != number {
            return Err(RingFault::Mismatch);
        }
        let mut reader = Self {
            file,
            header,
            role,
            point: RingPoint::default(),
            counted_at: 0,
            commit: 0,
            reserve: 0,
            consumed: 0,
            lost: 0,
            is_ended: false,
            is_frozen: false,
            released: 0,
            chunk_bytes: RING_TURN_BYTES,
            damaged: 0,
        };
        reader.begin()?;
        Ok(reader)
    }

    fn begin(&mut self) -> Result<(), RingFault> {
        let bytes = self.read_control_bytes()?;
        let control = RingControl::decode(&bytes)?;
        let oldest = control.commit.saturating_sub(self.header.data_size());
        let consumed = control.consumed;
        // A flight recorder may have gone on by more than its size since a drainer has read it.
        let is_recorder = self.header.mode == Mode::Overwrite;
        let is_plausible = consumed <= control.commit && (is_recorder || consumed >= oldest);
        self.commit = oldest;
        match self.role {
            Role::Drainer if is_plausible => {
                let is_counted = consumed == 0 || word(&bytes, EVENTS_OFFSET) > 0;
                self.point = RingPoint {
                    position: consumed,
                    events: is_counted.then(|| word(&bytes, EVENTS_OFFSET)),
                    lost: word(&bytes, REPORTED_LOST_OFFSET),
                };
                self.commit = consumed;
            }
            // A word that cannot be true: what is left of the ring.
            Role::Drainer => {
                self.point.position = self.sub_buffer_from(oldest);
                self.point.events = (consumed == 0).then_some(0);
            }
            Role::Observer => {
                self.point.position = self.sub_buffer_from(oldest);
                self.point.events = (oldest == 0).then_some(0);
                self.point.lost = control.lost.total();
            }
        }
        self.counted_at = self.point.position;
        self.released = self.point.position;
        Ok(())
    }

    /// Returns the header of the file.
    #[must_use]
    pub fn header(&self) -> &RingHeader {
        &self.header
    }

    /// Returns how far the ring is read.
    #[must_use]
    pub fn point(&self) -> RingPoint {
        self.point
    }

    /// Returns the number of committed bytes that have not been read, as of the last update.
    #[must_use]
    pub fn unread(&self) -> u64 {
        self.commit.saturating_sub(self.point.position)
    }

    /// Returns the number of committed bytes that the producer may not overwrite yet, as of the
    /// last update.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.commit.saturating_sub(self.released)
    }

    /// Returns the number of committed bytes that no drainer has taken, as of the last update; the
    /// producer chooses the number.
    #[must_use]
    pub fn fill(&self) -> u64 {
        self.commit.saturating_sub(self.consumed)
    }

    /// Returns the number of bytes that were ever committed, as of the last update.
    #[must_use]
    pub fn committed(&self) -> u64 {
        self.commit
    }

    /// Returns the number of events that the ring's threads have given up, as of the last update.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Whether the thread of the ring had ended at the last update.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// Returns the number of pieces that were skipped because their bytes were no records.
    #[must_use]
    pub fn damaged(&self) -> u64 {
        self.damaged
    }

    /// Ends the updates: what is committed later is not read.
    pub fn freeze(&mut self) {
        self.is_frozen = true;
    }

    /// Reads the control words.
    ///
    /// # Errors
    /// If they cannot be read, or `commit` cannot be true.
    pub fn update(&mut self) -> Result<(), RingFault> {
        if self.is_frozen {
            return Ok(());
        }
        let Some(control) = self.read_control()? else {
            return Ok(());
        };
        let before = self.commit;
        let is_possible = control.commit >= before
            // Writers align records to 8 bytes.
            && control.commit % 8 == 0
            && (self.may_be_overwritten()
                || control.commit - before <= self.header.data_size().saturating_mul(2));
        if !is_possible {
            let commit = control.commit;
            return Err(RingFault::Commit { commit, before });
        }
        self.commit = control.commit;
        self.reserve = control.reserve;
        self.consumed = control.consumed;
        // Only upwards, as in a process that keeps to the format.
        self.lost = control.lost.total().max(self.lost);
        self.is_ended = control.is_ended;
        if !self.may_be_overwritten() && self.unread() > self.header.data_size() {
            let (commit, before) = (self.commit, self.point.position);
            return Err(RingFault::Commit { commit, before });
        }
        Ok(())
    }

    /// Returns the lost events that have not been reported; they count as reported from now on.
    pub fn take_lost(&mut self) -> u64 {
        let new = self.lost.saturating_sub(self.point.lost);
        self.point.lost = self.point.lost.max(self.lost);
        new
    }

    /// Copies the next committed bytes to `buffer`: at most one sub-buffer, and usually at most
    /// [`RING_TURN_BYTES`]. Returns `None` if there are none.
    ///
    /// # Errors
    /// If the file cannot be read, or is shorter than it was.
    pub fn read_chunk(&mut self, buffer: &mut Vec<u8>) -> Result<Option<Chunk>, RingFault> {
        for _ in 0..READ_ATTEMPTS {
            self.skip_overwritten();
            let begin = self.point.position;
            if begin >= self.commit {
                return Ok(None);
            }
            let sub_buffer_end = self.sub_buffer_end(begin);
            let end = self.commit.min(sub_buffer_end);
            let length = usize::try_from(end - begin).unwrap_or(usize::MAX);
            let taken = length.min(self.chunk_bytes);
            buffer.resize(taken, 0);
            if read_at_most(&self.file, buffer, self.header.offset_of(begin))? < taken {
                return Err(RingFault::Mismatch);
            }
            // Before the check below, which holds for the entry by that as well.
            let entry = self.read_entry(begin)?;
            if self.may_be_overwritten() && !self.is_still_whole(begin)? {
                continue;
            }
            return Ok(Some(Chunk {
                begin,
                overwritten: self.count_missing(begin, entry),
                sub_buffer_end,
                is_cut: taken < length,
            }));
        }
        Ok(None)
    }

    /// Takes over where the walk over a chunk, which is in `buffer`, has ended.
    pub fn finish_chunk(&mut self, chunk: &Chunk, buffer: &[u8], end: ChunkEnd) {
        self.chunk_bytes = RING_TURN_BYTES;
        let chunk_end = chunk.begin.saturating_add(buffer.len() as u64);
        // A `commit` in the middle of a padding, which no honest writer makes.
        let position = end.position.min(chunk_end);
        if let Some(events) = &mut self.point.events {
            *events = events.saturating_add(end.events);
        }
        self.counted_at = position;
        let offset = usize::try_from(position - chunk.begin).unwrap_or(usize::MAX);
        let rest = buffer.get(offset..).unwrap_or_default();
        if rest.is_empty() {
            self.point.position = position;
            return;
        }
        let is_mark = rest.first_chunk() == Some(&END_MARK.to_le_bytes());
        let is_tail = !chunk.is_cut
            && chunk_end == chunk.sub_buffer_end
            && rest.len() < MIN_RECORD_SIZE
            && !end.is_damaged;
        if is_mark || is_tail {
            self.point.position = chunk.sub_buffer_end;
        } else if chunk.is_cut && position > chunk.begin {
            self.point.position = position;
        } else if chunk.is_cut {
            // A record that is longer than the chunk: next time all of the sub-buffer.
            self.chunk_bytes = usize::MAX;
        } else {
            self.damaged += 1;
            self.point.position = chunk.sub_buffer_end;
        }
    }
}
