//! Random bytes, truncated conversations, wrong lengths and silent connections on every port.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};

use relay_proto::{Command, Minor, Version};
use tests::probe_session::start_relay_with_probe;
use tests::producer::{Producer, connect, control_header, data_header, live_session, stream};
use tests::relay::Relay;
use tests::wait_until;
use wire::SeqNum;

/// The memory that the relay may use in addition, whatever is sent to it, in bytes.
const MAX_MEMORY_GROWTH: u64 = 24 << 20;

/// A reproducible random generator (xorshift64).
struct Random(u64);

impl Random {
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

/// Sends bytes to a port and closes the connection. The relay may have closed it before.
fn send_and_close(address: SocketAddr, bytes: &[u8]) {
    let mut socket = connect(address);
    let _ = socket.write_all(bytes);
}

/// Returns the bytes of a VERSION command.
fn version_bytes() -> Vec<u8> {
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

/// Returns the bytes of a valid conversation that creates a session, a chunk and a stream.
fn conversation_bytes(name: &str) -> Vec<u8> {
    let mut bytes = version_bytes();
    let mut add = |command: &Command| {
        let mut payload = Vec::new();
        command.encode(Minor(15), &mut payload);
        let (data_size, code) = (payload.len() as u64, command.code().code());
        bytes.extend(control_header(code, data_size));
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
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    for round in 0..200 {
        let len = usize::try_from(random.below(3000)).unwrap();
        for address in [relay.control, relay.data, relay.live] {
            send_and_close(address, &random.bytes(len));
        }
        // Random commands after a valid conversation reach further code.
        let mut control = conversation_bytes(&format!("random-{round}"));
        let (size, code) = (random.below(200), random.below(24));
        let code = u32::try_from(code).unwrap();
        control.extend(control_header(code, size));
        control.extend_from_slice(&random.bytes(usize::try_from(size).unwrap()));
        send_and_close(relay.control, &control);
        // So does a valid conversation with three bytes changed.
        let mut changed = conversation_bytes(&format!("changed-{round}"));
        for _ in 0..3 {
            let at = usize::try_from(random.below(changed.len() as u64)).unwrap();
            changed[at] = random.bytes(1)[0];
        }
        send_and_close(relay.control, &changed);
    }
    probe.assert_served();
    relay.assert_memory_below(before + MAX_MEMORY_GROWTH);
}

#[test]
fn conversations_cut_at_every_byte_leave_no_open_files() {
    let (_lab, relay, mut probe) = start_relay_with_probe();
    let open_files = relay.open_files();
    let whole = conversation_bytes("cut");
    for length in 0..whole.len() {
        send_and_close(relay.control, &whole[..length]);
    }
    wait_until("all connections are closed", || {
        relay.open_files() == open_files
    });
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
            let mut bytes = conversation_bytes(&format!("lie-{code}-{data_size}"));
            bytes.extend(control_header(code, data_size));
            bytes.extend_from_slice(&[0xff; 300]);
            let _ = socket.write_all(&bytes);
            // The connection stays open, so that memory allocated for it would be counted.
            sockets.push(socket);
        }
    }
    let (_producer, stream) = Producer::open_with_stream(&relay, live_session("data"));
    for data_size in [u32::MAX, 1 << 30, (1 << 30) + 1] {
        for seq in [0, 5, u64::MAX] {
            let mut socket = connect(relay.data);
            let mut bytes = Vec::new();
            let seq = SeqNum(seq);
            bytes.extend(data_header(stream, seq.0, data_size, 9));
            bytes.extend_from_slice(&[0; 300]);
            let _ = socket.write_all(&bytes);
            sockets.push(socket);
        }
    }
    probe.assert_served();
    relay.assert_memory_below(before + MAX_MEMORY_GROWTH);
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
            // Between 0 and 7 bytes of a header.
            socket.write_all(&[0; 7][..number % 8]).unwrap();
            socket
        })
        .collect();
    wait_until("all connections are accepted", || {
        relay.open_files() > CONNECTIONS
    });
    probe.assert_served();
    relay.assert_memory_below(before + MAX_MEMORY_GROWTH);
    drop(sockets);
    wait_until("all connections are closed", || relay.open_files() < 100);
    probe.assert_served();
}

#[test]
fn connections_without_a_first_command_are_closed() {
    let (_lab, relay) = Relay::start_in_new_lab();
    // Not the data port: a producer may open its data connection long before it sends a packet.
    let mut sockets = [relay.control, relay.live].map(connect);
    for socket in &mut sockets {
        assert!(tests::producer::is_closed(socket));
    }
}

/// Raises this process's limit of file descriptors, which needs as many as the relay.
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
