//! The words of a ring file: reads those of the producer until two copies agree, and writes those
//! of the drainer.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{Ordering, fence};

use trace_ring_core::format::{
    RING_CONSUMED_OFFSET, RING_TABLE_ENTRY_SIZE, RING_TABLE_OFFSET, RingControl, SubBufferEntry,
};

use super::{READ_ATTEMPTS, RingFault, RingPoint, RingReader};
use crate::frontend::ring::meta_reader::read_at_most;

/// Two copies of a growing word that differ by more than this are torn: the ring is smaller.
const MAX_WORD_STEP: u64 = 1 << 31;

/// Offset of the number of lost events that the drainer has reported, a u64 beside `consumed`.
/// Written by the drainer only.
pub(super) const REPORTED_LOST_OFFSET: usize = RING_CONSUMED_OFFSET + 16;
/// Offset of the number of events before `consumed`, a u64. Written by the drainer only.
pub(super) const EVENTS_OFFSET: usize = RING_CONSUMED_OFFSET + 24;
/// Bytes of the words that the drainer writes, all at once.
const DRAINER_WORDS: usize = 32;

impl RingReader {
    /// Tells the producer that everything before `point` is taken. `is_released`: the ring will not
    /// be read again, and the producer may remove it.
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

    /// Lets the producer write over what is read, and leaves the losses to a later drainer: for an
    /// observer, while there is no drainer. `file` is the ring, opened for writing.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn free_space(&self, file: &File) -> io::Result<()> {
        let consumed = self.point.position.min(self.commit);
        let events = self.point.events.unwrap_or(0);
        // The number of events first: if this process dies in between, a drainer would otherwise
        // count events as lost that were read.
        file.write_all_at(&events.to_le_bytes(), EVENTS_OFFSET as u64)?;
        file.write_all_at(&consumed.to_le_bytes(), RING_CONSUMED_OFFSET as u64)
    }

    pub(super) fn read_entry(&self, position: u64) -> Result<SubBufferEntry, RingFault> {
        let mut bytes = [0; RING_TABLE_ENTRY_SIZE];
        let offset = self.header.entry_offset_of(position);
        let got = read_at_most(&self.file, &mut bytes, offset)?;
        Ok(SubBufferEntry::decode(
            bytes.get(..got).unwrap_or_default(),
        )?)
    }

    /// Reads the control words until two copies agree, or at least grow. `None` if they never do.
    pub(super) fn read_control(&self) -> Result<Option<RingControl>, RingFault> {
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
                // The lost counters of the second copy are final if the first one says that the
                // thread has ended.
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

    pub(super) fn read_control_bytes(&self) -> Result<[u8; RING_TABLE_OFFSET], RingFault> {
        let mut bytes = [0; RING_TABLE_OFFSET];
        if read_at_most(&self.file, &mut bytes, 0)? < bytes.len() {
            return Err(RingFault::Mismatch);
        }
        Ok(bytes)
    }
}

pub(super) fn word(bytes: &[u8], offset: usize) -> u64 {
    let word = bytes.get(offset..).and_then(|tail| tail.first_chunk());
    word.copied().map_or(0, u64::from_le_bytes)
}
