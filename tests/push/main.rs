//! The push connection: what a viewer learns unasked, and that it costs nobody else anything.

use std::io::Write;
use std::time::Duration;

use relay_proto::Reply;
use relay_proto::reply::ReturnCode;
use relay_proto::session::CreateSession;
use relay_proto::stream::AddStream;
use tests::babeltrace::Babeltrace;
use tests::bystander::Bystander;
use tests::lab::Lab;
use tests::lttng::SessionDaemon;
use tests::producer::{Producer, beacon, is_at_end, live_session, stream};
use tests::push::Push;
use tests::relay::Relay;
use tests::tracee;
use tests::viewer::{Viewer, by_channel};
use tests::wait_until;
use viewer_proto::beacon_interest::BeaconInterest;
use viewer_proto::index::IndexStatus;
use viewer_proto::metadata::MetadataStatus;
use viewer_proto::push::{MetadataAvailable, Notification, PacketsAvailable, Quiet};
use viewer_proto::session::Seek;
use viewer_proto::stream::NewStreamsStatus;
use wire::{Bytes, Micros, StreamId, Timestamp, ViewerId};

/// Long enough to notice what should not come.
const A_WHILE: Duration = Duration::from_millis(100);

const PATH: &str = "ust/uid/0/64-bit";

fn packets(stream: StreamId, unread: u64) -> Notification {
    Notification::Packets(PacketsAvailable { stream, unread })
}

fn send_beacon(producer: &mut Producer, stream: StreamId, until: u64) {
    let reply = producer.send_index(stream, u64::MAX, beacon(until));
    assert_eq!(reply, Reply::Ended(ReturnCode::OK));
}

#[test]
fn a_viewer_learns_of_everything_without_asking() {
    let lab = Lab::new();
    let relay = Relay::start(&lab);
    let mut viewer = Viewer::connect(relay.live);
    let mut push = viewer.push();
    // A session appears, and it may attach at once.
    let mut producer = Producer::open(&relay, live_session("all"));
    assert_eq!(push.hear(), Some(Notification::Sessions));
    viewer.ask(&viewer_proto::Command::CreateViewerSession);
    let session = viewer.wait_for_session("all").session;
    let (_, none) = viewer.attach(session, Seek::Beginning.code());
    assert!(none.is_empty());
    // Streams.
    let streams = producer.add_trace(PATH, &["chan_0", "chan_1"]);
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
    assert_eq!(push.hear(), Some(waits));
    // Packets and beacons.
    for number in 0..100 {
        producer.send_packet(streams[0], number, 4096);
        assert_eq!(push.hear(), Some(packets(streams[0], 1)));
        let index = viewer.next_index(streams[0]);
        assert_eq!(index.status, IndexStatus::Ready);
        let until = number * 10 + 10;
        send_beacon(&mut producer, streams[1], until);
        let quiet = Quiet {
            stream: streams[1],
            until: Timestamp(until),
        };
        assert_eq!(push.hear(), Some(Notification::Quiet(quiet)));
    }
    // Streams and the session end.
    producer.close(streams[1], None);
    assert_eq!(push.hear(), Some(Notification::StreamOver(streams[1])));
    producer.hang_up();
    let mut rest = push.wait_for(Notification::StreamOver(streams[0]));
    rest.extend(push.hear_within(A_WHILE).flatten());
    rest.extend(push.hear_within(A_WHILE).flatten());
    assert!(rest.contains(&Notification::SessionOver(session)));
    assert!(rest.contains(&Notification::Sessions));
    assert_eq!(rest.len(), 2, "{rest:?}");
    assert_eq!(viewer.new_streams(session).0, NewStreamsStatus::HungUp);
    drop(viewer);
    assert_eq!(push.hear(), None);
}

