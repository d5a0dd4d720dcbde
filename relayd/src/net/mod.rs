//! Sockets, workers and shutdown: the only module that names `tokio::net`. It accepts connections, moves bytes
//! between sockets and the protocol crates' state machines, applies timeouts, and stops everything in order. What
//! the bytes mean is decided by `producer`, `live` and `http`.
//!
//! Read in this order: [`Server`] here; `worker_pool` and `worker` (threads), `monitor` (whether they respond),
//! `session_affinity` (which worker serves a session), `closing` (sessions at shutdown); `listen` and `admission`
//! (accepting); `receive` with `busy_poll`, `send`, `timeouts` and `error` (all connections); then one file per
//! port: `control`, `data` with `coalescing` and `event_socket`, `live` with `push`, `http`.

mod admission;
mod busy_poll;
mod closing;
mod coalescing;
mod control;
mod data;
mod error;
mod event_socket;
mod http;
mod inherited;
mod listen;
mod live;
mod monitor;
mod push;
mod receive;
mod send;
mod session_affinity;
mod timeouts;
mod worker;
mod worker_pool;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Instant;

use daemon::endpoint::{Endpoint, EndpointError};
use thiserror::Error;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

use crate::config::{Config, KeepAlive, Timeouts};
use crate::health::{Health, ThreadHealth};
use crate::http::StatusApi;
use crate::limits::{CLOSE_TIMEOUT, DRAIN_TIMEOUT, MAX_HTTP_CONNECTIONS};
use crate::registry::{Registry, RegistrySettings};
use crate::store::pool::Pool;
use closing::close_all;
pub use inherited::InheritedPorts;
use listen::Listener;
use monitor::monitor;
use push::ViewerTasks;
use session_affinity::SessionAffinity;
use worker::WorkerId;
use worker_pool::{WorkerPool, Workers};

/// A running relay.
///
/// Producers and viewers have separate threads, so that a disk that delays one side does not delay the other. One
/// thread accepts all connections and one serves HTTP; neither makes file calls. Dropping the server without
/// [`stop`](Self::stop) ends it at once.
#[derive(Debug)]
pub struct Server {
    addresses: Addresses,
    status: Arc<StatusApi>,
    registry: Arc<Registry>,
    health: Arc<Health>,
    /// The thread that accepts connections, monitors the workers, and waits for signals.
    main: Workers,
    http: Option<Workers>,
    producers: Workers,
    viewers: Workers,
    /// The tasks of producers' connections, which shutdown waits for.
    connections: TaskTracker,
    stop: CancellationToken,
}

/// What the tasks of all producers' connections share.
#[derive(Debug, Clone)]
struct ProducerContext {
    registry: Arc<Registry>,
    session_affinity: Arc<SessionAffinity>,
    timeouts: Timeouts,
    stop: CancellationToken,
}

/// The addresses that a relay listens on, with the ports that the system chose for port 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addresses {
    /// Address for control connections.
    pub control: SocketAddr,
    /// Address for data connections.
    pub data: SocketAddr,
    /// Address for viewers.
    pub live: SocketAddr,
    /// Address of the status endpoint. None if it is not served.
    pub http: Option<SocketAddr>,
}

