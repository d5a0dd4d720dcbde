//! One stream: its tracefiles in order, and what has been read of them.

use std::collections::{BTreeSet, VecDeque};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Instant;

use ctf::index::{Entry, FollowEvent};

use super::run::{DirectoryFollower, MAX_MISSED_SCANS, Stopped};
use super::scan::FileId;
use super::tracefile_reader::{TracefileError, TracefileReader, packet_bytes};
use crate::attach::{Backlog, SourceEvent, StreamKey, TraceKey};

/// A stream that has been announced.
#[derive(Debug)]
pub(super) struct FollowedStream {
    pub(super) key: StreamKey,
    pub(super) trace: TraceKey,
    /// Its class and number, from its first packet.
    pub(super) identity: Option<(u64, u64)>,
    /// Whether its first packet has been looked at.
    pub(super) is_identified: bool,
    /// In order of time. The first is being read.
    pub(super) tracefiles: VecDeque<TracefileReader>,
    /// Trace path and name of all tracefiles it has had.
    pub(super) names: BTreeSet<(PathBuf, OsString)>,
    /// Trace path, and file name without number.
    pub(super) stem: (PathBuf, String),
    /// Entries of the first tracefile whose packets have not been handed over.
    queue: VecDeque<Entry>,
    /// Whether an entry of the first tracefile has been taken.
    is_begun: bool,
    backlog: Backlog,
    /// No event from before this will come, in cycles.
    pub(super) watermark: u64,
    pub(super) grown: Instant,
    /// Where the last packet begins that was found, in cycles.
    reached: u64,
    /// The scan that was the last when all tracefiles had been read.
    pub(super) drained: Option<u64>,
    /// Whether its index file is watched.
    is_watched: bool,
}

/// What is next for a stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// It has all been read for now.
    Wait,
    /// There is more, for which the reader has no room.
    Full,
    /// There is more.
    Again,
    /// It turned out to be a part of that one.
    PartOf(StreamKey),
}

impl FollowedStream {
    pub(super) fn new(trace: TraceKey, tracefile: TracefileReader, backlog: Backlog) -> Self {
        let mut stream = Self {
            key: StreamKey::fresh(),
            trace,
            identity: None,
            is_identified: false,
            tracefiles: VecDeque::new(),
            names: BTreeSet::new(),
            stem: (tracefile.trace_path.clone(), tracefile.stem()),
            queue: VecDeque::new(),
            is_begun: false,
            backlog,
            watermark: 0,
            grown: Instant::now(),
            reached: 0,
            drained: None,
            is_watched: false,
        };
        stream.insert(tracefile);
        stream
    }

    /// Takes a tracefile in, at its place in time. One without packets is the last.
    pub(super) fn insert(&mut self, mut tracefile: TracefileReader) {
        tracefile.close();
        for other in &mut self.tracefiles {
            other.update_begin();
        }
        self.names
            .insert((tracefile.trace_path.clone(), tracefile.name()));
        self.drained = None;
        let from = usize::from(self.is_begun);
        let is_later = |other: &TracefileReader| match (other.begin, tracefile.begin) {
            (Some(other), Some(begin)) => other > begin,
            // Entries are written in the order of packets: what has none yet is later.
            (None, Some(_)) => true,
            (_, None) => false,
        };
        let later = self.tracefiles.iter().skip(from).position(is_later);
        let at = later.map_or(self.tracefiles.len(), |later| later + from);
        if at == 0 {
            self.is_watched = false;
            if let Some(front) = self.tracefiles.front_mut() {
                front.close();
            }
        }
        self.tracefiles.insert(at, tracefile);
    }

    /// Of tracefiles that were found without packets, the one that has got some is the earlier one.
    fn reorder(&mut self) -> Next {
        if self.is_begun || self.tracefiles.len() < 2 {
            return Next::Wait;
        }
        for tracefile in &mut self.tracefiles {
            tracefile.update_begin();
        }
        if self
            .tracefiles
            .iter()
            .all(|tracefile| tracefile.begin.is_none())
        {
            return Next::Wait;
        }
        let tracefiles = self.tracefiles.make_contiguous();
        tracefiles.sort_by_key(|tracefile| (tracefile.begin.is_none(), tracefile.begin));
        self.is_watched = false;
        Next::Again
    }

    /// Whether all that has been found of it has been handed over.
    pub(super) fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }

    fn remove_first_tracefile(&mut self) -> Option<FileId> {
        self.queue.clear();
        self.is_begun = false;
        self.is_watched = false;
        self.tracefiles.pop_front().map(|tracefile| tracefile.id)
    }
}

impl DirectoryFollower {
    /// Hands over what is new of a stream.
    pub(super) fn read_stream(&mut self, stream: &mut FollowedStream) -> Result<Next, Stopped> {
        for _ in 0..self.options.backlog.max(1) {
            if let Some(next) = stream.queue.front()
                && self.is_full(&stream.backlog, next)
            {
                return Ok(Next::Full);
            }
            if let Some(entry) = stream.queue.pop_front() {
                self.send_packet(stream, &entry)?;
                continue;
            }
            match self.read_index(stream)? {
                Next::Again => {}
                next => return Ok(next),
            }
        }
        Ok(Next::Again)
    }

