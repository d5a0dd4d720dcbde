//! The table of one session's streams: those that are open, and those that have not been announced
//! to viewers. The cost of adding, publishing and closing a stream does not depend on the number of
//! streams: a producer may have tens of thousands, and one thread serves all its commands.

mod entry;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use wire::{StreamId, Timestamp, TraceId, TracePath};

use super::stream::SessionStream;
use crate::limits::MAX_STREAMS;
use crate::publish::announced::{AnnouncedContent, ListedStream};
use crate::publish::tally::Totals;
use entry::TableEntry;

/// The streams of one session.
#[derive(Debug)]
pub(super) struct StreamTable {
    open: BTreeMap<StreamId, TableEntry>,
    /// The numbers by which the producer names streams that it has continued on another connection.
    renumbered: HashMap<StreamId, StreamId>,
    traces: HashMap<TracePath, Trace>,
    /// Streams added since the producer last published a batch.
    unsent: Vec<Unannounced>,
    /// Streams for which viewers are held back, in the order in which they were added. Their times
    /// never decrease.
    awaited: BTreeMap<StreamId, Awaited>,
    counts: Counts,
    /// Number of the current data-pending round.
    round: u64,
    /// Ticks since the session began.
    ticks: u64,
    /// Counters of the streams that are no longer open.
    past: Totals,
    discarded: Discarded,
}

/// The entries that have left the table. To drop them may close files, which must not happen with
/// the table locked.
#[derive(Debug, Default)]
pub(super) struct Discarded {
    entries: Vec<TableEntry>,
    unannounced: Vec<Unannounced>,
}

/// Counters of streams, which would otherwise cost a walk over all of them.
#[derive(Debug)]
struct Counts {
    /// Metadata streams in the table.
    metadata: usize,
    /// Metadata streams in the table that have been closed.
    closed: usize,
    /// Streams that are published and not closed.
    published: usize,
    /// Streams that are not closed and about which the producer asked in the current data-pending
    /// round.
    asked: usize,
    /// Streams that have not been announced to viewers.
    unannounced: usize,
    /// Number of unannounced streams at which ended ones are removed.
    prune_unannounced_at: usize,
    /// Number of traces at which unused ones are removed.
    prune_traces_at: usize,
}

/// The streams in one directory.
#[derive(Debug)]
struct Trace {
    id: TraceId,
    /// Whether viewers can begin to read the trace.
    is_described: bool,
    /// The tick from which the trace counts as described, because some of its metadata has arrived.
    describe_at: Option<u64>,
    /// Number of the trace's streams in the table, plus number of those that are not announced.
    users: usize,
    /// Data streams in the table.
    data_streams: usize,
    /// Closed metadata streams, which stay in the table until the last data stream leaves it.
    closed_metadata: Vec<StreamId>,
    /// Published streams that are announced to viewers once the trace is described.
    undescribed: Vec<Unannounced>,
}

/// A stream that has not been announced to viewers.
#[derive(Debug)]
struct Unannounced {
    path: TracePath,
    listed: Arc<ListedStream>,
}

/// A stream for which viewers are held back at the time at which it was added.
#[derive(Debug)]
struct Awaited {
    since: Timestamp,
    /// The tick from which viewers are no longer held back for the stream.
    until: u64,
    listed: Arc<ListedStream>,
}

impl Default for StreamTable {
    fn default() -> Self {
        Self {
            open: BTreeMap::new(),
            renumbered: HashMap::new(),
            traces: HashMap::new(),
            unsent: Vec::new(),
            awaited: BTreeMap::new(),
            counts: Counts {
                metadata: 0,
                closed: 0,
                published: 0,
                asked: 0,
                unannounced: 0,
                prune_unannounced_at: MAX_STREAMS,
                prune_traces_at: MAX_STREAMS,
            },
            // Entries begin with round 0, so that no stream counts as asked about in the first
            // round.
            round: 1,
            ticks: 0,
            past: Totals::default(),
            discarded: Discarded::default(),
        }
    }
}

impl StreamTable {
    /// The streams in the table, by number.
    pub(super) fn streams(&self) -> impl Iterator<Item = &SessionStream> {
        self.open.values().map(TableEntry::stream)
    }

