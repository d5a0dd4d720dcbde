//! Who is at the other end of a connection.

use std::fmt;
use std::fs;
use std::path::PathBuf;

/// A client's process, as the system vouches for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Peer {
    /// Its number, if it is in our sight.
    pub(crate) pid: Option<u32>,
    /// Whom it runs as.
    pub(crate) uid: u32,
    /// And with which group.
    pub(crate) gid: u32,
    /// Its working directory when it connected.
    directory: Option<PathBuf>,
}

impl Peer {
    /// The peer that these are of.
    pub(crate) fn new(credentials: tokio::net::unix::UCred) -> Self {
        let pid = credentials.pid().and_then(|pid| u32::try_from(pid).ok());
        let mut peer = Self {
            pid: pid.filter(|pid| *pid != 0),
            uid: credentials.uid(),
            gid: credentials.gid(),
            directory: None,
        };
        peer.directory = peer.link("cwd");
        peer
    }

    /// Its working directory; that in which it connected, if it has ended since.
    pub(crate) fn directory(&self) -> Option<PathBuf> {
        self.link("cwd").or_else(|| self.directory.clone())
    }

    /// Its program, or nothing if that cannot be told.
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