    /// Whether the next packet has to wait for the reader: as long as any others of the stream do, and
    /// there are enough of them, or there is no memory for it.
    fn is_full(&self, backlog: &Backlog, next: &Entry) -> bool {
        let size = usize::try_from(packet_bytes(next)).unwrap_or(usize::MAX);
        let is_enough = backlog.len() >= self.options.backlog.max(1);
        is_enough || !backlog.is_empty() && !self.options.memory.has_room(size)
    }

    fn send_packet(&mut self, stream: &mut FollowedStream, entry: &Entry) -> Result<(), Stopped> {
        let Some(tracefile) = stream.tracefiles.front_mut() else {
            return Ok(());
        };
        match tracefile.packet(entry, &self.options.memory) {
            Ok(packet) => {
                stream.backlog.add_packet();
                self.send_event(SourceEvent::Packet {
                    stream: stream.key,
                    packet,
                })
            }
            Err(TracefileError::Unreadable(what)) => self.send_event(SourceEvent::Notice(what)),
            Err(TracefileError::Moved) => Ok(()),
        }
    }

    /// Looks into the index of the first tracefile.
    fn read_index(&mut self, stream: &mut FollowedStream) -> Result<Next, Stopped> {
        let key = stream.key;
        let Some(tracefile) = stream.tracefiles.front_mut() else {
            return Ok(Next::Wait);
        };
        if !stream.is_watched {
            self.watch.forget(key);
            self.watch.index(&tracefile.index_path(), key);
            // An index file that is not there yet has no directory, perhaps.
            stream.is_watched = tracefile.index_path().exists();
        }
        let event = match tracefile.poll() {
            // What came between the poll and the question is found by a second poll.
            Ok(FollowEvent::None | FollowEvent::Gone) => {
                let has_next = stream
                    .tracefiles
                    .get(1)
                    .is_some_and(|next| next.begin.is_some());
                let Some(tracefile) = stream.tracefiles.front_mut() else {
                    return Ok(Next::Wait);
                };
                if self.may_grow(tracefile, stream.trace, has_next) {
                    return Ok(stream.reorder());
                }
                match tracefile.poll() {
                    Ok(FollowEvent::None | FollowEvent::Gone) => {
                        return Ok(self.next_tracefile(stream));
                    }
                    event => event,
                }
            }
            event => event,
        };
        match event {
            Ok(FollowEvent::Entries(entries)) => self.queue_entries(stream, entries),
            Ok(FollowEvent::Beacon(until)) => {
                // Only a relay that locks what it writes has any.
                if let Some(trace) = self.traces.get_mut(&stream.trace) {
                    trace.has_locks = true;
                }
                self.send_watermark(stream, until.0)?;
                Ok(Next::Again)
            }
            Ok(FollowEvent::None | FollowEvent::Gone) => Ok(Next::Wait),
            Err(TracefileError::Unreadable(what)) => {
                self.send_event(SourceEvent::Notice(what))?;
                Ok(self.next_tracefile(stream))
            }
            Err(TracefileError::Moved) => Ok(self.handle_moved_tracefile(stream)),
        }
    }

    fn queue_entries(
        &mut self,
        stream: &mut FollowedStream,
        entries: Vec<Entry>,
    ) -> Result<Next, Stopped> {
        let (Some(first), Some(last)) = (entries.first(), entries.last()) else {
            return Ok(Next::Again);
        };
        let Some(tracefile) = stream.tracefiles.front_mut() else {
            return Ok(Next::Wait);
        };
        if first.packet.begin.0 < stream.reached {
            // Found too late: what follows it has been shown, and it was counted as lost.
            return Ok(self.next_tracefile(stream));
        }
        // What these packets need has been written before their entries were.
        self.grow_metadata(tracefile.directory)?;
        self.record_growth(stream.trace, last.packet.end.0, tracefile.modified());
        stream.grown = Instant::now();
        if !stream.is_identified {
            let identity = self.identity(tracefile, first);
            let is_it = |other: &&FollowedStream| {
                identity.is_some() && (other.trace, other.identity) == (stream.trace, identity)
            };
            if let Some(whole) = self.streams.values().find(is_it) {
                return Ok(Next::PartOf(whole.key));
            }
            stream.identity = identity;
            stream.is_identified = true;
        }
        stream.is_begun = true;
        stream.reached = last.packet.begin.0;
        stream.queue.extend(entries);
        Ok(Next::Again)
    }

    /// Sends the watermark `until`, in cycles, if it is later than the last one.
    pub(super) fn send_watermark(
        &mut self,
        stream: &mut FollowedStream,
        until: u64,
    ) -> Result<(), Stopped> {
        if until <= stream.watermark {
            return Ok(());
        }
        stream.watermark = until;
        self.send_event(SourceEvent::Watermark {
            stream: stream.key,
            until,
        })
    }

    fn next_tracefile(&mut self, stream: &mut FollowedStream) -> Next {
        if let Some(id) = stream.remove_first_tracefile() {
            self.mark_as_read(id);
        }
        if stream.tracefiles.is_empty() {
            stream.drained = Some(self.scans);
            self.scan_wanted = true;
            return Next::Wait;
        }
        Next::Again
    }

    /// The first tracefile is not where it was: it has moved, or been replaced or removed.
    fn handle_moved_tracefile(&mut self, stream: &mut FollowedStream) -> Next {
        let seen = stream
            .tracefiles
            .front()
            .map_or(0, |tracefile| tracefile.seen);
        // A scan may miss what moves while it looks.
        if self.scans > seen + MAX_MISSED_SCANS {
            return self.next_tracefile(stream);
        }
        self.scan_wanted = true;
        Next::Wait
    }
}
