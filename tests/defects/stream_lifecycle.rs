//! New, idle, closed and cleared streams, and the end of sessions, as viewers see them.

use relay_proto::chunk::CloseCommand;
use tests::babeltrace::{Babeltrace, numbers};
use tests::lttng::SessionDaemon;
use tests::producer::{OK, Producer, TRACE_PATH, beacon, live_session, stream};
use tests::relay::Relay;
use tests::traced_app::{self, TracedApp};
use tests::tree::files;
use tests::viewer::{Viewer, by_channel};
use tests::wait_until;
use viewer_proto::index::{IndexStatus, NEW_STREAMS};
use viewer_proto::stream::NewStreamsStatus;
use wire::Timestamp;

use super::viewed_session::ViewedSession;

#[test]
fn new_streams_are_flagged_while_the_others_are_idle() {
    let (_lab, relay) = Relay::start_in_new_lab();
    let mut viewed = ViewedSession::open(&relay, "idle");
    assert_eq!(viewed.producer.send_index(viewed.stream, 0, beacon(50)), OK);
    assert_eq!(
        viewed.viewer.wait_for_index(viewed.stream).packet.end,
        Timestamp(50)
    );
    let late = viewed.producer.add_trace("ust/pid/two", &["chan_0"])[0];
    viewed.producer.send_packet(late, 0, 100);
    // A beacon after the begin of the new stream: the watermark must not reach it yet.
    assert_eq!(viewed.producer.send_index(viewed.stream, 0, beacon(90)), OK);
    wait_until("the new stream is flagged", || {
        let index = viewed.viewer.next_index(viewed.stream);
        assert!(index.packet.end <= Timestamp(50));
        index.flags & NEW_STREAMS != 0
    });
    // The flag stays set until the viewer requests new streams.
    assert!(viewed.viewer.next_index(viewed.stream).flags & NEW_STREAMS != 0);
    let (status, streams) = viewed.viewer.new_streams(viewed.session);
    assert_eq!((status, streams.len()), (NewStreamsStatus::Ok, 2));
    assert_eq!(
        viewed.viewer.wait_for_index(late).status,
        IndexStatus::Ready
    );
    assert_eq!(
        viewed.viewer.wait_for_index(viewed.stream).packet.end,
        Timestamp(90)
    );
}

// LTTng adds the streams of a process when it starts, and sends its metadata up to a live timer
// period later.
#[test]
fn watermarks_stay_at_the_beginning_of_streams_that_await_metadata() {
    let (_lab, relay) = Relay::start_in_new_lab();
    let mut viewed = ViewedSession::open(&relay, "begun");
    let beacon_to = |viewed: &mut ViewedSession, time: u64| {
        let reply = viewed.producer.send_index(viewed.stream, 0, beacon(time));
        assert_eq!(reply, OK);
        viewed.viewer.wait_for_index(viewed.stream)
    };
    let begin = |viewed: &mut ViewedSession, path: &str| {
        let added = viewed.producer.add_stream(stream("chan_0", path));
        let metadata = viewed.producer.add_stream(stream("metadata", path));
        viewed.producer.request(relay_proto::Command::StreamsSent);
        (added, metadata)
    };
    assert_eq!(beacon_to(&mut viewed, 50).packet.end, Timestamp(50));
    let (_, metadata) = begin(&mut viewed, "ust/pid/two");
    for time in [90, 100] {
        let index = beacon_to(&mut viewed, time);
        assert_eq!(
            (index.packet.end, index.flags & NEW_STREAMS),
            (Timestamp(50), 0)
        );
    }
    // A stream that begins later limits the watermark later.
    let (brief, _) = begin(&mut viewed, "ust/pid/brief");
    viewed
        .producer
        .send_metadata(metadata, b"/* CTF 1.8 */\n", 0);
    wait_until("the new stream is flagged", || {
        viewed.viewer.next_index(viewed.stream).flags & NEW_STREAMS != 0
    });
    assert_eq!(viewed.viewer.new_streams(viewed.session).1.len(), 2);
    for time in [100, 150] {
        assert_eq!(beacon_to(&mut viewed, time).packet.end, Timestamp(100));
    }
    // A closed stream does not limit the watermark.
    assert_eq!(viewed.producer.close_stream(brief, None), OK);
    assert_eq!(beacon_to(&mut viewed, 200).packet.end, Timestamp(200));
}

