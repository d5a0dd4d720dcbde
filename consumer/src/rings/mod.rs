//! `consumer rings`: shows, records and controls the shared-memory rings of this host, without a relay or an agent.
//!
//! [`list`] shows what there is; [`print`](mod@print) shows events as they are written; [`record`] writes them to a
//! local directory; [`filter`] changes what programs write. All of them use the readers of the frontend
//! ([`crate::frontend::ring`]), as observers unless no agent drains the rings.

pub mod filter;
mod line;
pub mod list;
mod local_store;
mod local_trace;
pub mod print;
pub mod record;

use std::io;
use std::path::Path;

use tracing::debug;

use crate::frontend::ring::directory::{DirectoryName, RunDirectory};
use crate::frontend::ring::producer::Producer;
use crate::frontend::ring::ring_reader::Role;

/// Opens the run directory; `None` if there is none: no program has made it yet.
fn open_directory(path: &Path) -> io::Result<Option<RunDirectory>> {
    match RunDirectory::open(path) {
        Ok(run) => Ok(Some(run)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Opens a process as an observer, if it can be used.
fn open_producer(run: &RunDirectory, name: &DirectoryName) -> Option<Producer> {
    match Producer::open(run, name, Role::Observer) {
        Ok(producer) => Some(producer),
        Err(fault) => {
            debug!(process = name.as_str(), "not used: {fault}");
            None
        }
    }
}

/// Whether a process is one that was asked for.
fn is_selected(name: &DirectoryName, pids: &[u32]) -> bool {
    pids.is_empty() || pids.contains(&name.pid())
}
