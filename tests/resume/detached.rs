//! Very many sessions that wait for their producers: the relay keeps some of them, and serves those
//! that are connected.

use std::net::Ipv4Addr;

use relay_proto::resume::{MakeResumable, ResumeSession};
use relay_proto::session::DaemonId;
use relay_proto::{Command, Minor};
use tests::lab::Lab;
use tests::producer::{OK, Producer, live_session};
use tests::relay::Relay;

/// Descriptors that the relay may have: 225 of its pool, of which a quarter is for sessions without
/// a connection.
const DESCRIPTORS: usize = 300;
const MAX_DETACHED: usize = 225 / 8;

fn daemon(number: usize) -> DaemonId {
    DaemonId((number as u128 + 1).to_be_bytes())
}

/// Creates a resumable session, and loses its connections.
fn leave_session(relay: &Relay, from: Ipv4Addr, number: usize) {
    let mut producer = Producer::connect_from(from, relay, Minor(15));
    let mut session = live_session(&format!("session-{number}"));
    session.recording.as_mut().unwrap().daemon = daemon(number);
    producer.create_session(session);
    let resumable = Command::MakeResumable(MakeResumable { timeout: 600 });
    assert_eq!(producer.request(resumable), OK);
    assert_eq!(producer.create_chunk(0), OK);
    producer.disconnect();
    let name = format!("session-{number})");
    relay.wait_for_log(&["connection of the session lost", &name]);
}

/// Whether the relay still has a session.
fn has_session(relay: &Relay, number: usize) -> bool {
    let mut producer = Producer::connect(relay, Minor(15));
    let reply = producer.request(Command::ResumeSession(ResumeSession {
        daemon: daemon(number),
        id: 0,
    }));
    reply.is_ok()
}

#[test]
fn sessions_without_a_connection_leave_descriptors_to_those_with_one() {
    let lab = Lab::new();
    let mut relay = Relay::start_with_fd_limit(&lab, DESCRIPTORS);
    let one = Ipv4Addr::LOCALHOST;
    // The oldest of all, and the only one of its host.
    leave_session(&relay, Ipv4Addr::new(127, 0, 0, 2), 0);
    const LAST: usize = DESCRIPTORS;
    for number in 1..=LAST {
        leave_session(&relay, one, number);
    }
    let (mut producer, stream) = Producer::open_with_trace(&relay, live_session("honest"));
    producer.record_packet(stream, 0, 100);
    let given_up = || {
        let log = relay.log();
        let text = "too many sessions wait for their producers";
        log.iter().filter(|line| line.contains(text)).count()
    };
    assert_eq!(given_up(), LAST + 1 - MAX_DETACHED);
    assert!(relay.open_files() < DESCRIPTORS / 2);
    assert!(has_session(&relay, 0) && has_session(&relay, LAST));
    assert!(!has_session(&relay, 1));
    // Another relay, which may keep fewer, restores the newest.
    let addresses = relay.addresses();
    relay.kill();
    let mut command = lab.command(tests::binaries::relayd());
    command.arg("--fd-pool-size=100");
    let relay = Relay::start_from_command_at(&lab, command, addresses);
    assert!(has_session(&relay, LAST));
    assert!(!has_session(&relay, LAST - 20));
}
