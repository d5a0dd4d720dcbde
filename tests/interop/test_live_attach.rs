//! The relay source of `test-live` as a library, attached to a relay: its events in order, with and
//! without push.

use std::net::SocketAddr;

use relay_proto::stream::AddStream;
use tests::lab::Lab;
use tests::producer::{Producer, beacon, live_session, stream};
use tests::relay::Relay;
use tests::{TEST_TIMEOUT, wait_for, wait_until};
use tokio::sync::mpsc::{self, Receiver};
use tokio::sync::watch;
use viewer::attach::list::list;
use viewer::attach::relay::{RelayOptions, spawn};
use viewer::attach::target::{RelayTarget, Target};
use viewer::attach::{Backlog, SourceEvent, SourceHandle, StreamKey};
use viewer_proto::session::Seek;
use wire::{Bytes, StreamId};

fn target(live: SocketAddr) -> RelayTarget {
    match format!("net://{live}/host/host/watched").parse() {
        Ok(Target::Relay(relay)) => relay,
        other => panic!("{other:?}"),
    }
}

fn follow(live: SocketAddr, push: bool) -> (SourceHandle, Receiver<SourceEvent>) {
    let (sender, events) = mpsc::channel(16);
    let options = RelayOptions {
        seek: Seek::Beginning,
        push,
        ..RelayOptions::default()
    };
    // The watch channel keeps beacons subscribed all the time.
    let (_, is_held_back) = watch::channel(true);
    let handle = spawn(target(live), options, sender, is_held_back).unwrap();
    (handle, events)
}

/// The events of a source as text, such as `packet ust/c_0 7`. Of a packet the first byte is noted;
/// all of its 4096 bytes must be equal.
#[derive(Default)]
struct SourceLog {
    streams: Vec<(StreamKey, String, Backlog)>,
    lines: Vec<String>,
}

impl SourceLog {
    fn read_event(&mut self, events: &mut Receiver<SourceEvent>) {
        let name = |key, of: &[(StreamKey, String, Backlog)]| {
            let found = of.iter().find(|(stream, ..)| *stream == key).unwrap();
            (found.1.clone(), found.2.clone())
        };
        self.lines.push(
            match wait_for("the source has an event", || events.try_recv().ok()) {
                SourceEvent::Trace { name, .. } => format!("trace {name}"),
                SourceEvent::Metadata { bytes, .. } => format!("metadata {}", bytes.len()),
                SourceEvent::Stream {
                    stream,
                    name,
                    backlog,
                    ..
                } => {
                    self.streams.push((stream, name.clone(), backlog));
                    format!("stream {name}")
                }
                SourceEvent::Packet { stream, packet } => {
                    let (name, backlog) = name(stream, &self.streams);
                    backlog.remove_packet();
                    let mut bytes = Vec::new();
                    let read = packet.each_piece(|piece| {
                        bytes.extend_from_slice(piece);
                        Ok::<(), ()>(())
                    });
                    read.unwrap().unwrap();
                    assert!(bytes.len() == 4096 && bytes.iter().all(|byte| *byte == bytes[0]));
                    format!("packet {name} {}", bytes[0])
                }
                SourceEvent::Watermark { stream, until } => {
                    format!("quiet {} {until}", name(stream, &self.streams).0)
                }
                SourceEvent::StreamEnd { stream } => {
                    format!("end {}", name(stream, &self.streams).0)
                }
                SourceEvent::TraceEnd { .. } => "end of a trace".to_owned(),
                SourceEvent::Notice(_) | SourceEvent::CaughtUp | SourceEvent::StreamHold { .. } => {
                    return;
                }
                SourceEvent::Missing(text) | SourceEvent::Failed(text) => panic!("{text}"),
                SourceEvent::Done => "done".to_owned(),
            },
        );
    }

    /// Returns the lines that begin with a word.
    fn of(&self, word: &str) -> Vec<&str> {
        let lines = self.lines.iter().map(String::as_str);
        lines.filter(|line| line.starts_with(word)).collect()
    }

    fn read_until(&mut self, events: &mut Receiver<SourceEvent>, last: &str) {
        while !self.lines.iter().any(|line| line == last) {
            self.read_event(events);
        }
    }
}

fn send_remaining_packets(producer: &mut Producer, streams: &[StreamId]) {
    for number in 2..50 {
        producer.send_packet(streams[0], number, 4096);
    }
    producer.wait_while_pending(streams[0], 49);
}

