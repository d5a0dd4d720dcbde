//! Tracefiles that were replaced by a later one of the same stream (`--tracefile-count`).

use relay_proto::Command;
use relay_proto::stream::{AddStream, QuiescentControl};
use tests::producer::{Producer, index, live_session, stream};
use tests::relay::Relay;
use tests::tree::{INDEX_ENTRY, INDEX_HEADER, files};
use tests::viewer::{Viewer, by_channel};
use tests::wait_until;
use viewer_proto::index::IndexStatus;
use viewer_proto::packet::PacketStatus;
use viewer_proto::session::Seek;
use wire::{Bytes, StreamId};

const PACKET: usize = 1000;

/// Begins a session with a stream of `count` tracefiles with one packet each.
fn open_ring(relay: &Relay, count: u64) -> (Producer, StreamId) {
    let mut producer = Producer::open(relay, live_session("ring"));
    let path = "ust/uid/0/64-bit";
    let ring = producer.add_stream(AddStream {
        tracefile_size: Bytes(PACKET as u64),
        tracefile_count: count,
        ..stream("chan_0", path)
    });
    let metadata = producer.add_stream(stream("metadata", path));
    producer.request(Command::StreamsSent);
    producer.send_metadata(metadata, b"/* CTF 1.8 */\n", 0);
    // SEND_METADATA has no reply: that of the next command says that it was processed.
    producer.request(Command::QuiescentControl(QuiescentControl {
        stream: metadata,
    }));
    (producer, ring)
}

/// Returns the numbers of the packets that a viewer gets from now on.
fn shown_packets(viewer: &mut Viewer, seen: StreamId) -> Vec<u64> {
    let mut shown = Vec::new();
    loop {
        let next = viewer.next_index(seen);
        if next.status != IndexStatus::Ready {
            return shown;
        }
        let number = next.packet.begin.0 / 10;
        let len = u32::try_from(PACKET).unwrap();
        let (head, bytes) = viewer.packet(seen, next.offset.0, len);
        assert_eq!(head.status, PacketStatus::Ok, "packet {number}");
        let fill = u8::try_from(number).unwrap();
        assert!(
            bytes.iter().all(|byte| *byte == fill),
            "packet {number} has the bytes of {}",
            bytes[0]
        );
        shown.push(number);
    }
}

/// Sends `packets` packets of a stream of `count` tracefiles with one packet each, and only then
/// their indexes. Returns the numbers of the packets that a viewer gets.
fn packets_with_late_indexes(count: u64, packets: u64) -> Vec<u64> {
    let (_lab, relay) = Relay::start_in_new_lab();
    let (mut producer, ring) = open_ring(&relay, count);
    for number in 0..packets {
        producer.send_data(ring, number, PACKET);
    }
    let last = [u8::try_from(packets - 1).unwrap(); PACKET];
    wait_until("the last packet is in its tracefile", || {
        let files = files(&relay.output, "");
        files.into_values().any(|data| data == last)
    });
    let (mut viewer, _, streams) = Viewer::attached(relay.live, "ring", Seek::Beginning);
    let seen = by_channel(&streams)["chan_0"];
    for number in 0..packets {
        producer.send_index(ring, number, index(number, PACKET as u64));
    }
    producer.wait_while_pending(ring, packets - 1);
    let shown = shown_packets(&mut viewer, seen);
    // Recording continues.
    producer.record_packet(ring, packets, PACKET);
    drop(producer);
    let output = relay.output.clone();
    assert!(relay.stop().status.success());
    let indexes = files(&output, ".idx");
    assert!(
        indexes
            .values()
            .all(|index| index.len() == INDEX_HEADER + INDEX_ENTRY),
        "{indexes:?}"
    );
    shown
}

#[test]
fn an_index_that_comes_after_its_tracefile_was_replaced_delivers_no_other_packet() {
    assert_eq!(packets_with_late_indexes(1, 3), [2]);
    assert_eq!(packets_with_late_indexes(2, 5), [3, 4]);
    assert_eq!(packets_with_late_indexes(3, 3), [0, 1, 2]);
}

#[test]
fn a_viewer_is_shown_no_packet_of_a_tracefile_that_was_replaced() {
    for (count, packets, shown) in [
        (1, 3, vec![2]),
        (3, 5, vec![2, 3, 4]),
        (3, 8, vec![5, 6, 7]),
    ] {
        let (_lab, relay) = Relay::start_in_new_lab();
        let (mut producer, ring) = open_ring(&relay, count);
        for number in 0..packets {
            producer.record_packet(ring, number, PACKET);
        }
        let (mut viewer, _, streams) = Viewer::attached(relay.live, "ring", Seek::Beginning);
        let seen = by_channel(&streams)["chan_0"];
        assert_eq!(shown_packets(&mut viewer, seen), shown, "{count} {packets}");
    }
}
