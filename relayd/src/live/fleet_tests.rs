//! Viewers of a session of the archive.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use archive::document::{CreatedDocument, OwnerDocument, to_json};
use archive::name::{BootId, DayObject, SessionKey, SessionObject, escape};
use archive::object::ObjectWriter;
use archive::record::{ObjectKind, ObjectRecord, Record, SessionRecord, StreamKey, StreamRecord};
use archive::store::{Fault, FaultyStore, Store, in_memory};
use ctf::index::Entry;
use jiff::Timestamp as Time;
use relay_proto::session::{DaemonId, TraceFormat};
use tokio_util::sync::CancellationToken;
use viewer_proto::relay::{Awaited, Next, Position, Relay as _, Session as _, Stream as _};
use viewer_proto::session::Seek;
use wire::{
    Bits, Bytes, FileName, Micros, PacketIndex, SeqNum, SessionId, Text, Timestamp, TracePath,
};

use super::{Attachment, PacketReader, View};
use crate::archiver::status::ArchiveStatus;
use crate::fleet::{Fleet, FleetThreads};
use crate::registry::session::SessionIdentity;
use crate::registry::{Registry, RegistrySettings};
use crate::store::pool::Pool;

const BOOT: BootId = BootId([1; 16]);
const KEY: SessionKey = SessionKey {
    producer: [7; 16],
    id: 1,
};
/// Number of the data stream and of the stream of metadata.
const STREAM: u64 = 5;
/// Bytes of a packet.
const LEN: usize = 8;
const METADATA: &[u8] = b"/* CTF 1.8 */ trace { major = 1; }; stream { };";

