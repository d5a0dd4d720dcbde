//! Packets that contradict their headers or indexes, and packets out of sequence.

use std::io::Write;
use std::net::Shutdown;

use relay_proto::Reply;
use relay_proto::reply::ReturnCode;
use tests::lab::Lab;
use tests::producer::{Producer, connect, index, is_closed, packet, stream};
use tests::relay::Relay;
use tests::status_endpoint::StatusEndpoint;
use tests::wait_until;
use wire::StreamId;

use super::{OK, recorded_files, session, start_relay_with_probe};

const UNKNOWN: Reply = Reply::Ended(ReturnCode::UNKNOWN);

fn with_stream(relay: &Relay, name: &str) -> (Producer, StreamId) {
    Producer::open_with_stream(relay, session(name))
}

#[test]
fn a_duplicate_index_is_refused_with_or_without_its_packet() {
    let (_lab, relay, mut probe) = start_relay_with_probe();
    for is_there in [false, true] {
        let (mut producer, stream) = with_stream(&relay, "twice");
        assert_eq!(producer.send_index(stream, 0, index(0, 10)), OK);
        if is_there {
            producer.send_data(stream, 0, 10);
            producer.wait_while_pending(stream, 0);
        }
        assert_eq!(producer.send_index(stream, 0, index(0, 10)), UNKNOWN);
        assert!(producer.is_disconnected());
    }
    probe.assert_served();
}

#[test]
fn a_duplicate_packet_closes_its_connection_and_is_stored_once() {
    let (_lab, relay, mut probe) = start_relay_with_probe();
    for (name, with_index) in [("pending", false), ("done", true)] {
        let (mut producer, stream) = with_stream(&relay, name);
        producer.send_data(stream, 0, 10);
        if with_index {
            assert_eq!(producer.send_index(stream, 0, index(0, 10)), OK);
            producer.wait_while_pending(stream, 0);
        }
        producer.send_data(stream, 0, 10);
        assert!(is_closed(&mut producer.data), "{name}");
        assert_eq!(recorded_files(&relay, name, "chan_0"), [[0; 10]]);
    }
    probe.assert_served();
}

#[test]
fn a_packet_and_an_index_of_different_sizes_are_refused() {
    let (_lab, relay, mut probe) = start_relay_with_probe();
    let (mut producer, stream) = with_stream(&relay, "index first");
    assert_eq!(producer.send_index(stream, 0, index(0, 11)), OK);
    producer.send_data(stream, 0, 10);
    assert!(is_closed(&mut producer.data));
    let (mut producer, stream) = with_stream(&relay, "packet first");
    producer.send_packet(stream, 0, 10);
    producer.send_data(stream, 1, 10);
    wait_until("the packet is written", || {
        recorded_files(&relay, "packet first", "chan_0")[0].len() == 20
    });
    assert_eq!(
        producer.send_index(stream, 1, index(1, u64::MAX >> 3)),
        UNKNOWN
    );
    probe.assert_served();
}

#[test]
fn packets_far_ahead_in_sequence_take_bounded_memory() {
    const BYTES: usize = 1 << 20;
    let (_lab, relay, mut probe) = start_relay_with_probe();
    let before = relay.memory();
    let (mut producer, stream) = with_stream(&relay, "ahead");
    producer.send_data(stream, 0, 10);
    // Every other packet is missing.
    for number in 1..200 {
        producer.send_data(stream, number * 2, BYTES);
    }
    // Packets that leave the reorder window are written without the missing ones before them.
    wait_until("most packets are written", || {
        recorded_files(&relay, "ahead", "chan_0")[0].len() > 100 * BYTES
    });
    let max_growth = 64 << 20;
    relay.assert_memory_below(before + max_growth);
    probe.assert_served();
}

/// The option for the reorder memory of all sessions, and the quarter of it that one session may
/// use, in bytes.
const REORDER_MEMORY: &str = "--reorder-memory=64M";
const SESSION_MEMORY: u64 = 16 << 20;

/// What the allocator and everything else may add to the relay's memory, in bytes.
const OTHER_MEMORY: u64 = 24 << 20;

/// Returns a session with sixty streams, each of which has sent its first packet.
fn sixty_streams(relay: &Relay) -> (Producer, Vec<StreamId>) {
    let mut producer = Producer::open(relay, session("early"));
    let streams: Vec<_> = (0..60)
        .map(|number| producer.add_stream(stream(&format!("chan_{number}"), "ust/uid/0/64-bit")))
        .collect();
    for stream in &streams {
        producer.send_data(*stream, 0, 10);
    }
    (producer, streams)
}

