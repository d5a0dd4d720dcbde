//! How users say how the daemon is to run.

use std::fs;
use std::path::PathBuf;

use anyhow::Context;
use serde::{Deserialize, Serialize};

use crate::default_paths;
use crate::limits::{DEFAULT_MAX_CLIENTS, DEFAULT_MAX_LINE_BYTES, DEFAULT_MAX_TRACES};
use crate::settings::{DaemonSettings, Storage, WhenFull};

/// What may be said; what is not has its usual value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct DaemonOptions {
    /// Where it listens. None: where clients look.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sockets: Vec<PathBuf>,
    /// Where events are kept, one file for each trace. None: in a directory of the user's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory: Option<PathBuf>,
    /// Where they all are kept instead, in one file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub into_file: Option<PathBuf>,
    /// Whether events are on the disk before the next ones are read.
    pub sync: bool,
    /// Longer lines are refused. In bytes.
    pub max_line: usize,
    /// No more clients at a time.
    pub max_clients: usize,
    /// No more traces open at a time.
    pub max_traces: usize,
    /// Users that may connect, by name or number, beside the daemon's own and root.
    pub allow_user: Vec<String>,
    /// Other users may export below this directory, and only there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub emit_root: Option<PathBuf>,
    /// What happens when there is no room for events.
    pub when_full: WhenFull,
}

impl Default for DaemonOptions {
    fn default() -> Self {
        Self {
            sockets: Vec::new(),
            directory: None,
            into_file: None,
            sync: false,
            max_line: DEFAULT_MAX_LINE_BYTES,
            max_clients: DEFAULT_MAX_CLIENTS,
            max_traces: DEFAULT_MAX_TRACES,
            allow_user: Vec::new(),
            emit_root: None,
            when_full: WhenFull::default(),
        }
    }
}

impl DaemonOptions {
    /// How the daemon is to run. Makes the user's directory for events if that is where they go.
    ///
    /// # Errors
    /// If that cannot be told, or a user is not known.
    pub fn settings(&self) -> anyhow::Result<DaemonSettings> {
        let storage = match (&self.into_file, &self.directory) {
            (Some(file), _) => Storage::File(default_paths::fixed(file)?),
            (None, Some(directory)) => Storage::Directory(default_paths::fixed(directory)?),
            (None, None) => {
                let directory = default_paths::own_directory()?;
                fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
                Storage::Directory(directory)
            }
        };
        let (usual, extra) = default_paths::sockets();
        let mut settings = DaemonSettings::new(usual, storage);
        if self.sockets.is_empty() {
            settings.extra_socket = extra;
        } else {
            let sockets = self.sockets.iter().map(|path| default_paths::fixed(path));
            settings.sockets = sockets.collect::<Result<_, _>>()?;
        }
        settings.sync = self.sync;
        settings.max_line_bytes = self.max_line;
        settings.max_clients = self.max_clients;
        settings.max_traces = self.max_traces;
        let users = self.allow_user.iter().map(|user| default_paths::user(user));
        settings.allowed_users = users.collect::<Result<_, _>>()?;
        settings.emit_root = self
            .emit_root
            .as_ref()
            .map(|path| default_paths::fixed(path))
            .transpose()?;
        settings.when_full = self.when_full;
        Ok(settings)
    }
}
