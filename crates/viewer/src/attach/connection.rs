//! A connection to a relay: sends requests, and collects the replies. What they mean is decided
//! elsewhere.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::net::TcpStream;
use tokio::time::timeout;
use transport::config::ALPN_LIVE;
use transport::fault::is_alert;
use transport::quic;
use transport::quic_stream::QuicStream;
use transport::rustls::ClientConfig;
use transport::socket::Socket;
use transport::tls_stream;
use viewer_proto::client::{Client, Head, Part};
use viewer_proto::index::NextIndex;
use viewer_proto::metadata::MetadataStatus;
use viewer_proto::packet::{GetPacket, PacketHead};
use viewer_proto::session::{AttachSession, AttachStatus, CreateStatus, ListedSession, Seek};
use viewer_proto::stream::{NewStreamsStatus, StreamRecord};
use viewer_proto::{Command, Minor};
use wire::{SessionId, StreamId, ViewerId};

use super::error::AttachError;
use super::relay_selector::{RelaySelector, SelectedRelay};
use super::target::RelayTarget;

/// Timeout of a relay that sends nothing while a reply is pending, unless another is set. Old
/// relays serve all viewers in turn, so that a reply may take long.
const REPLY_TIMEOUT: Duration = Duration::from_secs(60);

/// Time without traffic after which the kernel probes whether the relay still exists.
const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// Timeout of looking up one host, and of connecting to one address.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Largest number of bytes that are read from the socket at once.
const READ_SIZE: usize = 128 << 10;

/// A connection to a relay.
#[derive(Debug)]
pub(super) struct Connection {
    socket: Socket,
    client: Client,
    minor: Minor,
    viewer: Option<ViewerId>,
    /// Encoded commands that have not been written to the socket.
    unsent: BytesMut,
    received: BytesMut,
    reply_timeout: Duration,
}

/// A whole reply to a command.
#[derive(Default)]
struct Reply {
    head: Option<Head>,
    sessions: Vec<ListedSession>,
    streams: Vec<StreamRecord>,
}

/// Connects to the first relay of the target that answers.
///
/// # Errors
/// The last relay's, if none does.
pub async fn connect_socket(target: &RelayTarget) -> Result<Socket, AttachError> {
    let mut selector = RelaySelector::new(target);
    let mut last = Err(AttachError::Connect {
        relay: target.to_string(),
        source: io::ErrorKind::AddrNotAvailable.into(),
    });
    while let Some(selected) = selector.select_next(target, CONNECT_TIMEOUT).await {
        last = match selected {
            Ok(relay) => {
                let within = relay.connect_timeout(CONNECT_TIMEOUT);
                let connected = timeout(within, connect(target, &relay)).await;
                let timed_out = || relay.connect_error(io::ErrorKind::TimedOut.into());
                connected.unwrap_or_else(|_| Err(timed_out()))
            }
            Err(error) => Err(error),
        };
        if last.is_ok() {
            break;
        }
    }
    last
}

/// Connects to a relay of the target, with TLS if that asks for it.
pub(super) async fn connect(
    target: &RelayTarget,
    relay: &SelectedRelay,
) -> Result<Socket, AttachError> {
    let failed = |source| relay.connect_error(source);
    if target.is_quic {
        let client = quic_config(target).await?;
        let stream = open_stream(relay, client).await;
        return Ok(Socket::Quic(Box::new(stream.map_err(failed)?)));
    }
    let socket = TcpStream::connect(relay.address).await.map_err(failed)?;
    // Commands are small, and the next one waits for the reply: Nagle would delay each.
    socket.set_nodelay(true).map_err(AttachError::Lost)?;
    enable_keep_alive(&socket);
    if !target.is_tls {
        return Ok(Socket::Plain(socket));
    }
    let config = read_certificates(target).await?;
    let encrypted = tls_stream::connect(socket, config, &relay.host.host).await;
    Ok(Socket::Tls(Box::new(encrypted.map_err(failed)?)))
}

/// Lets the system notice a peer that vanishes.
pub fn enable_keep_alive(socket: &TcpStream) {
    // Errors are ignored: without keep-alive, a peer that vanishes is noticed later.
    let _ = rustix::net::sockopt::set_socket_keepalive(socket, true);
    let _ = rustix::net::sockopt::set_tcp_keepidle(socket, KEEP_ALIVE);
    let _ = rustix::net::sockopt::set_tcp_keepintvl(socket, KEEP_ALIVE);
}

async fn quic_config(target: &RelayTarget) -> Result<quic::ClientConfig, AttachError> {
    let tls = read_certificates(target).await?;
    let client = quic::client_config(tls, quic::transport_config());
    client.map_err(|error| AttachError::Certificates(Box::new(error)))
}

/// Connects over QUIC, and opens a stream for one connection of the live protocol.
async fn open_stream(relay: &SelectedRelay, client: quic::ClientConfig) -> io::Result<QuicStream> {
    let (_, connection) = quic::connect(relay.address, &relay.host.host, client).await?;
    let ends = connection.open_bi().await?;
    Ok(QuicStream::new(connection, ends))
}

