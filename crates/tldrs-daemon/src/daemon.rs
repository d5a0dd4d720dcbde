//! The running daemon: accepts clients until a signal or a client stops it, then drains them.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use thiserror::Error;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, info, warn};

use crate::client::{self, ClientContext};
use crate::forward_queue::TraceSender;
use crate::limits::{ACCEPT_RETRY_INTERVAL, CLIENT_SHUTDOWN_TIMEOUT, EXPORT_SHUTDOWN_TIMEOUT};
use crate::line_reader::ReaderContext;
use crate::open::open_append;
use crate::peer::Peer;
use crate::settings::{DaemonSettings, Storage};
use crate::socket::{self, Socket, SocketError};
use crate::traces::Traces;

/// The daemon cannot start.
#[derive(Debug, Error)]
pub enum StartError {
    /// A socket cannot be listened on.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The directory or file for events cannot be used.
    #[error("cannot store events in {}", path.display())]
    Storage {
        /// Path of the directory or file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A socket cannot be registered with the runtime.
    #[error("cannot wait for connections")]
    Listen(#[source] io::Error),
}

/// The reason why the daemon has stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// The token that was passed to [`Daemon::run`] was cancelled.
    Requested,
    /// A client has sent `DIE`, or `DIE_WHEN_IDLE` and no trace was open any more.
    ByClient,
}

/// A daemon that listens, and accepts no client before it runs.
#[derive(Debug)]
pub struct Daemon {
    listeners: Vec<tokio::net::UnixListener>,
    guards: Vec<socket::SocketGuard>,
    acceptor: Arc<ClientAcceptor>,
}

impl Daemon {
    /// Listens on the sockets. Clients can connect when this returns; they are served by
    /// [`run`](Self::run). To be called on a tokio runtime.
    ///
    /// # Errors
    /// If a socket or the storage cannot be used.
    pub fn start(
        settings: DaemonSettings,
        forward: Option<TraceSender>,
    ) -> Result<Self, StartError> {
        check_storage(&settings.storage)?;
        let uid = rustix::process::geteuid().as_raw();
        let mode = settings.socket_mode();
        let mut sockets = Vec::new();
        for path in &settings.sockets {
            sockets.push(Socket::listen(path, mode)?);
        }
        if let Some(path) = &settings.extra_socket {
            match Socket::listen(path, mode) {
                Ok(socket) => sockets.push(socket),
                Err(error) => {
                    warn!(%error, "cannot listen on the further socket; programs that look for the daemon there will not find it");
                }
            }
        }
        let stop = CancellationToken::new();
        let traces = Traces::new(&settings, forward, stop.clone());
        let mut allowed_users = settings.allowed_users;
        allowed_users.extend([0, uid]);
        let (mut listeners, guards): (Vec<_>, _) = sockets
            .into_iter()
            .map(|socket| (socket.listener, socket.guard))
            .unzip();
        listeners.extend(settings.inherited);
        let listeners = listeners.into_iter().map(|listener| {
            listener.set_nonblocking(true)?;
            tokio::net::UnixListener::from_std(listener)
        });
        Ok(Self {
            listeners: listeners
                .collect::<io::Result<_>>()
                .map_err(StartError::Listen)?,
            guards,
            acceptor: Arc::new(ClientAcceptor {
                allowed_users,
                max_clients: settings.max_clients,
                client_permits: Arc::new(Semaphore::new(settings.max_clients)),
                tasks: TaskTracker::new(),
                closed: CancellationToken::new(),
                abort: CancellationToken::new(),
                clients: Arc::new(ClientContext {
                    reader: ReaderContext::new(settings.max_line_bytes),
                    traces: Arc::new(traces),
                    storage: settings.storage,
                    when_full: settings.when_full,
                    uid,
                    stop,
                }),
            }),
        })
    }

