//! Reads one ring file. Every byte of it may be wrong at any time: the reader copies pieces into its own memory
//! (`pread`, never `mmap`), checks the copies, and keeps its position to itself.
//!
//! The order of a turn: [`RingReader::update`] reads the control words; [`RingReader::read_chunk`] copies the next
//! piece of at most one sub-buffer; the caller walks its records and reports the end of the walk to
//! [`RingReader::finish_chunk`]. In overwrite mode the writer may change the bytes during the copy: `reserve` is read
//! again afterwards, and what lies behind it is dropped, as in a seqlock.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{Ordering, fence};

use thiserror::Error;
use trace_ring_core::format::{
    END_MARK, FormatError, MIN_RECORD_SIZE, Mode, RING_CONSUMED_OFFSET, RING_HEADER_SIZE,
    RING_TABLE_ENTRY_SIZE, RING_TABLE_OFFSET, Records, RingControl, RingHeader, SubBufferEntry,
};

use super::meta_reader::read_at_most;
use crate::limits::RING_TURN_BYTES;

/// Attempts to read the control words until two copies agree, and to copy a piece that is not being overwritten.
const READ_ATTEMPTS: usize = 4;

/// Two copies of a growing word that differ by more than this are torn: the ring is smaller.
const MAX_WORD_STEP: u64 = 1 << 31;

/// Offset of the number of lost events that the drainer has reported, a u64 beside `consumed`. Written by the drainer
/// only.
const REPORTED_LOST_OFFSET: usize = RING_CONSUMED_OFFSET + 16;
/// Offset of the number of events before `consumed`, a u64. Written by the drainer only.
const EVENTS_OFFSET: usize = RING_CONSUMED_OFFSET + 24;
/// Bytes of the words that the drainer writes, all at once.
const DRAINER_WORDS: usize = 32;

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
    /// One of any number of readers beside the drainer, for which no producer waits. It begins at the oldest event in
    /// the ring, whether a drainer has taken it or not.
    Observer,
}

/// A point in a ring up to which events and losses are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RingPoint {
    /// Position in bytes since the ring was made.
    pub position: u64,
    /// Number of events that were committed before the position; `None` if a drainer has not counted them.
    pub events: Option<u64>,
    /// Number of lost events, by the ring's counters, that are reported.
    pub lost: u64,
}

