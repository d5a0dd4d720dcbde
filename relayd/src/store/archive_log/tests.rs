use archive::name::SessionKey;
use relay_proto::session::TraceFormat;
use wire::{FileName, Micros, Text, TracePath};

use super::*;
use crate::store::session_log::StreamKey;

fn session() -> LoggedArchive {
    LoggedArchive {
        key: SessionKey {
            producer: [7; 16],
            id: 3,
        },
        created: 1,
        host: "host".into(),
        name: "name".into(),
        live_timer: Micros(5),
        trace_format: TraceFormat::Ctf2,
        directory: Some(TracePath::parse(&"host/name".into()).unwrap()),
        has_expired: false,
        streams: Default::default(),
        chunks: Default::default(),
        marks: Default::default(),
    }
}

fn names(name: &str) -> StreamNames {
    StreamNames {
        path: TracePath::parse(&Text::from("ust/uid")).unwrap(),
        name: FileName::parse(&Text::from(name)).unwrap(),
        is_numbered: true,
    }
}

/// Appends a record of each kind, and many of a ring of two tracefiles.
fn fill(log: &Arc<ArchiveLog>) {
    let key = StreamKey {
        is_metadata: false,
        number: 9,
    };
    log.append(ArchiveRecord::Stream(key, names("chan_0")));
    for (id, name) in [(0, None), (1, Some("snapshot"))] {
        let chunk = LoggedChunk {
            began: "20261120T213831+0000".into(),
            name: name.map(|name| FileName::parse(&name.into()).unwrap()),
            is_deleted: false,
        };
        log.append(ArchiveRecord::Chunk(Some(ChunkId(id)), chunk));
    }
    log.append(ArchiveRecord::ChunkDeleted(Some(ChunkId(0))));
    log.append(ArchiveRecord::Expired);
    let numbers = StreamNumberLog::new(Arc::clone(log), 9);
    for file in 0..5000 {
        numbers.mark(Some(ChunkId(1)), file % 2, 0, SeqNum(10 * file));
        numbers.mark(Some(ChunkId(1)), file % 2, 4, SeqNum(10 * file + 6));
    }
}

fn log_file(output: &Path) -> PathBuf {
    paths(output).pop().unwrap()
}

#[test]
fn the_next_relay_reads_what_was_logged_however_often_the_log_was_compacted() {
    let (output, pool) = (tempfile::tempdir().unwrap(), Pool::new(9));
    let log = ArchiveLog::create(output.path(), session(), &pool).unwrap();
    fill(&log);
    let written = log.with_session(|session| session.bodies());
    assert!(std::fs::metadata(log.path()).unwrap().len() < 100_000);
    assert!(
        ArchiveLog::open_all(output.path(), &pool).is_empty(),
        "it is locked"
    );
    drop(log);
    let [log] = &ArchiveLog::open_all(output.path(), &pool)[..] else {
        panic!("one log")
    };
    assert_eq!(log.with_session(|session| session.bodies()), written);
    assert!(log.with_session(|session| session.has_expired));
    let of_file = |file| TracefileKey {
        stream: 9,
        chunk: Some(ChunkId(1)),
        file,
    };
    let marks = log.with_session(|session| session.marks[&of_file(1)].clone());
    let marks: Vec<_> = marks
        .iter()
        .map(|mark| (mark.packets, mark.seq.0))
        .collect();
    assert_eq!(marks, [(0, 49_990), (4, 49_996)]);
    let directories = ArchiveLog::directories(output.path());
    assert!(directories.contains(Path::new("host/name")));
    log.remove();
    assert!(paths(output.path()).is_empty());
}

#[test]
fn a_torn_record_is_dropped_and_a_log_that_leads_out_of_the_output_is_set_aside() {
    let (output, pool) = (tempfile::tempdir().unwrap(), Pool::new(9));
    let log = ArchiveLog::create(output.path(), session(), &pool).unwrap();
    fill(&log);
    drop(log);
    let path = log_file(output.path());
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    let logs = ArchiveLog::open_all(output.path(), &pool);
    assert_eq!(logs.len(), 1);
    assert!(std::fs::metadata(&path).unwrap().len() < whole.len() as u64 - 1);
    drop(logs);
    for hostile in ["../etc/host", "host/../..", "/host/name"] {
        let mut head = session().bodies().remove(0);
        // The directory is the first text after the fields.
        let own = b"host/name\0";
        let at = head.windows(own.len()).position(|at| at == own).unwrap();
        head.splice(at..at + own.len(), [hostile.as_bytes(), b"\0"].concat());
        let length = u32::try_from(hostile.len() + 1).unwrap().to_be_bytes();
        head.splice(41..45, length);
        let mut log = MAGIC.to_vec();
        record_log::encode(&[&head], &mut log);
        std::fs::write(&path, &log).unwrap();
        assert!(
            ArchiveLog::directories(output.path()).is_empty(),
            "{hostile}"
        );
        assert!(
            ArchiveLog::open_all(output.path(), &pool).is_empty(),
            "{hostile}"
        );
        assert!(!path.exists() && path.with_extension("failed").exists());
    }
}
