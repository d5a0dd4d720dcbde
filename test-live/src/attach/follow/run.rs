//! The event loop: scans for files, reads what has changed, and waits for inotify or the next poll.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use ctf::Timescale;
use ctf::model::{EnvironmentValue, Uuid};
use tokio::sync::mpsc::Sender;

use super::FollowOptions;
use super::metadata::{AnnouncedMetadata, GrowingMetadataFile};
use super::scan::{FileId, FoundTrace, scan};
use super::stream::{FollowedStream, Next};
use super::tracefile_reader::TracefileReader;
use super::watch::{DirectoryWatch, WatchEvents};
use crate::attach::{SourceEvent, StreamKey, TraceKey};

/// How often everything is read that inotify may not report: a lock that is gone, beacons of a
/// remote file system.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// How often everything is read without inotify.
const POLL_INTERVAL_WITHOUT_INOTIFY: Duration = Duration::from_millis(100);
/// Longest wait while something is expected at any moment.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);
/// First wait for a reader that has no room; each further one is twice as long, up to the last.
const FULL_BACKLOG_INTERVALS: (Duration, Duration) =
    (Duration::from_millis(2), Duration::from_millis(50));
/// Shortest time between two scans for directories that inotify does not report.
const MIN_SCAN_INTERVAL: Duration = Duration::from_secs(2);
/// Smallest ratio of the time between two scans to the time that a scan takes.
const MIN_IDLE_RATIO: u32 = 200;
/// How long a file that has been read is remembered after the last scan that has found it.
const READ_FILE_RETENTION: Duration = Duration::from_secs(60);
/// Number of scans in a row that may miss a directory that is being moved.
pub(super) const MAX_MISSED_SCANS: u64 = 2;

/// The receiver of the events has been dropped, or the handle has said to stop.
#[derive(Debug)]
pub(super) struct Stopped;

/// Follows all traces at or below a directory.
pub(super) struct DirectoryFollower {
    root: PathBuf,
    pub(super) options: FollowOptions,
    events: Sender<SourceEvent>,
    pub(super) watch: DirectoryWatch,
    stop: Arc<AtomicBool>,
    pub(super) directories: HashMap<FileId, ChunkDirectory>,
    pub(super) traces: BTreeMap<TraceKey, FollowedTrace>,
    pub(super) streams: BTreeMap<StreamKey, FollowedStream>,
    /// Tracefiles that have been found, when last, and whether they have been read to their end.
    files: HashMap<FileId, (Instant, bool)>,
    /// Streams that may have more packets to read.
    pub(super) changed_streams: BTreeSet<StreamKey>,
    /// Number of scans so far.
    pub(super) scans: u64,
    pub(super) scan_wanted: bool,
    /// Something is expected at any moment.
    pub(super) is_retry_soon: bool,
    /// Ends of packets, in nanoseconds, and since when they are known.
    pub(super) packet_ends: VecDeque<(Instant, i64)>,
    next_poll: Instant,
    next_scan: Instant,
    full_backlog_interval: Duration,
    /// How long the reader has been waited for.
    sending: Duration,
}

/// A directory that is a trace, or one chunk of it.
#[derive(Debug)]
pub(super) struct ChunkDirectory {
    pub(super) id: FileId,
    pub(super) path: PathBuf,
    pub(super) trace_path: PathBuf,
    /// When anything in it was written last, as of when it was found.
    pub(super) modified: SystemTime,
    /// The last scan that has found it.
    pub(super) seen: u64,
    pub(super) metadata: Option<GrowingMetadataFile>,
    pub(super) trace: Option<TraceKey>,
    /// Tracefiles whose stream is not known yet.
    pub(super) unassigned: Vec<TracefileReader>,
    /// Nothing further is expected of it.
    pub(super) is_finished: bool,
}

/// A trace that has been announced.
#[derive(Debug)]
pub(super) struct FollowedTrace {
    pub(super) key: TraceKey,
    pub(super) uuid: Option<Uuid>,
    pub(super) announced: AnnouncedMetadata,
    pub(super) first_directory: FileId,
    pub(super) trace_paths: HashSet<PathBuf>,
    /// Whether its relay locks what it writes.
    pub(super) has_locks: bool,
    /// When anything of it was written last.
    pub(super) grown: SystemTime,
    /// The scan that was the last when nothing was left of it.
    pub(super) drained: Option<u64>,
}

impl ChunkDirectory {
    /// Nothing further is expected of it.
    pub(super) fn finish(&mut self) {
        (self.trace, self.metadata, self.is_finished) = (None, None, true);
        self.unassigned.clear();
    }

