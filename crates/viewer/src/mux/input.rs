//! One stream of the mux: what has been found in it and not been shown.

use std::sync::Arc;

use ctf::decode::Event;
use ctf::metadata::Trace;

use super::decoding::{Decoding, Feed, PacketStart, Piece, TimedEvents};
use super::order::Rank;
use super::slices::TracePart;
use super::stage::Stage;
use crate::attach::{MemoryBudget, Packet, StreamInfo, TraceKey};
use crate::sink::Loss;
use crate::time::Nanoseconds;

/// A stream that is being read.
pub(super) struct Input {
    /// Slot in the mux of the trace that the stream is of.
    pub(super) trace: usize,
    pub(super) trace_key: TraceKey,
    pub(super) info: StreamInfo,
    /// The order at equal times, and the number among all streams. Both are known with the first
    /// packet.
    pub(super) rank: Option<(Arc<Rank>, u32)>,
    decoding: Box<Decoding>,
    /// The events that were found last, and the place among them of the one that is next.
    found: TimedEvents,
    place: usize,
    /// Whether there is an event, which has been found and not been passed.
    has_event: bool,
    /// Whether the packet of the event is left in its file.
    is_stored: bool,
    /// Whether the events of other streams wait for those of this one.
    pub(super) is_holding: bool,
    /// Whether the stream has come after others had begun.
    pub(super) is_newcomer: bool,
    /// Whether nothing that arrives is decoded, because corrections of its times may come.
    awaits_corrections: bool,
    /// Whether the other streams wait no longer, until this one has its first packet or watermark.
    is_released: bool,
    /// The time from which on events and losses are shown, of a part of a trace.
    begin: Option<Nanoseconds>,
    /// Whether the events from here on are shown.
    has_begun: bool,
    /// Losses that have been found and not shown.
    losses: Vec<Loss>,
    /// The time of the event that was shown last.
    time: Option<Nanoseconds>,
    went_back: bool,
}

/// The result of a step through a stream.
pub(super) enum Step {
    /// A packet begins. Losses before it may be known.
    Packet,
    /// An event, at this time if the stream has a clock.
    Event(Option<Nanoseconds>),
    /// No event can be found for now.
    Waiting,
    /// No event will be found any more. With the reason if that is a failure.
    Ended(Option<String>),
    /// Something cannot be read and is passed over.
    Passed(String),
}

impl Input {
    pub(super) fn new(
        trace: usize,
        trace_key: TraceKey,
        info: StreamInfo,
        feed: Feed,
        budget: &MemoryBudget,
    ) -> Self {
        Self {
            trace,
            trace_key,
            rank: None,
            decoding: Box::new(Decoding::new(info.clone(), feed, budget)),
            info,
            found: TimedEvents::default(),
            place: 0,
            has_event: false,
            is_stored: false,
            is_holding: true,
            is_newcomer: false,
            awaits_corrections: false,
            is_released: false,
            begin: None,
            has_begun: true,
            losses: Vec::new(),
            time: None,
            went_back: false,
        }
    }

    /// Shows only what belongs to a part of the trace. The mux takes care of the end of that part.
    pub(super) fn restrict_to(&mut self, part: &TracePart) {
        self.begin = part.begin;
        self.has_begun = part.begin.is_none();
        if part.checks_times {
            self.decoding.check_times();
        }
    }

    /// Adds a packet to the queue that a source fills.
    pub(super) fn push_packet(&mut self, packet: Packet) {
        self.is_released = false;
        self.decoding.push_packet(packet);
    }

