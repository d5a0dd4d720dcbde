//! One stream: its tracefiles in order of time, and how far it has been read.

use std::collections::{BTreeSet, VecDeque};
use std::time::Instant;

use ctf::PacketIndex;
use ctf::index::Entry;

use super::event_sender::{EventSender, Stopped};
use super::scan::FileId;
use super::tracefile_reader::{TracefileName, TracefileReader};
use crate::attach::{Backlog, SourceEvent, StreamKey, TraceKey};

/// A stream that has been announced.
#[derive(Debug)]
pub(super) struct FollowedStream {
    pub(super) key: StreamKey,
    pub(super) trace: TraceKey,
    /// Stream class and stream number, from the first packet of the stream. Absent if that has no
    /// number.
    pub(super) identity: Option<(u64, u64)>,
    /// Whether the first packet of the stream has been looked at.
    pub(super) is_identified: bool,
    /// The tracefiles in order of time. The first is being read.
    pub(super) tracefiles: VecDeque<TracefileReader>,
    /// Names of all tracefiles that the stream has had.
    pub(super) names: BTreeSet<TracefileName>,
    /// The name that its tracefiles have without their number.
    pub(super) stem: TracefileName,
    /// Entries of the first tracefile whose packets have not been handed over.
    pub(super) queue: VecDeque<Entry>,
    /// Whether an entry of the first tracefile has been queued.
    pub(super) is_begun: bool,
    pub(super) backlog: Backlog,
    /// No event from before this time will arrive, in cycles.
    watermark: u64,
    /// The time when entries were last found.
    pub(super) grown: Instant,
    /// The last packet that was found.
    pub(super) reached: Option<PacketIndex>,
    /// Number of the last scan when all tracefiles had been read. Absent while one is left.
    pub(super) drained: Option<u64>,
    /// Whether the index file of the first tracefile is watched.
    pub(super) is_watched: bool,
}

impl FollowedStream {
    pub(super) fn new(trace: TraceKey, tracefile: TracefileReader) -> Self {
        let mut stream = Self {
            key: StreamKey::fresh(),
            trace,
            identity: None,
            is_identified: false,
            tracefiles: VecDeque::new(),
            names: BTreeSet::new(),
            stem: tracefile.stem(),
            queue: VecDeque::new(),
            is_begun: false,
            backlog: Backlog::default(),
            watermark: 0,
            grown: Instant::now(),
            reached: None,
            drained: None,
            is_watched: false,
        };
        stream.insert_tracefile(tracefile);
        stream
    }

    /// Adds a tracefile at its place in time.
    pub(super) fn insert_tracefile(&mut self, mut tracefile: TracefileReader) {
        // Of each stream only the tracefile that is being read has open files.
        tracefile.close();
        self.names.insert(tracefile.name());
        self.drained = None;
        self.tracefiles.push_back(tracefile);
        self.sort_tracefiles();
    }

    /// Puts the tracefiles in order of time, but for one that is being read. Those without packets
    /// come last: index entries are written in the order of packets, so that what has none yet is
    /// later.
    fn sort_tracefiles(&mut self) {
        let first = usize::from(self.is_begun);
        let unread = self.tracefiles.make_contiguous().get_mut(first..);
        let unread = unread.unwrap_or_default();
        unread.iter_mut().for_each(TracefileReader::update_begin);
        unread.sort_by_key(|tracefile| (tracefile.begin.is_none(), tracefile.begin));
        // Another tracefile may be the first now, whose index is not watched yet.
        self.is_watched &= self.is_begun;
    }

    /// Puts a tracefile first that was found without packets and has some by now. Returns whether
    /// there is one.
    pub(super) fn promote_begun_tracefile(&mut self) -> bool {
        if self.is_begun || self.tracefiles.len() < 2 {
            return false;
        }
        self.sort_tracefiles();
        let first = self.tracefiles.front();
        first.is_some_and(|tracefile| tracefile.begin.is_some())
    }

    /// Whether this packet of another tracefile is earlier than the last that was found. The clock
    /// may have begun again at 0 since: then the number of the packet tells.
    pub(super) fn has_passed(&self, packet: &PacketIndex) -> bool {
        self.reached.is_some_and(|reached| {
            let numbers = packet.packet_seq.zip(reached.packet_seq);
            let is_counted_on = numbers.is_some_and(|(number, reached)| number > reached);
            packet.begin < reached.begin && !is_counted_on
        })
    }

    pub(super) fn remove_first_tracefile(&mut self) -> Option<FileId> {
        self.queue.clear();
        (self.is_begun, self.is_watched) = (false, false);
        self.tracefiles.pop_front().map(|tracefile| tracefile.id)
    }

    /// Sends the watermark `until`, in cycles, if it is later than the last one.
    pub(super) fn send_watermark(
        &mut self,
        until: u64,
        events: &mut EventSender,
    ) -> Result<(), Stopped> {
        if until <= self.watermark {
            return Ok(());
        }
        self.watermark = until;
        events.send(SourceEvent::Watermark {
            stream: self.key,
            until,
        })
    }
}
