//! Push connections: notifications of everything that a viewer follows, without effect on other
//! peers.

use std::io::Write;
use std::time::Duration;

use relay_proto::session::CreateSession;
use relay_proto::stream::AddStream;
use rustix::net::sockopt::set_socket_recv_buffer_size;
use tests::babeltrace::Babeltrace;
use tests::lab::Lab;
use tests::lttng::SessionDaemon;
use tests::probe_session::start_relay_with_probe;
use tests::producer::{OK, Producer, TRACE_PATH, beacon, is_closed, live_session, stream};
use tests::push::PushConnection;
use tests::relay::Relay;
use tests::traced_app;
use tests::viewer::{Viewer, by_channel};
use tests::wait_until;
use viewer_proto::beacon_interest::BeaconInterest;
use viewer_proto::index::{IndexStatus, NEW_STREAMS};
use viewer_proto::metadata::MetadataStatus;
use viewer_proto::push::{MetadataAvailable, Notification, PacketsAvailable, Quiet};
use viewer_proto::session::Seek;
use viewer_proto::stream::NewStreamsStatus;
use wire::{Bytes, Micros, StreamId, Timestamp, ViewerId};

/// The time that tests wait for a notification that should not arrive.
const QUIET_TIME: Duration = Duration::from_millis(100);

/// Returns the notification that a stream has `unread` more packets.
fn packets_notification(stream: StreamId, unread: u64) -> Notification {
    Notification::Packets(PacketsAvailable { stream, unread })
}

fn send_beacon(producer: &mut Producer, stream: StreamId, until: u64) {
    let reply = producer.send_index(stream, u64::MAX, beacon(until));
    assert_eq!(reply, OK);
}

#[test]
fn a_viewer_is_notified_of_every_change_without_polling() {
    let (_lab, relay) = Relay::start_in_new_lab();
    let mut viewer = Viewer::connect(relay.live);
    let mut push = viewer.open_push();
    // A new session, to which the viewer attaches at once.
    let mut producer = Producer::open(&relay, live_session("all"));
    assert_eq!(push.receive(), Some(Notification::Sessions));
    viewer.request(&viewer_proto::Command::CreateViewerSession);
    let session = viewer.wait_for_session("all").session;
    let (_, none) = viewer.attach(session, Seek::Beginning.code());
    assert!(none.is_empty());
    // Streams.
    let streams = producer.add_trace(TRACE_PATH, &["chan_0", "chan_1"]);
    push.wait_for(Notification::NewStreams(session));
    let (_, records) = viewer.new_streams(session);
    let metadata = by_channel(&records)["metadata"];
    let trace = records[0].trace;
    // Metadata.
    let waits = Notification::Metadata(MetadataAvailable {
        stream: metadata,
        trace,
    });
    push.wait_for(waits);
    while viewer.metadata(metadata).0 == MetadataStatus::Ok {}
    producer.send_metadata(metadata, b"/* more */", 0);
    assert_eq!(push.receive(), Some(waits));
    // Packets and beacons.
    for number in 0..100 {
        producer.send_packet(streams[0], number, 4096);
        assert_eq!(push.receive(), Some(packets_notification(streams[0], 1)));
        let index = viewer.next_index(streams[0]);
        assert_eq!(index.status, IndexStatus::Ready);
        let until = number * 10 + 10;
        send_beacon(&mut producer, streams[1], until);
        let quiet = Quiet {
            stream: streams[1],
            until: Timestamp(until),
        };
        assert_eq!(push.receive(), Some(Notification::Quiet(quiet)));
    }
    // The end of streams and of the session.
    producer.close_stream(streams[1], None);
    assert_eq!(push.receive(), Some(Notification::StreamOver(streams[1])));
    producer.disconnect();
    let mut rest = push.wait_for(Notification::StreamOver(streams[0]));
    rest.extend(push.receive_within(QUIET_TIME).flatten());
    rest.extend(push.receive_within(QUIET_TIME).flatten());
    assert!(rest.contains(&Notification::SessionOver(session)));
    assert!(rest.contains(&Notification::Sessions));
    assert_eq!(rest.len(), 2, "{rest:?}");
    assert_eq!(viewer.new_streams(session).0, NewStreamsStatus::HungUp);
    drop(viewer);
    // The relay may forget the session, which nobody views any more, before it closes this
    // connection: that is one more change.
    let mut last = push.receive();
    if last.is_some() {
        assert_eq!(last, Some(Notification::Sessions));
        last = push.receive();
    }
    assert_eq!(last, None);
}

