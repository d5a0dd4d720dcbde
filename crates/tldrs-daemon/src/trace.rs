//! One open trace: its file, of which it is the only writer, and its record.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use memchr::memrchr;
use parking_lot::Mutex;
use thiserror::Error;
use tracing::{debug, warn};

use crate::export::Export;
use crate::files::TraceFiles;
use crate::forward_queue::TraceForwarder;
use crate::limits::{
    MAX_PENDING_EXPORTS, MAX_QUEUED_EXPORTS, MAX_REJECTED_BYTES, RECORD_SAVE_DELAY,
};
use crate::line_validator::Findings;
use crate::open::open_append;
use crate::record::{PendingExport, TraceRecord};

/// Attempts to take the lock, and the pause between them: a program that removes traces holds it
/// only briefly.
const LOCK_TRIES: u32 = 50;
const LOCK_PAUSE: Duration = Duration::from_millis(1);

/// A trace that at least one client has open.
#[derive(Debug)]
pub(crate) struct Trace {
    /// The trace's id, as clients give it.
    pub(crate) id: String,
    /// The trace's name in its files' names.
    pub(crate) name: String,
    files: TraceFiles,
    sync: bool,
    state: Mutex<TraceState>,
}

#[derive(Debug)]
struct TraceState {
    file: Arc<File>,
    rejected: Option<File>,
    record: TraceRecord,
    /// Whether a save of the record is scheduled.
    is_save_scheduled: bool,
    /// Number for the next client.
    next_client: u32,
    forwarder: Option<TraceForwarder>,
    /// Queued exports, in order.
    exports: VecDeque<Export>,
    /// Whether a thread is making them.
    is_exporting: bool,
    /// Pending exports that were queued. They stay in the record until they are done, so that they
    /// are not lost if the daemon is killed meanwhile.
    due: Vec<PendingExport>,
}

/// An append that has stored only a part, or nothing.
#[derive(Debug, Error)]
#[error("cannot append to the trace")]
pub(crate) struct AppendError {
    /// Number of bytes that were stored: whole lines.
    pub(crate) stored: usize,
    #[source]
    pub(crate) source: io::Error,
}

/// The trace has [`MAX_QUEUED_EXPORTS`] or [`MAX_PENDING_EXPORTS`] already.
#[derive(Debug, Error)]
#[error("too many exports wait for this trace already")]
pub(crate) struct TooManyExports;

/// The result of opening a trace for a client.
#[derive(Debug)]
pub(crate) struct TraceEntry {
    /// The client's number in the trace, counted from 0.
    pub(crate) client: u32,
    /// Whether no other client has the trace open.
    pub(crate) is_first: bool,
}

impl Trace {
    /// Opens the files of a trace, or makes them.
    pub(crate) fn open(
        id: String,
        name: String,
        files: TraceFiles,
        sync: bool,
    ) -> io::Result<Self> {
        let file = open_events(&files)?;
        let mut record = TraceRecord::load_own(&files.record);
        // No client of an earlier daemon is connected any more.
        record.clients = 0;
        record.id.clone_from(&id);
        let state = TraceState {
            file: Arc::new(file),
            rejected: None,
            record,
            is_save_scheduled: false,
            next_client: 0,
            forwarder: None,
            exports: VecDeque::new(),
            is_exporting: false,
            due: Vec::new(),
        };
        Ok(Self {
            id,
            name,
            files,
            sync,
            state: Mutex::new(state),
        })
    }

    /// Adds a client to those that have the trace open.
    pub(crate) fn add_client(&self) -> TraceEntry {
        let mut state = self.state.lock();
        let client = state.next_client;
        state.next_client = state.next_client.wrapping_add(1);
        state.record.clients += 1;
        add(&mut state.record.connections, 1);
        TraceEntry {
            client,
            is_first: state.record.clients == 1,
        }
    }

    /// Removes a client. Returns whether it was the last: then all pending exports are queued.
    pub(crate) fn remove_client(&self) -> bool {
        let mut state = self.state.lock();
        state.record.clients = state.record.clients.saturating_sub(1);
        let is_last = state.record.clients == 0;
        if is_last {
            state.forwarder = None;
            state.schedule_exports();
            self.save_record(&mut state);
        }
        is_last
    }

    /// Queues the pending exports of a daemon that was killed.
    pub(crate) fn schedule_exports(&self) {
        let mut state = self.state.lock();
        state.schedule_exports();
        self.save_record(&mut state);
    }

    /// Whether any client has the trace open.
    pub(crate) fn has_clients(&self) -> bool {
        self.state.lock().record.clients > 0
    }

