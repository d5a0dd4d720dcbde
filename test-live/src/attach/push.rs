//! The push connection beside a command connection: what the relay says there wakes the one who
//! asks. A relay that does not push costs a connection that is closed after a moment.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tracing::debug;
use viewer_proto::push::{Listener, Notification};
use wire::ViewerId;

/// How long a relay may take to say that it does push; the protocol says a second behind its
/// introduction.
const PATIENCE: Duration = Duration::from_secs(3);

/// Notifications that wait for the asker. When there are more, the relay keeps them.
const MOST_WAITING: usize = 1024;

/// What the relay pushes about the command connection that it calls `viewer`. It begins with
/// [`Notification::Hello`]; it ends at once if the relay does not push.
pub(super) fn open(relay: SocketAddr, viewer: ViewerId) -> mpsc::Receiver<Notification> {
    let (sender, receiver) = mpsc::channel(MOST_WAITING);
    tokio::spawn(async move {
        let ended = tokio::select! {
            ended = listen(relay, viewer, &sender) => ended,
            () = sender.closed() => Ok(()),
        };
        if let Err(error) = ended {
            debug!(%error, "no push connection");
        }
    });
    receiver
}

async fn listen(
    relay: SocketAddr,
    viewer: ViewerId,
    to: &mpsc::Sender<Notification>,
) -> io::Result<()> {
    let mut hello = Vec::new();
    Listener::hello(viewer).encode(&mut hello);
    let mut listener = Listener::default();
    let mut socket = timeout(PATIENCE, TcpStream::connect(relay)).await??;
    socket.write_all(&hello).await?;
    let mut buffer = [0; 4096];
    loop {
        let reading = socket.read(&mut buffer);
        let read = if listener.is_offered() {
            reading.await?
        } else {
            timeout(PATIENCE, reading).await??
        };
        if read == 0 {
            return Ok(());
        }
        let bytes = buffer.get(..read).unwrap_or_default();
        for notification in listener.extend(bytes) {
            let notification = notification.map_err(io::Error::other)?;
            if to.send(notification).await.is_err() {
                return Ok(());
            }
        }
    }
}
