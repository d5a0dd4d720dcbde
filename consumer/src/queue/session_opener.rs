//! The opening of sessions: a channel of opened sessions from the frontends to the uplink.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::sync::{Semaphore, mpsc};
use uuid::Uuid;

use super::activity::Activity;
use super::channel::{QueueCapacity, SessionClosed, SessionReceiver, SessionSender, step_channel};
use super::step::{SessionDescription, SessionIdentity};

/// Opens sessions, which the uplink sends to a relay.
#[derive(Debug, Clone)]
pub struct SessionOpener {
    opened: mpsc::UnboundedSender<OpenedSession>,
    capacity: QueueCapacity,
    shared: Arc<Semaphore>,
    /// Id of this process, random.
    producer: [u8; 16],
    next_id: Arc<AtomicU64>,
    activity: Activity,
}

/// A session that a frontend has opened, as the uplink receives it.
#[derive(Debug)]
pub struct OpenedSession {
    /// The properties of the session.
    pub description: SessionDescription,
    /// What identifies the session at the relay.
    pub identity: SessionIdentity,
    /// The receiving end of the session's queue.
    pub steps: SessionReceiver,
}

/// Makes the channel of opened sessions: the opener for frontends, and the receiver for the uplink.
#[must_use]
pub fn session_channel(
    capacity: QueueCapacity,
) -> (SessionOpener, mpsc::UnboundedReceiver<OpenedSession>) {
    let (opened, sessions) = mpsc::unbounded_channel();
    let shared = Arc::new(Semaphore::new(capacity.all_bytes as usize));
    let opener = SessionOpener {
        opened,
        capacity,
        shared,
        // Random, and not a process id or the name of the host: containers share both, and relays
        // resume a session by it.
        producer: Uuid::new_v4().into_bytes(),
        next_id: Arc::default(),
        activity: Activity::default(),
    };
    (opener, sessions)
}

impl SessionOpener {
    /// Returns the activity that all sessions of this opener share.
    pub(crate) fn activity(&self) -> Activity {
        self.activity.clone()
    }

    /// Opens a session.
    ///
    /// # Errors
    /// If the uplink has stopped.
    pub fn open_session(
        &self,
        description: SessionDescription,
    ) -> Result<SessionSender, SessionClosed> {
        let (sender, steps) = step_channel(self.capacity, Arc::clone(&self.shared));
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let identity = SessionIdentity {
            producer: self.producer,
            id: self.next_id.fetch_add(1, Ordering::Relaxed),
            // A clock before 1970 gives 0, which is as wrong as the clock.
            created: since.map_or(0, |since| since.as_secs()),
            is_recovered: false,
        };
        let session = OpenedSession {
            description,
            identity,
            steps,
        };
        self.opened.send(session).map_err(|_| SessionClosed)?;
        Ok(sender)
    }
}
