//! Receiving commands, for the control and live ports.

use std::io;

use bytes::{Buf, BytesMut};
use tokio_util::sync::CancellationToken;
use transport::socket::Socket;

use super::error::ConnectionError;
use super::timeouts::Deadline;
use crate::limits::DRAIN_IDLE_TIMEOUT;

/// Bytes that have been received and not consumed.
#[derive(Debug)]
pub(super) struct Received {
    buffer: BytesMut,
    /// Maximum number of bytes that are read at once.
    room: usize,
}

impl Received {
    /// An empty buffer that reads up to `room` bytes at once.
    pub(super) fn new(room: usize) -> Self {
        Self {
            buffer: BytesMut::new(),
            room,
        }
    }

    /// The bytes that have not been consumed.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer
    }

    /// Consumes all but the last `left` bytes.
    pub(super) fn consume_all_but(&mut self, left: usize) {
        self.buffer.advance(self.buffer.len() - left);
    }

    /// Waits for more bytes, until `deadline` if there is one. Returns false when the peer has
    /// closed the connection. After `stop` is cancelled, bytes that have been sent already are
    /// still read, and false means that no more arrive.
    ///
    /// # Errors
    /// If the connection is lost, or at the deadline.
    pub(super) async fn read_more(
        &mut self,
        socket: &mut Socket,
        deadline: Option<Deadline>,
        stop: &CancellationToken,
    ) -> Result<bool, ConnectionError> {
        let read = async {
            tokio::select! {
                // Bytes that have arrived are read before the stop is noticed.
                biased;
                read = self.read(socket) => read,
                () = stop.cancelled() => Ok(0),
            }
        };
        let read = match deadline {
            None => read.await?,
            Some(Deadline { at, name, timeout }) => tokio::time::timeout_at(at, read)
                .await
                .map_err(|_| ConnectionError::ReadTimeout { name, timeout })??,
        };
        if read > 0 || !stop.is_cancelled() {
            return Ok(read > 0);
        }
        match tokio::time::timeout(DRAIN_IDLE_TIMEOUT, self.read(socket)).await {
            Ok(read) => Ok(read? > 0),
            Err(_) => Ok(false),
        }
    }

    /// Reads once. Memory is reserved only when there is something to read: most connections are
    /// idle.
    async fn read(&mut self, socket: &mut Socket) -> io::Result<usize> {
        socket.readable().await?;
        self.buffer.reserve(self.room);
        // Unlike `try_read_buf`, this one remembers that a read which leaves room has emptied the
        // socket: to find that out would cost another system call for each command.
        socket.read_buf(&mut self.buffer).await
    }
}
