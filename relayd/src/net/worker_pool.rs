//! Threads that connections are served on. Each has a loop of its own, and what begins on one stays
//! there: nothing is handed from thread to thread while packets pass.
//!
//! Files are written by the workers themselves, so that a disk that hangs stops a loop and all that is
//! served on it. Others must not notice: [`WorkerPool::check`] finds such workers and starts others in their
//! place.

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

use super::worker::{Job, Worker};
use crate::limits::{MAX_LIVE_THREADS, MAX_REPLACEMENT_WORKERS};

/// A set of threads. Dropping it ends them, with whatever they are at.
#[derive(Debug)]
pub(super) struct Workers {
    pool: WorkerPool,
    /// Ends the worker when it is dropped.
    end: DropGuard,
    /// Closed when all threads have ended.
    ended: Receiver<()>,
}

/// Where tasks of a set of threads may be put.
#[derive(Debug, Clone)]
pub(super) struct WorkerPool(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    name: &'static str,
    /// How many workers are to be responsive.
    wanted: usize,
    /// How many there may be.
    most: usize,
    workers: RwLock<Vec<Arc<Worker>>>,
    /// The runtime of the first worker, which is there from the beginning.
    first: Handle,
    next: AtomicUsize,
    end: CancellationToken,
    /// Held by every thread.
    alive: Mutex<Option<Sender<()>>>,
    /// It has been logged that no worker is left.
    is_exhausted: AtomicBool,
}

/// One of the threads of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WorkerId(pub(super) usize);

/// A task that runs elsewhere. It may be waited for.
#[derive(Debug)]
pub(super) struct Spawned(JoinHandle<()>);

impl Workers {
    /// One thread for each core, but two at least: files are written by the workers themselves, and
    /// while a disk keeps one of them waiting, the other goes on. Those that hang are replaced.
    pub(super) fn start(name: &'static str) -> io::Result<Self> {
        let runtimes: io::Result<Vec<_>> = (0..threads()).map(|_| event_loop()).collect();
        Self::run(name, runtimes?, MAX_REPLACEMENT_WORKERS)
    }

    /// One thread alone, for what makes no file calls.
    pub(super) fn start_single(name: &'static str) -> io::Result<Self> {
        Self::run(name, vec![event_loop()?], 0)
    }

    /// As many threads as there are cores, that take each other's tasks: what is done by each is long,
    /// and nobody waits for its very end. Their file calls take threads of their own.
    pub(super) fn start_shared(name: &'static str) -> io::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .thread_name(name)
            .worker_threads(threads())
            .max_blocking_threads(MAX_LIVE_THREADS)
            .enable_all()
            .build()?;
        Self::run(name, vec![runtime], 0)
    }

    fn run(name: &'static str, runtimes: Vec<Runtime>, replacements: usize) -> io::Result<Self> {
        let no_runtime = || io::Error::other("no event loop");
        let first = runtimes.first().ok_or_else(no_runtime)?.handle().clone();
        let (alive, ended) = channel();
        let end = CancellationToken::new();
        let pool = WorkerPool(Arc::new(Inner {
            name,
            wanted: runtimes.len(),
            most: runtimes.len() + replacements,
            workers: RwLock::default(),
            first,
            next: AtomicUsize::new(0),
            end: end.clone(),
            alive: Mutex::new(Some(alive)),
            is_exhausted: AtomicBool::new(false),
        }));
        let end = end.drop_guard();
        for runtime in runtimes {
            pool.0.add_worker(runtime)?;
        }
        Ok(Self { pool, end, ended })
    }

    /// Where tasks may be put.
    pub(super) fn pool(&self) -> &WorkerPool {
        &self.pool
    }

    /// Has a task done by the first.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.pool.first().spawn(task);
    }

    /// Runs something on the calling thread, with the first loop for its sockets and timers.
    pub(super) fn block_on<T>(&self, until: impl Future<Output = T>) -> T {
        self.pool.first().block_on(until)
    }

    /// Ends all threads, and waits for them for so long.
    pub(super) fn end(self, timeout: Duration) {
        drop(self.end);
        self.pool.0.alive.lock().take();
        if self.ended.recv_timeout(timeout) == Err(RecvTimeoutError::Timeout) {
            debug!("a thread is left behind that waits for its disk");
        }
    }
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(2, |cores| usize::from(cores).max(2))
}

fn event_loop() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

impl Inner {
    fn add_worker(&self, runtime: Runtime) -> io::Result<()> {
        let Some(alive) = self.alive.lock().clone() else {
            return Err(io::Error::other("the threads are ending"));
        };
        let mut workers = self.workers.write();
        let worker_id = WorkerId(workers.len());
        let worker = Worker::start(self.name, worker_id, runtime, self.end.clone(), alive)?;
        workers.push(worker);
        Ok(())
    }

    fn worker(&self, worker_id: WorkerId) -> Option<Arc<Worker>> {
        self.workers.read().get(worker_id.0).cloned()
    }

    /// The next worker in turn, one that responds if there is any.
    fn next(&self) -> Option<Arc<Worker>> {
        let workers = self.workers.read();
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        let in_turn = |step| workers.get((turn + step) % workers.len().max(1));
        let mut all = (0..workers.len()).filter_map(in_turn);
        all.find(|worker| worker.is_responsive())
            .or_else(|| in_turn(0))
            .cloned()
    }
}

impl WorkerPool {
    /// The first loop, for what there is one of.
    pub(super) fn first(&self) -> &Handle {
        &self.0.first
    }

