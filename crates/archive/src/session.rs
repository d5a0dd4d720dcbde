//! One session, as the directories of many objects describe it. Objects may be missing, repeat each
//! other, or come from several relays: a packet is the same packet if it has the same number in the
//! same stream, and its first block in the order of reading is the one that is used.

pub(crate) mod coverage;
mod update;

use std::collections::{BTreeMap, BTreeSet};

use wire::{ChunkId, FileName, SeqNum, TracePath};

use crate::name::SessionKey;
use crate::object::Directory;
use crate::record::{ChunkState, MetadataRecord, PacketsRecord, Record, SessionRecord, StreamKey};
use coverage::Coverage;
pub use update::{Beacon, SessionUpdate, StreamUpdate};

/// Collects what directories say of one session. Add parts first, because the relay may delete
/// commit objects while they are read, and then each log from its first number on.
#[derive(Debug)]
pub struct SessionBuilder {
    session: SessionKey,
    record: Option<SessionRecord>,
    chunks: BTreeMap<Option<ChunkId>, ChunkState>,
    streams: BTreeMap<StreamKey, StreamNames>,
    packets: BTreeMap<u64, StreamPackets>,
    metadata: Vec<Placed<MetadataRecord>>,
    beacons: BTreeMap<u64, Beacon>,
    ended_at: Option<u64>,
    kept_bytes: u64,
}

/// Memory that a record takes, approximately and without its texts.
const RECORD_BYTES: u64 = 160;

#[derive(Debug, Clone)]
struct StreamNames {
    path: TracePath,
    name: FileName,
    /// Number after the last packet, or length of the metadata. None: the stream has not ended.
    end: Option<u64>,
}

#[derive(Debug, Default)]
struct StreamPackets {
    blocks: Vec<BlockUse>,
    arrived: Coverage,
    skipped: Coverage,
    /// Number of the next packet of [`SessionBuilder::take_update`]. None: it has had none.
    next: Option<SeqNum>,
    /// Whether packets before the blocks were missing at the last call.
    has_gap: bool,
}

/// A record of an object, which the caller has numbered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed<T> {
    /// Number of the object, as it was given to [`SessionBuilder::add`].
    pub object: usize,
    /// The record.
    pub record: T,
}

/// The packets of a block that are to be read. The others are in blocks that were found before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockUse {
    /// The block.
    pub block: Placed<PacketsRecord>,
    /// Number of the first packet to read.
    pub begin: SeqNum,
    /// Number of the packet after the last one to read.
    pub end: SeqNum,
}

/// A session, ready to be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionView {
    /// The properties of the session. None: no object that was read has data of the session.
    pub session: Option<SessionRecord>,
    /// Time of the end of the session, in nanoseconds since 1970. None: it has not ended, or its
    /// relay died.
    pub ended_at: Option<u64>,
    /// The traces, by chunk and path. Those of deleted chunks are left out.
    pub traces: Vec<TraceView>,
}

/// A trace: streams of packets that share metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceView {
    /// The chunk of the trace. None: the producer knows no chunks.
    pub chunk: Option<ChunkId>,
    /// Directory of the trace, below that of the chunk.
    pub path: TracePath,
    /// The metadata, in order and without a gap. Empty: none was archived.
    pub metadata: Vec<Placed<MetadataRecord>>,
    /// The streams, by their keys.
    pub streams: Vec<StreamView>,
}

/// The packets of a stream in one chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamView {
    /// Number of the stream.
    pub number: u64,
    /// Name of its file.
    pub name: FileName,
    /// The blocks, in the order of their packets. No packet is in two.
    pub blocks: Vec<BlockUse>,
    /// Number of packets of the whole stream, in all chunks, that are in no object and that the
    /// producer has not dropped: objects are missing or damaged.
    pub missing: u64,
}

impl SessionBuilder {
    /// Nothing is known of the session yet.
    #[must_use]
    pub fn new(session: SessionKey) -> Self {
        Self {
            session,
            record: None,
            chunks: BTreeMap::new(),
            streams: BTreeMap::new(),
            packets: BTreeMap::new(),
            metadata: Vec::new(),
            beacons: BTreeMap::new(),
            ended_at: None,
            kept_bytes: 0,
        }
    }

    /// Memory that the session takes, approximately: that of records that repeat others is not
    /// counted.
    #[must_use]
    pub fn kept_bytes(&self) -> u64 {
        self.kept_bytes
    }