    /// Serves clients until `stop` is cancelled, or a client stops the daemon. When this returns,
    /// the events that clients had sent are stored, and pending exports are made.
    pub async fn run(self, stop: CancellationToken) -> StopReason {
        let Self {
            listeners,
            guards,
            acceptor,
        } = self;
        if let Err(error) = acceptor.clients.traces.resume_exports() {
            warn!(%error, "pending exports of an earlier daemon are not resumed");
        }
        let accepting = TaskTracker::new();
        for listener in listeners {
            accepting.spawn(Arc::clone(&acceptor).accept_clients(listener));
        }
        let polling = Arc::clone(&acceptor);
        let poll_timer = tokio::spawn(async move {
            if let Err(error) = polling.clients.reader.run_poll_timer().await {
                warn!(%error, "the poll timer has failed; clients that send in small pieces may stall");
            }
        });
        let end = &acceptor.clients.stop;
        let why = tokio::select! {
            () = stop.cancelled() => StopReason::Requested,
            () = end.cancelled() => StopReason::ByClient,
        };
        end.cancel();
        // From now on no client can connect. Connected clients are still read from, until
        // `DRAIN_TIMEOUT`.
        guards.iter().for_each(socket::SocketGuard::remove);
        acceptor.closed.cancel();
        accepting.close();
        accepting.wait().await;
        acceptor.drain_clients().await;
        // Releases the locks: another daemon can listen on the sockets only after the last event is
        // stored.
        drop(guards);
        poll_timer.abort();
        why
    }
}

/// Accepts clients on all sockets, and spawns a task for each.
#[derive(Debug)]
struct ClientAcceptor {
    allowed_users: BTreeSet<u32>,
    max_clients: usize,
    client_permits: Arc<Semaphore>,
    tasks: TaskTracker,
    /// Cancelled when clients are not accepted any more.
    closed: CancellationToken,
    /// Cancelled to end clients that exceed [`CLIENT_SHUTDOWN_TIMEOUT`].
    abort: CancellationToken,
    clients: Arc<ClientContext>,
}

impl ClientAcceptor {
    /// Accepts clients until the daemon stops, and spawns a task for each.
    async fn accept_clients(self: Arc<Self>, listener: tokio::net::UnixListener) {
        while let Some(accepted) = self.closed.run_until_cancelled(listener.accept()).await {
            match accepted {
                Ok((socket, _)) => self.admit_client(socket),
                Err(error) => {
                    warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_RETRY_INTERVAL).await;
                }
            }
        }
        // Clients in the backlog of the socket may have sent events already. The system is asked:
        // the runtime may not know of them yet.
        let Ok(listener) = listener.into_std() else {
            return;
        };
        while let Ok((socket, _)) = listener.accept() {
            let socket = socket
                .set_nonblocking(true)
                .and_then(|()| tokio::net::UnixStream::from_std(socket));
            match socket {
                Ok(socket) => self.admit_client(socket),
                Err(error) => debug!(%error, "connection lost before it was served"),
            }
        }
    }

    fn admit_client(self: &Arc<Self>, socket: tokio::net::UnixStream) {
        let peer = match socket.peer_cred() {
            Ok(credentials) => Peer::new(credentials),
            Err(error) => return debug!(%error, "connection lost before it was served"),
        };
        if !self.allowed_users.contains(&peer.uid) {
            return warn!(%peer, "connection refused: not an allowed user");
        }
        let Ok(permit) = Arc::clone(&self.client_permits).try_acquire_owned() else {
            return warn!(%peer, max = self.max_clients, "connection refused: too many clients");
        };
        let socket = match socket.into_std() {
            Ok(socket) => socket.into(),
            Err(error) => return debug!(%peer, %error, "connection lost before it was served"),
        };
        let acceptor = Arc::clone(self);
        self.tasks.spawn(async move {
            let serve = client::serve(socket, peer, Arc::clone(&acceptor.clients));
            acceptor.abort.run_until_cancelled(serve).await;
            drop(permit);
        });
    }

    /// Waits for all clients, then for all exports, each with a timeout.
    async fn drain_clients(&self) {
        self.tasks.close();
        if tokio::time::timeout(CLIENT_SHUTDOWN_TIMEOUT, self.tasks.wait())
            .await
            .is_err()
        {
            warn!("some clients did not finish in time and are disconnected");
            self.abort.cancel();
            self.tasks.wait().await;
        }
        let exports = self.clients.traces.wait_for_exports();
        if tokio::time::timeout(EXPORT_SHUTDOWN_TIMEOUT, exports)
            .await
            .is_err()
        {
            warn!("some exports did not finish in time; the next start makes them");
        }
        info!("stopped");
    }
}

/// Checks that the directory can be read, or the file can be appended to.
fn check_storage(storage: &Storage) -> Result<(), StartError> {
    let (path, checked) = match storage {
        Storage::Directory(path) => (path, std::fs::read_dir(path).map(drop)),
        Storage::File(path) => (path, open_append(path).map(drop)),
    };
    checked.map_err(|source| StartError::Storage {
        path: path.clone(),
        source,
    })
}
