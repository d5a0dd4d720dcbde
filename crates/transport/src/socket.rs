//! One connection between programs, encrypted or not. A plain one makes the system calls that the
//! same calls of tokio's `TcpStream` make, and no others.

use std::io::{self, ErrorKind, IoSlice};
use std::task::{Context, Poll};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest, Ready};
use tokio::net::TcpStream;

use crate::quic_stream::QuicStream;
use crate::tls_stream::TlsStream;

/// Largest number of bytes of several slices that are encrypted together.
const MAX_GATHERED_BYTES: usize = 64 << 10;

/// A connection of a program to its peer.
#[derive(Debug)]
pub enum Socket {
    /// A TCP connection without encryption.
    Plain(TcpStream),
    /// A TCP connection with TLS.
    Tls(Box<TlsStream>),
    /// A stream of a QUIC connection.
    Quic(Box<QuicStream>),
}

impl Socket {
    /// Returns the TCP socket, for its options. None over QUIC.
    #[must_use]
    pub fn tcp(&self) -> Option<&TcpStream> {
        match self {
            Self::Plain(socket) => Some(socket),
            Self::Tls(stream) => Some(stream.socket()),
            Self::Quic(_) => None,
        }
    }

    /// Returns the TCP socket of a connection that is not encrypted: peers receive what is written
    /// to it. None otherwise.
    #[must_use]
    pub fn plain(&self) -> Option<&TcpStream> {
        match self {
            Self::Plain(socket) => Some(socket),
            Self::Tls(_) | Self::Quic(_) => None,
        }
    }