/// An error that keeps a relay from starting. The program exits.
#[derive(Debug, Error)]
pub enum StartError {
    /// The endpoint cannot be resolved.
    #[error("cannot listen for {port} on {endpoint}")]
    Endpoint {
        /// Name of the port: `control`, `data`, `viewers` or `http`.
        port: &'static str,
        /// The endpoint as configured.
        endpoint: Endpoint,
        /// Error of the resolution.
        source: EndpointError,
    },
    /// The system refuses to listen on the address: usually another program does.
    #[error("cannot listen for {port} on {endpoint}")]
    Listen {
        /// Name of the port: `control`, `data`, `viewers` or `http`.
        port: &'static str,
        /// The endpoint as configured.
        endpoint: Endpoint,
        /// Error of the system.
        source: io::Error,
    },
    /// The threads cannot be started.
    #[error("cannot start threads")]
    Threads(#[source] io::Error),
}

impl Server {
    /// Starts a relay. When this returns, all ports accept connections: those that were `inherited` from the service
    /// manager, and the others at the endpoints of `config`.
    ///
    /// # Errors
    /// If a port cannot be listened on, or threads cannot be started.
    pub fn start(config: &Config, inherited: InheritedPorts) -> Result<Self, StartError> {
        let main = Workers::start_single("accept").map_err(StartError::Threads)?;
        let producers = Workers::start("ingest").map_err(StartError::Threads)?;
        let viewers = Workers::start_shared("live").map_err(StartError::Threads)?;
        let network = &config.network;
        let (viewers_alive, producers_alive) = (network.keep_alive, network.producer_keep_alive);
        let listen = |(port, keep_alive): (&'static str, _), endpoint, bound| {
            let _guard = main.pool().first().enter();
            open_port(port, keep_alive, endpoint, bound)
        };
        let control = listen(
            ("control", producers_alive),
            &config.control,
            inherited.control,
        )?;
        let data = listen(("data", producers_alive), &config.data, inherited.data)?;
        let live = listen(("viewers", viewers_alive), &config.live, inherited.live)?;
        let (mut http, mut http_worker) = (None, None);
        if let Some(endpoint) = &config.http {
            let listener = listen(("http", viewers_alive), endpoint, None)?;
            http = Some(listener.with_max_connections(MAX_HTTP_CONNECTIONS));
            http_worker = Some(Workers::start_single("http").map_err(StartError::Threads)?);
        }
        let addresses = Addresses {
            control: control.address(),
            data: data.address(),
            live: live.address(),
            http: http.as_ref().map(Listener::address),
        };
        let registry = Registry::new(RegistrySettings {
            output: config.output.clone(),
            grouping: config.grouping,
            allows_clear: config.allows_clear,
            window: config.window,
            reorder_memory: config.reorder_memory,
            when_full: config.when_full,
            time_zone: config.time_zone.clone(),
            pool: Pool::new(config.pool),
        });
        let health = Arc::new(Health::new(Instant::now()));
        let ports = [&control, &data, &live].into_iter().chain(&http);
        let ports = ports.map(Listener::port).collect();
        let status = StatusApi::new(Arc::clone(&registry), Arc::clone(&health), ports);
        let server = Self {
            addresses,
            status: Arc::new(status),
            registry,
            health,
            main,
            http: http_worker,
            producers,
            viewers,
            connections: TaskTracker::new(),
            stop: CancellationToken::new(),
        };
        server.serve(config.network.timeouts, control, data, live);
        if let (Some(http), Some(worker)) = (http, &server.http) {
            server.serve_http(http, worker.pool().clone());
        }
        Ok(server)
    }

    /// Liveness of its threads and ports.
    #[must_use]
    pub fn health(&self) -> &Arc<Health> {
        &self.health
    }

    /// The addresses that it listens on.
    #[must_use]
    pub fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// Runs a future on the main event loop, for example one that waits for a signal.
    pub fn block_on<T>(&self, until: impl Future<Output = T>) -> T {
        self.main.block_on(until)
    }

    /// Shuts down: accepts no more connections, receives what producers have sent already (within
    /// [`DRAIN_TIMEOUT`]), and closes every session. Everything received is written when this returns.
    pub fn stop(self) {
        info!("stopping");
        self.status.set_stopping();
        self.stop.cancel();
        self.connections.close();
        let drained = self
            .main
            .block_on(async { tokio::time::timeout(DRAIN_TIMEOUT, self.connections.wait()).await });
        if drained.is_err() {
            warn!("producers not drained: they still send after the timeout; the rest is lost");
        }
        // Before the sessions are closed: a task that still runs would write to them.
        self.producers.stop(DRAIN_TIMEOUT);
        let registry = Arc::clone(&self.registry);
        let close = move |session| registry.close(&session);
        let left = close_all(self.registry.take_sessions(), close, CLOSE_TIMEOUT);
        if left > 0 {
            warn!(
                sessions = left,
                "sessions not closed: a file call hangs; their buffered packets are lost"
            );
        }
        drop(self.viewers);
    }