#[test]
fn every_packet_and_watermark_arrives_once_in_order_until_the_session_ends() {
    for (push, start) in [
        (false, Relay::start as fn(&Lab) -> Relay),
        (true, Relay::start),
        (true, Relay::start_reference),
    ] {
        let lab = Lab::new();
        let relay = start(&lab);
        let mut producer = Producer::open(&relay, live_session("watched"));
        let streams = producer.add_trace("ust/uid/0", &["c_0", "c_1"]);
        producer.send_packet(streams[0], 0, 4096);
        producer.send_packet(streams[0], 1, 4096);
        let (handle, mut events) = follow(relay.live, push);
        let mut log = SourceLog::default();
        log.read_until(&mut events, "packet ust/uid/0/c_0 1");
        send_remaining_packets(&mut producer, &streams);
        log.read_until(&mut events, "packet ust/uid/0/c_0 49");
        // `lttng-relayd` ignores beacons of a stream before its first packet.
        producer.send_packet(streams[1], 0, 4096);
        log.read_until(&mut events, "packet ust/uid/0/c_1 0");
        producer.send_index(streams[1], 1, beacon(700));
        log.read_until(&mut events, "quiet ust/uid/0/c_1 700");
        // A trace that is added later, as of a new process.
        let late = producer.add_trace("ust/pid/1", &["p_0"]);
        producer.send_packet(late[0], 0, 4096);
        log.read_until(&mut events, "packet ust/pid/1/p_0 0");
        producer.disconnect();
        log.read_until(&mut events, "done");
        handle.join();

        let mut packets: Vec<String> = (0..50)
            .map(|number| format!("packet ust/uid/0/c_0 {number}"))
            .collect();
        packets.push("packet ust/uid/0/c_1 0".to_owned());
        packets.push("packet ust/pid/1/p_0 0".to_owned());
        assert_eq!(log.of("packet"), packets);
        assert_eq!(log.of("metadata").len(), 2);
        assert_eq!(log.of("trace host/watched/ust").len(), 2);
        assert_eq!(log.of("end").len(), 5);
    }
}

// Where the relay pushes, several packets are requested at a time.
#[test]
fn tracefile_switches_and_new_metadata_lose_no_packet() {
    const FIRST: u64 = 300;
    const ALL: u64 = 600;
    for (push, packets_in_file) in [(true, 1), (true, 3), (true, 100), (false, 3)] {
        let (_lab, relay) = Relay::start_in_new_lab();
        let mut producer = Producer::open(&relay, live_session("watched"));
        let stream = producer.add_stream(AddStream {
            tracefile_size: Bytes(packets_in_file * 4096),
            tracefile_count: ALL,
            ..stream("c_0", "ust")
        });
        producer.add_trace("ust", &[]);
        (0..FIRST).for_each(|number| producer.send_packet(stream, number, 4096));
        let (handle, mut events) = follow(relay.live, push);
        let mut log = SourceLog::default();
        log.read_until(&mut events, "packet ust/c_0 100");
        let more = b"/* more */";
        producer.send_metadata(producer.metadata[0], more, 0);
        (FIRST..ALL).for_each(|number| producer.send_packet(stream, number, 4096));
        producer.wait_while_pending(stream, ALL - 1);
        producer.disconnect();
        log.read_until(&mut events, "done");
        handle.join();
        let wanted: Vec<_> = (0..ALL)
            .map(|number| format!("packet ust/c_0 {}", number % 251))
            .collect();
        assert_eq!(log.of("packet"), wanted, "{push} {packets_in_file}");
        let metadata = format!("metadata {}", more.len());
        let before = log.lines.iter().take_while(|line| **line != metadata);
        let before = before.filter(|line| line.starts_with("packet")).count();
        assert!(before as u64 <= FIRST, "{before} packets without metadata");
        assert_eq!(log.of("metadata").len(), 2);
    }
}

#[test]
fn beacons_arrive_as_watermarks_in_order() {
    let (_lab, relay) = Relay::start_in_new_lab();
    let mut producer = Producer::open(&relay, live_session("watched"));
    let streams = producer.add_trace("ust", &["c_0"]);
    producer.send_packet(streams[0], 0, 4096);
    let (handle, mut events) = follow(relay.live, true);
    let mut log = SourceLog::default();
    log.read_until(&mut events, "packet ust/c_0 0");
    for until in (100..2000).step_by(100) {
        producer.send_index(streams[0], 1, beacon(until));
        log.read_until(&mut events, &format!("quiet ust/c_0 {until}"));
    }
    handle.stop();
    handle.join();
}

#[test]
fn stopping_the_source_detaches_from_the_session() {
    let (_lab, relay) = Relay::start_in_new_lab();
    let mut producer = Producer::open(&relay, live_session("watched"));
    let streams = producer.add_trace("ust", &["c_0"]);
    producer.send_packet(streams[0], 0, 4096);
    let (handle, mut events) = follow(relay.live, true);
    SourceLog::default().read_until(&mut events, "packet ust/c_0 0");
    let viewers = || list(&target(relay.live), TEST_TIMEOUT).unwrap().sessions[0].client_count;
    assert_eq!(viewers(), 1);
    handle.stop();
    handle.join();
    wait_until("the viewer is detached", || viewers() == 0);
}
