//! Sending: for every port the same.

use std::io;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

/// Sends everything in `replies` and empties it. Waits no longer than `timeout` for the peer to take
/// any of it.
///
/// # Errors
/// If the connection is lost, or the peer does not take anything for too long.
pub(super) async fn send(
    socket: &mut TcpStream,
    replies: &mut BytesMut,
    timeout: Duration,
) -> io::Result<()> {
    while replies.has_remaining() {
        match tokio::time::timeout(timeout, socket.write_buf(replies)).await {
            Ok(sent) => {
                sent?;
            }
            Err(_) => {
                let unread = format!("replies not read for {} seconds", timeout.as_secs_f32());
                return Err(io::Error::new(io::ErrorKind::TimedOut, unread));
            }
        }
    }
    replies.clear();
    Ok(())
}
