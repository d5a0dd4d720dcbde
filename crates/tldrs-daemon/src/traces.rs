//! The open traces: which clients have them open, and their exports when the last client
//! disconnects.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use thiserror::Error;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, info, warn};

use crate::export::Export;
use crate::files::{TraceFiles, with_records};
use crate::forward_queue::{
    ForwardItem, ForwardedTrace, TraceForwarder, TraceSender, trace_forwarder,
};
use crate::name::safe_name;
use crate::peer::Peer;
use crate::record::{PendingExport, TraceRecord};
use crate::settings::{DaemonSettings, Storage, WhenFull};
use crate::trace::{TooManyExports, Trace};

/// Id and name of the only trace when all events are stored in one file, as with the reference.
const DEFAULT: &str = "default";

/// The open traces, and what they share.
#[derive(Debug)]
pub(crate) struct Traces {
    storage: Storage,
    sync: bool,
    max_traces: usize,
    forward: Option<TraceSender>,
    when_full: WhenFull,
    /// The traces by file name, including traces without clients that are still being exported.
    open: Mutex<HashMap<String, Arc<Trace>>>,
    /// Whether the daemon stops as soon as no client has a trace open.
    stop_when_idle: AtomicBool,
    stop: CancellationToken,
    exports: TaskTracker,
}

/// A trace cannot be opened.
#[derive(Debug, Error)]
pub(crate) enum OpenError {
    #[error("{max_traces} traces are open already")]
    TooMany { max_traces: usize },
    #[error("its file cannot be opened")]
    File(#[from] io::Error),
}

/// A client's part in a trace. The trace stays open until it is dropped.
#[derive(Debug)]
pub(crate) struct Membership {
    traces: Arc<Traces>,
    pub(crate) trace: Arc<Trace>,
    /// The client's number in the trace.
    pub(crate) client: u32,
    /// The sending end of the trace's forward queue; absent if its events are not forwarded.
    pub(crate) forwarder: Option<TraceForwarder>,
}

impl Traces {
    pub(crate) fn new(
        settings: &DaemonSettings,
        forward: Option<TraceSender>,
        stop: CancellationToken,
    ) -> Self {
        Self {
            storage: settings.storage.clone(),
            sync: settings.sync,
            max_traces: settings.max_traces,
            forward,
            when_full: settings.when_full,
            open: Mutex::default(),
            stop_when_idle: AtomicBool::new(false),
            stop,
            exports: TaskTracker::new(),
        }
    }

    /// Opens a trace for a client.
    pub(crate) async fn open(
        self: &Arc<Self>,
        id: &str,
        peer: &Peer,
    ) -> Result<Membership, OpenError> {
        // Separate, so that the lock of the open traces is not held while the forwarder is waited
        // for.
        let (mut membership, forwarded) = self.enter_trace(id)?;
        if let (Some(forward), Some(forwarded)) = (&self.forward, forwarded)
            && forward.send(forwarded).await.is_err()
        {
            warn!(
                trace = id,
                "the forwarder has ended; the trace is not forwarded"
            );
            membership.trace.set_forwarder(None);
        }
        membership.announce_open(peer).await;
        Ok(membership)
    }

    fn enter_trace(
        self: &Arc<Self>,
        id: &str,
    ) -> Result<(Membership, Option<ForwardedTrace>), OpenError> {
        let mut open = self.open.lock();
        let trace = self.get_or_open(&mut open, id)?;
        let entry = trace.add_client();
        let mut forwarded = None;
        if entry.is_first && self.forward.is_some() {
            let (forwarder, announced) = trace_forwarder(trace.id.clone(), trace.name.clone());
            trace.set_forwarder(Some(forwarder));
            forwarded = Some(announced);
        }
        drop(open);
        let membership = Membership {
            traces: Arc::clone(self),
            forwarder: trace.forwarder(),
            trace,
            client: entry.client,
        };
        Ok((membership, forwarded))
    }

    /// Returns the trace of this id, and opens it if it is not open.
    fn get_or_open(
        &self,
        open: &mut HashMap<String, Arc<Trace>>,
        id: &str,
    ) -> Result<Arc<Trace>, OpenError> {
        match &self.storage {
            Storage::Directory(directory) => {
                let name = safe_name(id);
                let files = TraceFiles::in_directory(directory, &name);
                self.get_or_open_files(open, id, name, files)
            }
            // One file has one writer, whatever the id is.
            Storage::File(file) => {
                let files = TraceFiles::of_events(file.clone());
                self.get_or_open_files(open, DEFAULT, DEFAULT.to_owned(), files)
            }
        }
    }

    /// Returns the trace that has these files, and opens it if it is not open.
    fn get_or_open_files(
        &self,
        open: &mut HashMap<String, Arc<Trace>>,
        id: &str,
        name: String,
        files: TraceFiles,
    ) -> Result<Arc<Trace>, OpenError> {
        if let Some(trace) = open.get(&name) {
            return Ok(Arc::clone(trace));
        }
        if open.len() >= self.max_traces {
            return Err(OpenError::TooMany {
                max_traces: self.max_traces,
            });
        }
        info!(trace = id, file = %files.events.display(), "opened");
        let trace = Arc::new(Trace::open(id.to_owned(), name.clone(), files, self.sync)?);
        open.insert(name, Arc::clone(&trace));
        Ok(trace)
    }

    /// Makes the daemon stop as soon as no client has a trace open.
    pub(crate) fn stop_when_idle(&self) {
        // Stored before the lock is taken: a client that leaves later sees it, and one that has
        // left before is not among the clients here.
        self.stop_when_idle.store(true, Ordering::Relaxed);
        self.stop_if_idle(&self.open.lock());
    }

