//! Worker pool: fixed threads with an event loop each, one per core and at least two. A new
//! connection is assigned to the worker with the fewest sessions among those that respond, and
//! stays there: nothing is handed from thread to thread while packets pass. Sessions are counted,
//! not connections: a data connection moves to the worker of its session.
//!
//! Workers write files themselves, so that a disk that hangs stops a worker and all connections on
//! it. [`WorkerPool::check_workers`] engages when a worker has missed
//! [`MAX_MISSED_HEARTBEATS`](crate::limits::MAX_MISSED_HEARTBEATS): it starts a replacement, and
//! moves the connections that the worker has not taken to it. An idle worker is not woken up for
//! this.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::{debug, error};

use super::worker::{CountedSession, Job, Worker, WorkerId};
use crate::limits::{MAX_LIVE_THREADS, MAX_REPLACEMENT_WORKERS};

/// The place of a connection on a worker, to be kept for as long as the connection is served.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) worker_id: WorkerId,
    /// Counts the session while the connection is served. Not in a future around that of the
    /// connection, which would be as large once more.
    _counted: Option<CountedSession>,
}

/// The owner of a pool's threads. Dropping it stops the event loops and cancels their tasks.
#[derive(Debug)]
pub(super) struct Workers {
    pool: WorkerPool,
    /// A guard that stops the workers when it is dropped.
    stop: DropGuard,
    /// A channel that is disconnected when all threads have ended.
    ended: Receiver<()>,
}

/// Spawns tasks and assigns connections to the workers of a pool.
#[derive(Debug, Clone)]
pub(super) struct WorkerPool {
    inner: Arc<Inner>,
    /// Whether each connection that is assigned by this handle counts as a session of its worker.
    counts_sessions: bool,
}

#[derive(Debug)]
struct Inner {
    name: &'static str,
    /// Number of workers that should respond.
    target: usize,
    /// Maximum number of workers, replacements included.
    max_workers: usize,
    workers: RwLock<Vec<Arc<Worker>>>,
    /// The runtime of the first worker.
    first: Handle,
    /// Number of connections assigned so far: workers with the same number of sessions are taken in
    /// turn.
    next: AtomicUsize,
    stop: CancellationToken,
    /// A clone is held by every thread. None once the pool stops.
    alive: Mutex<Option<Sender<()>>>,
    /// Whether it has been logged that no worker responds.
    is_exhausted: AtomicBool,
}

impl Workers {
    /// Starts one worker per core, and at least two: while a disk delays one of them, the other
    /// continues. Workers that hang are replaced.
    pub(super) fn start(name: &'static str) -> io::Result<Self> {
        let runtimes = (0..worker_count()).map(|_| event_loop());
        let runtimes = runtimes.collect::<io::Result<_>>()?;
        Self::run(name, runtimes, MAX_REPLACEMENT_WORKERS)
    }

    /// Starts a single worker, for tasks that make no file calls.
    pub(super) fn start_single(name: &'static str) -> io::Result<Self> {
        Self::run(name, vec![event_loop()?], 0)
    }

    /// Starts a work-stealing runtime with one thread per core. Its tasks make blocking file calls
    /// on additional threads, up to [`MAX_LIVE_THREADS`].
    pub(super) fn start_shared(name: &'static str) -> io::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .thread_name(name)
            .worker_threads(worker_count())
            .max_blocking_threads(MAX_LIVE_THREADS)
            .enable_all()
            .build()?;
        Self::run(name, vec![runtime], 0)
    }

    fn run(name: &'static str, runtimes: Vec<Runtime>, replacements: usize) -> io::Result<Self> {
        let no_runtime = || io::Error::other("no event loop");
        let first = runtimes.first().ok_or_else(no_runtime)?.handle().clone();
        let (alive, ended) = channel();
        let stop = CancellationToken::new();
        let inner = Inner {
            name,
            target: runtimes.len(),
            max_workers: runtimes.len() + replacements,
            workers: RwLock::default(),
            first,
            next: AtomicUsize::new(0),
            stop: stop.clone(),
            alive: Mutex::new(Some(alive)),
            is_exhausted: AtomicBool::new(false),
        };
        let pool = WorkerPool {
            inner: Arc::new(inner),
            counts_sessions: false,
        };
        let stop = stop.drop_guard();
        for runtime in runtimes {
            pool.inner.add_worker(runtime)?;
        }
        Ok(Self { pool, stop, ended })
    }

