//! Push connections. Each is served by the task of the command connection that it names, which
//! knows what its viewer has not been notified of. Notifications are written when the socket has
//! room; the command connection never waits for that.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use bytes::{Buf, BytesMut};
use parking_lot::Mutex;
use rustix::net::sockopt;
use tokio::io::Interest;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;
use tracing::debug;
use transport::socket::Socket;
use viewer_proto::beacon_interest::BeaconInterestReader;
use viewer_proto::push::write_greeting;
use viewer_proto::server::Connection;
use wire::ViewerId;

use crate::limits::{
    MAX_PUSH_INPUT, PUSH_INPUT_INTERVAL, PUSH_INTERVAL, PUSHED_BUFFER, PUSHED_BYTES,
    ROTATION_POLL_INTERVAL,
};
use crate::live::View;

/// Size of the buffer for messages of viewers, which are a few bytes long.
const INPUT_BYTES: usize = 64;

/// The tasks of all command connections, by the id that push connections name them by.
#[derive(Debug, Default)]
pub(super) struct ViewerTasks(Mutex<HashMap<ViewerId, Arc<HandoverSlot>>>);

/// Holds a push connection until the viewer's task takes it.
#[derive(Debug, Default)]
struct HandoverSlot {
    pending: Mutex<Option<Handover>>,
    is_filled: Notify,
}

/// A push connection that another task than its own serves.
#[derive(Debug)]
struct Handover {
    socket: Socket,
    /// The sender whose drop tells the task that has handed the connection over that it has ended.
    _ended: oneshot::Sender<()>,
}

impl ViewerTasks {
    /// Hands a push connection over to the task of the viewer that it names, and waits until it has
    /// ended. Returns false if no such viewer is connected.
    pub(super) async fn hand_over(&self, socket: Socket, viewer: ViewerId) -> bool {
        let Some(slot) = self.0.lock().get(&viewer).cloned() else {
            return false;
        };
        let (ended, end) = oneshot::channel();
        // A push connection that was not taken yet is replaced, and so closed.
        *slot.pending.lock() = Some(Handover {
            socket,
            _ended: ended,
        });
        slot.is_filled.notify_one();
        // Not kept: if the task of the viewer ends, the last reference closes the connection.
        drop(slot);
        let _ = end.await;
        true
    }
}

/// The push connection of one viewer, owned by its command connection. It may be absent, and may be
/// replaced.
#[derive(Debug)]
pub(super) struct PushConnection {
    viewers: Arc<ViewerTasks>,
    /// The id under which the task is listed in `viewers`.
    viewer: Option<ViewerId>,
    slot: Arc<HandoverSlot>,
    connection: Option<Handover>,
    beacon_interest: BeaconInterestReader,
    input: InputRate,
    /// Notifications that have been encoded and not sent.
    unsent: BytesMut,
    /// Time at which bytes were last sent.
    last_sent: Instant,
}

impl PushConnection {
    /// The push connection of a viewer that has none yet.
    pub(super) fn new(viewers: Arc<ViewerTasks>) -> Self {
        Self {
            viewers,
            viewer: None,
            slot: Arc::default(),
            connection: None,
            beacon_interest: BeaconInterestReader::default(),
            input: InputRate::new(Instant::now()),
            unsent: BytesMut::new(),
            last_sent: Instant::now(),
        }
    }

    /// Lists the task under this id. To be called before the viewer is sent the id.
    pub(super) fn set_viewer(&mut self, viewer: Option<ViewerId>) {
        // Id 0 means that the viewer has none.
        let viewer = viewer.filter(|viewer| viewer.0 != 0);
        if viewer == self.viewer {
            return;
        }
        let mut viewers = self.viewers.0.lock();
        if let Some(old) = self.viewer.take() {
            viewers.remove(&old);
        }
        if let Some(viewer) = viewer
            // Ids are random: one that is in use is not taken from its viewer.
            && !viewers.contains_key(&viewer)
        {
            viewers.insert(viewer, Arc::clone(&self.slot));
            self.viewer = Some(viewer);
        }
    }

