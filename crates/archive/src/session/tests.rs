use proptest::prelude::*;
use wire::{Bytes, Text, Timestamp};

use super::*;
use crate::name::BootId;
use crate::record::{BlockPlace, ChunkRecord, Encoding, ObjectKind, ObjectRecord, StreamRecord};

const SESSION: SessionKey = SessionKey {
    producer: [4; 16],
    id: 4,
};

const BLOCK: BlockPlace = BlockPlace {
    offset: Bytes(8),
    stored: 10,
    raw: 10,
    encoding: Encoding::Stored,
    checksum: 0,
};

fn packets(chunk: u64, first: u64, count: u32) -> Record {
    Record::Packets(PacketsRecord {
        stream: 1,
        chunk: Some(ChunkId(chunk)),
        first: SeqNum(first),
        count,
        begin: Timestamp(first),
        end: Timestamp(first + 1),
        packet_bytes: Bytes(1),
        block: BLOCK,
    })
}

fn metadata(chunk: u64, generation: u32, offset: u64) -> Record {
    Record::Metadata(MetadataRecord {
        stream: 1,
        chunk: Some(ChunkId(chunk)),
        generation,
        offset: Bytes(offset),
        block: BLOCK,
    })
}

fn chunk(chunk: u64, state: ChunkState) -> Record {
    Record::Chunk(ChunkRecord {
        chunk: Some(ChunkId(chunk)),
        state,
    })
}

/// A directory with these records about the session, whose streams it names.
fn directory(records: impl IntoIterator<Item = Record>) -> Directory {
    let stream = |is_metadata| {
        Record::Stream(StreamRecord {
            stream: StreamKey {
                number: 1,
                is_metadata,
            },
            path: TracePath::parse(&Text::from("ust")).unwrap(),
            name: FileName::parse(&Text::from("chan_0")).unwrap(),
        })
    };
    let session = |session| {
        Record::Session(SessionRecord {
            session,
            created: 0,
            live_timer: 0,
            ctf_version: 1,
            host: Text::from("host"),
            name: Text::from("name"),
        })
    };
    let other = SessionKey { id: 5, ..SESSION };
    let mut all = vec![session(SESSION), stream(true), stream(false)];
    all.extend(records);
    // What is said of another session has nothing to do with this one.
    all.extend([session(other), packets(0, 1000, 9)]);
    Directory {
        object: ObjectRecord {
            kind: ObjectKind::Commit,
            boot: BootId([0; 16]),
            number: 0,
        },
        records: all,
    }
}

fn view(directories: &[Directory]) -> SessionView {
    let mut builder = SessionBuilder::new(SESSION);
    for (object, directory) in directories.iter().enumerate() {
        assert!(builder.add(object, directory));
    }
    builder.finish()
}

fn ranges(stream: &StreamView) -> Vec<(usize, u64, u64)> {
    let blocks = stream.blocks.iter();
    blocks
        .map(|used| (used.block.object, used.begin.0, used.end.0))
        .collect()
}

#[test]
fn a_packet_is_read_once_from_the_object_that_came_first() {
    let view = view(&[
        directory([packets(0, 0, 4)]),
        directory([packets(0, 2, 4), packets(0, 8, 1)]),
        directory([packets(0, 0, 9)]),
    ]);
    let [trace] = &view.traces[..] else {
        panic!("{view:?}")
    };
    let [stream] = &trace.streams[..] else {
        panic!("{trace:?}")
    };
    assert_eq!(ranges(stream), [(0, 0, 4), (1, 4, 6), (2, 6, 8), (1, 8, 9)]);
    assert_eq!(stream.missing, 0);
    assert_eq!(view.objects(), BTreeSet::from([0, 1, 2]));
}

#[test]
fn packets_that_are_in_no_object_are_missing_unless_the_producer_dropped_them() {
    let skipped = Record::Skipped {
        stream: 1,
        first: SeqNum(12),
        count: 2,
    };
    let end = Record::StreamEnd {
        stream: StreamKey {
            number: 1,
            is_metadata: false,
        },
        next: 20,
    };
    let view = view(&[directory([
        packets(0, 10, 1),
        packets(0, 14, 1),
        skipped,
        end,
    ])]);
    let missing = view.traces[0].streams[0].missing;
    assert_eq!(missing, 1 + 5, "packet 11, and the five before the end");
}

#[test]
fn each_chunk_is_a_trace_and_a_deleted_one_is_not_shown() {
    let view = view(&[
        directory([packets(0, 0, 1), packets(1, 1, 1), packets(2, 2, 1)]),
        directory([
            chunk(1, ChunkState::Deleted),
            chunk(1, ChunkState::Open),
            chunk(0, ChunkState::Ended),
        ]),
    ]);
    let chunks: Vec<_> = view.traces.iter().map(|trace| trace.chunk).collect();
    assert_eq!(chunks, [Some(ChunkId(0)), Some(ChunkId(2))]);
}

#[test]
fn metadata_is_that_of_the_last_generation_up_to_the_first_gap() {
    let view = view(&[directory([
        metadata(0, 0, 0),
        metadata(0, 0, 10),
        metadata(0, 1, 10),
        metadata(0, 1, 0),
        metadata(0, 1, 0),
        metadata(0, 1, 30),
        metadata(1, 0, 0),
    ])]);
    let pieces = |number: usize| -> Vec<_> {
        let pieces = view.traces[number].metadata.iter();
        pieces
            .map(|piece| (piece.record.generation, piece.record.offset.0))
            .collect()
    };
    assert_eq!(pieces(0), [(1, 0), (1, 10)]);
    assert_eq!(pieces(1), [(0, 0)]);
    assert!(view.traces[0].streams.is_empty());
}

proptest! {
    /// However packets are spread over objects, repeated or lost: each that some object has is read
    /// exactly once, in order.
    #[test]
    fn any_mixture_of_objects_gives_each_packet_once(
        objects in prop::collection::vec(
            prop::collection::vec((0..60_u64, 1..9_u32), 0..6), 0..6),
    ) {
        let directories: Vec<_> = objects
            .iter()
            .map(|blocks| directory(blocks.iter().map(|(first, count)| packets(0, *first, *count))))
            .collect();
        let view = view(&directories);
        let streams = view.traces.iter().flat_map(|trace| &trace.streams);
        let read: Vec<u64> = streams.flat_map(ranges).flat_map(|(_, begin, end)| begin..end).collect();
        let all = objects.iter().flatten().flat_map(|(first, count)| *first..*first + u64::from(*count));
        let expected: BTreeSet<u64> = all.collect();
        prop_assert_eq!(read, expected.into_iter().collect::<Vec<_>>());
    }
}
