//! TLS without a socket: bytes of the link in, decrypted bytes out, and back. Handshake, alerts and
//! changes of keys are handled inside, by the buffered interface of rustls.
//!
//! rustls reads 4 KiB at a time, which would be a system call for each. The buffer that is read
//! into instead belongs to the thread: between calls, an idle connection keeps only an incomplete
//! record.

use std::cell::RefCell;
use std::fmt;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::sync::Arc;

use rustls::{ClientConfig, ClientConnection, Connection, Error, ServerConfig, ServerConnection};
use rustls_pki_types::ServerName;

use crate::fault::TlsFault;
use crate::role::Roles;

/// Longest record in bytes, with header and tag (RFC 8446, 5.2).
const MAX_RECORD_BYTES: usize = (1 << 14) + 256 + 5;

/// Number of records that are read or written at once.
const RECORDS: usize = 8;

/// Largest number of bytes that are encrypted at once.
const MAX_PLAINTEXT_BYTES: usize = RECORDS << 14;

/// Number of times that a reader receives without a decrypted byte before others get their turn: a
/// peer may send empty records without end.
const MAX_FRUITLESS_READS: usize = 4;

thread_local! {
    /// The buffer of all connections of a thread. Nothing is left in it between calls.
    static RECEIVED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// One end of a TLS connection, without its socket.
pub struct TlsCodec {
    connection: Box<Connection>,
    /// Encrypted bytes for which rustls has no room before some decrypted ones have been read.
    pending: Vec<u8>,
    /// Whether there may be decrypted bytes that have not been read.
    may_have_decrypted: bool,
    /// The peer has said that it sends no more.
    is_closed_by_peer: bool,
    /// A failure that is reported when the bytes before it have been read.
    failed: Option<TlsFault>,
}

impl fmt::Debug for TlsCodec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsCodec")
            .field("is_handshaking", &self.is_handshaking())
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}

impl TlsCodec {
    /// Makes the end of a client that connects to the server of this name.
    ///
    /// # Errors
    /// If rustls refuses the configuration.
    pub fn client(config: Arc<ClientConfig>, name: ServerName<'static>) -> Result<Self, TlsFault> {
        Ok(Self::new(ClientConnection::new(config, name)?.into()))
    }

    /// Makes the end of a server.
    ///
    /// # Errors
    /// If rustls refuses the configuration.
    pub fn server(config: Arc<ServerConfig>) -> Result<Self, TlsFault> {
        Ok(Self::new(ServerConnection::new(config)?.into()))
    }

    fn new(mut connection: Connection) -> Self {
        connection.set_buffer_limit(Some(MAX_PLAINTEXT_BYTES));
        Self {
            connection: Box::new(connection),
            pending: Vec::new(),
            may_have_decrypted: false,
            is_closed_by_peer: false,
            failed: None,
        }
    }

