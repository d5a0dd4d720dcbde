//! Packets of a producer over QUIC, each on a stream of its own: an operation in one byte, the
//! number of the packet in one, its size in two, and its bytes. They reach a relay through a real
//! connection.
#![no_main]

use std::net::SocketAddr;
use std::sync::{LazyLock, Mutex};
use std::time::{Duration, SystemTime};

use clap::Parser;
use fuzz::sections;
use libfuzzer_sys::fuzz_target;
use quinn::{Connection, Endpoint, RecvStream, SendStream, VarInt};
use relay_proto::producer::Producer;
use relay_proto::session::CreateSession;
use relay_proto::stream::{AddStream, DataPending};
use relay_proto::{Command, DataHeader, Reply, Version};
use relayd::certs;
use relayd::cli::{Arguments, CertsArguments};
use relayd::net::{InheritedPorts, Server};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use transport::client_files::ClientFiles;
use transport::config::ALPN_CONTROL;
use transport::quic;
use wire::{Field, SeqNum, StreamId, Text};

/// Inputs after which the packets that were stored are removed.
const MAX_INPUTS: u32 = 2000;
/// Time in which a relay handles some kilobytes, whatever they are.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A relay, and how it is reached.
struct Relay {
    directory: TempDir,
    _server: Mutex<Server>,
    address: SocketAddr,
    runtime: Runtime,
}

/// The connection of a producer that has a session with one stream.
struct Link {
    _endpoint: Endpoint,
    connection: Connection,
    control: (SendStream, RecvStream),
    producer: Producer,
    stream: StreamId,
    inputs: u32,
}

static RELAY: LazyLock<Relay> = LazyLock::new(Relay::start);
static LINK: Mutex<Option<Link>> = Mutex::new(None);

fuzz_target!(|input: &[u8]| {
    let mut link = LINK.lock().expect("no thread panics");
    let relay = &*RELAY;
    let is_usable = link
        .as_ref()
        .is_some_and(|link| link.inputs < MAX_INPUTS && link.connection.close_reason().is_none());
    relay.runtime.block_on(async {
        if !is_usable {
            if let Some(old) = link.take() {
                old.connection.close(quic::CLOSED, b"");
            }
            // Nothing may have been stored yet.
            let _ = std::fs::remove_dir_all(relay.directory.path().join("output/host"));
            *link = Some(Link::open(relay).await);
        }
        let Some(link) = &mut *link else { return };
        link.inputs += 1;
        // Streams that are not finished stay open until the relay has answered: dropping one ends
        // it.
        let mut left = Vec::new();
        for section in sections(input) {
            left.extend(link.send(section).await);
        }
        // A reply shows that what was sent before has been handled. Or the connection is closed.
        let asked = DataPending {
            stream: link.stream,
            last: None,
        };
        let command = Command::DataPending(asked);
        let answered = tokio::time::timeout(TIMEOUT, link.request(&command));
        assert!(answered.await.is_ok(), "the relay does not answer");
    });
});

impl Relay {
    fn start() -> Self {
        let directory = fuzz::output();
        let path = |name: &str| directory.path().join(name).display().to_string();
        let words = ["certs", "--dir", &path("certs"), "--host=127.0.0.1"];
        let arguments = CertsArguments::try_parse_from(words).expect("valid options");
        certs::create(&arguments, SystemTime::now()).expect("certificates");
        let words = [
            "relayd".to_owned(),
            format!("--output={}", path("output")),
            "--control-port=tcp://127.0.0.1:0".to_owned(),
            "--data-port=tcp://127.0.0.1:0".to_owned(),
            "--live-port=tcp://127.0.0.1:0".to_owned(),
            "--quic=quic://127.0.0.1:0".to_owned(),
            format!("--tls-cert={}", path("certs/server.pem")),
            format!("--tls-key={}", path("certs/server.key")),
        ];
        let arguments = Arguments::try_parse_from(words).expect("valid options");
        let config = arguments.config(1024).expect("a valid configuration");
        let server = Server::start(&config, InheritedPorts::default()).expect("free ports");
        let address = server.addresses().quic.expect("a QUIC port");
        let runtime = Runtime::new().expect("threads");
        Self {
            directory,
            _server: Mutex::new(server),
            address,
            runtime,
        }
    }

    fn client(&self) -> quic::ClientConfig {
        let files = ClientFiles {
            trusted: self.directory.path().join("certs/ca.pem"),
            identity: None,
        };
        let tls = files.config(&[ALPN_CONTROL]).expect("certificates");
        quic::client_config(tls, quic::transport_config()).expect("a configuration")
    }
}

impl Link {
    async fn open(relay: &Relay) -> Self {
        let connected = quic::connect(relay.address, "127.0.0.1", relay.client()).await;
        let (endpoint, connection) = connected.expect("the relay accepts connections");
        let control = connection.open_bi().await.expect("a control stream");
        let mut link = Self {
            _endpoint: endpoint,
            connection,
            control,
            producer: Producer::default(),
            stream: StreamId(0),
            inputs: 0,
        };
        // Since 2.11 a session needs chunks.
        let (major, minor) = (2, 10);
        link.request(&Command::Version(Version { major, minor }))
            .await;
        let session = CreateSession {
            name: Text::from("fuzz"),
            host: Text::from("host"),
            ..CreateSession::default()
        };
        link.request(&Command::CreateSession(session)).await;
        let add = AddStream {
            channel: Text::from("chan_0"),
            path: Text::from("host/fuzz/ust"),
            ..AddStream::default()
        };
        if let Some(Reply::StreamAdded(added)) = link.request(&Command::AddStream(add)).await {
            link.stream = added.stream.expect("a stream");
        }
        link
    }

    /// Sends a command. None: the connection is closed.
    async fn request(&mut self, command: &Command) -> Option<Reply> {
        let mut bytes = Vec::new();
        self.producer.send(command, &mut bytes).ok()?;
        self.control.0.write_all(&bytes).await.ok()?;
        let mut received = Vec::new();
        loop {
            let mut buffer = [0; 4096];
            let read = self.control.1.read(&mut buffer).await.ok()??;
            received.extend_from_slice(&buffer[..read]);
            let mut input = &received[..];
            if let Some((_, reply)) = self.producer.receive(&mut input).expect("a reply") {
                return Some(reply);
            }
        }
    }

    /// Sends a packet. Returns its stream if it stays open.
    async fn send(&self, section: &[u8]) -> Option<SendStream> {
        let [operation, number, low, high, bytes @ ..] = section else {
            return None;
        };
        let mut sent = Vec::new();
        if operation & 1 == 0 {
            let size = u16::from_le_bytes([*low, *high]);
            DataHeader {
                circuit: 0,
                stream: self.stream,
                seq: SeqNum((*number).into()),
                data_size: size.into(),
                padding_size: u32::from(operation >> 4),
            }
            .write(&mut sent);
        }
        sent.extend_from_slice(bytes);
        // The relay limits the streams that are open: it must make room for this one.
        let opened = tokio::time::timeout(TIMEOUT, self.connection.open_uni()).await;
        let mut stream = opened.expect("room for a stream").ok()?;
        stream.write_all(&sent).await.ok()?;
        // Finished as by a producer, reset as by one that gives up, or left open as by one that
        // hangs.
        match operation >> 1 & 3 {
            0 | 1 => stream.finish().ok()?,
            2 => stream.reset(VarInt::from_u32(3)).ok()?,
            _ => return Some(stream),
        }
        None
    }
}