    /// The handle that assigns connections to the workers.
    pub(super) fn pool(&self) -> &WorkerPool {
        &self.pool
    }

    /// Spawns a task on the first worker.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.pool.first().spawn(task);
    }

    /// Runs a future on the calling thread, with sockets and timers of the first worker's event
    /// loop.
    pub(super) fn block_on<T>(&self, until: impl Future<Output = T>) -> T {
        self.pool.first().block_on(until)
    }

    /// Stops all workers, and waits for their threads for up to `timeout`.
    pub(super) fn stop(self, timeout: Duration) {
        drop(self.stop);
        // The sender of the pool would keep the channel connected.
        self.pool.inner.alive.lock().take();
        if self.ended.recv_timeout(timeout) == Err(RecvTimeoutError::Timeout) {
            debug!("worker thread not ended: a file call hangs; the thread is left behind");
        }
    }
}

fn worker_count() -> usize {
    std::thread::available_parallelism().map_or(2, |cores| usize::from(cores).max(2))
}

fn event_loop() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

impl Inner {
    fn add_worker(&self, runtime: Runtime) -> io::Result<()> {
        let Some(alive) = self.alive.lock().clone() else {
            return Err(io::Error::other("the worker pool is stopping"));
        };
        let mut workers = self.workers.write();
        let worker_id = WorkerId(workers.len());
        let worker = Worker::start(self.name, worker_id, runtime, self.stop.clone(), alive)?;
        workers.push(worker);
        Ok(())
    }

    /// The worker with the fewest sessions among those that respond, the first in turn of several.
    /// If none responds, the next in turn.
    fn next_worker(&self) -> Option<Arc<Worker>> {
        let workers = self.workers.read();
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        let in_turn = |step| workers.get((turn + step) % workers.len().max(1));
        let all = (0..workers.len()).filter_map(in_turn);
        all.filter(|worker| worker.is_responsive())
            .min_by_key(|worker| worker.sessions())
            .or_else(|| in_turn(0))
            .cloned()
    }
}

impl WorkerPool {
    /// The first worker's runtime, for tasks of which there is one.
    pub(super) fn first(&self) -> &Handle {
        &self.inner.first
    }