#[test]
fn a_session_of_lttng_is_read_whole_by_notifications_alone() {
    const COUNT: usize = 20_000;
    let (lab, relay) = Relay::start_in_new_lab();
    let options = ["--subbuf-size=16k", "--blocking-timeout=inf"];
    let daemon = SessionDaemon::start_with_channel(&lab, &relay, "real", Some(50_000), &options);
    let (mut viewer, session, _) = Viewer::attached(relay.live, "real", Seek::Beginning);
    let mut push = viewer.open_push();
    daemon.lttng(&["start", "real"]);
    traced_app::run(&lab, COUNT, 0, "real");
    daemon.lttng(&["destroy", "real"]);
    let mut bytes = 0;
    let (mut open, mut is_over) = (0, false);
    while !is_over || open > 0 {
        match push.receive().unwrap() {
            Notification::NewStreams(_) => {
                let (_, records) = viewer.new_streams(session);
                open += records
                    .iter()
                    .filter(|record| record.is_metadata == 0)
                    .count();
            }
            Notification::Packets(PacketsAvailable { stream, unread }) => {
                for _ in 0..unread {
                    let index = viewer.next_index(stream);
                    assert_eq!(index.status, IndexStatus::Ready);
                    let len = index.packet.packet_size.to_bytes().unwrap().0;
                    let len = u32::try_from(len).unwrap();
                    bytes += viewer.packet(stream, index.offset.0, len).1.len();
                }
            }
            Notification::StreamOver(_) => open -= 1,
            Notification::SessionOver(_) => is_over = true,
            Notification::Metadata(waits) => {
                while viewer.metadata(waits.stream).0 == MetadataStatus::Ok {}
            }
            _ => {}
        }
    }
    assert_eq!(viewer.new_streams(session).0, NewStreamsStatus::HungUp);
    let data = tests::tree::tree(&relay.output)
        .into_iter()
        .filter(|(name, _)| name.contains("/busy_") && !name.contains("/index/"))
        .filter_map(|(_, node)| node.contents);
    assert_eq!(bytes, data.map(|data| data.len()).sum::<usize>());
    let seen = Babeltrace::Two.read(&relay.output).expect_success();
    assert_eq!(seen.len(), COUNT);
}

/// Records 150 packets in tracefiles of `packets_in_file` packets each. Returns the producer and
/// the number of packets.
fn record_packets(relay: &Relay, name: &str, packets_in_file: u64) -> (Producer, u64) {
    const PACKETS: u64 = 150;
    let mut producer = Producer::open(relay, live_session(name));
    let id = producer.add_stream(AddStream {
        tracefile_size: Bytes(packets_in_file * 1000),
        tracefile_count: 200,
        ..stream("chan_0", TRACE_PATH)
    });
    producer.add_trace(TRACE_PATH, &[]);
    for number in 0..PACKETS {
        producer.send_packet(id, number, 1000);
    }
    producer.wait_while_pending(id, PACKETS - 1);
    (producer, PACKETS)
}

