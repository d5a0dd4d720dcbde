//! TLS without a socket: bytes of the link in, decrypted bytes out, and back. Handshake, alerts and
//! changes of keys are handled inside.
//!
//! rustls' unbuffered API decrypts in a buffer of ours. That buffer belongs to the thread: between
//! calls, an idle connection keeps only an incomplete record.

mod buffers;

use std::fmt;
use std::io::{self, ErrorKind};
use std::sync::Arc;

use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{
    ConnectionState, EncodeError, InsufficientSizeError, UnbufferedStatus, WriteTraffic,
};
use rustls::{ClientConfig, CommonState, Error, ServerConfig};
use rustls_pki_types::ServerName;

use self::buffers::{SCRATCH, Unsent, grow};
use crate::fault::TlsFault;
use crate::role::Roles;

/// Longest record in bytes, with header and tag (RFC 8446, 5.2).
const MAX_RECORD_BYTES: usize = (1 << 14) + 256 + 5;

/// Number of records that are read or written at once.
const RECORDS: usize = 8;

/// Largest number of bytes that are encrypted at once.
const MAX_PLAINTEXT_BYTES: usize = RECORDS << 14;

/// Types of unencrypted records of a handshake: change of cipher, and handshake (RFC 8446, 5.1). An
/// alert has another type, and so has everything that is encrypted.
const PLAIN_TYPES: [u8; 2] = [20, 22];

/// What a record adds to its content: header, type and tag, and room for a change of keys.
const RECORD_OVERHEAD: usize = 64;

/// Number of times that a reader receives without a decrypted byte before others get their turn: a
/// peer may send empty records without end.
const MAX_FRUITLESS_READS: usize = 4;

/// Longest message that the handshake may have received in part, in bytes: rustls takes no longer
/// one.
const MAX_PENDING_BYTES: usize = 64 << 10;

/// One end of a TLS connection, without its socket.
#[derive(Debug)]
pub struct TlsCodec {
    end: End,
    /// Encrypted bytes that have been received and not decrypted.
    pending: Vec<u8>,
    /// Decrypted bytes that did not fit into the reader's buffer; less than a record.
    surplus: Vec<u8>,
    unsent: Unsent,
    /// The peer has said that it sends no more.
    is_closed_by_peer: bool,
    /// A failure that is reported when the bytes before it have been read.
    failed: Option<TlsFault>,
}

enum End {
    Client(Box<UnbufferedClientConnection>),
    Server(Box<UnbufferedServerConnection>),
}

impl fmt::Debug for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Client(_) => "Client",
            Self::Server(_) => "Server",
        })
    }
}

/// What to do once everything received is processed and the connection can send.
enum Task<'a> {
    Receive,
    /// Encrypt `plaintext` to `into`; `written` becomes the number of bytes there.
    Encrypt {
        plaintext: &'a [u8],
        into: &'a mut [u8],
        written: &'a mut usize,
    },
    Close,
}

impl TlsCodec {
    /// The end of a client that connects to the server of this name.
    ///
    /// # Errors
    /// If rustls refuses the configuration.
    pub fn client(config: Arc<ClientConfig>, name: ServerName<'static>) -> Result<Self, TlsFault> {
        let connection = UnbufferedClientConnection::new(config, name)?;
        let mut codec = Self::new(End::Client(Box::new(connection)));
        // The first message is the client's.
        codec.advance(&mut [], &mut Vec::new(), Task::Receive).1?;
        Ok(codec)
    }

    /// The end of a server.
    ///
    /// # Errors
    /// If rustls refuses the configuration.
    pub fn server(config: Arc<ServerConfig>) -> Result<Self, TlsFault> {
        let connection = UnbufferedServerConnection::new(config)?;
        Ok(Self::new(End::Server(Box::new(connection))))
    }

    fn new(end: End) -> Self {
        Self {
            end,
            pending: Vec::new(),
            surplus: Vec::new(),
            unsent: Unsent::default(),
            is_closed_by_peer: false,
            failed: None,
        }
    }

    fn state(&self) -> &CommonState {
        match &self.end {
            End::Client(connection) => connection,
            End::Server(connection) => connection,
        }
    }

    /// Whether bytes of the user cannot be sent yet.
    #[must_use]
    pub fn is_handshaking(&self) -> bool {
        self.state().is_handshaking()
    }

