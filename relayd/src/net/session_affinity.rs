//! Session affinity: all connections of a session are served by the worker that its control
//! connection was assigned to, so that a packet and its index meet without one thread waiting for
//! another.
//!
//! It engages once per data connection: the first packet names the session, and the connection then
//! moves to the session's worker. It costs one lookup for that move, and one map entry per session;
//! nothing while packets pass or connections are idle.

use std::collections::HashMap;

use parking_lot::Mutex;
use wire::SessionId;

use super::worker::WorkerId;
use super::worker_pool::WorkerPool;

/// The workers of all sessions whose control connection is open.
#[derive(Debug)]
pub(super) struct SessionAffinity {
    pool: WorkerPool,
    sessions: Mutex<HashMap<SessionId, WorkerId>>,
}

impl SessionAffinity {
    pub(super) fn new(pool: WorkerPool) -> Self {
        let sessions = Mutex::default();
        Self { pool, sessions }
    }

    pub(super) fn pool(&self) -> &WorkerPool {
        &self.pool
    }

    /// Assigns a session to the worker of its control connection.
    pub(super) fn add(&self, session: SessionId, worker_id: WorkerId) {
        self.sessions.lock().insert(session, worker_id);
    }

    /// Removes a session whose control connection on this worker has ended, unless it has another.
    pub(super) fn remove(&self, session: SessionId, worker_id: WorkerId) {
        let mut sessions = self.sessions.lock();
        if sessions.get(&session) == Some(&worker_id) {
            sessions.remove(&session);
        }
    }

    /// The worker of a session. None if its control connection has ended.
    pub(super) fn of(&self, session: SessionId) -> Option<WorkerId> {
        self.sessions.lock().get(&session).copied()
    }
}