    /// Whether bytes of the user cannot be sent yet.
    #[must_use]
    pub fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Whether a read may have a result without receiving more. If it has none, this is false after
    /// it.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        // Where bytes are pending, decrypted ones are waiting too.
        self.may_have_decrypted || self.failed.is_some() || self.is_closed_by_peer
    }

    /// The roles of the peer's certificate. None if it has sent no certificate.
    #[must_use]
    pub fn peer_roles(&self) -> Option<Roles> {
        let certificates = self.connection.peer_certificates()?;
        certificates.first().map(Roles::of)
    }

    /// Reads decrypted bytes into a buffer; `receive` reads encrypted ones from the socket, as
    /// `recv(2)` does without waiting. If the result leaves room in the buffer, the socket is
    /// empty. 0 means that the peer has ended the connection, or that the buffer is empty. What is
    /// to be sent in answer is [unsent](Self::has_unsent).
    ///
    /// # Errors
    /// That of `receive`, among them `WouldBlock`; `Interrupted` if the caller is to read again
    /// soon, but let others run before; `UnexpectedEof` if the connection ends without the end of
    /// TLS; a [`TlsFault`].
    pub fn read(
        &mut self,
        into: &mut [u8],
        mut receive: impl FnMut(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let pending = std::mem::take(&mut self.pending);
        let mut filled = self.process(&pending, into);
        let (mut fruitless, mut is_drained) = (0, false);
        loop {
            let is_over = self.failed.is_some() || self.is_closed_by_peer;
            if filled == into.len() || filled > 0 && (is_drained || is_over) {
                return Ok(filled);
            }
            if let Some(fault) = &self.failed {
                return Err(fault.clone().into());
            }
            if self.is_closed_by_peer {
                return Ok(0);
            }
            let rest = into.get_mut(filled..).unwrap_or_default();
            let (read, is_empty) = match self.receive(rest, &mut receive) {
                Err(_) if filled > 0 => return Ok(filled),
                received => received?,
            };
            (filled, is_drained) = (filled + read, is_empty);
            fruitless += usize::from(read == 0);
            if filled == 0 && fruitless == MAX_FRUITLESS_READS && !self.is_readable() {
                return Err(ErrorKind::Interrupted.into());
            }
        }
    }

    /// Receives once during the handshake, as [`read`](Self::read) does.
    ///
    /// # Errors
    /// As those of [`read`](Self::read).
    pub fn receive_handshake(
        &mut self,
        mut receive: impl FnMut(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<()> {
        if self.failed.is_none() {
            self.receive(&mut [], &mut receive)?;
        }
        match &self.failed {
            Some(fault) => Err(fault.clone().into()),
            None if self.is_closed_by_peer => Err(ErrorKind::UnexpectedEof.into()),
            None => Ok(()),
        }
    }

    /// Receives once, about as many bytes as fill `into` when they are decrypted, and decrypts them
    /// to there. Returns the number of decrypted bytes, and whether the socket is empty.
    fn receive(
        &mut self,
        into: &mut [u8],
        receive: &mut impl FnMut(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<(usize, bool)> {
        let want = (into.len() + MAX_RECORD_BYTES).min(RECORDS * MAX_RECORD_BYTES);
        RECEIVED.with_borrow_mut(|buffer| {
            if buffer.len() < want {
                // Not by `resize`, which clears byte by byte where programs are compiled for size.
                *buffer = vec![0; want];
            }
            let count = receive(buffer.get_mut(..want).unwrap_or_default())?;
            if count == 0 {
                let message = "the connection has ended without the end of TLS";
                return Err(io::Error::new(ErrorKind::UnexpectedEof, message));
            }
            let read = self.process(buffer.get(..count).unwrap_or_default(), into);
            Ok((read, count < want))
        })
    }

    /// Decrypts records into a buffer, and returns how many bytes. Those that find no room stay in
    /// the connection, and records that rustls does not take then in `pending`.
    fn process(&mut self, mut received: &[u8], into: &mut [u8]) -> usize {
        let mut filled = 0;
        loop {
            filled += self.take_decrypted(into.get_mut(filled..).unwrap_or_default());
            let is_over = self.failed.is_some() || self.is_closed_by_peer;
            if received.is_empty() || is_over {
                // rustls gives memory back when it is asked to read, even if there is nothing.
                let _ = self.connection.read_tls(&mut NothingYet);
                return filled;
            }
            // It takes no more when many decrypted bytes wait to be read.
            if self.connection.read_tls(&mut received).is_err() {
                self.pending.extend_from_slice(received);
                return filled;
            }
            match self.connection.process_new_packets() {
                Ok(state) => {
                    self.may_have_decrypted |= state.plaintext_bytes_to_read() > 0;
                    self.is_closed_by_peer = state.peer_has_closed();
                }
                Err(error) => {
                    // Those of the records before.
                    self.may_have_decrypted = true;
                    self.failed = Some(error.into());
                }
            }
        }
    }

    /// Moves decrypted bytes into a buffer, until it is full or there are no more. Returns how
    /// many.
    fn take_decrypted(&mut self, into: &mut [u8]) -> usize {
        let mut filled = 0;
        while self.may_have_decrypted && filled < into.len() {
            let free = into.get_mut(filled..).unwrap_or_default();
            // An error says that there are none for now, 0 that there will be none.
            let read = self.connection.reader().read(free).unwrap_or(0);
            self.may_have_decrypted = read > 0;
            filled += read;
        }
        filled
    }

    /// Encrypts bytes, as many as fit into some records, and passes them to `send`, which writes to
    /// the socket without waiting. Returns how many bytes have been encrypted. Those that the
    /// socket did not take are [unsent](Self::has_unsent).
    ///
    /// # Errors
    /// `WouldBlock` if the socket does not take what was encrypted earlier; that of `send`; a
    /// [`TlsFault`].
    pub fn write(
        &mut self,
        plaintext: &[u8],
        mut send: impl FnMut(&[IoSlice<'_>]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        self.flush(&mut send)?;
        if let Some(fault) = &self.failed {
            return Err(fault.clone().into());
        }
        // rustls would keep the bytes for the end of the handshake, without encryption.
        if self.is_handshaking() {
            return Err(TlsFault::from(Error::HandshakeNotComplete).into());
        }
        let count = self.connection.writer().write(plaintext)?;
        match self.flush(&mut send) {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(count),
        }
    }

    /// Passes encrypted bytes that are left over to `send`, until none are left.
    ///
    /// # Errors
    /// That of `send`, among them `WouldBlock`.
    pub fn flush(
        &mut self,
        send: &mut impl FnMut(&[IoSlice<'_>]) -> io::Result<usize>,
    ) -> io::Result<()> {
        while self.connection.wants_write() {
            if self.connection.write_tls(&mut Sender(send))? == 0 {
                return Err(ErrorKind::WriteZero.into());
            }
        }
        Ok(())
    }

    /// Whether encrypted bytes are to be sent.
    #[must_use]
    pub fn has_unsent(&self) -> bool {
        self.connection.wants_write()
    }

    /// Makes the message that ends the connection, so that the peer can tell the end from a lost
    /// connection.
    pub fn close(&mut self) {
        // A handshake that has not ended has nothing to close.
        if self.failed.is_none() && !self.is_handshaking() {
            self.connection.send_close_notify();
        }
    }
}

/// A socket from which nothing has arrived.
struct NothingYet;

impl Read for NothingYet {
    fn read(&mut self, _into: &mut [u8]) -> io::Result<usize> {
        Err(ErrorKind::WouldBlock.into())
    }
}

/// A function that writes to a socket, as rustls wants it.
struct Sender<'a, F>(&'a mut F);

impl<F: FnMut(&[IoSlice<'_>]) -> io::Result<usize>> Write for Sender<'_, F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (self.0)(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        (self.0)(pieces)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
