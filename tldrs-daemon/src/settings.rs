//! How the daemon is to run.

use std::collections::BTreeSet;
use std::fmt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::limits::{DEFAULT_MAX_CLIENTS, DEFAULT_MAX_LINE_BYTES, DEFAULT_MAX_TRACES};

/// How the daemon is to run.
#[derive(Debug)]
pub struct DaemonSettings {
    /// Where it listens. All of them must be free, or left behind by a daemon that is dead.
    pub sockets: Vec<PathBuf>,
    /// Where it listens too if it can: clients look there, but others may have taken it.
    pub extra_socket: Option<PathBuf>,
    /// Where it listens already, since a service manager does.
    pub inherited: Vec<UnixListener>,
    /// Where events go.
    pub storage: Storage,
    /// Whether events are on the disk before the next ones are read.
    pub sync: bool,
    /// Longer lines are refused.
    pub max_line_bytes: usize,
    /// No more clients at a time.
    pub max_clients: usize,
    /// No more traces open at a time.
    pub max_traces: usize,
    /// Users that may connect, beside the daemon's own and root.
    pub allowed_users: BTreeSet<u32>,
    /// Other users may export below this directory, and only there.
    pub emit_root: Option<PathBuf>,
    /// What happens when there is no room for events.
    pub when_full: WhenFull,
}

/// Where events go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Storage {
    /// To a file in this directory for each trace.
    Directory(PathBuf),
    /// All to this file, whatever trace clients open.
    File(PathBuf),
}

/// What happens when the disk is full, or a trace is forwarded too slowly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WhenFull {
    /// Clients wait.
    #[default]
    Block,
    /// New events are dropped, and counted.
    DropNewest,
}

impl DaemonSettings {
    /// The usual ones.
    #[must_use]
    pub fn new(socket: PathBuf, storage: Storage) -> Self {
        Self {
            sockets: vec![socket],
            extra_socket: None,
            inherited: Vec::new(),
            storage,
            sync: false,
            max_line_bytes: DEFAULT_MAX_LINE_BYTES,
            max_clients: DEFAULT_MAX_CLIENTS,
            max_traces: DEFAULT_MAX_TRACES,
            allowed_users: BTreeSet::new(),
            emit_root: None,
            when_full: WhenFull::default(),
        }
    }

    /// Who may connect is seen by the credentials; other users must get so far.
    pub(crate) fn socket_mode(&self) -> u32 {
        if self.allowed_users.is_empty() {
            0o600
        } else {
            0o666
        }
    }
}

impl fmt::Display for WhenFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Block => "block",
            Self::DropNewest => "drop-newest",
        })
    }
}
