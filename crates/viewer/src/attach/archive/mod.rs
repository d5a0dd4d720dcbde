//! An archive as a source: sessions that relays have put on object storage, read without a relay.
//!
//! All sessions that the target names are opened, and their streams announced, before the first
//! packet is sent. Then blocks are fetched in the order in which the mux needs them: next of all
//! the stream whose events the others wait for first. So packets of one stream do not fill the
//! memory while another stream is waited for.
//!
//! Read in this order; each module uses only those before it:
//!
//! | module | what |
//! |---|---|
//! | `error` | what ends the reading |
//! | `sessions` | which sessions are read, and opening them |
//! | `list` | the list of sessions for users |
//! | `fetch` | blocks become packets |
//! | `feed` | one stream: the blocks that are left, and what is on its way |
//! | `traces` | metadata, and which chunks are pieces of one trace |
//! | `summary` | what the sessions are at a glance |
//! | `run` | the event loop |

mod error;
mod feed;
mod fetch;
mod list;
mod run;
mod sessions;
mod summary;
mod traces;

use std::future::Future;
use std::io;
use std::path::Path;
use std::sync::Arc;

use archive::store::Store;
use ctf::TimeCorrections;
use ctf::metadata::Trace;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, watch};

use self::run::ArchiveReader;
use super::target::ArchiveTarget;
use super::{MemoryBudget, SourceEvent, SourceHandle};
use crate::time::Nanoseconds;

pub use self::error::ArchiveError;
pub use self::list::{ArchiveListing, ArchivedSession};
pub use self::summary::{ArchiveSummary, ArchivedStream, ArchivedTrace};

/// Returns the corrections of the times of a trace, if there are any.
pub type CorrectionsOf = dyn Fn(&Trace) -> Option<Arc<TimeCorrections>> + Send + Sync;

/// How an archive is read.
#[derive(Clone, Default)]
pub struct ArchiveOptions {
    /// The time before which no packet is fetched.
    pub begin: Option<Nanoseconds>,
    /// The time after which no packet is fetched.
    pub end: Option<Nanoseconds>,
    /// Whether it is no error if there is no such session.
    pub may_be_missing: bool,
    /// By what the reader will correct times. Absent if it will not.
    pub corrections: Option<Arc<CorrectionsOf>>,
    /// The memory that packets may take.
    pub memory: MemoryBudget,
}

/// An archive, ready to be read.
#[derive(Debug, Clone)]
pub struct ArchiveSource {
    target: ArchiveTarget,
    store: Arc<dyn Store>,
}

impl ArchiveSource {
    /// Opens the store of an archive. Nothing is read yet.
    ///
    /// # Errors
    /// If its URL or settings are wrong, or there is no such directory.
    pub fn open(target: ArchiveTarget) -> Result<Self, ArchiveError> {
        if let Some(path) = target.url.strip_prefix("file://")
            && !Path::new(path).is_dir()
        {
            // Opening the store would make the directory.
            return Err(ArchiveError::NoDirectory);
        }
        let store = archive::store::open(&target.url, target.endpoint.as_deref())?;
        Ok(Self::with_store(store, target))
    }

    /// An archive in a store that is open.
    #[must_use]
    pub fn with_store(store: Arc<dyn Store>, target: ArchiveTarget) -> Self {
        Self { target, store }
    }

    /// Begins to read the sessions on a thread of its own. Ends with [`SourceEvent::Done`] or
    /// [`SourceEvent::Failed`], or when the receiver has been dropped.
    ///
    /// `is_held_back` says whether events are held back until it is certain that no earlier ones
    /// come: then the next packets are fetched though there is no memory for them.
    ///
    /// # Errors
    /// If the system does not allow another thread.
    pub fn spawn(
        self,
        options: ArchiveOptions,
        events: mpsc::Sender<SourceEvent>,
        is_held_back: watch::Receiver<bool>,
    ) -> io::Result<SourceHandle> {
        let runtime = runtime()?;
        let (stop, mut stopped) = watch::channel(false);
        let mut reader = ArchiveReader::new(self, options, events, is_held_back);
        let request_end = move || {
            stop.send_replace(true);
        };
        SourceHandle::spawn("archive", request_end, move || {
            runtime.block_on(async {
                tokio::select! {
                    biased;
                    // An error means that the handle has been dropped.
                    _ = stopped.wait_for(|stopped| *stopped) => {}
                    () = reader.run() => {}
                }
            });
            // The lookup of a host name cannot be interrupted, and may outlast the source.
            runtime.shutdown_background();
        })
    }

    /// Lists the sessions that the target names. Failures of single sessions are passed to
    /// `report_failure`.
    ///
    /// # Errors
    /// If the archive cannot be listed.
    pub fn list(&self, report_failure: impl FnMut(&str)) -> Result<ArchiveListing, ArchiveError> {
        self.block_on(list::list(&*self.store, &self.target, report_failure))
    }

    /// Describes the sessions that the target names, without reading all of their packets. Failures
    /// of single sessions are passed to `report_failure`.
    ///
    /// # Errors
    /// If the archive cannot be read, or has no such session.
    pub fn summary(
        &self,
        report_failure: impl FnMut(&str),
    ) -> Result<ArchiveSummary, ArchiveError> {
        self.block_on(summary::summary(&self.store, &self.target, report_failure))
    }

    fn block_on<T>(
        &self,
        future: impl Future<Output = Result<T, ArchiveError>>,
    ) -> Result<T, ArchiveError> {
        let runtime = runtime().map_err(|_| ArchiveError::Thread)?;
        let result = runtime.block_on(future);
        runtime.shutdown_background();
        result
    }
}

fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}
