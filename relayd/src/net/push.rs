//! Push connections: each is served by the task of the command connection that it names, which knows
//! what its viewer has not heard of. It is written to when there is room, and never waited for.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use bytes::{Buf, BytesMut};
use parking_lot::Mutex;
use rustix::net::sockopt;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;
use tracing::debug;
use viewer_proto::beacon_interest::BeaconInterestReader;
use viewer_proto::push::welcome;
use viewer_proto::server::Connection;
use wire::ViewerId;

use crate::limits::{
    MAX_PUSH_INPUT, PUSH_INPUT_INTERVAL, PUSH_INTERVAL, PUSHED_BUFFER, PUSHED_BYTES,
    ROTATION_POLL_INTERVAL,
};
use crate::live::View;

/// Room for what viewers say on push connections: a few bytes at a time.
const HEARD_BYTES: usize = 64;

/// The viewers that can be named.
#[derive(Debug, Default)]
pub(super) struct Viewers(Mutex<HashMap<ViewerId, Arc<WorkerId>>>);

/// Where a viewer's task finds a push connection that names it.
#[derive(Debug, Default)]
struct WorkerId {
    coming: Mutex<Option<Handover>>,
    has_come: Notify,
}

/// A push connection on its way to the task that is to serve it.
#[derive(Debug)]
struct Handover {
    socket: TcpStream,
    /// Dropped when it has ended.
    _ended: oneshot::Sender<()>,
}

impl Viewers {
    /// Hands a push connection over to the viewer that it names, and waits until it has ended. Gives
    /// whether there is such a viewer.
    pub(super) async fn hand_over(&self, socket: TcpStream, viewer: ViewerId) -> bool {
        let Some(to) = self.0.lock().get(&viewer).cloned() else {
            return false;
        };
        let (ended, end) = oneshot::channel();
        // One that has come just before, and was not taken yet, is closed.
        *to.coming.lock() = Some(Handover {
            socket,
            _ended: ended,
        });
        to.has_come.notify_one();
        drop(to);
        let _ = end.await;
        true
    }
}

/// A viewer's push connection, or the place for one.
#[derive(Debug)]
pub(super) struct Push {
    viewers: Arc<Viewers>,
    /// The number by which it can be named.
    viewer: Option<ViewerId>,
    worker_id: Arc<WorkerId>,
    connection: Option<Handover>,
    /// What the viewer says on it.
    beacon_interest: BeaconInterestReader,
    input: InputRate,
    /// What has been said and not been sent.
    said: BytesMut,
    /// When something was sent last.
    sent: Instant,
}

impl Push {
    /// The place for one.
    pub(super) fn new(viewers: Arc<Viewers>) -> Self {
        Self {
            viewers,
            viewer: None,
            worker_id: Arc::default(),
            connection: None,
            beacon_interest: BeaconInterestReader::default(),
            input: InputRate::new(Instant::now()),
            said: BytesMut::new(),
            sent: Instant::now(),
        }
    }

    /// The viewer can be named by this number. To be called before it is told.
    pub(super) fn set_viewer(&mut self, viewer: Option<ViewerId>) {
        // 0 is nobody.
        let viewer = viewer.filter(|viewer| viewer.0 != 0);
        if viewer == self.viewer {
            return;
        }
        let mut viewers = self.viewers.0.lock();
        if let Some(old) = self.viewer.take() {
            viewers.remove(&old);
        }
        if let Some(viewer) = viewer
            && !viewers.contains_key(&viewer)
        {
            viewers.insert(viewer, Arc::clone(&self.worker_id));
            self.viewer = Some(viewer);
        }
    }

