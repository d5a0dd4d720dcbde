//! Sending replies, for all ports, with the write timeout.

use std::time::Duration;

use bytes::{Buf, BytesMut};
use transport::socket::Socket;

use super::error::{ConnectionError, Consequence};

/// Sends everything in `replies` and empties it. The peer may take each next piece within
/// `timeout`.
///
/// # Errors
/// If the connection is lost, or the peer reads nothing within `timeout`.
pub(super) async fn send(
    socket: &mut Socket,
    replies: &mut BytesMut,
    timeout: Duration,
) -> Result<(), ConnectionError> {
    // Without a timer first: nearly always there is room.
    if replies.has_remaining()
        && !socket.has_unsent()
        && let Ok(sent) = socket.try_write(replies)
    {
        replies.advance(sent);
    }
    // An error is returned by the next attempt.
    while replies.has_remaining() || socket.has_unsent() {
        let sent = tokio::time::timeout(timeout, socket.write_buf(replies)).await;
        sent.map_err(|_| ConnectionError::WriteTimeout(timeout))??;
    }
    replies.clear();
    Ok(())
}

/// Sends the replies that are still valid after `error`, and returns the error that the connection
/// is closed for.
pub(super) async fn send_last(
    socket: &mut Socket,
    replies: &mut BytesMut,
    timeout: Duration,
    error: ConnectionError,
) -> ConnectionError {
    if error.consequence() == Consequence::ReplyAndClose
        && let Err(unsent) = send(socket, replies, timeout).await
    {
        return unsent;
    }
    error
}
