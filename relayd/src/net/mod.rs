//! Sockets, workers and shutdown: the only module that names `tokio::net`. It accepts connections,
//! moves bytes between sockets and the protocol crates' state machines, applies timeouts, and stops
//! everything in order. What the bytes mean is decided by `producer`, `live` and `http`.
//!
//! Read in this order: [`Server`] here; `worker_pool` and `worker` (threads), `monitor` (whether
//! they respond), `session_affinity` (which worker serves a session), `closing` (sessions at
//! shutdown); `listen`, `admission`, `refusal_log` and `accepted` (accepting); `receive`, `send`,
//! `timeouts` and `error` (all connections); then one file per port: `control`, `data` with
//! `event_socket` and what decides when it reads (`activity`, `busy_poll`, `coalescing`,
//! `read_turn`), `live` with `packet_wait`, `viewer_throttle`, `packet_sender` and `push`, `http`.

mod accepted;
mod activity;
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
mod packet_sender;
mod packet_wait;
mod pause;
mod push;
mod quic;
mod read_turn;
mod receive;
mod refusal_log;
mod send;
mod session_affinity;
mod start;
mod timeouts;
mod viewer_throttle;
mod worker;
mod worker_pool;

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use daemon::endpoint::{Endpoint, EndpointError};
use thiserror::Error;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};
use transport::config::{ALPN_CONTROL, ALPN_DATA, ALPN_LIVE};
use transport::error::TransportError;
use transport::role::Role;
use wire::SessionId;

use crate::archiver::{ArchiveStartError, ArchiverThread};
use crate::config::{Config, Timeouts};
use crate::fleet::{Fleet, FleetThreads};
use crate::health::{Health, ThreadHealth};
use crate::http::StatusApi;
use crate::limits::{
    ARCHIVE_STOP_TIMEOUT, CLOSE_TIMEOUT, DRAIN_COMMANDS_TIMEOUT, DRAIN_TIMEOUT,
    MAX_HTTP_CONNECTIONS, SYNC_TIMEOUT,
};
use crate::producer::restore_sessions;
use crate::registry::Registry;
use crate::store::retention::RetentionThread;
use crate::store::sync::{SyncThread, Syncer};
use accepted::{Accepted, TlsPort, accept};
use admission::{ConnectionTable, Handshake};
use closing::close_all;
pub use inherited::InheritedPorts;
use listen::{Listener, warn_of_open_port};
use monitor::monitor;
use push::ViewerTasks;
use quic::{QuicCertificates, QuicPort, QuicServing, QuicSetup};
use session_affinity::SessionAffinity;
use start::{open_port, registry_settings, resolve, start_archiving};
use viewer_throttle::ViewerThrottle;
use worker::WorkerId;
use worker_pool::{WorkerPool, Workers};

/// A running relay.
///
/// Producers and viewers have separate threads, so that a disk that delays one side does not delay
/// the other. One thread accepts all connections and one serves HTTP; neither makes file calls.
/// Dropping the server without [`stop`](Self::stop) ends it at once.
#[derive(Debug)]
pub struct Server {
    addresses: Addresses,
    tls: TlsPorts,
    status: Arc<StatusApi>,
    registry: Arc<Registry>,
    health: Arc<Health>,
    /// The thread that accepts connections, monitors the workers, and waits for signals.
    main: Workers,
    http: Option<Workers>,
    /// The threads of QUIC, which encrypt and send datagrams.
    quic: Option<Workers>,
    quic_certificates: Option<QuicCertificates>,
    producers: Workers,
    viewers: Workers,
    /// The tasks of producers' connections, which shutdown waits for.
    connections: TaskTracker,
    stop: CancellationToken,
    /// Token that is cancelled some time after `stop`: then no more commands are handled.
    commands_stop: CancellationToken,
    /// The thread that syncs. None: nothing is synced.
    sync: Option<SyncThread>,
    /// The thread that archives. None: there is no archive.
    archiver: Option<ArchiverThread>,
    fleet: Option<FleetThreads>,
    /// Removes no more sessions when it is dropped.
    _retention: RetentionThread,
}

/// The TLS of the ports. None for those that are not encrypted.
#[derive(Debug)]
struct TlsPorts {
    control: Option<Arc<TlsPort>>,
    data: Option<Arc<TlsPort>>,
    live: Option<Arc<TlsPort>>,
}

