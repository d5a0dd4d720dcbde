//! Sockets, tasks and the end of them all: the only module that names `tokio::net`. Everything that
//! is decided is decided elsewhere; here bytes are moved.
//!
//! Read in this order: [`Server`] here, `worker_pool` with `worker` (threads), `monitor` (whether they respond)
//! and `session_affinity` (which session is served on which), `closing` (sessions, when the relay stops), `listen` with `admission` (accepting), `receive` with `busy_poll` and `send` (what all
//! connections do), then one file for each port: `control`, `data` with `coalescing` and `watched`, `live`
//! with `push`, `http`.

mod admission;
mod busy_poll;
mod closing;
mod coalescing;
mod control;
mod data;
mod http;
mod inherited;
mod listen;
mod live;
mod monitor;
mod push;
mod receive;
mod send;
mod session_affinity;
mod watched;
mod worker;
mod worker_pool;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Instant;

use daemon::endpoint::{Endpoint, EndpointError};
use thiserror::Error;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

use crate::config::{Config, Timeouts};
use crate::health::{Health, ThreadHealth};
use crate::http::StatusApi;
use crate::limits::{CLOSE_TIMEOUT, DRAIN_TIMEOUT, MAX_HTTP_CONNECTIONS};
use crate::registry::{Registry, Settings};
use crate::store::pool::Pool;
use closing::close_all;
pub use inherited::InheritedPorts;
use listen::Listener;
use monitor::monitor;
use push::Viewers;
use session_affinity::SessionAffinity;
use worker_pool::{WorkerPool, Workers};

/// A running relay.
///
/// Producers and viewers have threads of their own: a disk that keeps the one waiting does not keep
/// the other. One thread accepts for all, and one serves HTTP: those make no file calls. Dropping it without [`stop`](Self::stop) ends it on the spot.
#[derive(Debug)]
pub struct Server {
    addresses: Addresses,
    status: Arc<StatusApi>,
    registry: Arc<Registry>,
    health: Arc<Health>,
    /// Accepts, monitors the others, and waits for signals.
    main: Workers,
    http: Option<Workers>,
    producers: Workers,
    viewers: Workers,
    connections: TaskTracker,
    stop: CancellationToken,
}

/// Where a relay listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addresses {
    /// For producers' commands.
    pub control: SocketAddr,
    /// For producers' packets.
    pub data: SocketAddr,
    /// For viewers.
    pub live: SocketAddr,
    /// For those who keep watch, if it is to.
    pub http: Option<SocketAddr>,
}

/// Why a relay does not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// An address makes no sense here.
    #[error("cannot listen for {port} on {endpoint}")]
    Endpoint {
        /// Which of them.
        port: &'static str,
        /// What it was to be.
        endpoint: Endpoint,
        /// What is wrong with it.
        source: EndpointError,
    },
    /// An address cannot be listened on: usually another program does.
    #[error("cannot listen for {port} on {endpoint}")]
    Listen {
        /// Which of them.
        port: &'static str,
        /// What it was to be.
        endpoint: Endpoint,
        /// What the system says.
        source: io::Error,
    },
    /// No threads.
    #[error("cannot start threads")]
    Threads(#[source] io::Error),
}

