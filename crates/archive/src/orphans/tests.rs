use std::time::Duration;

use ctf::index::Entry;
use wire::{Bits, Bytes, FileName, PacketIndex, SeqNum, Text, Timestamp, TracePath};

use super::*;
use crate::catalog::{SessionTotal, count_sessions, open_session};
use crate::document::{OwnerDocument, to_json};
use crate::object::PacketBlock;
use crate::record::StreamRecord;
use crate::store::{Fault, FaultyStore, in_memory};

const DEAD: BootId = BootId([1; 16]);
const ALIVE: BootId = BootId([2; 16]);

/// Bytes of a packet.
const LEN: usize = 40;

/// Number of the data stream and of the stream of metadata.
const STREAM: u64 = 5;

const METADATA: &[u8] = b"/* CTF 1.8 */ trace {};";

fn key(id: u64) -> SessionKey {
    SessionKey {
        producer: [7; 16],
        id,
    }
}

fn packet(session: u64, number: u64) -> Vec<u8> {
    vec![u8::try_from(session * 100 + number % 100).unwrap(); LEN]
}

/// Begins an object with the records that each has about a session.
fn add_session(object: &mut ObjectWriter, session: u64) {
    object.add_record(&Record::Session(SessionRecord {
        session: key(session),
        created: 1,
        live_timer: 0,
        ctf_version: 1,
        host: Text::from("vm"),
        name: Text::from("app"),
    }));
    for is_metadata in [false, true] {
        object.add_record(&Record::Stream(StreamRecord {
            stream: StreamKey {
                number: STREAM,
                is_metadata,
            },
            path: TracePath::parse(&Text::from("ust")).unwrap(),
            name: FileName::parse(&Text::from("channel")).unwrap(),
        }));
    }
}

/// Adds packets of a session, and the metadata with the first one.
fn add_packets(object: &mut ObjectWriter, session: u64, numbers: std::ops::Range<u64>) {
    if numbers.start == 0 {
        let added = object.add_metadata(STREAM, None, 0, Bytes(0), METADATA);
        added.unwrap();
    }
    let entry = |number: u64| Entry {
        offset: Bytes(0),
        packet: PacketIndex {
            packet_size: Bits(LEN as u64 * 8),
            content_size: Bits(LEN as u64 * 8),
            begin: Timestamp(number),
            end: Timestamp(number + 1),
            ..PacketIndex::default()
        },
    };
    let entries: Vec<_> = numbers.clone().map(entry).collect();
    let bytes: Vec<u8> = numbers
        .clone()
        .flat_map(|number| packet(session, number))
        .collect();
    let first = SeqNum(numbers.start);
    let added = object.add_packets(STREAM, None, first, &entries, |buffer| {
        buffer.copy_from_slice(&bytes);
        Ok::<_, std::io::Error>(())
    });
    added.unwrap();
}

fn object(kind: ObjectKind, number: u64) -> ObjectWriter {
    ObjectWriter::new(ObjectRecord {
        kind,
        boot: DEAD,
        number,
    })
    .unwrap()
}

async fn create(store: &dyn Store, name: &str, bytes: Buffer) {
    store.create(name, bytes).await.unwrap();
}

/// A log of 12 commit objects with two sessions, of which a part has some, and a dropped packet.
async fn write_log(store: &dyn Store) {
    for session in 1..=2 {
        let owner = |boot: BootId| OwnerDocument {
            boot: boot.to_string(),
            since: 1,
            created: 1,
        };
        for (number, boot) in [(1, ALIVE), (2, DEAD)] {
            let name = key(session).object(SessionObject::Owner(number));
            create(store, &name, to_json(&owner(boot))).await;
        }
    }
    let mut part = object(ObjectKind::Part, 0);
    add_session(&mut part, 1);
    add_packets(&mut part, 1, 0..4);
    let name = key(1).object(SessionObject::Part {
        owner: 2,
        number: 0,
    });
    create(store, &name, part.finish().unwrap()).await;
    for number in 0..12 {
        let mut commit = object(ObjectKind::Commit, number);
        for session in 1..=2 {
            if number % 3 == 2 && session == 2 {
                continue;
            }
            add_session(&mut commit, session);
            let first = number * 2;
            let count = if number == 7 { 1 } else { 2 };
            add_packets(&mut commit, session, first..first + count);
            if number == 7 {
                commit.add_record(&Record::Skipped {
                    stream: STREAM,
                    first: SeqNum(15),
                    count: 1,
                });
            }
        }
        create(store, &DEAD.commit(number), commit.finish().unwrap()).await;
    }
}