    /// Returns the sending end of the forward queue, if the trace is forwarded.
    pub(crate) fn forwarder(&self) -> Option<TraceForwarder> {
        self.state.lock().forwarder.clone()
    }

    /// Sets the sending end of the forward queue, or none.
    pub(crate) fn set_forwarder(&self, forwarder: Option<TraceForwarder>) {
        self.state.lock().forwarder = forwarder;
    }

    /// Appends events to the file. When this returns the kernel has them: they survive the daemon,
    /// not a power failure.
    pub(crate) fn append_events(
        self: &Arc<Self>,
        text: &[u8],
        lines: u64,
    ) -> Result<(), AppendError> {
        let mut state = self.state.lock();
        let appended = append_text(&state.file, text);
        let stored = match &appended {
            Ok(()) => lines,
            Err(error) => count_lines(text.get(..error.stored).unwrap_or_default()),
        };
        add(&mut state.record.events, stored);
        self.save_record_soon(&mut state);
        appended
    }

    /// Whether events have to be synced to the disk before the next ones are read.
    pub(crate) fn should_sync(&self) -> bool {
        self.sync
    }

    /// Syncs the events to the disk.
    pub(crate) fn sync_events(&self) -> io::Result<()> {
        let file = Arc::clone(&self.state.lock().file);
        file.sync_data()
    }

    /// Counts repairs and refused lines, and appends the refused lines to their file.
    pub(crate) fn count_findings(self: &Arc<Self>, found: &Findings) {
        let mut state = self.state.lock();
        state.record.repaired += found.repairs;
        add(&mut state.record.refused, found.refused);
        if let Err(error) = state.keep_rejected(&self.files, &found.rejected) {
            warn!(trace = %self.id, %error, "cannot store refused lines");
        }
        self.save_record_soon(&mut state);
    }

    /// Counts events that were not stored or not forwarded.
    pub(crate) fn count_lost(self: &Arc<Self>, lines: u64) {
        let mut state = self.state.lock();
        add(&mut state.record.lost, lines);
        self.save_record_soon(&mut state);
    }

    /// Adds an export to be made when the last client disconnects. It outlives the daemon.
    pub(crate) fn add_pending_export(&self, pending: PendingExport) -> Result<(), TooManyExports> {
        let mut state = self.state.lock();
        if state.record.pending_exports.contains(&pending) {
            return Ok(());
        }
        if state.record.pending_exports.len() >= MAX_PENDING_EXPORTS {
            return Err(TooManyExports);
        }
        state.record.pending_exports.push(pending);
        self.save_record(&mut state);
        Ok(())
    }

    /// Queues an export of the events that are stored now.
    pub(crate) fn queue_export(&self, path: PathBuf) -> Result<(), TooManyExports> {
        self.state.lock().add_export(path, false)
    }

    /// Whether a thread must be started for exports: none is running, and some are queued.
    pub(crate) fn begin_exports(&self) -> bool {
        let mut state = self.state.lock();
        let begin = !state.is_exporting && !state.exports.is_empty();
        state.is_exporting |= begin;
        begin
    }

    /// Takes the next export from the queue, with the file of events. If there is none, the thread
    /// ends.
    pub(crate) fn next_export(&self) -> Option<(Export, Arc<File>)> {
        let mut state = self.state.lock();
        // Under one lock with the queue: an export that is queued later finds no thread running,
        // and starts one.
        let export = state.exports.pop_front();
        state.is_exporting = export.is_some();
        Some((export?, Arc::clone(&state.file)))
    }

    /// Removes a pending export from the record: it was made, or has failed.
    pub(crate) fn export_done(&self, export: &Export) {
        if export.is_pending_export {
            let mut state = self.state.lock();
            state.due.retain(|pending| pending.path != export.path);
            self.save_record(&mut state);
        }
    }

    /// Whether the trace has neither clients nor exports.
    pub(crate) fn is_idle(&self) -> bool {
        let state = self.state.lock();
        state.record.clients == 0 && !state.is_exporting && state.exports.is_empty()
    }

    /// Schedules a save of the record after [`RECORD_SAVE_DELAY`], unless one is scheduled.
    fn save_record_soon(self: &Arc<Self>, state: &mut TraceState) {
        if state.is_save_scheduled {
            return;
        }
        state.is_save_scheduled = true;
        // If the trace is closed before that, the record is saved then.
        let trace = Arc::downgrade(self);
        tokio::spawn(async move {
            tokio::time::sleep(RECORD_SAVE_DELAY).await;
            if let Some(trace) = trace.upgrade() {
                trace.save_record(&mut trace.state.lock());
            }
        });
    }

