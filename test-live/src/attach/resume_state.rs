//! The state from which a relay is followed again after a reconnect: how far each stream has been
//! read, so that nothing is shown twice.
//!
//! A restarted relay assigns the same numbers again: a trace is the same only if its
//! metadata begins as it did, which has the trace's own UUID in it.
//!
//! Traces and streams that are being followed are always remembered. A relay may announce one again on a
//! new connection although it has ended: of those the last ones are remembered. An older one that is
//! announced again is shown again.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

use viewer_proto::index::NextIndex;
use wire::{SessionId, StreamId, TraceId};

/// Length in bytes of the metadata prefix by which traces are distinguished: the UUID is in the first few hundred.
const METADATA_PREFIX_BYTES: usize = 4096;

/// Largest number of traces that have ended and are remembered.
const MAX_ENDED_TRACES: usize = 256;

/// Largest number of streams that have ended and are remembered.
const MAX_ENDED_STREAMS: usize = 4096;

/// The read position of every stream and the identity of every trace, kept from one connection to the next.
#[derive(Debug)]
pub(super) struct ResumeState {
    /// The first bytes of each trace's metadata.
    traces: EvictingMap<(SessionId, TraceId), Vec<u8>>,
    streams: EvictingMap<StreamId, ReadPosition>,
}

/// A map whose keys are evicted, oldest first, once more than `max_ended` of them are not followed any more.
#[derive(Debug)]
struct EvictingMap<K, V> {
    values: HashMap<K, RetainedValue<V>>,
    /// The keys that are not followed any more, in the order in which they ended.
    ended: BTreeMap<u64, K>,
    max_ended: usize,
    /// Number of the next that ends.
    next: u64,
}

#[derive(Debug)]
struct RetainedValue<V> {
    value: V,
    /// The number of the value among those that have ended. Absent while it is followed.
    ended: Option<u64>,
}

/// Up to where a stream has been handed over, in cycles: begin and end of its last packet. A watermark
/// is a packet that has no length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct ReadPosition {
    end: u64,
    begin: u64,
}

impl Default for ResumeState {
    fn default() -> Self {
        Self {
            traces: EvictingMap::new(MAX_ENDED_TRACES),
            streams: EvictingMap::new(MAX_ENDED_STREAMS),
        }
    }
}

impl ResumeState {
    /// The first metadata of a trace has arrived. Returns whether the trace is one that was read before.
    pub(super) fn identify_trace(&mut self, trace: (SessionId, TraceId), metadata: &[u8]) -> bool {
        let prefix = metadata.get(..METADATA_PREFIX_BYTES).unwrap_or(metadata);
        let known = self.traces.get(trace);
        let is_known =
            known.is_some_and(|known| known.starts_with(prefix) || prefix.starts_with(known));
        if !is_known {
            self.traces.insert(trace, prefix.to_vec());
        }
        self.traces.follow(trace);
        is_known
    }

    /// A stream is being followed.
    pub(super) fn follow_stream(&mut self, stream: StreamId) {
        self.streams.follow(stream);
    }

    /// Records that a stream has ended on this connection.
    pub(super) fn stream_ended(&mut self, stream: StreamId) {
        self.streams.end(stream);
    }

    /// Records that a trace has ended on this connection.
    pub(super) fn trace_ended(&mut self, trace: (SessionId, TraceId)) {
        self.traces.end(trace);
    }

    /// Records that nothing is followed until there is another connection.
    pub(super) fn connection_lost(&mut self) {
        self.traces.end_all();
        self.streams.end_all();
    }

    /// A stream has the number of one that was read before, but is another.
    pub(super) fn forget_stream(&mut self, stream: StreamId) {
        self.streams.remove(stream);
    }

    /// Whether this packet has been handed over.
    pub(super) fn was_handed_over(&self, stream: StreamId, index: &NextIndex) -> bool {
        let position = self.streams.get(stream);
        position.is_some_and(|position| ReadPosition::of(index) <= *position)
    }

    /// A packet has been handed over.
    pub(super) fn record_packet(&mut self, stream: StreamId, index: &NextIndex) {
        self.advance(stream, ReadPosition::of(index));
    }

    /// A watermark has been handed over.
    pub(super) fn record_watermark(&mut self, stream: StreamId, until: u64) {
        self.advance(
            stream,
            ReadPosition {
                end: until,
                begin: 0,
            },
        );
    }

    fn advance(&mut self, stream: StreamId, to: ReadPosition) {
        let position = self.streams.get(stream).copied();
        let to = position.map_or(to, |position| position.max(to));
        self.streams.insert(stream, to);
    }
}

impl<K: Copy + Eq + Hash, V> EvictingMap<K, V> {
    fn new(max_ended: usize) -> Self {
        Self {
            values: HashMap::new(),
            ended: BTreeMap::new(),
            max_ended,
            next: 0,
        }
    }

    fn get(&self, key: K) -> Option<&V> {
        Some(&self.values.get(&key)?.value)
    }

