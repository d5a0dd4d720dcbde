//! The options of the daemon as users write them, and the settings that follow from them.

use std::fs;
use std::path::PathBuf;

use anyhow::Context;
use serde::{Deserialize, Serialize};

use crate::default_paths::{absolute_path, default_sockets, own_directory, parse_user};
use crate::limits::{DEFAULT_MAX_CLIENTS, DEFAULT_MAX_LINE_BYTES, DEFAULT_MAX_TRACES};
use crate::settings::{DaemonSettings, Storage, WhenFull};

/// The options of the daemon. An option that is not given has its default value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct DaemonOptions {
    /// Paths of the sockets to listen on. If empty, the default paths, where clients look.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sockets: Vec<PathBuf>,
    /// The directory in which traces are stored, one file for each. If absent, the user's default
    /// directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory: Option<PathBuf>,
    /// A file in which all events are stored instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub into_file: Option<PathBuf>,
    /// Whether events are synced to the disk before the next ones are read.
    pub sync: bool,
    /// Maximum length of a line, in bytes; longer lines are refused.
    pub max_line: usize,
    /// Maximum number of clients at the same time.
    pub max_clients: usize,
    /// Maximum number of open traces.
    pub max_traces: usize,
    /// Users that may connect, by name or number, besides the daemon's own user and root.
    pub allow_user: Vec<String>,
    /// What happens when the disk is full, or a trace is forwarded too slowly.
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
            when_full: WhenFull::default(),
        }
    }
}

impl DaemonOptions {
    /// Resolves paths and users. Makes the directory of traces if it does not exist.
    ///
    /// # Errors
    /// If there is no default directory, the directory cannot be made, or a user does not exist.
    pub fn settings(&self) -> anyhow::Result<DaemonSettings> {
        let storage = match (&self.into_file, &self.directory) {
            (Some(file), _) => Storage::File(absolute_path(file)?),
            (None, directory) => {
                let directory = match directory {
                    Some(directory) => absolute_path(directory)?,
                    None => own_directory()?,
                };
                let cannot = || format!("cannot create the directory {}", directory.display());
                fs::create_dir_all(&directory).with_context(cannot)?;
                Storage::Directory(directory)
            }
        };
        let (sockets, extra_socket) = if self.sockets.is_empty() {
            let (usual, extra) = default_sockets();
            (vec![usual], extra)
        } else {
            let sockets = self.sockets.iter().map(|path| absolute_path(path));
            (sockets.collect::<Result<_, _>>()?, None)
        };
        let users = self.allow_user.iter().map(|user| parse_user(user));
        Ok(DaemonSettings {
            sockets,
            extra_socket,
            inherited: Vec::new(),
            storage,
            sync: self.sync,
            max_line_bytes: self.max_line,
            max_clients: self.max_clients,
            max_traces: self.max_traces,
            allowed_users: users.collect::<Result<_, _>>()?,
            when_full: self.when_full,
        })
    }
}
