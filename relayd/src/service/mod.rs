//! The interfaces of a relay for scripts, service managers and the other programs of LTTng, besides
//! its ports and traces: files in the run folder, the health socket, and the readiness
//! notification.
//!
//! Read in this order: [`Service`] here, [`run_folder`] (directory and group), `files` (pid file
//! and port files), `health_socket` (answers queries from [`crate::health`]).

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
use files::NumberFile;
use health_socket::HealthSocket;

/// The files, socket and notifications of the relay.
#[derive(Debug, Clone, Default)]
pub struct ServiceConfig {
    /// The working directory; if absent, that in which the relay was started.
    pub working_directory: Option<PathBuf>,
    /// The group whose members may query the health socket; if absent, the group `tracing`, if it
    /// exists.
    pub group: Option<String>,
    /// Path of the health socket; if absent, it is in the run folder.
    pub health: Option<PathBuf>,
    /// Path of the pid file; if absent, there is none.
    pub pid_file: Option<PathBuf>,
    /// Whether the parent process is sent SIGUSR1 when the relay is ready.
    pub signals_parent: bool,
    /// The run folder, in which the programs of LTTng find each other; absent if there is no home
    /// directory.
    pub run_folder: Option<PathBuf>,
}

/// A file, directory or socket of the service cannot be made.
#[derive(Debug, Error)]
#[error("cannot {what} {}", .path.display())]
pub struct ServiceError {
    /// The operation that has failed: a verb, and perhaps a noun.
    what: &'static str,
    /// The file or directory.
    path: PathBuf,
    /// The error of the system.
    source: io::Error,
}

impl ServiceError {
    fn on(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self { what, path, source }
    }
}

/// The relay cannot change to its working directory. Scripts match these words.
#[derive(Debug, Error)]
#[error("Failed to change working directory to \"{}\"", .directory.display())]
pub struct WorkingDirectoryError {
    directory: PathBuf,
    source: io::Error,
}

/// The files and the health socket of a running relay. Dropping it removes them.
#[derive(Debug)]
pub struct Service {
    signals_parent: bool,
    _files: Vec<NumberFile>,
    _health: Option<HealthSocket>,
}

/// Changes to the working directory of the relay.
///
/// # Errors
/// If the directory cannot be changed to.
pub fn enter_working_directory(directory: &Path) -> Result<(), WorkingDirectoryError> {
    rustix::process::chdir(directory).map_err(|error| WorkingDirectoryError {
        directory: directory.to_owned(),
        source: error.into(),
    })?;
    let writable = rustix::fs::access(directory, rustix::fs::Access::WRITE_OK);
    if writable.is_err() && !rustix::process::geteuid().is_root() {
        // Scripts match these words, too.
        info!(
            "Working directory \"{}\" is not writable",
            directory.display()
        );
    }
    Ok(())
}

impl Service {
    /// Makes the files and the health socket. `ports` are the names of the ports, after which the
    /// port files are named, and their numbers.
    ///
    /// # Errors
    /// If one of them cannot be made.
    pub fn create(
        process: &ServiceConfig,
        ports: &[(&str, u16)],
        health: &Arc<Health>,
    ) -> Result<Self, ServiceError> {
        let group = run_folder::find_group(process.group.as_deref());
        let folder = match &process.run_folder {
            Some(path) => Some(run_folder::create(path, group)?),
            None => {
                warn!("no run folder: neither LTTNG_RUNDIR, LTTNG_HOME nor HOME is set");
                None
            }
        };
        let mut files = Vec::new();
        if let Some(path) = &process.pid_file {
            files.push(NumberFile::create(path, std::process::id())?);
        }
        if let Some(folder) = &folder {
            for (name, port) in ports {
                let path = folder.join(format!("{name}.port"));
                files.push(NumberFile::create(&path, (*port).into())?);
            }
        }
        let own = |folder: PathBuf| folder.join(format!("health-{}", std::process::id()));
        let path = process.health.clone().or_else(|| folder.map(own));
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

    /// Tells the service manager, and the parent process if it waits for that, that all ports
    /// accept.
    pub fn notify_ready(&self) {
        notify_ready();
        if self.signals_parent {
            signal_parent();
        }
    }

    /// Tells the service manager that the relay begins to stop.
    pub fn notify_stopping(&self) {
        notify_stopping();
    }
}