/// Reads the certificates on a thread that may block.
async fn read_certificates(target: &RelayTarget) -> Result<Arc<ClientConfig>, AttachError> {
    let files = target.tls.clone().ok_or(AttachError::NoCertificates)?;
    let config = tokio::task::spawn_blocking(move || files.config(&[ALPN_LIVE])).await;
    let config = config.map_err(|error| AttachError::Lost(io::Error::other(error)))?;
    config.map_err(|error| AttachError::Certificates(Box::new(error)))
}

impl Connection {
    /// Connects to a relay of the target, and exchanges `CONNECT` with it.
    pub(super) async fn open(
        target: &RelayTarget,
        relay: &SelectedRelay,
        connect_timeout: Duration,
    ) -> Result<Self, AttachError> {
        // One timeout for the connection, TLS and the greeting: users wait for all.
        let within = relay.connect_timeout(connect_timeout);
        let opened = timeout(within, Self::connect(target, relay)).await;
        opened.unwrap_or_else(|_| Err(relay.connect_error(io::ErrorKind::TimedOut.into())))
    }

    async fn connect(target: &RelayTarget, relay: &SelectedRelay) -> Result<Self, AttachError> {
        let socket = connect(target, relay).await?;
        let client = Client::new(Minor::OURS);
        let hello = client.connect_command();
        let mut connection = Self {
            socket,
            client,
            minor: Minor(0),
            viewer: None,
            unsent: BytesMut::new(),
            received: BytesMut::new(),
            reply_timeout: REPLY_TIMEOUT,
        };
        let greeted = connection
            .request(&hello)
            .await
            .map_err(|error| match error {
                // Relays that refuse a version close the connection without a reply.
                AttachError::HungUp => AttachError::Refused,
                other => other,
            });
        let Some(Head::Connected { viewer, minor }) = greeted?.head else {
            return Err(AttachError::OtherReply);
        };
        connection.minor = minor;
        connection.viewer = viewer;
        Ok(connection)
    }

    /// Changes how long the relay may send nothing while a reply is pending.
    pub(super) fn set_reply_timeout(&mut self, reply_timeout: Duration) {
        self.reply_timeout = reply_timeout;
    }

    /// The number that the relay has given to this connection.
    pub(super) fn viewer(&self) -> Option<ViewerId> {
        self.viewer
    }

    /// Whether the relay knows `DETACH_SESSION`; an older one hangs up on it.
    pub(super) fn can_detach(&self) -> bool {
        self.minor >= Minor(8)
    }

    pub(super) async fn sessions(&mut self) -> Result<Vec<ListedSession>, AttachError> {
        Ok(self.request(&Command::ListSessions).await?.sessions)
    }

    pub(super) async fn create(&mut self) -> Result<(), AttachError> {
        match self.request(&Command::CreateViewerSession).await?.head {
            Some(Head::Created(CreateStatus::Ok)) => Ok(()),
            Some(Head::Created(CreateStatus::Failed)) => Err(AttachError::NoViewerSession),
            _ => Err(AttachError::OtherReply),
        }
    }

    pub(super) async fn attach(
        &mut self,
        session: SessionId,
        seek: Seek,
    ) -> Result<(AttachStatus, Vec<StreamRecord>), AttachError> {
        let attach = AttachSession {
            session,
            // Relays do not use the offset.
            offset: 0,
            seek: seek.code(),
        };
        let reply = self.request(&Command::AttachSession(attach)).await?;
        match reply.head {
            Some(Head::Attached(attached)) => Ok((attached.status, reply.streams)),
            _ => Err(AttachError::OtherReply),
        }
    }

    pub(super) async fn new_streams(
        &mut self,
        session: SessionId,
    ) -> Result<(NewStreamsStatus, Vec<StreamRecord>), AttachError> {
        let reply = self.request(&Command::GetNewStreams(session)).await?;
        match reply.head {
            Some(Head::NewStreams(new)) => Ok((new.status, reply.streams)),
            _ => Err(AttachError::OtherReply),
        }
    }

    /// Sends `times` pipelined requests for the next index of a stream, and returns as many
    /// replies.
    pub(super) async fn next_indexes(
        &mut self,
        stream: StreamId,
        times: usize,
    ) -> Result<Vec<NextIndex>, AttachError> {
        for _ in 0..times {
            self.queue_command(&Command::GetNextIndex(stream))?;
        }
        let mut indexes = Vec::with_capacity(times);
        self.read_replies(|part| {
            if let Part::Head(Head::Index(index)) = part {
                indexes.push(index);
            }
        })
        .await?;
        if indexes.len() != times {
            return Err(AttachError::OtherReply);
        }
        Ok(indexes)
    }

