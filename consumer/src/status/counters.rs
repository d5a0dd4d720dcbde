//! What is counted of each session, by the task that takes it to a relay.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

/// All sessions of a process.
#[derive(Debug, Clone, Default)]
pub struct Board(Arc<Mutex<Sessions>>);

#[derive(Debug, Default)]
struct Sessions {
    open: Vec<Arc<Counters>>,
    ended: Ended,
}

/// Sessions that have ended, together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// How many.
    pub sessions: u64,
    /// Their packets that a relay has acknowledged.
    pub acknowledged: u64,
    /// Their packets that were given up.
    pub lost: u64,
}

/// One session.
#[derive(Debug)]
pub struct Counters {
    /// As viewers ask for it.
    pub name: String,
    /// The traced host.
    pub host: String,
    state: Mutex<State>,
    /// Packets that wait to be sent or acknowledged.
    pub queued_packets: Count,
    /// Their bytes.
    pub queued_bytes: Count,
    /// Packets that were sent; one that was sent again counts again.
    pub sent: Count,
    /// Packets that a relay has: data and index.
    pub acknowledged: Count,
    /// Their bytes, without padding.
    pub acknowledged_bytes: Count,
    /// Packets that were given up.
    pub lost: Count,
    /// How often a relay was found again.
    pub reconnects: Count,
}

/// A number that one task changes and others read.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

/// How a session stands with its relay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "state")]
pub enum State {
    /// It is being connected.
    Connecting,
    /// The relay takes it.
    Connected {
        /// Where its trace lies, below the relay's output.
        path: String,
    },
    /// The relay is away, or refuses.
    Waiting {
        /// What it said last.
        why: String,
    },
}

impl Count {
    /// As it stands.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// So many more.
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// So many fewer.
    pub fn take(&self, fewer: u64) {
        self.0.fetch_sub(fewer, Ordering::Relaxed);
    }
}

impl Counters {
    /// Of a session that is being connected.
    #[must_use]
    pub fn new(name: &str, host: &str) -> Self {
        Self {
            name: name.to_owned(),
            host: host.to_owned(),
            state: Mutex::new(State::Connecting),
            queued_packets: Count::default(),
            queued_bytes: Count::default(),
            sent: Count::default(),
            acknowledged: Count::default(),
            acknowledged_bytes: Count::default(),
            lost: Count::default(),
            reconnects: Count::default(),
        }
    }

    /// How it stands with its relay.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Notes how it stands with its relay.
    pub fn set_state(&self, state: State) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }
}

impl Board {
    /// A session has been opened.
    #[must_use]
    pub fn open(&self, name: &str, host: &str) -> Arc<Counters> {
        let counters = Arc::new(Counters::new(name, host));
        self.lock().open.push(Arc::clone(&counters));
        counters
    }

    /// A session has ended.
    pub fn close(&self, counters: &Arc<Counters>) {
        let mut sessions = self.lock();
        sessions.open.retain(|open| !Arc::ptr_eq(open, counters));
        let ended = &mut sessions.ended;
        ended.sessions += 1;
        ended.acknowledged += counters.acknowledged.get();
        ended.lost += counters.lost.get();
    }

    /// The sessions that are open, and what became of the others.
    #[must_use]
    pub fn sessions(&self) -> (Vec<Arc<Counters>>, Ended) {
        let sessions = self.lock();
        (sessions.open.clone(), sessions.ended)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Sessions> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
