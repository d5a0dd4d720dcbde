//! What the archive has already of a session that an earlier relay, or an earlier run of this one,
//! has archived: it is not written again.

use std::collections::HashMap;

use archive::catalog::OpenedSession;
use archive::name::parse_session_object;
use wire::{ChunkId, SeqNum};

/// What the archive has of a session.
#[derive(Debug, Default)]
pub(crate) struct KnownSession {
    packets: HashMap<u64, KnownPackets>,
    metadata: HashMap<u64, KnownMetadata>,
}

/// Packets of a stream that the archive has.
#[derive(Debug, Default)]
pub(super) struct KnownPackets {
    /// Those in parts or commit objects.
    pub(super) all: SeqRanges,
    /// The packets that are in parts.
    pub(super) parts: SeqRanges,
}

/// Ranges of sequence numbers, in order and without overlap.
#[derive(Debug, Default)]
pub(super) struct SeqRanges(Vec<(SeqNum, SeqNum)>);

/// The metadata of a stream that the archive has, by chunk.
pub(super) type KnownMetadata = HashMap<Option<ChunkId>, KnownBytes>;

/// Bytes of the metadata of a stream in one chunk that the archive has, from the beginning on.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct KnownBytes {
    pub(super) generation: u32,
    pub(super) all: u64,
    pub(super) parts: u64,
}

impl SeqRanges {
    /// The number after those that follow on this one without a gap. None: this one is not known.
    pub(super) fn end_of(&self, seq: SeqNum) -> Option<SeqNum> {
        let after = self.0.partition_point(|(begin, _)| *begin <= seq);
        let (_, end) = self.0.get(after.checked_sub(1)?)?;
        (*end > seq).then_some(*end)
    }

    fn sort(&mut self) {
        self.0.sort_unstable();
        self.0.dedup_by(|next, range| {
            let is_adjacent = next.0 <= range.1;
            if is_adjacent {
                range.1 = range.1.max(next.1);
            }
            is_adjacent
        });
    }
}

impl KnownSession {
    /// What a session has in the archive.
    pub(super) fn of(opened: &OpenedSession) -> Self {
        let mut known = Self::default();
        let is_part = |object: usize| {
            let name = opened.objects.get(object);
            name.is_some_and(|name| parse_session_object(name).is_ok())
        };
        for trace in &opened.view.traces {
            for stream in &trace.streams {
                let packets = known.packets.entry(stream.number).or_default();
                for used in &stream.blocks {
                    let range = (used.begin, used.end);
                    packets.all.0.push(range);
                    if is_part(used.block.object) {
                        packets.parts.0.push(range);
                    }
                }
            }
            for piece in &trace.metadata {
                let chunks = known.metadata.entry(piece.record.stream).or_default();
                let bytes = chunks.entry(piece.record.chunk).or_default();
                let end = piece.record.end();
                bytes.generation = bytes.generation.max(piece.record.generation);
                bytes.all = bytes.all.max(end);
                let is_next = piece.record.offset.0 <= bytes.parts;
                if is_next && is_part(piece.object) {
                    bytes.parts = bytes.parts.max(end);
                }
            }
        }
        for packets in known.packets.values_mut() {
            packets.all.sort();
            packets.parts.sort();
        }
        known
    }

    /// Takes what is known of the packets of a stream.
    pub(super) fn take_packets(&mut self, stream: u64) -> KnownPackets {
        self.packets.remove(&stream).unwrap_or_default()
    }

    /// Takes what is known of the metadata of a stream.
    pub(super) fn take_metadata(&mut self, stream: u64) -> KnownMetadata {
        self.metadata.remove(&stream).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_tell_which_numbers_are_known() {
        let seq = |number| SeqNum(number);
        let mut ranges = SeqRanges(vec![
            (seq(7), seq(9)),
            (seq(0), seq(3)),
            (seq(3), seq(5)),
            (seq(8), seq(12)),
        ]);
        ranges.sort();
        let ends: Vec<_> = [0, 4, 5, 6, 7, 11, 12]
            .map(|number| ranges.end_of(seq(number)).map(|end| end.0))
            .into();
        let five = Some(5);
        assert_eq!(ends, [five, five, None, None, Some(12), Some(12), None]);
    }
}
