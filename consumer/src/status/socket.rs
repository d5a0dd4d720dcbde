//! The status socket of a running agent: one JSON document for each connection.

use std::env;
use std::io::{self, ErrorKind, Read};
use std::os::unix::net::UnixStream as BlockingStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thiserror::Error;
use tokio::io::AsyncWriteExt;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tracing::debug;

use super::counters::StatusRegistry;
use super::report::StatusReport;
use crate::limits::{MAX_STATUS_BYTES, MAX_STATUS_CONNECTIONS, STATUS_TIMEOUT};
use crate::local_socket::{self, SocketFile};

/// A listening status socket. Dropping it removes the socket.
#[derive(Debug)]
pub struct StatusListener {
    task: JoinHandle<()>,
    _file: SocketFile,
}

/// No status was received.
#[derive(Debug, Error)]
pub enum StatusError {
    /// No agent listens on the socket.
    #[error("no agent runs that listens on {}", path.display())]
    NoAgent {
        /// Path of the socket.
        path: PathBuf,
    },
    /// The connection has failed.
    #[error("cannot read the status from {}: {source}", path.display())]
    Failed {
        /// Path of the socket.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The program that listens on the socket is not an agent.
    #[error("cannot read the status from {}: not an agent: {source}", path.display())]
    Answer {
        /// Path of the socket.
        path: PathBuf,
        /// The fault of the reply.
        source: serde_json::Error,
    },
}

/// Returns the default path of the socket: `$XDG_RUNTIME_DIR/consumer.socket`, otherwise
/// `/run/user/UID/consumer.socket` if that directory exists, otherwise `/tmp/consumer-UID.socket`.
#[must_use]
pub fn default_socket() -> PathBuf {
    let user = rustix::process::getuid().as_raw();
    let of_session = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let of_session = of_session.filter(|path| path.is_absolute());
    let of_user = PathBuf::from(format!("/run/user/{user}"));
    match of_session.or(Some(of_user).filter(|path| path.is_dir())) {
        Some(directory) => directory.join("consumer.socket"),
        None => PathBuf::from(format!("/tmp/consumer-{user}.socket")),
    }
}

/// Listens on a status socket until the returned value is dropped. A stale socket is replaced.
///
/// # Errors
/// If another agent listens there, or the path is not a socket.
pub fn listen(path: &Path, registry: StatusRegistry) -> io::Result<StatusListener> {
    let (listener, _file) = local_socket::listen(path)?;
    let task = tokio::spawn(accept_clients(listener, registry));
    Ok(StatusListener { task, _file })
}

impl Drop for StatusListener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept_clients(listener: UnixListener, registry: StatusRegistry) {
    let permits = Arc::new(Semaphore::new(MAX_STATUS_CONNECTIONS));
    loop {
        // Before `accept`, so that further clients wait in the kernel, and take no descriptor here.
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((socket, _)) => {
                let registry = registry.clone();
                tokio::spawn(async move {
                    if let Ok(Err(error)) =
                        timeout(STATUS_TIMEOUT, send_status(socket, &registry)).await
                    {
                        debug!(%error, "cannot send the status");
                    }
                    drop(permit);
                });
            }
            Err(error) => {
                debug!(%error, "cannot accept a status connection");
                // Out of file descriptors, for example.
                tokio::time::sleep(STATUS_TIMEOUT).await;
            }
        }
    }
}

async fn send_status(mut socket: UnixStream, registry: &StatusRegistry) -> io::Result<()> {
    let mut text = serde_json::to_vec(&StatusReport::of(registry))?;
    text.push(b'\n');
    socket.write_all(&text).await?;
    socket.shutdown().await
}

/// Reads the status of the agent that listens on the socket.
///
/// # Errors
/// If no agent listens, or it does not reply.
pub fn request_status(path: &Path) -> Result<StatusReport, StatusError> {
    let failed = |source: io::Error| {
        let path = path.to_owned();
        match source.kind() {
            ErrorKind::NotFound | ErrorKind::ConnectionRefused => StatusError::NoAgent { path },
            _ => StatusError::Failed { path, source },
        }
    };
    let socket = BlockingStream::connect(path).map_err(failed)?;
    socket
        .set_read_timeout(Some(STATUS_TIMEOUT))
        .map_err(failed)?;
    let mut text = Vec::new();
    let mut limited = socket.take(MAX_STATUS_BYTES);
    limited.read_to_end(&mut text).map_err(failed)?;
    serde_json::from_slice(&text).map_err(|source| StatusError::Answer {
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use std::fs;
    use std::os::unix::net::UnixListener as BlockingListener;

    use super::*;

    fn temporary_socket_path() -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("consumer.socket");
        (directory, path)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn status_socket_answers_its_user_and_no_other() {
        let (_directory, path) = temporary_socket_path();
        let registry = StatusRegistry::default();
        let _open = registry.add_session("s", "h");
        let listening = listen(&path, registry).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let asked = path.clone();
        let report = tokio::task::spawn_blocking(move || request_status(&asked));
        assert_eq!(report.await.unwrap().unwrap().sessions[0].name, "s");
        drop(listening);
        assert!(!path.exists());
        assert!(matches!(
            request_status(&path),
            Err(StatusError::NoAgent { .. })
        ));
    }

    #[tokio::test]
    async fn stale_status_socket_is_removed_and_other_files_are_not() {
        let (_directory, path) = temporary_socket_path();
        drop(BlockingListener::bind(&path).unwrap());
        assert!(path.exists());
        let listening = listen(&path, StatusRegistry::default()).unwrap();
        let second = listen(&path, StatusRegistry::default()).unwrap_err();
        assert_eq!(second.kind(), ErrorKind::AddrInUse);
        drop(listening);
        fs::write(&path, "precious").unwrap();
        assert!(listen(&path, StatusRegistry::default()).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    }
}