#[test]
fn pipelined_requests_are_answered_like_single_ones_also_across_tracefiles() {
    let (_lab, relay) = Relay::start_in_new_lab();
    for packets_in_file in [1, 3, 50] {
        let name = format!("in-{packets_in_file}");
        let (producer, packets) = record_packets(&relay, &name, packets_in_file);
        let attached = || Viewer::attached(relay.live, &name, Seek::Beginning);
        let (mut single, _, streams) = attached();
        let (mut pipelined, ..) = attached();
        let stream = by_channel(&streams)["chan_0"];
        producer.disconnect();
        let mut one_by_one = Vec::new();
        for _ in 0..packets {
            let index = single.next_index(stream);
            let packet = single.packet(stream, index.offset.0, 1000);
            one_by_one.push((index, packet));
        }
        wait_until("the stream is over", || {
            single.next_index(stream).status == IndexStatus::HungUp
        });
        let mut at_once = Vec::new();
        while (at_once.len() as u64) < packets {
            // The last round also requests indexes after the end.
            let mut indexes = pipelined.next_indexes(stream, 64);
            indexes.retain(|index| index.status == IndexStatus::Ready);
            let places: Vec<_> = indexes.iter().map(|index| (index.offset.0, 1000)).collect();
            at_once.extend(indexes.into_iter().zip(pipelined.packets(stream, &places)));
        }
        assert_eq!(at_once, one_by_one);
        for (number, (index, (_, bytes))) in (0..).zip(&at_once) {
            assert_eq!(index.offset.0, number * 1000);
            assert!(bytes.iter().all(|byte| u64::from(*byte) == number % 251));
        }
    }
}

#[test]
fn a_viewer_that_never_reads_notifications_affects_no_other() {
    const STREAMS: usize = 600;
    const ROUNDS: u64 = 60;
    let (_lab, relay, mut probe) = start_relay_with_probe();
    let mut producer = Producer::open(&relay, live_session("many"));
    let channels: Vec<_> = (0..STREAMS).map(|n| format!("chan_{n}")).collect();
    let channels: Vec<_> = channels.iter().map(String::as_str).collect();
    let streams = producer.add_trace(TRACE_PATH, &channels);
    let (mut viewer, ..) = Viewer::attached(relay.live, "many", Seek::Beginning);
    // A push connection that is not read for now.
    let mut silent = PushConnection::connect(relay.live, viewer.id.unwrap());
    // Otherwise the system holds the more, the longer it takes.
    set_socket_recv_buffer_size(silent.socket(), 64 << 10).unwrap();
    // Each beacon is a change: far more notifications than the socket buffers hold.
    let mut before = 0;
    for round in 1..=ROUNDS {
        for stream in &streams {
            send_beacon(&mut producer, *stream, round);
        }
        if round == 5 {
            before = relay.memory();
        }
    }
    probe.assert_served();
    let after = relay.memory();
    assert!(after < before + (2 << 20), "{after} from {before}");
    // The viewer's command connection is served as well.
    let index = viewer.next_index(streams[0]);
    assert_eq!(index.packet.end, Timestamp(ROUNDS));
    // The notifications leave out most intermediate states and end with the latest ones. The stream
    // that was polled needs no more.
    let (mut received, mut up_to_date) = (0, 0);
    while up_to_date < STREAMS - 1 {
        received += 1;
        if let Some(Notification::Quiet(Quiet { until, .. })) = silent.receive() {
            up_to_date += usize::from(until == Timestamp(ROUNDS));
        }
    }
    assert!(received < STREAMS * 30, "{received} notifications");
}

#[test]
fn a_slow_viewer_gets_one_notification_for_all_packets_it_missed() {
    let (_lab, relay) = Relay::start_in_new_lab();
    let (mut producer, stream) = Producer::open_with_trace(&relay, live_session("slow"));
    let (mut viewer, ..) = Viewer::attached(relay.live, "slow", Seek::Beginning);
    let mut push = viewer.open_push();
    push.receive();
    for number in 0..1000 {
        producer.send_packet(stream, number, 100);
    }
    // The packets that had been published when the notification was sent.
    let Some(Notification::Packets(PacketsAvailable { unread, .. })) = push.receive() else {
        panic!("no packets")
    };
    assert_eq!(push.receive_within(QUIET_TIME), None);
    for _ in 0..unread {
        viewer.next_index(stream);
    }
    assert_eq!(
        push.receive(),
        Some(packets_notification(stream, 1000 - unread))
    );
    assert_eq!(push.receive_within(QUIET_TIME), None);
}

