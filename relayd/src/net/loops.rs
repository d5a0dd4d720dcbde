//! Threads that connections are served on. Each has a loop of its own, and what begins on one stays
//! there: nothing is handed from thread to thread while packets pass.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use tokio::net::TcpStream;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::debug;

/// A set of threads. Dropping it ends them, with whatever they are at.
#[derive(Debug)]
pub(super) struct Loops {
    places: Places,
    threads: Vec<Thread>,
}

/// Where tasks of a set of threads may be put.
#[derive(Debug, Clone)]
pub(super) struct Places(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    handles: Vec<Handle>,
    next: AtomicUsize,
}

/// One of the threads of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place(usize);

/// A task that runs elsewhere. It may be waited for.
#[derive(Debug)]
pub(super) struct Spawned(JoinHandle<()>);

#[derive(Debug)]
struct Thread {
    /// Ends the loop when it is dropped.
    _end: DropGuard,
    /// Closed when the thread has ended.
    ended: Receiver<()>,
}

impl Loops {
    /// One thread for each core, but two at least: files are written by the loops themselves, and
    /// while a disk keeps one of them waiting, the other goes on.
    pub(super) fn start(name: &'static str) -> io::Result<Self> {
        let runtime = |_| Builder::new_current_thread().enable_all().build();
        let runtimes: io::Result<Vec<_>> = (0..threads()).map(runtime).collect();
        Self::run(name, runtimes?)
    }

    /// As many threads, that take each other's tasks: what is done by each is long, and nobody waits
    /// for its very end.
    pub(super) fn start_shared(name: &'static str) -> io::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .thread_name(name)
            .worker_threads(threads())
            .enable_all()
            .build()?;
        Self::run(name, vec![runtime])
    }

    fn run(name: &'static str, runtimes: Vec<Runtime>) -> io::Result<Self> {
        let (mut handles, mut threads) = (Vec::new(), Vec::new());
        for runtime in runtimes {
            handles.push(runtime.handle().clone());
            let end = CancellationToken::new();
            let until = end.clone();
            let (alive, ended) = channel();
            std::thread::Builder::new()
                .name(name.to_owned())
                .spawn(move || {
                    runtime.block_on(until.cancelled());
                    drop(runtime);
                    drop(alive);
                })?;
            threads.push(Thread {
                _end: end.drop_guard(),
                ended,
            });
        }
        let next = AtomicUsize::new(0);
        let places = Places(Arc::new(Inner { handles, next }));
        Ok(Self { places, threads })
    }

    /// Where tasks may be put.
    pub(super) fn places(&self) -> &Places {
        &self.places
    }

    /// Has a task done by the first.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.places.first().spawn(task);
    }

    /// Runs something on the calling thread, with the first loop for its sockets and timers.
    pub(super) fn block_on<T>(&self, until: impl Future<Output = T>) -> T {
        self.places.first().block_on(until)
    }

    /// Ends all threads, and waits for them for so long.
    pub(super) fn end(self, patience: Duration) {
        let until = Instant::now() + patience;
        let ended: Vec<_> = self
            .threads
            .into_iter()
            .map(|thread| thread.ended)
            .collect();
        for ended in ended {
            let left = until.saturating_duration_since(Instant::now());
            if ended.recv_timeout(left) == Err(RecvTimeoutError::Timeout) {
                debug!("a thread is left behind that waits for its disk");
            }
        }
    }
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(2, |cores| usize::from(cores).max(2))
}

impl Places {
    /// The first loop, for what there is one of.
    pub(super) fn first(&self) -> &Handle {
        self.0.handles.first().expect("there is one at least")
    }

    /// The next in turn.
    pub(super) fn next(&self) -> Place {
        Place(self.0.next.fetch_add(1, Ordering::Relaxed) % self.0.handles.len())
    }

    /// Has a task done there.
    pub(super) fn spawn(
        &self,
        place: Place,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> Spawned {
        let there = self.0.handles.get(place.0).unwrap_or(self.first());
        Spawned(there.spawn(task))
    }

    /// Has a connection served there from now on.
    pub(super) fn serve<F: Future<Output = ()> + Send + 'static>(
        &self,
        place: Place,
        socket: TcpStream,
        peer: SocketAddr,
        serve: impl FnOnce(TcpStream) -> F + Send + 'static,
    ) {
        let socket = socket.into_std();
        self.spawn(place, async move {
            match socket.and_then(TcpStream::from_std) {
                Ok(socket) => serve(socket).await,
                Err(error) => debug!(%peer, %error, "connection lost on its way to a thread"),
            }
        });
    }
}

impl Spawned {
    /// Waits until it has ended, or its thread has.
    pub(super) async fn end(self) {
        let _ = self.0.await;
    }
}
