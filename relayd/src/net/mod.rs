//! Sockets, tasks and the end of them all: the only module that names `tokio::net`. Everything that
//! is decided is decided elsewhere; here bytes are moved.
//!
//! Read in this order: [`Server`] here, `listen` with `places` (accepting), `receive` and `send` (what all
//! connections do), then one file for each port: `control`, `data`, `live` with `push`.

mod control;
mod data;
mod listen;
mod live;
mod places;
mod push;
mod receive;
mod send;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

use thiserror::Error;
use tokio::runtime::{Builder, Runtime};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

use crate::config::{Config, Endpoint, EndpointError, Patience};
use crate::limits::DRAIN;
use crate::registry::{Registry, Settings};
use crate::service::health::{Health, Side};
use crate::service::sockets::Inherited;
use crate::store::pool::Pool;
use listen::Listener;
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
    health: Arc<Health>,
    producers: Runtime,
    viewers: Runtime,
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
    /// Starts a relay. When this returns, all three ports accept: those that were `inherited`, and the
    /// others where `config` says.
    ///
    /// # Errors
    /// If a port cannot be listened on.
    pub fn start(config: &Config, inherited: Inherited) -> Result<Self, StartError> {
        let producers = threads("ingest")?;
        let viewers = threads("live")?;
        let keep_alive = config.network.keep_alive;
        let on = |runtime: &Runtime, port, endpoint: &Endpoint, bound: Option<TcpListener>| {
            let _guard = runtime.enter();
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
        let control = on(&producers, "control", &config.control, inherited.control)?;
        let data = on(&producers, "data", &config.data, inherited.data)?;
        let live = on(&viewers, "viewers", &config.live, inherited.live)?;
        let addresses = Addresses {
            control: control.address(),
            data: data.address(),
            live: live.address(),
        };
        let registry = Registry::new(Settings {
            output: config.output.clone(),
            grouping: config.grouping,
            allows_clear: config.allows_clear,
            window: config.window,
            time_zone: config.time_zone.clone(),
            pool: Pool::new(config.pool),
        });
        let server = Self {
            addresses,
            registry,
            health: Arc::new(Health::new(Instant::now())),
            producers,
            viewers,
            connections: TaskTracker::new(),
            stop: CancellationToken::new(),
        };
        server.serve(config.network.patience, control, data, live);
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
        self.producers.shutdown_timeout(DRAIN);
        self.registry.close();
        self.viewers.shutdown_background();
    }

    fn serve(&self, patience: Patience, control: Listener, data: Listener, live: Listener) {
        let (registry, stop) = (Arc::clone(&self.registry), self.stop.clone());
        let accepting = control.accept(
            self.stop.clone(),
            self.connections.clone(),
            move |socket, peer| {
                control::serve(socket, peer, Arc::clone(&registry), patience, stop.clone())
            },
        );
        self.listen(&self.producers, |health| &health.producers, accepting);
        let (registry, stop) = (Arc::clone(&self.registry), self.stop.clone());
        let accepting = data.accept(
            self.stop.clone(),
            self.connections.clone(),
            move |socket, peer| {
                data::serve(socket, peer, Arc::clone(&registry), patience, stop.clone())
            },
        );
        self.listen(&self.producers, |health| &health.producers, accepting);
        let registry = Arc::clone(&self.registry);
        let viewers = Arc::<Viewers>::default();
        // Viewers are not waited for when the relay stops.
        let accepting = live.accept(
            self.stop.clone(),
            TaskTracker::new(),
            move |socket, peer| {
                let (registry, viewers) = (Arc::clone(&registry), Arc::clone(&viewers));
                live::serve(socket, peer, registry, viewers, patience)
            },
        );
        self.listen(&self.viewers, |health| &health.viewers, accepting);
        let (registry, health) = (Arc::clone(&self.registry), Arc::clone(&self.health));
        self.producers.spawn(every_tick(move |now| {
            registry.tick(now);
            health.producers.beat(now);
        }));
        let health = Arc::clone(&self.health);
        self.viewers
            .spawn(every_tick(move |now| health.viewers.beat(now)));
    }

    /// Accepts, on threads whose health is that of `side`.
    fn listen(
        &self,
        on: &Runtime,
        side: fn(&Health) -> &Side,
        accepting: impl Future<Output = ()> + Send + 'static,
    ) {
        let health = Arc::clone(&self.health);
        on.spawn(async move {
            let _listening = side(&health).listening();
            accepting.await;
        });
    }
}

async fn every_tick(mut then: impl FnMut(Instant)) {
    let mut interval = tokio::time::interval(TICK);
    loop {
        interval.tick().await;
        then(Instant::now());
    }
}

fn threads(name: &'static str) -> Result<Runtime, StartError> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    Builder::new_multi_thread()
        .thread_name(name)
        // Writing blocks when the disk does: then some other connection can go on.
        .worker_threads(cores.max(2))
        .enable_all()
        .build()
        .map_err(StartError::Threads)
}
