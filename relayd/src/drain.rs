//! `relayd drain`: has the relay of this host send its producers to another one, and waits until
//! they are gone. It is found by the port of its status endpoint, which says how far it is.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};

use daemon::checkup::listener::{Protocol, find_listener};
use daemon::endpoint::{Endpoint, EndpointError};
use rustix::process::{Pid, Signal, kill_process};
use thiserror::Error;

use crate::http::DRAINED;
use crate::limits::{DRAIN_POLL_INTERVAL, MAX_STATUS_BYTES, STATUS_TIMEOUT};
use crate::running_relay::OWN_NAME;

/// The reason why the relay is not drained.
#[derive(Debug, Error)]
pub enum DrainError {
    /// The settings have no status endpoint.
    #[error("no status endpoint: give --http or the configuration file with which the relay runs")]
    NoEndpoint,
    /// The address of the status endpoint is unknown.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// No relay of this user listens there.
    #[error("no relay found: none of this user has the status endpoint {0}")]
    NoRelay(Endpoint),
    /// The relay cannot be sent the signal.
    #[error("cannot signal process {0}")]
    Signal(u32, #[source] io::Error),
    /// The relay does not answer any more: it has ended.
    #[error("no answer of the relay, process {0}")]
    NoAnswer(u32, #[source] io::Error),
}

/// Has the relay with this status endpoint drain, and waits until that is done. Calls `report` with
/// what is left, whenever that changes.
///
/// # Errors
/// If the relay is not found or ends, or a report fails.
pub fn drain<E: From<DrainError>>(
    http: Option<&Endpoint>,
    mut report: impl FnMut(&str) -> Result<(), E>,
) -> Result<(), E> {
    let endpoint = http.ok_or(DrainError::NoEndpoint)?;
    let address = endpoint.resolve().map_err(DrainError::from)?;
    let listener = find_listener(Protocol::Tcp, address).filter(|own| own.name == OWN_NAME);
    let pid = listener.map(|own| own.pid);
    let pid = pid.ok_or_else(|| DrainError::NoRelay(endpoint.clone()))?;
    let process = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let process = process.ok_or_else(|| DrainError::NoRelay(endpoint.clone()))?;
    kill_process(process, Signal::USR2).map_err(|error| DrainError::Signal(pid, error.into()))?;
    let mut before = String::new();
    loop {
        // First, because the relay has only just been told.
        std::thread::sleep(DRAIN_POLL_INTERVAL);
        let progress = readiness(address).map_err(|error| DrainError::NoAnswer(pid, error))?;
        let has_drained = progress.starts_with(DRAINED);
        if progress != before {
            report(&progress)?;
        } else if has_drained {
            // Twice, because the archiver looks for packets at intervals.
            return Ok(());
        }
        before = progress;
    }
}

/// The text that `/readyz` has.
pub(crate) fn readiness(address: SocketAddr) -> io::Result<String> {
    let mut socket = TcpStream::connect_timeout(&address, STATUS_TIMEOUT)?;
    socket.set_read_timeout(Some(STATUS_TIMEOUT))?;
    socket.set_write_timeout(Some(STATUS_TIMEOUT))?;
    socket.write_all(b"GET /readyz HTTP/1.1\r\nHost: relay\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    socket.take(MAX_STATUS_BYTES).read_to_string(&mut answer)?;
    let (_, text) = answer.split_once("\r\n\r\n").unwrap_or_default();
    Ok(text.trim().to_owned())
}
