//! How one writer fills a ring so that a reader in another process finds whole records at any
//! instant.
//!
//! The technique is a single-producer ring of sub-buffers with a published commit position. The
//! writer keeps its own position in private memory; shared words are only published, never read
//! back, except `consumed`. Overwrite mode adds a seqlock per sub-buffer: `reserve` is published
//! before a sub-buffer's bytes change, so that a reader that copies can tell afterwards which part
//! of its copy was overwritten. The claim covers a whole sub-buffer: one store and one fence per
//! sub-buffer rather than per record.
//!
//! The code is generic over the memory, so that the model check runs the same code on loom's
//! atomics.

#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod tests;

use std::sync::atomic::Ordering;

use crate::format::{
    END_MARK, MIN_RECORD_SIZE, Mode, RECORD_ALIGN, RecordHeader, RingHeader, SubBufferEntry,
};
use crate::format::{EVENT_HEADER_SIZE, FRAME_SIZE, Lost};

/// An atomic number of eight bytes in the memory of a ring.
pub(crate) trait Word {
    fn load(&self, order: Ordering) -> u64;
    fn store(&self, value: u64, order: Ordering);
}

/// The memory of a ring: control words, sub-buffer table and data.
pub(crate) trait RingMemory {
    type Word: Word;

    fn reserve(&self) -> &Self::Word;
    fn commit(&self) -> &Self::Word;
    fn consumed(&self) -> &Self::Word;
    fn lost_full(&self) -> &Self::Word;
    fn lost_big(&self) -> &Self::Word;
    fn lost_nested(&self) -> &Self::Word;
    fn fence(&self, order: Ordering);
    /// Writes plain bytes at an offset of the data. Bytes beyond its end are left out.
    fn write(&mut self, offset: usize, bytes: &[u8]);
    /// Writes the table entry of the sub-buffer with this index.
    fn write_entry(&mut self, index: usize, entry: &SubBufferEntry);
}

/// The writer's end of one ring.
#[derive(Debug)]
pub(crate) struct RingWriter<M> {
    memory: M,
    mode: Mode,
    sub_buffer_size: usize,
    data_size: usize,
    /// Where the next record begins: everything below is committed.
    position: u64,
    /// End of the sub-buffer that the writer has entered; equal to `position` when there is no room
    /// in it.
    sub_buffer_end: u64,
    /// Records committed to the ring.
    events: u64,
}

impl<M: RingMemory> RingWriter<M> {
    /// A writer of a ring whose memory is zero but for its header.
    pub(crate) fn new(memory: M, header: &RingHeader) -> Self {
        let to_usize = |size: u64| usize::try_from(size).unwrap_or(usize::MAX);
        Self {
            memory,
            mode: header.mode,
            sub_buffer_size: to_usize(header.sub_buffer_size.into()),
            data_size: to_usize(header.data_size()),
            position: 0,
            sub_buffer_end: 0,
            events: 0,
        }
    }

    pub(crate) fn memory(&self) -> &M {
        &self.memory
    }

    /// Makes room for a record whose fields take at most `size` bytes. Returns the offset in the
    /// data where the fields go, or `None` when the event is lost, which has been counted.
    #[inline]
    pub(crate) fn begin(&mut self, size: usize) -> Option<usize> {
        let need = size.saturating_add(MIN_RECORD_SIZE + RECORD_ALIGN - 1) & !(RECORD_ALIGN - 1);
        let room = self.sub_buffer_end.wrapping_sub(self.position);
        if need as u64 > room && !self.make_room(need) {
            return None;
        }
        Some(self.offset_of(self.position) + MIN_RECORD_SIZE)
    }

    /// Completes the record that was begun, with `size` bytes of fields, no more than `begin` was
    /// told.
    #[inline]
    pub(crate) fn commit(&mut self, size: usize, class: u32, tid: u32, timestamp: u64) {
        let size = size + FRAME_SIZE + EVENT_HEADER_SIZE;
        let header = RecordHeader {
            size: u32::try_from(size).unwrap_or(END_MARK),
            position: self.position,
            class,
            tid,
            timestamp,
        };
        let offset = self.offset_of(self.position);
        let [frame, event, time] = header.encode();
        self.memory.write(offset, &frame.to_le_bytes());
        self.memory.write(offset + 8, &event.to_le_bytes());
        self.memory.write(offset + 16, &time.to_le_bytes());
        self.position += size.next_multiple_of(RECORD_ALIGN) as u64;
        self.events += 1;
        // Release: a reader that sees this position sees the record.
        self.memory.commit().store(self.position, Ordering::Release);
    }

    /// Counts an event that turned out to be larger than `begin` was told.
    #[cold]
    pub(crate) fn count_big(&self) {
        add_one(self.memory.lost_big());
    }

    #[inline]
    fn offset_of(&self, position: u64) -> usize {
        // The data size is a power of two that fits `usize`.
        usize::try_from(position & (self.data_size as u64 - 1)).unwrap_or_default()
    }

    #[cold]
    fn make_room(&mut self, need: usize) -> bool {
        if need > self.sub_buffer_size {
            add_one(self.memory.lost_big());
            return false;
        }
        self.close_sub_buffer();
        if self.mode == Mode::Discard && !self.is_next_sub_buffer_consumed() {
            add_one(self.memory.lost_full());
            return false;
        }
        self.enter_sub_buffer();
        true
    }

    fn close_sub_buffer(&mut self) {
        if self.position == self.sub_buffer_end {
            return;
        }
        // Records are aligned to 8: at least 8 bytes are left.
        let offset = self.offset_of(self.position);
        self.memory.write(offset, &END_MARK.to_le_bytes());
        self.position = self.sub_buffer_end;
        self.memory.commit().store(self.position, Ordering::Release);
    }

    /// Whether the drainer has taken all that the next sub-buffer holds. A position that cannot be
    /// true counts as no.
    fn is_next_sub_buffer_consumed(&self) -> bool {
        // Acquire: the drainer's reads come before our writes.
        let consumed = self.memory.consumed().load(Ordering::Acquire);
        let needed =
            (self.position + self.sub_buffer_size as u64).saturating_sub(self.data_size as u64);
        (needed..=self.position).contains(&consumed)
    }

    fn enter_sub_buffer(&mut self) {
        let size = self.sub_buffer_size as u64;
        self.sub_buffer_end = self.position + size;
        self.memory
            .reserve()
            .store(self.sub_buffer_end, Ordering::Relaxed);
        if self.mode == Mode::Overwrite {
            // Release: a reader that sees any byte written below sees the claim, too.
            self.memory.fence(Ordering::Release);
        }
        let entry = SubBufferEntry {
            sequence: self.position / size + 1,
            events_before: self.events,
            lost_before: Lost {
                full: self.memory.lost_full().load(Ordering::Relaxed),
                big: self.memory.lost_big().load(Ordering::Relaxed),
                nested: self.memory.lost_nested().load(Ordering::Relaxed),
            },
        };
        let index = self.offset_of(self.position) / self.sub_buffer_size;
        self.memory.write_entry(index, &entry);
    }
}

impl<M: RingMemory> RingWriter<M> {
    /// Writes bytes of fields at an offset that `begin` returned, or after it.
    #[inline]
    pub(crate) fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.memory.write(offset, bytes);
    }
}

/// Adds to a counter that has one writer: no locked instruction is needed.
fn add_one<W: Word>(counter: &W) {
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}