    /// Whether a read has a result without receiving more.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        !self.surplus.is_empty() || self.failed.is_some() || self.is_closed_by_peer
    }

    /// The roles of the peer's certificate. None if it has sent no certificate.
    #[must_use]
    pub fn peer_roles(&self) -> Option<Roles> {
        let certificates = self.state().peer_certificates()?;
        certificates.first().map(Roles::of)
    }

    /// Reads decrypted bytes into a buffer; `receive` reads encrypted ones from the socket, as
    /// `recv(2)` does without waiting. If the result leaves room in the buffer, the socket is
    /// empty. 0 means that the peer has ended the connection, or that the buffer is empty. What is
    /// to be sent in answer is in `unsent`.
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
        let mut filled = self.take_surplus(into);
        let mut fruitless = 0;
        loop {
            if filled == into.len() {
                return Ok(filled);
            }
            if let Some(fault) = &self.failed {
                return if_empty(filled, Err(fault.clone().into()));
            }
            if self.is_closed_by_peer {
                return Ok(filled);
            }
            let rest = into.get_mut(filled..).unwrap_or_default();
            let (read, is_drained) = match self.receive_records(rest, &mut receive) {
                Ok(read) => read,
                Err(error) => return if_empty(filled, Err(error)),
            };
            filled += read;
            fruitless += usize::from(read == 0);
            if filled == 0 && fruitless == MAX_FRUITLESS_READS {
                return Err(ErrorKind::Interrupted.into());
            }
            if is_drained && (filled > 0 || self.is_closed_by_peer) && self.failed.is_none() {
                return Ok(filled);
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
            self.receive_records(&mut [], &mut receive)?;
        }
        match &self.failed {
            Some(fault) => Err(fault.clone().into()),
            None if self.is_closed_by_peer => Err(ErrorKind::UnexpectedEof.into()),
            None => Ok(()),
        }
    }

    /// Moves surplus bytes into a reader's buffer. Returns how many.
    fn take_surplus(&mut self, into: &mut [u8]) -> usize {
        let taken = self.surplus.len().min(into.len());
        let (now, _) = self.surplus.split_at(taken);
        if let Some(into) = into.get_mut(..taken) {
            into.copy_from_slice(now);
        }
        self.surplus.drain(..taken);
        taken
    }

    /// Receives once, and decrypts to `into` and what does not fit to `surplus`. Returns the number
    /// of bytes in `into`, and whether the socket is empty.
    fn receive_records(
        &mut self,
        into: &mut [u8],
        receive: &mut impl FnMut(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<(usize, bool)> {
        let want = (into.len() + MAX_RECORD_BYTES).min(RECORDS * MAX_RECORD_BYTES);
        SCRATCH.with_borrow_mut(|scratch| {
            let kept = self.pending.len();
            if kept > MAX_PENDING_BYTES {
                return Err(TlsFault::from(Error::General("handshake too long".to_owned())).into());
            }
            let received = &mut scratch.received;
            grow(received, kept + want);
            let (before, free) = received.split_at_mut(kept);
            before.copy_from_slice(&self.pending);
            let free = free.get_mut(..want).unwrap_or_default();
            let count = receive(free)?;
            if count == 0 {
                let message = "the connection has ended without the end of TLS";
                return Err(io::Error::new(ErrorKind::UnexpectedEof, message));
            }
            let input = received.get_mut(..kept + count).unwrap_or_default();
            let mut reader = Reader {
                into,
                filled: 0,
                surplus: &mut self.surplus,
            };
            let mut machine = Machine {
                unsent: &mut self.unsent,
                is_closed_by_peer: &mut self.is_closed_by_peer,
            };
            let take = |bytes: &[u8]| reader.take(bytes);
            let (used, result) = self.end.advance(&mut machine, input, take, Task::Receive);
            let filled = reader.filled;
            self.pending.clear();
            self.pending
                .extend_from_slice(input.get(used..).unwrap_or_default());
            self.failed = result.err();
            Ok((filled, count < want))
        })
    }

    /// Encrypts bytes, as many as fit into some records, and passes them to `send`, which writes to
    /// the socket without waiting. Returns how many bytes have been encrypted. Those that the
    /// socket did not take are in `unsent`.
    ///
    /// # Errors
    /// `WouldBlock` if the socket does not take what was encrypted earlier; that of `send`; a
    /// [`TlsFault`].
    pub fn write(
        &mut self,
        plaintext: &[u8],
        mut send: impl FnMut(&[u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        self.flush(&mut send)?;
        let count = plaintext.len().min(MAX_PLAINTEXT_BYTES);
        let plaintext = plaintext.get(..count).unwrap_or_default();
        if count == 0 {
            return Ok(0);
        }
        SCRATCH.with_borrow_mut(|scratch| {
            let room = count + count.div_ceil(1 << 14) * RECORD_OVERHEAD;
            let buffer = &mut scratch.encrypted;
            grow(buffer, room);
            let mut written = 0;
            let task = Task::Encrypt {
                plaintext,
                into: &mut *buffer,
                written: &mut written,
            };
            self.advance_pending(task)?;
            if self.unsent.is_empty() {
                self.unsent = Unsent {
                    bytes: std::mem::take(buffer),
                    sent: 0,
                    end: written,
                };
            } else {
                // Something that rustls had queued goes first.
                let encrypted = buffer.get(..written).unwrap_or_default();
                self.unsent
                    .append(|unsent| unsent.extend_from_slice(encrypted));
            }
            Ok::<_, io::Error>(())
        })?;
        match self.flush(&mut send) {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(count),
        }
    }

    /// Passes encrypted bytes that are left over to `send`, until none are left.
    ///
    /// # Errors
    /// That of `send`, among them `WouldBlock`.
    pub fn flush(&mut self, send: &mut impl FnMut(&[u8]) -> io::Result<usize>) -> io::Result<()> {
        while !self.unsent.is_empty() {
            match send(self.unsent.rest())? {
                0 => return Err(ErrorKind::WriteZero.into()),
                sent => self.unsent.sent += sent,
            }
        }
        self.unsent.recycle();
        Ok(())
    }

    /// Whether encrypted bytes are to be sent.
    #[must_use]
    pub fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Makes the message that ends the connection, so that the peer can tell the end from a lost
    /// connection.
    pub fn close(&mut self) {
        // A handshake that has not ended has nothing to close.
        let _ = self.advance_pending(Task::Close);
    }

    /// Processes what was received before, then does `task`. Nothing after a failure.
    fn advance_pending(&mut self, task: Task<'_>) -> Result<(), TlsFault> {
        if let Some(fault) = &self.failed {
            return Err(fault.clone());
        }
        let mut pending = std::mem::take(&mut self.pending);
        let mut surplus = std::mem::take(&mut self.surplus);
        let (used, result) = self.advance(&mut pending, &mut surplus, task);
        pending.drain(..used);
        (self.pending, self.surplus) = (pending, surplus);
        self.failed = result.clone().err();
        result
    }

    fn advance(
        &mut self,
        input: &mut [u8],
        surplus: &mut Vec<u8>,
        task: Task<'_>,
    ) -> (usize, Result<(), TlsFault>) {
        let mut machine = Machine {
            unsent: &mut self.unsent,
            is_closed_by_peer: &mut self.is_closed_by_peer,
        };
        let take = |bytes: &[u8]| surplus.extend_from_slice(bytes);
        self.end.advance(&mut machine, input, take, task)
    }
}

/// A reader's buffer that has `filled` bytes: these come before the error.
fn if_empty(filled: usize, result: io::Result<usize>) -> io::Result<usize> {
    if filled > 0 { Ok(filled) } else { result }
}

/// Takes decrypted bytes into a buffer, and those that do not fit to `surplus`.
struct Reader<'a> {
    into: &'a mut [u8],
    filled: usize,
    surplus: &'a mut Vec<u8>,
}

impl Reader<'_> {
    fn take(&mut self, bytes: &[u8]) {
        let free = self.into.get_mut(self.filled..).unwrap_or_default();
        let (now, later) = bytes.split_at(free.len().min(bytes.len()));
        if let Some(free) = free.get_mut(..now.len()) {
            free.copy_from_slice(now);
        }
        self.filled += now.len();
        self.surplus.extend_from_slice(later);
    }
}

/// What processing records changes besides the connection itself.
struct Machine<'a> {
    unsent: &'a mut Unsent,
    is_closed_by_peer: &'a mut bool,
}

