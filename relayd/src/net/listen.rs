//! Listening on a port and accepting its connections, within the limits of `admission`.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::sockopt;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

use super::admission::{Admission, ConnectionTable, Handshake};
use super::refusal_log::RefusalLog;
use super::worker::WorkerId;
use super::worker_pool::WorkerPool;
use crate::config::KeepAlive;
use crate::http::Port;
use crate::limits::{BACKLOG, MAX_CONNECTIONS, MAX_CONNECTIONS_OF_ONE};

/// Pause after `accept` has failed for want of file descriptors or memory.
const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// A listening socket and what its connections have in common.
#[derive(Debug)]
pub(super) struct Listener {
    /// Name of the port, for logs and metrics.
    port: &'static str,
    address: SocketAddr,
    listener: TcpListener,
    keep_alive: Option<KeepAlive>,
    admission: Arc<Admission>,
}

impl Listener {
    /// Listens on an address. To be called within the runtime that accepts.
    pub(super) fn bind(
        port: &'static str,
        address: SocketAddr,
        keep_alive: Option<KeepAlive>,
        table: Arc<ConnectionTable>,
    ) -> io::Result<Self> {
        let socket = if address.is_ipv4() {
            TcpSocket::new_v4()
        } else {
            TcpSocket::new_v6()
        }?;
        // A restarted relay can listen while connections of the previous one are in TIME_WAIT.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        Self::new(port, socket.listen(BACKLOG)?, keep_alive, table)
    }

    /// Takes over a listening socket that the service manager has bound. To be called within the
    /// runtime that accepts.
    pub(super) fn inherit(
        port: &'static str,
        bound: std::net::TcpListener,
        keep_alive: Option<KeepAlive>,
        table: Arc<ConnectionTable>,
    ) -> io::Result<Self> {
        bound.set_nonblocking(true)?;
        Self::new(port, TcpListener::from_std(bound)?, keep_alive, table)
    }

    fn new(
        port: &'static str,
        listener: TcpListener,
        keep_alive: Option<KeepAlive>,
        table: Arc<ConnectionTable>,
    ) -> io::Result<Self> {
        Ok(Self {
            port,
            address: listener.local_addr()?,
            listener,
            keep_alive,
            admission: Admission::new(port, MAX_CONNECTIONS, MAX_CONNECTIONS_OF_ONE, table),
        })
    }

    /// Replaces the limits: `max` connections in all, of any number of peers.
    pub(super) fn with_max_connections(mut self, max: usize) -> Self {
        let table = Arc::clone(self.admission.table());
        self.admission = Admission::new(self.port, max, max, table);
        self
    }

    /// The port for the status endpoint, which shows its number of connections.
    pub(super) fn port(&self) -> Port {
        let admission = Arc::clone(&self.admission);
        Port {
            name: self.port,
            connections: Box::new(move || admission.count()),
        }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Accepts connections until `stop` is cancelled. Each is served by a task of its own on a
    /// worker of `pool`, which is dropped if the connection is evicted.
    pub(super) async fn accept<F: Future<Output = ()> + Send + 'static>(
        self,
        stop: CancellationToken,
        tasks: TaskTracker,
        pool: WorkerPool,
        serve: impl Fn(TcpStream, SocketAddr, WorkerId, Handshake) -> F + Clone + Send + 'static,
    ) {
        let mut refusals = RefusalLog::new(self.port);
        let mut is_failing = false;
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                () = refusals.wait_until_due() => {
                    refusals.report_if_due(Instant::now());
                    // From here on the next failure is logged again.
                    is_failing = false;
                    continue;
                }
                () = stop.cancelled() => return,
            };
            let (socket, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    if !std::mem::replace(&mut is_failing, true) {
                        warn!(port = self.port, %error, "connection not accepted; retrying");
                    }
                    self.make_room(&mut refusals).await;
                    continue;
                }
            };
            let evicting = || refusals.record_evicted(Instant::now());
            let Some(admitted) = self.admission.admit_evicting(peer.ip(), evicting).await else {
                refusals.record_refused(peer, Instant::now());
                continue;
            };
            if let Err(error) = set_socket_options(&socket, self.keep_alive) {
                debug!(port = self.port, %peer, %error, "connection lost before it was served");
                continue;
            }
            let evicted = CancellationToken::new();
            let handshake = self.admission.begin_handshake(peer.ip(), evicted.clone());
            let (serve, task) = (serve.clone(), tasks.token());
            pool.serve(socket, peer, async move |socket, place| {
                tokio::select! {
                    // Eviction first, also for a connection that always has something to do.
                    biased;
                    () = evicted.cancelled() => {}
                    () = serve(socket, peer, place.worker_id, handshake) => {}
                }
                // They count the connection until its task has ended.
                drop((task, admitted, place));
            });
        }
    }

    /// Evicts a connection without a handshake, after `accept` has failed for want of file
    /// descriptors or memory, and waits until some connection is closed, or for
    /// [`ACCEPT_RETRY_INTERVAL`].
    async fn make_room(&self, refusals: &mut RefusalLog) {
        let table = self.admission.table();
        // Before the eviction, so that a connection that closes at once is noticed.
        let closed = table.wait_for_close();
        if table.evict_oldest() {
            refusals.record_evicted(Instant::now());
        }
        let _ = tokio::time::timeout(ACCEPT_RETRY_INTERVAL, closed).await;
    }
}

/// Sets socket options: replies leave at once, a peer that has vanished is noticed, and NATs on the
/// way keep their state.
fn set_socket_options(socket: &TcpStream, keep_alive: Option<KeepAlive>) -> io::Result<()> {
    socket.set_nodelay(true)?;
    sockopt::set_socket_keepalive(socket, keep_alive.is_some())?;
    let Some(keep_alive) = keep_alive else {
        return Ok(());
    };
    if let Some(idle) = keep_alive.idle {
        sockopt::set_tcp_keepidle(socket, idle)?;
    }
    if let Some(interval) = keep_alive.interval {
        sockopt::set_tcp_keepintvl(socket, interval)?;
    }
    if let Some(probes) = keep_alive.probes {
        sockopt::set_tcp_keepcnt(socket, probes)?;
    }
    if let Some(abort) = keep_alive.abort {
        let milliseconds = u32::try_from(abort.as_millis()).unwrap_or(u32::MAX);
        sockopt::set_tcp_user_timeout(socket, milliseconds)?;
    }
    Ok(())
}

/// Warns when other hosts can read all traces, and everybody on the way as well.
pub(super) fn warn_of_open_port(live: SocketAddr, has_tls: bool) {
    if !has_tls && !live.ip().to_canonical().is_loopback() {
        warn!(
            %live,
            "live port open to other hosts without TLS: every program that reaches it can read all traces; see `relayd certs --help`"
        );
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::config::Network;
    use crate::limits::PRODUCER_USER_TIMEOUT;

    #[test]
    fn producer_connections_have_a_tcp_user_timeout_and_viewer_connections_the_system_default() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build();
        runtime.unwrap().block_on(async {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
            let socket = TcpStream::connect(listener.local_addr().unwrap()).await;
            let socket = socket.unwrap();
            let network = Network::default();
            set_socket_options(&socket, network.keep_alive).unwrap();
            assert_eq!(sockopt::tcp_user_timeout(&socket).unwrap(), 0);
            set_socket_options(&socket, network.producer_keep_alive).unwrap();
            let milliseconds = u128::from(sockopt::tcp_user_timeout(&socket).unwrap());
            assert_eq!(milliseconds, PRODUCER_USER_TIMEOUT.as_millis());
        });
    }
}
