//! The loop: look what is there, hand over what is new, wait.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use ctf::Timescale;
use ctf::model::{EnvironmentValue, Uuid};
use tokio::sync::mpsc::Sender;

use super::FollowOptions;
use super::metadata::{GrowingFile, Told};
use super::piece::Piece;
use super::scan::{FileId, FoundTrace, scan};
use super::stream::{Next, Stream};
use super::watch::{Watch, Woken};
use crate::attach::{SourceEvent, StreamKey, TraceKey};

/// How often everything is looked at that inotify may not tell of: that a lock is gone, beacons of
/// a remote file system.
const TICK: Duration = Duration::from_millis(500);
/// Likewise without inotify.
const TICK_WITHOUT: Duration = Duration::from_millis(100);
/// While something is expected at any moment.
const SOON: Duration = Duration::from_millis(20);
/// First wait for a reader that has no room; each further one is twice as long, up to the last.
const FULL: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(50));
/// How often directories are looked at that inotify tells nothing of.
const RESCAN: Duration = Duration::from_secs(2);
/// Looking takes no more than one part in so many of the time.
const LEAST_REST: u32 = 200;
/// A file that has been read and not been seen for so long is forgotten.
const FORGET: Duration = Duration::from_secs(60);
/// So many scans in a row may miss a directory that is being moved.
pub(super) const MISSED: u64 = 2;

/// Nobody listens any more.
#[derive(Debug)]
pub(super) struct Stopped;

/// A directory that is followed.
pub(super) struct Follow {
    root: PathBuf,
    pub(super) options: FollowOptions,
    events: Sender<SourceEvent>,
    pub(super) watch: Watch,
    stop: Arc<AtomicBool>,
    pub(super) places: HashMap<FileId, Place>,
    pub(super) groups: BTreeMap<TraceKey, Group>,
    pub(super) streams: BTreeMap<StreamKey, Stream>,
    /// Tracefiles that have been found, when last, and whether they have been read to their end.
    files: HashMap<FileId, (Instant, bool)>,
    /// Streams that may have more.
    pub(super) dirty: BTreeSet<StreamKey>,
    /// How often it has been looked for files.
    pub(super) scans: u64,
    pub(super) scan_wanted: bool,
    /// Something is expected at any moment.
    pub(super) is_soon: bool,
    /// Ends of packets, in nanoseconds, and since when they are known.
    pub(super) shown: VecDeque<(Instant, i64)>,
    next_tick: Instant,
    next_scan: Instant,
    full_wait: Duration,
    /// How long the reader has been waited for.
    sending: Duration,
}

/// A directory that is a trace, or one chunk of it.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) id: FileId,
    pub(super) directory: PathBuf,
    pub(super) home: PathBuf,
    /// When anything in it was written last, as of when it was found.
    pub(super) modified: SystemTime,
    /// The last scan that has found it.
    pub(super) seen: u64,
    pub(super) metadata: Option<GrowingFile>,
    pub(super) group: Option<TraceKey>,
    /// Files that are no piece of any stream yet.
    pub(super) loose: Vec<Piece>,
    /// Nothing further is expected of it.
    pub(super) is_finished: bool,
}

/// A trace that has been announced.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) key: TraceKey,
    pub(super) uuid: Option<Uuid>,
    pub(super) told: Told,
    pub(super) first_place: FileId,
    pub(super) homes: HashSet<PathBuf>,
    /// Whether its relay locks what it writes.
    pub(super) has_locks: bool,
    /// When anything of it was written last.
    pub(super) grown: SystemTime,
    /// The scan that was the last when nothing was left of it.
    pub(super) drained: Option<u64>,
}

impl Place {
    /// Nothing further is expected of it.
    pub(super) fn finish(&mut self) {
        (self.group, self.metadata, self.is_finished) = (None, None, true);
        self.loose.clear();
    }

    /// As users know it: the host, and where it lies.
    pub(super) fn name(&self) -> String {
        let home = self.home.to_string_lossy();
        let trace = self
            .metadata
            .as_ref()
            .map(|metadata| metadata.metadata.trace());
        match trace.and_then(|trace| trace.environment_value("hostname")) {
            Some(EnvironmentValue::Text(host)) if home.is_empty() => host.to_string(),
            Some(EnvironmentValue::Text(host)) => format!("{host}/{home}"),
            _ => home.into_owned(),
        }
    }
}

impl Follow {
    pub(super) fn new(
        root: PathBuf,
        options: FollowOptions,
        events: Sender<SourceEvent>,
        watch: Watch,
        stop: Arc<AtomicBool>,
    ) -> Self {
        Self {
            root,
            options,
            events,
            watch,
            stop,
            places: HashMap::new(),
            groups: BTreeMap::new(),
            streams: BTreeMap::new(),
            files: HashMap::new(),
            dirty: BTreeSet::new(),
            scans: 0,
            scan_wanted: true,
            is_soon: false,
            shown: VecDeque::new(),
            next_tick: Instant::now(),
            next_scan: Instant::now(),
            full_wait: FULL.0,
            sending: Duration::ZERO,
        }
    }

    /// Until there is nothing more to come, or nobody listens.
    pub(super) fn run(&mut self) {
        while let Ok(Some(wait)) = self.round() {
            let woken = self.watch.wait(wait);
            self.take(woken);
        }
    }

