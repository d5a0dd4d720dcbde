//! The settings of the daemon, with all paths resolved.

use std::collections::BTreeSet;
use std::fmt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::limits::{DEFAULT_MAX_CLIENTS, DEFAULT_MAX_LINE_BYTES, DEFAULT_MAX_TRACES};

/// The settings of a daemon.
#[derive(Debug)]
pub struct DaemonSettings {
    /// Paths of the sockets to listen on. Each must be free, or the stale socket of a daemon that
    /// has died.
    pub sockets: Vec<PathBuf>,
    /// A further path to listen on, which may be taken: clients look there, but so may another
    /// daemon.
    pub extra_socket: Option<PathBuf>,
    /// Sockets that the service manager has passed on (socket activation).
    pub inherited: Vec<UnixListener>,
    /// Where events are stored.
    pub storage: Storage,
    /// Whether events are synced to the disk before the next ones are read.
    pub sync: bool,
    /// Maximum length of a line, in bytes; longer lines are refused.
    pub max_line_bytes: usize,
    /// Maximum number of clients at the same time.
    pub max_clients: usize,
    /// Maximum number of open traces.
    pub max_traces: usize,
    /// Ids of the users that may connect, besides the daemon's own user and root.
    pub allowed_users: BTreeSet<u32>,
    /// What happens when the disk is full, or a trace is forwarded too slowly.
    pub when_full: WhenFull,
}

/// Where events are stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Storage {
    /// In this directory, one file for each trace.
    Directory(PathBuf),
    /// In this file, whatever traces clients open.
    File(PathBuf),
}

/// What happens when the disk is full, or a trace is forwarded too slowly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WhenFull {
    /// Clients wait until there is room.
    #[default]
    Block,
    /// New events are dropped and counted.
    DropNewest,
}

impl WhenFull {
    /// All policies, the default first.
    pub const ALL: [Self; 2] = [Self::Block, Self::DropNewest];

    /// Returns the name that options and configuration files have for the policy.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Block => "block",
            Self::DropNewest => "drop-newest",
        }
    }

    /// Returns the policy of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.name() == name)
    }
}

impl DaemonSettings {
    /// The settings of a daemon with default limits, which listens on one socket.
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
            when_full: WhenFull::default(),
        }
    }

    /// Returns the mode of the sockets. If other users are allowed, any user may connect, and the
    /// peer credentials decide who is served.
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
        f.write_str(self.name())
    }
}
