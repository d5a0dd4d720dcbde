//! Peers that begin something and let it lie, a byte at a time, and peers that take nothing.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use relay_proto::{ControlHeader, DataHeader};
use tests::TEST_TIMEOUT;
use tests::bystander::Bystander;
use tests::lab::Lab;
use tests::producer::{Producer, connect, is_at_end, live_session, packet, stream};
use tests::relay::Relay;
use tests::viewer::Viewer;
use tests::wait_until;
use viewer_proto::Command;
use viewer_proto::packet::GetPacket;
use viewer_proto::session::Seek;
use wire::{Bytes, Field};

use super::{raw, recorded, relay, session};

/// A relay that waits for less than usual, so that the tests need not.
fn impatient() -> (Lab, Relay, Bystander) {
    let lab = Lab::new();
    let mut command = lab.command(tests::built::relayd());
    command.env("LTTNG_NETWORK_SOCKET_TIMEOUT", "1500");
    let relay = Relay::start_as(&lab, command);
    let bystander = Bystander::of(&relay);
    (lab, relay, bystander)
}

/// Sends these bytes again and again, one now and then, until the relay hangs up.
fn dribble(socket: &mut TcpStream, bytes: &[u8]) {
    let deadline = Instant::now() + TEST_TIMEOUT;
    socket
        .set_read_timeout(Some(Duration::from_millis(200)))
        .unwrap();
    for byte in bytes.iter().cycle() {
        assert!(Instant::now() < deadline, "it goes on for ever");
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
fn half_a_header_and_then_silence_ends_on_every_port() {
    let (_lab, relay, mut bystander) = impatient();
    let producer = Producer::open(&relay, session("half"));
    let viewer = Viewer::connect(relay.live);
    let mut sockets = [producer.control(), viewer.socket(), &producer.data]
        .map(|socket| socket.try_clone().unwrap());
    for socket in &mut sockets {
        socket.write_all(&[0; 9]).unwrap();
    }
    for socket in &mut sockets {
        assert!(is_at_end(socket));
    }
    bystander.is_well();
}

#[test]
fn a_byte_now_and_then_is_no_introduction() {
    let (_lab, relay, mut bystander) = relay();
    std::thread::scope(|scope| {
        for port in [relay.control, relay.live] {
            // Of a header that could still become one.
            scope.spawn(move || dribble(&mut connect(port), &[0]));
        }
        bystander.is_well();
    });
    bystander.is_well();
}

#[test]
fn a_byte_now_and_then_is_no_command() {
    let (_lab, relay, mut bystander) = impatient();
    let producer = Producer::open(&relay, session("slow"));
    let viewer = Viewer::connect(relay.live);
    let mut control = producer.control().try_clone().unwrap();
    let mut live = viewer.socket().try_clone().unwrap();
    // A stream's name that grows and grows.
    let mut header = Vec::new();
    ControlHeader {
        circuit: 0,
        data_size: 4000,
        code: 1,
        code_version: 0,
    }
    .write(&mut header);
    control.write_all(&header).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| dribble(&mut control, b"x"));
        scope.spawn(|| dribble(&mut live, &[0]));
    });
    relay.wait_for_log(&["control connection closed", "read timeout"]);
    bystander.is_well();
}

#[test]
fn half_a_packet_and_then_silence_leaves_the_stream_as_it_was() {
    let (_lab, relay, mut bystander) = impatient();
    let mut producer = Producer::open(&relay, session("packet"));
    let stream = producer.add(stream("chan_0", "ust/uid/0/64-bit"));
    producer.send_packet(stream, 0, 100);
    producer.settle(stream, 0);
    let mut half = connect(relay.data);
    half.write_all(&packet(stream, 1, 100)[..DataHeader::SIZE + 50])
        .unwrap();
    assert!(is_at_end(&mut half));
    let len = || recorded(&relay, "packet", "chan_0")[0].len();
    wait_until("half a packet is gone", || len() == 100);
    // It can be sent again, whole.
    producer.send_packet(stream, 1, 100);
    producer.settle(stream, 1);
    bystander.is_well();
}

#[test]
fn who_does_not_read_is_hung_up_on() {
    let (_lab, relay, mut bystander) = impatient();
    let mut producer = Producer::open(&relay, live_session("unread"));
    let stream = producer.add_trace("ust/pid/one", &["chan_0"])[0];
    producer.send_packet(stream, 0, 4 << 20);
    let (mut viewer, _, _) = Viewer::attached(relay.live, "unread", Seek::Beginning);
    wait_until("there is a packet", || {
        viewer.next_index(stream).offset == Bytes(0) && viewer.packet(stream, 0, 1).0.len == 1
    });
    let mut ask = Vec::new();
    let get = GetPacket {
        stream,
        offset: Bytes(0),
        len: 4 << 20,
    };
    (0..20).for_each(|_| Command::GetPacket(get).encode(&mut ask));
    viewer.socket().write_all(&ask).unwrap();
    // Nothing is read here before it has been given up there.
    Viewer::connect(relay.live).wait_for_listed("unread", |listed| listed.viewers == 0);
    // Replies of one word, until neither end takes more.
    let mut control = producer.control().try_clone().unwrap();
    control.set_nonblocking(true).unwrap();
    let questions = raw(3, &[]).repeat(40_000);
    let mut at = 0;
    wait_until("the producer is given up", || {
        if let Ok(sent) = control.write(&questions[at..]) {
            at = (at + sent) % questions.len();
        }
        relay.has_logged(&["control connection closed", "replies not read"])
    });
    bystander.is_well();
}
