//! The part of a stream that viewers may see: packets whose bytes and entry are on disk, and the
//! beacon after them. The position of a viewer is a number, so that viewers cost the stream
//! nothing.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::runtime::{Handle, RuntimeFlavor};
use viewer_proto::relay::Ahead;
use wire::{Bytes, ClassId, SeqNum, Timestamp};

use super::extents::Extents;
use super::subscription::{Subscription, Subscriptions};
use crate::limits::MAX_TRACEFILES;
use crate::store::chunk::Chunk;
use crate::store::metadata::MetadataSource;
use crate::store::segment::Segment;

/// The part of a stream that viewers may see, packets by default. The stream writes it, its viewers
/// read it.
#[derive(Debug, Default)]
pub struct Published<T = Packets> {
    /// A part of the next packet has arrived: its first bytes, or its index.
    is_arriving: AtomicBool,
    /// Number of packets, or bytes of metadata, that are in the archive.
    archived: AtomicU64,
    state: Mutex<PublishedState<T>>,
}

/// The part of a metadata stream that viewers may see.
pub type PublishedMetadata = Published<Metadata>;

#[derive(Debug, Default)]
struct PublishedState<T> {
    content: T,
    is_over: bool,
    subscriptions: Subscriptions,
}

impl<T> Published<T> {
    /// Ends the stream and notifies its subscribers.
    pub fn end(&self) {
        let mut state = self.state.lock();
        state.is_over = true;
        state.subscriptions.notify();
    }

    /// Whether the stream has ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.state.lock().is_over
    }

    /// Number of packets, counted as those for viewers, or bytes of metadata, that are in the
    /// archive. Without an archive, none are.
    #[must_use]
    pub fn archived(&self) -> u64 {
        self.archived.load(Ordering::Acquire)
    }

    /// Sets the number of packets, or bytes of metadata, that are in the archive.
    pub fn set_archived(&self, archived: u64) {
        self.archived.store(archived, Ordering::Release);
    }

    /// Subscribes to everything new and to the end of the stream.
    pub fn subscribe(&self, subscription: &Arc<Subscription>) {
        self.state.lock().subscriptions.add(subscription);
    }

    /// Removes a subscription. One that was not added is no error.
    pub fn unsubscribe(&self, subscription: &Arc<Subscription>) {
        self.state.lock().subscriptions.remove(subscription);
    }
}

/// The distance between a viewer and the end of its streams.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Lag {
    /// Packets that have not been announced to the viewer.
    pub packets: u64,
    /// Bytes of these packets, approximately.
    pub bytes: u64,
}

/// The packets of a stream, counted from 0 for as long as it lives, and its last beacon.
#[derive(Debug, Default)]
pub struct Packets {
    /// The tracefiles that have not been replaced or deleted, oldest first.
    runs: VecDeque<PublishedRun>,
    /// Number of packets so far, including those of tracefiles that are gone.
    packets: u64,
    /// End of the last packet, counted from the stream's first byte.
    end: Bytes,
    /// The last beacon. None: a packet or an index has arrived after it.
    beacon: Option<Timestamp>,
    /// The class of the stream. None: neither an index nor a beacon has arrived.
    class: Option<ClassId>,
    /// The sequence numbers of packets, for the archive. None: the stream is not archived.
    seqs: Option<SeqMarks>,
    /// The extents of packets that have no index, for the archive. None: there are none.
    extents: Option<Box<Extents>>,
}

/// The sequence numbers of packets, which are counted without those that were lost.
#[derive(Debug, Default)]
struct SeqMarks {
    /// The packets whose sequence number is not one more than that of the packet before.
    marks: VecDeque<(u64, SeqNum)>,
    /// Sequence number of the packet after the last one.
    next: Option<SeqNum>,
}

/// A run of packets that lie in one tracefile.
#[derive(Debug, Clone)]
pub struct PublishedRun {
    /// Number of the first packet, counted from the beginning of the stream.
    pub first: u64,
    /// Number of packets in the run.
    len: u64,
    /// Position of the run, in bytes from the beginning of the stream.
    pub begin: Bytes,
    /// The tracefile with these packets, and its index file.
    pub segment: Arc<Segment>,
}

impl PublishedRun {
    /// Number of the first packet after it.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.first + self.len
    }
}