    /// Adds what the directory of an object says of the session. `object` is the number by which
    /// the caller knows the object. Returns whether it says anything.
    pub fn add(&mut self, object: usize, directory: &Directory) -> bool {
        let mut is_of_session = false;
        let mut has_any = false;
        for record in &directory.records {
            if let Record::Session(session) = record {
                is_of_session = session.session == self.session;
                if is_of_session {
                    self.record.get_or_insert_with(|| session.clone());
                    has_any = true;
                }
            } else if is_of_session {
                self.add_record(object, record);
            }
        }
        has_any
    }

    /// Adds a record that is about the session, its session record included.
    pub(crate) fn add_own(&mut self, object: usize, record: &Record) {
        match record {
            Record::Session(session) => _ = self.record.get_or_insert_with(|| session.clone()),
            other => self.add_record(object, other),
        }
    }

    fn add_record(&mut self, object: usize, record: &Record) {
        match record {
            Record::Chunk(chunk) => {
                let kept_bytes = &mut self.kept_bytes;
                let state = self.chunks.entry(chunk.chunk).or_insert_with(|| {
                    *kept_bytes += RECORD_BYTES;
                    chunk.state
                });
                // Objects are read in any order: of two states, the later one holds.
                if chunk.state.code() > state.code() {
                    *state = chunk.state;
                }
            }
            Record::Stream(stream) => {
                let kept_bytes = &mut self.kept_bytes;
                self.streams.entry(stream.stream).or_insert_with(|| {
                    let texts = stream.path.to_text().as_bytes().len()
                        + stream.name.to_text().as_bytes().len();
                    *kept_bytes += RECORD_BYTES + texts as u64;
                    StreamNames {
                        path: stream.path.clone(),
                        name: stream.name.clone(),
                        end: None,
                    }
                });
            }
            Record::Packets(packets) => self.add_packets(object, packets),
            Record::Metadata(metadata) => {
                self.kept_bytes += RECORD_BYTES;
                self.metadata.push(Placed {
                    object,
                    record: metadata.clone(),
                });
            }
            Record::Skipped {
                stream,
                first,
                count,
            } => {
                let end = first.0.saturating_add(*count);
                let packets = self.packets.entry(*stream).or_default();
                let added = packets.skipped.insert(first.0, end);
                self.kept_bytes += added.len() as u64 * RECORD_BYTES;
            }
            Record::StreamEnd { stream, next } => {
                if let Some(names) = self.streams.get_mut(stream) {
                    names.end = names.end.max(Some(*next));
                }
            }
            Record::Beacon {
                stream,
                until,
                class,
            } => {
                let (until, class) = (*until, *class);
                let beacon = self.beacons.entry(*stream);
                let kept_bytes = &mut self.kept_bytes;
                let beacon = beacon.or_insert_with(|| {
                    *kept_bytes += RECORD_BYTES;
                    Beacon { until, class }
                });
                beacon.until = beacon.until.max(until);
            }
            Record::SessionEnd { at } => self.ended_at = self.ended_at.max(Some(*at)),
            Record::Object(_) | Record::Session(_) => {}
        }
    }

    fn add_packets(&mut self, object: usize, record: &PacketsRecord) {
        let packets = self.packets.entry(record.stream).or_default();
        let end = record.first.0.saturating_add(u64::from(record.count));
        for (begin, end) in packets.arrived.insert(record.first.0, end) {
            self.kept_bytes += RECORD_BYTES;
            packets.blocks.push(BlockUse {
                block: Placed {
                    object,
                    record: record.clone(),
                },
                begin: SeqNum(begin),
                end: SeqNum(end),
            });
        }
    }

