//! A session that is archived while one of the requests to the store fails, for each of them, or
//! while the store is away: what is in the archive then is the session, once and whole.

mod fleet;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use archive::catalog::{OpenedSession, list_sessions, open_session, read_run};
use archive::document::{OwnerDocument, to_json};
use archive::name::{BootId, MAX_NUMBER, SessionKey, SessionObject, parse_commit};
use archive::object::PacketBlock;
use archive::store::{Fault, FaultyStore, Store, in_memory, probe};
use tokio::sync::Notify;

use super::disk_faults::{SentPackets, record, record_killed};
use crate::archiver::status::ArchiveStatus;
use crate::archiver::{ArchiveTimes, Archiver};
use crate::registry::archive_feed::ArchiveFeed;

const TIMES: ArchiveTimes = ArchiveTimes {
    interval: Duration::from_secs(1),
    part_age: Duration::from_secs(900),
};

/// A session that was recorded, and is to be archived.
struct Recorded {
    _output: tempfile::TempDir,
    feed: Arc<ArchiveFeed>,
    packets: SentPackets,
}

impl Recorded {
    fn new() -> Self {
        let output = tempfile::tempdir().unwrap();
        let feed = Arc::new(ArchiveFeed::new(true).unwrap());
        let packets = record(output.path(), &feed);
        Self {
            _output: output,
            feed,
            packets,
        }
    }

    /// Archives the session, and stops after that time. Returns whether all is archived.
    async fn archive(&self, store: Arc<dyn Store>, stop_after: Duration) -> bool {
        let status = Arc::<ArchiveStatus>::default();
        let feed = Arc::clone(&self.feed);
        let (mut archiver, done) = Archiver::new(store, TIMES, feed, status);
        let stop = Notify::new();
        let (is_archived, ()) = tokio::join!(archiver.archive(done, &stop), async {
            tokio::time::sleep(stop_after).await;
            stop.notify_one();
        });
        is_archived
    }

    /// Compares what is in the archive with what was recorded.
    async fn assert_archived(&self, store: &dyn Store, case: &str) {
        let found = list_sessions(store, &Default::default(), &[]).await;
        let [found] = &found.unwrap()[..] else {
            panic!("{case}: one session")
        };
        let opened = open_session(store, found.session).await.unwrap();
        assert!(opened.failures.is_empty(), "{case}: {:?}", opened.failures);
        assert!(opened.view.ended_at.is_some(), "{case}");
        let traces = opened.view.traces.iter();
        for stream in traces.flat_map(|trace| &trace.streams) {
            assert_eq!(stream.missing, 0, "{case}: {}", stream.name);
        }
        let archived = packets(store, &opened).await;
        for (channel, recorded) in &self.packets {
            let archived = archived.get(*channel).map_or(&[][..], |packets| packets);
            // The oldest tracefiles of some channels are replaced by newer ones.
            let first = recorded.len() - archived.len();
            for (number, (archived, bytes)) in (first..).zip(archived) {
                assert_eq!(*archived, number, "{case}: {channel}");
                assert!(*bytes == recorded[number], "{case}: {channel}, {number}");
            }
            let is_whole = matches!(*channel, "plain" | "sized");
            assert!(
                !is_whole || archived.len() == recorded.len(),
                "{case}: {channel}"
            );
        }
        // A store that refuses to delete keeps the commit objects.
        if !case.contains("Refused") {
            let log = store.list("log/", None, 1000).await.unwrap();
            assert!(log.is_empty(), "{case}: all is in parts: {log:?}");
        }
    }
}

/// The packets of each channel, in order, with their numbers.
async fn packets(
    store: &dyn Store,
    opened: &OpenedSession,
) -> BTreeMap<String, Vec<(usize, Vec<u8>)>> {
    let mut packets: BTreeMap<String, Vec<(usize, Vec<u8>)>> = BTreeMap::new();
    let [trace] = &opened.view.traces[..] else {
        panic!("{:?}", opened.view)
    };
    assert!(!trace.metadata.is_empty());
    for stream in &trace.streams {
        let of_channel = packets.entry(stream.name.to_string()).or_default();
        for used in &stream.blocks {
            let record = &used.block.record;
            let object = &opened.objects[used.block.object];
            let run = read_run(store, object, &[record.block]).await.unwrap();
            let block = run.decode(&record.block).unwrap();
            let block = PacketBlock::parse(record, block).unwrap();
            let [first, begin, end] =
                [record.first, used.begin, used.end].map(|seq| usize::try_from(seq.0).unwrap());
            let packet = |number| block.packet(number - first).unwrap().1.to_vec();
            of_channel.extend((begin..end).map(|number| (number, packet(number))));
        }
    }
    packets
}

