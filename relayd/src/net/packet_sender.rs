//! Buffers of replies to viewers. The viewers of a thread share them: thousands of viewers take no more memory than those
//! that are being answered at this moment, and what is copied next is in the cache.
//!
//! A large packet is sent in pieces. A viewer whose socket is full keeps no piece: what it has not been sent is read from
//! the page cache again.

use std::cell::Cell;
use std::io::{self, ErrorKind, IoSlice};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::Interest;
use transport::socket::Socket;

use super::error::ConnectionError;
use super::viewer_throttle::ConnectionThrottle;
use crate::limits::{FILE_CALL_TIMEOUT, REPLY_BYTES, SENT_BYTES};
use crate::live::{FileCallPermits, Packet, View};

thread_local! {
    /// A buffer of replies that is empty and not in use.
    static REPLIES: Cell<Option<BytesMut>> = const { Cell::new(None) };
    /// A buffer of [`SENT_BYTES`] for pieces of packets. Empty while it is in use.
    static PIECE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A buffer for replies, which the caller [returns](return_buffer) when it is empty.
pub(super) fn borrow_buffer() -> BytesMut {
    REPLIES.take().unwrap_or_default()
}

/// Returns an empty buffer. One that has grown beyond what most replies need is freed.
pub(super) fn return_buffer(replies: BytesMut) {
    if replies.capacity() <= 2 * REPLY_BYTES {
        REPLIES.set(Some(replies));
    }
}

/// Waits until the viewer may make file calls. The permits are kept until the calls have returned.
pub(super) async fn acquire_file_calls(view: &View) -> Result<FileCallPermits, ConnectionError> {
    let limits = view.file_call_limits();
    if !limits.is_exhausted() {
        return Ok(FileCallPermits::default());
    }
    let permits = tokio::time::timeout(FILE_CALL_TIMEOUT, limits.acquire());
    permits.await.map_err(|_| ConnectionError::FileCallsHang)
}

/// Sends `replies`, which end with the head of the packet, and the packet. The viewer may take each next piece within
/// `timeout`.
///
/// # Errors
/// If the connection is lost, the viewer reads nothing within `timeout`, or the packet cannot be read.
pub(super) async fn send_packet(
    socket: &mut Socket,
    packet: &mut Packet,
    replies: &mut BytesMut,
    view: &View,
    throttle: &mut ConnectionThrottle,
    timeout: Duration,
) -> Result<(), ConnectionError> {
    while packet.left() > 0 {
        // Writes do not use up tokio's task budget while the socket has room: one viewer must not keep the others from
        // being served.
        tokio::task::consume_budget().await;
        let permits = acquire_file_calls(view).await?;
        let mut buffer = PIECE.take();
        buffer.resize(SENT_BYTES, 0);
        let piece = packet.peek(&mut buffer);
        drop(permits);
        let piece = piece.map_err(ConnectionError::ReadRestOfPacket)?;
        let len = piece.len();
        let sent = write_now(socket, replies, piece);
        PIECE.set(buffer);
        let sent = sent?;
        packet.advance(sent);
        throttle.throttle(sent).await;
        if sent < len {
            let room = tokio::time::timeout(timeout, socket.ready(Interest::WRITABLE)).await;
            room.map_err(|_| ConnectionError::WriteTimeout(timeout))??;
        }
    }
    Ok(())
}

/// Writes replies, which are removed, and a piece of a packet behind them, until the socket is full. Returns how many bytes
/// of the piece were written.
fn write_now(socket: &mut Socket, replies: &mut BytesMut, mut piece: &[u8]) -> io::Result<usize> {
    let len = piece.len();
    while !piece.is_empty() {
        let written = if replies.is_empty() {
            socket.try_write(piece)
        } else {
            socket.try_write_vectored(&[IoSlice::new(replies), IoSlice::new(piece)])
        };
        match written {
            Ok(written) => {
                let of_replies = written.min(replies.len());
                replies.advance(of_replies);
                piece.advance(written - of_replies);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    Ok(len - piece.len())
}
