//! The settings that all sessions of a relay share.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::tz::TimeZone;
use wire::FileName;

use super::archive_feed::ArchiveFeed;
use crate::ingest::DiskFullPolicy;
use crate::ingest::reorder::ReorderWindow;
use crate::store::layout::Grouping;
use crate::store::pool::Pool;

/// The settings that all sessions share.
#[derive(Debug, Clone)]
pub struct RegistrySettings {
    /// Output directory, which contains everything that is written.
    pub output: PathBuf,
    /// Scheme by which directories of sessions are named.
    pub grouping: Grouping,
    /// Whether a producer may have recorded chunks deleted (`lttng clear`).
    pub allows_clear: bool,
    /// Reorder window of each stream.
    pub window: ReorderWindow,
    /// Memory for early packets of all streams together, in bytes.
    pub reorder_memory: u64,
    /// Policy for a full disk.
    pub when_full: DiskFullPolicy,
    /// Time zone of times in directory names.
    pub time_zone: TimeZone,
    /// Longest time for which a resumable session is kept without a connection. Zero: no session is
    /// resumable.
    pub resume_timeout: Duration,
    /// Maximum number of resumable sessions that are kept without a connection, and of sessions
    /// that linger.
    pub max_detached: usize,
    /// Pool that bounds the open trace files.
    pub pool: Arc<Pool>,
    /// Receives the streams that are to be archived. None: there is no archive.
    pub archive: Option<Arc<ArchiveFeed>>,
    /// Name of the files with metadata, if it is not that of their streams: by that, readers would
    /// find traces that are not for them.
    pub metadata_file: Option<FileName>,
}

impl RegistrySettings {
    /// Settings of a relay that only writes what it gets: by host, with times in UTC, with 1 MiB
    /// for early packets, without sessions that can be resumed, and without an archive.
    #[must_use]
    pub fn new(output: PathBuf, pool: Arc<Pool>) -> Self {
        Self {
            output,
            grouping: Grouping::ByHost,
            allows_clear: true,
            window: ReorderWindow::default(),
            reorder_memory: 1 << 20,
            when_full: DiskFullPolicy::default(),
            time_zone: TimeZone::UTC,
            resume_timeout: Duration::ZERO,
            max_detached: 100,
            pool,
            archive: None,
            metadata_file: None,
        }
    }
}