    /// Serves the push connection, and each one that replaces it. Never ends, and is cancel-safe.
    pub(super) async fn serve(&mut self, viewer: &mut Connection<View>, view: &View) -> Infallible {
        loop {
            // Reads of a socket that is ready do not use up tokio's task budget: a viewer that
            // never stops sending would keep this loop from ever yielding.
            tokio::task::consume_budget().await;
            if let Err(error) = self.exchange(viewer, view) {
                debug!(%error, "push connection ended");
                self.connection = None;
                viewer.unsubscribe(view);
            }
            let Some(Handover { socket, .. }) = &self.connection else {
                self.slot.is_filled.notified().await;
                self.accept_handover(viewer, view);
                continue;
            };
            let is_full = !self.unsent.is_empty() || socket.has_unsent();
            let interest = if is_full {
                Interest::READABLE | Interest::WRITABLE
            } else {
                Interest::READABLE
            };
            tokio::select! {
                () = self.slot.is_filled.notified() => self.accept_handover(viewer, view),
                // The next turn of the loop reads and writes.
                _ = socket.ready(interest) => {}
                () = view.changes().changed(), if !is_full => {
                    // So that changes in quick succession are sent together.
                    tokio::time::sleep_until(self.last_sent + PUSH_INTERVAL).await;
                }
                () = tokio::time::sleep(ROTATION_POLL_INTERVAL), if !is_full && viewer.awaits_rotation() => {}
            }
        }
    }

    fn accept_handover(&mut self, viewer: &mut Connection<View>, view: &View) {
        let Some(handover) = self.slot.pending.lock().take() else {
            return;
        };
        let Handover { socket, .. } = &handover;
        // A failure only means that more stale notifications are buffered by the system.
        let _ = socket
            .tcp()
            .map(|socket| sockopt::set_socket_send_buffer_size(socket, PUSHED_BUFFER));
        // The newest connection replaces the one before: the viewer may have lost that without our
        // knowing.
        self.connection = Some(handover);
        self.beacon_interest = BeaconInterestReader::default();
        self.input = InputRate::new(Instant::now());
        self.unsent.clear();
        write_greeting(&mut self.unsent);
        viewer.subscribe(view);
    }

    /// Reads whether the viewer wants beacons, and sends notifications until there are none or the
    /// socket is full.
    fn exchange(&mut self, viewer: &mut Connection<View>, view: &View) -> io::Result<()> {
        let Some(Handover { socket, .. }) = &mut self.connection else {
            return Ok(());
        };
        if socket.has_unsent() {
            match socket.try_flush() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                flushed => flushed?,
            }
        }
        // The rest is read by the next call, which follows at once.
        let mut input = [0; INPUT_BYTES];
        match socket.try_read(&mut input) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => {
                if !self.input.allow(read, Instant::now()) {
                    return Err(io::Error::other("too much input from the viewer"));
                }
                let input = input.get(..read).unwrap_or_default();
                let received = self.beacon_interest.extend(input);
                if let Some(beacon_interest) = received.map_err(io::Error::other)? {
                    viewer.set_beacon_interest(beacon_interest, view);
                }
            }
            // Interrupted: others run first; the socket stays ready.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) => {}
            Err(error) => return Err(error),
        }
        // Taken once: changes that happen meanwhile wait for the next call. Otherwise this loop
        // would not end while producers are faster than the viewer.
        for change in view.changes().take_changes() {
            viewer.record_change(change);
        }
        loop {
            if self.unsent.is_empty() {
                viewer.write_notifications(PUSHED_BYTES, &mut self.unsent);
            }
            if self.unsent.is_empty() {
                // Frees the buffer: most of the time there are no notifications.
                self.unsent = BytesMut::new();
                return Ok(());
            }
            match socket.try_write(&self.unsent) {
                Ok(sent) => {
                    self.unsent.advance(sent);
                    self.last_sent = Instant::now();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
}

/// Rate limit of what a viewer sends on its push connection: [`MAX_PUSH_INPUT`] bytes in each
/// [`PUSH_INPUT_INTERVAL`].
#[derive(Debug)]
struct InputRate {
    /// Begin of the current interval.
    begun: Instant,
    /// Bytes received in the current interval.
    bytes: usize,
}

impl InputRate {
    fn new(now: Instant) -> Self {
        let (begun, bytes) = (now, 0);
        Self { begun, bytes }
    }

    /// Counts received bytes. Returns whether the limit is kept.
    fn allow(&mut self, bytes: usize, now: Instant) -> bool {
        if now.saturating_duration_since(self.begun) >= PUSH_INPUT_INTERVAL {
            *self = Self::new(now);
        }
        self.bytes += bytes;
        self.bytes <= MAX_PUSH_INPUT
    }
}

impl Drop for PushConnection {
    fn drop(&mut self) {
        self.set_viewer(None);
    }
}