    /// Serves it, and the one that comes in its place. Never ends, and may be dropped at any time.
    pub(super) async fn serve(&mut self, viewer: &mut Connection<View>, view: &View) -> Infallible {
        loop {
            // A socket that is ready does not use up the task's budget: a viewer that never stops
            // sending would keep this loop from ever giving way.
            tokio::task::consume_budget().await;
            if let Err(error) = self.speak(viewer, view) {
                debug!(%error, "push connection ended");
                self.connection = None;
                viewer.unsubscribe(view);
            }
            let Some(Handover { socket, .. }) = &self.connection else {
                self.worker_id.has_come.notified().await;
                self.begin(viewer, view);
                continue;
            };
            let is_full = !self.said.is_empty();
            let interest = if is_full {
                Interest::READABLE | Interest::WRITABLE
            } else {
                Interest::READABLE
            };
            tokio::select! {
                () = self.worker_id.has_come.notified() => self.begin(viewer, view),
                // The next attempt to read or write says what there is.
                _ = socket.ready(interest) => {}
                () = view.changes().changed(), if !is_full => {
                    tokio::time::sleep_until(self.sent + PUSH_INTERVAL).await;
                }
                () = tokio::time::sleep(ROTATION_POLL_INTERVAL), if !is_full && viewer.awaits_rotation() => {}
            }
        }
    }

    fn begin(&mut self, viewer: &mut Connection<View>, view: &View) {
        let Some(coming) = self.worker_id.coming.lock().take() else {
            return;
        };
        let Handover { socket, .. } = &coming;
        // If it cannot be set, it is as large as any.
        let _ = sockopt::set_socket_send_buffer_size(socket, PUSHED_BUFFER);
        // The viewer may have lost the last one without our knowing: the newest counts.
        self.connection = Some(coming);
        self.beacon_interest = BeaconInterestReader::default();
        self.input = InputRate::new(Instant::now());
        self.said.clear();
        welcome(&mut self.said);
        viewer.subscribe(view);
    }

    /// Hears whether the viewer waits for beacons. Says what there is to say, as long as the viewer
    /// takes it.
    fn speak(&mut self, viewer: &mut Connection<View>, view: &View) -> io::Result<()> {
        let Some(Handover { socket, .. }) = &self.connection else {
            return Ok(());
        };
        // What is left is read the next time, which is at once.
        let mut heard = [0; HEARD_BYTES];
        match socket.try_read(&mut heard) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => {
                if !self.input.allow(read, Instant::now()) {
                    return Err(io::Error::other("the viewer sends too much"));
                }
                let heard = self
                    .beacon_interest
                    .extend(heard.get(..read).unwrap_or_default());
                if let Some(beacon_interest) = heard.map_err(io::Error::other)? {
                    viewer.set_beacon_interest(beacon_interest, view);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        // Looked for once: what changes meanwhile is said the next time, or this would go on for as long
        // as producers are faster than the viewer.
        for change in view.changes().take_changes() {
            viewer.changed(change);
        }
        loop {
            if self.said.is_empty() {
                viewer.notify(PUSHED_BYTES, &mut self.said);
            }
            if self.said.is_empty() {
                // Most of the time there is nothing to say.
                self.said = BytesMut::new();
                return Ok(());
            }
            match socket.try_write(&self.said) {
                Ok(sent) => {
                    self.said.advance(sent);
                    self.sent = Instant::now();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
}

/// How much a viewer has sent on its push connection of late.
#[derive(Debug)]
struct InputRate {
    /// Begin of the interval that is counted.
    begun: Instant,
    /// Bytes since then.
    bytes: usize,
}

impl InputRate {
    fn new(now: Instant) -> Self {
        let (begun, bytes) = (now, 0);
        Self { begun, bytes }
    }

    /// Counts what has come. Gives whether that is no more than may come in an interval.
    fn allow(&mut self, bytes: usize, now: Instant) -> bool {
        if now.saturating_duration_since(self.begun) >= PUSH_INPUT_INTERVAL {
            *self = Self::new(now);
        }
        self.bytes += bytes;
        self.bytes <= MAX_PUSH_INPUT
    }
}

impl Drop for Push {
    fn drop(&mut self) {
        self.set_viewer(None);
    }
}
