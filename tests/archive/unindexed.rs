//! Streams whose producers send no indexes, such as snapshots: the archive has their packets.

use std::fs;
use std::io::Write;
use std::path::Path;

use archive::catalog::{list_sessions, open_session, read_run};
use archive::object::PacketBlock;
use archive::session::SessionView;
use archive::store::{Store, open};
use relay_proto::Minor;
use relay_proto::session::CreateSession;
use relay_proto::stream::AddStream;
use tests::babeltrace::Babeltrace;
use tests::lab::Lab;
use tests::lttng::SessionDaemon;
use tests::producer::{OK, Producer, TRACE_PATH, packet_of, plain_session, stream};
use tests::relay::{Relay, free_addresses};
use tests::traced_app::TracedApp;
use tests::tree::files;
use tests::viewer::hostname;
use tests::wait_until;
use tokio::runtime::Runtime;
use wire::Bytes;

use crate::system::{ArchiveDirectory, assert_same_text, read, start_relay, start_relay_at, text};

const SESSION: &str = "snapshots";

/// The packets of the streams of the only session, in the order of their names.
fn archived(store: &dyn Store) -> (SessionView, Vec<Vec<u8>>) {
    let runtime = Runtime::new().unwrap();
    let sessions = runtime.block_on(list_sessions(store, &Default::default(), &[]));
    let session = sessions.unwrap()[0].session;
    let opened = runtime.block_on(open_session(store, session)).unwrap();
    let mut packets = Vec::new();
    for stream in opened.view.traces.iter().flat_map(|trace| &trace.streams) {
        let mut bytes = Vec::new();
        for used in &stream.blocks {
            let (object, record) = (&opened.objects[used.block.object], &used.block.record);
            let run = runtime.block_on(read_run(store, object, &[record.block]));
            let block = run.unwrap().decode(&record.block).unwrap();
            let block = PacketBlock::parse(record, block).unwrap();
            for number in 0..block.len() {
                bytes.extend_from_slice(block.packet(number).unwrap().1);
            }
        }
        packets.push((stream.name.to_text().to_string(), bytes));
    }
    packets.sort();
    let packets = packets.into_iter().map(|(_, bytes)| bytes);
    (opened.view, packets.collect())
}

/// The contents of the tracefiles of a stream, one after another.
fn recorded(output: &Path, name: &str) -> Vec<u8> {
    let mut found = Vec::new();
    for path in files(output, "").into_keys() {
        let (_, file) = path.rsplit_once('/').unwrap();
        if let Some(number) = file.strip_prefix(name) {
            let number: u64 = number.trim_start_matches('_').parse().unwrap_or(0);
            found.push((number, fs::read(output.join(&path)).unwrap()));
        }
    }
    found.sort();
    found.into_iter().flat_map(|(_, bytes)| bytes).collect()
}

/// Records packets whose metadata declares nothing, and expects them in the archive when the
/// producer is gone.
fn assert_archived(minor: u32, path: &str) {
    let lab = Lab::new();
    let archive = ArchiveDirectory::new(&lab);
    let relay = start_relay(&lab, &archive, &["--archive-interval=10ms"]);
    let mut producer = Producer::connect(&relay, Minor(minor));
    producer.create_session(CreateSession {
        snapshot: true,
        ..plain_session(SESSION)
    });
    if Minor(minor).has_chunks() {
        assert_eq!(producer.create_chunk(0), OK);
    }
    let whole = producer.add_stream(stream("whole", path));
    let split = producer.add_stream(AddStream {
        tracefile_size: Bytes(1000),
        ..stream("split", path)
    });
    let metadata = producer.add_stream(stream("metadata", path));
    producer.send_metadata(metadata, b"/* CTF 1.8 */\n", 0);
    for number in (0..90).filter(|number| *number != 70) {
        for stream in [whole, split] {
            let bytes = vec![u8::try_from(number).unwrap(); 60 + number % 50 / 10];
            let padding = u32::try_from(number % 20 / 10).unwrap();
            let packet = packet_of(stream, number as u64, &bytes, padding);
            producer.data.write_all(&packet).unwrap();
        }
    }
    producer.wait_while_pending(whole, 69);
    producer.wait_while_pending(split, 69);
    let store = open(&archive.url(), None).unwrap();
    wait_until("metadata is archived", || {
        !archive.objects("log").is_empty()
    });
    let (view, packets) = archived(&*store);
    assert!(!view.traces[0].metadata.is_empty() && packets.is_empty());
    producer.disconnect();
    relay.wait_for_log(&["session ended"]);
    let output = relay.output.clone();
    relay.stop().expect_success();
    assert_eq!((archive.parts(), archive.ended()), (1, 1));
    assert!(archive.objects("log").is_empty(), "the part has all");
    let (view, packets) = archived(&*store);
    let want = ["split", "whole"].map(|name| recorded(&output, name));
    assert!(want.iter().all(|bytes| bytes.len() > 89 * 60));
    assert_eq!(packets, want);
    let mut streams = view.traces.iter().flat_map(|trace| &trace.streams);
    assert!(streams.all(|stream| stream.missing == 0));
}