    /// Whether the session has ended and nothing of it is missing, so that no other object can have
    /// more of it.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        let has_all = |(key, names): (&StreamKey, &StreamNames)| {
            let Some(end) = names.end else { return false };
            if key.is_metadata {
                let pieces = self.metadata.iter().map(|piece| &piece.record);
                let ends = pieces.filter(|piece| piece.stream == key.number);
                return ends.map(MetadataRecord::end).max().unwrap_or(0) >= end;
            }
            let packets = self.packets.get(&key.number);
            packets.is_none_or(|packets| packets.missing(Some(end)) == 0)
        };
        self.ended_at.is_some() && self.streams.iter().all(has_all)
    }

    /// Completes the session.
    #[must_use]
    pub fn finish(mut self) -> SessionView {
        let mut metadata = self.last_metadata();
        let mut traces: BTreeMap<(Option<ChunkId>, TracePath), Vec<StreamView>> = BTreeMap::new();
        for (number, mut packets) in std::mem::take(&mut self.packets) {
            let key = StreamKey {
                number,
                is_metadata: false,
            };
            // Without names nobody can decode the packets, and each object with packets has them.
            let Some(names) = self.streams.get(&key) else {
                continue;
            };
            let missing = packets.missing(names.end);
            packets.blocks.sort_by_key(|used| used.begin);
            let mut by_chunk: BTreeMap<Option<ChunkId>, Vec<BlockUse>> = BTreeMap::new();
            for used in packets.blocks {
                let chunk = used.block.record.chunk;
                by_chunk.entry(chunk).or_default().push(used);
            }
            for (chunk, blocks) in by_chunk {
                let trace = traces.entry((chunk, names.path.clone())).or_default();
                trace.push(StreamView {
                    number,
                    name: names.name.clone(),
                    blocks,
                    missing,
                });
            }
        }
        // A trace without packets is one all the same: its metadata may have arrived alone.
        for key in metadata.keys() {
            traces.entry(key.clone()).or_default();
        }
        let is_shown = |chunk: &_| self.chunks.get(chunk) != Some(&ChunkState::Deleted);
        let traces = traces.into_iter().filter(|((chunk, _), _)| is_shown(chunk));
        let traces = traces.map(|(key, streams)| TraceView {
            metadata: metadata.remove(&key).unwrap_or_default(),
            chunk: key.0,
            path: key.1,
            streams,
        });
        SessionView {
            traces: traces.collect(),
            session: self.record,
            ended_at: self.ended_at,
        }
    }

    /// The metadata of each trace: the pieces of the last generation, without overlap, up to the
    /// first gap.
    fn last_metadata(&self) -> BTreeMap<(Option<ChunkId>, TracePath), Vec<Placed<MetadataRecord>>> {
        let mut pieces = self.metadata.clone();
        // The last generation first; of two pieces at one place, the longer one.
        pieces.sort_by_key(|piece| {
            let MetadataRecord {
                generation,
                offset,
                block,
                ..
            } = &piece.record;
            (
                std::cmp::Reverse(*generation),
                *offset,
                std::cmp::Reverse(block.raw),
            )
        });
        let mut traces: BTreeMap<_, Vec<Placed<MetadataRecord>>> = BTreeMap::new();
        for piece in pieces {
            let key = StreamKey {
                number: piece.record.stream,
                is_metadata: true,
            };
            let Some(names) = self.streams.get(&key) else {
                continue;
            };
            let trace = (piece.record.chunk, names.path.clone());
            let kept = traces.entry(trace).or_default();
            let next = kept.last().map_or(0, |last| last.record.end());
            let is_newest = kept
                .first()
                .is_none_or(|first| first.record.generation == piece.record.generation);
            let continues = piece.record.offset.0 <= next && piece.record.end() > next;
            if is_newest && continues {
                kept.push(piece);
            }
        }
        traces
    }
}

impl MetadataRecord {
    /// Offset of the byte after the piece.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.offset.0.saturating_add(u64::from(self.block.raw))
    }
}

impl StreamPackets {
    /// Number of packets that should be in some object and are not. Packets before the first one
    /// count only if the stream began there: a producer may begin with any number.
    fn missing(&self, end: Option<u64>) -> u64 {
        let Some((first, last)) = self.arrived.span() else {
            return 0;
        };
        let mut known = self.arrived.clone();
        for (begin, end) in self.skipped.ranges() {
            known.insert(begin, end);
        }
        let end = end.map_or(last, |end| end.max(last));
        (end - first).saturating_sub(known.len_within(first, end))
    }
}

impl SessionView {
    fn blocks(&self) -> impl Iterator<Item = &BlockUse> {
        let streams = self.traces.iter().flat_map(|trace| &trace.streams);
        streams.flat_map(|stream| &stream.blocks)
    }

    /// Number of packets that are found.
    #[must_use]
    pub fn packets(&self) -> u64 {
        let packets = self.blocks().map(|used| used.end.0 - used.begin.0);
        packets.sum()
    }

    /// Bytes of packets, their index entries and metadata.
    #[must_use]
    pub fn raw_bytes(&self) -> u64 {
        let packets = self.blocks().map(|used| &used.block.record.block);
        let metadata = self.traces.iter().flat_map(|trace| &trace.metadata);
        let metadata = metadata.map(|piece| &piece.record.block);
        packets
            .chain(metadata)
            .map(|place| u64::from(place.raw))
            .sum()
    }

    /// The objects that have the packets and the metadata.
    #[must_use]
    pub fn objects(&self) -> BTreeSet<usize> {
        let blocks = self.blocks().map(|used| used.block.object);
        let metadata = self.traces.iter().flat_map(|trace| &trace.metadata);
        blocks.chain(metadata.map(|piece| piece.object)).collect()
    }
}

#[cfg(test)]
mod tests;