    fn serve(&self, timeouts: Timeouts, control: Listener, data: Listener, live: Listener) {
        let pool = self.producers.pool().clone();
        let context = ProducerContext {
            registry: Arc::clone(&self.registry),
            session_affinity: Arc::new(SessionAffinity::new(pool.clone())),
            timeouts,
            stop: self.stop.clone(),
        };
        self.accept_producers(control, context.clone(), control::serve);
        self.accept_producers(data, context, data::serve);
        let registry = Arc::clone(&self.registry);
        let viewers = Arc::<ViewerTasks>::default();
        // Shutdown does not wait for viewers: their tasks are not tracked.
        let accepting = live.accept(
            self.stop.clone(),
            TaskTracker::new(),
            self.viewers.pool().clone(),
            move |socket, peer, _| {
                let (registry, viewers) = (Arc::clone(&registry), Arc::clone(&viewers));
                live::serve(socket, peer, registry, viewers, timeouts)
            },
        );
        self.spawn_accept(|health| &health.viewers, accepting);
        self.main.spawn(monitor(
            Arc::clone(&self.registry),
            Arc::clone(&self.health),
            pool,
            self.viewers.pool().clone(),
        ));
    }

    /// Accepts producers' connections on one port, and has each served by `serve`.
    fn accept_producers<F: Future<Output = ()> + Send + 'static>(
        &self,
        listener: Listener,
        context: ProducerContext,
        serve: fn(TcpStream, SocketAddr, WorkerId, ProducerContext) -> F,
    ) {
        let accepting = listener.accept(
            self.stop.clone(),
            self.connections.clone(),
            self.producers.pool().clone(),
            move |socket, peer, worker_id| serve(socket, peer, worker_id, context.clone()),
        );
        self.spawn_accept(|health| &health.producers, accepting);
    }

    fn serve_http(&self, http: Listener, pool: WorkerPool) {
        let (status, ended) = (Arc::clone(&self.status), CancellationToken::new());
        // Not `stop`: /readyz answers "stopping" until the relay has stopped.
        let accepting = http.accept(
            ended.clone(),
            TaskTracker::new(),
            pool,
            move |socket, peer, _| http::serve(socket, peer, Arc::clone(&status), ended.clone()),
        );
        self.spawn_accept(|health| &health.viewers, accepting);
    }

    /// Runs the accept loop of a port on the main event loop. `side` of the health counts the port as listened on
    /// until the loop ends.
    fn spawn_accept(
        &self,
        side: fn(&Health) -> &ThreadHealth,
        accepting: impl Future<Output = ()> + Send + 'static,
    ) {
        let health = Arc::clone(&self.health);
        self.main.spawn(async move {
            let _listening = side(&health).listening_guard();
            accepting.await;
        });
    }
}

/// Listens on an inherited socket if there is one, else on the endpoint. To be called on the runtime that accepts.
fn open_port(
    port: &'static str,
    keep_alive: Option<KeepAlive>,
    endpoint: &Endpoint,
    inherited: Option<TcpListener>,
) -> Result<Listener, StartError> {
    let listener = match inherited {
        Some(inherited) => Listener::inherit(port, inherited, keep_alive),
        None => {
            let address = endpoint.resolve().map_err(|source| StartError::Endpoint {
                port,
                endpoint: endpoint.clone(),
                source,
            })?;
            Listener::bind(port, address, keep_alive)
        }
    };
    listener.map_err(|source| StartError::Listen {
        port,
        endpoint: endpoint.clone(),
        source,
    })
}
