//! A producer over QUIC that speaks the protocol as far as a test wants.

use quinn::{Connection, Endpoint, RecvStream, SendStream, TransportConfig};
use relay_proto::producer::Producer as StateMachine;
use relay_proto::{Command, Reply, Version};
use tests::certificates::Certificates;
use tests::producer::{TRACE_PATH, live_session, stream};
use transport::client_files::ClientFiles;
use transport::config::ALPN_CONTROL;
use transport::quic;
use wire::StreamId;

use super::QuicRelay;

/// Returns what a producer needs that has a certificate.
pub fn client(certificates: &Certificates) -> quic::ClientConfig {
    let transport = quic::transport_config();
    client_as(certificates, "producer", ALPN_CONTROL, transport)
}

/// Returns what a client needs that has the certificate of this name.
pub fn client_as(
    certificates: &Certificates,
    name: &str,
    protocol: &'static [u8],
    transport: TransportConfig,
) -> quic::ClientConfig {
    let file = |name: String| certificates.file(&name).into();
    let files = ClientFiles {
        trusted: file("ca.pem".to_owned()),
        identity: Some((file(format!("{name}.pem")), file(format!("{name}.key")))),
    };
    let tls = files.config(&[protocol]).unwrap();
    quic::client_config(tls, transport).unwrap()
}

/// A producer that speaks the protocol as far as a test wants.
pub struct Peer {
    _endpoint: Endpoint,
    pub connection: Connection,
    pub control: (SendStream, RecvStream),
    pub state_machine: StateMachine,
}

impl Peer {
    pub async fn connect(relay: &QuicRelay) -> Self {
        let connected = quic::connect(relay.quic, "127.0.0.1", client(&relay.certificates));
        let (endpoint, connection) = connected.await.unwrap();
        let control = connection.open_bi().await.unwrap();
        Self {
            _endpoint: endpoint,
            connection,
            control,
            state_machine: StateMachine::default(),
        }
    }

    pub async fn request(&mut self, command: Command) -> Reply {
        let mut bytes = Vec::new();
        self.state_machine.send(&command, &mut bytes).unwrap();
        let (send, receive) = &mut self.control;
        send.write_all(&bytes).await.unwrap();
        let mut received = Vec::new();
        loop {
            let mut buffer = [0; 4096];
            let read = receive.read(&mut buffer).await.unwrap().unwrap();
            received.extend_from_slice(&buffer[..read]);
            let mut input = &received[..];
            if let Some((_, reply)) = self.state_machine.receive(&mut input).unwrap() {
                return reply;
            }
        }
    }

    /// Opens a session of this name with one stream.
    pub async fn open_session(&mut self, name: &str) -> StreamId {
        // A version without trace chunks.
        let version = Version {
            major: 2,
            minor: 10,
        };
        self.request(Command::Version(version)).await;
        self.request(Command::CreateSession(live_session(name)))
            .await;
        let add = Command::AddStream(stream("chan_0", TRACE_PATH));
        match self.request(add).await {
            Reply::StreamAdded(added) => added.stream.unwrap(),
            refused => panic!("the relay refused: {refused:?}"),
        }
    }

    /// Begins a packet. None if the relay has closed the connection.
    pub async fn send(&self, bytes: &[u8]) -> Option<SendStream> {
        let mut stream = self.connection.open_uni().await.ok()?;
        stream.write_all(bytes).await.ok()?;
        Some(stream)
    }

    pub async fn wait_for_close(&self) {
        let closed = tokio::time::timeout(tests::TEST_TIMEOUT, self.connection.closed());
        assert!(closed.await.is_ok(), "the relay keeps the connection open");
    }
}
