//! One stream of the mux: what has been found in it and not been shown.

use std::collections::VecDeque;
use std::sync::Arc;

use ctf::decode::Event;
use ctf::metadata::Trace;

use super::ahead::{Ahead, Buffers, ReadyPiece};
use super::decoding::{Decoding, Feed, PacketStart, Piece, TimedEvents};
use super::order::Rank;
use super::stage::Stage;
use crate::attach::{MemoryBudget, Packet, StreamInfo, TraceKey};
use crate::sink::render::RenderedEvents;
use crate::sink::{Loss, RenderedEvent};

/// A stream that is being read.
pub(super) struct Input {
    /// Slot of its trace in the mux.
    pub(super) trace: usize,
    pub(super) trace_key: TraceKey,
    pub(super) info: StreamInfo,
    /// The order at equal times, and the number among all streams. Both are known with the first packet.
    pub(super) rank: Option<(Arc<Rank>, u32)>,
    /// None while a thread decodes ahead.
    decoding: Option<Box<Decoding>>,
    ahead: Option<Ahead>,
    /// Buffers for what is decoded ahead next.
    buffers: Vec<Buffers>,
    /// What has been decoded ahead.
    ready: VecDeque<ReadyPiece>,
    /// The packet of the events that were found last, if it has been decoded ahead.
    packet: Option<Arc<Packet>>,
    /// The events that were found last, as the sink's renderer has rendered them.
    rendered: Option<RenderedEvents>,
    /// The events that were found last, and the place among them of the one that is next.
    found: TimedEvents,
    place: usize,
    /// Whether there is an event, which has been found and not been passed.
    has_event: bool,
    /// Whether the packet of the event is left in its file.
    is_stored: bool,
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
    pub(super) fn new(
        (trace, trace_key): (usize, TraceKey),
        info: StreamInfo,
        feed: Feed,
        budget: &MemoryBudget,
    ) -> Self {
        Self {
            trace,
            trace_key,
            rank: None,
            decoding: Some(Box::new(Decoding::new(info.clone(), feed, budget))),
            ahead: None,
            buffers: Vec::new(),
            ready: VecDeque::new(),
            packet: None,
            rendered: None,
            info,
            found: TimedEvents::default(),
            place: 0,
            has_event: false,
            is_stored: false,
            is_holding: true,
            losses: Vec::new(),
            time: i64::MIN,
            went_back: false,
        }
    }

    /// The queue that a source fills.
    pub(super) fn push_packet(&mut self, packet: Packet) {
        if let Some(decoding) = &mut self.decoding {
            decoding.push_packet(packet);
        }
    }

    /// Drops what has been pushed and not been decoded. Whether the source will push no more.
    pub(super) fn discard_packets(&mut self) -> bool {
        self.has_event = false;
        let decoding = self.decoding.as_mut();
        decoding.is_none_or(|decoding| decoding.discard_packets())
    }

    /// Marks the feed as complete: the source will push no more.
    pub(super) fn end_feed(&mut self) {
        if let Some(decoding) = &mut self.decoding {
            decoding.end_feed();
        }
    }

    /// Raises the watermark, given in cycles of the trace's clock.
    pub(super) fn advance_watermark(&mut self, trace: &Trace, cycles: u64) {
        if let Some(decoding) = &mut self.decoding {
            decoding.advance_watermark(trace, cycles);
        }
    }

    /// No event before this time will arrive, in nanoseconds.
    pub(super) fn watermark(&self) -> i64 {
        let decoding = self.decoding.as_ref();
        decoding.map_or(i64::MIN, |decoding| decoding.watermark())
    }

    /// The packet that was begun last.
    #[inline]
    pub(super) fn packet(&self) -> Option<&Packet> {
        let decoding = self.decoding.as_ref();
        let packet = self.packet.as_ref();
        packet
            .or_else(|| decoding.map(|decoding| decoding.packet()))
            .map(|packet| &**packet)
    }

    /// Lets threads decode the stream ahead.
    pub(super) fn decode_ahead(&mut self, mut ahead: Ahead) {
        self.decoding = self
            .decoding
            .take()
            .and_then(|decoding| ahead.begin(decoding, Vec::new()));
        self.ahead = Some(ahead);
    }

    /// The stream's number among those of equal time.
    pub(super) fn rank_number(&self) -> u32 {
        self.rank.as_ref().map_or(0, |(_, number)| *number)
    }

