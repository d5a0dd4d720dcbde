//! Hostile peers of the QUIC port: endless and unfinished packets, floods of handshakes. A good
//! producer beside them is served.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use quinn::{Endpoint, VarInt};
use tests::Lab;
use tests::producer::data_header;
use tests::viewer::Viewer;
use tokio::runtime::Runtime;
use transport::quic;
use wire::StreamId;

use super::peer::{Peer, client};
use super::{Agent, Events, QuicRelay, TRACE, read_output};

/// Hostile peers of each kind.
const PEERS: usize = 20;

/// Packets that a peer may send at the same time.
const STREAMS: usize = 32;

/// Memory that no peers may make the relay use.
const MAX_MEMORY: u64 = 256 << 20;

/// Starts a good producer, which records while a test does something, and checks what the relay has
/// of it then.
fn record_beside(lab: &Lab, relay: &QuicRelay, hostile: impl FnOnce()) {
    let agent = Agent::start(lab, relay, relay.quic, &["--live=10000"]);
    let mut events = Events::open(&agent);
    Viewer::connect(relay.relay.live).wait_for_session(TRACE);
    events.send_slowly(50, Duration::from_millis(1), 1000);
    hostile();
    events.send_slowly(50, Duration::from_millis(1), 1000);
    let all = events.end();
    tests::wait_until("the session has ended", || agent.session(lab).is_none());
    let logged = agent.stop();
    assert!(
        !logged.iter().any(|line| line.contains("WARN")),
        "{logged:#?}"
    );
    let (on_disk, errors) = read_output(relay);
    assert_eq!(on_disk, all);
    assert!(errors.is_empty(), "{errors:#?}");
    relay.relay.assert_memory_below(MAX_MEMORY);
}

#[test]
fn peers_with_endless_unfinished_and_reset_packets_do_not_harm_a_good_producer() {
    let lab = Lab::new();
    let relay = QuicRelay::start(&lab);
    let runtime = Runtime::new().unwrap();
    let mut silent = Vec::new();
    record_beside(&lab, &relay, || {
        runtime.block_on(async {
            for number in 0..PEERS {
                // All streams that it may open, and a part of a header on each.
                let mut peer = Peer::connect(&relay).await;
                peer.control.0.write_all(&[0]).await.unwrap();
                let mut streams = Vec::new();
                for _ in 0..STREAMS {
                    streams.push(peer.send(&[0; 10]).await);
                }
                silent.push((peer, streams));
                // A packet of 4 GiB of a stream of the good producer.
                let peer = Peer::connect(&relay).await;
                let mut bytes = data_header(StreamId(1), 0, u32::MAX, u32::MAX);
                bytes.resize(1 << 20, 0);
                let _stream = (peer.send(&[]).await, peer.send(&bytes).await);
                drop(peer);
                let mut peer = Peer::connect(&relay).await;
                let session = format!("hostile-{number}");
                let own = peer.open_session(&session).await;
                // Early packets of its own that are reset in the middle.
                let mut unfinished = Vec::new();
                for seq in 1..STREAMS as u64 {
                    let mut bytes = data_header(own, seq, 1 << 20, 0);
                    bytes.resize(32 << 10, 0);
                    unfinished.push(peer.send(&bytes).await);
                }
                for mut stream in unfinished.into_iter().flatten() {
                    stream.reset(VarInt::from_u32(3)).unwrap();
                }
                // One that is as large as a header can say, and a stream that ends in its header.
                let huge = data_header(own, STREAMS as u64, u32::MAX, u32::MAX);
                let _huge = peer.send(&huge).await;
                if let Some(mut cut) = peer.send(&[0; 10]).await {
                    cut.finish().unwrap();
                }
                peer.wait_for_close().await;
            }
        });
        tests::wait_until("resets are counted", || {
            relay.status.metric("relayd_quic_resets_total") > 0
        });
    });
    // Within the handshake timeout: they have sent no command.
    runtime.block_on(async {
        for (peer, _) in &silent {
            peer.wait_for_close().await;
        }
    });
    relay
        .status
        .wait_for_metric(r#"relayd_connections{port="quic"}"#, 0);
}

/// Returns the first datagrams of this many handshakes, all different.
fn first_datagrams(count: usize, client: &quic::ClientConfig, runtime: &Runtime) -> Vec<Vec<u8>> {
    let nobody = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = nobody.local_addr().unwrap();
    let receive = std::thread::spawn(move || {
        let mut buffer = [0; 2000];
        let receive = |_| {
            let len = nobody.recv(&mut buffer).unwrap();
            buffer[..len].to_vec()
        };
        (0..count).map(receive).collect()
    });
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let _guard = runtime.enter();
    let endpoint = Endpoint::client(any).unwrap();
    let connect = |_| endpoint.connect_with(client.clone(), address, "127.0.0.1");
    // Each is open until all have been seen.
    let connecting: Vec<_> = (0..count).map(connect).collect();
    let datagrams = receive.join().unwrap();
    drop(connecting);
    datagrams
}

#[test]
fn floods_of_handshakes_and_garbage_do_not_harm_a_good_producer() {
    const HANDSHAKES: usize = 500;
    let lab = Lab::new();
    let relay = QuicRelay::start(&lab);
    let runtime = Runtime::new().unwrap();
    let datagrams = first_datagrams(HANDSHAKES, &client(&relay.certificates), &runtime);
    let send = |bytes: &[u8]| {
        // From another port each time, where nobody reads the replies.
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket.send_to(bytes, relay.quic).unwrap();
    };
    let mut random = fastrand::Rng::with_seed(6);
    record_beside(&lab, &relay, || {
        for datagram in &datagrams {
            send(datagram);
            let mut garbage = vec![0; random.usize(1..1400)];
            random.fill(&mut garbage);
            send(&garbage);
        }
    });
    // Those that have not proved their address are not kept; the others until the handshake
    // timeout.
    relay
        .status
        .wait_for_metric(r#"relayd_connections{port="quic"}"#, 0);
}
