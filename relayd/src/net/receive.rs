//! Receiving: for every port the same.

use std::io;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use thiserror::Error;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::busy_poll::{BusyPoll, SPIN_SLOTS};
use crate::limits::{DRAIN_IDLE_TIMEOUT, MIN_RECEIVED_BYTES};

/// Why no more can be received.
#[derive(Debug, Error)]
pub(super) enum ReceiveError {
    #[error("connection lost: {0}")]
    Lost(#[from] io::Error),
    #[error("what had begun did not come within {} seconds", .0.as_secs_f32())]
    Stalled(Duration),
}

/// Until when something must have come.
#[derive(Debug, Clone, Copy)]
pub(super) struct Deadline {
    begun: Instant,
    timeout: Duration,
}

impl Deadline {
    /// So long after it began.
    pub(super) fn after(begun: Instant, timeout: Duration) -> Self {
        Self { begun, timeout }
    }
}

/// What has been received and not been used yet.
#[derive(Debug)]
pub(super) struct Received {
    buffer: BytesMut,
    /// Room for the next read.
    room: usize,
    most: usize,
    busy_poll: BusyPoll,
}

impl Received {
    /// A buffer that grows up to `most` bytes, beyond what must be kept together.
    pub(super) fn new(most: usize) -> Self {
        Self {
            buffer: BytesMut::new(),
            room: MIN_RECEIVED_BYTES.min(most),
            most,
            busy_poll: BusyPoll::new(&SPIN_SLOTS),
        }
    }

    /// What has not been used.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer
    }

    /// All but the last `left` bytes have been used.
    pub(super) fn keep(&mut self, left: usize) {
        self.buffer.advance(self.buffer.len() - left);
    }

    /// Waits for more, no longer than until `deadline` if that is given. When the relay stops, takes
    /// what is there already. Gives whether there was more.
    pub(super) async fn more(
        &mut self,
        socket: &mut TcpStream,
        deadline: Option<Deadline>,
        stop: &CancellationToken,
    ) -> Result<bool, ReceiveError> {
        let read = async {
            tokio::select! {
                biased;
                read = self.read(socket) => read,
                () = stop.cancelled() => Ok(0),
            }
        };
        let read = match deadline {
            None => read.await?,
            Some(Deadline { begun, timeout }) => tokio::time::timeout_at(begun + timeout, read)
                .await
                .map_err(|_| ReceiveError::Stalled(timeout))??,
        };
        if read > 0 || !stop.is_cancelled() {
            return Ok(read > 0);
        }
        match tokio::time::timeout(DRAIN_IDLE_TIMEOUT, self.read(socket)).await {
            Ok(read) => Ok(read? > 0),
            Err(_) => Ok(false),
        }
    }

    /// Reads once. Takes no memory before there is something to read.
    async fn read(&mut self, socket: &mut TcpStream) -> io::Result<usize> {
        self.busy_poll.readable(socket).await?;
        self.buffer.reserve(self.room);
        // `try_read_buf` would do, but this one remembers that a read which leaves room has taken
        // all there was: to find that out costs another call for each command.
        let read = socket.read_buf(&mut self.buffer).await?;
        if read >= self.room {
            self.room = (self.room * 2).min(self.most);
        }
        Ok(read)
    }
}