#[test]
fn a_real_session_is_read_whole_by_what_is_pushed_alone() {
    const COUNT: usize = 20_000;
    let lab = Lab::new();
    let relay = Relay::start(&lab);
    let daemon = SessionDaemon::start(&lab);
    daemon.create("real", &relay, Some(50_000));
    let options = ["--subbuf-size=16k", "--blocking-timeout=inf"];
    daemon.channel("real", "busy", &options, true);
    let (mut viewer, session, _) = Viewer::attached(relay.live, "real", Seek::Beginning);
    let mut push = viewer.push();
    daemon.lttng(&["start", "real"]);
    tracee::run(&lab, COUNT, 0, "real");
    daemon.lttng(&["destroy", "real"]);
    let mut bytes = 0;
    let (mut open, mut is_over) = (0, false);
    while !is_over || open > 0 {
        match push.hear().unwrap() {
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
    let seen = Babeltrace::Two.read(&relay.output).succeeded();
    assert_eq!(seen.len(), COUNT);
}

/// A recording in tracefiles of so many packets, and how many packets it has.
fn recorded(relay: &Relay, name: &str, packets_in_file: u64) -> (Producer, u64) {
    const PACKETS: u64 = 150;
    let mut producer = Producer::open(relay, live_session(name));
    let id = producer.add(AddStream {
        tracefile_size: Bytes(packets_in_file * 1000),
        tracefile_count: 200,
        ..stream("chan_0", PATH)
    });
    producer.add_trace(PATH, &[]);
    for number in 0..PACKETS {
        producer.send_packet(id, number, 1000);
    }
    producer.settle(id, PACKETS - 1);
    (producer, PACKETS)
}

#[test]
fn what_is_asked_at_once_is_answered_as_one_by_one_also_across_tracefiles() {
    let lab = Lab::new();
    let relay = Relay::start(&lab);
    for packets_in_file in [1, 3, 50] {
        let name = format!("in-{packets_in_file}");
        let (producer, packets) = recorded(&relay, &name, packets_in_file);
        let attached = || Viewer::attached(relay.live, &name, Seek::Beginning);
        let (mut patient, _, streams) = attached();
        let (mut hasty, ..) = attached();
        let stream = by_channel(&streams)["chan_0"];
        producer.hang_up();
        let mut one_by_one = Vec::new();
        for _ in 0..packets {
            let index = patient.next_index(stream);
            let packet = patient.packet(stream, index.offset.0, 1000);
            one_by_one.push((index, packet));
        }
        wait_until("the stream is over", || {
            patient.next_index(stream).status == IndexStatus::HungUp
        });
        let mut at_once = Vec::new();
        while (at_once.len() as u64) < packets {
            // The last time, also for what is behind the end.
            let mut indexes = hasty.next_indexes(stream, 64);
            indexes.retain(|index| index.status == IndexStatus::Ready);
            let places: Vec<_> = indexes.iter().map(|index| (index.offset.0, 1000)).collect();
            at_once.extend(indexes.into_iter().zip(hasty.packets(stream, &places)));
        }
        assert_eq!(at_once, one_by_one);
        for (number, (index, (_, bytes))) in (0..).zip(&at_once) {
            assert_eq!(index.offset.0, number * 1000);
            assert!(bytes.iter().all(|byte| u64::from(*byte) == number % 251));
        }
    }
}

#[test]
fn who_never_reads_what_is_pushed_harms_nobody() {
    const STREAMS: usize = 600;
    const ROUNDS: u64 = 60;
    let lab = Lab::new();
    let relay = Relay::start(&lab);
    let mut bystander = Bystander::of(&relay);
    let mut producer = Producer::open(&relay, live_session("many"));
    let channels: Vec<_> = (0..STREAMS).map(|n| format!("chan_{n}")).collect();
    let channels: Vec<_> = channels.iter().map(String::as_str).collect();
    let streams = producer.add_trace(PATH, &channels);
    let (mut viewer, ..) = Viewer::attached(relay.live, "many", Seek::Beginning);
    // Nothing of it is read for now.
    let mut silent = Push::ask(relay.live, viewer.number.unwrap());
    // Each beacon is news: far more than the sockets between them hold.
    let mut before = 0;
    for round in 1..=ROUNDS {
        for stream in &streams {
            send_beacon(&mut producer, *stream, round);
        }
        if round == 5 {
            before = relay.memory();
        }
    }
    bystander.is_well();
    let after = relay.memory();
    assert!(after < before + (2 << 20), "{after} from {before}");
    // Its own commands are answered as well.
    let index = viewer.next_index(streams[0]);
    assert_eq!(index.packet.end, Timestamp(ROUNDS));
    // What it then reads leaves out most of what was, and ends in what is. The stream that was asked
    // has been told so.
    let (mut heard, mut up_to_date) = (0, 0);
    while up_to_date < STREAMS - 1 {
        heard += 1;
        if let Some(Notification::Quiet(Quiet { until, .. })) = silent.hear() {
            up_to_date += usize::from(until == Timestamp(ROUNDS));
        }
    }
    assert!(heard < STREAMS * 30, "{heard} notifications");
}

#[test]
fn what_a_slow_viewer_missed_it_is_told_once() {
    let lab = Lab::new();
    let relay = Relay::start(&lab);
    let mut producer = Producer::open(&relay, live_session("slow"));
    let stream = producer.add_trace(PATH, &["chan_0"])[0];
    let (mut viewer, ..) = Viewer::attached(relay.live, "slow", Seek::Beginning);
    let mut push = viewer.push();
    push.hear();
    for number in 0..1000 {
        producer.send_packet(stream, number, 100);
    }
    // As many as there were when it was said.
    let Some(Notification::Packets(PacketsAvailable { unread, .. })) = push.hear() else {
        panic!("no packets")
    };
    assert_eq!(push.hear_within(A_WHILE), None);
    for _ in 0..unread {
        viewer.next_index(stream);
    }
    assert_eq!(push.hear(), Some(packets(stream, 1000 - unread)));
    assert_eq!(push.hear_within(A_WHILE), None);
}

#[test]
fn a_wrong_viewer_is_refused_and_numbers_cannot_be_guessed() {
    let lab = Lab::new();
    let relay = Relay::start(&lab);
    let viewers: Vec<_> = (0..8).map(|_| Viewer::connect(relay.live)).collect();
    let numbers: Vec<_> = viewers
        .iter()
        .map(|viewer| viewer.number.unwrap().0)
        .collect();
    for (at, number) in numbers.iter().enumerate() {
        assert!(
            numbers[..at]
                .iter()
                .all(|other| number.abs_diff(*other) > 1 << 20)
        );
    }
    let wrong = [0, 1, numbers[0] + 1, numbers[0] ^ (1 << 40), u64::MAX];
    for number in wrong {
        let refused = Push::ask(relay.live, ViewerId(number)).hear();
        assert_eq!(refused, None, "{number}");
    }
    // Nor is a viewer named that has gone.
    let mut viewers = viewers.into_iter();
    let gone = viewers.next().unwrap();
    let mut push = gone.push();
    drop(gone);
    assert_eq!(push.hear(), None);
    assert_eq!(Push::ask(relay.live, ViewerId(numbers[0])).hear(), None);
    // The others are none the worse for it.
    let _ = viewers.next().unwrap().push();
}

#[test]
fn the_newest_push_connection_counts_and_one_that_says_nonsense_is_closed() {
    let lab = Lab::new();
    let relay = Relay::start(&lab);
    let mut producer = Producer::open(&relay, live_session("two"));
    let stream = producer.add_trace(PATH, &["chan_0"])[0];
    let (mut viewer, ..) = Viewer::attached(relay.live, "two", Seek::Beginning);
    let mut old = viewer.push();
    old.hear();
    let mut push = viewer.push();
    assert!(is_at_end(&mut old.socket().try_clone().unwrap()));
    push.hear();
    producer.send_packet(stream, 0, 100);
    assert_eq!(push.hear(), Some(packets(stream, 1)));
    push.socket().write_all(&[0; 8]).unwrap();
    assert_eq!(push.hear(), None);
    // The command connection goes on, and may be given another.
    assert_eq!(viewer.next_index(stream).status, IndexStatus::Ready);
    producer.send_packet(stream, 1, 100);
    viewer.push().wait_for(packets(stream, 1));
}

#[test]
fn a_viewer_at_ease_is_told_the_last_promises_when_it_waits_again() {
    let lab = Lab::new();
    let relay = Relay::start(&lab);
    let mut producer = Producer::open(&relay, live_session("ease"));
    let streams = producer.add_trace(PATH, &["chan_0", "chan_1"]);
    let (mut viewer, ..) = Viewer::attached(relay.live, "ease", Seek::Beginning);
    let mut push = viewer.push();
    push.hear();
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
        push.say(BeaconInterest::Unsubscribed);
        // Until that has arrived, they still come.
        wait_until("no promise comes", || {
            for _ in 0..100 {
                send_beacons(&mut producer);
            }
            push.hear_within(A_WHILE).is_none()
        });
        let last = send_beacons(&mut producer);
        push.say(BeaconInterest::Subscribed);
        let mut awaited = [0, 1].map(|at| quiet(streams[at], last)).to_vec();
        while !awaited.is_empty() {
            let said = push.hear().unwrap();
            awaited.retain(|awaited| *awaited != said);
        }
        // And from now on as they come.
        let next = send_beacons(&mut producer);
        push.wait_for(quiet(streams[1], next));
        // Packets are pushed at any time.
        push.say(BeaconInterest::Unsubscribed);
        producer.send_packet(streams[0], round, 100);
        push.wait_for(packets(streams[0], 1));
        assert_eq!(viewer.next_index(streams[0]).status, IndexStatus::Ready);
    }
}

#[test]
fn many_viewers_are_pushed_the_same() {
    const VIEWERS: usize = 300;
    let lab = Lab::new();
    let relay = Relay::start(&lab);
    let mut producer = Producer::open(&relay, live_session("many"));
    let stream = producer.add_trace(PATH, &["chan_0"])[0];
    let mut viewers: Vec<_> = (0..VIEWERS)
        .map(|_| {
            let (viewer, ..) = Viewer::attached(relay.live, "many", Seek::Beginning);
            let push = viewer.push();
            (viewer, push)
        })
        .collect();
    let open_files = relay.open_files();
    for number in 0..10 {
        producer.send_packet(stream, number, 100);
        for (viewer, push) in &mut viewers {
            push.wait_for(packets(stream, 1));
            assert_eq!(viewer.next_index(stream).status, IndexStatus::Ready);
        }
    }
    drop(viewers);
    wait_until("all are gone", || {
        relay.open_files() < open_files - VIEWERS * 2 + 5
    });
}

#[test]
fn after_a_clear_the_new_packets_are_pushed() {
    let lab = Lab::new();
    let relay = Relay::start(&lab);
    let mut producer = Producer::open(&relay, live_session("clear"));
    let streams = producer.add_trace(PATH, &["chan_0"]);
    let metadata = producer.add(stream("metadata", "ust/other"));
    let (mut viewer, ..) = Viewer::attached(relay.live, "clear", Seek::Beginning);
    let mut push = viewer.push();
    push.hear();
    producer.send_packet(streams[0], 0, 100);
    assert_eq!(push.hear(), Some(packets(streams[0], 1)));
    // It has not fetched it when everything goes over to another chunk.
    producer.create_chunk(1);
    producer.rotate(
        Some(1),
        &[(streams[0], 1), (metadata, 0), (producer.metadata[0], 0)],
    );
    producer.close_chunk(0, Some(relay_proto::chunk::CloseCommand::Delete));
    producer.send_packet(streams[0], 1, 100);
    wait_until("the packet can be had", || {
        viewer.next_index(streams[0]).status == IndexStatus::Ready
    });
    producer.send_packet(streams[0], 2, 100);
    push.wait_for(packets(streams[0], 1));
}

/// A packet that ends after another stream begins, of which the viewer cannot be told before its metadata
/// comes.
#[test]
fn packets_that_were_withheld_are_pushed_as_soon_as_they_may_be_given() {
    let lab = Lab::new();
    let relay = Relay::start(&lab);
    // Without metadata, nothing ends the wait but the end of the stream.
    let mut producer = Producer::open(
        &relay,
        CreateSession {
            live_timer: Micros(3_600_000_000),
            ..live_session("withheld")
        },
    );
    let known = producer.add_trace(PATH, &["chan_0"])[0];
    let (mut viewer, session, _) = Viewer::attached(relay.live, "withheld", Seek::Beginning);
    let mut push = viewer.push();
    let add = |producer: &mut Producer, path: &str| {
        let hidden = producer.add(stream("chan_0", path));
        let metadata = producer.add(stream("metadata", path));
        producer.ask(relay_proto::Command::StreamsSent);
        (hidden, metadata)
    };
    let send = |producer: &mut Producer, viewer: &mut Viewer, push: &mut Push, number| {
        producer.send_packet(known, number, 100);
        push.wait_for(packets(known, 1));
        assert_eq!(viewer.next_index(known).status, IndexStatus::Retry);
    };
    // The hidden stream ends without a packet, and nobody is told of it.
    let (hidden, _) = add(&mut producer, "ust/pid/one");
    send(&mut producer, &mut viewer, &mut push, 0);
    producer.close(hidden, None);
    push.wait_for(packets(known, 1));
    assert_eq!(viewer.next_index(known).status, IndexStatus::Ready);
    // The viewer is told of it.
    let (_, metadata) = add(&mut producer, "ust/pid/two");
    send(&mut producer, &mut viewer, &mut push, 1);
    producer.send_metadata(metadata, b"/* CTF 1.8 */\n", 0);
    let before = push.wait_for(packets(known, 1));
    assert!(
        before.contains(&Notification::NewStreams(session)),
        "{before:?}"
    );
    assert_eq!(viewer.next_index(known).status, IndexStatus::Ready);
}

#[test]
fn a_viewer_that_floods_its_push_connection_loses_it_and_holds_up_nobody() {
    // More than any relay takes from one connection before it gives it up.
    const MAX_FLOOD: usize = 64 << 20;
    let lab = Lab::new();
    let relay = Relay::start(&lab);
    let mut bystander = Bystander::of(&relay);
    // One for each thread that serves viewers.
    let threads = std::thread::available_parallelism().map_or(2, |cores| cores.get().max(2));
    let viewers: Vec<_> = (0..threads).map(|_| Viewer::connect(relay.live)).collect();
    let mut pushes: Vec<_> = viewers.iter().map(Viewer::push).collect();
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
    bystander.is_well();
    for flood in floods {
        assert!(flood.join().unwrap() < MAX_FLOOD, "it was never hung up on");
    }
    for push in &mut pushes {
        assert_eq!(push.hear(), None);
    }
    // The viewer goes on, and may push again.
    for mut viewer in viewers {
        assert!(!viewer.sessions().is_empty());
        let mut push = viewer.push();
        push.say(BeaconInterest::Unsubscribed);
        assert_eq!(push.hear_within(A_WHILE), None);
    }
    bystander.is_well();
}

/// So that a viewer can tell the two apart.
#[test]
fn the_reference_accepts_a_push_connection_and_pushes_nothing() {
    let lab = Lab::new();
    let relay = Relay::start_reference(&lab);
    let viewer = Viewer::connect(relay.live);
    let mut push = Push::ask(relay.live, viewer.number.unwrap());
    assert_eq!(push.hear_within(Duration::from_secs(1)), None);
    assert!(push.listener().is_connected());
    assert!(!push.listener().is_supported());
}
