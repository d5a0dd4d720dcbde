//! One worker: a thread with an event loop of its own. A request for a heartbeat also makes it take
//! its new connections: those that it has not taken can still be given to another worker.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;

use parking_lot::Mutex;
use tokio::runtime::{Handle, Runtime, RuntimeFlavor};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::limits::MAX_MISSED_HEARTBEATS;

/// Index of a worker in its pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WorkerId(pub(super) usize);

/// Starts to serve a new connection. Called on the worker that serves it.
pub(super) type Job = Box<dyn FnOnce(&Arc<Worker>) + Send>;

/// The handle of a worker, shared with the threads that assign connections and monitor it.
#[derive(Debug)]
pub(super) struct Worker {
    worker_id: WorkerId,
    handle: Handle,
    inbox: Mutex<Inbox>,
    wake: Notify,
    /// Sessions that the worker serves.
    sessions: AtomicUsize,
    /// Heartbeats requested since the worker last ran.
    missed_heartbeats: AtomicU32,
    /// Whether it has been logged that the worker does not respond.
    is_reported: AtomicBool,
}

/// A session of a worker, until it is dropped.
#[derive(Debug)]
pub(super) struct CountedSession(Arc<Worker>);

impl Drop for CountedSession {
    fn drop(&mut self) {
        self.0.sessions.fetch_sub(1, Ordering::Relaxed);
    }
}

/// New connections that the worker has not taken.
#[derive(Default)]
struct Inbox(Vec<Job>);

impl std::fmt::Debug for Inbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Inbox").field(&self.0.len()).finish()
    }
}

impl Worker {
    /// Starts the worker's thread, which holds `alive` until it ends, after `stop` is cancelled.
    pub(super) fn start(
        name: &str,
        worker_id: WorkerId,
        runtime: Runtime,
        stop: CancellationToken,
        alive: Sender<()>,
    ) -> io::Result<Arc<Self>> {
        let worker = Arc::new(Self {
            worker_id,
            handle: runtime.handle().clone(),
            inbox: Mutex::default(),
            wake: Notify::new(),
            sessions: AtomicUsize::new(0),
            missed_heartbeats: AtomicU32::new(0),
            is_reported: AtomicBool::new(false),
        });
        let own = Arc::clone(&worker);
        std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                let serving = own.serve(stop);
                if runtime.handle().runtime_flavor() == RuntimeFlavor::CurrentThread {
                    // The runtime polls this future regularly, however many tasks there are.
                    runtime.block_on(serving);
                } else {
                    // As a task, because its heartbeat must show that tasks run.
                    let _ = runtime.block_on(runtime.spawn(serving));
                }
                // The owner waits for `alive`: by then all tasks of the runtime have been dropped.
                drop(runtime);
                drop(alive);
            })?;
        Ok(worker)
    }

    async fn serve(self: Arc<Self>, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = self.wake.notified() => {}
                () = stop.cancelled() => return,
            }
            self.missed_heartbeats.store(0, Ordering::Relaxed);
            for job in self.take_jobs() {
                job(&self);
            }
        }
    }

    /// The handle that spawns tasks on this worker.
    pub(super) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Index of the worker in its pool.
    pub(super) fn worker_id(&self) -> WorkerId {
        self.worker_id
    }

    /// Counts a session of this worker.
    pub(super) fn count_session(self: &Arc<Self>) -> CountedSession {
        self.sessions.fetch_add(1, Ordering::Relaxed);
        CountedSession(Arc::clone(self))
    }

    /// Number of sessions that the worker serves, and of connections that it has not taken.
    pub(super) fn sessions(&self) -> usize {
        self.sessions.load(Ordering::Relaxed) + self.inbox.lock().0.len()
    }

    /// Assigns a new connection to the worker.
    pub(super) fn assign(&self, job: Job) {
        self.inbox.lock().0.push(job);
        self.wake.notify_one();
    }

    /// Removes the new connections that the worker has not taken.
    pub(super) fn take_jobs(&self) -> Vec<Job> {
        std::mem::take(&mut self.inbox.lock().0)
    }

    /// Heartbeats requested since the worker last ran.
    pub(super) fn missed_heartbeats(&self) -> u32 {
        self.missed_heartbeats.load(Ordering::Relaxed)
    }

    /// Whether the worker has missed fewer than [`MAX_MISSED_HEARTBEATS`] heartbeats.
    pub(super) fn is_responsive(&self) -> bool {
        self.missed_heartbeats() < MAX_MISSED_HEARTBEATS
    }

    /// Whether some thread of the worker waits for events, and would run a task at once.
    pub(super) fn is_parked(&self) -> bool {
        let metrics = self.handle.metrics();
        // The count is odd while the thread is parked.
        let is_parked = |thread| metrics.worker_park_unpark_count(thread) % 2 == 1;
        (0..metrics.num_workers()).any(is_parked)
    }

    /// Requests a heartbeat, unless the worker is parked, which shows as much. Logs when the worker
    /// stops responding, and when it responds again.
    pub(super) fn request_heartbeat(&self) {
        let is_parked = self.is_parked();
        if is_parked {
            self.missed_heartbeats.store(0, Ordering::Relaxed);
        }
        let is_reported = self.is_reported.load(Ordering::Relaxed);
        let is_responsive = self.is_responsive();
        if is_responsive && is_reported {
            info!(worker = self.worker_id.0, "worker responds again");
        } else if !is_responsive && !is_reported {
            warn!(
                worker = self.worker_id.0,
                "worker does not respond: probably a file call hangs; its sessions wait, new connections go to other workers"
            );
        }
        self.is_reported.store(!is_responsive, Ordering::Relaxed);
        if !is_parked {
            self.missed_heartbeats.fetch_add(1, Ordering::Relaxed);
            self.wake.notify_one();
        }
    }
}
