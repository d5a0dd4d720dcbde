//! The push connection beside a command connection: its notifications wake the session, which would
//! poll otherwise. The viewer sends whether it needs watermarks, so that an idle session costs
//! nothing. A relay that does not push costs a connection that is closed after a moment.

use std::future::pending;
use std::io::{self, ErrorKind};
use std::time::Duration;

use tokio::io::Interest;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tracing::debug;
use transport::socket::Socket;
use viewer_proto::beacon_interest::BeaconInterest;
use viewer_proto::push::{Notification, PushClient};
use wire::ViewerId;

use super::connection::connect;
use super::relay_selector::SelectedRelay;
use super::target::RelayTarget;

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
    target: RelayTarget,
    relay: SelectedRelay,
    viewer: ViewerId,
    is_held_back: watch::Receiver<bool>,
) -> mpsc::Receiver<Notification> {
    let (sender, receiver) = mpsc::channel(NOTIFICATION_CAPACITY);
    tokio::spawn(async move {
        let ended = tokio::select! {
            ended = read_notifications(&target, &relay, viewer, is_held_back, &sender) => ended,
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
    target: &RelayTarget,
    relay: &SelectedRelay,
    viewer: ViewerId,
    is_held_back: watch::Receiver<bool>,
    to: &mpsc::Sender<Notification>,
) -> io::Result<()> {
    let mut interest = BeaconInterestMessages::new(is_held_back);
    PushClient::connect_command(viewer).encode(&mut interest.unsent);
    let mut listener = PushClient::default();
    // The same address, because another one may be that of another relay.
    let connected = timeout(HELLO_TIMEOUT, connect(target, relay)).await?;
    let mut socket = connected.map_err(io::Error::other)?;
    let mut buffer = [0; 4096];
    loop {
        let is_supported = listener.is_supported();
        // The futures may be dropped: a read takes nothing before it ends, and what is unsent is
        // kept.
        let read = if is_supported && interest.unsent.is_empty() {
            let mut nothing = Vec::new();
            tokio::select! {
                read = exchange(&mut socket, &mut nothing, &mut buffer) => read?,
                () = interest.next_message() => continue,
            }
        } else {
            let exchange = exchange(&mut socket, &mut interest.unsent, &mut buffer);
            match is_supported {
                true => exchange.await?,
                false => timeout(HELLO_TIMEOUT, exchange).await??,
            }
        };
        let Some(read) = read else { continue };
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

/// Sends what is unsent, and reads bytes of the relay, whichever comes first. Returns the number of
/// bytes that were read, 0 at the end; none once all is sent, so that a further message can follow.
async fn exchange(
    socket: &mut Socket,
    unsent: &mut Vec<u8>,
    buffer: &mut [u8],
) -> io::Result<Option<usize>> {
    let is_sending = !unsent.is_empty();
    let is_blocked =
        |error: &io::Error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted);
    loop {
        while !unsent.is_empty() {
            match socket.try_write(unsent) {
                // At once, so that a future that is dropped at the next `await` sends nothing
                // twice.
                Ok(sent) => drop(unsent.drain(..sent)),
                Err(error) if is_blocked(&error) => break,
                Err(error) => return Err(error),
            }
        }
        if is_sending && unsent.is_empty() {
            return Ok(None);
        }
        let wanted = match unsent.is_empty() {
            true => Interest::READABLE,
            false => Interest::READABLE | Interest::WRITABLE,
        };
        socket.ready(wanted).await?;
        match socket.try_read(buffer) {
            Err(error) if is_blocked(&error) => {}
            read => return read.map(Some),
        }
    }
}

/// The messages to the relay that say whether watermarks are needed.
struct BeaconInterestMessages {
    is_held_back: watch::Receiver<bool>,
    /// The interest that the relay was sent last. At first the relay assumes that watermarks are
    /// needed.
    announced: BeaconInterest,
    /// Bytes of messages that have not been written to the socket.
    unsent: Vec<u8>,
    /// The time since which nothing has been held back. Absent once that has been sent.
    idle_since: Option<Instant>,
}

impl BeaconInterestMessages {
    fn new(is_held_back: watch::Receiver<bool>) -> Self {
        Self {
            is_held_back,
            announced: BeaconInterest::Subscribed,
            unsent: Vec::new(),
            idle_since: None,
        }
    }

    /// Waits until something changes, and appends the message about it to `unsent` if one is due.
    /// The future may be dropped at any time.
    async fn next_message(&mut self) {
        // Marks the value as seen, so that `changed` waits for the next one.
        let is_held_back = *self.is_held_back.borrow_and_update();
        let wanted = match (self.announced, is_held_back) {
            (BeaconInterest::Unsubscribed, true) => BeaconInterest::Subscribed,
            (BeaconInterest::Subscribed, false) => {
                let idle_since = *self.idle_since.get_or_insert_with(Instant::now);
                tokio::select! {
                    () = changed(&mut self.is_held_back) => return,
                    () = sleep_until(idle_since + UNSUBSCRIBE_DELAY) => BeaconInterest::Unsubscribed,
                }
            }
            (BeaconInterest::Unsubscribed, false) | (BeaconInterest::Subscribed, true) => {
                self.idle_since = None;
                changed(&mut self.is_held_back).await;
                return;
            }
        };
        self.idle_since = None;
        self.announced = wanted;
        wanted.encode(&mut self.unsent);
    }
}

/// Waits until there is another value; forever, if the sender has been dropped.
async fn changed(value: &mut watch::Receiver<bool>) {
    if value.changed().await.is_err() {
        pending().await
    }
}
