//! The QUIC port: one UDP port for producers and viewers, whose application protocol (ALPN) says
//! which of them a connection is. `doc/protocol-extensions.md` describes what its streams carry.
//!
//! The drivers of quinn (datagrams, encryption, timers) run on threads of their own, so that
//! connections stay alive while a worker hangs in a file call. What the bytes mean is handled where
//! it is for TCP: by the workers for producers and by the threads for viewers.
//!
//! Read in this order: [`QuicPort`] here (accepting), `producer` with `packet_streams`, `viewer`,
//! `window`.

mod packet_streams;
mod producer;
mod viewer;
mod window;

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use daemon::checkup::listener::{Protocol, name_listener};
use quinn::{Endpoint, EndpointConfig, Incoming, TokioRuntime, VarInt};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, info};
use transport::config::{ALPN_CONTROL, ALPN_LIVE};
use transport::error::TransportError;
use transport::quic::{self, PROTOCOL_ERROR, ROLE_MISSING};
use transport::role::Role;
use transport::rustls::ServerConfig;

use super::ViewerContext;
use super::accepted::{load_config, report_reload};
use super::admission::{Admission, Admitted, ConnectionTable, Handshake};
use super::refusal_log::RefusalLog;
use super::worker_pool::{Place, WorkerPool, Workers};
use super::{ProducerContext, StartError};
use crate::config::{Config, TlsFiles};
use crate::http::{Port, QuicCounters};
use crate::limits::{
    HANDSHAKE_TIMEOUT, MAX_COMMAND_STREAMS, MAX_PACKET_STREAMS, MAX_QUIC_CONNECTIONS,
    MAX_QUIC_CONNECTIONS_OF_ONE, MAX_QUIC_INCOMING_BYTES, MAX_RECEIVE_WINDOW, MAX_SEND_WINDOW,
    MAX_UNVALIDATED_HANDSHAKES, MIN_RECEIVE_WINDOW, MIN_SEND_WINDOW, RECEIVE_WINDOW_MEMORY,
    SEND_WINDOW_MEMORY, VIEWER_RECEIVE_WINDOW,
};
use producer::ProducerLink;
use window::WindowMemory;

/// The application protocols of the port.
const PROTOCOLS: &[&[u8]] = &[ALPN_CONTROL, ALPN_LIVE];

/// The QUIC port of a relay.
#[derive(Debug)]
pub(super) struct QuicPort {
    endpoint: Endpoint,
    address: SocketAddr,
    admission: Arc<Admission>,
    handshakes: Arc<AtomicUsize>,
    /// Memory of the windows for what producers may have in flight.
    receive_windows: Arc<WindowMemory>,
    /// Memory of the windows for what may be in flight to viewers.
    send_windows: Arc<WindowMemory>,
    counters: Arc<QuicCounters>,
    /// Whether clients must have a certificate with the role.
    needs_role: bool,
}

/// The certificates of the port, which can be read again.
#[derive(Debug)]
pub(super) struct QuicCertificates {
    files: TlsFiles,
    endpoint: Endpoint,
}

/// The QUIC port and the threads of its drivers.
#[derive(Debug)]
pub(super) struct QuicSetup {
    pub(super) port: QuicPort,
    pub(super) certificates: QuicCertificates,
    pub(super) workers: Workers,
}

/// The workers and contexts that serve the connections.
#[derive(Debug)]
pub(super) struct QuicServing {
    pub(super) stop: CancellationToken,
    pub(super) producers: WorkerPool,
    /// The tasks of producers' connections, which shutdown waits for.
    pub(super) producer_tasks: TaskTracker,
    pub(super) context: ProducerContext,
    pub(super) viewers: WorkerPool,
    pub(super) viewer_context: ViewerContext,
}

/// A TLS handshake in progress. Dropping the value ends the count.
#[derive(Debug)]
struct TlsHandshake(Arc<AtomicUsize>);

impl QuicSetup {
    /// Checks whether the certificates can be used.
    pub(super) fn check(config: &Config) -> Result<(), StartError> {
        let tls = config.tls.as_ref().filter(|_| config.quic.is_some());
        tls.map_or(Ok(()), |tls| load_configs(tls).map(drop))
    }

