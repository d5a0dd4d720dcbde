//! The reading of streams: polls their index files, and hands over the packets of new entries.

use std::time::Instant;

use ctf::index::{Entry, FollowEvent};

use super::event_sender::Stopped;
use super::follower::DirectoryFollower;
use super::stream::FollowedStream;
use super::tracefile_reader::{TracefileError, TracefileReader, packet_bytes};
use crate::attach::{Backlog, SourceEvent, StreamKey, TraceKey};

/// The next step for a stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// All of the stream has been read for now.
    Wait,
    /// The stream has more, for which the reader has no room.
    Full,
    /// The stream has more.
    Again,
    /// The stream turned out to be a part of that one.
    PartOf(StreamKey),
}

/// The result of a look into the index file of a tracefile.
pub(super) enum IndexState {
    /// New entries, one at least.
    Entries(Vec<Entry>),
    /// A new beacon: no event from before this will come, in cycles.
    Beacon(u64),
    /// Nothing new: the file may grow.
    Growing,
    /// Nothing new: the file is complete, or cannot be read, which has been reported.
    Complete,
    /// No file: a scan may find where it has moved.
    Missing,
}

impl DirectoryFollower {
    /// Hands over what is new of a stream.
    pub(super) fn read_stream(&mut self, stream: &mut FollowedStream) -> Result<Next, Stopped> {
        // No more than a backlog at a time: then the other streams have their turn.
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

    /// Whether the next packet has to wait for the reader: as long as any others of the stream do,
    /// and there are enough of them, or there is no memory for it.
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
                let bytes = usize::try_from(packet.len()).unwrap_or(usize::MAX);
                // Counted first, because the reader may remove the packet as soon as it is sent.
                stream.backlog.add_packet(bytes);
                self.has_sent_packet = true;
                let stream = stream.key;
                self.events.send(SourceEvent::Packet { stream, packet })
            }
            Err(TracefileError::Unreadable(reason)) => self.send_error(reason),
            // The file has been replaced, as in a ring of tracefiles: the gap shows as discarded
            // packets.
            Err(TracefileError::Moved) => Ok(()),
        }
    }

    /// Looks into the index of the first tracefile.
    fn read_index(&mut self, stream: &mut FollowedStream) -> Result<Next, Stopped> {
        let second = stream.tracefiles.get(1);
        let has_next = second.is_some_and(|next| next.begin.is_some());
        let Some(tracefile) = stream.tracefiles.front_mut() else {
            return Ok(Next::Wait);
        };
        if !stream.is_watched {
            self.watch.forget_stream(stream.key);
            self.watch.add_index(&tracefile.index_path(), stream.key);
            // The directory of an index file that does not exist yet may not exist either.
            stream.is_watched = tracefile.index_path().exists();
        }
        match self.poll_index(tracefile, stream.trace, has_next)? {
            IndexState::Entries(entries) => self.queue_entries(stream, entries),
            IndexState::Beacon(until) => {
                // Only a relay that locks what it writes has any.
                if let Some(trace) = self.traces.get_mut(&stream.trace) {
                    trace.has_locks = true;
                }
                stream.send_watermark(until, &mut self.events)?;
                Ok(Next::Again)
            }
            IndexState::Growing if stream.promote_begun_tracefile() => Ok(Next::Again),
            IndexState::Growing | IndexState::Missing => Ok(Next::Wait),
            IndexState::Complete => Ok(self.finish_tracefile(stream)),
        }
    }

    /// Looks into the index of a tracefile. `has_next`: a later tracefile of its stream has
    /// packets.
    pub(super) fn poll_index(
        &mut self,
        tracefile: &mut TracefileReader,
        trace: TraceKey,
        has_next: bool,
    ) -> Result<IndexState, Stopped> {
        let mut event = tracefile.poll();
        if matches!(event, Ok(FollowEvent::None | FollowEvent::Gone)) {
            if self.may_grow(tracefile, trace, has_next) {
                return Ok(IndexState::Growing);
            }
            // Entries written between the poll and the look at the lock are found by a second poll.
            event = tracefile.poll();
        }
        Ok(match event {
            Ok(FollowEvent::Entries(entries)) => IndexState::Entries(entries),
            Ok(FollowEvent::Beacon(until)) => IndexState::Beacon(until.0),
            Ok(FollowEvent::None | FollowEvent::Gone) => IndexState::Complete,
            Err(TracefileError::Unreadable(reason)) => {
                self.send_error(reason)?;
                IndexState::Complete
            }
            // The file has been removed, or replaced by another.
            Err(TracefileError::Moved) if self.has_enough_scans_since(tracefile.seen) => {
                IndexState::Complete
            }
            Err(TracefileError::Moved) => {
                self.is_scan_wanted = true;
                IndexState::Missing
            }
        })
    }

    fn queue_entries(
        &mut self,
        stream: &mut FollowedStream,
        entries: Vec<Entry>,
    ) -> Result<Next, Stopped> {
        let (Some(first), Some(last)) = (entries.first(), entries.last()) else {
            return Ok(Next::Wait);
        };
        if !stream.is_begun && stream.has_passed(&first.packet) {
            // Found too late: later packets have been shown, and this one was counted as discarded.
            return Ok(self.finish_tracefile(stream));
        }
        let Some(tracefile) = stream.tracefiles.front_mut() else {
            return Ok(Next::Wait);
        };
        // What these packets need has been written before their entries were.
        self.grow_metadata(tracefile.directory)?;
        self.record_growth(stream.trace, last.packet.end.0, tracefile.modified());
        stream.grown = Instant::now();
        if !stream.is_identified {
            let identity = self.packet_identity(tracefile, first);
            if let Some(whole) = self.stream_with_identity(stream.trace, identity) {
                return Ok(Next::PartOf(whole));
            }
            (stream.identity, stream.is_identified) = (identity, true);
        }
        stream.is_begun = true;
        stream.reached = Some(last.packet);
        stream.queue.extend(entries);
        Ok(Next::Again)
    }

    /// Goes on to the next tracefile of a stream.
    fn finish_tracefile(&mut self, stream: &mut FollowedStream) -> Next {
        if let Some(id) = stream.remove_first_tracefile() {
            self.mark_as_read(id);
        }
        if stream.tracefiles.is_empty() {
            stream.drained = Some(self.scans);
            self.is_scan_wanted = true;
            return Next::Wait;
        }
        Next::Again
    }
}
