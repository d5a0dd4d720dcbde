//! Merges the streams of several traces in order of time: a heap with the next event or packet of
//! each.

use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BinaryHeap, VecDeque};
use std::iter::FusedIterator;
use std::sync::Arc;

use super::error::Error;
use super::stream::{LossCount, Step, StreamEvents};
use crate::directory::{DirectoryError, StreamFiles, TraceDirectory};
use crate::owned::{Event, NameTable};

/// Largest number of streams whose files stay open: well below what a process may have. Beyond it a
/// file is opened for each packet.
const MAX_OPEN_FILES: usize = 200;

/// The events of a trace in order of time. ([`Trace::events`](super::Trace::events))
///
/// A packet is read when the events before it have been returned, so that memory holds the packets
/// that overlap in time, at most one of each stream. After an error the events that can still be
/// read follow.
#[derive(Debug)]
pub struct Events {
    traces: Arc<[TraceDirectory]>,
    /// The errors of traces that cannot be read, as far as they have not been returned.
    unreadable: VecDeque<Arc<DirectoryError>>,
    /// In the order that events of the same time have.
    streams: Vec<StreamEvents>,
    /// The time in nanoseconds and the place of each stream that has not ended, the earliest first.
    ready: BinaryHeap<Reverse<(i64, usize)>>,
    names: NameTable,
}

impl Events {
    pub(super) fn new(traces: Arc<[TraceDirectory]>, unreadable: &[Arc<DirectoryError>]) -> Self {
        let mut found: Vec<(usize, &TraceDirectory, &StreamFiles)> = Vec::new();
        for (place, trace) in traces.iter().enumerate() {
            found.extend(trace.streams.iter().map(|stream| (place, trace, stream)));
        }
        // As babeltrace2 orders streams whose events have the same time.
        found.sort_by_key(|(place, trace, stream)| {
            let uuid = trace.metadata.trace().uuid();
            (uuid, &trace.name, stream.class, stream.id, *place)
        });
        let keeps_files_open = found.len() <= MAX_OPEN_FILES;
        let new = |(place, trace, stream): &(usize, &TraceDirectory, &StreamFiles)| {
            StreamEvents::new(*place, trace, stream, keeps_files_open)
        };
        let streams: Vec<_> = found.iter().map(new).collect();
        let ready = streams.iter().enumerate();
        let ready = ready.map(|(slot, stream)| Reverse((stream.begin(), slot)));
        Self {
            ready: ready.collect(),
            streams,
            names: NameTable::default(),
            unreadable: unreadable.iter().cloned().collect(),
            traces,
        }
    }

    /// The losses before the events that have been returned.
    #[must_use]
    pub fn losses(&self) -> LossCount {
        let mut sum = LossCount::default();
        for losses in self.streams.iter().map(StreamEvents::losses) {
            sum.events = sum.events.saturating_add(losses.events);
            sum.uncounted_streams += losses.uncounted_streams;
            sum.packets = sum.packets.saturating_add(losses.packets);
        }
        sum
    }

    /// The bytes of the packets that are in memory.
    #[cfg(test)]
    fn packet_bytes(&self) -> usize {
        self.streams.iter().map(StreamEvents::packet_bytes).sum()
    }
}

impl Iterator for Events {
    type Item = Result<Event, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(error) = self.unreadable.pop_front() {
            return Some(Err(error.into()));
        }
        loop {
            // The entry is changed in place, which moves it down the heap once; to pop and push
            // would do it twice.
            let mut first = self.ready.peek_mut()?;
            let Reverse((_, slot)) = *first;
            let stream = self.streams.get_mut(slot)?;
            let trace = self.traces.get(stream.trace)?.metadata.trace();
            let Step { found, next } = stream.step(trace, &mut self.names);
            match next {
                Some(time) => *first = Reverse((time, slot)),
                None => {
                    PeekMut::pop(first);
                }
            }
            if found.is_some() {
                return found;
            }
        }
    }
}

impl FusedIterator for Events {}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;
    use wire::Timestamp;

    use crate::directory::StreamHandle;
    use crate::write::{EventRecord, FieldType};
    use crate::{Trace, TraceWriter};

    /// A trace whose streams have packets of about 64 KiB, with one event each.
    fn write(streams: usize, packets: u64, time: impl Fn(usize, u64) -> u64) -> TempDir {
        let directory = tempfile::tempdir().unwrap();
        let mut trace = TraceWriter::create(directory.path()).unwrap();
        let class = trace
            .event_class("e", &[("text", FieldType::Text)])
            .unwrap();
        let text = "x".repeat(60_000);
        let mut handles = vec![StreamHandle::FIRST];
        handles.extend((1..streams).map(|_| trace.add_stream()));
        for (number, stream) in handles.iter().enumerate() {
            for packet in 0..packets {
                let event = EventRecord {
                    time: Timestamp(time(number, packet)),
                    process: 1,
                    thread: 1,
                    values: &[text.as_str().into()],
                };
                trace.write_to(*stream, &class, &event).unwrap();
            }
        }
        trace.finish().unwrap();
        directory
    }

    /// The largest number of bytes of packets that are in memory at a time.
    fn max_packet_bytes(directory: &TempDir, events: u64) -> usize {
        let mut read = Trace::open(directory.path()).unwrap().events();
        let (mut max, mut count) = (0, 0);
        while let Some(event) = read.next() {
            event.unwrap();
            count += 1;
            max = max.max(read.packet_bytes());
        }
        assert_eq!(count, events);
        max
    }

    #[test]
    fn memory_holds_one_packet_of_each_stream_at_most() {
        let directory = write(3, 20, |_, packet| packet);
        assert!(max_packet_bytes(&directory, 60) <= 3 * 65_536);
    }

    #[test]
    fn streams_that_do_not_overlap_in_time_are_not_in_memory_together() {
        // More streams than files that stay open.
        let streams = super::MAX_OPEN_FILES + 50;
        let directory = write(streams, 2, |stream, packet| stream as u64 * 10 + packet);
        let max = max_packet_bytes(&directory, 2 * streams as u64);
        assert!(max <= 2 * 65_536, "{max}");
        assert!(size_of::<crate::Value>() <= 32);
    }
}