    /// Sets the value of what is being followed.
    fn insert(&mut self, key: K, value: V) {
        self.remove(key);
        self.values
            .insert(key, RetainedValue { value, ended: None });
    }

    fn remove(&mut self, key: K) {
        let removed = self.values.remove(&key);
        if let Some(ended) = removed.and_then(|value| value.ended) {
            self.ended.remove(&ended);
        }
    }

    /// Marks a key as followed, perhaps again: it is not evicted.
    fn follow(&mut self, key: K) {
        if let Some(value) = self.values.get_mut(&key)
            && let Some(ended) = value.ended.take()
        {
            self.ended.remove(&ended);
        }
    }

    /// Marks a key as not followed any more: it may be evicted.
    fn end(&mut self, key: K) {
        let Some(value) = self.values.get_mut(&key) else {
            return;
        };
        if value.ended.is_some() {
            return;
        }
        value.ended = Some(self.next);
        self.ended.insert(self.next, key);
        self.next += 1;
        while self.ended.len() > self.max_ended
            && let Some((_, oldest)) = self.ended.pop_first()
        {
            self.values.remove(&oldest);
        }
    }

    /// Marks all keys as not followed any more. All of them may be followed again: none of them is evicted.
    fn end_all(&mut self) {
        let followed = self.values.iter().filter(|(_, of)| of.ended.is_none());
        let followed: Vec<K> = followed.map(|(key, _)| *key).collect();
        self.max_ended = self.max_ended.max(followed.len());
        for key in followed {
            self.end(key);
        }
    }
}

impl ReadPosition {
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
        let mut index = NextIndex::without_packet(IndexStatus::Ready, 0);
        index.packet.begin = Timestamp(begin);
        index.packet.end = Timestamp(end);
        index
    }

    #[test]
    fn packets_up_to_the_read_position_count_as_handed_over() {
        let mut resume = ResumeState::default();
        let stream = StreamId(1);
        assert!(!resume.was_handed_over(stream, &packet(0, 10)));
        resume.record_packet(stream, &packet(0, 10));
        resume.record_packet(stream, &packet(10, 20));
        resume.record_watermark(stream, 30);
        assert!(resume.was_handed_over(stream, &packet(0, 10)));
        assert!(resume.was_handed_over(stream, &packet(10, 20)));
        assert!(!resume.was_handed_over(stream, &packet(30, 30)));
        resume.forget_stream(stream);
        assert!(!resume.was_handed_over(stream, &packet(0, 10)));
    }

    #[test]
    fn the_oldest_ended_streams_and_traces_are_evicted_from_the_resume_state() {
        let mut resume = ResumeState::default();
        let trace = |number| (SessionId(number), TraceId(0));
        resume.record_packet(StreamId(0), &packet(0, 10));
        resume.identify_trace(trace(0), b"uuid 0");
        for number in 1..=10_000 {
            resume.record_packet(StreamId(number), &packet(0, 10));
            resume.identify_trace(trace(number), format!("uuid {number}").as_bytes());
            resume.stream_ended(StreamId(number));
            resume.trace_ended(trace(number));
        }
        assert_eq!(resume.streams.values.len(), MAX_ENDED_STREAMS + 1);
        assert_eq!(resume.traces.values.len(), MAX_ENDED_TRACES + 1);
        for (number, is_known) in [(0, true), (1, false), (10_000, true)] {
            assert_eq!(
                resume.was_handed_over(StreamId(number), &packet(0, 10)),
                is_known
            );
            let metadata = format!("uuid {number}");
            assert_eq!(
                resume.identify_trace(trace(number), metadata.as_bytes()),
                is_known
            );
        }
    }

    #[test]
    fn streams_followed_when_the_connection_was_lost_are_not_evicted() {
        let mut resume = ResumeState::default();
        let streams = 2 * MAX_ENDED_STREAMS as u64;
        for number in 0..streams {
            resume.record_packet(StreamId(number), &packet(0, 10));
        }
        resume.connection_lost();
        resume.connection_lost();
        resume.follow_stream(StreamId(0));
        for number in streams..3 * streams {
            resume.record_packet(StreamId(number), &packet(0, 10));
            resume.stream_ended(StreamId(number));
        }
        assert!(resume.was_handed_over(StreamId(0), &packet(0, 10)));
        assert!(!resume.was_handed_over(StreamId(1), &packet(0, 10)));
        assert_eq!(resume.streams.values.len(), 2 * MAX_ENDED_STREAMS + 1);
        resume.connection_lost();
        assert!(resume.was_handed_over(StreamId(0), &packet(0, 10)));
    }

    #[test]
    fn a_trace_with_other_metadata_is_not_resumed() {
        let mut resume = ResumeState::default();
        let trace = (SessionId(1), TraceId(1));
        assert!(!resume.identify_trace(trace, b"uuid 1, and"));
        assert!(resume.identify_trace(trace, b"uuid 1"));
        assert!(resume.identify_trace(trace, b"uuid 1, and more"));
        assert!(!resume.identify_trace(trace, b"uuid 2"));
        assert!(resume.identify_trace(trace, b"uuid 2"));
    }
}