    /// Drops what has been pushed and not been decoded. Returns whether the source will push no
    /// more.
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
        self.is_released = false;
        self.decoding.advance_watermark(trace, cycles);
    }

    /// No event before this time will arrive. Absent if nothing is known of the stream's times.
    pub(super) fn watermark(&self) -> Option<Nanoseconds> {
        let watermark = self.decoding.watermark();
        watermark.filter(|_| !self.awaits_corrections)
    }

    /// Sets whether nothing that arrives is decoded, because corrections of its times may come.
    pub(super) fn set_awaits_corrections(&mut self, awaits: bool) {
        self.awaits_corrections = awaits;
    }

    /// The latest time, in cycles, of which anything is known. None before the first packet.
    pub(super) fn reached(&self) -> Option<u64> {
        self.decoding.reached_cycles()
    }

    /// Takes over corrections of times that have changed.
    pub(super) fn correct_times(&mut self, trace: &Trace) {
        self.decoding.correct_times(trace, &mut self.found);
    }

    /// The time of the next event, if there is one.
    pub(super) fn event_time(&self) -> Option<Option<Nanoseconds>> {
        let time = self.found.times.get(self.place);
        time.filter(|_| self.has_event).copied()
    }

    /// Whether the events of other streams wait for this one at the moment, if it has none.
    pub(super) fn holds_others(&self) -> bool {
        self.is_holding && !self.is_released
    }

    /// Whether the stream is a newcomer that has had neither a packet nor a watermark: nothing is
    /// known of its times. One that awaits corrections has a limit of its own.
    pub(super) fn is_unknown_newcomer(&self) -> bool {
        self.is_newcomer && !self.awaits_corrections && self.watermark().is_none()
    }

    /// Lets the events of other streams wait no longer, until this one has its first packet or
    /// watermark.
    pub(super) fn release(&mut self) {
        self.is_released = true;
    }

    /// The packet that was begun last.
    #[inline]
    pub(super) fn packet(&self) -> &Packet {
        self.decoding.packet()
    }

    /// The stream's number among those of equal time.
    pub(super) fn rank_number(&self) -> u32 {
        self.rank.as_ref().map_or(0, |(_, number)| *number)
    }

    /// Makes sure that the event that was found last is in memory. Fails with what has become of
    /// the stream.
    #[inline]
    pub(super) fn load_event(&mut self) -> Result<(), Step> {
        if !self.is_stored {
            return Ok(());
        }
        let Err(problem) = self.decoding.load_event() else {
            return Ok(());
        };
        let piece = self.decoding.fail(problem);
        Err(self.step(piece))
    }

    /// Frees an event that takes much memory, because other streams come first. It is loaded again
    /// when it is its turn.
    #[inline]
    pub(super) fn free_event(&mut self) {
        if self.is_stored {
            self.decoding.free_event();
        }
    }

    /// The event that was found last.
    #[inline]
    pub(super) fn event<'a>(&'a self, trace: &'a Trace) -> Option<Event<'a>> {
        if !self.has_event {
            return None;
        }
        let bytes = &self.packet().bytes;
        self.found.events.event(trace, bytes, self.place)
    }

    /// The losses before the packet that was begun last, unless they have been taken.
    pub(super) fn losses(&self) -> &[Loss] {
        &self.losses
    }

    /// Removes the losses before the packet that was begun last.
    pub(super) fn remove_losses(&mut self) {
        self.losses.clear();
    }

    /// Removes losses that do not belong to the part of the trace that is shown.
    pub(super) fn remove_losses_before_part(&mut self) {
        let first = self.losses.first().and_then(|loss| loss.begin);
        // Without a time they belong to the begin of the stream, and that to the first part.
        if first < self.begin {
            self.losses.clear();
        }
    }

    /// Reports, once, that an event is earlier than the one before.
    #[inline]
    pub(super) fn check_order(&mut self, time: Option<Nanoseconds>, stage: &mut impl Stage) {
        if time < self.time && !self.went_back {
            self.went_back = true;
            let stream = &self.info.name;
            stage.report_warning(&format!("event times go backwards: stream {stream}"));
        }
        self.time = time;
    }

    /// Whether there is an event, and not a loss.
    pub(super) fn has_event(&self) -> bool {
        self.has_event
    }

    /// Returns the time of the event after the next one, if both have been found. Both are in
    /// memory then: of a stored packet one event is found at a time.
    #[inline]
    pub(super) fn time_behind(&self) -> Option<Option<Nanoseconds>> {
        let behind = self.found.times.get(self.place + 1);
        behind.filter(|_| self.has_event).copied()
    }

    /// Goes on to the event after the next one, which has been [found](Self::time_behind).
    #[inline]
    pub(super) fn pass_event(&mut self) {
        self.place += 1;
    }

    /// The time of the next event, if that has been found already.
    #[inline]
    pub(super) fn advance_in_found(&mut self) -> Option<Option<Nanoseconds>> {
        let next = self.place + 1;
        let time = *self.found.times.get(next)?;
        self.place = next;
        Some(time)
    }

    /// Goes on to the next event or packet.
    pub(super) fn advance(&mut self, trace: &Trace) -> Step {
        if self.awaits_corrections {
            return Step::Waiting;
        }
        if let Some(time) = self.advance_in_found() {
            return Step::Event(time);
        }
        loop {
            let piece = self.decoding.next_piece(trace, &mut self.found);
            self.is_stored = self.decoding.is_stored();
            if self.has_begun || !matches!(piece, Piece::Events) {
                return self.step(piece);
            }
            let mut times = self.found.times.iter();
            let first = times.position(|time| *time >= self.begin);
            if let Some(first) = first {
                self.has_begun = true;
                let step = self.step(piece);
                self.place = first;
                return self
                    .found
                    .times
                    .get(first)
                    .map_or(step, |time| Step::Event(*time));
            }
        }
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
                Step::Event(time.copied().flatten())
            }
            Piece::Waiting => Step::Waiting,
            Piece::Ended(problem) => Step::Ended(problem),
            Piece::Passed(problem) => Step::Passed(problem),
        }
    }

    fn begin_packet(&mut self, start: PacketStart) {
        self.info.class = start.class;
        self.info.id = start.id;
        self.losses = start.losses;
        // Only the packet before the part has events that are passed over.
        let is_before = |begin: Nanoseconds| start.begin.is_some_and(|of_packet| of_packet < begin);
        self.has_begun |= !self.begin.is_some_and(is_before);
    }
}
