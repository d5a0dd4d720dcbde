//! The two connections to a relay, control and data. Moves bytes and decides nothing.

use std::io::{self, ErrorKind, IoSlice};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use rustix::net::sockopt;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tracing::debug;
use transport::client_files::{ClientFiles, MissingFile};
use transport::config::{ALPN_CONTROL, ALPN_DATA};
use transport::error::TransportError;
use transport::fault::is_alert;
use transport::rustls::ClientConfig;
use transport::socket::Socket;
use transport::tls_stream;

use super::endpoint_address::EndpointAddress;
use super::error::UplinkError;
use super::relay_selector::{SelectedRelay, resolve};
use super::send_queue::SendQueue;
use crate::limits::{KEEP_ALIVE_COUNT, KEEP_ALIVE_IDLE, KEEP_ALIVE_INTERVAL, MAX_WRITE_SLICES};

/// Bytes of one read of replies; most replies have 4 bytes.
const READ_BYTES: usize = 4096;

/// The two connections to a relay.
#[derive(Debug)]
pub(super) struct ConnectionPair {
    control: Socket,
    data: Socket,
    /// Bytes of replies that have not been parsed yet.
    replies: BytesMut,
    /// Whether a reply has been parsed.
    is_answered: bool,
}

impl ConnectionPair {
    /// Connects to both ports of a relay.
    pub(super) async fn connect(
        relay: &SelectedRelay,
        files: Option<&ClientFiles>,
    ) -> Result<Self, UplinkError> {
        let within = relay.connect_timeout;
        let to = relay.control();
        let address = Some(relay.address);
        let control = connect(&to, address, files, ALPN_CONTROL, within).await?;
        let (to, address) = relay.data();
        Ok(Self {
            control,
            data: connect(&to, address, files, ALPN_DATA, within).await?,
            replies: BytesMut::new(),
            is_answered: false,
        })
    }

