//! Telling the service manager, and the parent, that the relay is ready.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use rustix::process::{Signal, getppid, kill_process};
use tracing::warn;

/// Where the service manager listens: a path, or with `@` an abstract name.
const MANAGER: &str = "NOTIFY_SOCKET";

pub(super) fn ready() {
    tell("READY=1");
}

pub(super) fn stopping() {
    tell("STOPPING=1");
}

/// Sends the parent SIGUSR1.
pub fn signal_parent() {
    // None: it is gone, or in another container.
    if let Some(parent) = getppid()
        && let Err(error) = kill_process(parent, Signal::USR1)
    {
        warn!(%error, "parent not told");
    }
}

fn tell(what: &str) {
    let Some(manager) = std::env::var_os(MANAGER).filter(|manager| !manager.is_empty()) else {
        return;
    };
    if let Err(error) = send(&manager, what) {
        warn!(%error, "service manager not told");
    }
}

fn send(manager: &OsStr, what: &str) -> io::Result<()> {
    let address = match manager.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(manager)?,
    };
    UnixDatagram::unbound()?.send_to_addr(what.as_bytes(), &address)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manager_is_told_by_path_and_by_abstract_name() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("manager");
        let name = format!("relayd-test-{}", std::process::id());
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
            send(&manager, "READY=1").unwrap();
            let mut told = [0; 64];
            let len = listening.recv(&mut told).unwrap();
            assert_eq!(&told[..len], b"READY=1");
        }
        assert!(send(OsStr::new("/no/such/socket"), "READY=1").is_err());
    }
}