    /// Starts the pending exports that a killed daemon has left.
    pub(crate) fn resume_exports(self: &Arc<Self>) -> io::Result<()> {
        let all = match &self.storage {
            Storage::Directory(directory) => with_records(directory)?,
            Storage::File(file) => vec![TraceFiles::of_events(file.clone())],
        };
        for files in all {
            let record = TraceRecord::load_own(&files.record);
            // Clients in the record are those of a daemon that was killed. Opening the trace resets
            // their number.
            let has_nothing_due = record.pending_exports.is_empty() && record.clients == 0;
            // The trace may be open in another daemon.
            if has_nothing_due || !files.events.exists() || files.is_open() {
                continue;
            }
            // The name of the files decides, not the id: another one would be the record of another
            // trace.
            let name = match (&self.storage, files.name()) {
                (Storage::File(_), _) => DEFAULT.to_owned(),
                (Storage::Directory(_), Some(name)) => name.to_owned(),
                // No daemon has stored a trace under a name that is not text.
                (Storage::Directory(_), None) => continue,
            };
            let mut open = self.open.lock();
            match self.get_or_open_files(&mut open, &record.id, name, files) {
                Ok(trace) => {
                    let exports = record.pending_exports.len();
                    info!(
                        trace = record.id,
                        exports, "pending exports of a daemon that was killed"
                    );
                    trace.schedule_exports();
                    self.start_exports(&trace);
                    close_if_idle(&mut open, &trace);
                }
                Err(error) => warn!(trace = record.id, %error, "pending exports are not made"),
            }
        }
        Ok(())
    }

    /// Waits until all exports are done.
    pub(crate) async fn wait_for_exports(&self) {
        self.exports.close();
        self.exports.wait().await;
    }

    fn leave_trace(self: &Arc<Self>, open: &mut HashMap<String, Arc<Trace>>, trace: &Arc<Trace>) {
        if !trace.remove_client() {
            return;
        }
        self.start_exports(trace);
        close_if_idle(open, trace);
        self.stop_if_idle(open);
    }

    fn stop_if_idle(&self, open: &HashMap<String, Arc<Trace>>) {
        let is_idle = || open.values().all(|trace| !trace.has_clients());
        if self.stop_when_idle.load(Ordering::Relaxed) && is_idle() {
            info!("stopping: no trace is open");
            self.stop.cancel();
        }
    }

    /// Starts a thread for the queued exports of a trace, if none is running. The exports of a
    /// trace run one after another, so that the later of two exports to the same path replaces the
    /// earlier one.
    pub(crate) fn start_exports(self: &Arc<Self>, trace: &Arc<Trace>) {
        if !trace.begin_exports() {
            return;
        }
        let (traces, trace) = (Arc::clone(self), Arc::clone(trace));
        self.exports.spawn_blocking(move || {
            while let Some((export, events)) = trace.next_export() {
                traces.run_export(&trace, &export, &events);
                trace.export_done(&export);
            }
            close_if_idle(&mut traces.open.lock(), &trace);
        });
    }

    fn run_export(&self, trace: &Trace, export: &Export, events: &std::fs::File) {
        let path = export.path.display();
        match export.write(events, self.sync) {
            Ok(written) => {
                info!(trace = trace.id, %path, events = written.events, "exported");
                if written.dropped > 0 {
                    warn!(trace = trace.id, %path, lines = written.dropped, "lines left out of the export: not events");
                }
            }
            Err(error) => {
                let error = anyhow::Error::from(error);
                warn!(trace = trace.id, %path, "not exported: {error:#}");
            }
        }
    }
}

fn close_if_idle(open: &mut HashMap<String, Arc<Trace>>, trace: &Arc<Trace>) {
    if trace.is_idle()
        && open
            .get(&trace.name)
            .is_some_and(|known| Arc::ptr_eq(known, trace))
    {
        debug!(trace = trace.id, "closed");
        open.remove(&trace.name);
    }
}

impl Membership {
    /// Queues an export of the trace as it is now.
    pub(crate) fn queue_export(&self, path: PathBuf) -> Result<(), TooManyExports> {
        self.trace.queue_export(path)?;
        self.traces.start_exports(&self.trace);
        Ok(())
    }

    /// Adds an export to be made when the trace's last client disconnects.
    pub(crate) fn add_pending_export(
        &self,
        path: PathBuf,
        peer: &Peer,
    ) -> Result<(), TooManyExports> {
        let uid = peer.uid;
        self.trace.add_pending_export(PendingExport { path, uid })
    }

    /// Reports to the forwarder that the client has disconnected.
    pub(crate) async fn announce_close(&mut self) {
        let client = self.client;
        if let Some(forwarder) = self.forwarder.take() {
            let closed = ForwardItem::ClientClosed { client };
            // May fail: the receiver is gone, or it learns the same from the end of the queue.
            let _ = forwarder.send_item(closed, self.traces.when_full).await;
        }
    }

    /// Reports to the forwarder that the client has connected. If that fails, its events are not
    /// forwarded.
    async fn announce_open(&mut self, peer: &Peer) {
        if let Some(forwarder) = &self.forwarder {
            let opened = ForwardItem::ClientOpened {
                client: self.client,
                pid: peer.pid.unwrap_or(0),
                uid: peer.uid,
                exe: peer.program(),
            };
            if forwarder
                .send_item(opened, self.traces.when_full)
                .await
                .is_err()
            {
                warn!(trace = self.trace.id, %peer, "its events are not forwarded");
                self.forwarder = None;
            }
        }
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        // `leave_trace` drops the trace's own sending end when the last client leaves; the queue
        // ends when all sending ends are dropped.
        self.forwarder = None;
        self.traces
            .leave_trace(&mut self.traces.open.lock(), &self.trace);
    }
}
