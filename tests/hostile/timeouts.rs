//! Peers that send half a message, or a byte at a time, and peers that read no replies.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use relay_proto::DataHeader;
use tests::TEST_TIMEOUT;
use tests::lab::Lab;
use tests::probe_session::ProbeSession;
use tests::producer::{
    Producer, connect, control_header, index, is_closed, live_session, packet, send_index,
};
use tests::relay::Relay;
use tests::viewer::Viewer;
use tests::wait_until;
use viewer_proto::Command;
use viewer_proto::packet::GetPacket;
use viewer_proto::session::Seek;
use wire::{Bytes, Field};

use super::{command_bytes, recorded_files, session, start_relay_with_probe};

/// Returns a relay with a socket timeout of 1.5 s instead of the default, and a probe session.
fn start_relay_with_short_timeout() -> (Lab, Relay, ProbeSession) {
    let lab = Lab::new();
    let relay = Relay::start_with_env(&lab, "LTTNG_NETWORK_SOCKET_TIMEOUT", "1500");
    let probe = ProbeSession::of(&relay);
    (lab, relay, probe)
}

/// Sends bytes in a cycle, one every 200 ms, until the relay closes the connection.
fn send_slowly(socket: &mut TcpStream, bytes: &[u8]) {
    let deadline = Instant::now() + TEST_TIMEOUT;
    socket
        .set_read_timeout(Some(Duration::from_millis(200)))
        .unwrap();
    for byte in bytes.iter().cycle() {
        assert!(
            Instant::now() < deadline,
            "the relay does not close the connection"
        );
        if socket.write_all(&[*byte]).is_err() {
            return;
        }
        match socket.read(&mut [0; 64]) {
            Ok(0) => return,
            Err(error) if !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return;
            }
            _ => {}
        }
    }
}

#[test]
fn half_a_header_times_out_on_every_port() {
    let (_lab, relay, mut probe) = start_relay_with_short_timeout();
    let producer = Producer::open(&relay, session("half"));
    let viewer = Viewer::connect(relay.live);
    let mut sockets = [producer.control(), viewer.socket(), &producer.data]
        .map(|socket| socket.try_clone().unwrap());
    for socket in &mut sockets {
        socket.write_all(&[0; 9]).unwrap();
    }
    for socket in &mut sockets {
        assert!(is_closed(socket));
    }
    probe.assert_served();
}

#[test]
fn a_first_command_sent_byte_by_byte_times_out() {
    let (_lab, relay, mut probe) = start_relay_with_probe();
    std::thread::scope(|scope| {
        for port in [relay.control, relay.live] {
            // Zeros, which could still become a valid header.
            scope.spawn(move || send_slowly(&mut connect(port), &[0]));
        }
        probe.assert_served();
    });
    probe.assert_served();
}

#[test]
fn a_command_sent_byte_by_byte_times_out() {
    let (_lab, relay, mut probe) = start_relay_with_short_timeout();
    let producer = Producer::open(&relay, session("slow"));
    let viewer = Viewer::connect(relay.live);
    let mut control = producer.control().try_clone().unwrap();
    let mut live = viewer.socket().try_clone().unwrap();
    // ADD_STREAM with a payload that never ends in time.
    let header = control_header(1, 4000);
    control.write_all(&header).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| send_slowly(&mut control, b"x"));
        scope.spawn(|| send_slowly(&mut live, &[0]));
    });
    relay.wait_for_log(&["control connection closed", "read timeout"]);
    probe.assert_served();
}

#[test]
fn half_a_packet_that_times_out_is_removed_from_the_stream() {
    let (_lab, relay, mut probe) = start_relay_with_short_timeout();
    let (mut producer, stream) = Producer::open_with_stream(&relay, session("packet"));
    producer.record_packet(stream, 0, 100);
    let mut half = connect(relay.data);
    half.write_all(&packet(stream, 1, 100)[..DataHeader::SIZE + 50])
        .unwrap();
    assert!(is_closed(&mut half));
    let len = || recorded_files(&relay, "packet", "chan_0")[0].len();
    wait_until("half a packet is removed", || len() == 100);
    // The packet can be sent again.
    producer.record_packet(stream, 1, 100);
    probe.assert_served();
}

#[test]
fn peers_that_do_not_read_replies_are_disconnected() {
    let (_lab, relay, mut probe) = start_relay_with_short_timeout();
    let mut producer = Producer::open(&relay, live_session("unread"));
    let stream = producer.add_trace("ust/pid/one", &["chan_0"])[0];
    producer.send_packet(stream, 0, 4 << 20);
    let (mut viewer, _, _) = Viewer::attached(relay.live, "unread", Seek::Beginning);
    wait_until("the packet is published", || {
        viewer.next_index(stream).offset == Bytes(0) && viewer.packet(stream, 0, 1).0.len == 1
    });
    let mut requests = Vec::new();
    let get = GetPacket {
        stream,
        offset: Bytes(0),
        len: 4 << 20,
    };
    (0..20).for_each(|_| Command::GetPacket(get).encode(&mut requests));
    viewer.socket().write_all(&requests).unwrap();
    // The test reads nothing until the relay has given the viewer up.
    Viewer::connect(relay.live).wait_for_listed("unread", |listed| listed.viewers == 0);
    // Commands with short replies, until the buffers of both directions are full.
    let mut control = producer.control().try_clone().unwrap();
    control.set_nonblocking(true).unwrap();
    let commands = command_bytes(3, &[]).repeat(40_000);
    let mut at = 0;
    wait_until("the producer is disconnected", || {
        if let Ok(sent) = control.write(&commands[at..]) {
            at = (at + sent) % commands.len();
        }
        relay.has_logged(&["control connection closed", "replies not read"])
    });
    probe.assert_served();
}

#[test]
fn packets_without_indexes_and_indexes_without_packets_time_out() {
    let (_lab, relay, mut probe) = start_relay_with_short_timeout();
    // One more than may be ahead, so that the connection is not read any more.
    let count = 4097;
    let (mut producer, stream) = Producer::open_with_stream(&relay, session("packets"));
    (0..count).for_each(|number| producer.send_data(stream, number, 10));
    assert!(is_closed(&mut producer.data));
    relay.wait_for_log(&["data connection closed", "indexes timeout: 4096 packets"]);
    let (mut producer, stream) = Producer::open_with_stream(&relay, session("indexes"));
    let mut commands = Vec::new();
    for number in 0..count {
        let command = send_index(stream, number, index(number, 10));
        producer.encode_command(&command, &mut commands);
    }
    producer.control().write_all(&commands).unwrap();
    relay.wait_for_log(&["control connection closed", "packets timeout: 4096 indexes"]);
    probe.assert_served();
}