/// The packet at a position, or the reason why none exists.
#[derive(Debug)]
pub enum PacketLookup {
    /// A packet: the one at the position, or the first after it whose tracefile still exists.
    Packet {
        /// Number of the packet.
        packet: u64,
        /// Run of the packet.
        run: PublishedRun,
    },
    /// No packet yet. With a time: no event before it will arrive.
    Quiet(Option<Timestamp>),
    /// No packet will arrive any more: the stream has ended.
    Over,
}

impl Published {
    /// Adds packet `seq`, which ends at `end` in its tracefile. The packet and its entry must be on
    /// disk.
    pub fn add_packet(&self, segment: &Arc<Segment>, class: ClassId, seq: SeqNum, end: Bytes) {
        let mut state = self.state.lock();
        state.content.mark_seq(seq, 1);
        state.content.add(segment, end);
        state.content.class.get_or_insert(class);
        state.subscriptions.notify();
    }

    /// Adds packet `seq`, which has no index, of a stream that is archived and that viewers do not
    /// see. `offset` and `len` are its extent.
    pub fn add_unindexed_packet(
        &self,
        segment: &Arc<Segment>,
        seq: SeqNum,
        offset: Bytes,
        len: Bytes,
    ) {
        let content = &mut self.state.lock().content;
        content.mark_seq(seq, 1);
        let extents = content.extents.get_or_insert_default();
        extents.add(content.packets, offset, len);
        content.add(segment, Bytes(offset.0 + len.0));
    }

    /// Offset and length of a packet that has no index. None: they are not known, because too many
    /// packets are in no part of the archive.
    #[must_use]
    pub fn extent_of(&self, packet: u64) -> Option<(Bytes, Bytes)> {
        self.state.lock().content.extents.as_ref()?.get(packet)
    }

    /// Adds the packets of a tracefile that a relay before this one has written, the last of which
    /// ends at `end`. `seqs` are the sequence numbers of those of them that do not follow on the
    /// packet before, each with the number of the packet in the tracefile.
    pub fn add_tracefile(
        &self,
        segment: &Arc<Segment>,
        class: ClassId,
        packets: u64,
        end: Bytes,
        seqs: impl IntoIterator<Item = (u64, SeqNum)>,
    ) {
        let mut state = self.state.lock();
        state.content.mark_seqs(packets, seqs);
        state.content.add(segment, end);
        state.content.class.get_or_insert(class);
        // All but the one that has just been added.
        let others = packets.saturating_sub(1);
        state.content.packets += others;
        if let Some(run) = state.content.runs.back_mut() {
            run.len += others;
        }
    }

    /// Has the sequence numbers of the packets kept for the archive. To be called before the first
    /// packet.
    pub fn keep_seqs(&self) {
        self.state.lock().content.seqs = Some(SeqMarks::default());
    }

    /// Whether the sequence numbers of the packets are kept.
    #[must_use]
    pub fn keeps_seqs(&self) -> bool {
        self.state.lock().content.seqs.is_some()
    }

    /// Forgets the sequence numbers and extents of packets before this one.
    pub fn forget_seqs_before(&self, packet: u64) {
        let content = &mut self.state.lock().content;
        if let Some(seqs) = &mut content.seqs {
            let later = seqs.marks.partition_point(|(number, _)| *number <= packet);
            seqs.marks.drain(..later.saturating_sub(1));
        }
        if let Some(extents) = &mut content.extents {
            extents.forget_before(packet);
        }
    }

    /// Sequence number of a packet, and the number of the first packet after it whose sequence
    /// number is not one more than that of the packet before. None: it is not known.
    #[must_use]
    pub fn seq_of(&self, packet: u64) -> Option<(SeqNum, Option<u64>)> {
        let state = self.state.lock();
        let marks = &state.content.seqs.as_ref()?.marks;
        let after = marks.partition_point(|(number, _)| *number <= packet);
        let (number, seq) = marks.get(after.checked_sub(1)?)?;
        let next = marks.get(after).map(|(number, _)| *number);
        Some((SeqNum(seq.0 + (packet - number)), next))
    }

    /// Sets whether a part of the next packet has arrived.
    pub fn set_arriving(&self, is_arriving: bool) {
        self.is_arriving.store(is_arriving, Ordering::Relaxed);
    }

    /// Whether a part of the next packet has arrived. Only a hint: the rest may be lost.
    #[must_use]
    pub fn is_arriving(&self) -> bool {
        self.is_arriving.load(Ordering::Relaxed)
    }

    /// Withdraws the last beacon, because an index has arrived whose packet may still be in flight.
    pub fn forget_beacon(&self) {
        self.state.lock().content.beacon = None;
    }