/// A commit object with the packets of these numbers.
fn commit(number: u64, packets: std::ops::Range<u64>) -> bytes::Bytes {
    let kind = ObjectKind::Commit;
    let boot = BOOT;
    let mut object = ObjectWriter::new(ObjectRecord { kind, boot, number }).unwrap();
    object.add_record(&Record::Session(SessionRecord {
        session: KEY,
        created: 1,
        live_timer: 1_000_000,
        ctf_version: 1,
        host: Text::from("vm"),
        name: Text::from("app"),
    }));
    for is_metadata in [false, true] {
        let stream = StreamKey {
            number: STREAM,
            is_metadata,
        };
        let name = if is_metadata { "metadata" } else { "channel_0" };
        object.add_record(&Record::Stream(StreamRecord {
            stream,
            path: TracePath::parse(&Text::from("ust")).unwrap(),
            name: FileName::parse(&Text::from(name)).unwrap(),
        }));
    }
    if packets.start == 0 {
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
    let entries: Vec<_> = packets.clone().map(entry).collect();
    let first = SeqNum(packets.start);
    let added = object.add_packets(STREAM, None, first, &entries, |buffer| {
        buffer.fill(7);
        Ok::<_, io::Error>(())
    });
    added.unwrap();
    object.finish().unwrap()
}

/// An archive with a session that runs and has three packets.
async fn write_archive(store: &dyn Store) {
    let created = u64::try_from(Time::now().as_nanosecond()).unwrap();
    let day = DayObject {
        day: Time::now().strftime("%Y-%m-%d").to_string(),
        host: escape(b"vm"),
        name: escape(b"app"),
        session: KEY,
        is_end: false,
    };
    let document = CreatedDocument {
        session: KEY.to_string(),
        host: "vm".to_owned(),
        name: "app".to_owned(),
        created,
        live_timer: 1_000_000,
        ctf_version: 1,
    };
    let owner = OwnerDocument {
        boot: BOOT.to_string(),
        since: created,
        created,
    };
    let owner_name = KEY.object(SessionObject::Owner(1));
    for (name, bytes) in [
        (day.to_string(), to_json(&document)),
        (owner_name, to_json(&owner)),
        (BOOT.commit(0), commit(0, 0..3)),
    ] {
        store.create(&name, bytes).await.unwrap();
    }
}

/// The registry of a relay without sessions of its own.
fn registry(output: &Path) -> Arc<Registry> {
    Registry::new(RegistrySettings::new(output.to_owned(), Pool::new(10)))
}

fn view(fleet: &Arc<Fleet>, registry: &Arc<Registry>) -> View {
    let (registry, fleet) = (Arc::clone(registry), Arc::clone(fleet));
    View::new(registry, Some(fleet), ([127, 0, 0, 1], 1).into())
}

/// Attaches to the only session, from its beginning.
async fn attach(view: &View) -> (SessionId, Attachment) {
    view.prepare(Awaited::Sessions).await;
    let [listed] = &view.sessions()[..] else {
        panic!("one session")
    };
    let id = listed.session;
    view.prepare(Awaited::Session(id, Seek::Beginning)).await;
    (id, view.attach(id, Seek::Beginning).unwrap())
}

async fn wait_until(what: &str, mut is_true: impl FnMut() -> bool) {
    for _ in 0..1000 {
        if is_true() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{what}: not in time");
}

/// The number of packets that a viewer finds after those that it has had.
fn packets(attachment: &mut Attachment, streams: &mut Vec<PacketReader>) -> usize {
    let new = attachment.new_streams().into_iter();
    streams.extend(new.filter_map(|stream| match stream.position {
        Position::Packets(packets) => Some(packets),
        Position::Metadata(_) => None,
    }));
    let mut count = 0;
    for stream in streams {
        while let Next::Packet { .. } = stream.next() {
            count += 1;
        }
    }
    count
}

#[tokio::test(flavor = "multi_thread")]
async fn session_that_comes_from_another_relay_is_listed_once_before_its_first_stream() {
    let output = tempfile::tempdir().unwrap();
    let store = in_memory();
    write_archive(&*store).await;
    let (status, hour) = (Arc::default(), Duration::from_secs(3600));
    let threads = FleetThreads::start(store, status, output.path(), hour).unwrap();
    let registry = registry(output.path());
    let view = view(&threads.fleet_of(&registry), &registry);
    let add = |id| {
        let recording = (DaemonId(KEY.producer), id);
        let identity = SessionIdentity {
            id: registry.next_session(),
            name: "app".into(),
            host: "vm".into(),
            live_timer: Micros(1_000_000),
            trace_format: TraceFormat::Ctf1,
            directory: None,
            producer: [127, 0, 0, 1].into(),
            recording: Some(recording),
        };
        let shared = registry.recordings().of(Some(recording));
        let session = registry.new_session(identity, None, shared, CancellationToken::new());
        registry.add_session(Arc::clone(&session)).unwrap();
        session
    };
    let (moved, other) = (add(KEY.id), add(KEY.id + 1));
    view.prepare(Awaited::Sessions).await;
    let listed: Vec<_> = view
        .sessions()
        .iter()
        .map(|listed| listed.session)
        .collect();
    assert_eq!(listed.len(), 2);
    assert!(!listed.contains(&moved.id()) && listed.contains(&other.id()));
    tokio::task::spawn_blocking(move || drop(threads))
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_grows_and_viewers_are_disconnected_if_it_cannot() {
    let output = tempfile::tempdir().unwrap();
    let store = Arc::new(FaultyStore::new(in_memory()));
    write_archive(&*store).await;
    let hour = Duration::from_secs(3600);
    let status = Arc::<ArchiveStatus>::default();
    let of_store = Arc::<FaultyStore>::clone(&store);
    let threads = FleetThreads::start(of_store, Arc::clone(&status), output.path(), hour).unwrap();
    let registry = registry(output.path());
    let fleet = threads.fleet_of(&registry);
    let first = view(&fleet, &registry);
    let (id, mut attachment) = attach(&first).await;
    let (mut streams, mut shown) = (Vec::new(), 0);
    wait_until("packets are copied", || {
        shown += packets(&mut attachment, &mut streams);
        shown == 3
    })
    .await;
    // While the store does not answer, viewers wait.
    store.set_down(true);
    tokio::time::sleep(Duration::from_millis(100)).await;
    store.set_down(false);
    store
        .create(&BOOT.commit(1), commit(1, 3..5))
        .await
        .unwrap();
    wait_until("later packets are copied", || {
        shown += packets(&mut attachment, &mut streams);
        shown == 5
    })
    .await;
    let copied = status.copied_bytes();
    assert!(copied > 0 && copied.is_multiple_of(5), "{copied}");
    assert_eq!((status.copies(), status.copy_failures()), (1, 0));
    assert!(!first.has_partial_session() && !attachment.is_over());
    let next = store.requests();
    (next..next + 1000).for_each(|request| store.fail(request, Fault::Refused));
    wait_until("the viewer is to be disconnected", || {
        first.has_partial_session()
    })
    .await;
    assert!(!attachment.is_over(), "the session has not ended");
    store.repair();
    drop((attachment, streams));
    wait_until("the copy is removed", || {
        fleet.session(id, Seek::Beginning).is_none()
    })
    .await;
    assert_eq!((status.copies(), status.copy_failures()), (0, 1));
    let again = view(&fleet, &registry);
    let (_, mut attachment) = attach(&again).await;
    let (mut streams, mut shown) = (Vec::new(), 0);
    wait_until("all packets are copied again", || {
        shown += packets(&mut attachment, &mut streams);
        shown == 5
    })
    .await;
    drop((attachment, streams));
    tokio::task::spawn_blocking(move || drop(threads))
        .await
        .unwrap();
    assert!(!output.path().join(".relayd/copies/1").exists());
    assert!(!output.path().join(".relayd/copies/2").exists());
}