/// What readers find of a session: its packets by number, its metadata, and how many are missing.
type Content = (BTreeMap<u64, Vec<u8>>, Vec<u8>, u64);

async fn content(store: &dyn Store, session: u64) -> Content {
    let opened = open_session(store, key(session)).await.unwrap();
    assert!(opened.failures.is_empty(), "{:?}", opened.failures);
    let [trace] = &opened.view.traces[..] else {
        panic!("{:?}", opened.view.traces);
    };
    let read = async |object: usize, place: BlockPlace| {
        let run = read_run(store, &opened.objects[object], &[place]).await;
        run.unwrap().decode(&place).unwrap()
    };
    let (mut packets, mut metadata) = (BTreeMap::new(), Vec::new());
    for used in &trace.streams[0].blocks {
        let record = &used.block.record;
        let bytes = read(used.block.object, record.block).await;
        let block = PacketBlock::parse(record, bytes).unwrap();
        for number in used.begin.0..used.end.0 {
            let at = usize::try_from(number - record.first.0).unwrap();
            packets.insert(number, block.packet(at).unwrap().1.to_vec());
        }
    }
    for piece in &trace.metadata {
        metadata.extend(read(piece.object, piece.record.block).await);
    }
    (packets, metadata, trace.streams[0].missing)
}

async fn contents(store: &dyn Store) -> [Content; 2] {
    [content(store, 1).await, content(store, 2).await]
}

#[tokio::test]
async fn a_log_becomes_parts_of_its_sessions() {
    let store = in_memory();
    write_log(&*store).await;
    let before = contents(&*store).await;
    assert_eq!(before[0].0.len(), 23);
    assert_eq!(before[0].0[&9], packet(1, 9));
    assert_eq!((&before[0].1[..], before[0].2), (METADATA, 0));
    assert_eq!(before[1].2, 6, "those of a session that are in no object");
    let moved = move_orphan(&*store, DEAD).await.unwrap();
    assert_eq!((moved.parts, moved.commits), (2, 12));
    assert!(list_commits(&*store, DEAD).await.unwrap().is_empty());
    assert_eq!(contents(&*store).await, before);
    let again = move_orphan(&*store, DEAD).await.unwrap();
    assert_eq!(again, Moved::default());
}

#[tokio::test]
async fn a_log_is_moved_although_there_is_a_part_with_the_last_number() {
    let store = in_memory();
    write_log(&*store).await;
    let before = contents(&*store).await;
    let mut part = object(ObjectKind::Part, 0);
    add_session(&mut part, 1);
    let (owner, number) = (2, MAX_NUMBER);
    let name = key(1).object(SessionObject::Part { owner, number });
    create(&*store, &name, part.finish().unwrap()).await;
    move_orphan(&*store, DEAD).await.unwrap();
    assert_eq!(contents(&*store).await, before);
}

