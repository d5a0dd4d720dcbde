//! What replies guarantee with `--durability`, seen from the metrics of the relay: whether files
//! were synced before the reply came. That a sync reaches the disk is guaranteed by the kernel.

use std::thread;

use relay_proto::chunk::CloseCommand;
use tests::babeltrace::{Babeltrace, numbers};
use tests::lab::Lab;
use tests::lttng::SessionDaemon;
use tests::producer::{OK, Producer, live_session, plain_session};
use tests::relay::Relay;
use tests::status_endpoint::StatusEndpoint;
use tests::traced_app::{self, TracedApp};
use tests::tree::{INDEX_ENTRY, INDEX_HEADER, files, first_file};
use tests::viewer::Viewer;
use tests::wait_until;

/// A sync interval at which no test waits for a round.
const NEVER: &str = "--sync-interval=3600000";

fn start(durability: &str, interval: &str) -> (Lab, Relay, StatusEndpoint) {
    let lab = Lab::new();
    let options = [&format!("--durability={durability}"), interval];
    let (relay, status) = StatusEndpoint::start_relay(&lab, &options.map(|option| option));
    (lab, relay, status)
}

#[test]
fn replies_come_after_everything_is_synced_with_durability_packet() {
    let (_lab, relay, status) = start("packet", NEVER);
    let (mut producer, stream) = Producer::open_with_trace(&relay, live_session("synced"));
    let metric = |name| status.metric(name);
    // Metadata, and the names of all files.
    let mut synced = metric("relayd_synced_files_total");
    assert!(synced > 3, "{synced}");
    assert_eq!(metric("relayd_unsynced_files"), 0);
    for number in 0..20 {
        producer.record_packet(stream, number, 4096);
        assert_eq!(metric("relayd_unsynced_bytes"), 0, "packet {number}");
        let now = metric("relayd_synced_files_total");
        // The tracefile and the index file.
        assert!(now >= synced + 2, "packet {number}");
        synced = now;
    }
    assert_eq!(producer.close_stream(stream, Some(19)), OK);
    assert_eq!(metric("relayd_unsynced_files"), 0);
    let reply = producer.close_chunk(0, Some(CloseCommand::MoveToCompleted));
    assert!(reply.is_ok(), "{reply:?}");
    assert_eq!(metric("relayd_unsynced_files"), 0);
    assert_eq!(metric("relayd_sync_errors_total{kind=\"device\"}"), 0);
    producer.disconnect();
    assert_eq!(first_file(&relay.output, "/chan_0").len(), 20 * 4096);
}

#[test]
fn sessions_and_pipelined_commands_share_rounds() {
    const PRODUCERS: u64 = 4;
    const PACKETS: u64 = 1000;
    let (_lab, relay, status) = start("packet", NEVER);
    let open = |number| Producer::open_with_trace(&relay, live_session(&format!("s{number}")));
    let producers: Vec<_> = (0..PRODUCERS).map(open).collect();
    let before = status.metric("relayd_syncs_total");
    thread::scope(|scope| {
        for (mut producer, stream) in producers {
            scope.spawn(move || {
                producer.send_pipelined(stream, PACKETS, 100);
                for _ in 0..PACKETS {
                    assert_eq!(producer.receive_reply(), OK);
                }
                producer.wait_while_pending(stream, PACKETS - 1);
                assert_eq!(producer.close_stream(stream, Some(PACKETS - 1)), OK);
            });
        }
    });
    let rounds = status.metric("relayd_syncs_total") - before;
    assert!(rounds < PRODUCERS * PACKETS / 10, "{rounds} rounds");
    let written = files(&relay.output, "/chan_0");
    let sizes: Vec<_> = written.values().map(Vec::len).collect();
    assert_eq!(sizes, [100 * PACKETS as usize; PRODUCERS as usize]);
}

#[test]
fn replies_do_not_wait_with_durability_interval_and_files_are_synced_later() {
    let (_lab, relay, status) = start("interval", NEVER);
    let (mut producer, stream) = Producer::open_with_trace(&relay, live_session("later"));
    producer.record_packet(stream, 0, 4096);
    assert_eq!(status.metric("relayd_syncs_total"), 0);
    assert!(status.metric("relayd_unsynced_bytes") >= 4096);
    let (_lab, relay, status) = start("interval", "--sync-interval=10");
    let (mut producer, stream) = Producer::open_with_trace(&relay, live_session("soon"));
    producer.record_packet(stream, 0, 4096);
    status.wait_for_metric("relayd_unsynced_bytes", 0);
    wait_until("a round is complete", || {
        status.metric("relayd_syncs_total") > 0
    });
}