/// A piece of one sub-buffer, copied to the caller's buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk {
    /// Position of its first byte.
    pub begin: u64,
    /// Events before it that were overwritten, or were skipped because bytes were damaged.
    pub overwritten: u64,
    /// Position of the end of its sub-buffer.
    sub_buffer_end: u64,
    /// Whether committed bytes of the sub-buffer follow.
    is_cut: bool,
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

    /// The header of the file.
    #[must_use]
    pub fn header(&self) -> &RingHeader {
        &self.header
    }

    /// How far the ring is read.
    #[must_use]
    pub fn point(&self) -> RingPoint {
        self.point
    }

    /// Committed bytes that have not been read, as of the last update.
    #[must_use]
    pub fn unread(&self) -> u64 {
        self.commit.saturating_sub(self.point.position)
    }

    /// Committed bytes that the producer may not overwrite yet, as of the last update.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.commit.saturating_sub(self.released)
    }

    /// Committed bytes that no drainer has taken, as of the last update; the producer chooses the number.
    #[must_use]
    pub fn fill(&self) -> u64 {
        self.commit.saturating_sub(self.consumed)
    }

    /// Bytes that were ever committed, as of the last update.
    #[must_use]
    pub fn committed(&self) -> u64 {
        self.commit
    }

    /// Number of events that the ring's threads have given up, as of the last update.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Whether the thread of the ring had ended at the last update.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// Number of pieces that were skipped because their bytes were no records.
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
        self.lost = control.lost.total().max(self.lost);
        self.is_ended = control.is_ended;
        if !self.may_be_overwritten() && self.unread() > self.header.data_size() {
            let (commit, before) = (self.commit, self.point.position);
            return Err(RingFault::Commit { commit, before });
        }
        Ok(())
    }

    /// The lost events that have not been reported; they count as reported from now on.
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

    /// Tells the producer that everything before `point` is taken. `is_released`: the ring will not be read again,
    /// and the producer may remove it.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn release(&mut self, point: &RingPoint, is_released: bool) -> io::Result<()> {
        let consumed = point.position.min(self.commit);
        self.released = consumed;
        let events = point.events.unwrap_or(0);
        let mut words = Vec::with_capacity(DRAINER_WORDS);
        words.extend_from_slice(&consumed.to_le_bytes());
        words.extend_from_slice(&u64::from(is_released).to_le_bytes());
        words.extend_from_slice(&point.lost.to_le_bytes());
        words.extend_from_slice(&events.to_le_bytes());
        self.file.write_all_at(&words, RING_CONSUMED_OFFSET as u64)
    }

    /// Lets the producer write over what is read, and leaves the losses to a later drainer: for an observer, while there
    /// is no drainer. `file` is the ring, opened for writing.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn free_space(&self, file: &File) -> io::Result<()> {
        let consumed = self.point.position.min(self.commit);
        let events = self.point.events.unwrap_or(0);
        file.write_all_at(&events.to_le_bytes(), EVENTS_OFFSET as u64)?;
        file.write_all_at(&consumed.to_le_bytes(), RING_CONSUMED_OFFSET as u64)
    }

    /// Whether the writer does not wait for this reader.
    fn may_be_overwritten(&self) -> bool {
        self.header.mode == Mode::Overwrite || self.role == Role::Observer
    }

    /// The position before which the writer may be changing bytes. At most the ring's size before `commit`, whatever the
    /// words are: that bounds what is read.
    fn oldest_whole(&self) -> u64 {
        let last_turn = self.commit.saturating_sub(self.header.data_size());
        self.may_be_changed_before().max(last_turn)
    }

    fn may_be_changed_before(&self) -> u64 {
        let data_size = self.header.data_size();
        if self.header.mode == Mode::Overwrite {
            return self.reserve.saturating_sub(data_size);
        }
        // In discard mode the writer announces nothing: it is in the sub-buffer of `commit`, or already in the next, but
        // it changes nothing that no drainer has taken.
        let size = u64::from(self.header.sub_buffer_size);
        let may_reach = self.sub_buffer_end(self.commit).saturating_add(size);
        may_reach.saturating_sub(data_size).min(self.consumed)
    }

    /// Goes to the oldest sub-buffer that is whole, if the writer does not wait.
    fn skip_overwritten(&mut self) {
        let oldest = self.oldest_whole();
        if self.may_be_overwritten() && self.point.position < oldest {
            self.point.position = self.sub_buffer_from(oldest);
            self.chunk_bytes = RING_TURN_BYTES;
        }
    }

    /// Whether the bytes from `begin` on have not been overwritten while they were copied.
    fn is_still_whole(&mut self, begin: u64) -> Result<bool, RingFault> {
        fence(Ordering::Acquire);
        let Some(control) = self.read_control()? else {
            return Ok(false);
        };
        self.reserve = control.reserve;
        self.consumed = control.consumed;
        if self.header.mode == Mode::Discard {
            self.commit = control.commit.max(self.commit);
        }
        Ok(begin >= self.oldest_whole())
    }

    /// Events that are missing before a sub-buffer, by its entry in the table. Limited by the bytes in which they may
    /// have been.
    fn count_missing(&mut self, begin: u64, entry: SubBufferEntry) -> u64 {
        let size = u64::from(self.header.sub_buffer_size);
        if !begin.is_multiple_of(size) || entry.sequence != begin / size + 1 {
            return 0;
        }
        let skipped = begin.saturating_sub(self.counted_at) / MIN_RECORD_SIZE as u64;
        let missing = match self.point.events {
            Some(events) => entry.events_before.saturating_sub(events).min(skipped),
            None => 0,
        };
        self.point.events = Some(entry.events_before);
        self.counted_at = begin;
        missing
    }

    fn read_entry(&self, position: u64) -> Result<SubBufferEntry, RingFault> {
        let mut bytes = [0; RING_TABLE_ENTRY_SIZE];
        let offset = self.header.entry_offset_of(position);
        let got = read_at_most(&self.file, &mut bytes, offset)?;
        Ok(SubBufferEntry::decode(
            bytes.get(..got).unwrap_or_default(),
        )?)
    }

    /// Reads the control words until two copies agree, or at least grow. `None` if they never do.
    fn read_control(&self) -> Result<Option<RingControl>, RingFault> {
        let mut before = RingControl::decode(&self.read_control_bytes()?)?;
        for _ in 0..READ_ATTEMPTS {
            // What `before` covers is in memory before what follows is read.
            fence(Ordering::Acquire);
            let after = RingControl::decode(&self.read_control_bytes()?)?;
            let is_growing = |before: u64, after: u64| {
                after
                    .checked_sub(before)
                    .is_some_and(|step| step < MAX_WORD_STEP)
            };
            if is_growing(before.commit, after.commit) && is_growing(before.reserve, after.reserve)
            {
                // The lost counters of the second copy are final if the first one says that the thread has ended.
                return Ok(Some(RingControl {
                    commit: before.commit,
                    is_ended: before.is_ended,
                    ..after
                }));
            }
            before = after;
        }
        Ok(None)
    }

    fn read_control_bytes(&self) -> Result<[u8; RING_TABLE_OFFSET], RingFault> {
        let mut bytes = [0; RING_TABLE_OFFSET];
        if read_at_most(&self.file, &mut bytes, 0)? < bytes.len() {
            return Err(RingFault::Mismatch);
        }
        Ok(bytes)
    }

    /// The first position at or after `position` at which a sub-buffer begins.
    fn sub_buffer_from(&self, position: u64) -> u64 {
        let size = u64::from(self.header.sub_buffer_size);
        position
            .checked_next_multiple_of(size)
            .unwrap_or(position - position % size)
    }

    fn sub_buffer_end(&self, position: u64) -> u64 {
        let size = u64::from(self.header.sub_buffer_size);
        (position - position % size).saturating_add(size)
    }
}

fn word(bytes: &[u8], offset: usize) -> u64 {
    let word = bytes.get(offset..).and_then(|tail| tail.first_chunk());
    word.copied().map_or(0, u64::from_le_bytes)
}
