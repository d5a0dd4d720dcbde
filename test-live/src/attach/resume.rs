//! How far each stream has been read, so that after a lost connection nothing is shown twice.
//!
//! A relay that has been started again gives its numbers again: a trace is the same only if its
//! metadata begins as it did, which has the trace's own UUID in it.

use std::collections::HashMap;

use viewer_proto::index::NextIndex;
use wire::{SessionId, StreamId, TraceId};

/// Bytes of metadata that tell a trace from others: the UUID is in the first few hundred.
const TELLING: usize = 4096;

/// What is remembered from one connection to the next.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// What the metadata of each trace begins with.
    traces: HashMap<(SessionId, TraceId), Vec<u8>>,
    streams: HashMap<StreamId, Mark>,
}

/// Up to where a stream has been handed over: begin and end of its last packet. Quiet time is a
/// packet that has no length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Mark {
    end: u64,
    begin: u64,
}

impl Memory {
    /// The first metadata of a trace has come. Gives whether the trace is one that was read before.
    pub(super) fn recognise(&mut self, trace: (SessionId, TraceId), metadata: &[u8]) -> bool {
        let telling = metadata.get(..TELLING).unwrap_or(metadata);
        let known = self.traces.get(&trace);
        let is_known =
            known.is_some_and(|known| known.starts_with(telling) || telling.starts_with(known));
        if !is_known {
            self.traces.insert(trace, telling.to_vec());
        }
        is_known
    }

    /// A stream has the number of one that was read before, but is another.
    pub(super) fn forget(&mut self, stream: StreamId) {
        self.streams.remove(&stream);
    }

    /// Whether this packet has been handed over.
    pub(super) fn has_had(&self, stream: StreamId, index: &NextIndex) -> bool {
        let mark = self.streams.get(&stream);
        mark.is_some_and(|mark| Mark::of(index) <= *mark)
    }

    /// A packet has been handed over.
    pub(super) fn hand_over(&mut self, stream: StreamId, index: &NextIndex) {
        self.advance(stream, Mark::of(index));
    }

    /// Quiet time has been handed over.
    pub(super) fn quiet(&mut self, stream: StreamId, until: u64) {
        self.advance(
            stream,
            Mark {
                end: until,
                begin: 0,
            },
        );
    }

    fn advance(&mut self, stream: StreamId, to: Mark) {
        let mark = self.streams.entry(stream).or_insert(to);
        *mark = to.max(*mark);
    }
}

impl Mark {
    fn of(index: &NextIndex) -> Self {
        Self {
            end: index.packet.end.0,
            begin: index.packet.begin.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use viewer_proto::index::IndexStatus;
    use wire::Timestamp;

    fn packet(begin: u64, end: u64) -> NextIndex {
        let mut index = NextIndex::bare(IndexStatus::Ready, 0);
        index.packet.begin = Timestamp(begin);
        index.packet.end = Timestamp(end);
        index
    }

    #[test]
    fn what_was_handed_over_is_known_and_what_follows_is_not() {
        let mut memory = Memory::default();
        let stream = StreamId(1);
        assert!(!memory.has_had(stream, &packet(0, 10)));
        memory.hand_over(stream, &packet(0, 10));
        memory.hand_over(stream, &packet(10, 20));
        memory.quiet(stream, 30);
        assert!(memory.has_had(stream, &packet(0, 10)));
        assert!(memory.has_had(stream, &packet(10, 20)));
        assert!(!memory.has_had(stream, &packet(30, 30)));
        memory.forget(stream);
        assert!(!memory.has_had(stream, &packet(0, 10)));
    }

    #[test]
    fn a_trace_with_other_metadata_is_another() {
        let mut memory = Memory::default();
        let trace = (SessionId(1), TraceId(1));
        assert!(!memory.recognise(trace, b"uuid 1, and"));
        assert!(memory.recognise(trace, b"uuid 1"));
        assert!(memory.recognise(trace, b"uuid 1, and more"));
        assert!(!memory.recognise(trace, b"uuid 2"));
        assert!(memory.recognise(trace, b"uuid 2"));
    }
}
