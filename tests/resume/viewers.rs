//! Viewers of a session whose relay was killed: they see it from its beginning, or from where they
//! were, to its end.

use std::net::SocketAddr;

use tests::babeltrace::{Babeltrace, numbers};
use tests::lab::Lab;
use tests::process::Process;
use tests::producer::live_session;
use tests::relay::Relay;
use tests::resumable::{ResumableProducer, printable};
use tests::tree::{INDEX_ENTRY, INDEX_HEADER, files};
use tests::viewer::{Viewer, hostname};
use tests::{test_live, wait_until};
use viewer_proto::index::IndexStatus;
use viewer_proto::push::Notification;
use viewer_proto::session::Seek;

const STREAMS: u32 = 3;
const PACKETS: u64 = 30;
const EVENTS: usize = STREAMS as usize * PACKETS as usize;
/// Bytes that a producer sends between two deaths of the relay.
const BYTES: usize = 80_000;

/// Starts `test-live` on the session, from its beginning.
fn show(lab: &Lab, live: SocketAddr) -> Process {
    let url = test_live::url(live, &hostname(), "watched");
    let wait = "--session-not-found=continue";
    test_live::start(lab, &["--seek=beginning", "--no-delta", wait, &url])
}

/// Returns a producer whose session the viewers can find.
fn producer() -> ResumableProducer {
    let mut session = live_session("watched");
    session.host = hostname().as_str().into();
    let mut producer = ResumableProducer::new(printable(session, STREAMS, PACKETS, (0, 0)));
    producer.leaves_open = true;
    producer
}

/// Returns the events that the relay does not have yet. How far a relay was when it was killed
/// differs from stream to stream: it writes the index entries of several packets together, those of
/// one stream after those of another.
fn missing(relay: &Relay) -> Vec<usize> {
    let of_stream = |stream| {
        // A stream without packets may have no index file, or an empty one.
        let index = files(&relay.output, &format!("/chan_{stream}.idx"));
        let bytes = index.into_values().next().map_or(0, |index| index.len());
        let packets = bytes.saturating_sub(INDEX_HEADER) / INDEX_ENTRY;
        (packets..PACKETS as usize).map(move |packet| packet * STREAMS as usize + stream)
    };
    let mut events: Vec<_> = (0..STREAMS as usize).flat_map(of_stream).collect();
    events.sort_unstable();
    events
}

fn assert_shows_all(viewer: Process) {
    let shown = viewer.wait().expect_success();
    assert_eq!(numbers(&shown), (0..EVENTS).collect::<Vec<_>>());
}

#[test]
fn viewers_of_a_restored_session_see_it_from_its_beginning_to_its_end() {
    let lab = Lab::new();
    let mut relay = Relay::start(&lab);
    let addresses = relay.addresses();
    let mut producer = producer();
    assert!(producer.try_send(addresses, BYTES).is_err());
    relay.kill();
    let relay = Relay::start_at(&lab, addresses);
    // Nobody has resumed the session yet.
    let early = show(&lab, relay.live);
    let missing = missing(&relay);
    let babeltrace = Babeltrace::Two.follow(&relay, "watched");
    test_live::wait_until_attached(&relay, "watched", 2);
    assert!(producer.try_send(addresses, BYTES).is_err());
    let late = show(&lab, relay.live);
    test_live::wait_until_attached(&relay, "watched", 3);
    producer.send(addresses);
    assert!(producer.resumed >= 2, "{}", producer.resumed);
    assert_shows_all(early);
    assert_shows_all(late);
    // babeltrace2 begins with the packets that come after it has attached, as it always does.
    let shown = numbers(&babeltrace.wait().expect_success());
    assert!(shown[0] < EVENTS / 2, "{shown:?}");
    assert_eq!(shown, missing);
}

/// Sends a session to relays that end one after the other in the middle of it, and watches it by
/// one viewer.
fn show_session_of_relays_that_end(end: fn(&mut Relay)) {
    let lab = Lab::new();
    let mut relay = Relay::start(&lab);
    let addresses = relay.addresses();
    let viewer = show(&lab, relay.live);
    let mut producer = producer();
    let mut ends = 0;
    while producer.try_send(addresses, BYTES).is_err() {
        let shown = viewer.stdout_line_count();
        // So that the relay ends in the middle of the session.
        wait_until("the viewer shows more", || {
            viewer.stdout_line_count() > shown
        });
        end(&mut relay);
        ends += 1;
        relay = Relay::start_at(&lab, addresses);
        // A session that ends before the viewer is back is not there any more.
        test_live::wait_until_attached(&relay, "watched", 1);
    }
    assert!(ends > 2, "{ends}");
    assert_shows_all(viewer);
}

#[test]
fn viewer_whose_relay_is_killed_again_and_again_sees_each_event_once() {
    show_session_of_relays_that_end(Relay::kill);
}

#[test]
fn viewer_whose_relay_is_stopped_again_and_again_sees_each_event_once_and_in_order() {
    show_session_of_relays_that_end(Relay::terminate);
}

#[test]
fn viewers_are_not_told_that_a_resumable_session_ends_when_its_relay_is_stopped() {
    let lab = Lab::new();
    let mut relay = Relay::start(&lab);
    let mut producer = producer();
    assert!(producer.try_send(relay.addresses(), BYTES).is_err());
    let (mut viewer, _, streams) = Viewer::attached(relay.live, "watched", Seek::Beginning);
    let mut push = viewer.open_push();
    for stream in streams.iter().filter(|stream| stream.is_metadata == 0) {
        while viewer.next_index(stream.stream).status == IndexStatus::Ready {}
    }
    relay.terminate();
    while let Some(notification) = push.receive() {
        let is_end = matches!(
            notification,
            Notification::StreamOver(_) | Notification::SessionOver(_)
        );
        assert!(!is_end, "{notification:?}");
    }
}
