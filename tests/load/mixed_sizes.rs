//! Packets of all sizes on one connection, which arrive in pieces of all sizes. Small ones are
//! copied, the bytes of large ones go through a pipe: what is in the tracefiles does not depend on
//! that.

use std::io::Write;

use tests::lab::Lab;
use tests::producer::{OK, Producer, TRACE_PATH, index, live_session, packet_of};
use tests::relay::Relay;
use tests::socket_queues::unacknowledged;
use tests::tree::first_file;
use tests::wait_until;
use wire::StreamId;

use crate::large_packets::labs;

/// Sizes of packets in bytes: around that of a header, of a page, of the smallest packet that is
/// not copied, and more than is read at once.
const SIZES: [usize; 16] = [
    65_536, 1, 65_535, 65_537, 31, 32, 33, 1_048_576, 4096, 200_000, 70_000, 70_000, 3_000_000, 16,
    1_048_577, 100_000,
];

/// Sizes of the pieces in bytes in which the packets are sent, over and over, whatever packets they
/// cut.
const PIECES: [usize; 7] = [1_500_000, 31, 70_000, 1, 65_536, 33, 400_001];

/// Bytes of zeros after every third packet.
const PADDING: usize = 100;

/// The contents of the packets of two streams, in the order in which they are sent, and the pieces
/// of all of them.
struct Sent {
    /// The stream of each packet, the number of the packet there, and its size in the tracefile.
    packets: Vec<(usize, u64, usize)>,
    tracefiles: [Vec<u8>; 2],
    bytes: Vec<u8>,
}

impl Sent {
    fn new(streams: &[StreamId]) -> Self {
        let mut sent = Self {
            packets: Vec::new(),
            tracefiles: Default::default(),
            bytes: Vec::new(),
        };
        let mut numbers = [0; 2];
        for (position, size) in SIZES.into_iter().cycle().take(3 * SIZES.len()).enumerate() {
            let which = usize::from(position % 5 < 2);
            let payload: Vec<u8> = (0..size).map(|at| (at * 7 + position * 31) as u8).collect();
            let padding = if position % 3 == 0 { PADDING } else { 0 };
            let number = numbers[which];
            numbers[which] += 1;
            let packet = packet_of(streams[which], number, &payload, padding as u32);
            sent.bytes.extend_from_slice(&packet);
            sent.tracefiles[which].extend_from_slice(&payload);
            sent.tracefiles[which].extend_from_slice(&[0; PADDING][..padding]);
            sent.packets.push((which, number, size + padding));
        }
        sent
    }

    /// Sends all packets in pieces. With `apart`, each piece is sent when the one before has been
    /// received.
    fn send(&self, producer: &mut Producer, apart: bool) {
        let mut rest = &self.bytes[..];
        for size in PIECES.into_iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (piece, after) = rest.split_at(size.min(rest.len()));
            producer.data.write_all(piece).unwrap();
            rest = after;
            if apart {
                wait_until("the piece has arrived", || {
                    unacknowledged(&producer.data) == 0
                });
            }
        }
    }
}

fn check(lab: &Lab, apart: bool) {
    let relay = Relay::start(lab);
    let mut producer = Producer::open(&relay, live_session("mixed"));
    let streams = producer.add_trace(TRACE_PATH, &["chan_0", "chan_1"]);
    let sent = Sent::new(&streams);
    sent.send(&mut producer, apart);
    for &(which, number, size) in &sent.packets {
        let reply = producer.send_index(streams[which], number, index(number, size as u64));
        assert_eq!(reply, OK, "{which} {number}");
    }
    for (stream, last) in [0, 1].map(|which| {
        let of_stream = sent.packets.iter().filter(|packet| packet.0 == which);
        (streams[which], of_stream.count() as u64 - 1)
    }) {
        producer.wait_while_pending(stream, last);
    }
    for (name, content) in ["/chan_0", "/chan_1"].into_iter().zip(&sent.tracefiles) {
        let written = first_file(&relay.output, name);
        assert_eq!(written.len(), content.len(), "{name}");
        let differs = written.iter().zip(content).position(|(a, b)| a != b);
        assert_eq!(differs, None, "{name}");
    }
}

#[test]
fn packets_of_all_sizes_in_pieces_of_all_sizes_are_written_as_they_were_sent() {
    for lab in labs() {
        check(&lab, false);
    }
    for lab in labs() {
        check(&lab, true);
    }
}

/// While a producer is alone, the relay tries both ways to write large packets, and changes to the
/// faster one.
#[test]
fn large_packets_of_a_lone_producer_are_written_as_they_were_sent_in_both_ways() {
    const BYTES: usize = 1_000_000;
    // More than five periods of a trial.
    const COUNT: u64 = 100;
    let bytes: Vec<u8> = (0..BYTES + COUNT as usize)
        .map(|at| (at * 7 + at / 256) as u8)
        .collect();
    let payload = |number: u64| &bytes[number as usize..][..BYTES];
    for lab in labs() {
        let relay = Relay::start(&lab);
        let mut producer = Producer::open(&relay, live_session("large"));
        let stream = producer.add_trace(TRACE_PATH, &["chan_0"])[0];
        for number in 0..COUNT {
            let packet = packet_of(stream, number, payload(number), 0);
            producer.data.write_all(&packet).unwrap();
            let reply = producer.send_index(stream, number, index(number, BYTES as u64));
            assert_eq!(reply, OK, "{number}");
        }
        producer.wait_while_pending(stream, COUNT - 1);
        let written = first_file(&relay.output, "/chan_0");
        assert_eq!(written.len(), COUNT as usize * BYTES);
        for (number, packet) in (0..).zip(written.chunks_exact(BYTES)) {
            assert!(packet == payload(number), "{number}");
        }
    }
}