impl Server {
    /// Starts a relay. When this returns, all ports accept: those that were `inherited`, and the
    /// others where `config` says.
    ///
    /// # Errors
    /// If a port cannot be listened on.
    pub fn start(config: &Config, inherited: InheritedPorts) -> Result<Self, StartError> {
        let main = Workers::start_single("accept").map_err(StartError::Threads)?;
        let producers = Workers::start("ingest").map_err(StartError::Threads)?;
        let viewers = Workers::start_shared("live").map_err(StartError::Threads)?;
        let (viewers_alive, producers_alive) = (
            config.network.keep_alive,
            config.network.producer_keep_alive,
        );
        let on = |(port, keep_alive): (&'static str, _),
                  endpoint: &Endpoint,
                  bound: Option<TcpListener>| {
            let _guard = main.pool().first().enter();
            let listener = match bound {
                Some(bound) => Listener::inherit(port, bound, keep_alive),
                None => {
                    let address = endpoint.resolve().map_err(|source| {
                        let endpoint = endpoint.clone();
                        StartError::Endpoint {
                            port,
                            endpoint,
                            source,
                        }
                    })?;
                    Listener::bind(port, address, keep_alive)
                }
            };
            listener.map_err(|source| {
                let endpoint = endpoint.clone();
                StartError::Listen {
                    port,
                    endpoint,
                    source,
                }
            })
        };
        let control = on(
            ("control", producers_alive),
            &config.control,
            inherited.control,
        )?;
        let data = on(("data", producers_alive), &config.data, inherited.data)?;
        let live = on(("viewers", viewers_alive), &config.live, inherited.live)?;
        let http = match &config.http {
            Some(endpoint) => Some(on(("http", viewers_alive), endpoint, None)?),
            None => None,
        };
        let http_loop = match &http {
            Some(_) => Some(Workers::start_single("http").map_err(StartError::Threads)?),
            None => None,
        };
        let http = http.map(|http| http.at_most(MAX_HTTP_CONNECTIONS));
        let addresses = Addresses {
            control: control.address(),
            data: data.address(),
            live: live.address(),
            http: http.as_ref().map(Listener::address),
        };
        let registry = Registry::new(Settings {
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
            http: http_loop,
            producers,
            viewers,
            connections: TaskTracker::new(),
            stop: CancellationToken::new(),
        };
        server.serve(config.network.timeouts, control, data, live);
        if let (Some(http), Some(on)) = (http, &server.http) {
            server.serve_http(http, on.pool().clone());
        }
        Ok(server)
    }

    /// How it is.
    #[must_use]
    pub fn health(&self) -> &Arc<Health> {
        &self.health
    }

    /// Where it listens.
    #[must_use]
    pub fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// Runs something on the relay's threads, a wait for a signal say, and waits for it.
    pub fn block_on<T>(&self, until: impl Future<Output = T>) -> T {
        self.main.block_on(until)
    }

    /// Stops in good order: takes no more connections, takes in what producers have sent already,
    /// ends every session. What was received is on disk when this returns.
    pub fn stop(self) {
        info!("stopping");
        self.status.stopping();
        self.stop.cancel();
        self.connections.close();
        let drained = self
            .main
            .block_on(async { tokio::time::timeout(DRAIN_TIMEOUT, self.connections.wait()).await });
        if drained.is_err() {
            warn!("some producers have more to send than there is time for");
        }
        self.producers.end(DRAIN_TIMEOUT);
        let registry = Arc::clone(&self.registry);
        let close = move |session| registry.close(&session);
        let left = close_all(self.registry.take_sessions(), close, CLOSE_TIMEOUT);
        if left > 0 {
            warn!(
                sessions = left,
                "sessions not closed: a file call hangs; what they had received and not written is lost"
            );
        }
        drop(self.viewers);
    }

    fn serve(&self, timeouts: Timeouts, control: Listener, data: Listener, live: Listener) {
        let registry = || Arc::clone(&self.registry);
        let stop = || self.stop.clone();
        let session_affinity = Arc::new(SessionAffinity::new(self.producers.pool().clone()));
        let (control_affinity, data_affinity) = (Arc::clone(&session_affinity), session_affinity);
        let (serve_registry, serve_stop) = (registry(), stop());
        let accepting = control.accept(
            stop(),
            self.connections.clone(),
            self.producers.pool().clone(),
            move |socket, peer, worker_id| {
                let session_affinity = Arc::clone(&control_affinity);
                let registry = Arc::clone(&serve_registry);
                let stop = serve_stop.clone();
                control::serve(
                    socket,
                    peer,
                    worker_id,
                    registry,
                    session_affinity,
                    timeouts,
                    stop,
                )
            },
        );
        self.listen(|health| &health.producers, accepting);
        let (serve_registry, serve_stop) = (registry(), stop());
        let accepting = data.accept(
            stop(),
            self.connections.clone(),
            self.producers.pool().clone(),
            move |socket, peer, worker_id| {
                let session_affinity = Arc::clone(&data_affinity);
                let registry = Arc::clone(&serve_registry);
                let stop = serve_stop.clone();
                data::serve(
                    socket,
                    peer,
                    worker_id,
                    registry,
                    session_affinity,
                    timeouts,
                    stop,
                )
            },
        );
        self.listen(|health| &health.producers, accepting);
        let serve_registry = registry();
        let viewers = Arc::<Viewers>::default();
        // Viewers are not waited for when the relay stops.
        let accepting = live.accept(
            stop(),
            TaskTracker::new(),
            self.viewers.pool().clone(),
            move |socket, peer, _| {
                let (registry, viewers) = (Arc::clone(&serve_registry), Arc::clone(&viewers));
                live::serve(socket, peer, registry, viewers, timeouts)
            },
        );
        self.listen(|health| &health.viewers, accepting);
        self.main.spawn(monitor(
            registry(),
            Arc::clone(&self.health),
            self.producers.pool().clone(),
            self.viewers.pool().clone(),
        ));
    }

    fn serve_http(&self, http: Listener, on: WorkerPool) {
        let (status, ended) = (Arc::clone(&self.status), CancellationToken::new());
        // It tells that the relay stops until it has stopped.
        let accepting = http.accept(
            ended.clone(),
            TaskTracker::new(),
            on,
            move |socket, peer, _| http::serve(socket, peer, Arc::clone(&status), ended.clone()),
        );
        self.listen(|health| &health.viewers, accepting);
    }

    /// Accepts, for threads whose health is that of `side`.
    fn listen(
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
