//! The counters and connection state of each session, updated by the task that sends it to a relay.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::counter::Counter;
use super::spool::SpoolCounters;

/// The counters of all open sessions of a process, and the totals of those that have ended.
#[derive(Debug, Clone, Default)]
pub struct StatusRegistry(Arc<Mutex<Sessions>>);

#[derive(Debug, Default)]
struct Sessions {
    open: Vec<Arc<SessionCounters>>,
    ended: EndedSessions,
    spool: Option<Arc<SpoolCounters>>,
}

/// Totals of the sessions that have ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedSessions {
    /// Number of sessions that have ended.
    pub sessions: u64,
    /// Packets of these sessions that a relay has acknowledged.
    pub acknowledged: u64,
    /// Packets of these sessions that were given up.
    pub lost: u64,
}

/// The counters of one session.
#[derive(Debug, Default)]
pub struct SessionCounters {
    /// Name of the session, as viewers see it.
    pub name: String,
    /// Name of the traced host.
    pub host: String,
    state: Mutex<ConnectionState>,
    /// When a relay has acknowledged the last packet, or the first of those was queued that it has
    /// not. Absent before the first connection.
    progress: Mutex<Option<Instant>>,
    /// Packets that are queued or sent, and not acknowledged yet.
    pub queued_packets: Counter,
    /// Size in bytes of the packets that are queued or sent, and not acknowledged yet.
    pub queued_bytes: Counter,
    /// Packets that were sent. A packet that is sent again counts again.
    pub sent: Counter,
    /// Packets that a relay has acknowledged: it has data and index.
    pub acknowledged: Counter,
    /// Size in bytes of the packets that a relay has acknowledged, without padding.
    pub acknowledged_bytes: Counter,
    /// Packets that were given up.
    pub lost: Counter,
    /// Packets that were given up because they were not delivered before their deadline
    /// (`--quic-deadline`).
    pub abandoned: Counter,
    /// Number of reconnects to a relay.
    pub reconnects: Counter,
}

/// State of a session's connection to its relay.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "state")]
pub enum ConnectionState {
    /// The first connection is being made.
    #[default]
    Connecting,
    /// A relay has opened the session.
    Connected {
        /// Path of the trace below the output directory of the relay.
        path: String,
        /// URL of the relay, and its address if the URL has a name. Empty in the status of agents
        /// that are older than lists of relays.
        #[serde(default)]
        relay: String,
        /// Time of the connection in UTC, as RFC 3339 writes it; empty where `relay` is.
        #[serde(default)]
        since: String,
    },
    /// The connection has failed, and is made again after a delay.
    Waiting {
        /// The last failure, as messages show it.
        why: String,
    },
}

impl SessionCounters {
    /// Makes the counters of a session that is being connected.
    #[must_use]
    pub fn new(name: &str, host: &str) -> Self {
        Self {
            name: name.to_owned(),
            host: host.to_owned(),
            ..Self::default()
        }
    }

    /// Returns the state of the connection to the relay.
    #[must_use]
    pub fn connection_state(&self) -> ConnectionState {
        self.state.lock().clone()
    }

    /// Records that a packet was acknowledged, or queued while none was.
    pub fn record_progress(&self, now: Instant) {
        *self.progress.lock() = Some(now);
    }

    /// Returns for how long a relay has acknowledged nothing while packets were queued. Zero if
    /// none are.
    #[must_use]
    pub fn unacknowledged_for(&self, now: Instant) -> Duration {
        match *self.progress.lock() {
            Some(last) if self.queued_packets.get() > 0 => now.saturating_duration_since(last),
            _ => Duration::ZERO,
        }
    }

    /// Sets the state of the connection to the relay.
    pub fn set_connection_state(&self, state: ConnectionState) {
        *self.state.lock() = state;
    }
}

impl StatusRegistry {
    /// Adds a session that has been opened.
    #[must_use]
    pub fn add_session(&self, name: &str, host: &str) -> Arc<SessionCounters> {
        let counters = Arc::new(SessionCounters::new(name, host));
        self.0.lock().open.push(Arc::clone(&counters));
        counters
    }

    /// Removes a session that has ended, and adds it to the totals.
    pub fn end_session(&self, counters: &Arc<SessionCounters>) {
        let mut sessions = self.0.lock();
        sessions.open.retain(|open| !Arc::ptr_eq(open, counters));
        let ended = &mut sessions.ended;
        ended.sessions += 1;
        ended.acknowledged += counters.acknowledged.get();
        ended.lost += counters.lost.get();
    }

    /// Adds the counters of the process's spool.
    #[must_use]
    pub fn add_spool(&self) -> Arc<SpoolCounters> {
        let counters = Arc::<SpoolCounters>::default();
        self.0.lock().spool = Some(Arc::clone(&counters));
        counters
    }

    /// Returns the counters of the spool; none if the process has no spool.
    #[must_use]
    pub fn spool(&self) -> Option<Arc<SpoolCounters>> {
        self.0.lock().spool.clone()
    }

    /// Returns the counters of the open sessions, and the totals of the others.
    #[must_use]
    pub fn sessions(&self) -> (Vec<Arc<SessionCounters>>, EndedSessions) {
        let sessions = self.0.lock();
        (sessions.open.clone(), sessions.ended)
    }
}
