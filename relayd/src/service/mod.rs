//! What scripts, service managers and the other programs of LTTng see of a relay besides its ports
//! and traces: files in the run folder, a socket that tells how it is, who is told that it is ready.
//!
//! Read in this order: [`Service`] here, [`run_folder`] (where and for whom), `files` (pid and ports),
//! [`health`] (how it is) and `health_socket` (who may ask), `notify` (who is told), [`sockets`] (ports
//! that somebody else has bound).

mod files;
pub mod health;
mod health_socket;
mod notify;
pub mod run_folder;
pub mod sockets;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thiserror::Error;
use tracing::{info, warn};

pub use notify::signal_parent;

use crate::config::ProcessConfig;
use crate::net::Addresses;
use files::OwnFile;
use health::Health;
use health_socket::HealthSocket;
use run_folder::RunFolder;

/// Something around the relay that could not be made.
#[derive(Debug, Error)]
#[error("cannot {what} {}", .path.display())]
pub struct ServiceError {
    /// What was to be done.
    what: &'static str,
    /// To which file or directory.
    path: PathBuf,
    /// What the system says.
    source: io::Error,
}

impl ServiceError {
    fn on(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self { what, path, source }
    }
}

/// The relay cannot work where it is to. Scripts match these words.
#[derive(Debug, Error)]
#[error("Failed to change working directory to \"{}\"", .directory.display())]
pub struct EnterError {
    directory: PathBuf,
    source: io::Error,
}

/// A relay as its host knows it. Dropped, it takes away what it has made.
#[derive(Debug)]
pub struct Service {
    signals_parent: bool,
    _files: Vec<OwnFile>,
    _health: Option<HealthSocket>,
}

/// Goes to the directory that the relay is to work in.
///
/// # Errors
/// If it cannot.
pub fn enter(directory: &Path) -> Result<(), EnterError> {
    rustix::process::chdir(directory).map_err(|error| EnterError {
        directory: directory.to_owned(),
        source: error.into(),
    })?;
    let writable = rustix::fs::access(directory, rustix::fs::Access::WRITE_OK);
    if writable.is_err() && !rustix::process::geteuid().is_root() {
        // As above.
        info!(
            "Working directory \"{}\" is not writable",
            directory.display()
        );
    }
    Ok(())
}

impl Service {
    /// Makes all that there is to be seen of a relay that listens at these addresses.
    ///
    /// # Errors
    /// If some of it cannot be made.
    pub fn begin(
        process: &ProcessConfig,
        addresses: Addresses,
        health: &Arc<Health>,
    ) -> Result<Self, ServiceError> {
        let group = run_folder::group(process.group.as_deref());
        let folder = match &process.run_folder {
            Some(path) => Some(RunFolder::make(path, group)?),
            None => {
                warn!("no run folder: neither LTTNG_RUNDIR, LTTNG_HOME nor HOME is set");
                None
            }
        };
        let folder = folder.as_ref().map(RunFolder::path);
        let mut files = Vec::new();
        if let Some(path) = &process.pid_file {
            files.push(OwnFile::number(path, std::process::id())?);
        }
        for (name, address) in [
            ("control.port", addresses.control),
            ("data.port", addresses.data),
            ("live.port", addresses.live),
        ] {
            if let Some(folder) = folder {
                files.push(OwnFile::number(&folder.join(name), address.port().into())?);
            }
        }
        let own = || folder.map(|folder| folder.join(format!("health-{}", std::process::id())));
        let path = process.health.clone().or_else(own);
        let health = match path {
            Some(path) => Some(HealthSocket::open(&path, group, Arc::clone(health))?),
            None => None,
        };
        Ok(Self {
            signals_parent: process.signals_parent,
            _files: files,
            _health: health,
        })
    }

    /// All ports accept: tells whoever waits for that.
    pub fn ready(&self) {
        notify::ready();
        if self.signals_parent {
            signal_parent();
        }
    }

    /// The relay is about to stop.
    pub fn stopping(&self) {
        notify::stopping();
    }
}
