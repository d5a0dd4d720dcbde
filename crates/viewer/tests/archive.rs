//! An archive as a source, with a store that counts requests and fails on demand.
#![cfg(test)]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use archive::store::{FaultyStore, Store, in_memory};
use archive::test_support::{BOOT, SessionArchive};
use ctf::TraceWriter;
use ctf::directory::StreamHandle;
use ctf::write::{EventRecord, FieldType, Value, Width};
use tempfile::TempDir;
use tokio::sync::{mpsc, watch};
use wire::{ChunkId, Timestamp};

use viewer::attach::archive::{ArchiveOptions, ArchiveSource};
use viewer::attach::target::{ArchiveTarget, SessionName};
use viewer::attach::{MemoryBudget, Packet, SourceEvent, StreamKey, TraceInfo, TraceKey};
use viewer::mux::{Mux, Stage};
use viewer::sink::{Loss, Origin, SinkError};
use viewer::time::Nanoseconds;

/// Milliseconds of one packet, and events of it.
const PACKET: u64 = 1000;
const EVENTS: u64 = 10;
/// A time of 2026, in milliseconds since 1970.
const BEGIN: u64 = 1_795_773_600_000;

/// Writes a trace with streams of so many packets, one after the other if they are sequential.
fn write_trace(directory: &Path, streams: u64, packets: u64, is_sequential: bool) {
    std::fs::create_dir_all(directory).unwrap();
    let mut trace = TraceWriter::create(directory).unwrap();
    let fields = [
        ("number", FieldType::Unsigned(Width::Bits64)),
        ("text", FieldType::Text),
    ];
    let class = trace.event_class("step", &fields).unwrap();
    let mut handles = vec![StreamHandle::FIRST];
    handles.extend((1..streams).map(|_| trace.add_stream()));
    for packet in 0..packets {
        for (stream, handle) in (0..).zip(&handles) {
            let after = if is_sequential { stream * packets } else { 0 };
            for number in 0..EVENTS {
                let at = BEGIN + (after + packet) * PACKET + number * PACKET / EVENTS + stream;
                let text = "text ".repeat(20);
                let values: [Value<'_>; 2] = [number.into(), (&*text).into()];
                let event = EventRecord {
                    time: Timestamp(at * 1_000_000),
                    process: 1,
                    thread: 1,
                    values: &values,
                };
                trace.write_to(*handle, &class, &event).unwrap();
            }
        }
        trace.flush().unwrap();
    }
    trace.finish().unwrap();
}

struct Archived {
    store: Arc<FaultyStore>,
    directory: TempDir,
}

/// An archive of one session, each packet of which is a block.
async fn archive(streams: u64, packets: u64, is_sequential: bool) -> Archived {
    let inner = in_memory();
    let directory = tempfile::tempdir().unwrap();
    let trace = directory.path().join("ust/uid/0/64-bit");
    write_trace(&trace, streams, packets, is_sequential);
    let mut session = SessionArchive::new(&inner, 1, "vm", "app");
    session.block_bytes = 1;
    session.add_directory(directory.path(), None).await;
    session.end().await;
    let store = Arc::new(FaultyStore::new(inner));
    Archived { store, directory }
}

fn source(store: Arc<dyn Store>) -> ArchiveSource {
    let target = ArchiveTarget {
        url: "s3://bucket/prefix".to_owned(),
        endpoint: None,
        session: Some(SessionName {
            host: Some("vm".to_owned()),
            name: "app".to_owned(),
        }),
    };
    ArchiveSource::with_store(store, target)
}

/// Counts what is shown, and checks the order.
#[derive(Debug, Default)]
struct Counted {
    events: u64,
    last: Option<Nanoseconds>,
    losses: u64,
    messages: Vec<String>,
}

impl Stage for Counted {
    fn event(
        &mut self,
        _: &ctf::decode::Event<'_>,
        time: Option<Nanoseconds>,
        _: Origin<'_>,
    ) -> Result<bool, SinkError> {
        assert!(time >= self.last, "events are in order");
        (self.last, self.events) = (time, self.events + 1);
        Ok(true)
    }

    fn packet(&mut self, _: &Packet, _: Origin<'_>) -> Result<(), SinkError> {
        Ok(())
    }

    fn metadata(&mut self, _: &[u8], _: &TraceInfo) -> Result<(), SinkError> {
        Ok(())
    }

    fn lost(&mut self, _: &Loss, _: Origin<'_>) -> Result<(), SinkError> {
        self.losses += 1;
        Ok(())
    }

    fn report_failure(&mut self, what: &str) {
        self.messages.push(what.to_owned());
    }

    fn report_warning(&mut self, what: &str) {
        self.messages.push(what.to_owned());
    }
}

/// Shows all of an archive, as a program does.
fn show(store: Arc<dyn Store>, options: ArchiveOptions) -> Counted {
    let (sender, mut events) = mpsc::channel(16);
    let (held_back, is_held_back) = watch::channel(false);
    let mut mux = Mux::with_memory(options.memory.clone());
    let running = source(store).spawn(options, sender, is_held_back).unwrap();
    let mut counted = Counted::default();
    let mut open: (BTreeMap<TraceKey, ()>, BTreeMap<StreamKey, ()>) = Default::default();
    while let Some(event) = events.blocking_recv() {
        match &event {
            SourceEvent::Trace { trace, .. } => _ = open.0.insert(*trace, ()),
            SourceEvent::Stream { stream, .. } => _ = open.1.insert(*stream, ()),
            SourceEvent::TraceEnd { trace } => assert!(open.0.remove(trace).is_some()),
            SourceEvent::StreamEnd { stream } => assert!(open.1.remove(stream).is_some()),
            SourceEvent::Missing(text) | SourceEvent::Failed(text) => {
                counted.messages.push(text.clone());
            }
            _ => {}
        }
        mux.handle(event, &mut counted).unwrap();
        mux.run(&mut counted, &|| false).unwrap();
        held_back.send_replace(mux.holds_back());
    }
    assert!(open.0.is_empty() && open.1.is_empty(), "all have ended");
    running.join();
    counted
}

fn runtime() -> tokio::runtime::Runtime {
    let runtime = tokio::runtime::Builder::new_current_thread();
    { runtime }.enable_all().build().unwrap()
}

#[test]
fn first_packets_of_an_ended_session_come_after_four_requests_one_after_the_other() {
    let archived = runtime().block_on(archive(3, 20, false));
    archived.store.set_delay(Duration::from_millis(200));
    let (sender, mut events) = mpsc::channel(256);
    let (_held_back, is_held_back) = watch::channel(false);
    let begun = std::time::Instant::now();
    let store: Arc<dyn Store> = archived.store.clone();
    let running = source(store)
        .spawn(ArchiveOptions::default(), sender, is_held_back)
        .unwrap();
    while let Some(event) = events.blocking_recv() {
        assert!(!matches!(event, SourceEvent::Failed(_)), "{event:?}");
        if matches!(event, SourceEvent::Packet { .. }) {
            break;
        }
    }
    // The day of the test's archive is not one of the last ones: one request more.
    let took = begun.elapsed();
    assert!(took < Duration::from_millis(200 * 6), "{took:?}");
    drop(events);
    running.join();
}

#[test]
fn only_blocks_of_the_wanted_time_are_fetched() {
    let archived = runtime().block_on(archive(2, 100, false));
    let requests = |options: ArchiveOptions| {
        let before = archived.store.requests();
        let store: Arc<dyn Store> = archived.store.clone();
        let counted = show(store, options);
        assert_eq!(counted.messages, [""; 0]);
        (archived.store.requests() - before, counted.events)
    };
    let at = |second: u64| {
        let milliseconds = i64::try_from(BEGIN + second * 1000).unwrap();
        Nanoseconds::new(milliseconds * 1_000_000)
    };
    // Without memory, each block is fetched by a request of its own.
    let memory = MemoryBudget::new(1);
    let (all, events) = requests(ArchiveOptions {
        memory: memory.clone(),
        ..ArchiveOptions::default()
    });
    assert_eq!(events, 2 * 100 * EVENTS);
    assert!(all >= 200, "{all} requests");
    let (few, events) = requests(ArchiveOptions {
        begin: at(50),
        end: at(51),
        memory,
        ..ArchiveOptions::default()
    });
    // One to three packets of each stream; which of their events are shown is for others to say.
    assert!((2 * EVENTS..=2 * 3 * EVENTS).contains(&events), "{events}");
    assert!(few <= all - 200 + 6, "{few} of {all} requests");
}

#[test]
fn packets_are_shown_in_order_with_little_memory() {
    for is_sequential in [false, true] {
        let archived = runtime().block_on(archive(20, 10, is_sequential));
        let memory = MemoryBudget::new(20_000);
        let options = ArchiveOptions {
            memory: memory.clone(),
            ..ArchiveOptions::default()
        };
        let store: Arc<dyn Store> = archived.store.clone();
        let counted = show(store, options);
        assert_eq!(counted.messages, [""; 0]);
        assert_eq!(counted.events, 20 * 10 * EVENTS);
        assert_eq!(memory.reserved(), 0);
    }
}

#[test]
fn a_session_goes_on_in_the_next_chunk_and_not_in_a_deleted_one() {
    let (store, first) = (in_memory(), tempfile::tempdir().unwrap());
    let trace = first.path().join("ust/uid/0/64-bit");
    write_trace(&trace, 1, 10, false);
    runtime().block_on(async {
        let mut session = SessionArchive::new(&store, 1, "vm", "app");
        session.block_bytes = 1;
        for chunk in 0..3 {
            session
                .add_directory(first.path(), Some(ChunkId(chunk)))
                .await;
        }
        session.delete_chunk(Some(ChunkId(1))).await;
        session.end().await;
    });
    // The copies have the times of the first chunk: order is not what is checked here.
    let (sender, mut events) = mpsc::channel(16);
    let (_held_back, is_held_back) = watch::channel(false);
    let options = ArchiveOptions::default();
    let running = source(store).spawn(options, sender, is_held_back).unwrap();
    let (mut packets, mut streams, mut traces) = (0, 0, 0);
    while let Some(event) = events.blocking_recv() {
        match event {
            SourceEvent::Packet { .. } => packets += 1,
            SourceEvent::Stream { .. } => streams += 1,
            SourceEvent::Trace { .. } => traces += 1,
            SourceEvent::Failed(text) | SourceEvent::Missing(text) => panic!("{text}"),
            _ => {}
        }
    }
    running.join();
    assert_eq!((traces, streams, packets), (1, 1, 20));
}

#[test]
fn a_running_session_has_what_is_in_parts_and_in_the_log() {
    let (store, directory) = (in_memory(), tempfile::tempdir().unwrap());
    write_trace(&directory.path().join("kernel"), 1, 10, false);
    let other = tempfile::tempdir().unwrap();
    write_trace(&other.path().join("ust/uid/0/64-bit"), 2, 10, false);
    runtime().block_on(async {
        let mut session = SessionArchive::new(&store, 1, "vm", "app");
        session.add_directory(directory.path(), None).await;
        session.add_to_log(other.path(), None).await;
        session.list_as_running().await;
        // The log has other sessions, too.
        let mut other = SessionArchive::new(&store, 2, "vm", "web");
        other.add_directory(directory.path(), None).await;
        other.end().await;
    });
    let counted = show(Arc::clone(&store), ArchiveOptions::default());
    assert_eq!(
        (counted.events, counted.messages),
        (3 * 10 * EVENTS, vec![])
    );
    let listed = source(store).list(|failure| panic!("{failure}")).unwrap();
    let text = listed.to_string();
    let begin = "s3://bucket/prefix/host/vm/app (created 2026-";
    assert!(
        text.starts_with(begin) && text.ends_with(", not ended)\n"),
        "{text}"
    );
}

#[test]
fn packets_are_read_from_parts_when_the_log_is_deleted_meanwhile() {
    let (store, directory) = (in_memory(), tempfile::tempdir().unwrap());
    write_trace(&directory.path().join("kernel"), 2, 20, false);
    let session = || {
        let mut session = SessionArchive::new(&store, 1, "vm", "app");
        session.block_bytes = 1;
        session
    };
    runtime().block_on(async {
        let mut session = session();
        session.add_to_log(directory.path(), None).await;
        session.list_as_running().await;
    });
    let (sender, mut events) = mpsc::channel(1);
    let (_held_back, is_held_back) = watch::channel(false);
    let options = ArchiveOptions {
        memory: MemoryBudget::new(1),
        ..ArchiveOptions::default()
    };
    let running = source(Arc::clone(&store));
    let running = running.spawn(options, sender, is_held_back).unwrap();
    let (mut packets, mut backlogs) = (0, BTreeMap::new());
    while let Some(event) = events.blocking_recv() {
        match event {
            SourceEvent::Stream {
                stream, backlog, ..
            } => _ = backlogs.insert(stream, backlog),
            SourceEvent::Packet { stream, .. } => {
                packets += 1;
                if packets == 1 {
                    runtime().block_on(async {
                        let mut session = session();
                        session.add_directory(directory.path(), None).await;
                        store.delete(&BOOT.commit(0)).await.unwrap();
                    });
                }
                backlogs[&stream].remove_packet();
            }
            SourceEvent::Failed(text) | SourceEvent::Missing(text) => panic!("{text}"),
            _ => {}
        }
    }
    running.join();
    assert_eq!(packets, 2 * 20);
}

#[test]
fn a_store_that_goes_down_ends_the_source_with_what_it_had() {
    let archived = runtime().block_on(archive(1, 50, false));
    for request in [0, 2, 5, 8] {
        archived.store.repair();
        let next = archived.store.requests() + request;
        archived.store.fail(next, archive::store::Fault::Refused);
        let store: Arc<dyn Store> = archived.store.clone();
        let counted = show(store, ArchiveOptions::default());
        assert!(counted.events <= 50 * EVENTS);
        let [message] = &counted.messages[..] else {
            panic!("request {request}: {:?}", counted.messages)
        };
        assert!(message.contains("the store refuses it"), "{message}");
        // A lost answer is asked for again.
        let next = archived.store.requests() + request;
        archived.store.fail(next, archive::store::Fault::Lost);
        let store: Arc<dyn Store> = archived.store.clone();
        let counted = show(store, ArchiveOptions::default());
        assert_eq!(
            (counted.events, &counted.messages[..]),
            (50 * EVENTS, &[][..])
        );
    }
    assert!(archived.directory.path().exists());
}