#[test]
fn streams_closed_before_they_are_announced_or_read_are_delivered_whole() {
    let (_lab, relay) = Relay::start_in_new_lab();
    let mut viewed = ViewedSession::open(&relay, "brief");
    for number in 0..5 {
        viewed.producer.send_packet(viewed.stream, number, 100);
    }
    assert_eq!(viewed.producer.close_stream(viewed.stream, Some(4)), OK);
    let brief = viewed.producer.add_trace("ust/pid/brief", &["chan_0"])[0];
    viewed.producer.send_packet(brief, 0, 100);
    viewed.producer.close_session(brief, Some(0));
    let (status, streams) = viewed.viewer.new_streams(viewed.session);
    assert_eq!(
        (status, by_channel(&streams)["chan_0"]),
        (NewStreamsStatus::Ok, brief)
    );
    for (stream, packets) in [(viewed.stream, 5), (brief, 1)] {
        for _ in 0..packets {
            assert_eq!(
                viewed.viewer.wait_for_index(stream).status,
                IndexStatus::Ready
            );
        }
        assert_eq!(
            viewed.viewer.wait_for_index(stream).status,
            IndexStatus::HungUp
        );
    }
    assert_eq!(
        viewed.viewer.new_streams(viewed.session).0,
        NewStreamsStatus::HungUp
    );
}

#[test]
fn no_event_is_lost_of_a_process_that_exits_just_before_its_session_is_destroyed() {
    let (lab, relay) = Relay::start_in_new_lab();
    let daemon = SessionDaemon::start(&lab);
    daemon.create_session("atonce", &relay, Some(100_000));
    daemon.enable_channel(
        "atonce",
        "busy",
        &["--buffers-pid", "--subbuf-size=4k"],
        true,
    );
    daemon.lttng(&["start", "atonce"]);
    let viewer = Babeltrace::Two.follow(&relay, "atonce");
    Viewer::connect(relay.live).wait_for_listed("atonce", |listed| listed.viewers == 1);
    traced_app::run(&lab, 20, 0, "atonce");
    daemon.lttng(&["destroy", "atonce"]);
    assert!(
        numbers(&viewer.wait().expect_success())
            .into_iter()
            .eq(0..20)
    );
}

#[test]
fn viewers_of_a_session_that_is_stopped_cleared_and_destroyed_exit() {
    let (lab, relay) = Relay::start_in_new_lab();
    let daemon = SessionDaemon::start_with_session(&lab, &relay, "cleared", Some(50_000));
    daemon.lttng(&["start", "cleared"]);
    let mut app = TracedApp::start(&lab, "cleared");
    app.emit(10);
    daemon.lttng(&["stop", "cleared"]);
    daemon.lttng(&["clear", "cleared"]);
    let viewers = [Babeltrace::Two, Babeltrace::One].map(|b| b.follow(&relay, "cleared"));
    Viewer::connect(relay.live).wait_for_listed("cleared", |listed| listed.viewers == 2);
    daemon.lttng(&["destroy", "cleared"]);
    for viewer in viewers {
        assert_eq!(viewer.wait().expect_success(), Vec::<String>::new());
    }
    app.end();
}

#[test]
fn a_stream_without_events_is_inactive_from_its_first_beacon() {
    let (_lab, relay) = Relay::start_in_new_lab();
    let mut viewed = ViewedSession::open(&relay, "never");
    assert_eq!(
        viewed.viewer.next_index(viewed.stream).status,
        IndexStatus::Retry
    );
    for until in [100, 200] {
        assert_eq!(
            viewed.producer.send_index(viewed.stream, 0, beacon(until)),
            OK
        );
        let index = viewed.viewer.next_index(viewed.stream);
        assert_eq!(
            (index.status, index.packet.end),
            (IndexStatus::Inactive, Timestamp(until))
        );
    }
}

