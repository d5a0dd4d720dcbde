//! One worker: a thread with an event loop of its own. It answers when it is asked for a heartbeat, and
//! takes new connections at the same time: those that it has not taken can still go to another.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::Sender;

use parking_lot::Mutex;
use tokio::runtime::{Handle, Runtime, RuntimeFlavor};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::worker_pool::WorkerId;
use crate::limits::MAX_MISSED_HEARTBEATS;

/// What begins to serve a new connection. Called on the worker that takes it.
pub(super) type Job = Box<dyn FnOnce(WorkerId) + Send>;

/// A worker, as other threads see it.
#[derive(Debug)]
pub(super) struct Worker {
    worker_id: WorkerId,
    handle: Handle,
    inbox: Mutex<Inbox>,
    wake: Notify,
    /// Heartbeats that it has been asked for since it gave the last.
    missed: AtomicU32,
    /// It has been logged that it does not respond.
    is_reported: AtomicBool,
}

/// New connections that it has not taken.
#[derive(Default)]
struct Inbox(Vec<Job>);

impl std::fmt::Debug for Inbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Inbox").field(&self.0.len()).finish()
    }
}

impl Worker {
    /// Starts its thread, which holds `alive` as long as it runs.
    pub(super) fn start(
        name: &str,
        worker_id: WorkerId,
        runtime: Runtime,
        end: CancellationToken,
        alive: Sender<()>,
    ) -> io::Result<Arc<Self>> {
        let worker = Arc::new(Self {
            worker_id,
            handle: runtime.handle().clone(),
            inbox: Mutex::default(),
            wake: Notify::new(),
            missed: AtomicU32::new(0),
            is_reported: AtomicBool::new(false),
        });
        let own = Arc::clone(&worker);
        std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                let serving = own.serve(end);
                if runtime.handle().runtime_flavor() == RuntimeFlavor::CurrentThread {
                    // Here it has its turn however many tasks there are.
                    runtime.block_on(serving);
                } else {
                    // On a thread that tasks run on, since it is to tell how those are.
                    let _ = runtime.block_on(runtime.spawn(serving));
                }
                drop(runtime);
                drop(alive);
            })?;
        Ok(worker)
    }

    async fn serve(self: Arc<Self>, end: CancellationToken) {
        loop {
            tokio::select! {
                () = self.wake.notified() => {}
                () = end.cancelled() => return,
            }
            self.missed.store(0, Ordering::Relaxed);
            for job in self.take_jobs() {
                job(self.worker_id);
            }
        }
    }

    /// For tasks that belong to this worker.
    pub(super) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Gives it a new connection.
    pub(super) fn give(&self, job: Job) {
        self.inbox.lock().0.push(job);
        self.wake.notify_one();
    }

    /// The new connections that it has not taken.
    pub(super) fn take_jobs(&self) -> Vec<Job> {
        std::mem::take(&mut self.inbox.lock().0)
    }

    /// Heartbeats that it has been asked for since it gave the last.
    pub(super) fn missed(&self) -> u32 {
        self.missed.load(Ordering::Relaxed)
    }

    /// Whether it has given its last heartbeats in time.
    pub(super) fn is_responsive(&self) -> bool {
        self.missed() < MAX_MISSED_HEARTBEATS
    }

    /// Asks for a heartbeat, and logs if it has begun or ceased to miss them.
    pub(super) fn check(&self) {
        let is_reported = self.is_reported.load(Ordering::Relaxed);
        let is_responsive = self.is_responsive();
        if is_responsive && is_reported {
            info!(worker = self.worker_id.0, "worker responds again");
        } else if !is_responsive && !is_reported {
            warn!(
                worker = self.worker_id.0,
                "worker does not respond: a file call hangs, most likely; its sessions wait, new connections go to other workers"
            );
        }
        self.is_reported.store(!is_responsive, Ordering::Relaxed);
        self.missed.fetch_add(1, Ordering::Relaxed);
        self.wake.notify_one();
    }
}