#[test]
fn nothing_is_synced_by_default() {
    let lab = Lab::new();
    let (relay, status) = StatusEndpoint::start_relay(&lab, &[]);
    let (mut producer, stream) = Producer::open_with_trace(&relay, live_session("written"));
    producer.record_packet(stream, 0, 4096);
    assert!(!status.get("/metrics").1.contains("relayd_syncs_total"));
}

#[test]
fn files_closed_for_others_are_synced_with_a_small_pool() {
    const STREAMS: usize = 120;
    let lab = Lab::new();
    let options = ["--durability=packet", NEVER, "--fd-pool-size=100"];
    let (relay, status) = StatusEndpoint::start_relay(&lab, &options);
    let mut producer = Producer::open(&relay, plain_session("many"));
    let channels: Vec<_> = (0..STREAMS).map(|number| format!("c_{number}")).collect();
    let channels: Vec<_> = channels.iter().map(String::as_str).collect();
    let streams = producer.add_trace("ust/uid/0/64-bit", &channels);
    for number in 0..2 {
        for stream in &streams {
            producer.send_data(*stream, number, 500);
        }
        for stream in &streams {
            let index = tests::producer::index(number, 500);
            assert_eq!(producer.send_index(*stream, number, index), OK);
        }
    }
    for stream in &streams {
        producer.wait_while_pending(*stream, 1);
        assert_eq!(producer.close_stream(*stream, Some(1)), OK);
    }
    assert_eq!(status.metric("relayd_unsynced_files"), 0);
    assert!(status.metric("process_open_fds") < 150);
    for channel in channels {
        let written = first_file(&relay.output, &format!("/{channel}"));
        assert_eq!(written.len(), 1000, "{channel}");
    }
}

#[test]
fn acknowledged_packets_survive_a_killed_relay_at_every_level() {
    for durability in ["interval", "packet"] {
        let (_lab, mut relay, _status) = start(durability, NEVER);
        let (mut producer, stream) = Producer::open_with_trace(&relay, live_session("killed"));
        (0..50).for_each(|number| producer.record_packet(stream, number, 1000));
        relay.kill();
        assert_eq!(first_file(&relay.output, "/chan_0").len(), 50_000);
        assert_eq!(
            first_file(&relay.output, ".idx").len(),
            INDEX_HEADER + 50 * INDEX_ENTRY + 16
        );
    }
}

#[test]
fn lttng_records_rotates_and_clears_at_every_level() {
    for durability in ["interval", "packet"] {
        let (lab, relay, status) = start(durability, "--sync-interval=20");
        let daemon = SessionDaemon::start_with_session(&lab, &relay, "levels", None);
        daemon.lttng(&["start", "levels"]);
        traced_app::run(&lab, 300, 0, "cleared");
        daemon.lttng(&["clear", "levels"]);
        traced_app::run(&lab, 500, 0, "first");
        daemon.lttng(&["rotate", "levels"]);
        traced_app::run(&lab, 500, 0, "second");
        daemon.lttng(&["destroy", "levels"]);
        let read = Babeltrace::Two.read(&relay.output).expect_success();
        let events = numbers(&read);
        assert_eq!(events.len(), 1000, "{durability}");
        status.wait_for_metric("relayd_unsynced_files", 0);
        for kind in ["device", "other", "full"] {
            let name = format!("relayd_sync_errors_total{{kind=\"{kind}\"}}");
            assert_eq!(status.metric(&name), 0);
        }
        assert!(status.metric("relayd_syncs_total") > 0);
    }
}

#[test]
fn a_live_session_of_lttng_is_followed_with_durability_packet() {
    let (lab, relay, _status) = start("packet", NEVER);
    let daemon = SessionDaemon::start_with_session(&lab, &relay, "followed", Some(50_000));
    let viewer = Babeltrace::Two.follow(&relay, "followed");
    Viewer::connect(relay.live).wait_for_listed("followed", |listed| listed.viewers == 1);
    daemon.lttng(&["start", "followed"]);
    let mut app = TracedApp::start(&lab, "followed");
    for printed in [50, 100, 150] {
        app.emit(50);
        wait_until("the viewer has printed the events", || {
            viewer.stdout_line_count() == printed
        });
    }
    app.end();
    daemon.lttng(&["destroy", "followed"]);
    let printed = viewer.wait().expect_success();
    assert!(numbers(&printed).into_iter().eq(0..150));
}
