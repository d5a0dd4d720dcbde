//! The push connection beside a command connection: what the relay says there wakes the one who
//! asks. The relay is told whether its promises are needed, so that an idle session costs nothing. A
//! relay that does not push costs a connection that is closed after a moment.

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
use viewer_proto::push::{Listener, Notification};
use wire::ViewerId;

/// How long a relay may take to say that it does push; the protocol says a second behind its
/// introduction.
const PATIENCE: Duration = Duration::from_secs(3);

/// Notifications that wait for the asker. When there are more, the relay keeps them.
const MOST_WAITING: usize = 1024;

/// The relay is told that no promise is needed when none has been for so long: while events come
/// one after the other, it need not be told of each.
const UNTIL_AT_EASE: Duration = Duration::from_millis(100);

/// What the relay pushes about the command connection that it calls `viewer`. It begins with
/// [`Notification::Hello`]; it ends at once if the relay does not push. Promises come while
/// `is_held_back` is so.
pub(super) fn open(
    relay: SocketAddr,
    viewer: ViewerId,
    is_held_back: watch::Receiver<bool>,
) -> mpsc::Receiver<Notification> {
    let (sender, receiver) = mpsc::channel(MOST_WAITING);
    tokio::spawn(async move {
        let ended = tokio::select! {
            ended = listen(relay, viewer, is_held_back, &sender) => ended,
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
    is_held_back: watch::Receiver<bool>,
    to: &mpsc::Sender<Notification>,
) -> io::Result<()> {
    let mut hello = Vec::new();
    Listener::hello(viewer).encode(&mut hello);
    let mut listener = Listener::default();
    let mut socket = timeout(PATIENCE, TcpStream::connect(relay)).await??;
    // That something is waited for is not to wait for an acknowledgement.
    socket.set_nodelay(true)?;
    socket.write_all(&hello).await?;
    let (mut reader, writer) = socket.split();
    let mut need = Need::new(is_held_back, writer);
    let mut buffer = [0; 4096];
    loop {
        let reading = reader.read(&mut buffer);
        let read = if listener.is_offered() {
            tokio::select! {
                read = reading => read?,
                told = need.tell() => {
                    told?;
                    continue;
                }
            }
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

/// Whether promises are needed, and what the relay knows of it.
struct Need<'a> {
    is_held_back: watch::Receiver<bool>,
    relay: WriteHalf<'a>,
    /// What it was told. At first it takes it that they are.
    told: BeaconInterest,
    /// What it is being told, and has not been sent.
    unsent: Vec<u8>,
    /// Since when nothing has been held back, until the relay has been told.
    eased: Option<Instant>,
}

impl<'a> Need<'a> {
    fn new(is_held_back: watch::Receiver<bool>, relay: WriteHalf<'a>) -> Self {
        Self {
            is_held_back,
            relay,
            told: BeaconInterest::Subscribed,
            unsent: Vec::new(),
            eased: None,
        }
    }

    /// Waits until something changes, and tells the relay if it should know. May be dropped at any
    /// time.
    async fn tell(&mut self) -> io::Result<()> {
        while !self.unsent.is_empty() {
            let sent = self.relay.write(&self.unsent).await?;
            self.unsent.drain(..sent);
        }
        let is_held_back = *self.is_held_back.borrow_and_update();
        let needed = match (self.told, is_held_back) {
            (BeaconInterest::Unsubscribed, true) => BeaconInterest::Subscribed,
            (BeaconInterest::Subscribed, false) => {
                let eased = *self.eased.get_or_insert_with(Instant::now);
                tokio::select! {
                    () = changed(&mut self.is_held_back) => return Ok(()),
                    () = sleep_until(eased + UNTIL_AT_EASE) => BeaconInterest::Unsubscribed,
                }
            }
            (BeaconInterest::Unsubscribed, false) | (BeaconInterest::Subscribed, true) => {
                self.eased = None;
                changed(&mut self.is_held_back).await;
                return Ok(());
            }
        };
        self.eased = None;
        self.told = needed;
        needed.encode(&mut self.unsent);
        Ok(())
    }
}

/// Waits until there is another value; for ever, if nobody is left to set one.
async fn changed(value: &mut watch::Receiver<bool>) {
    if value.changed().await.is_err() {
        pending().await
    }
}