    /// Has a task done there.
    pub(super) fn spawn(
        &self,
        worker_id: WorkerId,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> Spawned {
        let worker = self.0.worker(worker_id);
        let there = worker.as_deref().map_or(self.first(), Worker::handle);
        Spawned(there.spawn(task))
    }

    /// Has a new connection served from now on, by a worker that responds.
    pub(super) fn serve<F: Future<Output = ()> + Send + 'static>(
        &self,
        socket: TcpStream,
        peer: SocketAddr,
        serve: impl FnOnce(TcpStream, WorkerId) -> F + Send + 'static,
    ) {
        let socket = socket.into_std();
        self.give(Box::new(move |worker_id| {
            tokio::spawn(async move {
                match socket.and_then(TcpStream::from_std) {
                    Ok(socket) => serve(socket, worker_id).await,
                    Err(error) => debug!(%peer, %error, "connection lost on its way to a thread"),
                }
            });
        }));
    }

    fn give(&self, job: Job) {
        if let Some(worker) = self.0.next() {
            worker.give(job);
        }
    }

    /// To be called every [`HEARTBEAT_INTERVAL`](crate::limits::HEARTBEAT_INTERVAL): asks the workers for
    /// a heartbeat. For those that miss too many it starts others, which also get the new connections
    /// that had gone to them. Gives whether all respond.
    pub(super) fn check(&self) -> bool {
        let workers = self.0.workers.read().clone();
        workers.iter().for_each(|worker| worker.check());
        let (responsive, hung): (Vec<_>, Vec<_>) =
            workers.iter().partition(|worker| worker.is_responsive());
        let missing = self.0.wanted.saturating_sub(responsive.len());
        let may_start = self.0.most.saturating_sub(workers.len());
        let mut started = 0;
        for _ in 0..missing.min(may_start) {
            match event_loop().and_then(|runtime| self.0.add_worker(runtime)) {
                Ok(()) => started += 1,
                Err(error) => error!(%error, "replacement worker not started"),
            }
        }
        let is_exhausted = responsive.is_empty() && started == 0;
        if !self.0.is_exhausted.swap(is_exhausted, Ordering::Relaxed) && is_exhausted {
            error!(
                threads = self.0.name,
                "no worker responds and no more are started: new connections wait"
            );
        }
        if !is_exhausted {
            let stranded = hung.iter().flat_map(|worker| worker.take_jobs());
            stranded.for_each(|job| self.give(job));
        }
        hung.is_empty()
    }
}

impl Spawned {
    /// Waits until it has ended, or its thread has.
    pub(super) async fn end(self) {
        let _ = self.0.await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::MAX_MISSED_HEARTBEATS;

    /// Where a job begins.
    fn give_job(pool: &WorkerPool) -> Receiver<WorkerId> {
        let (begun, has_begun) = channel();
        pool.give(Box::new(move |worker_id| begun.send(worker_id).unwrap()));
        has_begun
    }

    /// Blocks a worker, as a file call that hangs does, until the sender is dropped.
    fn block(pool: &WorkerPool) -> (WorkerId, Sender<()>) {
        let (unblock, is_unblocked) = channel::<()>();
        let (begun, has_begun) = channel();
        pool.give(Box::new(move |worker_id| {
            begun.send(worker_id).unwrap();
            let _ = is_unblocked.recv();
        }));
        (has_begun.recv().unwrap(), unblock)
    }

    /// Asks for as many heartbeats as may be missed. All workers but those that hang give them.
    fn check(pool: &WorkerPool, hung: &[(WorkerId, Sender<()>)]) -> bool {
        let mut all_respond = true;
        for _ in 0..=MAX_MISSED_HEARTBEATS {
            let workers = pool.0.workers.read().clone();
            for (worker_id, worker) in workers.iter().enumerate() {
                let hangs = hung.iter().any(|(of_hung, _)| of_hung.0 == worker_id);
                while !hangs && worker.missed() > 0 {
                    std::thread::yield_now();
                }
            }
            all_respond = pool.check();
        }
        all_respond
    }

    #[test]
    fn new_connections_go_to_other_workers_while_some_hang() {
        let worker_pool = Workers::start("test").unwrap();
        let pool = worker_pool.pool();
        assert!(check(pool, &[]));
        let hung: Vec<_> = (0..pool.0.wanted).map(|_| block(pool)).collect();
        // Given to a worker that hangs, before it is known to.
        let stranded = give_job(pool);
        assert!(!check(pool, &hung));
        let is_hung = |worker_id: WorkerId| hung.iter().any(|(of_hung, _)| *of_hung == worker_id);
        assert!(!is_hung(stranded.recv().unwrap()));
        assert_eq!(pool.0.workers.read().len(), 2 * pool.0.wanted);
        for _ in 0..10 {
            assert!(!is_hung(give_job(pool).recv().unwrap()));
        }
        // They are used again when they respond.
        drop(hung);
        assert!(check(pool, &[]));
        let used: Vec<_> = (0..2 * pool.0.wanted)
            .map(|_| give_job(pool).recv().unwrap().0)
            .collect();
        assert!(used.contains(&0) && used.contains(&1), "{used:?}");
        worker_pool.end(Duration::from_secs(10));
    }

    #[test]
    fn replacement_workers_are_bounded_and_connections_wait_for_the_next_that_responds() {
        let worker_pool = Workers::start("test").unwrap();
        let pool = worker_pool.pool();
        let mut hung = Vec::new();
        while hung.len() < pool.0.most {
            hung.push(block(pool));
            check(pool, &hung);
        }
        assert_eq!(pool.0.workers.read().len(), pool.0.most);
        let waiting = give_job(pool);
        assert!(!check(pool, &hung));
        assert!(waiting.try_recv().is_err());
        let (free, _) = hung.remove(0);
        check(pool, &hung);
        assert_eq!(waiting.recv().unwrap(), free);
        drop(hung);
        worker_pool.end(Duration::from_secs(10));
    }
}
