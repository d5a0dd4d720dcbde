//! Accepting connections.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::sockopt;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

use super::loops::{Place, Places};
use crate::limits::{BACKLOG, KEEP_ALIVE_IDLE, KEEP_ALIVE_INTERVAL, MOST_CONNECTIONS};

/// Pause after the system has refused a connection for want of file descriptors or memory.
const REFUSED: Duration = Duration::from_millis(100);

/// A port that accepts.
#[derive(Debug)]
pub(super) struct Listener {
    port: &'static str,
    address: SocketAddr,
    listener: TcpListener,
}

impl Listener {
    /// Listens. To be called on the threads that will accept.
    pub(super) fn bind(port: &'static str, address: SocketAddr) -> io::Result<Self> {
        let socket = if address.is_ipv4() {
            TcpSocket::new_v4()
        } else {
            TcpSocket::new_v6()
        }?;
        // So that a relay can be started again at once.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        let listener = socket.listen(BACKLOG)?;
        Ok(Self {
            port,
            address: listener.local_addr()?,
            listener,
        })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Accepts until `stop`, and has each connection served by a task of its own, on the threads in
    /// turn.
    pub(super) async fn accept<F: Future<Output = ()> + Send + 'static>(
        self,
        stop: CancellationToken,
        tasks: TaskTracker,
        places: Places,
        serve: impl Fn(TcpStream, SocketAddr, Place) -> F + Clone + Send + 'static,
    ) {
        let room = Arc::new(Semaphore::new(MOST_CONNECTIONS));
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                () = stop.cancelled() => return,
            };
            let (socket, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    warn!(port = self.port, %error, "connection not accepted");
                    tokio::time::sleep(REFUSED).await;
                    continue;
                }
            };
            let Ok(permit) = Arc::clone(&room).try_acquire_owned() else {
                warn!(port = self.port, %peer, most = MOST_CONNECTIONS, "connection refused: too many");
                continue;
            };
            if let Err(error) = prepare(&socket) {
                debug!(port = self.port, %peer, %error, "connection lost at once");
                continue;
            }
            let place = places.next();
            let (serve, task) = (serve.clone(), tasks.token());
            places.serve(place, socket, peer, async move |socket| {
                serve(socket, peer, place).await;
                drop((task, permit));
            });
        }
    }
}

/// Replies leave at once; a peer that has vanished is noticed, and NATs on the way keep their state.
fn prepare(socket: &TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, KEEP_ALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(socket, KEEP_ALIVE_INTERVAL)?;
    Ok(())
}
