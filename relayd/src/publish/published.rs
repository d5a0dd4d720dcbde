//! The part of a stream that viewers may see: packets whose bytes and entry are on disk, and the beacon that
//! came after them. A viewer's position is a number here and costs the stream nothing.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::runtime::{Handle, RuntimeFlavor};
use viewer_proto::relay::Ahead;
use wire::{Bytes, ClassId, Timestamp};

use super::subscription::{Subscription, Subscriptions};
use crate::limits::MAX_TRACEFILES;
use crate::store::chunk::Chunk;
use crate::store::metadata::MetadataSource;
use crate::store::segment::Segment;

/// The part of a stream that viewers may see, packets by default. The stream writes it, its viewers read it.
#[derive(Debug, Default)]
pub struct Published<T = Packets> {
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

    /// Subscribes to everything new and to the end of the stream.
    pub fn subscribe(&self, subscription: &Arc<Subscription>) {
        self.state.lock().subscriptions.add(subscription);
    }

    /// Removes a subscription.
    pub fn unsubscribe(&self, subscription: &Arc<Subscription>) {
        self.state.lock().subscriptions.remove(subscription);
    }
}

/// The distance between a viewer and the end of its streams.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Lag {
    /// Packets that the viewer has not been told of.
    pub packets: u64,
    /// Bytes of these packets, about.
    pub bytes: u64,
}

/// The packets of a stream, counted from 0 for as long as it lives, and its last beacon.
#[derive(Debug, Default)]
pub struct Packets {
    /// The tracefiles that are still there, oldest first.
    runs: VecDeque<PublishedRun>,
    /// Packets so far, with those that are no longer there.
    packets: u64,
    /// End of the last packet, counted from the stream's first byte.
    end: Bytes,
    /// The last beacon. None: a packet or an index has come after it.
    beacon: Option<Timestamp>,
    /// None: neither an index nor a beacon has come.
    class: Option<ClassId>,
}

/// A run of packets that lie in one tracefile.
#[derive(Debug, Clone)]
pub struct PublishedRun {
    /// Number of the first packet, counted from the beginning of the stream.
    pub first: u64,
    /// Number of packets.
    len: u64,
    /// Begin of the run, counted from the stream's first byte.
    pub begin: Bytes,
    /// The tracefile.
    pub segment: Arc<Segment>,
}

impl PublishedRun {
    /// Number of the first packet after it.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.first + self.len
    }
}

/// The packet at a position, or the reason why there is none.
#[derive(Debug)]
pub enum PacketLookup {
    /// A packet: the one asked for, or the oldest after it that is still there.
    Packet {
        /// Number of the packet.
        packet: u64,
        /// PublishedRun that the packet is in.
        run: PublishedRun,
    },
    /// No packet yet. No event before this time will come, if a time is given.
    Quiet(Option<Timestamp>),
    /// No packet ever: the stream has ended.
    Over,
}

impl Published {
    /// Adds a packet that ends here in its tracefile, once it and its entry are on disk.
    pub fn add_packet(&self, segment: &Arc<Segment>, class: ClassId, end: Bytes) {
        let mut state = self.state.lock();
        state.content.add(segment, class, end);
        state.subscriptions.notify();
    }

    /// Withdraws the last beacon, because an index has come whose packet may not have.
    pub fn forget_beacon(&self) {
        self.state.lock().content.beacon = None;
    }

    /// Sets the beacon: no event from before `until` will come. None: nothing can be said now, and the last beacon
    /// stays.
    pub fn set_beacon(&self, until: Option<Timestamp>, class: ClassId) {
        let mut state = self.state.lock();
        state.content.class.get_or_insert(class);
        if until.is_some() && until != state.content.beacon {
            state.content.beacon = until;
            state.subscriptions.notify_of_beacon();
        }
    }

    /// The last beacon, unless a packet has come after it.
    #[must_use]
    pub fn last_beacon(&self) -> Option<Timestamp> {
        self.state.lock().content.beacon
    }

    /// Withdraws the packets of a tracefile that is about to be replaced.
    pub fn retire_tracefile(&self, chunk: &Arc<Chunk>, number: u64) {
        let runs = &mut self.state.lock().content.runs;
        runs.retain(|run| !run.segment.is(chunk, number));
    }

    /// Number of the next packet to come, and where in the stream the last one ends.
    #[must_use]
    pub fn next_packet(&self) -> (u64, Bytes) {
        let packets = &self.state.lock().content;
        (packets.packets, packets.end)
    }

    /// The lag of a viewer that has been told of so many packets, of which the last ends there.
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

    /// The class of the stream, once any index has told it.
    #[must_use]
    pub fn class(&self) -> Option<ClassId> {
        self.state.lock().content.class
    }

    /// The answer for a viewer that asks what lies ahead of this position.
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
    fn add(&mut self, segment: &Arc<Segment>, class: ClassId, end: Bytes) {
        let (first, last_end) = (self.packets, self.end);
        let begin = match self.runs.back_mut() {
            Some(run) if Arc::ptr_eq(&run.segment, segment) => {
                run.len += 1;
                run.begin
            }
            _ => {
                if self.runs.len() >= MAX_TRACEFILES {
                    // Viewers are not shown the oldest packets any more; the tracefile stays on disk.
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
        // The packet is newer than what the beacon said.
        self.beacon = None;
        self.class.get_or_insert(class);
    }

    /// The first tracefile that is still there and has packets from this one on. Forgets those that
    /// were deleted with their chunk, the oldest of all and those before the one that it gives: chunks
    /// are not always deleted oldest first.
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

/// The metadata of a trace, as far as it came in whole pieces.
#[derive(Debug, Default)]
pub struct Metadata {
    /// None: the stream is in no chunk.
    source: Option<Arc<MetadataSource>>,
    /// Length of the file as far as it came in whole pieces.
    received: Bytes,
}

impl Drop for Metadata {
    fn drop(&mut self) {
        let file = self.source.take();
        let is_of_viewer = |handle: Handle| handle.runtime_flavor() == RuntimeFlavor::MultiThread;
        // A viewer may be the last to have it. To close the file may block.
        if file.is_some() && Handle::try_current().is_ok_and(is_of_viewer) {
            tokio::task::block_in_place(|| drop(file));
        }
    }
}

impl PublishedMetadata {
    /// Sets the file and its length, with a whole piece at its end.
    pub fn set_received(&self, source: &Arc<MetadataSource>, received: Bytes) {
        let mut state = self.state.lock();
        let before = state.content.source.replace(Arc::clone(source));
        state.content.received = received;
        state.subscriptions.notify();
        drop(state);
        // Which may close it: not with the lock held.
        drop(before);
    }

    /// Withdraws the file, because the stream has left its chunk: the same metadata will come again.
    pub fn restart(&self) {
        let mut state = self.state.lock();
        let before = state.content.source.take();
        state.content.received = Bytes(0);
        drop(state);
        drop(before);
    }

    /// The file, if it has something from `sent` on, and where that ends.
    #[must_use]
    pub fn text_after(&self, sent: Bytes) -> Option<(Arc<MetadataSource>, Bytes)> {
        let Metadata { source, received } = &self.state.lock().content;
        let source = source.as_ref().filter(|_| *received > sent)?;
        Some((Arc::clone(source), *received))
    }
}