#[test]
fn a_push_connection_with_a_wrong_viewer_id_is_refused_and_ids_cannot_be_guessed() {
    let (_lab, relay) = Relay::start_in_new_lab();
    let viewers: Vec<_> = (0..8).map(|_| Viewer::connect(relay.live)).collect();
    let numbers: Vec<_> = viewers.iter().map(|viewer| viewer.id.unwrap().0).collect();
    for (at, number) in numbers.iter().enumerate() {
        assert!(
            numbers[..at]
                .iter()
                .all(|other| number.abs_diff(*other) > 1 << 20)
        );
    }
    let wrong = [0, 1, numbers[0] + 1, numbers[0] ^ (1 << 40), u64::MAX];
    for number in wrong {
        let refused = PushConnection::connect(relay.live, ViewerId(number)).receive();
        assert_eq!(refused, None, "{number}");
    }
    // The id of a viewer that has disconnected is refused, too.
    let mut viewers = viewers.into_iter();
    let gone = viewers.next().unwrap();
    let mut push = gone.open_push();
    drop(gone);
    assert_eq!(push.receive(), None);
    assert_eq!(
        PushConnection::connect(relay.live, ViewerId(numbers[0])).receive(),
        None
    );
    // Other viewers are not affected.
    let _ = viewers.next().unwrap().open_push();
}

#[test]
fn a_new_push_connection_replaces_the_old_one_and_a_malformed_message_closes_it() {
    let (_lab, relay) = Relay::start_in_new_lab();
    let (mut producer, stream) = Producer::open_with_trace(&relay, live_session("two"));
    let (mut viewer, ..) = Viewer::attached(relay.live, "two", Seek::Beginning);
    let mut old = viewer.open_push();
    old.receive();
    let mut push = viewer.open_push();
    assert!(is_closed(&mut old.socket().try_clone().unwrap()));
    push.receive();
    producer.send_packet(stream, 0, 100);
    assert_eq!(push.receive(), Some(packets_notification(stream, 1)));
    push.socket().write_all(&[0; 8]).unwrap();
    assert_eq!(push.receive(), None);
    // The command connection stays open, and another push connection may be opened.
    assert_eq!(viewer.next_index(stream).status, IndexStatus::Ready);
    producer.send_packet(stream, 1, 100);
    viewer.open_push().wait_for(packets_notification(stream, 1));
}

#[test]
fn a_viewer_that_subscribes_to_beacons_again_gets_the_latest_ones() {
    let (_lab, relay) = Relay::start_in_new_lab();
    let mut producer = Producer::open(&relay, live_session("ease"));
    let streams = producer.add_trace(TRACE_PATH, &["chan_0", "chan_1"]);
    let (mut viewer, ..) = Viewer::attached(relay.live, "ease", Seek::Beginning);
    let mut push = viewer.open_push();
    push.receive();
    let quiet = |stream, until| {
        let until = Timestamp(until);
        Notification::Quiet(Quiet { stream, until })
    };
    let mut until = 0;
    let mut send_beacons = |producer: &mut Producer| {
        until += 1;
        for stream in &streams[..2] {
            send_beacon(producer, *stream, until);
        }
        until
    };
    for round in 0..3 {
        push.send_beacon_interest(BeaconInterest::Unsubscribed);
        // Beacons still arrive until the relay has processed that.
        wait_until("no beacon arrives", || {
            for _ in 0..100 {
                send_beacons(&mut producer);
            }
            push.receive_within(QUIET_TIME).is_none()
        });
        let last = send_beacons(&mut producer);
        push.send_beacon_interest(BeaconInterest::Subscribed);
        let mut awaited = [0, 1].map(|at| quiet(streams[at], last)).to_vec();
        while !awaited.is_empty() {
            let notification = push.receive().unwrap();
            awaited.retain(|awaited| *awaited != notification);
        }
        // From then on every beacon is pushed.
        let next = send_beacons(&mut producer);
        push.wait_for(quiet(streams[1], next));
        // Packets are pushed whether or not beacons are.
        push.send_beacon_interest(BeaconInterest::Unsubscribed);
        producer.send_packet(streams[0], round, 100);
        push.wait_for(packets_notification(streams[0], 1));
        assert_eq!(viewer.next_index(streams[0]).status, IndexStatus::Ready);
    }
}

