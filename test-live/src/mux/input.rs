//! One stream of the mux: what has been found in it and not been shown.

use std::sync::Arc;

use ctf::decode::Event;
use ctf::metadata::Trace;

use super::decoding::{Decoding, Feed, PacketStart, Piece, TimedEvents};
use super::order::Rank;
use crate::attach::{MemoryBudget, Packet, StreamInfo};
use crate::sink::Loss;

/// A stream that is being read.
pub(super) struct Input {
    /// Slot of its trace in the mux.
    pub(super) trace: usize,
    pub(super) info: StreamInfo,
    /// The order at equal times, and the number among all streams. Both are known with the first packet.
    pub(super) rank: Option<(Arc<Rank>, u32)>,
    decoding: Decoding,
    /// The events that were found last, and the place among them of the one that is next.
    found: TimedEvents,
    place: usize,
    /// Whether there is an event, which has been found and not been passed.
    has_event: bool,
    /// Whether the events of other streams wait for it.
    pub(super) is_holding: bool,
    /// Losses that have been found and not shown.
    losses: Vec<Loss>,
    /// The time of the event that was found last.
    time: i64,
    went_back: bool,
}

/// The result of a step through a stream.
pub(super) enum Step {
    /// A packet begins. Losses before it may be known.
    Packet,
    /// An event, at this time.
    Event(i64),
    /// No event can be found for now.
    Waiting,
    /// No event will be found any more. With the reason if that is a failure.
    Ended(Option<String>),
    /// Something cannot be read and is passed over.
    Passed(String),
}

impl Input {
    pub(super) fn new(trace: usize, info: StreamInfo, feed: Feed, budget: &MemoryBudget) -> Self {
        Self {
            trace,
            rank: None,
            decoding: Decoding::new(info.name.clone(), feed, budget),
            info,
            found: TimedEvents::default(),
            place: 0,
            has_event: false,
            is_holding: true,
            losses: Vec::new(),
            time: i64::MIN,
            went_back: false,
        }
    }

    /// The queue that a source fills.
    pub(super) fn push_packet(&mut self, packet: Packet) {
        self.decoding.push_packet(packet);
    }

    /// Drops what has been pushed and not been decoded. Whether the source will push no more.
    pub(super) fn discard_packets(&mut self) -> bool {
        self.has_event = false;
        self.decoding.discard_packets()
    }

    /// Marks the feed as complete: the source will push no more.
    pub(super) fn end_feed(&mut self) {
        self.decoding.end_feed();
    }

    /// Raises the watermark, given in cycles of the trace's clock.
    pub(super) fn advance_watermark(&mut self, trace: &Trace, cycles: u64) {
        self.decoding.advance_watermark(trace, cycles);
    }

    /// No event before this time will arrive, in nanoseconds.
    pub(super) fn watermark(&self) -> i64 {
        self.decoding.watermark()
    }

    /// The packet that was begun last.
    pub(super) fn packet(&self) -> &Packet {
        self.decoding.packet()
    }

    /// The stream's number among those of equal time.
    pub(super) fn rank_number(&self) -> u32 {
        self.rank.as_ref().map_or(0, |(_, number)| *number)
    }

    /// Makes sure that the event that was found last is in memory. Fails with what has become of the
    /// stream.
    #[inline]
    pub(super) fn load_event(&mut self) -> Result<(), Step> {
        if !self.decoding.is_stored() {
            return Ok(());
        }
        let loaded = self.decoding.load_event();
        loaded.map_err(|problem| {
            let piece = self.decoding.fail(problem);
            self.step(piece)
        })
    }

    /// Other streams come first: an event that takes much memory is loaded again when it is its turn.
    #[inline]
    pub(super) fn free_event(&mut self) {
        if self.decoding.is_stored() {
            self.decoding.free_event();
        }
    }

    /// The event that was found last.
    #[inline]
    pub(super) fn event<'a>(&'a self, trace: &'a Trace) -> Option<Event<'a>> {
        if !self.has_event {
            return None;
        }
        let bytes = &self.decoding.packet().bytes;
        self.found.events.event(trace, bytes, self.place)
    }

    /// The losses before the packet that was begun last, unless they have been taken.
    pub(super) fn losses(&self) -> &[Loss] {
        &self.losses
    }

    /// Removes the losses before the packet that was begun last.
    pub(super) fn take_losses(&mut self) -> Vec<Loss> {
        std::mem::take(&mut self.losses)
    }

    /// Whether an event was earlier than the one before; said once.
    #[inline]
    pub(super) fn goes_back(&mut self, time: i64) -> bool {
        let back = time < self.time && !self.went_back;
        self.went_back |= back;
        self.time = time;
        back
    }

    /// The time of the next event, if that has been found already.
    #[inline]
    pub(super) fn advance_in_found(&mut self) -> Option<i64> {
        let next = self.place + 1;
        let time = *self.found.times.get(next)?;
        self.place = next;
        Some(time)
    }

    /// Goes on to the next event or packet.
    pub(super) fn advance(&mut self, trace: &Trace) -> Step {
        if let Some(time) = self.advance_in_found() {
            return Step::Event(time);
        }
        let piece = self.decoding.next_piece(trace, &mut self.found);
        self.step(piece)
    }

    fn step(&mut self, piece: Piece) -> Step {
        self.place = 0;
        self.has_event = false;
        match piece {
            Piece::Packet(start) => {
                self.begin_packet(*start);
                Step::Packet
            }
            Piece::Events => {
                self.has_event = true;
                let time = self.found.times.first();
                Step::Event(time.copied().unwrap_or(i64::MIN))
            }
            Piece::Waiting => Step::Waiting,
            Piece::Ended(problem) => Step::Ended(problem),
            Piece::Passed(problem) => Step::Passed(problem),
        }
    }

    fn begin_packet(&mut self, start: PacketStart) {
        self.info.class = start.class;
        if start.id.is_some() {
            self.info.id = start.id;
        }
        self.losses = start.losses;
    }
}