    /// The streams from a number on, then those before it.
    pub(super) fn streams_from(&self, first: StreamId) -> impl Iterator<Item = &SessionStream> {
        let rest = self.open.range(first..);
        let before = self.open.range((Bound::Unbounded, Bound::Excluded(first)));
        rest.chain(before).map(|(_, entry)| entry.stream())
    }

    /// A stream that is in the table, by the number that the producer has for it.
    pub(super) fn get(&self, named: StreamId) -> Option<&SessionStream> {
        let id = self.renumbered.get(&named).unwrap_or(&named);
        self.open.get(id).map(TableEntry::stream)
    }

    /// Has the producer name a stream by another number from now on.
    pub(super) fn renumber(&mut self, id: StreamId, named: StreamId) {
        if let Some(entry) = self.open.get_mut(&id) {
            self.renumbered.remove(&entry.wire_id);
            entry.wire_id = named;
            self.renumbered.insert(named, id);
        }
    }

    /// Number of streams in the table.
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    /// Number of metadata streams in the table.
    pub(super) fn metadata_streams(&self) -> usize {
        self.counts.metadata
    }

    /// Number of streams that are published and not closed.
    pub(super) fn published(&self) -> usize {
        self.counts.published
    }

    /// Counters of the streams that are no longer in the table.
    pub(super) fn past(&self) -> Totals {
        self.past
    }

    // Adding and publishing.

    /// The path of a trace, which shares its bytes with that of the streams that the trace has
    /// already.
    pub(super) fn share_path(&self, path: TracePath) -> TracePath {
        let known = self.traces.get_key_value(&path);
        known.map_or(path, |(known, _)| known.clone())
    }

    /// The number of the trace in this directory. A new trace gets its number from `new_trace`.
    pub(super) fn trace_id(
        &mut self,
        path: &TracePath,
        new_trace: impl FnOnce() -> TraceId,
    ) -> TraceId {
        if let Some(trace) = self.traces.get(path) {
            return trace.id;
        }
        self.prune_traces();
        let id = new_trace();
        let trace = Trace {
            id,
            is_described: false,
            describe_at: None,
            users: 0,
            data_streams: 0,
            closed_metadata: Vec::new(),
            undescribed: Vec::new(),
        };
        self.traces.insert(path.clone(), trace);
        id
    }

    /// Adds a stream of a trace that has a number. With `since`, the latest time that the producer
    /// has sent, viewers are held back for the stream for `ticks` ticks at most.
    pub(super) fn add(
        &mut self,
        stream: SessionStream,
        path: TracePath,
        listed: Arc<ListedStream>,
        since: Option<Timestamp>,
        ticks: u64,
    ) {
        self.prune_unannounced();
        let id = stream.id();
        // The caller has just asked for the number of the trace.
        let Some(trace) = self.traces.get_mut(&path) else {
            return;
        };
        // One for the table, and one for the stream that is not announced yet.
        trace.users += 2;
        match &stream {
            SessionStream::Data(_) => trace.data_streams += 1,
            SessionStream::Metadata(_) => self.counts.metadata += 1,
        }
        if let Some(since) = since {
            let awaited = Awaited {
                since,
                until: self.ticks.saturating_add(ticks),
                listed: Arc::clone(&listed),
            };
            self.awaited.insert(id, awaited);
        }
        self.open.insert(id, TableEntry::new(stream, path.clone()));
        self.counts.unannounced += 1;
        self.unsent.push(Unannounced { path, listed });
    }

    /// Publishes the streams that the producer has added. Returns those to announce to viewers.
    pub(super) fn publish(&mut self) -> Vec<Arc<ListedStream>> {
        let mut ready = Vec::new();
        for stream in std::mem::take(&mut self.unsent) {
            let id = stream.listed.record.stream;
            // A stream may be closed before the batch is published.
            if let Some(entry) = self.open.get_mut(&id).filter(|entry| !entry.is_closed) {
                entry.is_published = true;
                self.counts.published += 1;
            }
            match self.traces.get_mut(&stream.path) {
                Some(trace) if !trace.is_described => trace.undescribed.push(stream),
                _ => ready.push(self.announce(stream)),
            }
        }
        ready
    }