#[test]
fn many_viewers_get_the_same_notifications() {
    const VIEWERS: usize = 300;
    let (_lab, relay) = Relay::start_in_new_lab();
    let (mut producer, stream) = Producer::open_with_trace(&relay, live_session("many"));
    let mut viewers: Vec<_> = (0..VIEWERS)
        .map(|_| {
            let (viewer, ..) = Viewer::attached(relay.live, "many", Seek::Beginning);
            let push = viewer.open_push();
            (viewer, push)
        })
        .collect();
    let open_files = relay.open_files();
    for number in 0..10 {
        producer.send_packet(stream, number, 100);
        for (viewer, push) in &mut viewers {
            push.wait_for(packets_notification(stream, 1));
            assert_eq!(viewer.next_index(stream).status, IndexStatus::Ready);
        }
    }
    drop(viewers);
    wait_until("all viewers are disconnected", || {
        relay.open_files() < open_files - VIEWERS * 2 + 5
    });
}

#[test]
fn packets_after_a_clear_are_pushed() {
    let (_lab, relay) = Relay::start_in_new_lab();
    let mut producer = Producer::open(&relay, live_session("clear"));
    let streams = producer.add_trace(TRACE_PATH, &["chan_0"]);
    let metadata = producer.add_stream(stream("metadata", "ust/other"));
    let (mut viewer, ..) = Viewer::attached(relay.live, "clear", Seek::Beginning);
    let mut push = viewer.open_push();
    push.receive();
    producer.send_packet(streams[0], 0, 100);
    assert_eq!(push.receive(), Some(packets_notification(streams[0], 1)));
    // The viewer has not requested the packet when all streams are rotated.
    producer.create_chunk(1);
    producer.rotate_streams(
        Some(1),
        &[(streams[0], 1), (metadata, 0), (producer.metadata[0], 0)],
    );
    producer.close_chunk(0, Some(relay_proto::chunk::CloseCommand::Delete));
    producer.send_packet(streams[0], 1, 100);
    wait_until("the packet is published", || {
        viewer.next_index(streams[0]).status == IndexStatus::Ready
    });
    producer.send_packet(streams[0], 2, 100);
    push.wait_for(packets_notification(streams[0], 1));
}

