//! Viewers over QUIC that take what a relay has, and give nothing back: that read nothing, or never
//! say what they want.

use quinn::{Connection, Endpoint, VarInt};
use tests::Lab;
use tests::producer::{Producer, live_session};
use tests::viewer::Viewer;
use tests::wait_until;
use tokio::runtime::Runtime;
use transport::config::ALPN_LIVE;
use transport::quic;
use viewer_proto::client::Client;
use viewer_proto::packet::GetPacket;
use viewer_proto::session::{AttachSession, Seek};
use viewer_proto::{Command, Minor};
use wire::{Bytes, SessionId, StreamId};

use super::QuicRelay;
use super::peer::client_as;

/// Viewers at the same time.
const VIEWERS: usize = 60;

const PACKET: usize = 4 << 20;

/// Memory that the viewers may make the relay use, and that may be left when they are gone.
const MAX_GROWTH: u64 = 120 << 20;
const MAX_LEFT: u64 = 40 << 20;

/// Returns a viewer to which very much may be in flight.
async fn connect(relay: &QuicRelay) -> (Endpoint, Connection) {
    let mut transport = quic::transport_config();
    transport
        .stream_receive_window(VarInt::MAX)
        .receive_window(VarInt::MAX);
    let client = client_as(&relay.certificates, "viewer", ALPN_LIVE, transport);
    let connected = quic::connect(relay.quic, "127.0.0.1", client);
    connected.await.unwrap()
}

async fn wait_for_close(connection: &Connection) {
    let closed = tokio::time::timeout(tests::TEST_TIMEOUT, connection.closed());
    assert!(closed.await.is_ok(), "the relay keeps the connection open");
}

/// Returns the commands of a viewer that asks for all packets of a stream.
fn commands(session: SessionId, stream: StreamId, packets: usize) -> Vec<u8> {
    let client = Client::new(Minor::OURS);
    let attach = AttachSession {
        session,
        offset: 0,
        seek: Seek::Beginning.code(),
    };
    let mut commands = vec![
        client.connect_command(),
        Command::CreateViewerSession,
        Command::AttachSession(attach),
    ];
    for number in 0..packets {
        commands.push(Command::GetNextIndex(stream));
        commands.push(Command::GetPacket(GetPacket {
            stream,
            offset: Bytes((number * PACKET) as u64),
            len: PACKET as u32,
        }));
    }
    let mut bytes = Vec::new();
    commands
        .iter()
        .for_each(|command| command.encode(&mut bytes));
    bytes
}

#[test]
fn viewers_that_read_nothing_take_little_memory_and_give_it_back() {
    let lab = Lab::new();
    let relay = QuicRelay::start(&lab);
    let (mut producer, stream) = Producer::open_with_trace(&relay.relay, live_session("large"));
    for number in 0..8 {
        producer.record_packet(stream, number, PACKET);
    }
    let session = Viewer::connect(relay.relay.live)
        .wait_for_session("large")
        .session;
    let sent = commands(session, stream, 8);
    let before = relay.relay.memory();
    let mut largest = before;
    // Nothing is received, not even by the library, while the runtime does not run.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let _viewers = runtime.block_on(async {
        let mut viewers = Vec::new();
        for _ in 0..VIEWERS {
            let (endpoint, connection) = connect(&relay).await;
            let mut ends = connection.open_bi().await.unwrap();
            ends.0.write_all(&sent).await.unwrap();
            viewers.push((endpoint, connection, ends));
        }
        viewers
    });
    // The relay closes them when they have not received anything for long.
    wait_until("the relay has no viewer", || {
        largest = largest.max(relay.relay.memory());
        relay.status.metric(r#"relayd_connections{port="quic"}"#) == 0
    });
    let growth = largest - before;
    assert!(growth < MAX_GROWTH, "{} MiB", growth >> 20);
    // The allocator is asked for it now and then.
    wait_until("the relay has given the memory back", || {
        relay.relay.memory().saturating_sub(before) < MAX_LEFT
    });
}

#[test]
fn viewer_connections_without_a_stream_or_a_handshake_are_closed() {
    let lab = Lab::new();
    let relay = QuicRelay::start(&lab);
    let (_producer, _) = Producer::open_with_trace(&relay.relay, live_session("watched"));
    let runtime = Runtime::new().unwrap();
    runtime.block_on(async {
        let (_silent, silent) = connect(&relay).await;
        let (_begun, begun) = connect(&relay).await;
        let mut half = begun.open_bi().await.unwrap();
        half.0.write_all(&[0; 3]).await.unwrap();
        // One that has greeted stays, whatever its other streams do.
        let (_good, good) = connect(&relay).await;
        let mut greeted = good.open_bi().await.unwrap();
        let mut hello = Vec::new();
        Client::new(Minor::OURS)
            .connect_command()
            .encode(&mut hello);
        greeted.0.write_all(&hello).await.unwrap();
        let mut other = good.open_bi().await.unwrap();
        other.0.write_all(&[0; 3]).await.unwrap();
        wait_for_close(&silent).await;
        wait_for_close(&begun).await;
        let closed = other.1.read(&mut [0; 10]).await;
        assert!(matches!(closed, Ok(None) | Err(_)), "{closed:?}");
        assert!(good.close_reason().is_none());
        // Until its streams have ended, and it opens no other.
        drop(greeted);
        wait_for_close(&good).await;
    });
}
