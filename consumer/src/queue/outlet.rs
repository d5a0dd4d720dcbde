//! Where sessions are opened.

use std::sync::Arc;

use tokio::sync::{Semaphore, mpsc};

use super::channel::{Gone, SessionReceiver, SessionSender, channel};
use super::step::SessionDescription;

/// How many bytes may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// In one session.
    pub session: u32,
    /// In all.
    pub all: u32,
}

/// Opens sessions; the uplink takes each of them to a relay.
#[derive(Debug, Clone)]
pub struct Outlet {
    opened: mpsc::UnboundedSender<OpenedSession>,
    room: Room,
    shared: Arc<Semaphore>,
}

/// A session that has been opened.
#[derive(Debug)]
pub struct OpenedSession {
    /// What it is.
    pub description: SessionDescription,
    /// What happens in it.
    pub steps: SessionReceiver,
}

/// An outlet, and what it is the outlet of: all sessions as they are opened.
#[must_use]
pub fn outlet(room: Room) -> (Outlet, mpsc::UnboundedReceiver<OpenedSession>) {
    let (opened, sessions) = mpsc::unbounded_channel();
    let shared = Arc::new(Semaphore::new(room.all as usize));
    let outlet = Outlet {
        opened,
        room,
        shared,
    };
    (outlet, sessions)
}

impl Outlet {
    /// Opens a session.
    ///
    /// # Errors
    /// If the uplink has stopped.
    pub fn open(&self, description: SessionDescription) -> Result<SessionSender, Gone> {
        let (sender, steps) = channel(self.room, Arc::clone(&self.shared));
        let session = OpenedSession { description, steps };
        self.opened.send(session).map_err(|_| Gone)?;
        Ok(sender)
    }
}
