//! `consumer rings`: shows, records and controls the shared-memory rings of this host, without a
//! relay or an agent.
//!
//! [`list`] shows what there is; [`print`](mod@print) shows events as they are written; [`record`]
//! writes them to a local directory; [`filter`] changes what programs write. All of them use the
//! readers of the frontend ([`crate::frontend::ring`]), as observers unless no agent drains the
//! rings.

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

use crate::frontend::ring::directory::{DirectoryName, FoundProcesses, RunDirectory};
use crate::frontend::ring::producer::Producer;
use crate::frontend::ring::ring_reader::Role;
use crate::frontend::ring::user_budget::UserBudgets;

/// Opens the run directory; `None` if there is none: no program has made it yet.
fn open_directory(path: &Path) -> io::Result<Option<RunDirectory>> {
    match RunDirectory::open(path) {
        Ok(run) => Ok(Some(run)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Finds the processes that were asked for; all if none is named. `owner` is asked for the owner of
/// a known one.
fn find_processes(
    run: &RunDirectory,
    pids: &[u32],
    owner: impl Fn(&DirectoryName) -> Option<u32>,
) -> io::Result<FoundProcesses> {
    let is_selected = |name: &DirectoryName| pids.is_empty() || pids.contains(&name.pid());
    run.find(is_selected, owner)
}

/// Opens a process as an observer who shows no events, if it can be used.
fn open_without_classes(run: &RunDirectory, name: &DirectoryName) -> Option<Producer> {
    let budgets = UserBudgets::default();
    match Producer::open_without_classes(run, name, Role::Observer, &budgets) {
        Ok(producer) => Some(producer),
        Err(fault) => {
            debug!(process = name.as_str(), "not used: {fault}");
            None
        }
    }
}