    /// Waits until there may be something to read. Cancel-safe.
    ///
    /// # Errors
    /// If the connection is lost.
    pub async fn readable(&self) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.readable().await,
            Self::Tls(stream) => stream.readable().await,
            Self::Quic(stream) => stream.readable().await,
        }
    }

    /// Polls whether there may be something to read.
    pub fn poll_read_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(socket) => socket.poll_read_ready(context),
            Self::Tls(stream) => stream.poll_read_ready(context),
            Self::Quic(stream) => stream.poll_read_ready(context),
        }
    }

    /// Waits until there may be something to read or room to write, whichever of them `interest`
    /// names. While bytes are [unsent](Self::has_unsent) it also waits for room. Cancel-safe.
    ///
    /// # Errors
    /// If the connection is lost.
    pub async fn ready(&self, interest: Interest) -> io::Result<Ready> {
        match self {
            Self::Plain(socket) => socket.ready(interest).await,
            Self::Tls(stream) => stream.ready(interest).await,
            Self::Quic(stream) => stream.ready(interest).await,
        }
    }

    /// Reads without waiting. 0 means that the peer has ended the connection.
    ///
    /// # Errors
    /// `WouldBlock` if there is nothing, `Interrupted` if others should run before the next try;
    /// else the connection is lost.
    pub fn try_read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.try_read(into),
            Self::Tls(stream) => stream.try_read(into),
            Self::Quic(stream) => stream.try_read(into),
        }
    }

    /// Appends bytes to a buffer, as many as it has room for, without waiting. 0 means that the
    /// peer has ended the connection.
    ///
    /// # Errors
    /// As those of [`try_read`](Self::try_read).
    pub fn try_read_buf(&mut self, buffer: &mut BytesMut) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.try_read_buf(buffer),
            Self::Tls(stream) => read_into(buffer, |room| stream.try_read(room)),
            Self::Quic(stream) => read_into(buffer, |room| stream.try_read(room)),
        }
    }

    /// Waits for bytes and appends them to a buffer, as many as it has room for. 0 means that the
    /// peer has ended the connection. Cancel-safe.
    ///
    /// # Errors
    /// If the connection is lost.
    pub async fn read_buf(&mut self, buffer: &mut BytesMut) -> io::Result<usize> {
        let stream = match self {
            Self::Plain(socket) => return socket.read_buf(buffer).await,
            Self::Tls(stream) => stream,
            Self::Quic(stream) => {
                stream.readable().await?;
                return read_into(buffer, |room| stream.try_read(room));
            }
        };
        loop {
            match read_into(buffer, |room| stream.try_read(room)) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => stream.readable().await?,
                // The peer sends records without content, and must not keep the thread to itself.
                Err(error) if error.kind() == ErrorKind::Interrupted => {
                    tokio::task::yield_now().await;
                }
                read => return read,
            }
        }
    }

    /// Writes without waiting. Returns how many bytes are taken.
    ///
    /// # Errors
    /// `WouldBlock` if there is no room; else the connection is lost.
    pub fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.try_write(bytes),
            Self::Tls(stream) => stream.try_write(bytes),
            Self::Quic(stream) => stream.try_write(bytes),
        }
    }

    /// Writes several slices without waiting. Returns how many bytes are taken.
    ///
    /// # Errors
    /// As those of [`try_write`](Self::try_write).
    pub fn try_write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let stream = match self {
            Self::Plain(socket) => return socket.try_write_vectored(slices),
            Self::Tls(stream) => stream,
            Self::Quic(stream) => {
                // A stream takes one slice at a time. The caller writes the rest with its next
                // call.
                let first = slices.iter().find(|slice| !slice.is_empty());
                return stream.try_write(first.map_or(&[], |slice| slice));
            }
        };
        // A record of its own for each slice would cost more than to copy the short ones together.
        if let Some(long) = slices
            .first()
            .filter(|slice| slice.len() >= MAX_GATHERED_BYTES)
        {
            return stream.try_write(long);
        }
        let mut gathered = Vec::new();
        for slice in slices {
            let room = MAX_GATHERED_BYTES - gathered.len();
            gathered.extend_from_slice(slice.get(..room.min(slice.len())).unwrap_or_default());
        }
        stream.try_write(&gathered)
    }

    /// Writes bytes that [`try_write`](Self::try_write) has taken and that have not left.
    ///
    /// # Errors
    /// `WouldBlock` if some are left; else the connection is lost.
    pub fn try_flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(_) | Self::Quic(_) => Ok(()),
            Self::Tls(stream) => stream.try_flush(),
        }
    }

    /// Whether bytes have been taken and have not left; never for a plain connection.
    #[must_use]
    pub fn has_unsent(&self) -> bool {
        match self {
            Self::Plain(_) | Self::Quic(_) => false,
            Self::Tls(stream) => stream.has_unsent(),
        }
    }

    /// Waits for room, and writes some bytes of the buffer, which it removes, or some that are
    /// [unsent](Self::has_unsent).
    ///
    /// # Errors
    /// If the connection is lost.
    pub async fn write_buf(&mut self, buffer: &mut BytesMut) -> io::Result<()> {
        let stream = match self {
            Self::Plain(socket) => return socket.write_buf(buffer).await.map(drop),
            Self::Tls(stream) => stream,
            Self::Quic(stream) => {
                let written = stream.write(buffer).await?;
                buffer.advance(written);
                return Ok(());
            }
        };
        // Bytes that were taken before leave first. The buffer waits for the next call.
        if stream.has_unsent() {
            return stream.flush_once().await;
        }
        loop {
            match stream.try_write(buffer) {
                Ok(taken) => {
                    buffer.advance(taken);
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    stream.socket().writable().await?;
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// Appends what `try_read` reads to a buffer, as much as it has room for.
fn read_into(
    buffer: &mut BytesMut,
    try_read: impl FnOnce(&mut [u8]) -> io::Result<usize>,
) -> io::Result<usize> {
    let begin = buffer.len();
    // Both kinds of streams read to a slice, whose bytes have to be initialized.
    buffer.resize(buffer.capacity(), 0);
    let room = buffer.get_mut(begin..).unwrap_or_default();
    let read = try_read(room);
    buffer.truncate(begin + read.as_ref().copied().unwrap_or_default());
    read
}
