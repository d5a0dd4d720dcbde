//! Buffers of replies to viewers. The viewers of a thread share them: thousands of viewers take no
//! more memory than those that are being answered at this moment, and what is copied next is in the
//! cache.
//!
//! A large packet is sent in pieces. A viewer whose socket is full keeps no piece: what it has not
//! been sent is read from the page cache again.
//!
//! Pieces of a tracefile in memory are not copied, but sent by sendfile(2) to viewers without
//! encryption: the socket holds the pages of the page cache. What they contain does not change,
//! since a published packet is never written again: a tracefile that replaces another has an inode
//! of its own (`store::create_file`), and what is truncated was not published.

use std::cell::Cell;
use std::io::{self, ErrorKind, IoSlice};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use rustix::net::SendFlags;
use tokio::io::Interest;
use tokio::net::TcpStream;
use transport::socket::Socket;

use super::error::ConnectionError;
use super::viewer_throttle::ConnectionThrottle;
use crate::limits::{FILE_CALL_TIMEOUT, MAX_SENDFILE_BYTES, REPLY_BYTES, SENT_BYTES};
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

/// Sends `replies`, which end with the head of the packet, and the packet. The viewer may take each
/// next piece within `timeout`.
///
/// # Errors
/// If the connection is lost, the viewer reads nothing within `timeout`, or the packet cannot be
/// read.
pub(super) async fn send_packet(
    socket: &mut Socket,
    packet: &mut Packet,
    replies: &mut BytesMut,
    view: &View,
    throttle: &mut ConnectionThrottle,
    timeout: Duration,
) -> Result<(), ConnectionError> {
    while packet.left() > 0 {
        // Writes do not use up tokio's task budget while the socket has room: one viewer must not
        // keep the others from being served.
        tokio::task::consume_budget().await;
        let (sent, len) = match socket.plain() {
            Some(socket) if packet.is_in_memory() => {
                let len = packet.left().min(MAX_SENDFILE_BYTES);
                (send_pages(socket, replies, packet, len)?, len)
            }
            _ => {
                let permits = acquire_file_calls(view).await?;
                let mut buffer = PIECE.take();
                if buffer.is_empty() {
                    buffer = vec![0; SENT_BYTES];
                }
                let piece = packet.peek(&mut buffer);
                // The rest makes no file call.
                drop(permits);
                let piece = piece.map_err(ConnectionError::ReadRestOfPacket)?;
                let len = piece.len();
                let sent = write_now(socket, replies, piece);
                // Before the error is returned, so that the buffer is kept.
                PIECE.set(buffer);
                let sent = sent?;
                packet.advance(sent);
                (sent, len)
            }
        };
        throttle.throttle(sent).await;
        if sent < len {
            let room = tokio::time::timeout(timeout, socket.ready(Interest::WRITABLE)).await;
            room.map_err(|_| ConnectionError::WriteTimeout(timeout))??;
        }
    }
    Ok(())
}

/// Sends replies, which are removed, and up to `max` bytes of a packet after them without copying
/// these, until the socket is full. Returns how many bytes of the packet were sent.
fn send_pages(
    socket: &TcpStream,
    replies: &mut BytesMut,
    packet: &mut Packet,
    max: usize,
) -> Result<usize, ConnectionError> {
    let mut sent = 0;
    while sent < max {
        let written = socket.try_io(Interest::WRITABLE, || {
            if replies.is_empty() {
                return packet.send(socket, max - sent);
            }
            // The viewer is not woken for the head of a packet: its bytes follow.
            let flags = SendFlags::MORE | SendFlags::NOSIGNAL;
            replies.advance(rustix::net::send(socket, replies, flags)?);
            Ok(0)
        });
        match written {
            Ok(written) => sent += written,
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock => break,
                ErrorKind::UnexpectedEof => return Err(ConnectionError::ReadRestOfPacket(error)),
                _ => return Err(error.into()),
            },
        }
    }
    Ok(sent)
}

/// Writes replies, which are removed, and a piece of a packet after them, until the socket is
/// full. Returns how many bytes of the piece were written.
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
