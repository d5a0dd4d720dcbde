//! The process at the other end of a connection.

use std::fmt;
use std::fs;
use std::path::PathBuf;

/// A client's process, by the credentials of its socket (`SO_PEERCRED`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Peer {
    /// Process id; absent if the process is in another PID namespace.
    pub(crate) pid: Option<u32>,
    /// The user of the process.
    pub(crate) uid: u32,
    /// Working directory when it connected.
    directory: Option<PathBuf>,
}

impl Peer {
    /// Makes the peer of these credentials.
    pub(crate) fn new(credentials: tokio::net::unix::UCred) -> Self {
        let pid = credentials.pid().and_then(|pid| u32::try_from(pid).ok());
        let mut peer = Self {
            pid: pid.filter(|pid| *pid != 0),
            uid: credentials.uid(),
            directory: None,
        };
        // Read now, because `/proc` forgets a process that has ended, and clients may be
        // short-lived.
        peer.directory = peer.link("cwd");
        peer
    }

    /// Returns the present working directory; that when it connected, if the process has ended.
    pub(crate) fn directory(&self) -> Option<PathBuf> {
        self.link("cwd").or_else(|| self.directory.clone())
    }

    /// Returns the path of the program; empty if it is not known.
    pub(crate) fn program(&self) -> String {
        let path = self.link("exe");
        path.map_or_else(String::new, |path| path.to_string_lossy().into_owned())
    }

    fn link(&self, name: &str) -> Option<PathBuf> {
        fs::read_link(format!("/proc/{}/{name}", self.pid?)).ok()
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pid {
            Some(pid) => write!(f, "process {pid} of user {}", self.uid),
            None => write!(f, "a process of user {}", self.uid),
        }
    }
}
