//! Logs that the first version has written, in `tests/data`: every later one reads them.

use std::collections::VecDeque;

use relay_proto::session::TraceFormat;
use wire::{Bytes, Micros};

use super::*;

const BEGUN: &[u8] = include_bytes!("../../../../tests/data/session-log-1-begun.bin");
const COMPLETE: &[u8] = include_bytes!("../../../../tests/data/session-log-1-complete.bin");

/// A session without anything, of a producer with an IPv6 address.
fn begun() -> LoggedSession {
    LoggedSession {
        producer: IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 7]),
        ..session()
    }
}

/// A session of which every value is set.
fn complete() -> LoggedSession {
    LoggedSession {
        producer: IpAddr::from([192, 0, 2, 7]),
        timeout: 3600,
        created: CreateSession {
            name: Text::from("name"),
            host: Text::from("host"),
            base_path: Text::from("base/path"),
            live_timer: Micros(200_000),
            snapshot: true,
            recording: Some(Recording {
                daemon: DaemonId([7; 16]),
                id: 5,
                created: EpochSeconds(1_795_203_511),
                name_has_date: true,
                current_chunk: Some(ChunkId(2)),
            }),
            trace_format: TraceFormat::Ctf2,
        },
        ..session()
    }
}

fn data_stream(key: u64, channel: &str) -> OpenStream {
    let mut opened = opened(key, channel);
    opened.stream.tracefile_size = Bytes(1 << 20);
    opened.stream.tracefile_count = 4;
    opened
}

fn chunk() -> CreateTraceChunk {
    CreateTraceChunk {
        chunk: ChunkId(6),
        created: EpochSeconds(1_795_203_512),
        name: Some(Text::from("snapshot-1")),
    }
}

fn mark(file: u64, packets: u64, seq: u64) -> Mark {
    Mark {
        at: FilePosition { file, packets },
        seq: SeqNum(seq),
    }
}

fn key(is_metadata: bool, number: u64) -> StreamKey {
    StreamKey {
        is_metadata,
        number,
    }
}

/// A record of every type.
fn records() -> Vec<Record> {
    let at = |file, packets| FilePosition { file, packets };
    let add_mark = |mark, indexed| Record::Mark {
        key: 0,
        mark,
        indexed,
    };
    let replacing = |key, mark| Record::Replacing { key, mark };
    let closed = |key, at| Record::Closed { key, at };
    vec![
        Record::Chunk(chunk()),
        Record::Stream(StreamId(8), opened(0, "metadata")),
        Record::Stream(StreamId(9), data_stream(0, "chan_0")),
        Record::Stream(StreamId(10), data_stream(1, "chan_1")),
        Record::Metadata { key: 0, bytes: 77 },
        add_mark(mark(1, 0, 30), at(0, 5)),
        add_mark(mark(1, 4, 40), at(0, 5)),
        Record::Rewound {
            key: 0,
            at: at(1, 2),
        },
        replacing(0, mark(2, 0, 50)),
        add_mark(mark(2, 0, 50), at(1, 2)),
        replacing(1, mark(3, 0, 60)),
        closed(key(true, 0), 77),
        closed(key(false, 1), 61),
        Record::ChunkClosed,
    ]
}

/// What the log of a session says after all [`records`].
fn complete_after_records() -> LoggedSession {
    let mut session = complete();
    session.chunk = Some(chunk());
    session.is_chunk_closed = true;
    for (id, opened) in [
        (8, opened(0, "metadata")),
        (9, data_stream(0, "chan_0")),
        (10, data_stream(1, "chan_1")),
    ] {
        session.add_stream(StreamId(id), &opened).unwrap();
    }
    let metadata = session.streams.get_mut(&key(true, 0)).unwrap();
    metadata.metadata_bytes = 77;
    metadata.closed_at = Some(77);
    let first = session.streams.get_mut(&key(false, 0)).unwrap();
    first.marks = VecDeque::from([mark(1, 0, 30), mark(2, 0, 50)]);
    let second = session.streams.get_mut(&key(false, 1)).unwrap();
    second.marks = VecDeque::from([mark(0, 0, 10)]);
    second.replacing = Some(mark(3, 0, 60));
    second.closed_at = Some(61);
    session
}

#[test]
fn session_log_of_version_1_is_read_for_ever() {
    let directory = tempfile::tempdir().unwrap();
    for (bytes, expected) in [(BEGUN, begun()), (COMPLETE, complete_after_records())] {
        let path = directory.path().join("session.log");
        fs::write(&path, bytes).unwrap();
        let log = SessionLog::open(&path, &Pool::new(100)).unwrap().unwrap();
        let read = log.with_session(|session| format!("{session:#?}"));
        assert_eq!(read, format!("{expected:#?}"));
        // Nothing was taken for damage.
        assert_eq!(fs::read(&path).unwrap(), bytes);
    }
}

#[test]
#[ignore = "has written the fixtures of version 1, which are not written again"]
fn fixtures_are_written() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    for (name, session, records) in [
        ("session-log-1-begun.bin", begun(), vec![]),
        ("session-log-1-complete.bin", complete(), records()),
    ] {
        let output = tempfile::tempdir().unwrap();
        let log = SessionLog::create(output.path(), session, &Pool::new(100)).unwrap();
        for record in records {
            log.append(&record).unwrap();
        }
        let bytes = fs::read(log.path()).unwrap();
        let mut file = File::create_new(data.join(name)).unwrap();
        io::Write::write_all(&mut file, &bytes).unwrap();
    }
}
