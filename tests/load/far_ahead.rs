//! Producers that pipeline: their packets arrive far ahead of their indexes, or the other way
//! round, because both connections are read independently.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::time::Duration;

use relay_proto::DataHeader;
use tests::lab::Lab;
use tests::producer::{OK, Producer, index, packet, plain_session, send_index};
use tests::relay::Relay;
use tests::tree::{INDEX_ENTRY, INDEX_HEADER, first_file};
use tests::wait_until;
use wire::{Field, StreamId};

/// More packets than may be ahead.
const PACKETS: u64 = 20_000;

/// How many packets or indexes may be ahead.
const AHEAD: u64 = 4096;

/// Size of a packet in bytes.
const SIZE: usize = 100;

fn send_indexes(producer: &mut Producer, stream: StreamId) {
    let mut commands = Vec::new();
    for number in 0..PACKETS {
        let command = send_index(stream, number, index(number, SIZE as u64));
        producer.encode_command(&command, &mut commands);
    }
    let mut control = producer.control();
    control.write_all(&commands).unwrap();
}

fn send_packets(producer: &mut Producer, stream: StreamId) {
    for number in 0..PACKETS {
        producer.send_data(stream, number, SIZE);
    }
}

fn receive_replies(producer: &mut Producer, count: u64) {
    for number in 0..count {
        assert_eq!(producer.receive_reply(), OK, "{number}");
    }
}

/// Waits until all packets are recorded, ends the session, and checks its files.
fn assert_recorded(relay: &Relay, mut producer: Producer, stream: StreamId) {
    producer.wait_while_pending(stream, PACKETS - 1);
    producer.close_session(stream, Some(PACKETS - 1));
    assert_files(relay, PACKETS);
}

/// Checks that all packets are in the trace in order, each with its entry.
fn assert_files(relay: &Relay, packets: u64) {
    let payload = |number| packet(StreamId(1), number, SIZE).split_off(DataHeader::SIZE);
    let expected: Vec<u8> = (0..packets).flat_map(payload).collect();
    assert!(first_file(&relay.output, "/chan_0") == expected);
    let entries = first_file(&relay.output, "/chan_0.idx").len() - INDEX_HEADER;
    assert_eq!(entries as u64, packets * INDEX_ENTRY as u64);
}

#[test]
fn packets_far_ahead_of_their_indexes_wait_for_them() {
    let lab = Lab::new();
    let relay = Relay::start(&lab);
    let (mut producer, stream) = Producer::open_with_stream(&relay, plain_session("packets"));
    send_packets(&mut producer, stream);
    let limit = AHEAD as usize * SIZE;
    wait_until("packets are read", || {
        first_file(&relay.output, "/chan_0").len() == limit
    });
    send_indexes(&mut producer, stream);
    receive_replies(&mut producer, PACKETS);
    assert_recorded(&relay, producer, stream);
}

#[test]
fn indexes_far_ahead_of_their_packets_wait_for_them() {
    let lab = Lab::new();
    let relay = Relay::start(&lab);
    let (mut producer, stream) = Producer::open_with_stream(&relay, plain_session("indexes"));
    send_indexes(&mut producer, stream);
    receive_replies(&mut producer, AHEAD);
    let control = producer.control();
    let timeout = Some(Duration::from_millis(300));
    control.set_read_timeout(timeout).unwrap();
    let no_more = { control }.read(&mut [0; 4]).unwrap_err();
    assert_eq!(no_more.kind(), ErrorKind::WouldBlock);
    control.set_read_timeout(None).unwrap();
    send_packets(&mut producer, stream);
    receive_replies(&mut producer, PACKETS - AHEAD);
    assert_recorded(&relay, producer, stream);
}

#[test]
fn packets_that_are_read_together_are_recorded_although_their_connection_is_closed_behind_them() {
    // Fewer than may be ahead.
    const TOGETHER: u64 = 2000;
    let lab = Lab::new();
    let relay = Relay::start(&lab);
    let (mut producer, stream) = Producer::open_with_stream(&relay, plain_session("together"));
    let packets: Vec<u8> = (0..TOGETHER)
        .flat_map(|number| packet(stream, number, SIZE))
        .collect();
    producer.data.write_all(&packets).unwrap();
    producer.data.shutdown(Shutdown::Write).unwrap();
    // Each waits for its reply: commands are handled between two packets.
    for number in 0..TOGETHER {
        let reply = producer.send_index(stream, number, index(number, SIZE as u64));
        assert_eq!(reply, OK, "{number}");
    }
    producer.wait_while_pending(stream, TOGETHER - 1);
    assert_eq!(producer.close_stream(stream, Some(TOGETHER - 1)), OK);
    assert_files(&relay, TOGETHER);
}
