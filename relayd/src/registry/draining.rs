//! Draining: before maintenance, producers that can resume their sessions are sent away, so that
//! they go on at another relay.
//!
//! No command of the protocol says so: their connections are closed, which makes a producer with a
//! list of relays go to the next one. One that comes back has no other relay, and is served.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;
use tracing::info;

use super::Registry;
use super::recording::RecordingKey;
use super::session::Session;
use crate::limits::MAX_TURNED_AWAY;

/// The producers' sessions that were sent away. None: the relay does not drain.
#[derive(Debug, Default)]
pub(super) struct TurnedAway(Mutex<Option<HashSet<RecordingKey>>>);

/// The sessions that a relay which drains still has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DrainingSessions {
    /// Sessions that end with their connection, such as those of LTTng: their producers cannot go
    /// to another relay.
    pub fixed: usize,
    /// Sessions whose producers have come back, because they have no other relay.
    pub returned: usize,
}

impl TurnedAway {
    /// Begins to turn away all sessions but those that are sent away already.
    fn begin(&self, sent_away: HashSet<RecordingKey>) {
        *self.0.lock() = Some(sent_away);
    }

    /// Whether a session that is to be opened here is turned away: once.
    pub(super) fn turn_away(&self, key: RecordingKey) -> bool {
        let mut turned_away = self.0.lock();
        let room = |keys: &&mut HashSet<_>| keys.len() < MAX_TURNED_AWAY;
        let turned_away = turned_away.as_mut().filter(room);
        turned_away.is_some_and(|keys| keys.insert(key))
    }

    fn is_begun(&self) -> bool {
        self.0.lock().is_some()
    }
}

impl Registry {
    /// Sends the producers of all resumable sessions away, and from now on those that open one.
    /// Those that had come back before are sent away again.
    pub fn drain(&self) {
        // Locked while both are done: no session is opened between.
        let sessions = self.resumable.lock_sessions();
        self.turned_away.begin(sessions.keys().copied().collect());
        let attached = sessions.values().filter(|session| !session.is_detached());
        let attached: Vec<Arc<Session>> = attached.cloned().collect();
        drop(sessions);
        attached
            .iter()
            .for_each(|session| session.connections().cancel());
        let sessions = attached.len();
        info!(sessions, "draining: producers are sent to another relay");
    }

    /// Whether the relay drains.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.turned_away.is_begun()
    }

    /// The sessions that are left. None: the relay does not drain.
    #[must_use]
    pub fn draining_sessions(&self) -> Option<DrainingSessions> {
        if !self.is_draining() {
            return None;
        }
        let sessions = self.sessions();
        let (resumable, fixed): (Vec<_>, Vec<_>) =
            sessions.iter().partition(|session| session.is_resumable());
        Some(DrainingSessions {
            fixed: fixed.len() + self.lingering().len(),
            returned: resumable
                .iter()
                .filter(|session| !session.is_detached())
                .count(),
        })
    }
}