    /// A handle for connections that each have a session: its packets will keep the worker busy.
    pub(super) fn counting_sessions(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
            counts_sessions: true,
        }
    }

    /// Spawns a task on a worker. The handle ends with an error if the worker ends before the task.
    pub(super) fn spawn(
        &self,
        worker_id: WorkerId,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> JoinHandle<()> {
        let worker = self.inner.workers.read().get(worker_id.0).cloned();
        let handle = worker.as_deref().map_or(self.first(), Worker::handle);
        handle.spawn(task)
    }

    /// Assigns a new connection to a worker that responds; `serve` is called there.
    pub(super) fn serve<F: Future<Output = ()> + Send + 'static>(
        &self,
        socket: TcpStream,
        peer: SocketAddr,
        serve: impl FnOnce(TcpStream, Place) -> F + Send + 'static,
    ) {
        let socket = socket.into_std();
        self.serve_task(
            async move |place| match socket.and_then(TcpStream::from_std) {
                Ok(socket) => serve(socket, place).await,
                Err(error) => {
                    debug!(%peer, %error, "connection lost while it was assigned to a worker")
                }
            },
        );
    }

    /// Assigns a task to a worker that responds; `serve` is called there.
    pub(super) fn serve_task<F: Future<Output = ()> + Send + 'static>(
        &self,
        serve: impl FnOnce(Place) -> F + Send + 'static,
    ) {
        let counts_sessions = self.counts_sessions;
        self.assign(Box::new(move |worker| {
            let place = Place {
                worker_id: worker.worker_id(),
                _counted: counts_sessions.then(|| worker.count_session()),
            };
            tokio::spawn(serve(place));
        }));
    }

    fn assign(&self, job: Job) {
        if let Some(worker) = self.inner.next_worker() {
            worker.assign(job);
        }
    }

    /// Requests a heartbeat of each worker. Starts replacements for those that do not respond, and
    /// moves the connections that they have not taken to others. To be called every
    /// [`TICK`](crate::limits::TICK). Returns whether all workers respond.
    pub(super) fn check_workers(&self) -> bool {
        if self.inner.alive.lock().is_none() {
            // The pool is stopping: its workers have ended on purpose.
            return true;
        }
        // A copy, because `add_worker` locks the list.
        let workers = self.inner.workers.read().clone();
        workers.iter().for_each(|worker| worker.request_heartbeat());
        let (responsive, hung): (Vec<_>, Vec<_>) =
            workers.iter().partition(|worker| worker.is_responsive());
        let missing = self.inner.target.saturating_sub(responsive.len());
        let may_start = self.inner.max_workers.saturating_sub(workers.len());
        let mut started = 0;
        for _ in 0..missing.min(may_start) {
            match event_loop().and_then(|runtime| self.inner.add_worker(runtime)) {
                Ok(()) => started += 1,
                Err(error) => error!(%error, "cannot start replacement worker"),
            }
        }
        let is_exhausted = responsive.is_empty() && started == 0;
        let is_reported = &self.inner.is_exhausted;
        if !is_reported.swap(is_exhausted, Ordering::Relaxed) && is_exhausted {
            error!(
                threads = self.inner.name,
                "no worker responds, and no replacement can be started; new connections wait"
            );
        }
        if !is_exhausted {
            let stranded = hung.iter().flat_map(|worker| worker.take_jobs());
            stranded.for_each(|job| self.assign(job));
        }
        hung.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;
    use crate::limits::MAX_MISSED_HEARTBEATS;

    /// Assigns a job. Returns the worker that runs it.
    fn assign_job(pool: &WorkerPool) -> Receiver<WorkerId> {
        let (begun, has_begun) = channel();
        pool.assign(Box::new(move |worker| {
            begun.send(worker.worker_id()).unwrap()
        }));
        has_begun
    }

    /// Blocks the next worker, as a file call that hangs would, until the sender is dropped.
    fn block(pool: &WorkerPool) -> (WorkerId, Sender<()>) {
        let (unblock, is_unblocked) = channel::<()>();
        let (begun, has_begun) = channel();
        pool.assign(Box::new(move |worker| {
            begun.send(worker.worker_id()).unwrap();
            let _ = is_unblocked.recv();
        }));
        (has_begun.recv().unwrap(), unblock)
    }

    /// Requests one heartbeat more than may be missed. All workers but those that hang respond.
    fn check_repeatedly(pool: &WorkerPool, hung: &[(WorkerId, Sender<()>)]) -> bool {
        let mut all_respond = true;
        for _ in 0..=MAX_MISSED_HEARTBEATS {
            let workers = pool.inner.workers.read().clone();
            for (worker_id, worker) in workers.iter().enumerate() {
                let hangs = hung.iter().any(|(of_hung, _)| of_hung.0 == worker_id);
                while !hangs && worker.missed_heartbeats() > 0 {
                    std::thread::yield_now();
                }
            }
            all_respond = pool.check_workers();
        }
        all_respond
    }

    #[test]
    fn new_connections_are_assigned_to_responsive_workers_while_others_hang() {
        let worker_pool = Workers::start("test").unwrap();
        let pool = worker_pool.pool();
        assert!(check_repeatedly(pool, &[]));
        let hung: Vec<_> = (0..pool.inner.target).map(|_| block(pool)).collect();
        // Assigned to a worker that hangs, before that is detected.
        let stranded = assign_job(pool);
        assert!(!check_repeatedly(pool, &hung));
        let is_hung = |worker_id: WorkerId| hung.iter().any(|(of_hung, _)| *of_hung == worker_id);
        assert!(!is_hung(stranded.recv().unwrap()));
        assert_eq!(pool.inner.workers.read().len(), 2 * pool.inner.target);
        for _ in 0..10 {
            assert!(!is_hung(assign_job(pool).recv().unwrap()));
        }
        // Workers that respond again get connections again.
        drop(hung);
        assert!(check_repeatedly(pool, &[]));
        let used: Vec<_> = (0..2 * pool.inner.target)
            .map(|_| assign_job(pool).recv().unwrap().0)
            .collect();
        assert!(used.contains(&0) && used.contains(&1), "{used:?}");
        worker_pool.stop(Duration::from_secs(10));
    }

    #[test]
    fn idle_workers_respond_without_being_woken_up() {
        let worker_pool = Workers::start("test").unwrap();
        let pool = worker_pool.pool();
        let workers = pool.inner.workers.read().clone();
        let parked = |worker: &Arc<Worker>| {
            while !worker.is_parked() {
                std::thread::yield_now();
            }
            worker.handle().metrics().worker_park_count(0)
        };
        let before: Vec<_> = workers.iter().map(parked).collect();
        (0..=MAX_MISSED_HEARTBEATS).for_each(|_| assert!(pool.check_workers()));
        let missed = |worker: &Arc<Worker>| worker.missed_heartbeats();
        assert_eq!(workers.iter().map(missed).max(), Some(0));
        assert_eq!(workers.iter().map(parked).collect::<Vec<_>>(), before);
        worker_pool.stop(Duration::from_secs(10));
    }

    /// A session that lasts until the sender is dropped, and its worker.
    fn begin_session(pool: &WorkerPool) -> (WorkerId, oneshot::Sender<()>) {
        let (begun, has_begun) = channel();
        let (end, has_ended) = oneshot::channel();
        pool.counting_sessions().serve_task(async move |place| {
            begun.send(place.worker_id).unwrap();
            let _ = has_ended.await;
            drop(place);
        });
        (has_begun.recv().unwrap(), end)
    }

    #[test]
    fn sessions_are_distributed_evenly_whatever_other_connections_are_assigned_between_them() {
        let worker_pool = Workers::start("test").unwrap();
        let pool = worker_pool.pool();
        let workers = pool.inner.target;
        let begin = |_| {
            let session = begin_session(pool);
            // So many that by turns the next session would get the same worker.
            (1..workers).for_each(|_| assert!(assign_job(pool).recv().is_ok()));
            session
        };
        let mut sessions: Vec<_> = (0..2 * workers).map(begin).collect();
        let of_worker = |sessions: &[(WorkerId, _)], worker| {
            let of_worker = sessions.iter().filter(|(of, _)| of.0 == worker);
            of_worker.count()
        };
        assert!((0..workers).all(|worker| of_worker(&sessions, worker) == 2));
        // A worker whose sessions have ended gets the next ones.
        sessions.retain(|(worker, _)| worker.0 != 0);
        let first = Arc::clone(&pool.inner.workers.read()[0]);
        while first.sessions() > 0 {
            std::thread::yield_now();
        }
        sessions.extend((0..2).map(begin));
        assert_eq!(of_worker(&sessions, 0), 2);
        worker_pool.stop(Duration::from_secs(10));
    }

    #[test]
    fn replacement_workers_are_limited_and_connections_wait_for_the_next_worker_that_responds() {
        let worker_pool = Workers::start("test").unwrap();
        let pool = worker_pool.pool();
        let mut hung = Vec::new();
        while hung.len() < pool.inner.max_workers {
            hung.push(block(pool));
            check_repeatedly(pool, &hung);
        }
        assert_eq!(pool.inner.workers.read().len(), pool.inner.max_workers);
        let waiting = assign_job(pool);
        assert!(!check_repeatedly(pool, &hung));
        assert!(waiting.try_recv().is_err());
        let (free, _) = hung.remove(0);
        check_repeatedly(pool, &hung);
        assert_eq!(waiting.recv().unwrap(), free);
        drop(hung);
        worker_pool.stop(Duration::from_secs(10));
    }

    #[test]
    fn pool_that_has_stopped_replaces_no_worker() {
        let workers = Workers::start("test").unwrap();
        let pool = workers.pool().clone();
        workers.stop(Duration::from_secs(10));
        // On an event loop as in the relay: one must not be dropped there.
        event_loop().unwrap().block_on(async {
            for _ in 0..=MAX_MISSED_HEARTBEATS {
                assert!(pool.check_workers());
            }
        });
        let workers = pool.inner.workers.read();
        assert_eq!(workers.len(), pool.inner.target);
    }
}