    /// Makes sure that the event that was found last is in memory. Fails with what has become of the
    /// stream.
    #[inline]
    pub(super) fn load_event(&mut self) -> Result<(), Step> {
        if !self.is_stored {
            return Ok(());
        }
        let Some(decoding) = &mut self.decoding else {
            return Ok(());
        };
        let Err(problem) = decoding.load_event() else {
            return Ok(());
        };
        let piece = decoding.fail(problem);
        Err(self.step(piece))
    }

    /// Other streams come first: an event that takes much memory is loaded again when it is its turn.
    #[inline]
    pub(super) fn free_event(&mut self) {
        if self.is_stored
            && let Some(decoding) = &mut self.decoding
        {
            decoding.free_event();
        }
    }

    /// The event that was found last.
    #[inline]
    pub(super) fn event<'a>(&'a self, trace: &'a Trace) -> Option<Event<'a>> {
        if !self.has_event {
            return None;
        }
        let bytes = &self.packet()?.bytes;
        self.found.events.event(trace, bytes, self.place)
    }

    /// The event that was found last, at this time, if it has been rendered.
    #[inline]
    pub(super) fn rendered_event(&self, time: i64) -> Option<RenderedEvent<'_>> {
        let rendered = self.rendered.as_ref()?;
        Some(RenderedEvent {
            cycles: self.found.events.cycles(self.place)?,
            time: (time > i64::MIN).then_some(time),
            parts: rendered.parts(self.place)?,
        })
    }

    /// The losses before the packet that was begun last, unless they have been taken.
    pub(super) fn losses(&self) -> &[Loss] {
        &self.losses
    }

    /// Removes the losses before the packet that was begun last.
    pub(super) fn remove_losses(&mut self) {
        self.losses.clear();
    }

    /// Reports, once, that an event is earlier than the one before.
    #[inline]
    pub(super) fn check_order(&mut self, time: i64, stage: &mut impl Stage) {
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

    /// The time of the event behind the next one, if both have been found. Then they are in memory: of a stored packet
    /// one event is found at a time.
    #[inline]
    pub(super) fn time_behind(&self) -> Option<i64> {
        let behind = self.found.times.get(self.place + 1);
        behind.filter(|_| self.has_event).copied()
    }

    /// Goes on to the event [behind](Self::time_behind) the next one.
    #[inline]
    pub(super) fn pass_event(&mut self) {
        self.place += 1;
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
        let piece = self.next_piece(trace);
        self.is_stored = match &self.decoding {
            Some(decoding) if self.packet.is_none() => decoding.is_stored(),
            _ => false,
        };
        self.step(piece)
    }

    fn next_piece(&mut self, trace: &Trace) -> Piece {
        self.packet = None;
        let rendered = self.rendered.take();
        if self.ahead.is_some() {
            let found = std::mem::take(&mut self.found);
            let rendered = rendered.unwrap_or_default();
            self.buffers.push(Buffers { found, rendered });
        }
        loop {
            if let Some(ready) = self.ready.pop_front() {
                self.found = ready.found;
                self.rendered = ready.rendered;
                self.packet = Some(ready.packet);
                return ready.piece;
            }
            match (self.decoding.take(), &mut self.ahead) {
                // A stored packet is decoded here: a part of it is in memory, as long as its events are shown.
                (Some(decoding), Some(ahead)) if !decoding.is_stored() && !decoding.has_ended() => {
                    self.decoding = ahead.begin(decoding, std::mem::take(&mut self.buffers));
                    if self.decoding.is_some() {
                        self.ahead = None;
                    }
                }
                (Some(mut decoding), _) => {
                    let piece = decoding.next_piece(trace, &mut self.found);
                    self.decoding = Some(decoding);
                    return piece;
                }
                (None, Some(ahead)) => {
                    let Some(batch) = ahead.wait() else {
                        return Piece::Ended(Some("a thread that decodes has ended".to_owned()));
                    };
                    self.ready = batch.pieces;
                    let decoding = batch.decoding;
                    self.decoding = if decoding.is_stored() || decoding.has_ended() {
                        Some(decoding)
                    } else {
                        ahead.begin(decoding, std::mem::take(&mut self.buffers))
                    };
                }
                (None, None) => return Piece::Ended(None),
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
                Step::Event(time.copied().unwrap_or(i64::MIN))
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
    }
}