    /// Sends pipelined requests for several packets, and returns as many replies.
    pub(super) async fn packets(
        &mut self,
        requests: &[GetPacket],
    ) -> Result<Vec<(PacketHead, Vec<u8>)>, AttachError> {
        for request in requests {
            self.queue_command(&Command::GetPacket(*request))?;
        }
        let mut packets = Vec::with_capacity(requests.len());
        self.read_replies(|part| match part {
            Part::Head(Head::Packet(head)) => packets.push((head, Vec::new())),
            Part::Bytes(bytes) => {
                if let Some((head, packet)) = packets.last_mut() {
                    // The head says how long the packet is: no growth by doubling, which copies and
                    // wastes memory.
                    packet.reserve_exact(head.len as usize - packet.len());
                    packet.extend_from_slice(bytes);
                }
            }
            _ => {}
        })
        .await?;
        if packets.len() != requests.len() {
            return Err(AttachError::OtherReply);
        }
        Ok(packets)
    }

    /// Requests a packet, and passes its bytes to `take` as they come.
    pub(super) async fn packet(
        &mut self,
        request: GetPacket,
        take: impl FnMut(&[u8]),
    ) -> Result<PacketHead, AttachError> {
        let command = Command::GetPacket(request);
        match self.request_bytes(&command, take).await?.head {
            Some(Head::Packet(head)) => Ok(head),
            _ => Err(AttachError::OtherReply),
        }
    }

    pub(super) async fn metadata(
        &mut self,
        stream: StreamId,
    ) -> Result<(MetadataStatus, Vec<u8>), AttachError> {
        let mut bytes = Vec::new();
        let command = Command::GetMetadata(stream);
        let take = |part: &[u8]| bytes.extend_from_slice(part);
        match self.request_bytes(&command, take).await?.head {
            Some(Head::Metadata(head)) => Ok((head.status, bytes)),
            _ => Err(AttachError::OtherReply),
        }
    }

    /// Detaches from a session. Whatever the status of the reply, the session has been left.
    pub(super) async fn detach(&mut self, session: SessionId) -> Result<(), AttachError> {
        self.request(&Command::DetachSession(session))
            .await
            .map(drop)
    }

    /// Reads the replies that have not been read yet, so that the next one answers the next
    /// command.
    pub(super) async fn drain_replies(&mut self) -> Result<(), AttachError> {
        self.read_replies(|_| ()).await
    }

    async fn request(&mut self, command: &Command) -> Result<Reply, AttachError> {
        self.request_bytes(command, |_| ()).await
    }

    /// Sends a command and reads its reply. The bytes of a packet or of metadata are passed to
    /// `take`.
    async fn request_bytes(
        &mut self,
        command: &Command,
        mut take: impl FnMut(&[u8]),
    ) -> Result<Reply, AttachError> {
        let mut reply = Reply::default();
        self.queue_command(command)?;
        self.read_replies(|part| match part {
            Part::Head(head) => reply.head = Some(head),
            Part::Session(session) => reply.sessions.push(session),
            Part::Stream(stream) => reply.streams.push(*stream),
            Part::Bytes(bytes) => take(bytes),
            Part::Done => {}
        })
        .await?;
        Ok(reply)
    }

    fn queue_command(&mut self, command: &Command) -> Result<(), AttachError> {
        self.client.send(command, &mut self.unsent)?;
        Ok(())
    }

    /// Sends the queued commands and reads all their replies. If the future is dropped, only what
    /// was passed to `take` is lost. The queued commands must be short: nothing is read until all
    /// of them are sent, and a relay that cannot send its replies may stop reading.
    async fn read_replies(&mut self, mut take: impl FnMut(Part<'_>)) -> Result<(), AttachError> {
        // TLS may still hold bytes that it has taken from the buffer.
        while self.unsent.has_remaining() || self.socket.has_unsent() {
            with_timeout(self.reply_timeout, self.socket.write_buf(&mut self.unsent)).await?;
        }
        loop {
            let mut input = &self.received[..];
            // One read may bring several replies, or a part of one.
            while self.client.awaits_reply() {
                let Some(part) = self.client.receive(&mut input)? else {
                    break;
                };
                take(part);
            }
            let taken = self.received.len() - input.len();
            self.received.advance(taken);
            if !self.client.awaits_reply() {
                return Ok(());
            }
            // What has been taken makes room: the buffer moves its rest to the begin before it
            // grows.
            self.received.reserve(READ_SIZE);
            if with_timeout(self.reply_timeout, self.socket.read_buf(&mut self.received)).await?
                == 0
            {
                return Err(AttachError::HungUp);
            }
            // A server with TLS answers plain bytes with an alert.
            if self.viewer.is_none() && is_alert(&self.received) {
                return Err(AttachError::EncryptedPort);
            }
        }
    }
}

async fn with_timeout<T>(
    reply_timeout: Duration,
    moved: impl Future<Output = io::Result<T>>,
) -> Result<T, AttachError> {
    match timeout(reply_timeout, moved).await {
        Ok(moved) => moved.map_err(|error| match error.kind() {
            // A peer that closes with unread input resets the connection instead of ending it.
            // A relay that has died ends a connection without the end of TLS.
            io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::UnexpectedEof => AttachError::HungUp,
            _ => AttachError::Lost(error),
        }),
        Err(_) => Err(AttachError::Silent(reply_timeout)),
    }
}
