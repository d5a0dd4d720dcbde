//! The streams of a session that were announced to viewers, in the order in which they were
//! published. The position of a viewer in the list is a number.

use std::collections::VecDeque;
use std::sync::Arc;

use viewer_proto::stream::StreamRecord;

use super::published::{Published, PublishedMetadata};
use crate::limits::MAX_ENDED_STREAMS;

/// A stream, as it is announced to viewers.
#[derive(Debug)]
pub struct ListedStream {
    /// The record in the reply to a viewer that asks for the streams of the session.
    pub record: StreamRecord,
    /// The packets or metadata that viewers may read.
    pub content: AnnouncedContent,
}

/// The content of an announced stream.
#[derive(Debug, Clone)]
pub enum AnnouncedContent {
    /// A stream of packets.
    Packets(Arc<Published>),
    /// The metadata of a trace, as far as its pieces are complete.
    Metadata(Arc<PublishedMetadata>),
}

impl ListedStream {
    /// Whether the stream has ended: nothing will be added to it.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        match &self.content {
            AnnouncedContent::Packets(published) => published.is_over(),
            AnnouncedContent::Metadata(published) => published.is_over(),
        }
    }

    /// Whether it is a stream of packets that has some or may get some.
    #[must_use]
    pub fn may_have_packets(&self) -> bool {
        let AnnouncedContent::Packets(published) = &self.content else {
            return false;
        };
        // In this order: after the end no packet is added.
        !published.is_over() || published.next_packet().0 > 0
    }
}

/// The list of a session. Numbers count from 0 and are never reused.
#[derive(Debug, Default)]
pub struct AnnouncedStreams {
    next: u64,
    /// Each stream with its number, in order.
    list: VecDeque<(u64, Arc<ListedStream>)>,
    /// Length of the list at which ended streams are removed.
    prune_at: usize,
}

impl AnnouncedStreams {
    /// Appends a stream. Returns the streams that were removed: to drop them may close files, which
    /// must not happen with the lock of the list held.
    pub fn push(&mut self, stream: Arc<ListedStream>) -> Vec<Arc<ListedStream>> {
        let forgotten = if self.list.len() >= self.prune_at.max(MAX_ENDED_STREAMS) {
            self.forget_ended()
        } else {
            Vec::new()
        };
        self.list.push_back((self.next, stream));
        self.next += 1;
        forgotten
    }

    /// Removes the oldest ended streams if they are too many. Half of them, so that this is not
    /// repeated for every stream.
    fn forget_ended(&mut self) -> Vec<Arc<ListedStream>> {
        let mut forgotten = Vec::new();
        let ended = self.list.iter().filter(|(_, old)| old.has_ended()).count();
        let mut excess = ended.saturating_sub(MAX_ENDED_STREAMS / 2);
        self.list.retain(|(_, old)| {
            let goes = excess > 0 && old.has_ended();
            if goes {
                excess -= 1;
                forgotten.push(Arc::clone(old));
            }
            !goes
        });
        self.prune_at = self.list.len() + MAX_ENDED_STREAMS / 2;
        forgotten
    }

    /// Number of the next stream.
    #[must_use]
    pub fn next(&self) -> u64 {
        self.next
    }

    /// The streams from a position on, each with its number.
    pub fn from(&self, position: u64) -> impl Iterator<Item = (u64, &Arc<ListedStream>)> {
        let known = self.list.partition_point(|(number, _)| *number < position);
        self.list
            .range(known..)
            .map(|(number, listed)| (*number, listed))
    }
}

#[cfg(test)]
mod tests {
    use viewer_proto::stream::StreamRecord;
    use wire::{FixedText, StreamId, Text, TraceId};

    use super::*;

    fn stream(number: u64) -> (Arc<ListedStream>, Arc<Published>) {
        let published = Arc::<Published>::default();
        let record = StreamRecord {
            stream: StreamId(number),
            trace: TraceId(1),
            is_metadata: 0,
            path: FixedText(Text::default()),
            channel: FixedText(Text::default()),
        };
        let content = AnnouncedContent::Packets(Arc::clone(&published));
        (Arc::new(ListedStream { record, content }), published)
    }

    #[test]
    fn streams_that_have_ended_do_not_pile_up_behind_one_that_goes_on() {
        let mut announced = AnnouncedStreams::default();
        let count = 5 * MAX_ENDED_STREAMS as u64;
        for number in 0..count {
            let (listed, published) = stream(number);
            announced.push(listed);
            if number % 1000 > 0 {
                published.end();
            }
        }
        assert_eq!(announced.next(), count);
        let all: Vec<_> = announced.from(0).collect();
        let going_on = all.iter().filter(|(_, listed)| !listed.has_ended());
        assert_eq!(going_on.count() as u64, count.div_ceil(1000));
        assert!(all.len() <= MAX_ENDED_STREAMS + 200, "{}", all.len());
        // Numbers are what they were, and the last ones are all there.
        assert!(
            all.iter()
                .all(|(number, listed)| listed.record.stream.0 == *number)
        );
        let position = count - MAX_ENDED_STREAMS as u64 / 2;
        let last: Vec<_> = announced.from(position).map(|(number, _)| number).collect();
        assert_eq!(last, (position..count).collect::<Vec<_>>());
    }
}