    /// All that can be done now. Gives how long to wait, unless this is the end.
    fn round(&mut self) -> Result<Option<Duration>, Stopped> {
        self.is_soon = false;
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
        let (is_full, has_more) = self.visit_dirty()?;
        self.end_streams()?;
        self.end_traces()?;
        if self.is_done() {
            let nothing = format!("no trace at or below {}", self.root.display());
            self.send_event(match self.places.is_empty() {
                true => SourceEvent::Failed(nothing),
                false => SourceEvent::Done,
            })?;
            return Ok(None);
        }
        Ok(Some(self.wait_time(is_full, has_more)))
    }

    fn wait_time(&mut self, is_full: bool, has_more: bool) -> Duration {
        if has_more {
            self.full_wait = FULL.0;
            return Duration::ZERO;
        }
        let mut wait = self.next_tick.saturating_duration_since(Instant::now());
        if is_full {
            wait = wait.min(self.full_wait);
            self.full_wait = (self.full_wait * 2).min(FULL.1);
        }
        if self.is_soon || self.scan_wanted {
            wait = wait.min(SOON);
        }
        wait
    }

    fn take(&mut self, woken: Woken) {
        self.scan_wanted |= woken.structure;
        self.dirty.extend(woken.streams);
        let now = Instant::now();
        if now >= self.next_scan {
            self.scan_wanted = true;
        }
        if woken.all && self.is_soon || woken.structure {
            self.dirty.extend(self.streams.keys().copied());
        }
    }

    /// Hands over what is new. Whether the reader has no room for all of it, and whether there is
    /// more that it has room for.
    fn visit_dirty(&mut self) -> Result<(bool, bool), Stopped> {
        let begun = Instant::now();
        let is_tick = begun >= self.next_tick;
        if is_tick {
            self.dirty.extend(self.streams.keys().copied());
        }
        self.sending = Duration::ZERO;
        if is_tick {
            self.promise_for_idle()?;
            self.finish_chunks();
            let places: Vec<_> = self.places.keys().copied().collect();
            for place in places {
                self.grow_metadata(place)?;
            }
        }
        let (mut is_full, mut has_more) = (false, false);
        for key in std::mem::take(&mut self.dirty) {
            let Some(mut stream) = self.streams.remove(&key) else {
                continue;
            };
            let next = self.visit(&mut stream)?;
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
                self.dirty.insert(key);
            }
            self.streams.insert(key, stream);
        }
        if is_tick {
            let tick = if self.watch.is_complete() {
                TICK
            } else {
                TICK_WITHOUT
            };
            let looking = begun.elapsed().saturating_sub(self.sending);
            self.next_tick = Instant::now() + tick.max(looking * LEAST_REST).min(RESCAN);
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
            self.take_trace(trace, &mut paths);
        }
        let scans = self.scans;
        let pieces = self
            .streams
            .values_mut()
            .flat_map(|stream| &mut stream.pieces);
        for piece in pieces.chain(self.places.values_mut().flat_map(|place| &mut place.loose)) {
            if let Some(path) = paths.remove(&piece.id) {
                (piece.path, piece.seen) = (path, scans);
            }
        }
        self.files
            .retain(|_, (seen, is_read)| !*is_read || seen.elapsed() < FORGET);
        // Again: a scan may have missed it.
        self.places
            .retain(|_, place| !place.is_finished || place.seen + MISSED >= scans);
        self.dirty.extend(self.streams.keys().copied());
        let rest = (begun.elapsed() * LEAST_REST).clamp(RESCAN, FORGET / 2);
        self.next_scan = Instant::now() + rest;
        Ok(())
    }

    fn take_trace(&mut self, trace: FoundTrace, paths: &mut HashMap<FileId, PathBuf>) {
        let is_new_place = !self.places.contains_key(&trace.id);
        let mut is_old = false;
        let place = self.places.entry(trace.id).or_insert_with(|| Place {
            id: trace.id,
            directory: PathBuf::new(),
            home: trace.home.clone(),
            modified: trace.modified,
            seen: 0,
            metadata: None,
            group: None,
            loose: Vec::new(),
            is_finished: false,
        });
        (place.directory, place.seen) = (trace.directory, self.scans);
        for file in trace.files {
            place.modified = place.modified.max(file.modified);
            let is_new = !self.files.contains_key(&file.id);
            is_old |= !is_new;
            let (seen, _) = self.files.entry(file.id).or_insert((Instant::now(), false));
            *seen = Instant::now();
            if is_new {
                place
                    .loose
                    .push(Piece::new(&file, &trace.home, trace.id, self.scans));
                place.is_finished = false;
            }
            paths.insert(file.id, file.path);
        }
        // It has been read before, and came back into sight.
        place.is_finished |= is_new_place && is_old && place.loose.is_empty();
    }

    /// A file has been read to its end.
    pub(super) fn read_all_of(&mut self, file: FileId) {
        if let Some((_, is_read)) = self.files.get_mut(&file) {
            *is_read = true;
        }
    }

    pub(super) fn is_read(&self, file: FileId) -> bool {
        self.files.get(&file).is_some_and(|(_, is_read)| *is_read)
    }

    /// How the clock of a trace runs. All its streams have one, in every tracer there is.
    pub(super) fn timescale(&self, group: TraceKey) -> Option<Timescale> {
        let place = self.places.get(&self.groups.get(&group)?.first_place)?;
        let trace = place.metadata.as_ref()?.metadata.trace();
        trace.streams().find_map(|stream| stream.timescale())
    }

    /// Waits for room, and no longer than somebody listens.
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
