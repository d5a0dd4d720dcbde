//! One producer that waits for the reply to each index and then sends the next packet at once, as LTTng's do under load.
//! Where that is faster, the relay leaves packets in the socket after their indexes were answered, and reads several
//! together (`relayd/src/net/deferral.rs`): none of them may be lost.

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
/// Number of packets after which the relay tries to defer reads: the periods of `relayd/src/net/speed_trial.rs` have 320
/// indexes, and the second is a trial.
const IN_TRIAL: u64 = 500;
/// More packets than the relay leaves in a socket.
const MORE: u64 = 18;

/// The stream of a packet, the number of the packet in this stream, and the value of its bytes.
fn place(packet: u64) -> (usize, u64, u8) {
    let streams = CHANNELS.len() as u64;
    let (stream, number) = (packet % streams, packet / streams);
    let fill = u8::try_from(number % 251).unwrap();
    (usize::try_from(stream).unwrap(), number, fill)
}

/// Opens a session and sends packets, of all streams in turn.
fn record(relay: &Relay, session: &str, packets: u64) -> Producer {
    let mut producer = Producer::open(relay, live_session(session));
    let streams = producer.add_trace(TRACE_PATH, &CHANNELS);
    send(&mut producer, &streams, packets);
    producer
}

fn send(producer: &mut Producer, streams: &[StreamId], packets: u64) {
    for packet in 0..packets {
        let (stream, number, _) = place(packet);
        producer.send_packet(streams[stream], number, SIZE);
    }
}

/// Sends one packet. Returns false if the relay has closed a connection before it answered the index.
fn try_send(producer: &mut Producer, streams: &[StreamId], packet: u64) -> bool {
    let (stream, number, fill) = place(packet);
    let bytes = packet_of(streams[stream], number, &[fill; SIZE], 0);
    let index = send_index(streams[stream], number, index(number, SIZE as u64));
    producer.data.write_all(&bytes).is_ok() && producer.try_request(index) == Some(OK)
}

/// Whether the tracefiles of the session contain the packets.
fn is_recorded(output: &Path, session: &str, packets: u64) -> bool {
    let mut sent = CHANNELS.map(|_| Vec::new());
    for packet in 0..packets {
        let (stream, _, fill) = place(packet);
        sent[stream].extend_from_slice(&[fill; SIZE]);
    }
    CHANNELS.iter().zip(sent).all(|(channel, sent)| {
        let written = files(output, &format!("/{channel}"));
        let mut of_session = written.iter().filter(|(path, _)| path.contains(session));
        of_session
            .next()
            .is_some_and(|(_, written)| *written == sent)
    })
}

#[test]
fn packets_of_a_fast_producer_are_recorded_and_viewed_whole_and_in_order() {
    /// Several trials in both ways.
    const PACKETS: u64 = 5000;
    let (_lab, relay) = Relay::start_in_new_lab();
    let mut producer = Producer::open(&relay, live_session("fast"));
    let streams = producer.add_trace(TRACE_PATH, &CHANNELS);
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
    assert!(is_recorded(&relay.output, "fast", PACKETS));
}

#[test]
fn packets_whose_indexes_were_answered_are_recorded_although_their_producer_ends() {
    let (_lab, relay) = Relay::start_in_new_lab();
    for packets in IN_TRIAL..IN_TRIAL + MORE {
        let session = format!("ended-after-{packets}");
        // Without closing its streams or waiting.
        drop(record(&relay, &session, packets));
        wait_for("the packets are recorded", || {
            is_recorded(&relay.output, &session, packets).then_some(())
        });
    }
}

#[test]
fn packets_whose_indexes_were_answered_are_recorded_although_the_relay_is_stopped() {
    for _ in 0..8 {
        let (_lab, relay) = Relay::start_in_new_lab();
        let output = relay.output.clone();
        let mut producer = Producer::open(&relay, live_session("stopped"));
        let streams = producer.add_trace(TRACE_PATH, &CHANNELS);
        let (begin, begun) = mpsc::channel();
        let sending = thread::spawn(move || {
            for packet in 0.. {
                if packet == IN_TRIAL {
                    begin.send(()).unwrap();
                }
                if !try_send(&mut producer, &streams, packet) {
                    return packet;
                }
            }
            unreachable!("the relay is stopped");
        });
        begun.recv().unwrap();
        assert!(relay.stop().status.success());
        let answered = sending.join().unwrap();
        // The reply to the last index may have been lost.
        assert!(
            is_recorded(&output, "stopped", answered)
                || is_recorded(&output, "stopped", answered + 1),
            "{answered}"
        );
    }
}