    /// Listens on the endpoint of the configuration. None if it names none.
    pub(super) fn open(config: &Config) -> Result<Option<Self>, StartError> {
        let (Some(endpoint), Some(tls)) = (&config.quic, &config.tls) else {
            return Ok(None);
        };
        let port = "quic";
        let address = endpoint.resolve().map_err(|source| StartError::Endpoint {
            port,
            endpoint: endpoint.clone(),
            source,
        })?;
        let (endpoint_config, tls_config) = load_configs(tls)?;
        let needs_role = tls.client_ca.is_some();
        let workers = Workers::start_shared("quic").map_err(StartError::Threads)?;
        let bound = {
            let _guard = workers.pool().first().enter();
            QuicPort::bind(address, endpoint_config, tls_config, needs_role)
        };
        let port = bound.map_err(|source| StartError::Listen {
            port,
            endpoint: endpoint.clone(),
            source,
        })?;
        let certificates = QuicCertificates {
            files: tls.clone(),
            endpoint: port.endpoint.clone(),
        };
        Ok(Some(Self {
            port,
            certificates,
            workers,
        }))
    }
}

impl QuicCertificates {
    /// Reads the certificates again, for connections from now on. If that fails the port keeps
    /// those that it has. Both outcomes are logged.
    pub(super) fn reload(&self) {
        let config = load_config(&self.files, None, PROTOCOLS).and_then(server_config);
        let reloaded = config.map(|config| self.endpoint.set_server_config(Some(config)));
        report_reload("quic", reloaded);
    }
}

