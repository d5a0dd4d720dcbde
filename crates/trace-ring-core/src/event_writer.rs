//! Writing the fields of one event.

use std::marker::PhantomData;

use crate::Value;
use crate::format::SeverityClass;
use crate::thread::{return_ring, thread_id};
use crate::thread_ring::ThreadRing;

/// Nanoseconds between samples of the realtime clock.
const CLOCK_SAMPLE_INTERVAL: u64 = 10_000_000_000;

/// An event that has been begun. Dropped without [`commit`](Self::commit) it leaves no trace and
/// counts as nothing.
///
/// While it lives, other events of the same thread and severity class are lost, and counted as
/// nested.
#[derive(Debug)]
pub struct EventWriter {
    /// `None` only while the event is being dropped.
    ring: Option<Box<ThreadRing>>,
    class: u32,
    timestamp: u64,
    /// Offset in the data of the first field.
    start: usize,
    /// Offset of the next field.
    cursor: usize,
    /// Fields end here at the latest.
    end: usize,
    is_too_big: bool,
    /// Keeps the type from being `Send`: an event belongs to its thread.
    marker: PhantomData<*const ()>,
}

impl EventWriter {
    /// Begins an event in `ring`, which is returned to its thread if the event is lost.
    #[inline(always)]
    pub(crate) fn begin(mut ring: Box<ThreadRing>, class: u32, size: usize) -> Option<Self> {
        let Some(start) = ring.writer.begin(size) else {
            return_ring(ring);
            return None;
        };
        // After the position: the order of timestamps is that of positions.
        let timestamp = ring.read_clock();
        if timestamp >= ring.next_clock_sample {
            ring.process.sample_clock();
            ring.next_clock_sample = timestamp.saturating_add(CLOCK_SAMPLE_INTERVAL);
        }
        Some(Self {
            ring: Some(ring),
            class,
            timestamp,
            start,
            cursor: start,
            end: start + size,
            is_too_big: false,
            marker: PhantomData,
        })
    }

    /// Puts a value of fixed size or a string; strings and byte sequences longer than 65,535 bytes
    /// are cut.
    #[inline]
    pub fn put<V: Value + ?Sized>(&mut self, value: &V) {
        value.put(self);
    }

    /// Puts bytes as they are. The typed values are made of this one.
    #[inline]
    pub fn put_raw(&mut self, bytes: &[u8]) {
        if bytes.len() > self.end - self.cursor {
            self.is_too_big = true;
            return;
        }
        if let Some(ring) = &mut self.ring {
            ring.writer.write(self.cursor, bytes);
            self.cursor += bytes.len();
        }
    }

    /// Makes the event visible to readers: from here on a kill cannot take it away. An event that
    /// has more bytes than `begin` was told is counted as lost instead.
    #[inline]
    pub fn commit(mut self) {
        self.commit_in_place();
    }

    /// Makes the event visible as [`commit`](Self::commit) does, for a caller that drops the event
    /// next. Moving an event that has just been written costs 6 ns: the processor waits for the
    /// stores of its fields.
    #[inline]
    pub(crate) fn commit_in_place(&mut self) {
        let Some(ring) = &mut self.ring else { return };
        if self.is_too_big {
            ring.writer.count_big();
            return;
        }
        // The header of any other ring has the id of its only thread.
        let tid = if ring.class == SeverityClass::All {
            thread_id(ring.generation)
        } else {
            0
        };
        ring.writer
            .commit(self.cursor - self.start, self.class, tid, self.timestamp);
    }
}

impl Drop for EventWriter {
    #[inline]
    fn drop(&mut self) {
        if let Some(ring) = self.ring.take() {
            return_ring(ring);
        }
    }
}
