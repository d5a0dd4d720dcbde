//! Relays and producers that are killed, stopped or disconnected: what was acknowledged is on disk,
//! and what was not damages no trace.

mod damage;
mod repair;
mod spool;

use std::io::Write;
use std::net::Shutdown;
use std::time::Instant;

use tests::babeltrace::{Babeltrace, numbers};
use tests::lab::Lab;
use tests::lttng::SessionDaemon;
use tests::producer::{Producer, beacon, index, live_session, packet};
use tests::relay::Relay;
use tests::traced_app::TracedApp;
use tests::tree::{INDEX_ENTRY, INDEX_HEADER, files, first_file};
use tests::viewer::{Viewer, by_channel};
use tests::wait_until;
use viewer_proto::index::IndexStatus;
use viewer_proto::session::Seek;

/// Returns the index file of the only stream with packets.
fn index_file(relay: &std::path::Path) -> Vec<u8> {
    first_file(relay, ".idx")
}

#[test]
fn acknowledged_packets_are_whole_and_indexed_after_the_relay_is_killed() {
    const PACKETS: usize = 200;
    let (_lab, mut relay) = Relay::start_in_new_lab();
    let (mut producer, stream) = Producer::open_with_trace(&relay, live_session("killed"));
    (0..PACKETS as u64).for_each(|number| producer.send_packet(stream, number, 1000));
    // A packet without index, and half of another.
    producer.send_data(stream, 200, 1000);
    producer
        .data
        .write_all(&packet(stream, 201, 1000)[..500])
        .unwrap();
    let data = || first_file(&relay.output, "/chan_0");
    wait_until("parts of the last packets are written", || {
        data().len() > PACKETS * 1000 + 1000
    });
    relay.kill();
    let (data, index) = (files(&relay.output, "/chan_0"), index_file(&relay.output));
    let data = data.into_values().next().unwrap();
    assert!(
        (index.len() - INDEX_HEADER) / INDEX_ENTRY == PACKETS,
        "{} bytes",
        index.len()
    );
    for number in 0..PACKETS {
        let entry = &index[INDEX_HEADER + number * INDEX_ENTRY..];
        assert_eq!(entry[..8], (number as u64 * 1000).to_be_bytes());
        assert_eq!(
            data[number * 1000..][..1000],
            [u8::try_from(number).unwrap(); 1000]
        );
    }
}

#[test]
fn babeltrace_reads_what_viewers_have_seen_after_the_relay_is_killed() {
    let (lab, mut relay) = Relay::start_in_new_lab();
    let daemon = SessionDaemon::start_with_session(&lab, &relay, "killed", Some(50_000));
    let viewer = Babeltrace::Two.follow(&relay, "killed");
    Viewer::connect(relay.live).wait_for_listed("killed", |listed| listed.viewers == 1);
    daemon.lttng(&["start", "killed"]);
    let mut app = TracedApp::start(&lab, "killed");
    app.emit(50);
    wait_until("the viewer has printed the events", || {
        viewer.stdout_line_count() == 50
    });
    relay.kill();
    // The viewer exits with an error instead of waiting.
    assert!(!viewer.wait().status.success());
    let read = Babeltrace::Two.read(&relay.output).expect_success();
    assert!(numbers(&read).into_iter().eq(0..50), "{read:#?}");
    app.end();
}

#[test]
fn a_stopped_relay_has_written_all_packets_sent_to_it() {
    const PACKETS: u64 = 500;
    let (_lab, relay) = Relay::start_in_new_lab();
    let (mut producer, stream) = Producer::open_with_trace(&relay, live_session("stopped"));
    // All commands are pipelined, and no reply is awaited.
    producer.send_pipelined(stream, PACKETS, 1000);
    let output = relay.output.clone();
    let begun = Instant::now();
    let ended = relay.stop();
    assert_eq!(ended.status.code(), Some(0), "{:#?}", ended.stderr);
    assert!(begun.elapsed().as_secs() < 5, "{:?}", begun.elapsed());
    assert_eq!(index_file(&output).len(), INDEX_HEADER + INDEX_ENTRY * 500);
    assert_eq!(first_file(&output, "/chan_0").len(), 500_000);
}

