//! Tells the service manager (`sd_notify`, systemd) and the parent process that the program is
//! ready.
//!
//! The protocol is one datagram. The crate `sd-notify` (0.5) does not send to abstract sockets,
//! which `sd_notify(3)` allows; this module does.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use rustix::process::{Signal, getppid, kill_process};
use tracing::warn;

/// Where the service manager listens: the path of a socket or, after `@`, the name of an abstract
/// one.
const NOTIFY_SOCKET: &str = "NOTIFY_SOCKET";

/// Tells the service manager, if there is one, that the program is ready to serve. A failure is
/// logged.
pub fn notify_ready() {
    notify_manager("READY=1");
}

/// Tells the service manager, if there is one, that the program begins to stop. A failure is
/// logged.
pub fn notify_stopping() {
    notify_manager("STOPPING=1");
}

/// Sends SIGUSR1 to the parent process. A failure is logged.
pub fn signal_parent() {
    // The id is absent if the parent is in another PID namespace.
    if let Some(parent) = getppid()
        && let Err(error) = kill_process(parent, Signal::USR1)
    {
        warn!(%error, "cannot send SIGUSR1 to the parent process");
    }
}

fn notify_manager(state: &str) {
    let Some(manager) = std::env::var_os(NOTIFY_SOCKET).filter(|manager| !manager.is_empty())
    else {
        return;
    };
    if let Err(error) = send_state(&manager, state) {
        warn!(%error, state, "cannot notify the service manager");
    }
}

fn send_state(manager: &OsStr, state: &str) -> io::Result<()> {
    let address = match manager.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(manager)?,
    };
    // A new socket for each message: there are two of them in the life of a program.
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_manager_is_notified_by_path_and_by_abstract_name() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("manager");
        let name = format!("daemon-test-{}", std::process::id());
        let abstract_name = SocketAddr::from_abstract_name(&name).unwrap();
        for (listening, manager) in [
            (
                UnixDatagram::bind(&path).unwrap(),
                path.clone().into_os_string(),
            ),
            (
                UnixDatagram::bind_addr(&abstract_name).unwrap(),
                format!("@{name}").into(),
            ),
        ] {
            send_state(&manager, "READY=1").unwrap();
            let mut received = [0; 64];
            let len = listening.recv(&mut received).unwrap();
            assert_eq!(&received[..len], b"READY=1");
        }
        assert!(send_state(OsStr::new("/no/such/socket"), "READY=1").is_err());
    }
}
