//! What a session has new since the last look, for readers that follow it while it is archived.

use std::collections::BTreeMap;

use wire::{ClassId, FileName, Timestamp, TracePath};

use super::{BlockUse, ChunkState, Placed, RECORD_BYTES, SessionBuilder, StreamPackets};
use crate::record::MetadataRecord;

/// What objects have said of a session since the last look.
#[derive(Debug)]
pub struct SessionUpdate {
    /// All data streams that are known, by number.
    pub streams: BTreeMap<u64, StreamUpdate>,
    /// The metadata of each trace that is known: that of its last chunk, in order and without a
    /// gap, from its beginning on.
    pub metadata: BTreeMap<TracePath, Vec<Placed<MetadataRecord>>>,
}

/// What is new of a data stream.
#[derive(Debug)]
pub struct StreamUpdate {
    /// Directory of the trace, below that of the chunk.
    pub path: TracePath,
    /// Name of its file.
    pub name: FileName,
    /// The new blocks, in the order of their packets. No packet is in two, also of different looks.
    pub blocks: Vec<BlockUse>,
    /// No event before this time is in later blocks. None: that is not known of any time, or
    /// packets are missing that may still come.
    pub beacon: Option<Beacon>,
}

/// A time before which a stream has no further event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Beacon {
    /// The time, in cycles. 2^64-1: the stream has no further event at all.
    pub until: Timestamp,
    /// The class of the stream.
    pub class: ClassId,
}

impl SessionBuilder {
    /// Takes what is new. Packets that follow on missing ones are held back until the next call,
    /// before which all objects that exist must be added: a log that is listed later may have the
    /// missing ones. Those of deleted chunks are left out.
    #[must_use]
    pub fn take_update(&mut self) -> SessionUpdate {
        let mut streams = BTreeMap::new();
        for (key, names) in self.streams.iter().filter(|(key, _)| !key.is_metadata) {
            let packets = self.packets.entry(key.number).or_default();
            let mut blocks = packets.take_ready();
            self.kept_bytes = self
                .kept_bytes
                .saturating_sub(blocks.len() as u64 * RECORD_BYTES);
            let chunks = &self.chunks;
            blocks
                .retain(|used| chunks.get(&used.block.record.chunk) != Some(&ChunkState::Deleted));
            let beacon = self.beacons.get(&key.number).copied();
            let stream = StreamUpdate {
                path: names.path.clone(),
                name: names.name.clone(),
                blocks,
                beacon: beacon.filter(|_| packets.blocks.is_empty()),
            };
            streams.insert(key.number, stream);
        }
        let mut metadata = BTreeMap::new();
        for ((chunk, path), pieces) in self.last_metadata() {
            // In the order of chunks: the last one repeats the metadata of those before.
            if self.chunks.get(&chunk) != Some(&ChunkState::Deleted) {
                metadata.insert(path, pieces);
            }
        }
        SessionUpdate { streams, metadata }
    }
}

impl StreamPackets {
    /// Takes the blocks up to the first missing packet, and those after it if it was missing at the
    /// last call already. What has been passed over is missing, also if it is found later.
    fn take_ready(&mut self) -> Vec<BlockUse> {
        self.blocks
            .retain(|used| self.next.is_none_or(|next| used.begin >= next));
        self.blocks.sort_by_key(|used| used.begin);
        let mut may_jump = std::mem::take(&mut self.has_gap);
        let mut ready = 0;
        for used in &self.blocks {
            let is_next = self
                .next
                .is_none_or(|next| self.skipped.end_from(next.0) >= used.begin.0);
            if !is_next && !std::mem::take(&mut may_jump) {
                self.has_gap = true;
                break;
            }
            self.next = Some(used.end);
            ready += 1;
        }
        self.blocks.drain(..ready).collect()
    }
}

impl SessionUpdate {
    /// Number of the packets that are new.
    #[must_use]
    pub fn packets(&self) -> u64 {
        let blocks = self.streams.values().flat_map(|stream| &stream.blocks);
        blocks.map(|used| used.end.0 - used.begin.0).sum()
    }
}

#[cfg(test)]
mod tests {
    use wire::{Bytes, SeqNum};

    use super::*;
    use crate::record::{BlockPlace, Encoding, PacketsRecord};

    fn numbers(blocks: &[BlockUse]) -> Vec<(u64, u64)> {
        let numbers = blocks.iter().map(|used| (used.begin.0, used.end.0));
        numbers.collect()
    }

    fn record(begin: u64, end: u64) -> PacketsRecord {
        PacketsRecord {
            stream: 1,
            chunk: None,
            first: SeqNum(begin),
            count: u32::try_from(end - begin).unwrap(),
            begin: Timestamp(begin),
            end: Timestamp(end),
            packet_bytes: Bytes(0),
            block: BlockPlace {
                offset: Bytes(0),
                stored: 0,
                raw: 0,
                encoding: Encoding::Stored,
                checksum: 0,
            },
        }
    }

    fn add(packets: &mut StreamPackets, begin: u64, end: u64) {
        for (begin, end) in packets.arrived.insert(begin, end) {
            packets.blocks.push(BlockUse {
                block: Placed {
                    object: 0,
                    record: record(begin, end),
                },
                begin: SeqNum(begin),
                end: SeqNum(end),
            });
        }
    }

    #[test]
    fn packets_after_missing_ones_wait_for_one_more_look() {
        let mut packets = StreamPackets::default();
        add(&mut packets, 5, 8);
        add(&mut packets, 10, 12);
        assert_eq!(numbers(&packets.take_ready()), [(5, 8)]);
        add(&mut packets, 8, 10);
        assert_eq!(numbers(&packets.take_ready()), [(8, 10), (10, 12)]);
        add(&mut packets, 20, 22);
        assert_eq!(numbers(&packets.take_ready()), []);
        assert_eq!(numbers(&packets.take_ready()), [(20, 22)]);
        // Too late: readers are behind them.
        add(&mut packets, 12, 20);
        add(&mut packets, 22, 23);
        assert_eq!(numbers(&packets.take_ready()), [(22, 23)]);
    }

    #[test]
    fn packets_that_the_producer_has_dropped_are_not_waited_for() {
        let mut packets = StreamPackets::default();
        add(&mut packets, 0, 2);
        add(&mut packets, 7, 9);
        packets.skipped.insert(2, 7);
        assert_eq!(numbers(&packets.take_ready()), [(0, 2), (7, 9)]);
    }
}
