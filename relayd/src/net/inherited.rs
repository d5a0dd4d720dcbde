//! Ports that the service manager has bound and hands over (socket activation).

use std::io;
use std::net::TcpListener;

use listenfd::ListenFd;

/// What the manager calls them, in the order in which they come if it gives no names.
const NAMES: [&str; 3] = ["control", "data", "live"];

/// Ports that are listened on already.
#[derive(Debug, Default)]
pub struct Inherited {
    /// For producers' commands.
    pub control: Option<TcpListener>,
    /// For producers' packets.
    pub data: Option<TcpListener>,
    /// For viewers.
    pub live: Option<TcpListener>,
}

impl Inherited {
    /// Takes what was handed over to this process. To be called before there are threads, since it
    /// takes the variables that say so away.
    ///
    /// # Errors
    /// If one of them is not a port that is listened on.
    pub fn take() -> io::Result<Self> {
        let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
        let mut handed = ListenFd::from_env();
        let mut inherited = Self::default();
        for at in 0..handed.len() {
            let place = match which(&names, at) {
                Some("control") => &mut inherited.control,
                Some("data") => &mut inherited.data,
                Some("live") => &mut inherited.live,
                _ => continue,
            };
            *place = handed.take_tcp_listener(at)?;
        }
        Ok(inherited)
    }
}

/// Which port the descriptor at this place is for.
fn which(names: &str, at: usize) -> Option<&str> {
    let known = |name: &str| NAMES.contains(&name);
    let has_names = names.split(':').any(known);
    if has_names {
        return names.split(':').nth(at);
    }
    NAMES.get(at).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_which_port_is_which_or_else_their_order() {
        for (names, want) in [
            ("", NAMES.map(Some)),
            ("relayd.socket:relayd.socket:relayd.socket", NAMES.map(Some)),
            (
                "live:control:data",
                [Some("live"), Some("control"), Some("data")],
            ),
            ("live", [Some("live"), None, None]),
        ] {
            assert_eq!([0, 1, 2].map(|at| which(names, at)), want, "{names}");
        }
    }
}