    /// Sets the beacon: no event before `until` will arrive. None: the last beacon stays, but the
    /// class is recorded.
    pub fn set_beacon(&self, until: Option<Timestamp>, class: ClassId) {
        let mut state = self.state.lock();
        state.content.class.get_or_insert(class);
        // A beacon that repeats the last one has nothing new for viewers.
        if until.is_some() && until != state.content.beacon {
            state.content.beacon = until;
            state.subscriptions.notify_of_beacon();
        }
    }

    /// The last beacon. None: a packet or an index has arrived after it.
    #[must_use]
    pub fn last_beacon(&self) -> Option<Timestamp> {
        self.state.lock().content.beacon
    }

    /// Withdraws the packets of a tracefile that is about to be replaced.
    pub fn retire_tracefile(&self, chunk: &Arc<Chunk>, number: u64) {
        let runs = &mut self.state.lock().content.runs;
        runs.retain(|run| !run.segment.is(chunk, number));
    }

    /// Number of the next packet, and the end of the last one in bytes from the beginning of the
    /// stream.
    #[must_use]
    pub fn next_packet(&self) -> (u64, Bytes) {
        let packets = &self.state.lock().content;
        (packets.packets, packets.end)
    }

    /// The lag of a viewer to which `packets` packets were announced, the last of which ends at
    /// `end`.
    #[must_use]
    pub fn lag_behind(&self, packets: u64, end: Bytes) -> Lag {
        let content = &mut self.state.lock().content;
        let Some(oldest) = content.next_run(packets) else {
            return Lag::default();
        };
        let (first, begin) = (oldest.first, oldest.begin);
        Lag {
            packets: content.packets - packets.max(first),
            bytes: content.end.0.saturating_sub(end.max(begin).0),
        }
    }

    /// The class of the stream. None: neither an index nor a beacon has arrived.
    #[must_use]
    pub fn class(&self) -> Option<ClassId> {
        self.state.lock().content.class
    }

    /// The reply to a viewer that asks what lies ahead of this position.
    #[must_use]
    pub fn ahead(&self, packet: u64) -> Ahead {
        let mut state = self.state.lock();
        match state.content.next_run(packet).map(|run| run.first) {
            Some(first) => Ahead::Packets {
                position: packet.max(first),
                end: state.content.packets,
            },
            None if state.is_over => Ahead::Over,
            None => Ahead::Quiet {
                until: state.content.beacon,
            },
        }
    }

    /// The packet at this position.
    #[must_use]
    pub fn find_packet(&self, packet: u64) -> PacketLookup {
        let mut state = self.state.lock();
        match state.content.next_run(packet).cloned() {
            Some(run) => PacketLookup::Packet {
                packet: packet.max(run.first),
                run,
            },
            None if state.is_over => PacketLookup::Over,
            None => PacketLookup::Quiet(state.content.beacon),
        }
    }

    /// Whether a tracefile has not been replaced or deleted.
    #[must_use]
    pub fn has_tracefile(&self, segment: &Arc<Segment>) -> bool {
        let state = self.state.lock();
        !segment.is_deleted()
            && state
                .content
                .runs
                .iter()
                .any(|run| Arc::ptr_eq(&run.segment, segment))
    }
}

impl Packets {
    /// Records the sequence number of the next packet, with which `count` packets follow on each
    /// other.
    fn mark_seq(&mut self, seq: SeqNum, count: u64) {
        if let Some(seqs) = &mut self.seqs {
            if seqs.next != Some(seq) {
                seqs.marks.push_back((self.packets, seq));
            }
            seqs.next = seq.0.checked_add(count).map(SeqNum);
        }
    }

    /// Records the sequence numbers of the next `packets` packets.
    fn mark_seqs(&mut self, packets: u64, marks: impl IntoIterator<Item = (u64, SeqNum)>) {
        let Some(seqs) = &mut self.seqs else { return };
        let mut last = seqs.next.map(|seq| (0, seq));
        for (number, seq) in marks {
            seqs.marks.push_back((self.packets + number, seq));
            last = Some((number, seq));
        }
        seqs.next = last.map(|(number, seq)| SeqNum(seq.0 + (packets - number)));
    }

