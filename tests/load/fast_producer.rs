//! Producers that send as fast as they can. Their packets may be in a socket for a while after
//! their indexes were answered, and none of them may be lost.

use std::io::Write;
use std::path::Path;
use std::sync::mpsc;
use std::thread;

use tests::producer::{OK, Producer, TRACE_PATH, index, live_session, packet_of, send_index};
use tests::relay::Relay;
use tests::tree::files;
use tests::viewer::Viewer;
use tests::wait_for;
use viewer_proto::index::IndexStatus;
use viewer_proto::session::Seek;
use wire::StreamId;

/// Size of a packet in bytes.
const SIZE: usize = 4096;
const CHANNELS: [&str; 3] = ["chan_0", "chan_1", "chan_2"];
/// Number of packets after which a producer counts as fast.
const WARM_UP: u64 = 500;
/// More packets than the relay leaves in a socket.
const MORE: u64 = 18;

/// Returns the stream of a packet, the number of the packet in this stream, and the value of its
/// bytes.
fn place(packet: u64) -> (usize, u64, u8) {
    let streams = CHANNELS.len() as u64;
    let (stream, number) = (packet % streams, packet / streams);
    let fill = u8::try_from(number % 251).unwrap();
    (usize::try_from(stream).unwrap(), number, fill)
}

/// Opens a session with a stream for each channel.
fn open(relay: &Relay, session: &str) -> (Producer, Vec<StreamId>) {
    let mut producer = Producer::open(relay, live_session(session));
    let streams = producer.add_trace(TRACE_PATH, &CHANNELS);
    (producer, streams)
}

/// Sends packets of all streams in turn, and waits for each reply.
fn send(producer: &mut Producer, streams: &[StreamId], packets: u64) {
    for packet in 0..packets {
        let (stream, number, _) = place(packet);
        producer.send_packet(streams[stream], number, SIZE);
    }
}

/// Sends packets until the relay closes a connection, with up to `in_flight` indexes that are not
/// answered. Returns how many were. `begun` is told after [`WARM_UP`] packets.
fn send_until_closed(
    producer: &mut Producer,
    streams: &[StreamId],
    in_flight: u64,
    begun: &mpsc::Sender<()>,
) -> u64 {
    let mut answered = 0;
    for packet in 0.. {
        if packet == WARM_UP {
            begun.send(()).unwrap();
        }
        let (stream, number, fill) = place(packet);
        let bytes = packet_of(streams[stream], number, &[fill; SIZE], 0);
        let mut index_command = Vec::new();
        let command = send_index(streams[stream], number, index(number, SIZE as u64));
        producer.encode_command(&command, &mut index_command);
        let is_open = producer.data.write_all(&bytes).is_ok()
            && producer.control().write_all(&index_command).is_ok();
        while !is_open || packet + 1 - answered >= in_flight {
            match producer.try_receive_reply() {
                Some(reply) => assert_eq!(reply, OK),
                None => return answered,
            }
            answered += 1;
        }
    }
    unreachable!("the relay is stopped");
}

/// Returns the contents of the session's tracefiles, in the order of [`CHANNELS`].
fn tracefiles(output: &Path, session: &str) -> [Vec<u8>; CHANNELS.len()] {
    CHANNELS.map(|channel| {
        let written = files(output, &format!("/{channel}"));
        let mut written = written.into_iter();
        let of_session = written.find(|(path, _)| path.contains(session));
        of_session.map(|(_, bytes)| bytes).unwrap_or_default()
    })
}

/// Returns what they have to contain.
fn sent(packets: u64) -> [Vec<u8>; CHANNELS.len()] {
    let mut sent = CHANNELS.map(|_| Vec::new());
    for packet in 0..packets {
        let (stream, _, fill) = place(packet);
        sent[stream].extend_from_slice(&[fill; SIZE]);
    }
    sent
}

#[test]
fn packets_of_a_fast_producer_are_recorded_and_viewed_whole_and_in_order() {
    const PACKETS: u64 = 5000;
    let (_lab, relay) = Relay::start_in_new_lab();
    let (mut producer, streams) = open(&relay, "fast");
    let (mut viewer, ..) = Viewer::attached(relay.live, "fast", Seek::Beginning);
    thread::scope(|scope| {
        scope.spawn(|| {
            for packet in 0..PACKETS {
                let (stream, number, fill) = place(packet);
                let index = viewer.wait_for_index(streams[stream]);
                assert_eq!(index.status, IndexStatus::Ready);
                assert_eq!(index.offset.0, number * SIZE as u64);
                let length = u32::try_from(SIZE).unwrap();
                let (_, viewed) = viewer.packet(streams[stream], index.offset.0, length);
                assert!(viewed == [fill; SIZE], "packet {packet}");
            }
        });
        send(&mut producer, &streams, PACKETS);
    });
    producer.disconnect();
    assert!(tracefiles(&relay.output, "fast") == sent(PACKETS));
}

#[test]
fn packets_whose_indexes_were_answered_are_recorded_although_their_producer_ends() {
    let (_lab, relay) = Relay::start_in_new_lab();
    for packets in WARM_UP..WARM_UP + MORE {
        let session = format!("ended-after-{packets}");
        let (mut producer, streams) = open(&relay, &session);
        send(&mut producer, &streams, packets);
        // Without closing its streams or waiting.
        drop(producer);
        wait_for("the packets are recorded", || {
            (tracefiles(&relay.output, &session) == sent(packets)).then_some(())
        });
    }
}

#[test]
fn packets_whose_indexes_were_answered_are_recorded_although_the_relay_is_stopped() {
    // Small packets of several producers are coalesced.
    let cases = [(1, 1), (4, 1), (1, 1), (4, 1), (1, 1), (1, 64), (4, 64)];
    for (producers, in_flight) in cases {
        let (_lab, relay) = Relay::start_in_new_lab();
        let output = relay.output.clone();
        let (begin, begun) = mpsc::channel();
        let sending: Vec<_> = (0..producers)
            .map(|number| {
                let session = format!("stopped-{number}-");
                let (mut producer, streams) = open(&relay, &session);
                let begin = begin.clone();
                let send = move || send_until_closed(&mut producer, &streams, in_flight, &begin);
                (session, thread::spawn(send))
            })
            .collect();
        begun.iter().take(producers).for_each(drop);
        assert!(relay.stop().status.success());
        for (session, sending) in sending {
            let answered = sending.join().unwrap();
            let recorded = tracefiles(&output, &session);
            let packets = (recorded.iter().map(Vec::len).sum::<usize>() / SIZE) as u64;
            let of = format!("{session} of {producers}, {in_flight} in flight");
            // The last replies may have been lost.
            let expected = answered..=answered + in_flight;
            assert!(expected.contains(&packets), "{of}: {answered}, {packets}");
            assert!(recorded == sent(packets), "{of}");
        }
    }
}
