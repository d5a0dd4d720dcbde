//! Sockets, tasks and the end of them all: the only module that names `tokio::net`. Everything that
//! is decided is decided elsewhere; here bytes are moved.
//!
//! Read in this order: [`Server`] here, `loops` (threads) and `homes` (which session is served on
//! which), `listen` (accepting), `receive` and `send` (what all connections do), then one file for each
//! port: `control`, `data` with `pace` and `watched`, `live` with `push`.

mod control;
mod data;
mod homes;
mod listen;
mod live;
mod loops;
mod pace;
mod push;
mod receive;
mod send;
mod watched;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use thiserror::Error;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

use crate::config::{Config, Endpoint, EndpointError};
use crate::limits::DRAIN;
use crate::registry::{Registry, Settings};
use homes::Homes;
use listen::Listener;
use loops::Loops;
use push::Viewers;

/// How often what waits for time to pass is looked at.
const TICK: Duration = Duration::from_secs(1);

/// A running relay.
///
/// Producers and viewers have threads of their own: a disk that keeps the one waiting does not keep
/// the other. Dropping it without [`stop`](Self::stop) ends it on the spot.
#[derive(Debug)]
pub struct Server {
    addresses: Addresses,
    registry: Arc<Registry>,
    producers: Loops,
    viewers: Loops,
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
}

/// Why a relay does not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// An address makes no sense here.
    #[error("cannot listen for {port} on {endpoint}")]
    Endpoint {
        /// Which of the three.
        port: &'static str,
        /// What it was to be.
        endpoint: Endpoint,
        /// What is wrong with it.
        source: EndpointError,
    },
    /// An address cannot be listened on: usually another program does.
    #[error("cannot listen for {port} on {endpoint}")]
    Listen {
        /// Which of the three.
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
    /// Starts a relay. When this returns, all three ports accept.
    ///
    /// # Errors
    /// If a port cannot be listened on.
    pub fn start(config: &Config) -> Result<Self, StartError> {
        let producers = Loops::start("ingest").map_err(StartError::Threads)?;
        let viewers = Loops::start_shared("live").map_err(StartError::Threads)?;
        let on = |loops: &Loops, port, endpoint: &Endpoint| {
            let address = endpoint.resolve().map_err(|source| {
                let endpoint = endpoint.clone();
                StartError::Endpoint {
                    port,
                    endpoint,
                    source,
                }
            })?;
            let _guard = loops.places().first().enter();
            Listener::bind(port, address).map_err(|source| {
                let endpoint = endpoint.clone();
                StartError::Listen {
                    port,
                    endpoint,
                    source,
                }
            })
        };
        let control = on(&producers, "control", &config.control)?;
        let data = on(&producers, "data", &config.data)?;
        let live = on(&viewers, "viewers", &config.live)?;
        let addresses = Addresses {
            control: control.address(),
            data: data.address(),
            live: live.address(),
        };
        let registry = Registry::new(Settings {
            output: config.output.clone(),
            window: config.window,
            time_zone: config.time_zone.clone(),
        });
        let connections = TaskTracker::new();
        let stop = CancellationToken::new();
        let server = Self {
            addresses,
            registry,
            producers,
            viewers,
            connections,
            stop,
        };
        server.serve(control, data, live);
        Ok(server)
    }

    /// Where it listens.
    #[must_use]
    pub fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// Runs something on the relay's threads, a wait for a signal say, and waits for it.
    pub fn block_on<T>(&self, until: impl Future<Output = T>) -> T {
        self.producers.block_on(until)
    }

    /// Stops in good order: takes no more connections, takes in what producers have sent already,
    /// ends every session. What was received is on disk when this returns.
    pub fn stop(self) {
        info!("stopping");
        self.stop.cancel();
        self.connections.close();
        let drained = self
            .producers
            .block_on(async { tokio::time::timeout(DRAIN, self.connections.wait()).await });
        if drained.is_err() {
            warn!("some producers have more to send than there is time for");
        }
        self.producers.end(DRAIN);
        self.registry.close();
        drop(self.viewers);
    }

    fn serve(&self, control: Listener, data: Listener, live: Listener) {
        let registry = || Arc::clone(&self.registry);
        let stop = || self.stop.clone();
        let homes = Arc::new(Homes::new(self.producers.places().clone()));
        let (of_control, of_data) = (Arc::clone(&homes), homes);
        let (serve_registry, serve_stop) = (registry(), stop());
        self.producers.spawn(control.accept(
            stop(),
            self.connections.clone(),
            self.producers.places().clone(),
            move |socket, peer, place| {
                let homes = Arc::clone(&of_control);
                let registry = Arc::clone(&serve_registry);
                control::serve(socket, peer, place, registry, homes, serve_stop.clone())
            },
        ));
        let (serve_registry, serve_stop) = (registry(), stop());
        self.producers.spawn(data.accept(
            stop(),
            self.connections.clone(),
            self.producers.places().clone(),
            move |socket, peer, place| {
                let homes = Arc::clone(&of_data);
                let registry = Arc::clone(&serve_registry);
                data::serve(socket, peer, place, registry, homes, serve_stop.clone())
            },
        ));
        let serve_registry = registry();
        let viewers = Arc::<Viewers>::default();
        // Viewers are not waited for when the relay stops.
        self.viewers.spawn(live.accept(
            stop(),
            TaskTracker::new(),
            self.viewers.places().clone(),
            move |socket, peer, _| {
                let (registry, viewers) = (Arc::clone(&serve_registry), Arc::clone(&viewers));
                live::serve(socket, peer, registry, viewers)
            },
        ));
        self.producers.spawn(tick(registry()));
    }
}

async fn tick(registry: Arc<Registry>) {
    let mut interval = tokio::time::interval(TICK);
    loop {
        interval.tick().await;
        registry.tick(Instant::now());
    }
}