    fn save_record(&self, state: &mut TraceState) {
        state.is_save_scheduled = false;
        let mut record = state.record.clone();
        record.pending_exports.extend(state.due.iter().cloned());
        if let Err(error) = record.save(&self.files.record, self.sync) {
            warn!(trace = %self.id, %error, "cannot save the record of the trace");
        }
    }
}

impl TraceState {
    /// Moves all pending exports to the queue.
    fn schedule_exports(&mut self) {
        for pending in std::mem::take(&mut self.record.pending_exports) {
            match self.add_export(pending.path.clone(), true) {
                Ok(()) => self.due.push(pending),
                Err(error) => warn!(path = %pending.path.display(), %error, "not exported"),
            }
        }
    }

    fn add_export(&mut self, path: PathBuf, is_pending_export: bool) -> Result<(), TooManyExports> {
        let length = self.file.metadata().map_or(0, |metadata| metadata.len());
        let export = Export {
            path,
            length,
            is_pending_export,
        };
        // An export has all events that are stored when it is queued, so a later one to the same
        // path replaces an earlier one.
        self.exports.retain(|waiting| {
            waiting.path != export.path || waiting.is_pending_export != is_pending_export
        });
        if self.exports.len() >= MAX_QUEUED_EXPORTS + MAX_PENDING_EXPORTS {
            return Err(TooManyExports);
        }
        self.exports.push_back(export);
        Ok(())
    }

    fn keep_rejected(&mut self, files: &TraceFiles, lines: &[u8]) -> io::Result<()> {
        if lines.is_empty() {
            return Ok(());
        }
        let file = match &mut self.rejected {
            Some(file) => file,
            none => none.insert(open_append(&files.rejected)?),
        };
        if file.metadata()?.len() < MAX_REJECTED_BYTES {
            file.write_all(lines)?;
        }
        Ok(())
    }
}

/// Opens the events' file, and holds a shared lock on it so that it is not removed.
fn open_events(files: &TraceFiles) -> io::Result<File> {
    for _ in 0..LOCK_TRIES {
        let file = open_append(&files.events)?;
        let is_locked = matches!(file_lock::try_lock_shared(&file), Ok(true));
        // `tldrs clear` removes the file while it holds the exclusive lock: then it has no name any
        // more.
        if is_locked && file.metadata()?.nlink() > 0 {
            complete_last_line(&file)?;
            return Ok(file);
        }
        std::thread::sleep(LOCK_PAUSE);
    }
    Err(io::Error::other("another program keeps it locked"))
}

/// Ends the last line, which a power failure may have truncated: the next event must begin a new
/// line.
fn complete_last_line(file: &File) -> io::Result<()> {
    let length = file.metadata()?.len();
    let mut last = [b'\n'];
    if length > 0 {
        file.read_exact_at(&mut last, length - 1)?;
    }
    if last == [b'\n'] {
        return Ok(());
    }
    debug!("the last line of the trace was truncated");
    (&*file).write_all(b"\n")
}

/// Writes the text. If that fails, only whole lines remain in the file.
fn append_text(file: &File, text: &[u8]) -> Result<(), AppendError> {
    let mut written = 0;
    while let Some(rest) = text.get(written..).filter(|rest| !rest.is_empty()) {
        let error = match (&mut &*file).write(rest) {
            Ok(more @ 1..) => {
                written += more;
                continue;
            }
            Ok(0) => io::ErrorKind::WriteZero.into(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => error,
        };
        return Err(cut_partial_line(file, text, written, error));
    }
    Ok(())
}

/// Truncates the file after the last whole line, when the rest of a line could not be written.
fn cut_partial_line(file: &File, text: &[u8], written: usize, source: io::Error) -> AppendError {
    let done = text.get(..written).unwrap_or_default();
    let stored = memrchr(b'\n', done).map_or(0, |end| end + 1);
    // The file has no other writer and is written at its end only, so the partial line is at the
    // end.
    let cut = || file.set_len(file.metadata()?.len() - (written - stored) as u64);
    if written > stored && cut().is_err() {
        debug!("cannot truncate the file: a partial line remains");
    }
    AppendError { stored, source }
}

/// Adds to a counter of a record, which an earlier daemon may have left at any number.
fn add(counter: &mut u64, more: u64) {
    *counter = counter.saturating_add(more);
}

/// Counts lines, all of which end in a line feed.
pub(crate) fn count_lines(text: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', text).count() as u64
}