    fn add(&mut self, segment: &Arc<Segment>, end: Bytes) {
        let (first, last_end) = (self.packets, self.end);
        let begin = match self.runs.back_mut() {
            Some(run) if Arc::ptr_eq(&run.segment, segment) => {
                run.len += 1;
                run.begin
            }
            _ => {
                if self.runs.len() >= MAX_TRACEFILES {
                    // Bounds the memory. Viewers do not see the oldest packets any more; the
                    // tracefile stays on disk.
                    self.runs.pop_front();
                }
                self.runs.push_back(PublishedRun {
                    first,
                    len: 1,
                    begin: last_end,
                    segment: Arc::clone(segment),
                });
                last_end
            }
        };
        self.packets += 1;
        self.end = Bytes(begin.0.saturating_add(end.0)).max(last_end);
        // The beacon is outdated: the stream was not idle.
        self.beacon = None;
    }

    /// The first tracefile that still exists and has this packet or a later one. Removes tracefiles
    /// that were deleted with their chunk, at the front of the list and just before the returned
    /// one: chunks are not always deleted oldest first.
    fn next_run(&mut self, packet: u64) -> Option<&PublishedRun> {
        let is_deleted = |run: &PublishedRun| run.segment.is_deleted();
        while self.runs.pop_front_if(|run| is_deleted(run)).is_some() {}
        let at = self.runs.partition_point(|run| run.end() <= packet);
        let is_deleted = |run: &&PublishedRun| is_deleted(run);
        let deleted = self.runs.range(at..).take_while(is_deleted).count();
        self.runs.drain(at..at + deleted);
        self.runs.get(at)
    }
}

/// The complete pieces of metadata of a trace.
#[derive(Debug, Default)]
pub struct Metadata {
    /// The file for readers. None: the stream is in no chunk.
    source: Option<Arc<MetadataSource>>,
    /// Length of the complete pieces in the file.
    received: Bytes,
    /// The files that were withdrawn, for the archive. None: the stream is not archived.
    withdrawn: Option<Vec<(Arc<MetadataSource>, Bytes)>>,
}

impl Drop for Metadata {
    fn drop(&mut self) {
        let file = self.source.take();
        let is_of_viewer = |handle: Handle| handle.runtime_flavor() == RuntimeFlavor::MultiThread;
        // A viewer may hold the last reference, and close(2) may block, which would stop its event
        // loop.
        if file.is_some() && Handle::try_current().is_ok_and(is_of_viewer) {
            tokio::task::block_in_place(|| drop(file));
        }
    }
}

impl PublishedMetadata {
    /// Sets the file and its length, after a piece was completed.
    pub fn set_received(&self, source: &Arc<MetadataSource>, received: Bytes) {
        let mut state = self.state.lock();
        let before = state.content.source.replace(Arc::clone(source));
        state.content.received = received;
        state.subscriptions.notify();
        drop(state);
        // This may close the file, which must not happen with the lock held.
        drop(before);
    }

    /// Withdraws the file, because the stream leaves its chunk or restarts: the producer sends the
    /// metadata again.
    pub fn restart(&self) {
        let mut state = self.state.lock();
        let before = state.content.source.take();
        let received = std::mem::take(&mut state.content.received);
        if let (Some(withdrawn), Some(before)) = (&mut state.content.withdrawn, &before) {
            withdrawn.push((Arc::clone(before), received));
        }
        drop(state);
        // Without the lock, because this may close the file.
        drop(before);
    }

    /// Has the files kept that are withdrawn, for the archive.
    pub fn keep_withdrawn(&self) {
        self.state.lock().content.withdrawn = Some(Vec::new());
    }

    /// Takes the files that were withdrawn since the last call, oldest first, with the length of
    /// their complete pieces; after them the file that is there now.
    #[must_use]
    pub fn take_sources(&self) -> Vec<(Arc<MetadataSource>, Bytes)> {
        let content = &mut self.state.lock().content;
        let withdrawn = content.withdrawn.as_mut().map(std::mem::take);
        let mut sources = withdrawn.unwrap_or_default();
        let source = content.source.clone();
        sources.extend(source.map(|source| (source, content.received)));
        sources
    }

    /// Whether viewers read this file now.
    #[must_use]
    pub fn is_current(&self, source: &Arc<MetadataSource>) -> bool {
        let state = self.state.lock();
        let current = state.content.source.as_ref();
        current.is_some_and(|current| Arc::ptr_eq(current, source))
    }

    /// The file and the length of its complete pieces. None: nothing follows the first `sent`
    /// bytes.
    #[must_use]
    pub fn text_after(&self, sent: Bytes) -> Option<(Arc<MetadataSource>, Bytes)> {
        let Metadata {
            source, received, ..
        } = &self.state.lock().content;
        let source = source.as_ref().filter(|_| *received > sent)?;
        Some((Arc::clone(source), *received))
    }
}