#[test]
fn a_stopped_relay_removes_beacons_from_its_index_files() {
    let (_lab, relay) = Relay::start_in_new_lab();
    let mut producer = Producer::open(&relay, live_session("beacons"));
    let streams = producer.add_trace("ust/uid/0/64-bit", &["busy_0", "idle_0"]);
    producer.record_packet(streams[0], 0, 100);
    for stream in &streams {
        producer.send_index(*stream, 0, beacon(99));
    }
    // Local readers find the beacon at the end of the index file, also of a stream without packets.
    // An index file has a beacon of time 0 before.
    wait_until("the beacons are on disk", || {
        let indexes = files(&relay.output, ".idx");
        let has_beacon = |index: &Vec<u8>| {
            index.len().saturating_sub(INDEX_HEADER) % INDEX_ENTRY == 16
                && index.ends_with(&99u64.to_be_bytes())
        };
        indexes.len() == 2 && indexes.values().all(has_beacon)
    });
    producer.send_packet(streams[0], 1, 100);
    let output = relay.output.clone();
    assert!(relay.stop().status.success());
    let indexes = files(&output, ".idx");
    assert_eq!(indexes.len(), 1, "{:?}", indexes.keys());
    assert_eq!(
        indexes.into_values().next().unwrap().len(),
        INDEX_HEADER + 2 * INDEX_ENTRY
    );
}

#[test]
fn a_killed_producer_ends_its_session_for_viewers_and_on_disk() {
    let (lab, relay) = Relay::start_in_new_lab();
    let daemon = SessionDaemon::start_with_session(&lab, &relay, "producer", Some(50_000));
    let viewers = [Babeltrace::Two, Babeltrace::One].map(|b| b.follow(&relay, "producer"));
    Viewer::connect(relay.live).wait_for_listed("producer", |listed| listed.viewers == 2);
    daemon.lttng(&["start", "producer"]);
    let mut app = TracedApp::start(&lab, "producer");
    app.emit(50);
    wait_until("the viewer has printed the events", || {
        viewers[0].stdout_line_count() == 50
    });
    daemon.kill_consumers();
    for viewer in viewers {
        assert!(
            numbers(&viewer.wait().expect_success())
                .into_iter()
                .eq(0..50)
        );
    }
    let read = Babeltrace::Two.read(&relay.output).expect_success();
    assert!(numbers(&read).into_iter().eq(0..50), "{read:#?}");
    assert_eq!(Viewer::connect(relay.live).sessions(), []);
}

#[test]
fn packets_in_flight_when_the_control_connection_closes_are_recorded() {
    let (_lab, relay) = Relay::start_in_new_lab();
    let (mut producer, stream) = Producer::open_with_trace(&relay, live_session("underway"));
    let (mut viewer, _, streams) = Viewer::attached(relay.live, "underway", Seek::Beginning);
    assert_eq!(by_channel(&streams)["chan_0"], stream);
    producer.record_packet(stream, 0, 100);
    producer.send_index(stream, 1, index(1, 100));
    producer.control().shutdown(Shutdown::Write).unwrap();
    assert!(producer.is_disconnected());
    // The session is no longer listed, but attached viewers are served.
    assert_eq!(viewer.sessions(), []);
    let ready = |viewer: &mut Viewer| viewer.next_index(stream).status == IndexStatus::Ready;
    assert!(ready(&mut viewer));
    assert!(!ready(&mut viewer));
    producer.send_data(stream, 1, 100);
    wait_until("the packet is published", || ready(&mut viewer));
    assert_eq!(viewer.next_index(stream).status, IndexStatus::HungUp);
}

#[test]
fn a_restarted_relay_uses_the_ports_and_output_of_a_killed_one() {
    let lab = Lab::new();
    let mut first = Relay::start(&lab);
    let (mut producer, stream) = Producer::open_with_trace(&first, live_session("first"));
    producer.send_packet(stream, 0, 100);
    let addresses = first.addresses();
    first.kill();
    let second = Relay::start_at(&lab, addresses);
    let (mut again, stream) = Producer::open_with_trace(&second, live_session("first"));
    again.record_packet(stream, 0, 50);
    assert_eq!(first_file(&second.output, "/chan_0").len(), 50);
}