#[test]
fn a_beacon_that_overtakes_a_packet_or_goes_back_in_time_is_not_sent_to_viewers() {
    let (_lab, relay) = Relay::start_in_new_lab();
    let mut viewed = ViewedSession::open(&relay, "overtaken");
    viewed.producer.send_packet(viewed.stream, 0, 100);
    assert_eq!(
        viewed.viewer.wait_for_index(viewed.stream).status,
        IndexStatus::Ready
    );
    // The packet ends at cycle 10.
    assert_eq!(viewed.producer.send_index(viewed.stream, 0, beacon(5)), OK);
    assert_eq!(
        viewed.viewer.next_index(viewed.stream).status,
        IndexStatus::Retry
    );
    // The next packet, without its index.
    viewed.producer.send_data(viewed.stream, 1, 100);
    wait_until("the packet is written", || {
        files(&relay.output, "/chan_0")
            .values()
            .any(|bytes| bytes.len() == 200)
    });
    assert_eq!(viewed.producer.send_index(viewed.stream, 1, beacon(99)), OK);
    assert_eq!(
        viewed.viewer.next_index(viewed.stream).status,
        IndexStatus::Retry
    );
}

#[test]
fn the_end_of_a_session_is_reported_after_its_last_packet() {
    let (_lab, relay) = Relay::start_in_new_lab();
    let mut viewed = ViewedSession::open(&relay, "unread");
    viewed.producer.send_packet(viewed.stream, 0, 100);
    viewed.producer.close_session(viewed.stream, Some(0));
    let nothing_new = (NewStreamsStatus::Ok, vec![]);
    assert_eq!(viewed.viewer.new_streams(viewed.session), nothing_new);
    assert_eq!(
        viewed.viewer.wait_for_index(viewed.stream).status,
        IndexStatus::Ready
    );
    assert_eq!(viewed.viewer.new_streams(viewed.session), nothing_new);
    assert_eq!(
        viewed.viewer.wait_for_index(viewed.stream).status,
        IndexStatus::HungUp
    );
    assert_eq!(
        viewed.viewer.new_streams(viewed.session).0,
        NewStreamsStatus::HungUp
    );
}

#[test]
fn a_stream_that_closes_after_its_session_was_cleared_ends_without_error() {
    let (_lab, relay) = Relay::start_in_new_lab();
    let mut viewed = ViewedSession::open(&relay, "clear");
    viewed.producer.send_packet(viewed.stream, 0, 100);
    assert_eq!(
        viewed.viewer.wait_for_index(viewed.stream).status,
        IndexStatus::Ready
    );
    viewed.producer.send_packet(viewed.stream, 1, 100);
    let metadata = viewed.metadata;
    assert_eq!(viewed.producer.create_chunk(1), OK);
    let rotated = viewed
        .producer
        .rotate_streams(Some(1), &[(viewed.stream, 2), (metadata, 0)]);
    assert_eq!(rotated, OK);
    assert!(
        viewed
            .producer
            .close_chunk(0, Some(CloseCommand::Delete))
            .is_ok()
    );
    viewed.producer.send_packet(viewed.stream, 2, 100);
    viewed.producer.close_session(viewed.stream, Some(2));
    // The packet that the viewer had not read is deleted with its chunk; the one in the new chunk
    // is delivered.
    let index = viewed.viewer.wait_for_index(viewed.stream);
    assert_eq!(
        (index.status, index.packet.begin),
        (IndexStatus::Ready, Timestamp(20))
    );
    let offset = index.offset.0;
    assert_eq!(
        viewed.viewer.packet(viewed.stream, offset, 100).1,
        vec![2; 100]
    );
    assert_eq!(
        viewed.viewer.wait_for_index(viewed.stream).status,
        IndexStatus::HungUp
    );
}

#[test]
fn viewers_exit_when_a_session_without_metadata_ends() {
    let (lab, relay) = Relay::start_in_new_lab();
    let (mut producer, stream) = Producer::open_with_stream(&relay, live_session("undescribed"));
    producer.add_stream(tests::producer::stream("metadata", TRACE_PATH));
    producer.request(relay_proto::Command::StreamsSent);
    producer.send_packet(stream, 0, 100);
    let mut viewer = Viewer::connect(relay.live);
    viewer.wait_for_session("undescribed");
    let url = format!("net://{}/host/host/undescribed", relay.live);
    let viewers = ["babeltrace", "babeltrace2"].map(|program| {
        let mut command = lab.command(tests::peers::program(program));
        tests::process::Process::start(command.args(["-i", "lttng-live", &url]))
    });
    viewer.wait_for_listed("undescribed", |listed| listed.viewers == 2);
    producer.close_session(stream, Some(0));
    for viewer in viewers {
        viewer.wait().expect_success();
    }
}