impl End {
    /// Processes all complete records in `input`, then does `task` if the connection can send.
    /// Returns how many bytes of `input` are used up.
    fn advance(
        &mut self,
        machine: &mut Machine<'_>,
        input: &mut [u8],
        take: impl FnMut(&[u8]),
        task: Task<'_>,
    ) -> (usize, Result<(), TlsFault>) {
        match self {
            Self::Client(connection) => machine.run(connection.as_mut(), input, take, task),
            Self::Server(connection) => machine.run(connection.as_mut(), input, take, task),
        }
    }
}

/// The connections of both ends, which rustls has no common name for.
trait Unbuffered {
    type Data;

    fn process<'c, 'i>(&'c mut self, input: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data>;
}

impl Unbuffered for UnbufferedClientConnection {
    type Data = ClientConnectionData;

    fn process<'c, 'i>(&'c mut self, input: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(input)
    }
}

impl Unbuffered for UnbufferedServerConnection {
    type Data = ServerConnectionData;

    fn process<'c, 'i>(&'c mut self, input: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(input)
    }
}

impl Machine<'_> {
    fn run<C: Unbuffered>(
        &mut self,
        connection: &mut C,
        input: &mut [u8],
        mut take: impl FnMut(&[u8]),
        task: Task<'_>,
    ) -> (usize, Result<(), TlsFault>) {
        let mut used = 0;
        loop {
            let rest = input.get_mut(used..).unwrap_or_default();
            let UnbufferedStatus { mut discard, state } = connection.process(rest);
            let step = match state {
                Err(error) => Err(error),
                Ok(ConnectionState::ReadTraffic(mut traffic)) => loop {
                    match traffic.next_record() {
                        None => break Ok(false),
                        Some(Err(error)) => break Err(error),
                        Some(Ok(record)) => {
                            discard += record.discard;
                            take(record.payload);
                        }
                    }
                },
                Ok(ConnectionState::EncodeTlsData(mut data)) => {
                    let append = |unsent: &mut _| append(unsent, |room| data.encode(room));
                    self.unsent.append(append).map(|()| false)
                }
                Ok(ConnectionState::TransmitTlsData(data)) => {
                    // It is in `unsent`, which leaves before anything else.
                    data.done();
                    Ok(false)
                }
                Ok(ConnectionState::PeerClosed) => {
                    *self.is_closed_by_peer = true;
                    Ok(false)
                }
                Ok(ConnectionState::WriteTraffic(traffic)) => {
                    used += discard;
                    return (used, self.finish(traffic, task).map_err(TlsFault::from));
                }
                Ok(ConnectionState::BlockedHandshake | ConnectionState::Closed) => match task {
                    Task::Encrypt { .. } => Err(Error::HandshakeNotComplete),
                    Task::Receive | Task::Close => Ok(true),
                },
                Ok(_) => Err(Error::General("early data".to_owned())),
            };
            used += discard;
            match step {
                Ok(false) => {}
                Ok(true) => return (used, Ok(())),
                Err(error) => {
                    self.queue_alert(connection, input.get_mut(used..).unwrap_or_default());
                    return (used, Err(error.into()));
                }
            }
        }
    }