// Packets are withheld that end after another stream began which cannot be announced before its
// metadata comes.
#[test]
fn withheld_packets_are_pushed_as_soon_as_they_are_released() {
    let (_lab, relay) = Relay::start_in_new_lab();
    // The live timer of an hour keeps the relay waiting for metadata as long as the stream is open.
    let mut producer = Producer::open(
        &relay,
        CreateSession {
            live_timer: Micros(3_600_000_000),
            ..live_session("withheld")
        },
    );
    let known = producer.add_trace(TRACE_PATH, &["chan_0"])[0];
    let (mut viewer, session, _) = Viewer::attached(relay.live, "withheld", Seek::Beginning);
    let mut push = viewer.open_push();
    let add = |producer: &mut Producer, path: &str| {
        let hidden = producer.add_stream(stream("chan_0", path));
        let metadata = producer.add_stream(stream("metadata", path));
        producer.request(relay_proto::Command::StreamsSent);
        (hidden, metadata)
    };
    let send = |producer: &mut Producer, viewer: &mut Viewer, push: &mut PushConnection, number| {
        producer.send_packet(known, number, 100);
        push.wait_for(packets_notification(known, 1));
        assert_eq!(viewer.next_index(known).status, IndexStatus::Retry);
    };
    // The hidden stream closes without a packet, and is never announced.
    let (hidden, _) = add(&mut producer, "ust/pid/one");
    send(&mut producer, &mut viewer, &mut push, 0);
    producer.close_stream(hidden, None);
    push.wait_for(packets_notification(known, 1));
    assert_eq!(viewer.next_index(known).status, IndexStatus::Ready);
    // The hidden stream is announced when its metadata arrives.
    let (_, metadata) = add(&mut producer, "ust/pid/two");
    send(&mut producer, &mut viewer, &mut push, 1);
    producer.send_metadata(metadata, b"/* CTF 1.8 */\n", 0);
    // In any order: a stream may be announced after the relay has looked at the session, and before
    // it looks at the packets. The reply with the packet tells of it in any case.
    let before = push.wait_for(Notification::NewStreams(session));
    if !before.contains(&packets_notification(known, 1)) {
        push.wait_for(packets_notification(known, 1));
    }
    let index = viewer.next_index(known);
    assert_eq!(index.status, IndexStatus::Ready);
    assert_ne!(index.flags & NEW_STREAMS, 0);
}

#[test]
fn a_flooded_push_connection_is_closed_and_blocks_no_other() {
    // More bytes than the relay reads from a push connection before it closes it.
    const MAX_FLOOD: usize = 64 << 20;
    let (_lab, relay, mut probe) = start_relay_with_probe();
    // One flood for each worker that serves viewers.
    let threads = std::thread::available_parallelism().map_or(2, |cores| cores.get().max(2));
    let viewers: Vec<_> = (0..threads).map(|_| Viewer::connect(relay.live)).collect();
    let mut pushes: Vec<_> = viewers.iter().map(Viewer::open_push).collect();
    let mut flood = Vec::new();
    for beacon_interest in [BeaconInterest::Unsubscribed, BeaconInterest::Subscribed] {
        beacon_interest.encode(&mut flood);
    }
    let flood = flood.repeat(4096);
    let floods: Vec<_> = pushes
        .iter()
        .map(|push| {
            let (mut socket, flood) = (push.socket().try_clone().unwrap(), flood.clone());
            std::thread::spawn(move || {
                let mut sent = 0;
                while sent < MAX_FLOOD && socket.write_all(&flood).is_ok() {
                    sent += flood.len();
                }
                sent
            })
        })
        .collect();
    probe.assert_served();
    for flood in floods {
        assert!(
            flood.join().unwrap() < MAX_FLOOD,
            "the connection was never closed"
        );
    }
    for push in &mut pushes {
        assert_eq!(push.receive(), None);
    }
    // The viewer is served, and may open another push connection.
    for mut viewer in viewers {
        assert!(!viewer.sessions().is_empty());
        let mut push = viewer.open_push();
        push.send_beacon_interest(BeaconInterest::Unsubscribed);
        assert_eq!(push.receive_within(QUIET_TIME), None);
    }
    probe.assert_served();
}

// A viewer must be able to tell a relay that pushes from one that does not.
#[test]
fn the_reference_accepts_a_push_connection_and_pushes_nothing() {
    let lab = Lab::new();
    let relay = Relay::start_reference(&lab);
    let viewer = Viewer::connect(relay.live);
    let mut push = PushConnection::connect(relay.live, viewer.id.unwrap());
    assert_eq!(push.receive_within(Duration::from_secs(1)), None);
    assert!(push.listener().is_connected());
    assert!(!push.listener().is_supported());
}