    /// Writes as much of `out` as the sockets take now. Returns whether they took anything.
    pub(super) fn write(&mut self, out: &mut SendQueue) -> Result<bool, UplinkError> {
        let mut some = false;
        // Packets first: the relay can use an index only when its packet has arrived.
        while !out.data.is_empty() {
            let mut slices = [IoSlice::new(&[]); MAX_WRITE_SLICES];
            let filled = out.data.fill_slices(&mut slices);
            let gathered = slices.get(..filled).unwrap_or_default();
            match self.data.try_write_vectored(gathered) {
                Ok(written) => {
                    out.data.advance(written);
                    some = true;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            }
        }
        while !out.control.is_empty() {
            match self.control.try_write(&out.control) {
                Ok(written) => {
                    out.control.advance(written);
                    some = true;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            }
        }
        // TLS may hold encrypted bytes that the socket has not taken yet.
        for socket in [&mut self.data, &mut self.control] {
            match socket.try_flush() {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                flushed => flushed?,
            }
        }
        Ok(some)
    }

    /// Reads the replies that have arrived. Returns whether there were any.
    pub(super) fn read(&mut self) -> Result<bool, UplinkError> {
        let mut some = false;
        loop {
            self.replies.reserve(READ_BYTES);
            match self.control.try_read_buf(&mut self.replies) {
                // What the relay has replied before it closed the connection comes first.
                Ok(0) if some => break,
                Ok(0) => {
                    let connection = "control";
                    return Err(UplinkError::ConnectionClosed { connection });
                }
                // A server with TLS answers a command in plain text with an alert, which would
                // otherwise be reported as a malformed reply.
                Ok(_) if !self.is_answered && is_alert(&self.replies) => {
                    return Err(UplinkError::EncryptedPort);
                }
                Ok(_) => {
                    self.is_answered = true;
                    some = true;
                }
                Err(error) if is_nothing(&error) => break,
                Err(error) => return Err(error.into()),
            }
        }
        if some {
            // Relays of LTTng leave Nagle's algorithm on: they send a reply only after the TCP
            // acknowledgement of the previous one. The kernel delays it, unless quick
            // acknowledgement is set again after each read.
            let socket = self.control.tcp();
            let _ = socket.map(|socket| sockopt::set_tcp_quickack(socket, true));
        }
        Ok(some)
    }

    /// Returns the replies that have been read and not parsed.
    pub(super) fn replies(&mut self) -> &mut BytesMut {
        &mut self.replies
    }

    /// Waits until there are replies to read, or the sockets can take more of `out`.
    pub(super) async fn wait_ready(&mut self, out: &SendQueue) -> Result<(), UplinkError> {
        let interest = |is_empty: bool| {
            if is_empty {
                Interest::READABLE
            } else {
                Interest::READABLE | Interest::WRITABLE
            }
        };
        tokio::select! {
            ready = self.control.ready(interest(out.control.is_empty())) => { ready?; }
            ready = self.data.ready(interest(out.data.is_empty())) => {
                if ready?.is_readable() {
                    self.check_data_connection()?;
                }
            }
        }
        Ok(())
    }

    /// Checks whether the relay has closed the data connection; it never sends anything there.
    fn check_data_connection(&mut self) -> Result<(), UplinkError> {
        match self.data.try_read(&mut [0; READ_BYTES]) {
            Ok(0) => Err(UplinkError::ConnectionClosed { connection: "data" }),
            Ok(_) => Ok(()),
            Err(error) if is_nothing(&error) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Whether there is nothing to read now.
fn is_nothing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// Connects to a port at this address, or at whichever of its host answers; to one with TLS by this
/// application protocol.
async fn connect(
    to: &EndpointAddress,
    address: Option<SocketAddr>,
    files: Option<&ClientFiles>,
    protocol: &'static [u8],
    within: Duration,
) -> Result<Socket, UplinkError> {
    let failed = |source| UplinkError::Connect {
        to: to.clone(),
        source,
    };
    let connecting = async {
        match address {
            Some(address) => TcpStream::connect(address).await,
            None => TcpStream::connect(&*resolve(&to.endpoint).await?).await,
        }
    };
    let socket = timeout(within, connecting).await;
    let timeout = |_| UplinkError::ConnectTimeout {
        to: to.clone(),
        within,
    };
    let socket = socket.map_err(timeout)?.map_err(failed)?;
    // Commands are small: Nagle's algorithm would delay them.
    socket.set_nodelay(true).map_err(failed)?;
    // Without it, a relay whose host is gone is noticed when the reply to a command does not come.
    if let Err(error) = enable_keep_alive(&socket) {
        debug!(%to, %error, "no keep-alive");
    }
    if !to.endpoint.is_tls {
        return Ok(Socket::Plain(socket));
    }
    // Read for each connection, so that renewed certificates are used without a restart.
    let config = read_certificates(files.cloned(), protocol).await?;
    let handshake = tls_stream::connect(socket, config, &to.endpoint.host);
    let encrypted = tokio::time::timeout(within, handshake).await;
    let encrypted = encrypted.map_err(timeout)?.map_err(failed)?;
    Ok(Socket::Tls(Box::new(encrypted)))
}

/// Reads the certificates on a thread that may block.
pub(super) async fn read_certificates(
    files: Option<ClientFiles>,
    protocol: &'static [u8],
) -> Result<Arc<ClientConfig>, UplinkError> {
    let read = || {
        // The configuration is checked at the start.
        let files = files.ok_or_else(|| TransportError::Config(MissingFile::Ca.to_string()))?;
        files.config(&[protocol])
    };
    let config = tokio::task::spawn_blocking(read).await;
    let config = config.map_err(io::Error::other)?;
    config.map_err(|error| UplinkError::Certificates(Box::new(error)))
}

fn enable_keep_alive(socket: &TcpStream) -> rustix::io::Result<()> {
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, KEEP_ALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(socket, KEEP_ALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(socket, KEEP_ALIVE_COUNT)
}