    /// Marks a trace as described. Returns the streams to announce to viewers. None: the trace was
    /// described before, or is unknown.
    pub(super) fn describe(&mut self, path: &TracePath) -> Option<Vec<Arc<ListedStream>>> {
        let trace = self.traces.get_mut(path)?;
        trace.describe_at = None;
        if std::mem::replace(&mut trace.is_described, true) {
            return None;
        }
        let undescribed = std::mem::take(&mut trace.undescribed);
        Some(undescribed.into_iter().map(|s| self.announce(s)).collect())
    }

    /// Marks a trace as described in `ticks` ticks, because some of its metadata has arrived, but
    /// no stream class: in CTF 1.8 a trace need not have one.
    pub(super) fn describe_later(&mut self, path: &TracePath, ticks: u64) {
        let at = self.ticks.saturating_add(ticks);
        if let Some(trace) = self.traces.get_mut(path)
            && !trace.is_described
        {
            trace.describe_at.get_or_insert(at);
        }
    }

    /// Marks the traces as described that were to be by now, or all of them at the end of the
    /// session. Returns the streams to announce to viewers.
    pub(super) fn describe_overdue(&mut self, at_end: bool) -> Vec<Arc<ListedStream>> {
        let ticks = self.ticks;
        let mut overdue = Vec::new();
        for trace in self.traces.values_mut() {
            let due = trace.describe_at.take_if(|at| at_end || *at <= ticks);
            if due.is_some() {
                trace.is_described = true;
                overdue.append(&mut trace.undescribed);
            }
        }
        overdue.into_iter().map(|s| self.announce(s)).collect()
    }

    fn announce(&mut self, stream: Unannounced) -> Arc<ListedStream> {
        self.counts.unannounced -= 1;
        self.awaited.remove(&stream.listed.record.stream);
        if let Some(trace) = self.traces.get_mut(&stream.path) {
            trace.users -= 1;
        }
        stream.listed
    }

    /// Removes ended streams from the unannounced ones when these are too many. Then not again
    /// before half of [`MAX_STREAMS`] more are added, so that the walk is rare.
    fn prune_unannounced(&mut self) {
        if self.counts.unannounced < self.counts.prune_unannounced_at {
            return;
        }
        let Self {
            unsent,
            traces,
            discarded,
            counts,
            ..
        } = self;
        let before = discarded.unannounced.len();
        let gone = &mut discarded.unannounced;
        gone.extend(unsent.extract_if(.., |stream| stream.listed.has_ended()));
        for stream in gone.iter().skip(before) {
            if let Some(trace) = traces.get_mut(&stream.path) {
                trace.users -= 1;
            }
        }
        for trace in traces.values_mut() {
            let waiting = trace.undescribed.len();
            let ended = |stream: &mut Unannounced| stream.listed.has_ended();
            gone.extend(trace.undescribed.extract_if(.., ended));
            trace.users -= waiting - trace.undescribed.len();
        }
        counts.unannounced -= gone.len() - before;
        counts.prune_unannounced_at = counts.unannounced + MAX_STREAMS / 2;
    }

    /// Removes traces without streams when the traces are too many.
    fn prune_traces(&mut self) {
        if self.traces.len() >= self.counts.prune_traces_at {
            self.traces.retain(|_, trace| trace.users > 0);
            self.counts.prune_traces_at = self.traces.len() + MAX_STREAMS / 2;
        }
    }

    // Holding viewers back.

    /// Counts a tick, in which the timeouts for metadata are measured.
    pub(super) fn tick(&mut self) {
        self.ticks += 1;
    }

    /// Whether viewers may be held back for some stream, or some trace is to be described later.
    pub(super) fn has_timeouts(&self) -> bool {
        let mut traces = self.traces.values();
        !self.awaited.is_empty() || traces.any(|trace| trace.describe_at.is_some())
    }