#[test]
fn early_packets_of_many_streams_stay_within_the_reorder_memory_of_their_session() {
    const BYTES: usize = 128 << 10;
    let lab = Lab::new();
    let (relay, status) = StatusEndpoint::start_relay(&lab, &[REORDER_MEMORY]);
    let (mut producer, streams) = sixty_streams(&relay);
    let before = relay.memory();
    // Of each stream packets 1, 5 and 9 are missing. In all, the rest is four times the session's
    // reorder memory.
    for number in [2, 3, 4, 6, 7, 8, 10, 11] {
        for stream in &streams {
            let sent = packet(*stream, number, BYTES);
            producer.data.write_all(&sent).unwrap();
        }
        assert!(status.metric("relayd_reorder_memory_bytes") <= SESSION_MEMORY);
    }
    let sent = (8 * BYTES + 10) as u64 * 60;
    wait_until("all packets are received", || {
        let of = |name| status.metric(name);
        of("relayd_bytes_total") + of("relayd_reorder_buffered_bytes") == sent
    });
    assert!(status.metric("relayd_reorder_memory_bytes") <= SESSION_MEMORY);
    let memory = relay.memory();
    assert!(
        memory < before + SESSION_MEMORY + OTHER_MEMORY,
        "{memory} of {before}"
    );
    relay.wait_for_log(&["reorder memory exhausted"]);
    // The missing packets never arrive, and all others are recorded.
    producer.disconnect();
    for number in 0..60 {
        let file = recorded_files(&relay, "early", &format!("chan_{number}")).concat();
        assert_eq!(file.len(), 10 + 8 * BYTES);
        let has_all = [2, 3, 4, 6, 7, 8, 10, 11].iter().enumerate();
        for (place, number) in has_all {
            let packet = &file[10 + place * BYTES..][..BYTES];
            assert!(packet.iter().all(|byte| byte == number));
        }
    }
    assert_eq!(status.metric("relayd_reorder_memory_bytes"), 0);
}

#[test]
fn early_packets_received_in_part_count_towards_the_reorder_memory_of_their_session() {
    const BYTES: usize = 1 << 20;
    let lab = Lab::new();
    let (relay, status) = StatusEndpoint::start_relay(&lab, &[REORDER_MEMORY]);
    let (producer, streams) = sixty_streams(&relay);
    status.wait_for_metric("relayd_packets_total", 60);
    let before = relay.memory();
    // All but the last byte of each packet, each on a connection of its own.
    let connections: Vec<_> = streams
        .iter()
        .map(|stream| {
            let mut data = connect(relay.data);
            let sent = packet(*stream, 2, BYTES);
            data.write_all(&sent[..sent.len() - 1]).unwrap();
            assert!(status.metric("relayd_reorder_memory_bytes") <= SESSION_MEMORY);
            data
        })
        .collect();
    // Packets for which there is no memory are written as they arrive.
    wait_until("missing packets have been given up", || {
        status.metric("relayd_packets_lost_total") >= 20
    });
    let memory = relay.memory();
    assert!(
        memory < before + SESSION_MEMORY + OTHER_MEMORY,
        "{memory} of {before}"
    );
    for mut data in connections {
        data.write_all(&[2]).unwrap();
        data.shutdown(Shutdown::Write).unwrap();
        assert!(is_closed(&mut data));
    }
    producer.disconnect();
    for number in 0..60 {
        let file = recorded_files(&relay, "early", &format!("chan_{number}")).concat();
        assert_eq!(file.len(), 10 + BYTES);
        assert!(file[10..].iter().all(|byte| *byte == 2));
    }
    assert_eq!(status.metric("relayd_reorder_memory_bytes"), 0);
}

#[test]
fn the_highest_sequence_numbers_close_only_their_own_connection() {
    let (_lab, relay, mut probe) = start_relay_with_probe();
    for number in [u64::MAX, u64::MAX - 1] {
        let (mut producer, stream) = with_stream(&relay, "last");
        producer.send_data(stream, number, 10);
        producer.send_data(stream, 0, 10);
        assert!(is_closed(&mut producer.data), "{number}");
        probe.assert_served();
    }
}

#[test]
fn a_packet_for_an_unknown_stream_takes_no_memory_whatever_its_length() {
    let (_lab, relay, mut probe) = start_relay_with_probe();
    let before = relay.memory();
    // Stream ids far from the existing ones.
    for number in 1000..1050 {
        let mut data = connect(relay.data);
        // The relay may close the connection before all is sent.
        let _ = data.write_all(&packet(StreamId(number), 0, 1 << 20));
        assert!(is_closed(&mut data));
    }
    assert!(relay.memory() < before + (8 << 20));
    probe.assert_served();
}
