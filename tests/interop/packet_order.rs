//! Packets of a captured conversation, replayed out of order or left out.

use tests::babeltrace::{Babeltrace, numbers};
use tests::capture_proxy::{Capture, CaptureProxy, CapturedPacket, Event, EventKind};
use tests::lab::Lab;
use tests::lttng::SessionDaemon;
use tests::relay::Relay;
use tests::traced_app;
use tests::tree::tree;

/// Captures a session of LTTng that is not live, with more than thirty packets, while `relay`
/// records it.
fn record(lab: &Lab, relay: &Relay) -> Capture {
    let proxy = CaptureProxy::before(relay, None);
    let (control, data) = proxy.addresses();
    let daemon = SessionDaemon::start(lab);
    let urls = [
        format!("--ctrl-url=tcp4://{control}"),
        format!("--data-url=tcp4://{data}"),
    ];
    daemon.lttng(&["create", "order", &urls[0], &urls[1]]);
    let options = [
        "--subbuf-size=4k",
        "--num-subbuf=64",
        "--blocking-timeout=inf",
    ];
    daemon.enable_channel("order", "busy", &options, true);
    daemon.lttng(&["start", "order"]);
    traced_app::run(lab, 4000, 0, "order");
    daemon.lttng(&["destroy", "order"]);
    drop(daemon);
    proxy.capture()
}

/// Whether an event is a DATA_PENDING command (code 10). All indexes have been sent before the
/// first one.
fn is_data_pending(event: &Event) -> bool {
    matches!(&event.kind, EventKind::Sent(bytes) if bytes.len() == 32 && bytes[16..20] == [0, 0, 0, 10])
}

/// Returns the stream with the most packets, and their number.
fn busiest(packets: &[CapturedPacket]) -> (wire::StreamId, u64) {
    let count = |id| {
        packets
            .iter()
            .filter(|packet| packet.header.stream == id)
            .count() as u64
    };
    let ids = packets.iter().map(|packet| packet.header.stream);
    ids.map(|id| (id, count(id)))
        .max_by_key(|(_, count)| *count)
        .unwrap()
}

/// Returns a relay with a reorder window of four packets, in a directory of its own.
fn start_second_relay(name: &str) -> (Lab, Relay) {
    let lab = Lab::new();
    let relay = Relay::start_with(&lab, &["--reorder-packets=4"]);
    assert!(relay.output.exists(), "{name}");
    (lab, relay)
}

#[test]
fn packets_out_of_order_within_the_reorder_window_leave_the_same_tree() {
    let lab = Lab::new();
    let first = Relay::start(&lab);
    let mut capture = record(&lab, &first);
    let mut packets = capture.take_packets();
    // Packets in groups of three, each group in reverse. The first packet stays, as it tells where
    // the stream begins.
    let (busy, count) = busiest(&packets);
    assert!(count > 10, "{count} packets");
    let key = |packet: &CapturedPacket| {
        let seq = packet.header.seq.0;
        if packet.header.stream != busy || seq == 0 {
            seq
        } else {
            (seq - 1) / 3 * 3 + 3 - (seq - 1) % 3
        }
    };
    packets.sort_by_key(key);
    capture.put_packets(&packets, is_data_pending);
    let (_lab, second) = start_second_relay("out of order");
    capture.replay(&second);
    assert!(tree(&first.output) == tree(&second.output));
    assert!(!second.has_logged(&["packets lost"]));
}

#[test]
fn a_missing_packet_is_given_up_and_the_trace_reads_with_a_gap() {
    let lab = Lab::new();
    let first = Relay::start(&lab);
    let mut capture = record(&lab, &first);
    let all = Babeltrace::Two.read(&first.output).expect_success();
    let mut packets = capture.take_packets();
    let (busy, count) = busiest(&packets);
    let lost = count / 2;
    assert!(lost > 2 && count - lost > 5, "{count} packets");
    packets.retain(|packet| (packet.header.stream, packet.header.seq.0) != (busy, lost));
    capture.put_packets(&packets, is_data_pending);
    let (_lab, second) = start_second_relay("a missing packet");
    capture.replay(&second);
    second.wait_for_log(&["packets lost", &format!("first={lost} last={lost} count=1")]);
    let ended = Babeltrace::Two.read(&second.output);
    let warnings = ended
        .stderr
        .iter()
        .filter(|line| line.contains("Tracer discarded 1 packet "))
        .count();
    assert_eq!(warnings, 1, "{:#?}", ended.stderr);
    let left = ended.expect_success();
    assert!(left.len() < all.len());
    // Only the events of that packet are missing: their numbers are consecutive.
    let (all, left) = (numbers(&all), numbers(&left));
    let missing: Vec<_> = all
        .into_iter()
        .filter(|number| !left.contains(number))
        .collect();
    assert!(
        missing.len() > 10 && missing.windows(2).all(|two| two[1] == two[0] + 1),
        "{missing:?}"
    );
}