#[tokio::test]
async fn sessions_that_are_counted_together_have_what_each_has() {
    let store = in_memory();
    write_log(&*store).await;
    let keys = [1, 2].map(key).into();
    for _ in 0..2 {
        let totals = count_sessions(&*store, &keys).await.unwrap();
        for session in &keys {
            let view = open_session(&*store, *session).await.unwrap().view;
            let (packets, bytes) = (view.packets(), view.raw_bytes());
            assert!(packets > 0);
            assert_eq!(totals[session], SessionTotal { packets, bytes });
        }
        // The second time, all of it is in parts.
        move_orphan(&*store, DEAD).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_lost_whichever_request_fails() {
    let store = in_memory();
    write_log(&*store).await;
    let expected = contents(&*store).await;
    let counted = FaultyStore::new(store);
    move_orphan(&counted, DEAD).await.unwrap();
    let requests = counted.requests();
    assert!(requests > 30, "{requests}");
    for request in 0..requests {
        for fault in [Fault::Lost, Fault::AnswerLost, Fault::Refused] {
            let store = FaultyStore::new(in_memory());
            write_log(&store).await;
            store.fail(store.requests() + request, fault);
            let first = move_orphan(&store, DEAD).await;
            let case = format!("{fault:?} of request {request}: {first:?}");
            assert_eq!(contents(&store).await, expected, "{case}");
            store.repair();
            move_orphan(&store, DEAD).await.unwrap();
            assert_eq!(contents(&store).await, expected, "{case}");
            let left = list_commits(&store, DEAD).await.unwrap();
            assert!(left.is_empty(), "{case}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn several_relays_may_move_a_log_at_once() {
    for delay in 0..40 {
        let store = FaultyStore::new(in_memory());
        write_log(&store).await;
        let expected = contents(&store).await;
        store.set_delay(Duration::from_millis(10));
        let later = async {
            tokio::time::sleep(Duration::from_millis(delay * 9)).await;
            move_orphan(&store, DEAD).await
        };
        let (first, second) = tokio::join!(move_orphan(&store, DEAD), later);
        assert!(first.is_ok() || second.is_ok(), "{first:?} {second:?}");
        assert_eq!(contents(&store).await, expected, "{delay}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_is_opened_whole_while_its_log_is_moved() {
    for delay in 0..100 {
        let store = FaultyStore::new(in_memory());
        write_log(&store).await;
        let expected = open_session(&store, key(1)).await.unwrap();
        store.set_delay(Duration::from_millis(10));
        let opened = async {
            tokio::time::sleep(Duration::from_millis(delay * 7)).await;
            open_session(&store, key(1)).await
        };
        let (moved, opened) = tokio::join!(move_orphan(&store, DEAD), opened);
        assert_eq!(moved.unwrap().commits, 12);
        let opened = opened.unwrap();
        assert!(opened.failures.is_empty(), "{delay}: {:?}", opened.failures);
        assert_eq!(opened.view.packets(), expected.view.packets(), "{delay}");
    }
}

#[tokio::test]
async fn a_log_with_a_damaged_object_stays() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("file://{}", directory.path().display());
    let store = crate::store::open(&url, None).unwrap();
    write_log(&*store).await;
    // A byte of a block.
    crate::test_support::corrupt_object(directory.path(), &DEAD.commit(4), 12);
    let error = move_orphan(&*store, DEAD).await.unwrap_err();
    assert!(error.to_string().contains("0000000004"), "{error}");
    assert_eq!(list_commits(&*store, DEAD).await.unwrap().len(), 12);
}

#[tokio::test]
async fn a_session_without_owner_keeps_its_log() {
    let store = in_memory();
    let mut commit = object(ObjectKind::Commit, 0);
    add_session(&mut commit, 1);
    add_packets(&mut commit, 1, 0..1);
    create(&*store, &DEAD.commit(0), commit.finish().unwrap()).await;
    let error = move_orphan(&*store, DEAD).await.unwrap_err();
    assert!(matches!(error, MoveError::NoOwner(_)), "{error}");
    assert_eq!(list_commits(&*store, DEAD).await.unwrap().len(), 1);
}

#[tokio::test]
async fn only_logs_of_others_that_have_not_grown_are_orphans() {
    let store = in_memory();
    let before = SystemTime::now() - Duration::from_secs(1);
    for boot in [DEAD, ALIVE] {
        create(&*store, &boot.commit(3), Buffer::from_static(b"x")).await;
    }
    create(&*store, "log/notes", Buffer::from_static(b"x")).await;
    let later = SystemTime::now() + Duration::from_secs(1);
    let found = find_orphans(&*store, ALIVE, later).await.unwrap();
    assert_eq!(found, [DEAD]);
    let found = find_orphans(&*store, ALIVE, before).await.unwrap();
    assert!(found.is_empty());
}
