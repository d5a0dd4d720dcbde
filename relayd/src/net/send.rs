//! Sending: for every port the same.

use std::io;

use bytes::{Buf, BytesMut};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::limits::UNREAD;

/// Sends everything in `replies` and empties it.
///
/// # Errors
/// If the connection is lost, or the peer does not take anything for too long.
pub(super) async fn send(socket: &mut TcpStream, replies: &mut BytesMut) -> io::Result<()> {
    while replies.has_remaining() {
        match tokio::time::timeout(UNREAD, socket.write_buf(replies)).await {
            Ok(sent) => {
                sent?;
            }
            Err(_) => {
                let unread = format!("replies not read for {} seconds", UNREAD.as_secs());
                return Err(io::Error::new(io::ErrorKind::TimedOut, unread));
            }
        }
    }
    replies.clear();
    Ok(())
}