impl QuicPort {
    /// Listens on an address, with the drivers of quinn on the current runtime. With `needs_role`,
    /// the TLS configuration asks for client certificates, and what they allow is checked here.
    pub(super) fn bind(
        address: SocketAddr,
        endpoint: EndpointConfig,
        tls: Arc<ServerConfig>,
        needs_role: bool,
    ) -> io::Result<Self> {
        let server = server_config(tls).map_err(io::Error::other)?;
        let socket = UdpSocket::bind(address);
        let socket = socket.map_err(|error| name_listener(error, Protocol::Udp, address))?;
        let runtime = Arc::new(TokioRuntime);
        let endpoint = Endpoint::new(endpoint, Some(server), socket, runtime)?;
        Ok(Self {
            address: endpoint.local_addr()?,
            endpoint,
            // The connections of a UDP port share one file descriptor.
            admission: Admission::new(
                "quic",
                MAX_QUIC_CONNECTIONS,
                MAX_QUIC_CONNECTIONS_OF_ONE,
                ConnectionTable::new(MAX_QUIC_CONNECTIONS),
            ),
            handshakes: Arc::default(),
            receive_windows: WindowMemory::new(
                RECEIVE_WINDOW_MEMORY,
                MIN_RECEIVE_WINDOW,
                MAX_RECEIVE_WINDOW,
            ),
            send_windows: WindowMemory::new(SEND_WINDOW_MEMORY, MIN_SEND_WINDOW, MAX_SEND_WINDOW),
            counters: Arc::default(),
            needs_role,
        })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The port for the status endpoint, which shows its number of connections.
    pub(super) fn port(&self) -> Port {
        let admission = Arc::clone(&self.admission);
        Port {
            name: "quic",
            connections: Box::new(move || admission.count()),
        }
    }

    /// Counters of what happens on all connections of the port.
    pub(super) fn counters(&self) -> &Arc<QuicCounters> {
        &self.counters
    }

    /// Accepts connections until the relay stops.
    pub(super) async fn accept(self, serving: QuicServing) {
        let mut refusals = RefusalLog::new("quic");
        let this = Arc::new(self);
        let serving = Arc::new(serving);
        loop {
            let incoming = tokio::select! {
                incoming = this.endpoint.accept() => incoming,
                () = refusals.wait_until_due() => {
                    refusals.report_if_due(Instant::now());
                    continue;
                }
                () = serving.stop.cancelled() => break,
            };
            let Some(incoming) = incoming else { break };
            let peer = incoming.remote_address();
            // Before it takes a place: the address may be forged.
            let Some(incoming) = this.validate(incoming) else {
                continue;
            };
            let address = peer.ip();
            let evicting = || refusals.record_evicted(Instant::now());
            let Some(admitted) = this.admission.admit_evicting(address, evicting).await else {
                incoming.refuse();
                refusals.record_refused(peer, Instant::now());
                continue;
            };
            let evicted = CancellationToken::new();
            let handshake = this.admission.begin_handshake(address, evicted.clone());
            let (this, serving) = (Arc::clone(&this), Arc::clone(&serving));
            tokio::spawn(async move {
                let served = this.serve(incoming, admitted, handshake, &evicted, &serving);
                tokio::select! {
                    biased;
                    () = evicted.cancelled() => {}
                    () = served => {}
                }
            });
        }
        // Accepted connections stay until their tasks end them.
        this.endpoint.set_server_config(None);
    }

    /// Has a peer prove its address if there are many handshakes. None: it will come again.
    fn validate(&self, incoming: Incoming) -> Option<Incoming> {
        let is_busy = self.handshakes.load(Ordering::Relaxed) >= MAX_UNVALIDATED_HANDSHAKES;
        if is_busy && incoming.may_retry() && !incoming.remote_address_validated() {
            // Fails only for a peer that has been told before.
            let _ = incoming.retry();
            return None;
        }
        Some(incoming)
    }

    /// Completes the TLS handshake of a connection, and has it served until it ends or is evicted.
    async fn serve(
        &self,
        incoming: Incoming,
        admitted: Admitted,
        handshake: Handshake,
        evicted: &CancellationToken,
        serving: &QuicServing,
    ) {
        let peer = incoming.remote_address();
        let tls_handshake = TlsHandshake::begin(&self.handshakes);
        let connection = async { incoming.accept()?.await };
        let connection = match tokio::time::timeout(HANDSHAKE_TIMEOUT, connection).await {
            Ok(Ok(connection)) => connection,
            Ok(Err(error)) => return info!(%peer, %error, "QUIC handshake failed"),
            Err(_) => return debug!(%peer, "handshake timeout"),
        };
        // Only handshakes in progress are a reason to ask for proofs of address.
        drop(tls_handshake);
        let protocol = quic::protocol(&connection).unwrap_or_default();
        let role = match &protocol[..] {
            ALPN_CONTROL => Role::Produce,
            ALPN_LIVE => Role::View,
            // rustls has negotiated one of the two.
            _ => return connection.close(PROTOCOL_ERROR, b"unknown protocol"),
        };
        if self.needs_role && !quic::peer_roles(&connection).is_some_and(|roles| roles.has(role)) {
            info!(%peer, "QUIC connection refused: the certificate has no role {role}");
            return connection.close(ROLE_MISSING, b"the certificate does not allow this");
        }
        let evicted = evicted.clone();
        match role {
            Role::Produce => {
                let (context, window) = (serving.context.clone(), self.receive_windows.reserve());
                let (counters, task) = (Arc::clone(&self.counters), serving.producer_tasks.token());
                serving.producers.serve_task(async move |place: Place| {
                    let worker_id = place.worker_id;
                    let link = ProducerLink {
                        connection,
                        window,
                        counters,
                        handshake,
                    };
                    tokio::select! {
                        biased;
                        () = evicted.cancelled() => {}
                        () = producer::serve(link, worker_id, context) => {}
                    }
                    drop((task, admitted, place));
                });
            }
            Role::View => {
                let (context, window) =
                    (serving.viewer_context.clone(), self.send_windows.reserve());
                // Shutdown does not wait for viewers.
                serving.viewers.serve_task(async move |_| {
                    connection.set_send_window(window.bytes().into());
                    tokio::select! {
                        biased;
                        () = evicted.cancelled() => {}
                        () = viewer::serve(connection, context, handshake) => {}
                    }
                    drop((window, admitted));
                });
            }
        }
    }
}

/// Reads the certificates. The role is checked when the client's protocol is known.
fn load_configs(tls: &TlsFiles) -> Result<(EndpointConfig, Arc<ServerConfig>), StartError> {
    let server = load_config(tls, None, PROTOCOLS);
    let loaded = server.and_then(|server| Ok((quic::endpoint_config(&tls.key)?, server)));
    loaded.map_err(|source| StartError::Tls {
        port: "quic",
        source: Box::new(source),
    })
}

/// The configuration of the port: what peers may make the relay keep.
fn server_config(tls: Arc<ServerConfig>) -> Result<quinn::ServerConfig, TransportError> {
    let mut transport = quic::transport_config();
    transport
        .max_concurrent_uni_streams(VarInt::from_u32(MAX_PACKET_STREAMS))
        .max_concurrent_bidi_streams(VarInt::from_u32(MAX_COMMAND_STREAMS))
        // The window of the connection is the one that bounds memory.
        .stream_receive_window(VarInt::from_u32(MAX_RECEIVE_WINDOW))
        .receive_window(VarInt::from_u32(VIEWER_RECEIVE_WINDOW))
        .send_window(MIN_SEND_WINDOW.into());
    let mut config = quic::server_config(tls, transport)?;
    config
        .max_incoming(2 * MAX_UNVALIDATED_HANDSHAKES)
        .incoming_buffer_size_total(MAX_QUIC_INCOMING_BYTES)
        .migration(true);
    Ok(config)
}

impl TlsHandshake {
    fn begin(handshakes: &Arc<AtomicUsize>) -> Self {
        handshakes.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(handshakes))
    }
}

impl Drop for TlsHandshake {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
