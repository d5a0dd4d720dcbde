//! `consumer rings --record` and `--snapshot`: events go to a local directory of CTF traces, one
//! for each process.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::local_store::LocalStore;
pub use super::local_store::StoreLimits;
use super::local_trace::write_sessions;
use crate::frontend::ring::directory::RunDirectory;
use crate::frontend::ring::{self, Coverage, RingSettings};
use crate::queue::{QueueCapacity, session_channel};

/// What is recorded, and where.
#[derive(Debug, Clone)]
pub struct RecordSettings {
    /// The rings that are read.
    pub rings: RingSettings,
    /// The directory of the recorded traces.
    pub output: PathBuf,
    /// Limits on what is in it.
    pub limits: StoreLimits,
}

/// Records until `stop` is cancelled: in place of an agent, or beside it.
///
/// # Errors
/// If the run directory or the output cannot be used, or something is not recorded.
pub async fn record(settings: RecordSettings, stop: CancellationToken) -> anyhow::Result<()> {
    let run = RunDirectory::create(&settings.rings.directory)
        .with_context(|| format!("cannot use {}", settings.rings.directory.display()))?;
    let is_drained = !run.try_lock()?;
    // Gives the lock back: the frontend takes it itself.
    drop(run);
    let coverage = if is_drained {
        info!("an agent drains the rings: recorded beside it");
        Coverage::Observe
    } else {
        Coverage::Drain
    };
    write(settings, coverage, stop).await.map(drop)
}

/// Records the present content of all flight recorders. Returns the number of processes that have
/// any.
///
/// # Errors
/// As [`record`].
pub async fn snapshot(settings: RecordSettings) -> anyhow::Result<usize> {
    let stop = CancellationToken::new();
    // Cancelled from the beginning, so that every ring is read once.
    stop.cancel();
    write(settings, Coverage::Snapshot, stop).await
}

async fn write(
    settings: RecordSettings,
    coverage: Coverage,
    stop: CancellationToken,
) -> anyhow::Result<usize> {
    let output = &settings.output;
    let store = LocalStore::open(output, settings.limits)
        .with_context(|| format!("cannot record to {}", output.display()))?;
    let (opener, sessions) = session_channel(QueueCapacity::default());
    let writing = tokio::spawn(write_sessions(sessions, Arc::new(store)));
    ring::run(settings.rings, coverage, opener, stop).await?;
    let (sessions, is_complete) = writing.await?;
    anyhow::ensure!(is_complete, "not everything was recorded");
    Ok(sessions)
}
