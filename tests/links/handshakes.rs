//! Hostile TLS handshakes: garbage, silence, endless messages. A good producer beside them is
//! served.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use tests::certificates::Certificates;
use tests::consumer::HeldReplay;
use tests::lab::Lab;
use tests::{TEST_TIMEOUT, traces, wait_until};

use super::{directory_of, events, replay_command, start_relay};

/// Peers of each kind on each port.
const PEERS: usize = 40;

fn connect(address: SocketAddr) -> TcpStream {
    let socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    socket
}

/// Waits until the relay closes the connection.
fn wait_for_close(mut socket: TcpStream) {
    let mut buffer = [0; 4096];
    loop {
        match socket.read(&mut buffer) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) => {
                assert!(
                    !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
                    "the relay keeps the connection open"
                );
                return;
            }
        }
    }
}

/// Writes without end until the relay closes the connection.
fn write_until_closed(socket: &mut TcpStream, bytes: &[u8]) {
    const MAX_WRITES: usize = 100_000;
    let is_closed = (0..MAX_WRITES).any(|_| socket.write_all(bytes).is_err());
    assert!(is_closed, "the relay reads without end");
}

#[test]
fn hostile_handshakes_do_not_harm_a_good_producer_and_end_at_the_timeout() {
    let lab = Lab::new();
    let certificates = Certificates::create(&lab, "certs");
    let relay = start_relay(&lab, &certificates);
    let open_before = relay.open_files();
    let ports = relay.addresses();
    let mut peers = Vec::new();
    for port in ports {
        for opening in [
            // Silence, and a message that never ends.
            &[][..],
            &[0x16, 3, 1, 0x40, 0],
            &[0x16, 3, 1, 0, 200, 1, 0, 0xff, 0xff],
            // Garbage.
            b"GET / HTTP/1.1\r\n\r\n",
            &[0xff; 5000],
        ] {
            for _ in 0..PEERS / 4 {
                let mut peer = connect(port);
                peer.write_all(opening).unwrap();
                peers.push(peer);
            }
        }
    }
    let directory = traces::with_numbered_events(&lab, "good", 3000, 1000);
    let options = certificates.of_client(Some("producer"));
    let command = replay_command(&lab, &relay, "good", &directory, &options);
    let mut held = HeldReplay::open(command);
    held.send_packets();
    for port in ports {
        // A handshake message of 16 MB, in records: only its beginning is read.
        let mut endless = connect(port);
        endless
            .write_all(&[0x16, 3, 1, 0x40, 0, 1, 0xff, 0xff, 0xff])
            .unwrap();
        let mut record = vec![0x16, 3, 1, 0x40, 0];
        record.resize(5 + (1 << 14), 0);
        write_until_closed(&mut endless, &record);
    }
    held.close_session().wait().expect_success();
    assert!(events(&directory_of(&relay, "good")) == events(&directory));
    peers.into_iter().for_each(wait_for_close);
    relay.wait_for_log(&["TLS handshake failed", "not complete within"]);
    wait_until("all descriptors are closed", || {
        relay.open_files() <= open_before
    });
    relay.assert_memory_below(256 << 20);
}

#[test]
fn a_connection_cut_in_the_middle_of_a_session_is_logged_and_leaves_a_readable_trace() {
    let lab = Lab::new();
    let certificates = Certificates::create(&lab, "certs");
    let relay = start_relay(&lab, &certificates);
    let directory = traces::with_numbered_events(&lab, "cut", 3000, 1000);
    let options = certificates.of_client(Some("producer"));
    let mut held = HeldReplay::open(replay_command(&lab, &relay, "cut", &directory, &options));
    held.send_packets();
    held.kill();
    // By a reset if the replay had unread replies, otherwise without the end of TLS.
    relay.wait_for_log(&["control connection closed", "connection lost"]);
    // What the replay had not sent is lost with it.
    let recorded = events(&directory_of(&relay, "cut"));
    assert!(events(&directory).starts_with(&recorded));
}