    /// As users know it: the host, and where it lies.
    pub(super) fn name(&self) -> String {
        let trace_path = self.trace_path.to_string_lossy();
        let trace = self
            .metadata
            .as_ref()
            .map(|metadata| metadata.metadata.trace());
        match trace.and_then(|trace| trace.environment_value("hostname")) {
            Some(EnvironmentValue::Text(host)) if trace_path.is_empty() => host.to_string(),
            Some(EnvironmentValue::Text(host)) => format!("{host}/{trace_path}"),
            _ => trace_path.into_owned(),
        }
    }
}

impl DirectoryFollower {
    pub(super) fn new(
        root: PathBuf,
        options: FollowOptions,
        events: Sender<SourceEvent>,
        watch: DirectoryWatch,
        stop: Arc<AtomicBool>,
    ) -> Self {
        Self {
            root,
            options,
            events,
            watch,
            stop,
            directories: HashMap::new(),
            traces: BTreeMap::new(),
            streams: BTreeMap::new(),
            files: HashMap::new(),
            changed_streams: BTreeSet::new(),
            scans: 0,
            scan_wanted: true,
            is_retry_soon: false,
            packet_ends: VecDeque::new(),
            next_poll: Instant::now(),
            next_scan: Instant::now(),
            full_backlog_interval: FULL_BACKLOG_INTERVALS.0,
            sending: Duration::ZERO,
        }
    }

    /// Until there is nothing more to come, or nobody listens.
    pub(super) fn run(&mut self) {
        while let Ok(Some(wait)) = self.run_round() {
            let changes = self.watch.wait(wait);
            self.mark_changes(changes);
        }
    }

    /// All that can be done now. Gives how long to wait, unless this is the end.
    fn run_round(&mut self) -> Result<Option<Duration>, Stopped> {
        self.is_retry_soon = false;
        if self.is_stopped() {
            return Err(Stopped);
        }
        if self.scan_wanted
            && let Err(error) = self.rescan()
        {
            let what = format!("cannot read {}: {error}", self.root.display());
            self.send_event(SourceEvent::Failed(what))?;
            return Ok(None);
        }
        self.join_traces()?;
        self.join_files()?;
        let (is_full, has_more) = self.read_changed_streams()?;
        self.end_streams()?;
        self.end_traces()?;
        if self.is_done() {
            let nothing = format!("no trace at or below {}", self.root.display());
            self.send_event(match self.directories.is_empty() {
                true => SourceEvent::Failed(nothing),
                false => SourceEvent::Done,
            })?;
            return Ok(None);
        }
        Ok(Some(self.wait_time(is_full, has_more)))
    }

    fn wait_time(&mut self, is_full: bool, has_more: bool) -> Duration {
        if has_more {
            self.full_backlog_interval = FULL_BACKLOG_INTERVALS.0;
            return Duration::ZERO;
        }
        let mut wait = self.next_poll.saturating_duration_since(Instant::now());
        if is_full {
            wait = wait.min(self.full_backlog_interval);
            self.full_backlog_interval =
                (self.full_backlog_interval * 2).min(FULL_BACKLOG_INTERVALS.1);
        }
        if self.is_retry_soon || self.scan_wanted {
            wait = wait.min(RETRY_INTERVAL);
        }
        wait
    }

    fn mark_changes(&mut self, changes: WatchEvents) {
        self.scan_wanted |= changes.structure;
        self.changed_streams.extend(changes.streams);
        let now = Instant::now();
        if now >= self.next_scan {
            self.scan_wanted = true;
        }
        if changes.all && self.is_retry_soon || changes.structure {
            self.changed_streams.extend(self.streams.keys().copied());
        }
    }

    /// Hands over what is new. Whether the reader has no room for all of it, and whether there is
    /// more that it has room for.
    fn read_changed_streams(&mut self) -> Result<(bool, bool), Stopped> {
        let begun = Instant::now();
        let is_poll_due = begun >= self.next_poll;
        if is_poll_due {
            self.changed_streams.extend(self.streams.keys().copied());
        }
        self.sending = Duration::ZERO;
        if is_poll_due {
            self.send_watermarks_of_idle_streams()?;
            self.finish_chunks();
            let directories: Vec<_> = self.directories.keys().copied().collect();
            for chunk in directories {
                self.grow_metadata(chunk)?;
            }
        }
        let (mut is_full, mut has_more) = (false, false);
        for key in std::mem::take(&mut self.changed_streams) {
            let Some(mut stream) = self.streams.remove(&key) else {
                continue;
            };
            let next = self.read_stream(&mut stream)?;
            match next {
                Next::PartOf(whole) => {
                    has_more = true;
                    self.merge(stream, whole)?;
                    continue;
                }
                Next::Again => has_more = true,
                Next::Full => is_full = true,
                Next::Wait => {}
            }
            if next != Next::Wait {
                self.changed_streams.insert(key);
            }
            self.streams.insert(key, stream);
        }
        if is_poll_due {
            let poll_interval = if self.watch.is_complete() {
                POLL_INTERVAL
            } else {
                POLL_INTERVAL_WITHOUT_INOTIFY
            };
            let looking = begun.elapsed().saturating_sub(self.sending);
            self.next_poll = Instant::now()
                + poll_interval
                    .max(looking * MIN_IDLE_RATIO)
                    .min(MIN_SCAN_INTERVAL);
        }
        Ok((is_full, has_more))
    }

