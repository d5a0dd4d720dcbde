//! A bidirectional stream of a QUIC connection, with the calls of a socket that is read and written
//! without waiting.

use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use bytes::{Buf, BytesMut};
use parking_lot::Mutex;
use quinn::{ReadError, RecvStream, SendStream};
use tokio::io::{Interest, Ready};

/// Bytes that are read ahead at most, to find out that a stream is readable.
const READ_AHEAD: usize = 2048;

/// A bidirectional stream of a QUIC connection. Used by one task at a time. Dropping it ends the
/// stream.
#[derive(Debug)]
pub struct QuicStream(Mutex<Ends>);

#[derive(Debug)]
struct Ends {
    /// Keeps the connection open.
    _connection: quinn::Connection,
    send: SendStream,
    receive: RecvStream,
    /// Bytes that have been received and not been read.
    ahead: BytesMut,
    /// The peer has ended the stream.
    is_ended: bool,
    before_read: Option<BeforeRead>,
}

/// Called when bytes have arrived, before they can be read.
struct BeforeRead(Box<dyn FnMut(&mut Context<'_>) + Send>);

impl std::fmt::Debug for BeforeRead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BeforeRead")
    }
}

impl QuicStream {
    /// A stream that consists of these two ends, which keeps the connection open.
    #[must_use]
    pub fn new(connection: quinn::Connection, (send, receive): (SendStream, RecvStream)) -> Self {
        Self(Mutex::new(Ends {
            _connection: connection,
            send,
            receive,
            ahead: BytesMut::new(),
            is_ended: false,
            before_read: None,
        }))
    }

    /// Sets that `handle` is called when bytes have arrived, before they can be read, to handle
    /// what has arrived on other streams before them.
    pub fn before_read(&mut self, handle: Box<dyn FnMut(&mut Context<'_>) + Send>) {
        self.0.get_mut().before_read = Some(BeforeRead(handle));
    }

    /// Waits until there is something to read, or the stream has ended. Cancel-safe.
    ///
    /// # Errors
    /// If the connection is lost.
    pub async fn readable(&self) -> io::Result<()> {
        poll_fn(|context| self.poll_read_ready(context)).await
    }

    /// Polls whether there is something to read, or the stream has ended.
    pub fn poll_read_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.lock().poll_read_ready(context)
    }

    /// Waits until there is something to read or room to write, whichever of them `interest` names.
    /// Cancel-safe.
    ///
    /// # Errors
    /// If the connection is lost.
    pub async fn ready(&self, interest: Interest) -> io::Result<Ready> {
        poll_fn(|context| {
            let mut ends = self.0.lock();
            let mut ready = Ready::EMPTY;
            if interest.is_readable()
                && let Poll::Ready(readable) = ends.poll_read_ready(context)
            {
                readable?;
                ready |= Ready::READABLE;
            }
            // Nothing is written: only whether something could be.
            if interest.is_writable()
                && let Poll::Ready(written) = ends.poll_write(context, &[])
            {
                written?;
                ready |= Ready::WRITABLE;
            }
            match ready.is_empty() {
                true => Poll::Pending,
                false => Poll::Ready(Ok(ready)),
            }
        })
        .await
    }

    /// Polls for bytes, and reads them. 0 means that the peer has ended the stream.
    pub fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        into: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let ends = self.0.get_mut();
        if !ends.ahead.is_empty() {
            let read = ends.ahead.len().min(into.len());
            let (to, _) = into.split_at_mut(read);
            ends.ahead.copy_to_slice(to);
            return Poll::Ready(Ok(read));
        }
        if ends.is_ended {
            return Poll::Ready(Ok(0));
        }
        ends.poll_receive(context, into)
    }

    /// Reads without waiting. 0 means that the peer has ended the stream.
    ///
    /// # Errors
    /// `WouldBlock` if there is nothing; else the connection is lost.
    pub fn try_read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        // A caller that gets `WouldBlock` waits by `readable`, which registers its waker.
        now_or_block(self.poll_read(&mut Context::from_waker(Waker::noop()), into))
    }

    /// Waits for bytes and reads them. 0 means that the peer has ended the stream. Cancel-safe.
    ///
    /// # Errors
    /// If the connection is lost.
    pub async fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        poll_fn(|context| self.poll_read(context, into)).await
    }

    /// Polls for room, and writes some bytes. Returns how many are taken.
    pub fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0.get_mut().poll_write(context, bytes)
    }

    /// Writes without waiting. Returns how many bytes are taken.
    ///
    /// # Errors
    /// `WouldBlock` if there is no room; else the connection is lost.
    pub fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        now_or_block(self.poll_write(&mut Context::from_waker(Waker::noop()), bytes))
    }

    /// Sets that the stream's bytes are sent before those of other streams of the connection.
    pub fn prefer(&self) {
        // Fails only if the stream is closed.
        let _ = self.0.lock().send.set_priority(1);
    }

    /// Waits for room, and writes some bytes. Returns how many are taken. Cancel-safe.
    ///
    /// # Errors
    /// If the connection is lost.
    pub async fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        poll_fn(|context| self.poll_write(context, bytes)).await
    }
}

impl Ends {
    fn poll_read_ready(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.ahead.is_empty() || self.is_ended {
            return Poll::Ready(Ok(()));
        }
        // quinn tells that there are bytes only by handing them out.
        let mut buffer = [0; READ_AHEAD];
        self.poll_receive(context, &mut buffer).map_ok(|read| {
            self.ahead
                .extend_from_slice(buffer.get(..read).unwrap_or_default());
        })
    }

    fn poll_receive(
        &mut self,
        context: &mut Context<'_>,
        into: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        self.receive
            .poll_read(context, into)
            .map(|read| match read {
                Ok(read) => {
                    if let Some(BeforeRead(handle)) = &mut self.before_read {
                        handle(context);
                    }
                    // An empty buffer gets 0 bytes of any stream.
                    self.is_ended |= read == 0 && !into.is_empty();
                    Ok(read)
                }
                // The peer has left: a TCP connection would end here.
                Err(ReadError::ConnectionLost(quinn::ConnectionError::ApplicationClosed(
                    close,
                ))) if close.error_code == crate::quic::CLOSED => {
                    self.is_ended = true;
                    Ok(0)
                }
                Err(error) => Err(error.into()),
            })
    }

    fn poll_write(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.send).poll_write(context, bytes);
        written.map_err(io::Error::from)
    }
}

fn now_or_block(done: Poll<io::Result<usize>>) -> io::Result<usize> {
    match done {
        Poll::Ready(done) => done,
        Poll::Pending => Err(ErrorKind::WouldBlock.into()),
    }
}