/// The context that the tasks of all producers' connections share.
#[derive(Debug, Clone)]
struct ProducerContext {
    registry: Arc<Registry>,
    session_affinity: Arc<SessionAffinity>,
    timeouts: Timeouts,
    stop: CancellationToken,
    commands_stop: CancellationToken,
    /// Slows viewers down while a worker of producers has a backlog.
    viewer_throttle: Arc<ViewerThrottle>,
    /// Receives the session that a control connection opens. None: nobody waits for it.
    session: Option<Arc<OnceLock<SessionId>>>,
}

/// The context that the tasks of all viewers' connections share.
#[derive(Debug, Clone)]
struct ViewerContext {
    registry: Arc<Registry>,
    /// The sessions of the archive. None: there is no archive.
    fleet: Option<Arc<Fleet>>,
    tasks: Arc<ViewerTasks>,
    throttle: Arc<ViewerThrottle>,
    timeouts: Timeouts,
}

/// The addresses that a relay listens on, with the ports that the system chose for port 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addresses {
    /// Address for control connections.
    pub control: SocketAddr,
    /// Address for data connections.
    pub data: SocketAddr,
    /// Address for connections of viewers.
    pub live: SocketAddr,
    /// Address of the status endpoint. None if it is not served.
    pub http: Option<SocketAddr>,
    /// Address (UDP) of the QUIC port. None if there is none.
    pub quic: Option<SocketAddr>,
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
    /// Certificates of a port with TLS cannot be used.
    #[error("cannot listen for {port} with TLS")]
    Tls {
        /// Name of the port.
        port: &'static str,
        /// The fault of the certificates.
        source: Box<TransportError>,
    },
    /// The threads cannot be started.
    #[error("cannot start threads")]
    Threads(#[source] io::Error),
    /// The archive cannot be opened.
    #[error(transparent)]
    OpenArchive(#[from] archive::store::OpenError),
    /// The store of the archive cannot be relied on.
    #[error("cannot use the archive: {0}")]
    Archive(#[from] ArchiveStartError),
}

impl Server {
    /// Starts a relay. When this returns, all ports accept connections: those that were `inherited`
    /// from the service manager, and the others at the endpoints of `config`.
    ///
    /// # Errors
    /// If a port cannot be listened on, a certificate cannot be used, or threads cannot be started.
    pub fn start(config: &Config, inherited: InheritedPorts) -> Result<Self, StartError> {
        // First, so that a certificate that cannot be used leaves nothing to be stopped.
        let tls = TlsPorts::load(config)?;
        let main = Workers::start_single("accept").map_err(StartError::Threads)?;
        let producers = Workers::start("ingest").map_err(StartError::Threads)?;
        let viewers = Workers::start_shared("live").map_err(StartError::Threads)?;
        let network = &config.network;
        let table = ConnectionTable::new(config.max_connections);
        let (viewers_alive, producers_alive) = (network.keep_alive, network.producer_keep_alive);
        let listen = |(port, keep_alive): (&'static str, _), endpoint, bound| {
            let _guard = main.pool().first().enter();
            open_port(port, keep_alive, endpoint, bound, Arc::clone(&table))
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
        let quic = QuicSetup::open(config)?;
        let addresses = Addresses {
            quic: quic.as_ref().map(|quic| quic.port.address()),
            control: control.address(),
            data: data.address(),
            live: live.address(),
            http: http.as_ref().map(Listener::address),
        };
        warn_of_open_port(addresses.live, tls.live.is_some());
        let sync = Syncer::start(config.sync).map_err(StartError::Threads)?;
        let (archiver, feed, fleet) = start_archiving(config)?;
        let registry = Registry::new(registry_settings(config, sync.as_ref(), feed));
        // Before a producer can ask for its session.
        restore_sessions(&registry, Instant::now());
        registry.archive_unfinished();
        let open = Box::new(registry.open_directories());
        let retention = RetentionThread::start(config.output.clone(), config.retention, open)
            .map_err(StartError::Threads)?;
        let health = Arc::new(Health::new(Instant::now()));
        let ports = [&control, &data, &live].into_iter().chain(&http);
        let ports = ports.map(Listener::port);
        let ports = ports.chain(quic.as_ref().map(|quic| quic.port.port()));
        let counters = quic.as_ref().map(|quic| Arc::clone(quic.port.counters()));
        let status = StatusApi::new(
            Arc::clone(&registry),
            Arc::clone(&health),
            ports.collect(),
            counters,
            Arc::clone(retention.status()),
            config.retention,
            archiver.as_ref().map(|own| Arc::clone(own.status())),
        );
        let (mut quic_port, mut quic_worker, mut quic_certificates) = (None, None, None);
        if let Some(quic) = quic {
            quic_port = Some(quic.port);
            quic_worker = Some(quic.workers);
            quic_certificates = Some(quic.certificates);
        }
        let server = Self {
            addresses,
            tls,
            status: Arc::new(status),
            registry,
            health,
            main,
            http: http_worker,
            quic: quic_worker,
            quic_certificates,
            producers,
            viewers,
            connections: TaskTracker::new(),
            stop: CancellationToken::new(),
            commands_stop: CancellationToken::new(),
            sync,
            archiver,
            fleet,
            _retention: retention,
        };
        server.serve(config.network.timeouts, control, data, live, quic_port);
        if let (Some(http), Some(worker)) = (http, &server.http) {
            server.serve_http(http, worker.pool().clone());
        }
        Ok(server)
    }

    /// Checks what can be checked of a configuration without listening: whether the hosts of the
    /// ports have addresses and the certificates can be used.
    ///
    /// # Errors
    /// The first fault.
    pub fn check(config: &Config) -> Result<(), StartError> {
        TlsPorts::load(config)?;
        QuicSetup::check(config)?;
        let ports = [
            ("control", Some(&config.control)),
            ("data", Some(&config.data)),
            ("viewers", Some(&config.live)),
            ("http", config.http.as_ref()),
            ("quic", config.quic.as_ref()),
        ];
        for (port, endpoint) in ports {
            let Some(endpoint) = endpoint else { continue };
            resolve(port, endpoint)?;
        }
        Ok(())
    }

    /// Liveness of its threads and ports.
    #[must_use]
    pub fn health(&self) -> &Arc<Health> {
        &self.health
    }

    /// Reads the certificates of the ports with TLS again. Connections that are open keep theirs.
    /// If a file cannot be used, its port keeps the certificate that it has, which is logged.
    pub fn reload_certificates(&self) {
        for port in self.tls.iter() {
            port.reload();
        }
        if let Some(certificates) = &self.quic_certificates {
            certificates.reload();
        }
    }

    /// Sends the producers that can resume their sessions to another relay. The others, and
    /// viewers, are served until the relay is stopped.
    pub fn drain(&self) {
        self.registry.drain();
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
    /// [`DRAIN_TIMEOUT`]), and closes every session. Everything received is written when this
    /// returns. Returns whether it is in the archive, too, if there is one.
    #[must_use]
    pub fn stop(self) -> bool {
        info!("stopping");
        self.status.set_stopping();
        self.stop.cancel();
        self.connections.close();
        if !self.main.block_on(self.receive_rest()) {
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
        // After everything is written.
        if self.sync.is_some_and(|sync| !sync.stop(SYNC_TIMEOUT)) {
            warn!("files not synced: the disk takes too long; a power failure may lose their end");
        }
        // Viewers are served meanwhile.
        let archiver = self.archiver;
        let is_archived = archiver.is_none_or(|archiver| archiver.stop(ARCHIVE_STOP_TIMEOUT));
        drop(self.viewers);
        // Last: closes of connections are sent.
        drop(self.quic);
        is_archived
    }

    /// Waits until all connections of producers have ended because they are silent. Returns false
    /// after [`DRAIN_TIMEOUT`].
    async fn receive_rest(&self) -> bool {
        let has_drained = async |timeout| {
            let waited = tokio::time::timeout(timeout, self.connections.wait()).await;
            waited.is_ok()
        };
        if has_drained(DRAIN_COMMANDS_TIMEOUT).await {
            return true;
        }
        // A producer that waits for replies is silent then, and the packets whose indexes were
        // answered are read.
        info!("producers still send: no more commands are handled");
        self.commands_stop.cancel();
        has_drained(DRAIN_TIMEOUT - DRAIN_COMMANDS_TIMEOUT).await
    }

    fn serve(
        &self,
        timeouts: Timeouts,
        control: Listener,
        data: Listener,
        live: Listener,
        quic: Option<QuicPort>,
    ) {
        let pool = self.producers.pool().clone();
        let context = ProducerContext {
            registry: Arc::clone(&self.registry),
            session_affinity: Arc::new(SessionAffinity::new(pool.clone())),
            timeouts,
            stop: self.stop.clone(),
            commands_stop: self.commands_stop.clone(),
            viewer_throttle: Arc::default(),
            session: None,
        };
        let viewer_context = ViewerContext {
            registry: Arc::clone(&self.registry),
            fleet: self.fleet.as_ref().map(|own| own.fleet_of(&self.registry)),
            tasks: Arc::default(),
            throttle: Arc::clone(&context.viewer_throttle),
            timeouts,
        };
        let tls = &self.tls;
        // A session has one control connection.
        let sessions = pool.counting_sessions();
        self.accept_producers(
            control,
            sessions,
            &tls.control,
            context.clone(),
            control::serve,
        );
        self.accept_producers(data, pool.clone(), &tls.data, context.clone(), data::serve);
        if let (Some(quic), Some(workers)) = (quic, &self.quic) {
            let serving = QuicServing {
                stop: self.stop.clone(),
                producers: self.producers.pool().counting_sessions(),
                producer_tasks: self.connections.clone(),
                context,
                viewers: self.viewers.pool().clone(),
                viewer_context: viewer_context.clone(),
            };
            let accepting = quic.accept(serving);
            let health = Arc::clone(&self.health);
            workers.spawn(async move {
                let _listening = health.producers.listening_guard();
                accepting.await;
            });
        }
        let (tls, stop) = (tls.live.clone(), self.stop.clone());
        // Shutdown does not wait for viewers: their tasks are not tracked.
        let accepting = live.accept(
            self.stop.clone(),
            TaskTracker::new(),
            self.viewers.pool().clone(),
            move |socket, peer, _, handshake| {
                let context = viewer_context.clone();
                let (tls, stop) = (tls.clone(), stop.clone());
                async move {
                    let accepted = accept(socket, peer, tls.as_deref(), &stop).await;
                    if let Some(accepted) = accepted {
                        let socket = accepted.into_socket();
                        live::serve(socket, peer, context, handshake).await;
                    }
                }
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
        pool: WorkerPool,
        tls: &Option<Arc<TlsPort>>,
        context: ProducerContext,
        serve: fn(Accepted, SocketAddr, WorkerId, ProducerContext, Handshake) -> F,
    ) {
        let tls = tls.clone();
        let accepting = listener.accept(
            self.stop.clone(),
            self.connections.clone(),
            pool,
            move |socket, peer, worker_id, handshake| {
                let (tls, context) = (tls.clone(), context.clone());
                async move {
                    let accepted = accept(socket, peer, tls.as_deref(), &context.stop).await;
                    if let Some(accepted) = accepted {
                        serve(accepted, peer, worker_id, context, handshake).await;
                    }
                }
            },
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
            move |socket, peer, _, handshake| {
                let (status, ended) = (Arc::clone(&status), ended.clone());
                async move {
                    http::serve(socket, peer, status, ended).await;
                    // Never complete: HTTP clients connect again.
                    drop(handshake);
                }
            },
        );
        self.spawn_accept(|health| &health.viewers, accepting);
    }

    /// Runs the accept loop of a port on the main event loop. `side` of the health counts the port
    /// as listened on until the loop ends.
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

impl TlsPorts {
    fn load(config: &Config) -> Result<Self, StartError> {
        let load = |port: &'static str, endpoint: &Endpoint, role, protocol| {
            let files = config.tls.clone().filter(|_| endpoint.is_tls());
            let loaded = files.map(|files| TlsPort::load(port, role, protocol, files));
            let loaded = loaded.transpose();
            loaded
                .map(|tls| tls.map(Arc::new))
                .map_err(|source| StartError::Tls {
                    port,
                    source: Box::new(source),
                })
        };
        Ok(Self {
            control: load("control", &config.control, Role::Produce, ALPN_CONTROL)?,
            data: load("data", &config.data, Role::Produce, ALPN_DATA)?,
            live: load("viewers", &config.live, Role::View, ALPN_LIVE)?,
        })
    }

    fn iter(&self) -> impl Iterator<Item = &TlsPort> {
        [&self.control, &self.data, &self.live]
            .into_iter()
            .filter_map(Option::as_deref)
    }
}
