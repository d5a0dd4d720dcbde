//! The spool: packets that no relay has acknowledged, on disk. It stands between the queue of a
//! frontend and that of the uplink. Every step is written before the uplink gets it, and freed when
//! a relay has acknowledged it as durable. What is left when the process ends, in whatever way, is
//! sent by the next one.
//!
//! Each session has a directory with a session log (what the relay must know: traces, streams,
//! metadata) and segments (packets and beacons, in files of bounded size, which are freed one by
//! one). As long as the uplink keeps up, a step is forwarded from memory; if not, it stays on disk
//! and is read back later, so that a relay that is away costs no memory. doc/spool.md describes the
//! files.
//!
//! Read in this order: `record` (the bytes), `session` (one session's files), `write`, `read`,
//! `damage`, `recover`, `store` (all sessions: space, drops, failures), `worker` (the thread that
//! does all of this, so that no event loop waits for a disk), `task` (connects the thread with the
//! two queues of a session).

mod damage;
mod disk;
mod read;
mod record;
mod recover;
mod session;
mod store;
mod task;
#[cfg(test)]
mod tests;
mod worker;
mod write;

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use daemon::durability::Durability;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use self::disk::HostDisk;
use self::recover::LOCK_NAME;
use crate::limits::{DEFAULT_SPOOL_BYTES, MEMORY_PART_OF_A_SPOOL};
use crate::queue::{OpenedSession, QueueCapacity};
use crate::status::SpoolCounters;

/// The settings of a spool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct SpoolSettings {
    /// Directory of the spool. It is created if it does not exist.
    pub directory: PathBuf,
    /// Size of the spool: of all its files together, in bytes.
    pub bytes: u64,
    /// What happens when the spool is full.
    pub on_full: SpoolFullPolicy,
    /// When packets in the spool are safe against a power failure.
    pub durability: Durability,
}

/// What happens to packets when the spool is full or its disk fails.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SpoolFullPolicy {
    /// Frontends wait until there is space (backpressure).
    #[default]
    Block,
    /// The oldest packets that are not in flight are dropped, and become a gap in the trace.
    DropOldest,
}

/// A name is none of a [`SpoolFullPolicy`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("must be block or drop-oldest")]
pub struct UnknownPolicy;

/// The spool cannot be used.
#[derive(Debug, Error)]
pub enum SpoolError {
    /// The directory cannot be created or opened.
    #[error("cannot use the spool {}: {source}", directory.display())]
    Directory {
        /// The directory of the spool.
        directory: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// Another process uses the directory.
    #[error("cannot use the spool {}: another consumer uses it", .0.display())]
    InUse(PathBuf),
}

impl Default for SpoolSettings {
    fn default() -> Self {
        Self {
            directory: PathBuf::new(),
            bytes: DEFAULT_SPOOL_BYTES,
            on_full: SpoolFullPolicy::default(),
            durability: Durability::default(),
        }
    }
}

impl FromStr for SpoolFullPolicy {
    type Err = UnknownPolicy;

    fn from_str(name: &str) -> Result<Self, UnknownPolicy> {
        match name {
            "block" => Ok(Self::Block),
            "drop-oldest" => Ok(Self::DropOldest),
            _ => Err(UnknownPolicy),
        }
    }
}

/// A spool that is running.
#[derive(Debug)]
pub struct RunningSpool {
    dispatcher: JoinHandle<()>,
    worker: JoinHandle<()>,
}

impl RunningSpool {
    /// Waits until all sessions have ended and everything is written. The senders of the opened
    /// sessions must have been dropped before.
    ///
    /// # Errors
    /// If the spool has panicked.
    pub async fn finish(self) -> Result<(), tokio::task::JoinError> {
        self.dispatcher.await?;
        self.worker.await
    }
}

/// Starts a spool. It takes the sessions that frontends open, and returns them as the uplink gets
/// them, together with those that an earlier process has left. When `give_up` is cancelled, those
/// of them that are not sent yet stay where they are.
///
/// # Errors
/// If the directory cannot be used.
pub fn start(
    sessions: mpsc::UnboundedReceiver<OpenedSession>,
    settings: &SpoolSettings,
    capacity: QueueCapacity,
    counters: Arc<SpoolCounters>,
    give_up: CancellationToken,
) -> Result<(RunningSpool, mpsc::UnboundedReceiver<OpenedSession>), SpoolError> {
    let lock = lock_directory(&settings.directory)?;
    let part = u32::try_from(settings.bytes / MEMORY_PART_OF_A_SPOOL).unwrap_or(u32::MAX);
    // The uplink's queue holds packets that are in the spool as well and in flight, so they cannot
    // be dropped from it: with `drop-oldest`, most of the spool must not be of that kind.
    let capacity = QueueCapacity {
        session_bytes: capacity.session_bytes.min(part),
        all_bytes: capacity.all_bytes,
    };
    let (opened, forwarded) = mpsc::unbounded_channel();
    let disk = HostDisk::new(&settings.directory);
    let (work, worker) = worker::start(disk, settings, counters, lock);
    let dispatcher = tokio::spawn(task::dispatch(sessions, work, opened, capacity, give_up));
    Ok((RunningSpool { dispatcher, worker }, forwarded))
}

/// Makes the directory, unless it exists, and locks it for this process.
fn lock_directory(directory: &Path) -> Result<File, SpoolError> {
    let failed = |source| SpoolError::Directory {
        directory: directory.to_owned(),
        source,
    };
    let mut builder = DirBuilder::new();
    builder
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(failed)?;
    let mut options = OpenOptions::new();
    // The file is never removed: another process could lock it between its opening and its removal,
    // and a third one a new file of the same name.
    options.write(true).create(true).truncate(false).mode(0o600);
    let lock = options.open(directory.join(LOCK_NAME)).map_err(failed)?;
    if file_lock::try_lock_exclusive(&lock).map_err(failed)? {
        Ok(lock)
    } else {
        Err(SpoolError::InUse(directory.to_owned()))
    }
}
