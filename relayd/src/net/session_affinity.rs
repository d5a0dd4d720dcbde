//! Session affinity: all connections of a session are served by the worker that its control connection was
//! given to. The first packet of a data connection tells its session; the connection then moves to that
//! worker, so that a packet and its index meet without a thread waiting for another.

use std::collections::HashMap;

use parking_lot::Mutex;
use wire::SessionId;

use super::worker_pool::{WorkerId, WorkerPool};

/// Where the sessions are served whose producers are connected.
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

    /// A session is served there.
    pub(super) fn add(&self, session: SessionId, worker_id: WorkerId) {
        self.sessions.lock().insert(session, worker_id);
    }

    /// Its producer is gone.
    pub(super) fn remove(&self, session: SessionId) {
        self.sessions.lock().remove(&session);
    }

    /// Where a session is served.
    pub(super) fn of(&self, session: SessionId) -> Option<WorkerId> {
        self.sessions.lock().get(&session).copied()
    }
}