    /// Looks which files there are and where.
    fn rescan(&mut self) -> std::io::Result<()> {
        let begun = Instant::now();
        let found = scan(&self.root)?;
        (self.scans, self.scan_wanted) = (self.scans + 1, false);
        for directory in &found.directories {
            self.watch.directory(directory);
        }
        let mut paths = HashMap::new();
        for trace in found.traces {
            self.add_found_trace(trace, &mut paths);
        }
        let scans = self.scans;
        let tracefiles = self
            .streams
            .values_mut()
            .flat_map(|stream| &mut stream.tracefiles);
        for tracefile in tracefiles.chain(
            self.directories
                .values_mut()
                .flat_map(|chunk| &mut chunk.unassigned),
        ) {
            if let Some(path) = paths.remove(&tracefile.id) {
                (tracefile.path, tracefile.seen) = (path, scans);
            }
        }
        self.files
            .retain(|_, (seen, is_read)| !*is_read || seen.elapsed() < READ_FILE_RETENTION);
        // Again: a scan may have missed it.
        self.directories
            .retain(|_, chunk| !chunk.is_finished || chunk.seen + MAX_MISSED_SCANS >= scans);
        self.changed_streams.extend(self.streams.keys().copied());
        let rest =
            (begun.elapsed() * MIN_IDLE_RATIO).clamp(MIN_SCAN_INTERVAL, READ_FILE_RETENTION / 2);
        self.next_scan = Instant::now() + rest;
        Ok(())
    }

    fn add_found_trace(&mut self, trace: FoundTrace, paths: &mut HashMap<FileId, PathBuf>) {
        let is_new_directory = !self.directories.contains_key(&trace.id);
        let mut is_old = false;
        let chunk = self
            .directories
            .entry(trace.id)
            .or_insert_with(|| ChunkDirectory {
                id: trace.id,
                path: PathBuf::new(),
                trace_path: trace.trace_path.clone(),
                modified: trace.modified,
                seen: 0,
                metadata: None,
                trace: None,
                unassigned: Vec::new(),
                is_finished: false,
            });
        (chunk.path, chunk.seen) = (trace.directory, self.scans);
        for file in trace.files {
            chunk.modified = chunk.modified.max(file.modified);
            let is_new = !self.files.contains_key(&file.id);
            is_old |= !is_new;
            let (seen, _) = self.files.entry(file.id).or_insert((Instant::now(), false));
            *seen = Instant::now();
            if is_new {
                chunk.unassigned.push(TracefileReader::new(
                    &file,
                    &trace.trace_path,
                    trace.id,
                    self.scans,
                ));
                chunk.is_finished = false;
            }
            paths.insert(file.id, file.path);
        }
        // It has been read before, and came back into sight.
        chunk.is_finished |= is_new_directory && is_old && chunk.unassigned.is_empty();
    }

    /// Records that a file has been read to its end.
    pub(super) fn mark_as_read(&mut self, file: FileId) {
        if let Some((_, is_read)) = self.files.get_mut(&file) {
            *is_read = true;
        }
    }

    pub(super) fn is_read(&self, file: FileId) -> bool {
        self.files.get(&file).is_some_and(|(_, is_read)| *is_read)
    }

    /// How the clock of a trace runs. All its streams have one, in every tracer there is.
    pub(super) fn timescale(&self, trace: TraceKey) -> Option<Timescale> {
        let chunk = self
            .directories
            .get(&self.traces.get(&trace)?.first_directory)?;
        let trace = chunk.metadata.as_ref()?.metadata.trace();
        trace.streams().find_map(|stream| stream.timescale())
    }

    /// Sends an event once the channel has room for it.
    pub(super) fn send_event(&mut self, event: SourceEvent) -> Result<(), Stopped> {
        if self.is_stopped() {
            return Err(Stopped);
        }
        let begun = Instant::now();
        let sent = self.events.blocking_send(event).map_err(|_| Stopped);
        self.sending += begun.elapsed();
        sent
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire) || self.events.is_closed()
    }
}
