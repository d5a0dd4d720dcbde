//! A connection that has been accepted: on an encrypted port, with its TLS handshake done. The
//! handshake runs on the worker that serves the connection, which counts against the limits of
//! `admission` meanwhile.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use daemon::error_text::describe_error;
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};
use transport::codec::TlsCodec;
use transport::config::{ClientPolicy, server_config};
use transport::error::TransportError;
use transport::identity::{Identity, TrustedCas};
use transport::role::Role;
use transport::rustls::ServerConfig;
use transport::socket::Socket;
use transport::tls_stream::{self, TlsStream};

use crate::config::TlsFiles;
use crate::limits::HANDSHAKE_TIMEOUT;

/// The TLS of a port.
#[derive(Debug)]
pub(super) struct TlsPort {
    /// Name of the port, for logs.
    port: &'static str,
    /// The role that clients' certificates must have, if they must have one at all.
    role: Role,
    /// The application protocol of the port.
    protocol: &'static [u8],
    files: TlsFiles,
    config: Mutex<Arc<ServerConfig>>,
}

/// A connection that can be served.
#[derive(Debug)]
pub(super) struct Accepted {
    pub(super) socket: TcpStream,
    /// The TLS of the connection. None if it is not encrypted.
    pub(super) tls: Option<Box<TlsCodec>>,
}

impl Accepted {
    /// The connection in one piece.
    pub(super) fn into_socket(self) -> Socket {
        match self.tls {
            None => Socket::Plain(self.socket),
            Some(tls) => Socket::Tls(Box::new(TlsStream::from_parts((self.socket, *tls)))),
        }
    }
}

impl TlsPort {
    /// Reads the certificates of a port.
    ///
    /// # Errors
    /// If a file cannot be used.
    pub(super) fn load(
        port: &'static str,
        role: Role,
        protocol: &'static [u8],
        files: TlsFiles,
    ) -> Result<Self, TransportError> {
        let config = Mutex::new(load_config(&files, Some(role), &[protocol])?);
        Ok(Self {
            port,
            role,
            protocol,
            files,
            config,
        })
    }

    /// Reads the certificates again, for connections from now on. If that fails the port keeps
    /// those that it has. Both outcomes are logged.
    pub(super) fn reload(&self) {
        let config = load_config(&self.files, Some(self.role), &[self.protocol]);
        let reloaded = config.map(|config| *self.config.lock() = config);
        report_reload(self.port, reloaded);
    }

    async fn handshake(&self, socket: TcpStream) -> io::Result<(TcpStream, TlsCodec)> {
        // Cloned, so that the lock is not held during the handshake.
        let config = Arc::clone(&self.config.lock());
        let handshake = timeout(HANDSHAKE_TIMEOUT, tls_stream::accept(socket, config));
        handshake.await.unwrap_or_else(|_| {
            let seconds = HANDSHAKE_TIMEOUT.as_secs();
            let message = format!("not complete within {seconds} seconds");
            Err(io::Error::new(io::ErrorKind::TimedOut, message))
        })
    }
}

/// Logs whether a port has read its certificates again.
pub(super) fn report_reload(port: &'static str, reloaded: Result<(), TransportError>) {
    match reloaded {
        Ok(()) => info!(port, "certificates read again"),
        Err(error) => {
            let error = describe_error(&error);
            warn!(port, %error, "certificates not read again; the port keeps those that it has");
        }
    }
}

/// Reads the certificates of a port. Without `role`, what a client's certificate allows is checked
/// after the handshake.
pub(super) fn load_config(
    files: &TlsFiles,
    role: Option<Role>,
    protocols: &[&[u8]],
) -> Result<Arc<ServerConfig>, TransportError> {
    let identity = Identity::load(&files.certificate, &files.key)?;
    let policy = match &files.client_ca {
        None => None,
        Some(path) => Some(ClientPolicy {
            trusted: TrustedCas::load(path)?,
            role,
        }),
    };
    server_config(&identity, policy.as_ref(), protocols)
}

/// Makes the handshake of a connection if its port has TLS. None if it fails, which is logged, or
/// the relay stops.
pub(super) async fn accept(
    socket: TcpStream,
    peer: SocketAddr,
    tls: Option<&TlsPort>,
    stop: &CancellationToken,
) -> Option<Accepted> {
    let Some(port) = tls else {
        return Some(Accepted { socket, tls: None });
    };
    let accepted = tokio::select! {
        accepted = port.handshake(socket) => accepted,
        () = stop.cancelled() => return None,
    };
    match accepted {
        Ok((socket, codec)) => {
            debug!(%peer, port = port.port, "TLS handshake done");
            let tls = Some(Box::new(codec));
            Some(Accepted { socket, tls })
        }
        Err(error) => {
            let port = port.port;
            warn!(%peer, port, %error, "connection closed: TLS handshake failed");
            None
        }
    }
}
