//! Logs that were written, torn, damaged or edited.

mod fixtures;

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;

use relay_proto::chunk::CreateTraceChunk;
use relay_proto::resume::OpenStream;
use relay_proto::session::{CreateSession, DaemonId, Recording};
use relay_proto::stream::AddStream;
use wire::{ChunkId, EpochSeconds, SeqNum, SessionId, StreamId, Text, TracePath};

use super::*;
use crate::limits::MIN_COMPACTED_LOG_BYTES;

fn session() -> LoggedSession {
    LoggedSession {
        id: SessionId(3),
        producer: IpAddr::from([127, 0, 0, 1]),
        timeout: 60,
        directory: TracePath::parse(&Text::from("host/name")).unwrap(),
        created: CreateSession {
            name: Text::from("name"),
            host: Text::from("host"),
            recording: Some(Recording {
                daemon: DaemonId([7; 16]),
                id: 5,
                ..Recording::default()
            }),
            ..CreateSession::default()
        },
        chunk: None,
        is_chunk_closed: false,
        streams: BTreeMap::new(),
        files: LoggedFiles::default(),
    }
}

fn opened(key: u64, channel: &str) -> OpenStream {
    OpenStream {
        key,
        first: SeqNum(10),
        stream: AddStream {
            channel: Text::from(channel),
            path: Text::from("ust"),
            chunk: Some(ChunkId(0)),
            ..AddStream::default()
        },
    }
}

fn changes() -> Vec<Record> {
    let at = |file, packets| FilePosition { file, packets };
    vec![
        Record::Chunk(CreateTraceChunk {
            chunk: ChunkId(0),
            created: EpochSeconds(1),
            name: None,
        }),
        Record::Stream(StreamId(8), opened(0, "metadata")),
        Record::Stream(StreamId(9), opened(0, "chan_0")),
        Record::Metadata { key: 0, bytes: 77 },
        Record::Mark {
            key: 0,
            mark: Mark {
                at: at(1, 0),
                seq: SeqNum(30),
            },
            indexed: at(0, 5),
        },
        Record::Closed {
            key: StreamKey {
                is_metadata: true,
                number: 0,
            },
            at: 77,
        },
        Record::ChunkClosed,
    ]
}

fn create(output: &Path) -> Result<Arc<SessionLog>, StoreError> {
    SessionLog::create(output, session(), &Pool::new(100))
}

/// The log after all changes, and what it says.
fn written(output: &Path) -> (PathBuf, String) {
    let log = create(output).unwrap();
    for change in changes() {
        log.append(&change).unwrap();
    }
    let said = log.with_session(|session| format!("{session:?}"));
    (log.path().to_owned(), said)
}

/// What the only log says, or why it cannot be read.
fn read(output: &Path) -> Result<String, String> {
    let paths = SessionLog::paths(output);
    assert_eq!(paths.len(), 1);
    match SessionLog::open(&paths[0], &Pool::new(100)) {
        Ok(log) => Ok(log.unwrap().with_session(|session| format!("{session:?}"))),
        Err(error) => Err(error.to_string()),
    }
}

#[test]
fn a_session_is_read_as_it_was_logged() {
    let output = tempfile::tempdir().unwrap();
    let (_, said) = written(output.path());
    assert!(said.contains("77") && said.contains("chan_0"), "{said}");
    assert_eq!(read(output.path()).unwrap(), said);
}

#[test]
fn a_log_that_is_cut_anywhere_describes_an_earlier_state_or_none() {
    let output = tempfile::tempdir().unwrap();
    let (path, said) = written(output.path());
    let whole = fs::read(&path).unwrap();
    let mut states = 0;
    for cut in 0..whole.len() {
        fs::write(&path, &whole[..cut]).unwrap();
        match read(output.path()) {
            Ok(earlier) => {
                states += 1;
                assert_ne!(earlier, said);
                // The torn record is gone.
                assert!(fs::metadata(&path).unwrap().len() <= cut as u64);
            }
            Err(_) => fs::remove_file(path.with_extension("failed")).unwrap(),
        }
    }
    assert!(states > 0);
}

#[test]
fn a_log_with_any_changed_byte_is_set_aside_or_torn_at_its_end() {
    let output = tempfile::tempdir().unwrap();
    let (path, said) = written(output.path());
    let whole = fs::read(&path).unwrap();
    for at in 0..whole.len() {
        let mut changed = whole.clone();
        changed[at] ^= 0x55;
        fs::write(&path, &changed).unwrap();
        match read(output.path()) {
            Ok(earlier) => assert_ne!(earlier, said, "byte {at}"),
            Err(_) => fs::remove_file(path.with_extension("failed")).unwrap(),
        }
    }
}

#[test]
fn a_log_is_compacted_when_it_grows() {
    let output = tempfile::tempdir().unwrap();
    let log = create(output.path()).unwrap();
    for change in changes() {
        log.append(&change).unwrap();
    }
    for bytes in 0..10_000 {
        log.append(&Record::Metadata { key: 0, bytes }).unwrap();
        let len = fs::metadata(log.path()).unwrap().len();
        assert!(len < 2 * MIN_COMPACTED_LOG_BYTES, "{len}");
    }
    let said = log.with_session(|session| format!("{session:?}"));
    drop(log);
    assert_eq!(read(output.path()).unwrap(), said);
}

#[test]
fn a_log_that_another_relay_has_locked_is_left_alone() {
    let output = tempfile::tempdir().unwrap();
    let log = create(output.path()).unwrap();
    let opened = SessionLog::open(log.path(), &Pool::new(100));
    assert!(opened.unwrap().is_none());
    assert!(create(output.path()).is_err());
    log.remove();
    assert!(!output.path().join(".relayd").exists());
}

#[test]
fn a_link_in_place_of_a_log_is_not_followed() {
    let output = tempfile::tempdir().unwrap();
    let (path, _) = written(output.path());
    let elsewhere = output.path().join("elsewhere");
    fs::rename(&path, &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
    assert!(read(output.path()).is_err());
    assert!(elsewhere.exists());
}