#[test]
fn packets_that_no_metadata_describes_are_archived_when_their_producer_is_gone() {
    assert_archived(15, TRACE_PATH);
}

#[test]
fn snapshots_of_a_producer_without_chunks_are_archived() {
    assert_archived(10, &format!("host/{SESSION}-20261120-213831/{TRACE_PATH}"));
}

/// Creates a snapshot session that records to the relay.
fn start_session(daemon: &SessionDaemon<'_>, relay: &Relay) {
    let control = format!("--ctrl-url=tcp4://{}", relay.control);
    let data = format!("--data-url=tcp4://{}", relay.data);
    daemon.lttng(&["create", SESSION, "--snapshot", &control, &data]);
    daemon.enable_channel(SESSION, "busy", &["--subbuf-size=4k"], true);
    daemon.lttng(&["start", SESSION]);
}

fn record_snapshot(daemon: &SessionDaemon<'_>) {
    daemon.lttng(&["snapshot", "record", &format!("--session={SESSION}")]);
}

/// Stops the relay, and compares the archive with its output.
fn stop_and_compare(lab: &Lab, archive: &ArchiveDirectory, relay: Relay) {
    let output = relay.output.clone();
    relay.stop().expect_success();
    let want = text(lab, &output);
    assert!(!want.is_empty());
    let target = archive.session_url(&hostname(), SESSION);
    assert_same_text("archive", &text(lab, &target), &want);
    let theirs = Babeltrace::Two.read_with(&["--clock-gmt"], &output);
    assert_same_text("babeltrace2", &theirs.expect_success(), &want);
}

#[test]
fn snapshots_of_a_relay_that_is_killed_between_them_are_shown_as_its_output() {
    let lab = Lab::new();
    let archive = ArchiveDirectory::new(&lab);
    let addresses = free_addresses();
    let options = ["--archive-interval=20ms", "--archive-part-age=300ms"];
    let mut relay = start_relay_at(&lab, &archive, &options, addresses);
    let daemon = SessionDaemon::start(&lab);
    start_session(&daemon, &relay);
    let mut app = TracedApp::start(&lab, "app");
    let target = archive.session_url(&hostname(), SESSION);
    for round in 1..=4 {
        app.emit(20);
        record_snapshot(&daemon);
        wait_until("the snapshot is archived", || {
            let shown = read(&lab, &["--session-not-found=end"], &target);
            shown.stdout.len() == 20 * round
        });
        if round == 2 {
            relay.kill();
            relay = start_relay_at(&lab, &archive, &options, addresses);
        }
    }
    app.end();
    daemon.lttng(&["destroy", SESSION]);
    drop(daemon);
    stop_and_compare(&lab, &archive, relay);
}

#[test]
fn snapshots_of_a_killed_relay_are_archived_after_its_restart() {
    let lab = Lab::new();
    let archive = ArchiveDirectory::new(&lab);
    let mut relay = start_relay(&lab, &archive, &["--archive-interval=1h"]);
    let daemon = SessionDaemon::start(&lab);
    start_session(&daemon, &relay);
    let mut app = TracedApp::start(&lab, "app");
    for round in 1..=2 {
        app.emit(20);
        record_snapshot(&daemon);
        wait_until("the snapshot is recorded", || {
            let shown = read(&lab, &[], relay.output.to_str().unwrap());
            shown.stdout.len() == 20 * round
        });
    }
    relay.kill();
    assert!(archive.objects("log").is_empty(), "nothing is archived");
    app.end();
    drop(daemon);
    let relay = start_relay(&lab, &archive, &["--archive-interval=20ms"]);
    wait_until("both are archived", || archive.ended() == 2);
    stop_and_compare(&lab, &archive, relay);
}
