//! What scripts, service managers and the other programs of LTTng see of a relay besides its ports
//! and traces: files in the run folder, a socket that tells how it is, who is told that it is ready.
//!
//! Read in this order: [`Service`] here, [`run_folder`] (where and for whom), `files` (pid and ports),
//! [`health`] (how it is) and `health_socket` (who may ask), `notify` (who is told), [`sockets`] (ports
//! that somebody else has bound).

mod files;
mod health_socket;
pub mod run_folder;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use daemon::notify::{notify_ready, notify_stopping, signal_parent};
use thiserror::Error;
use tracing::{info, warn};

use crate::health::Health;
use files::OwnFile;
use health_socket::HealthSocket;
use run_folder::RunFolder;

/// What the relay has around it, besides ports and traces.
#[derive(Debug, Clone, Default)]
pub struct ServiceConfig {
    /// Where it works, if not where it was started.
    pub working_directory: Option<PathBuf>,
    /// Whose members may ask how it is. None: the usual one, if there is one.
    pub group: Option<String>,
    /// Where it can be asked, if not in the run folder.
    pub health: Option<PathBuf>,
    /// Where its number is to be written.
    pub pid_file: Option<PathBuf>,
    /// Whether its parent is sent a signal when it is ready.
    pub signals_parent: bool,
    /// Where LTTng's programs find each other. None: there is no home for one.
    pub run_folder: Option<PathBuf>,
}

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
    /// Makes the files and the socket by which others find the relay. `ports` are the names of its ports,
    /// of which the files are named, and their numbers.
    ///
    /// # Errors
    /// If some of it cannot be made.
    pub fn begin(
        process: &ServiceConfig,
        ports: &[(&str, u16)],
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
        if let Some(folder) = folder {
            for (name, port) in ports {
                let path = folder.join(format!("{name}.port"));
                files.push(OwnFile::number(&path, (*port).into())?);
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
        notify_ready();
        if self.signals_parent {
            signal_parent();
        }
    }

    /// The relay is about to stop.
    pub fn stopping(&self) {
        notify_stopping();
    }
}
