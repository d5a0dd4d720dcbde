//! The thread of the spool. It executes commands in order; those that have come in the meantime are
//! handled together, so that each file is written once for all of them (group commit).

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Instant;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tracing::{info, warn};

use super::SpoolSettings;
use super::disk::Disk;
use super::recover::recover;
use super::session::StoredSession;
use super::store::{Store, StoreKey};
use crate::limits::{ACKNOWLEDGED_RECORD_INTERVAL, SPOOL_RETRY_INTERVAL, SPOOL_SYNC_INTERVAL};
use crate::queue::{Permits, SessionDescription, SessionIdentity, SpoolSender, Step, StreamKey};
use crate::status::SpoolCounters;

/// Commands that are executed before the steps in them are written.
const MAX_COMMANDS_PER_TURN: usize = 1024;

/// What the thread is asked to do. The store has methods of these names.
#[derive(Debug)]
pub(super) enum Command {
    Open {
        key: StoreKey,
        description: SessionDescription,
        identity: SessionIdentity,
        sender: SpoolSender,
        requests: mpsc::UnboundedSender<usize>,
    },
    Append {
        key: StoreKey,
        steps: Vec<Step>,
        accepted: oneshot::Sender<bool>,
    },
    End(StoreKey),
    Acknowledge(StoreKey, BTreeMap<StreamKey, u64>),
    Forward(StoreKey, Permits),
    Detach(StoreKey),
    /// Told the number of packets that stay in the spool.
    Close(StoreKey, oneshot::Sender<u64>),
    Remove(StoreKey),
}

/// A session that an earlier process has left. It is opened by a command with its key.
#[derive(Debug)]
pub(super) struct RecoveredSession {
    pub(super) key: StoreKey,
    pub(super) description: SessionDescription,
    pub(super) identity: SessionIdentity,
}

/// The connections to the thread.
#[derive(Debug)]
pub(super) struct WorkerHandle {
    pub(super) commands: Sender<Command>,
    pub(super) recovered: mpsc::UnboundedReceiver<RecoveredSession>,
    pub(super) keys: StoreKeys,
}

/// Makes the keys of sessions.
#[derive(Debug, Clone, Default)]
pub(super) struct StoreKeys(Arc<AtomicU64>);

impl StoreKeys {
    pub(super) fn next_key(&self) -> StoreKey {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

/// Starts the thread. It ends when all senders of commands are dropped, and then releases the lock.
pub(super) fn start(
    disk: impl Disk,
    settings: &SpoolSettings,
    counters: Arc<SpoolCounters>,
    lock: File,
) -> (WorkerHandle, JoinHandle<()>) {
    let (commands, received) = channel();
    let (found, recovered) = mpsc::unbounded_channel();
    let keys = StoreKeys::default();
    let handle = WorkerHandle {
        commands,
        recovered,
        keys: keys.clone(),
    };
    let store = Store::new(disk, settings, Arc::clone(&counters));
    let worker = tokio::task::spawn_blocking(move || {
        let mut worker = Worker {
            store,
            unopened: BTreeMap::new(),
            keys,
            counters,
        };
        worker.recover(&found);
        // The dispatcher takes recovered sessions until this end of their channel is dropped.
        drop(found);
        worker.run(&received);
        // After the last write: from here on another consumer may use the directory.
        drop(lock);
    });
    (handle, worker)
}

struct Worker<D> {
    store: Store<D>,
    /// Recovered sessions that are not opened yet.
    unopened: BTreeMap<StoreKey, StoredSession>,
    keys: StoreKeys,
    counters: Arc<SpoolCounters>,
}

impl<D: Disk> Worker<D> {
    fn recover(&mut self, found: &mpsc::UnboundedSender<RecoveredSession>) {
        let recovered = match recover(&mut self.store.disk) {
            Ok(recovered) => recovered,
            Err(error) => {
                warn!(
                    "cannot read the sessions of earlier processes: {error}; they stay in the spool"
                );
                return;
            }
        };
        self.counters.quarantined.add(recovered.quarantined);
        let sessions = recovered.sessions.len();
        for stored in recovered.sessions {
            let key = self.keys.next_key();
            let session = RecoveredSession {
                key,
                description: stored.description.clone(),
                identity: stored.identity,
            };
            // New sessions must not fill the space that these files take.
            self.store.reserve(stored.bytes);
            self.counters.recovered.add(1);
            self.unopened.insert(key, stored);
            // Without a receiver, the process stops.
            let _ = found.send(session);
        }
        if sessions > 0 {
            let bytes = self.counters.bytes.get();
            info!(sessions, bytes, "recovered from the spool");
        }
    }

    fn run(&mut self, commands: &Receiver<Command>) {
        let mut has_more = false;
        let mut retried = Instant::now();
        let (mut synced, mut recorded) = (retried, retried);
        loop {
            let timeout = if has_more {
                std::time::Duration::ZERO
            } else {
                SPOOL_RETRY_INTERVAL
            };
            // Without an open session there is nothing to retry or sync, and an idle agent should
            // not wake up.
            let first = if has_more || !self.store.is_empty() {
                commands.recv_timeout(timeout)
            } else {
                commands.recv().map_err(|_| RecvTimeoutError::Disconnected)
            };
            match first {
                Ok(command) => {
                    self.execute(command);
                    // All these steps are then written with one write, and at most one sync, of
                    // each file.
                    for command in commands.try_iter().take(MAX_COMMANDS_PER_TURN) {
                        self.execute(command);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let now = Instant::now();
            if now - retried >= SPOOL_RETRY_INTERVAL {
                retried = now;
                self.store.retry();
            }
            self.store.write_waiting();
            has_more = self.store.read_readable();
            if now - synced >= SPOOL_SYNC_INTERVAL {
                synced = now;
                self.store.sync();
            }
            if now - recorded >= ACKNOWLEDGED_RECORD_INTERVAL {
                recorded = now;
                self.store.record_acknowledged();
            }
        }
    }

    fn execute(&mut self, command: Command) {
        let store = &mut self.store;
        match command {
            Command::Open {
                key,
                description,
                identity,
                sender,
                requests,
            } => {
                let stored = self.unopened.remove(&key);
                if let Some(stored) = &stored {
                    store.release_reservation(stored.bytes);
                }
                let stored = stored.unwrap_or_else(|| StoredSession::new(description, identity));
                store.open(key, stored, sender, requests);
            }
            Command::Append {
                key,
                steps,
                accepted,
            } => store.append(key, steps, accepted),
            Command::End(key) => store.end(key),
            Command::Acknowledge(key, positions) => store.acknowledge(key, positions),
            Command::Forward(key, permits) => store.forward(key, permits),
            Command::Detach(key) => store.detach(key),
            Command::Close(key, closed) => {
                // The last steps of the session may have come in this turn.
                store.write_waiting();
                // The task may be gone.
                let _ = closed.send(store.close(key));
            }
            Command::Remove(key) => store.remove(key),
        }
    }
}
