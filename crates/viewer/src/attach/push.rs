//! The push connection beside a command connection: its notifications wake the session, which would
//! poll otherwise. The viewer sends whether it needs watermarks, so that an idle session costs
//! nothing. A relay that does not push costs a connection that is closed after a moment.

use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::WriteHalf;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tracing::debug;
use viewer_proto::beacon_interest::BeaconInterest;
use viewer_proto::push::{Notification, PushClient};
use wire::ViewerId;

/// Timeout of connecting, and of the relay's answer that it pushes. A relay that answers and then
/// sends nothing for a second is one that does not push.
const HELLO_TIMEOUT: Duration = Duration::from_secs(3);

/// Notifications that the push connection holds. When there are more, the relay keeps them.
const NOTIFICATION_CAPACITY: usize = 1024;

/// Time without need for watermarks after which the relay is sent so. The delay keeps a viewer that
/// receives one event after the other from sending a message for each.
const UNSUBSCRIBE_DELAY: Duration = Duration::from_millis(100);

/// Opens the push connection that belongs to the command connection `viewer`, and returns its
/// notifications. The first is [`Notification::Hello`]; if the relay does not push, there is none.
/// Watermarks come while `is_held_back` is true.
pub(super) fn open(
    relay: SocketAddr,
    viewer: ViewerId,
    is_held_back: watch::Receiver<bool>,
) -> mpsc::Receiver<Notification> {
    let (sender, receiver) = mpsc::channel(NOTIFICATION_CAPACITY);
    tokio::spawn(async move {
        let ended = tokio::select! {
            ended = read_notifications(relay, viewer, is_held_back, &sender) => ended,
            // The session may end while the relay has nothing to notify.
            () = sender.closed() => Ok(()),
        };
        if let Err(error) = ended {
            // No failure for the user: the session polls instead.
            debug!(%error, "no push connection");
        }
    });
    receiver
}

async fn read_notifications(
    relay: SocketAddr,
    viewer: ViewerId,
    is_held_back: watch::Receiver<bool>,
    to: &mpsc::Sender<Notification>,
) -> io::Result<()> {
    let mut hello = Vec::new();
    PushClient::connect_command(viewer).encode(&mut hello);
    let mut listener = PushClient::default();
    let mut socket = timeout(HELLO_TIMEOUT, TcpStream::connect(relay)).await??;
    // Without it, a small message waits for the acknowledgement of the one before (Nagle).
    socket.set_nodelay(true)?;
    socket.write_all(&hello).await?;
    let (mut reader, writer) = socket.split();
    let mut attention = BeaconInterestSender::new(is_held_back, writer);
    let mut buffer = [0; 4096];
    loop {
        let reading = reader.read(&mut buffer);
        let read = if listener.is_supported() {
            // Either future may be dropped: a read takes nothing before it ends, and what is unsent
            // is kept.
            tokio::select! {
                read = reading => read?,
                sent = attention.send_attention() => {
                    sent?;
                    continue;
                }
            }
        } else {
            timeout(HELLO_TIMEOUT, reading).await??
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

/// Sends to the relay whether watermarks are needed.
struct BeaconInterestSender<'a> {
    is_held_back: watch::Receiver<bool>,
    relay: WriteHalf<'a>,
    /// The interest that the relay was sent last. At first the relay assumes that watermarks are
    /// needed.
    announced: BeaconInterest,
    /// Bytes of the message that have not been written to the socket.
    unsent: Vec<u8>,
    /// The time since which nothing has been held back. Absent once that has been sent.
    idle_since: Option<Instant>,
}

impl<'a> BeaconInterestSender<'a> {
    fn new(is_held_back: watch::Receiver<bool>, relay: WriteHalf<'a>) -> Self {
        Self {
            is_held_back,
            relay,
            announced: BeaconInterest::Subscribed,
            unsent: Vec::new(),
            idle_since: None,
        }
    }

    /// Waits until something changes, and sends the new interest to the relay. The future may be
    /// dropped at any time: unsent bytes are kept in `unsent`.
    async fn send_attention(&mut self) -> io::Result<()> {
        while !self.unsent.is_empty() {
            let sent = self.relay.write(&self.unsent).await?;
            // At once, so that a future that is dropped at the next `await` sends nothing twice.
            self.unsent.drain(..sent);
        }
        // Marks the value as seen, so that `changed` waits for the next one.
        let is_held_back = *self.is_held_back.borrow_and_update();
        let wanted = match (self.announced, is_held_back) {
            (BeaconInterest::Unsubscribed, true) => BeaconInterest::Subscribed,
            (BeaconInterest::Subscribed, false) => {
                let idle_since = *self.idle_since.get_or_insert_with(Instant::now);
                tokio::select! {
                    () = changed(&mut self.is_held_back) => return Ok(()),
                    () = sleep_until(idle_since + UNSUBSCRIBE_DELAY) => BeaconInterest::Unsubscribed,
                }
            }
            (BeaconInterest::Unsubscribed, false) | (BeaconInterest::Subscribed, true) => {
                self.idle_since = None;
                changed(&mut self.is_held_back).await;
                return Ok(());
            }
        };
        self.idle_since = None;
        self.announced = wanted;
        wanted.encode(&mut self.unsent);
        Ok(())
    }
}

/// Waits until there is another value; forever, if the sender has been dropped.
async fn changed(value: &mut watch::Receiver<bool>) {
    if value.changed().await.is_err() {
        pending().await
    }
}
