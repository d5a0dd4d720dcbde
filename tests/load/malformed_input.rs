//! Rubbish, lies and silence, on every port.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};

use relay_proto::{Command, ControlHeader, DataHeader, Minor, Version};
use tests::probe_session::start_relay_with_probe;
use tests::producer::{Producer, connect, live_session, stream};
use tests::relay::Relay;
use tests::wait_until;
use wire::{Field, SeqNum};

/// Memory that the relay may take beyond what it had, whatever is done to it.
const ALLOWANCE: u64 = 24 << 20;

/// A reproducible source of rubbish: xorshift.
struct Rubbish(u64);

impl Rubbish {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, most: u64) -> u64 {
        self.next() % most
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next().to_le_bytes()[0]).collect()
    }
}

/// Sends something to a port and hangs up; whether the relay took it is its own affair.
fn throw_at(address: SocketAddr, bytes: &[u8]) {
    let mut socket = connect(address);
    let _ = socket.write_all(bytes);
}

/// A control connection that has said its version.
fn hello() -> Vec<u8> {
    let mut bytes = Vec::new();
    relay_proto::producer::Producer::default()
        .send(
            &Command::Version(Version {
                major: 2,
                minor: 15,
            }),
            &mut bytes,
        )
        .unwrap();
    bytes
}

/// A control connection that has a session and a stream in it.
fn conversation(name: &str) -> Vec<u8> {
    let mut bytes = hello();
    let mut add = |command: &Command| {
        let mut payload = Vec::new();
        command.encode(Minor(15), &mut payload);
        let (data_size, code) = (payload.len() as u64, command.code().code());
        ControlHeader {
            circuit: 0,
            data_size,
            code,
            code_version: 0,
        }
        .write(&mut bytes);
        bytes.extend_from_slice(&payload);
    };
    add(&Command::CreateSession(live_session(name)));
    add(&Command::CreateTraceChunk(
        relay_proto::chunk::CreateTraceChunk {
            chunk: wire::ChunkId(0),
            created: tests::producer::CREATED,
            name: None,
        },
    ));
    add(&Command::AddStream(stream("chan_0", "ust/uid/0/64-bit")));
    add(&Command::StreamsSent);
    bytes
}

#[test]
fn random_bytes_affect_no_other_session() {
    let (_lab, relay, mut probe) = start_relay_with_probe();
    let before = relay.memory();
    let mut rubbish = Rubbish(0x2545_f491_4f6c_dd1d);
    for round in 0..200 {
        let len = usize::try_from(rubbish.below(3000)).unwrap();
        for address in [relay.control, relay.data, relay.live] {
            throw_at(address, &rubbish.bytes(len));
        }
        // Rubbish behind a good beginning gets further.
        let mut control = conversation(&format!("rubbish-{round}"));
        let (size, code) = (rubbish.below(200), rubbish.below(24));
        let code = u32::try_from(code).unwrap();
        ControlHeader {
            circuit: 0,
            data_size: size,
            code,
            code_version: 0,
        }
        .write(&mut control);
        control.extend_from_slice(&rubbish.bytes(usize::try_from(size).unwrap()));
        throw_at(relay.control, &control);
        // So does a real conversation with a few bytes changed.
        let mut changed = conversation(&format!("changed-{round}"));
        for _ in 0..3 {
            let at = usize::try_from(rubbish.below(changed.len() as u64)).unwrap();
            changed[at] = rubbish.bytes(1)[0];
        }
        throw_at(relay.control, &changed);
    }
    probe.assert_served();
    assert!(
        relay.memory() < before + ALLOWANCE,
        "{} from {before}",
        relay.memory()
    );
}

#[test]
fn conversations_cut_at_every_byte_leave_no_open_files() {
    let (_lab, relay, mut probe) = start_relay_with_probe();
    let open_files = relay.open_files();
    let whole = conversation("cut");
    for length in 0..whole.len() {
        throw_at(relay.control, &whole[..length]);
    }
    wait_until("all of them are gone", || relay.open_files() == open_files);
    probe.assert_served();
}

#[test]
fn wrong_announced_lengths_take_no_memory() {
    let (_lab, relay, mut probe) = start_relay_with_probe();
    let before = relay.memory();
    let mut sockets = Vec::new();
    for code in 0..24 {
        for data_size in [0, 1, 1 << 20, 128 << 20, (128 << 20) + 1, 1 << 40, u64::MAX] {
            let mut socket = connect(relay.control);
            let mut bytes = conversation(&format!("lie-{code}-{data_size}"));
            ControlHeader {
                circuit: 0,
                data_size,
                code,
                code_version: 0,
            }
            .write(&mut bytes);
            bytes.extend_from_slice(&[0xff; 300]);
            let _ = socket.write_all(&bytes);
            // It stays open, so that whatever it has taken would show.
            sockets.push(socket);
        }
    }
    let (_producer, stream) = Producer::open_with_stream(&relay, live_session("data"));
    for data_size in [u32::MAX, 1 << 30, (1 << 30) + 1] {
        for seq in [0, 5, u64::MAX] {
            let mut socket = connect(relay.data);
            let mut bytes = Vec::new();
            let seq = SeqNum(seq);
            DataHeader {
                circuit: 0,
                stream,
                seq,
                data_size,
                padding_size: 9,
            }
            .write(&mut bytes);
            bytes.extend_from_slice(&[0; 300]);
            let _ = socket.write_all(&bytes);
            sockets.push(socket);
        }
    }
    probe.assert_served();
    assert!(
        relay.memory() < before + ALLOWANCE,
        "{} from {before}",
        relay.memory()
    );
}

#[test]
fn two_thousand_half_open_connections_affect_no_other_session() {
    const CONNECTIONS: usize = 2000;
    raise_file_limit();
    let (_lab, relay, mut probe) = start_relay_with_probe();
    let before = relay.memory();
    let sockets: Vec<TcpStream> = (0..CONNECTIONS)
        .map(|number| {
            let address = [relay.control, relay.data, relay.live][number % 3];
            let mut socket = connect(address);
            // Some say nothing, some begin to.
            socket.write_all(&[0; 7][..number % 8]).unwrap();
            socket
        })
        .collect();
    wait_until("all are accepted", || relay.open_files() > CONNECTIONS);
    probe.assert_served();
    assert!(
        relay.memory() < before + ALLOWANCE,
        "{} from {before}",
        relay.memory()
    );
    drop(sockets);
    wait_until("all are gone", || relay.open_files() < 100);
    probe.assert_served();
}

#[test]
fn connections_without_a_first_command_are_closed() {
    let (_lab, relay) = Relay::start_in_new_lab();
    // Both wait for the first command; a producer may open its data connection long before use.
    let mut sockets = [relay.control, relay.live].map(connect);
    for socket in &mut sockets {
        assert!(tests::producer::is_closed(socket));
    }
}

/// Two thousand sockets need as many descriptors here as there.
fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: maximum,
            maximum,
        },
    )
    .unwrap();
}
