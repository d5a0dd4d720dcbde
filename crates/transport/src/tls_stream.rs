//! A TLS connection over a TCP socket, on tokio's event loop. Reading and writing never wait;
//! `readable` and `ready` do, and are cancel-safe.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustls::{ClientConfig, ServerConfig};
use rustls_pki_types::ServerName;
use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::codec::TlsCodec;
use crate::role::Roles;

/// How long a socket whose handshake has failed stays open for the peer to read why. If the relay
/// closed it with unread bytes in it, the system would discard the alert.
const ALERT_TIMEOUT: Duration = Duration::from_secs(2);

/// How many bytes of such a peer are read and dropped.
const MAX_DISCARDED_BYTES: usize = 64 << 10;

/// A TLS connection. Dropping it tells the peer that it ends, if the socket takes that at once.
#[derive(Debug)]
pub struct TlsStream {
    socket: TcpStream,
    codec: TlsCodec,
}

/// Makes the handshake of a client with the server of this host name or address.
///
/// A server that refuses the client's certificate says so only after the handshake: the first read
/// fails.
///
/// # Errors
/// If the name is none, the connection is lost, or a [`TlsFault`](crate::fault::TlsFault).
pub async fn connect(
    socket: TcpStream,
    config: Arc<ClientConfig>,
    host: &str,
) -> io::Result<TlsStream> {
    let name = ServerName::try_from(host.to_owned()).map_err(|_| {
        let message = format!("{host:?} cannot be the name of a server with TLS");
        io::Error::new(ErrorKind::InvalidInput, message)
    })?;
    let codec = TlsCodec::client(config, name)?;
    let (socket, codec) = handshake(socket, codec).await?;
    Ok(TlsStream { socket, codec })
}

/// Makes the handshake of a server. The caller limits the time. The socket and the codec are a
/// [`TlsStream`] in parts, for a reader that moves from one event loop to another.
///
/// # Errors
/// If the connection is lost, or a [`TlsFault`](crate::fault::TlsFault), which the peer has been
/// told.
pub async fn accept(
    socket: TcpStream,
    config: Arc<ServerConfig>,
) -> io::Result<(TcpStream, TlsCodec)> {
    handshake(socket, TlsCodec::server(config)?).await
}

async fn handshake(
    mut socket: TcpStream,
    mut codec: TlsCodec,
) -> io::Result<(TcpStream, TlsCodec)> {
    // Until everything has left as well: the peer waits for the last message of the handshake.
    while codec.is_handshaking() || codec.has_unsent() {
        if codec.has_unsent() {
            flush_once(&socket, &mut codec).await?;
            continue;
        }
        socket.readable().await?;
        match codec.receive_handshake(|into| socket.try_read(into)) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) if is_hang_up(error.kind()) => {
                let message = "the peer has closed the connection during the TLS handshake; it may not speak TLS";
                return Err(io::Error::new(error.kind(), message));
            }
            Err(error) => {
                // The failure of the handshake is reported here, whether or not the peer reads the
                // alert.
                let _ = timeout(ALERT_TIMEOUT, send_alert(&mut socket, &mut codec)).await;
                return Err(error);
            }
        }
    }
    Ok((socket, codec))
}

/// Whether the peer has closed the connection, orderly or with unread bytes.
fn is_hang_up(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
    )
}

/// Sends what is left, ends the connection, and waits until the peer has too.
async fn send_alert(socket: &mut TcpStream, codec: &mut TlsCodec) -> io::Result<()> {
    while codec.has_unsent() {
        flush_once(socket, codec).await?;
    }
    // Only this direction is closed, so that the peer can read the alert and then its end.
    socket.shutdown().await?;
    let (mut discarded, mut buffer) = (0, [0; 4096]);
    while discarded < MAX_DISCARDED_BYTES {
        socket.readable().await?;
        match socket.try_read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => discarded += read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Waits until the socket takes something, and writes encrypted bytes that are left over.
async fn flush_once(socket: &TcpStream, codec: &mut TlsCodec) -> io::Result<()> {
    socket.writable().await?;
    match codec.flush(&mut |pieces| socket.try_write_vectored(pieces)) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
        flushed => flushed,
    }
}

impl TlsStream {
    /// Makes a connection of the parts that [`accept`] has returned.
    #[must_use]
    pub fn from_parts((socket, codec): (TcpStream, TlsCodec)) -> Self {
        Self { socket, codec }
    }

    /// Reads decrypted bytes. 0 means that the peer has ended the connection, or that the buffer is
    /// empty.
    ///
    /// # Errors
    /// As those of [`TlsCodec::read`].
    pub fn try_read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let Self { socket, codec } = self;
        let read = codec.read(into, |into| socket.try_read(into));
        // Alerts and changes of keys. What the socket does not take leaves with the next bytes.
        let _ = codec.flush(&mut |pieces| socket.try_write_vectored(pieces));
        read
    }

    /// Encrypts bytes and writes them. Returns how many have been taken; some of them may be
    /// [unsent](Self::has_unsent).
    ///
    /// # Errors
    /// As those of [`TlsCodec::write`].
    pub fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Self { socket, codec } = self;
        codec.write(bytes, |pieces| socket.try_write_vectored(pieces))
    }

    /// Writes encrypted bytes that are left over.
    ///
    /// # Errors
    /// `WouldBlock` if some are left, or the connection is lost.
    pub fn try_flush(&mut self) -> io::Result<()> {
        let Self { socket, codec } = self;
        codec.flush(&mut |pieces| socket.try_write_vectored(pieces))
    }

    /// Waits until the socket takes something, and writes encrypted bytes that are left over.
    pub(crate) async fn flush_once(&mut self) -> io::Result<()> {
        flush_once(&self.socket, &mut self.codec).await
    }

    /// Whether encrypted bytes are left over, which [`try_flush`](Self::try_flush) writes.
    #[must_use]
    pub fn has_unsent(&self) -> bool {
        self.codec.has_unsent()
    }

    /// Returns the roles of the peer's certificate. None if it has sent no certificate.
    #[must_use]
    pub fn peer_roles(&self) -> Option<Roles> {
        self.codec.peer_roles()
    }

    /// Returns the socket, for its options.
    #[must_use]
    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Waits until there may be something to read.
    ///
    /// # Errors
    /// If the connection is lost.
    pub async fn readable(&self) -> io::Result<()> {
        // Decrypted bytes may be left although the socket has none.
        if self.codec.is_readable() {
            return Ok(());
        }
        self.socket.readable().await
    }

    /// Polls whether there may be something to read.
    pub fn poll_read_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.codec.is_readable() {
            ready!(self.socket.poll_read_ready(context))?;
        }
        Poll::Ready(Ok(()))
    }

    /// Waits until there may be something to read or room to write, whichever of them `interest`
    /// names. With bytes left over it also waits for room.
    ///
    /// # Errors
    /// If the connection is lost.
    pub async fn ready(&self, interest: Interest) -> io::Result<tokio::io::Ready> {
        if interest.is_readable() && self.codec.is_readable() {
            return Ok(tokio::io::Ready::READABLE);
        }
        let interest = if self.has_unsent() {
            interest | Interest::WRITABLE
        } else {
            interest
        };
        self.socket.ready(interest).await
    }
}

impl Drop for TlsStream {
    fn drop(&mut self) {
        self.codec.close();
        // A destructor cannot wait. A peer that is not told by this takes the connection for lost.
        let _ = self.try_flush();
    }
}
