//! Ports that the service manager has bound and passes on (socket activation, `sd_listen_fds(3)`).

use std::io;
use std::net::TcpListener;

use listenfd::ListenFd;

/// The names of the ports (systemd's `FileDescriptorName=`), in the order in which they are passed
/// if none of them has a name.
const NAMES: [&str; 3] = ["control", "data", "live"];

/// The ports that are listened on already.
#[derive(Debug, Default)]
pub struct InheritedPorts {
    /// The port for producers' commands.
    pub control: Option<TcpListener>,
    /// The port for producers' packets.
    pub data: Option<TcpListener>,
    /// The port for viewers.
    pub live: Option<TcpListener>,
}

impl InheritedPorts {
    /// Takes the ports that were passed to this process. To be called before other threads are
    /// started, since it removes environment variables.
    ///
    /// # Errors
    /// If a descriptor is not a listening TCP socket.
    pub fn from_environment() -> io::Result<Self> {
        let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
        let mut passed = ListenFd::from_env();
        let mut inherited = Self::default();
        for at in 0..passed.len() {
            let port = match port_name(&names, at) {
                Some("control") => &mut inherited.control,
                Some("data") => &mut inherited.data,
                Some("live") => &mut inherited.live,
                _ => continue,
            };
            *port = passed.take_tcp_listener(at)?;
        }
        Ok(inherited)
    }
}

/// Returns the name of the port of the descriptor at this index.
fn port_name(names: &str, at: usize) -> Option<&str> {
    if names.split(':').any(|name| NAMES.contains(&name)) {
        return names.split(':').nth(at);
    }
    NAMES.get(at).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inherited_ports_are_identified_by_name_or_by_their_order() {
        for (names, want) in [
            ("", NAMES.map(Some)),
            ("relayd.socket:relayd.socket:relayd.socket", NAMES.map(Some)),
            (
                "live:control:data",
                [Some("live"), Some("control"), Some("data")],
            ),
            ("live", [Some("live"), None, None]),
        ] {
            assert_eq!([0, 1, 2].map(|at| port_name(names, at)), want, "{names}");
        }
    }
}
