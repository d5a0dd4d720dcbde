//! The state of a directory that is followed: its chunk directories, traces and streams.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use ctf::Timescale;
use ctf::metadata::TraceIdentity;
use ctf::model::EnvironmentValue;

use super::FollowOptions;
use super::event_sender::{EventSender, Stopped};
use super::metadata::{AnnouncedMetadata, GrowingMetadataFile};
use super::scan::{FileId, FoundTrace};
use super::stream::FollowedStream;
use super::tracefile_reader::TracefileReader;
use super::watch::DirectoryWatch;
use crate::attach::{Backlog, SourceEvent, StreamKey, TraceKey};
use crate::time::Nanoseconds;

/// First wait for a reader that has no room; each further one is twice as long.
pub(super) const MIN_FULL_BACKLOG_INTERVAL: Duration = Duration::from_millis(2);
/// Longest wait for a reader that has no room.
pub(super) const MAX_FULL_BACKLOG_INTERVAL: Duration = Duration::from_millis(50);
/// Number of scans in a row that may miss a directory that is being moved.
const MAX_MISSED_SCANS: u64 = 2;

/// Follows all traces at or below a directory.
pub(super) struct DirectoryFollower {
    pub(super) root: PathBuf,
    pub(super) options: FollowOptions,
    pub(super) events: EventSender,
    pub(super) watch: DirectoryWatch,
    pub(super) directories: HashMap<FileId, ChunkDirectory>,
    pub(super) traces: BTreeMap<TraceKey, FollowedTrace>,
    pub(super) streams: BTreeMap<StreamKey, FollowedStream>,
    /// Tracefiles that have been found.
    pub(super) files: HashMap<FileId, KnownFile>,
    /// Streams that may have more packets to read.
    pub(super) changed_streams: BTreeSet<StreamKey>,
    /// Number of scans so far.
    pub(super) scans: u64,
    pub(super) is_scan_wanted: bool,
    /// Metadata that has been handed over and not been parsed.
    pub(super) metadata_backlog: Backlog,
    /// Whether any packet has been handed over.
    pub(super) has_sent_packet: bool,
    /// Whether something is expected at any moment.
    pub(super) is_retry_soon: bool,
    /// Ends of packets, and since when they are known.
    pub(super) packet_ends: VecDeque<(Instant, Nanoseconds)>,
    pub(super) next_poll: Instant,
    pub(super) next_scan: Instant,
    pub(super) full_backlog_interval: Duration,
}

/// A tracefile that has been found.
#[derive(Debug)]
pub(super) struct KnownFile {
    /// The time of the last scan that has found the tracefile.
    pub(super) seen: Instant,
    /// Whether the tracefile has been read to its end.
    pub(super) is_read: bool,
}

/// A directory that is a trace, or one chunk of it.
#[derive(Debug)]
pub(super) struct ChunkDirectory {
    pub(super) id: FileId,
    pub(super) path: PathBuf,
    /// The path of the trace without the directories of chunks.
    pub(super) trace_path: PathBuf,
    /// The time of the last write to anything in the directory, as of when that was found.
    pub(super) modified: SystemTime,
    /// The number of the last scan that has found the directory.
    pub(super) seen: u64,
    pub(super) metadata: Option<GrowingMetadataFile>,
    pub(super) trace: Option<TraceKey>,
    /// Tracefiles whose stream is not known yet.
    pub(super) unassigned: Vec<TracefileReader>,
    /// Whether nothing further is expected of the directory.
    pub(super) is_finished: bool,
    /// Whether the first scan had not found the directory.
    pub(super) is_newcomer: bool,
}

/// A trace that has been announced.
#[derive(Debug)]
pub(super) struct FollowedTrace {
    pub(super) key: TraceKey,
    pub(super) identity: Option<TraceIdentity>,
    pub(super) announced: AnnouncedMetadata,
    pub(super) first_directory: FileId,
    /// Paths of the trace without the directories of chunks.
    pub(super) trace_paths: HashSet<PathBuf>,
    /// The relation of the clock to time. All streams of a trace have one clock, in every tracer
    /// there is.
    pub(super) timescale: Option<Timescale>,
    /// Whether the relay of the trace locks what it writes.
    pub(super) has_locks: bool,
    /// The time of the last write to anything of the trace.
    pub(super) grown: SystemTime,
    /// The number of the last scan when nothing was left of the trace. Absent while more may come.
    pub(super) drained: Option<u64>,
}

impl ChunkDirectory {
    pub(super) fn new(found: &FoundTrace, is_newcomer: bool) -> Self {
        Self {
            is_newcomer,
            id: found.id,
            path: found.directory.clone(),
            trace_path: found.trace_path.clone(),
            modified: found.modified,
            seen: 0,
            metadata: None,
            trace: None,
            unassigned: Vec::new(),
            is_finished: false,
        }
    }

    pub(super) fn finish(&mut self) {
        (self.trace, self.metadata, self.is_finished) = (None, None, true);
        self.unassigned.clear();
    }

    /// The number of bytes of the chunk's metadata that have been parsed.
    pub(super) fn metadata_bytes(&self) -> usize {
        let metadata = self.metadata.as_ref();
        metadata.map_or(0, |file| file.bytes.len())
    }

    /// The name for users of the trace: the host, and where the trace lies.
    pub(super) fn trace_name(&self) -> String {
        let trace_path = self.trace_path.to_string_lossy();
        let metadata = self.metadata.as_ref();
        match metadata.and_then(|file| file.metadata.trace().environment_value("hostname")) {
            Some(EnvironmentValue::Text(host)) if trace_path.is_empty() => host.to_string(),
            Some(EnvironmentValue::Text(host)) => format!("{host}/{trace_path}"),
            _ => trace_path.into_owned(),
        }
    }
}

impl FollowedTrace {
    pub(super) fn new(identity: Option<TraceIdentity>, first_directory: &ChunkDirectory) -> Self {
        Self {
            key: TraceKey::fresh(),
            identity,
            announced: AnnouncedMetadata::default(),
            first_directory: first_directory.id,
            trace_paths: HashSet::new(),
            timescale: None,
            has_locks: false,
            grown: first_directory.modified,
            drained: None,
        }
    }
}

impl DirectoryFollower {
    pub(super) fn new(
        root: PathBuf,
        options: FollowOptions,
        events: EventSender,
        watch: DirectoryWatch,
    ) -> Self {
        Self {
            root,
            options,
            events,
            watch,
            directories: HashMap::new(),
            traces: BTreeMap::new(),
            streams: BTreeMap::new(),
            files: HashMap::new(),
            changed_streams: BTreeSet::new(),
            scans: 0,
            is_scan_wanted: true,
            metadata_backlog: Backlog::default(),
            has_sent_packet: false,
            is_retry_soon: false,
            packet_ends: VecDeque::new(),
            next_poll: Instant::now(),
            next_scan: Instant::now(),
            full_backlog_interval: MIN_FULL_BACKLOG_INTERVAL,
        }
    }

    /// Whether more than [`MAX_MISSED_SCANS`] scans have been made since the scan `scan`: not all
    /// of them can have missed what is being moved.
    pub(super) fn has_enough_scans_since(&self, scan: u64) -> bool {
        self.scans > scan + MAX_MISSED_SCANS
    }

    pub(super) fn mark_as_read(&mut self, file: FileId) {
        if let Some(file) = self.files.get_mut(&file) {
            file.is_read = true;
        }
    }

    pub(super) fn send_error(&mut self, what: String) -> Result<(), Stopped> {
        self.events.send(SourceEvent::Missing(what))
    }
}