    /// Takes the alert over that rustls has queued at a failure, and messages of the handshake
    /// before it. rustls asks to be called with what is left of the input, and must not be called
    /// behind the alert: it would try to read on.
    fn queue_alert<C: Unbuffered>(&mut self, connection: &mut C, input: &mut [u8]) {
        while let Ok(ConnectionState::EncodeTlsData(mut message)) = connection.process(input).state
        {
            let begin = self.unsent.end;
            let append = |unsent: &mut _| append(unsent, |room| message.encode(room));
            let queued = self.unsent.append(append);
            let content_type = self.unsent.bytes.get(begin);
            if queued.is_err() || !content_type.is_some_and(|kind| PLAIN_TYPES.contains(kind)) {
                return;
            }
        }
    }

    fn finish<D>(&mut self, mut traffic: WriteTraffic<'_, D>, task: Task<'_>) -> Result<(), Error> {
        match task {
            Task::Receive => Ok(()),
            Task::Encrypt {
                plaintext,
                into,
                written,
            } => {
                *written = traffic.encrypt(plaintext, into).map_err(encoding)?;
                Ok(())
            }
            Task::Close => {
                let mut room = [0; 2 * RECORD_OVERHEAD];
                let written = traffic.queue_close_notify(&mut room).map_err(encoding)?;
                let message = room.get(..written).unwrap_or_default();
                self.unsent
                    .append(|unsent| unsent.extend_from_slice(message));
                Ok(())
            }
        }
    }
}

fn encoding(error: impl fmt::Display) -> Error {
    Error::General(error.to_string())
}

/// Appends what `encode` writes, which first says how much room it needs.
fn append(
    unsent: &mut Vec<u8>,
    mut encode: impl FnMut(&mut [u8]) -> Result<usize, EncodeError>,
) -> Result<(), Error> {
    let begin = unsent.len();
    loop {
        let room = unsent.get_mut(begin..).unwrap_or_default();
        match encode(room) {
            Ok(written) => {
                unsent.truncate(begin + written);
                return Ok(());
            }
            Err(EncodeError::InsufficientSize(InsufficientSizeError { required_size })) => {
                unsent.resize(begin + required_size, 0);
            }
            Err(error) => {
                unsent.truncate(begin);
                return Err(encoding(error));
            }
        }
    }
}
