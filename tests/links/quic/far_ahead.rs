//! Producers whose packets arrive far ahead of their indexes over QUIC, or the other way round: the
//! relay waits, and loses none.

use std::time::Duration;

use quinn::Connection;
use relay_proto::DataHeader;
use tests::Lab;
use tests::producer::{OK, index, packet, send_index};
use tests::tree::{INDEX_ENTRY, INDEX_HEADER, first_file};
use tokio::runtime::Runtime;
use wire::{Field, StreamId};

use super::QuicRelay;
use super::peer::Peer;

/// More packets than may be ahead.
const PACKETS: u64 = 10_000;

/// How many packets or indexes may be ahead.
const AHEAD: u64 = 4096;

/// Size of a packet in bytes.
const SIZE: usize = 100;

/// Time in which nothing more may happen.
const QUIET: Duration = Duration::from_millis(300);

async fn send_packets(connection: Connection, stream: StreamId) {
    for number in 0..PACKETS {
        let mut to = connection.open_uni().await.unwrap();
        to.write_all(&packet(stream, number, SIZE)).await.unwrap();
        to.finish().unwrap();
    }
}

/// Sends the indexes of all packets, and receives the first `replies` replies.
async fn send_indexes(peer: &mut Peer, stream: StreamId, replies: u64) {
    let mut commands = Vec::new();
    for number in 0..PACKETS {
        let command = send_index(stream, number, index(number, SIZE as u64));
        peer.state_machine.send(&command, &mut commands).unwrap();
    }
    let (send, _) = &mut peer.control;
    send.write_all(&commands).await.unwrap();
    receive_replies(peer, replies).await;
}

async fn receive_replies(peer: &mut Peer, count: u64) {
    let (_, receive) = &mut peer.control;
    for number in 0..count {
        let mut reply = [0; 4];
        receive.read_exact(&mut reply).await.unwrap();
        let (_, reply) = peer
            .state_machine
            .receive(&mut &reply[..])
            .unwrap()
            .unwrap();
        assert_eq!(reply, OK, "{number}");
    }
}

fn data(relay: &QuicRelay) -> Vec<u8> {
    first_file(&relay.relay.output, "/chan_0")
}

/// Checks that all packets come into the trace in order, each with its entry.
fn assert_recorded(relay: &QuicRelay, stream: StreamId) {
    let payload = |number| packet(stream, number, SIZE).split_off(DataHeader::SIZE);
    let expected: Vec<u8> = (0..PACKETS).flat_map(payload).collect();
    tests::wait_until("all packets are written", || {
        data(relay).len() >= expected.len()
    });
    assert!(data(relay) == expected);
    // The stream is open: the beacon after the last entry is shorter than one.
    let entries =
        || (first_file(&relay.relay.output, "/chan_0.idx").len() - INDEX_HEADER) / INDEX_ENTRY;
    tests::wait_until("all entries are written", || entries() as u64 == PACKETS);
}

#[test]
fn packets_far_ahead_of_their_indexes_wait_for_them_over_quic() {
    let lab = Lab::new();
    let relay = QuicRelay::start(&lab);
    let runtime = Runtime::new().unwrap();
    runtime.block_on(async {
        let mut peer = Peer::connect(&relay).await;
        let stream = peer.open_session("packets").await;
        let packets = tokio::spawn(send_packets(peer.connection.clone(), stream));
        let limit = AHEAD as usize * SIZE;
        tests::wait_until("packets are read", || data(&relay).len() >= limit);
        tokio::time::sleep(QUIET).await;
        // Packets that arrive out of order are written together.
        assert!(data(&relay).len() < limit + 100 * SIZE);
        send_indexes(&mut peer, stream, PACKETS).await;
        packets.await.unwrap();
        assert_recorded(&relay, stream);
    });
}

#[test]
fn indexes_far_ahead_of_their_packets_wait_for_them_over_quic() {
    let lab = Lab::new();
    let relay = QuicRelay::start(&lab);
    let runtime = Runtime::new().unwrap();
    runtime.block_on(async {
        let mut peer = Peer::connect(&relay).await;
        let stream = peer.open_session("indexes").await;
        send_indexes(&mut peer, stream, AHEAD).await;
        let more = tokio::time::timeout(QUIET, peer.control.1.read(&mut [0; 4])).await;
        assert!(more.is_err(), "{more:?}");
        send_packets(peer.connection.clone(), stream).await;
        receive_replies(&mut peer, PACKETS - AHEAD).await;
        assert_recorded(&relay, stream);
    });
}