#[tokio::test(start_paused = true)]
async fn a_session_is_archived_whichever_request_fails() {
    let recorded = Recorded::new();
    let store = Arc::new(FaultyStore::new(in_memory()));
    assert!(
        recorded
            .archive(Arc::clone(&store) as _, Duration::from_secs(9))
            .await
    );
    recorded.assert_archived(&*store, "no fault").await;
    let requests = store.requests();
    let probed = FaultyStore::new(in_memory());
    probe(&probed).await.unwrap();
    let first = probed.requests();
    assert!(
        requests > first + 10,
        "{first} of {requests} are of the probe"
    );
    for fault in [Fault::Lost, Fault::AnswerLost, Fault::Refused] {
        // The probe is tested by itself.
        for at in first..requests {
            let recorded = Recorded::new();
            let store = Arc::new(FaultyStore::new(in_memory()));
            store.fail(at, fault);
            let case = format!("{fault:?} of request {at}");
            let is_archived = recorded.archive(Arc::clone(&store) as _, Duration::from_secs(9));
            assert!(is_archived.await, "{case}");
            store.repair();
            recorded.assert_archived(&*store, &case).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_is_archived_although_it_has_an_owner_with_the_last_number() {
    let recorded = Recorded::new();
    let store = in_memory();
    let session = SessionKey {
        producer: [7; 16],
        id: 1,
    };
    let owner = OwnerDocument {
        boot: BootId([1; 16]).to_string(),
        since: 0,
        created: 1,
    };
    let name = session.object(SessionObject::Owner(MAX_NUMBER));
    store.create(&name, to_json(&owner)).await.unwrap();
    assert!(
        recorded
            .archive(Arc::clone(&store), Duration::from_secs(9))
            .await
    );
    recorded.assert_archived(&*store, "last number").await;
}

#[tokio::test(start_paused = true)]
async fn packets_keep_their_numbers_when_the_next_relay_archives_a_session() {
    let mut at = 1;
    loop {
        let output = tempfile::tempdir().unwrap();
        let feed = Arc::new(ArchiveFeed::new(true).unwrap());
        let Some(packets) = record_killed(output.path(), at, &feed) else {
            break;
        };
        let recorded = Recorded {
            _output: output,
            feed,
            packets,
        };
        let store: Arc<dyn Store> = in_memory();
        assert!(
            recorded
                .archive(Arc::clone(&store), Duration::from_secs(9))
                .await
        );
        let case = format!("killed at operation {at}");
        recorded.assert_archived(&*store, &case).await;
        at += 7;
    }
    assert!(at > 100, "{at}");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_acknowledged_while_the_store_is_away_and_all_is_archived_when_it_is_back() {
    let recorded = Recorded::new();
    let store = Arc::new(FaultyStore::new(in_memory()));
    store.set_down(true);
    let back = async {
        tokio::time::sleep(Duration::from_secs(3600)).await;
        let objects = store.requests();
        store.set_down(false);
        objects
    };
    let archived = recorded.archive(Arc::clone(&store) as _, Duration::from_secs(4000));
    let (is_archived, requests) = tokio::join!(archived, back);
    assert!(is_archived);
    assert!(
        (100..100_000).contains(&requests),
        "{requests} while it was away"
    );
    recorded.assert_archived(&*store, "after an hour").await;
}

#[tokio::test(start_paused = true)]
async fn commit_objects_have_numbers_without_gaps_and_are_deleted_after_parts() {
    let recorded = Recorded::new();
    let store = Arc::new(FaultyStore::new(in_memory()));
    // The part cannot be stored before the relay stops.
    store.set_delay(Duration::from_secs(2));
    let archived = recorded.archive(Arc::clone(&store) as _, Duration::from_secs(600));
    let listed = async {
        let mut most = 0;
        for _ in 0..600 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let log = store.list("log/", None, 1000).await.unwrap();
            let numbers: Vec<u64> = log
                .iter()
                .map(|commit| parse_commit(&commit.name).unwrap().1)
                .collect();
            assert!(numbers.is_sorted_by(|a, b| a + 1 == *b), "{numbers:?}");
            most = most.max(numbers.len());
        }
        most
    };
    let (is_archived, most) = tokio::join!(archived, listed);
    assert!(is_archived && most > 0, "{most}");
    recorded.assert_archived(&*store, "slow").await;
}