    /// Time, in cycles, of the oldest stream for which viewers are held back. None: they are not
    /// held back.
    pub(super) fn oldest_awaited(&mut self) -> Option<Timestamp> {
        while let Some(first) = self.awaited.first_entry() {
            let awaited = first.get();
            if awaited.until > self.ticks && awaited.listed.may_have_packets() {
                return Some(awaited.since);
            }
            // The next one was added later, and holds viewers back less.
            first.remove();
        }
        None
    }

    /// Stops holding viewers back for any stream.
    pub(super) fn await_none(&mut self) {
        self.awaited.clear();
    }

    // Whether data is pending.

    /// Begins a data-pending round.
    pub(super) fn begin_data_pending(&mut self) {
        self.round += 1;
        self.counts.asked = 0;
    }

    /// Marks a stream about which the producer asked in this round.
    pub(super) fn mark_asked(&mut self, id: StreamId) {
        if let Some(entry) = self.open.get_mut(&id).filter(|entry| !entry.is_closed)
            && std::mem::replace(&mut entry.asked_in, self.round) != self.round
        {
            self.counts.asked += 1;
        }
    }

    /// Whether the producer left out some stream that is not closed in this round.
    pub(super) fn has_unpolled_streams(&self) -> bool {
        self.counts.asked < self.open.len() - self.counts.closed
    }

    // Closing.

    /// Removes a stream if it is closed. Returns the number by which the producer names it, if it
    /// was a stream of packets.
    ///
    /// Closed metadata stays as long as its trace has data streams, because it keeps its file
    /// locked: to readers that follow the files, the lock shows that idle streams have not ended.
    pub(super) fn forget(&mut self, id: StreamId) -> Option<StreamId> {
        let entry = self.open.get_mut(&id)?;
        // Closed metadata may still be in the table.
        if entry.is_closed || !entry.stream().is_closed() {
            return None;
        }
        let wire_id = entry.wire_id;
        self.renumbered.remove(&wire_id);
        entry.is_closed = true;
        self.counts.published -= usize::from(entry.is_published);
        self.counts.asked -= usize::from(entry.asked_in == self.round);
        // Viewers are still held back for an ended stream with packets, which they get once its
        // metadata has arrived.
        let is_empty = |awaited: &Awaited| !awaited.listed.may_have_packets();
        if self.awaited.get(&id).is_some_and(is_empty) {
            self.awaited.remove(&id);
        }
        let totals = match entry.stream() {
            SessionStream::Data(stream) => Some(stream.tally().totals().past()),
            SessionStream::Metadata(_) => None,
        };
        // Cheap, because paths share their bytes.
        let path = entry.path().clone();
        let Some(totals) = totals else {
            self.counts.closed += 1;
            match self.traces.get_mut(&path) {
                Some(trace) if trace.data_streams > 0 => trace.closed_metadata.push(id),
                _ => self.remove_metadata(&path, id),
            }
            return None;
        };
        self.past += totals;
        self.discarded.entries.extend(self.open.remove(&id));
        if let Some(trace) = self.traces.get_mut(&path) {
            trace.users -= 1;
            trace.data_streams -= 1;
            if trace.data_streams == 0 {
                for metadata in std::mem::take(&mut trace.closed_metadata) {
                    self.remove_metadata(&path, metadata);
                }
            }
        }
        Some(wire_id)
    }

    /// Removes closed metadata, and with its last reference the lock on its file.
    fn remove_metadata(&mut self, path: &TracePath, id: StreamId) {
        if let Some(entry) = self.open.remove(&id) {
            self.discarded.entries.push(entry);
            self.counts.metadata -= 1;
            self.counts.closed -= 1;
            if let Some(trace) = self.traces.get_mut(path) {
                trace.users -= 1;
            }
        }
    }

    /// The entries that have left the table since the last call, to be dropped when the table is
    /// unlocked.
    pub(super) fn take_discarded(&mut self) -> Discarded {
        std::mem::take(&mut self.discarded)
    }

    /// Whether viewers are held back for this stream.
    #[cfg(test)]
    fn is_awaited(&self, id: StreamId) -> bool {
        self.awaited.contains_key(&id)
    }
}

/// Whether viewers are held back for a stream of this content.
pub(super) fn holds_back(content: &AnnouncedContent) -> bool {
    matches!(content, AnnouncedContent::Packets(_))
}
