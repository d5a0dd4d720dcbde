//! What a writer that does not wait for the reader may have overwritten: where whole bytes begin,
//! and how many events are missing before them.

use std::sync::atomic::{Ordering, fence};

use trace_ring_core::format::{MIN_RECORD_SIZE, Mode, SubBufferEntry};

use super::{RingFault, RingReader, Role};
use crate::limits::RING_TURN_BYTES;

impl RingReader {
    /// Whether the writer does not wait for this reader.
    pub(super) fn may_be_overwritten(&self) -> bool {
        self.header.mode == Mode::Overwrite || self.role == Role::Observer
    }

    /// Returns the position before which the writer may be changing bytes. At most the ring's size
    /// before `commit`, whatever the words are: that bounds what is read.
    fn oldest_whole(&self) -> u64 {
        let last_turn = self.commit.saturating_sub(self.header.data_size());
        self.may_be_changed_before().max(last_turn)
    }

    fn may_be_changed_before(&self) -> u64 {
        let data_size = self.header.data_size();
        if self.header.mode == Mode::Overwrite {
            return self.reserve.saturating_sub(data_size);
        }
        // In discard mode the writer announces nothing: it is in the sub-buffer of `commit`, or
        // already in the next, but it changes nothing that no drainer has taken.
        let size = u64::from(self.header.sub_buffer_size);
        let may_reach = self.sub_buffer_end(self.commit).saturating_add(size);
        may_reach.saturating_sub(data_size).min(self.consumed)
    }

    /// Goes to the oldest sub-buffer that is whole, if the writer does not wait.
    pub(super) fn skip_overwritten(&mut self) {
        let oldest = self.oldest_whole();
        if self.may_be_overwritten() && self.point.position < oldest {
            self.point.position = self.sub_buffer_from(oldest);
            self.chunk_bytes = RING_TURN_BYTES;
        }
    }

    /// Whether the bytes from `begin` on have not been overwritten while they were copied.
    pub(super) fn is_still_whole(&mut self, begin: u64) -> Result<bool, RingFault> {
        // The bytes must be copied before the words are read again, which say whether they were
        // whole.
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

    /// Events that are missing before a sub-buffer, by its entry in the table. Limited by the bytes
    /// in which they may have been.
    pub(super) fn count_missing(&mut self, begin: u64, entry: SubBufferEntry) -> u64 {
        let size = u64::from(self.header.sub_buffer_size);
        if !begin.is_multiple_of(size) || entry.sequence != begin / size + 1 {
            return 0;
        }
        let skipped = begin.saturating_sub(self.counted_at) / MIN_RECORD_SIZE as u64;
        let missing = match self.point.events {
            Some(events) => entry.events_before.saturating_sub(events).min(skipped),
            None => 0,
        };
        // The entry of the writer counts from here on, also if the reader has lost count.
        self.point.events = Some(entry.events_before);
        self.counted_at = begin;
        missing
    }

    /// Returns the first position at or after `position` at which a sub-buffer begins.
    pub(super) fn sub_buffer_from(&self, position: u64) -> u64 {
        let size = u64::from(self.header.sub_buffer_size);
        position
            .checked_next_multiple_of(size)
            .unwrap_or(position - position % size)
    }

    pub(super) fn sub_buffer_end(&self, position: u64) -> u64 {
        let size = u64::from(self.header.sub_buffer_size);
        (position - position % size).saturating_add(size)
    }
}
