//! One stream of the mux: its source of packets, and how far it has been decoded.

use std::collections::VecDeque;
use std::sync::Arc;

use ctf::Timescale;
use ctf::decode::{Event, Losses, LostEvents, PacketHead, StreamDecoder};
use ctf::directory::{DirectoryError, StreamReader};
use ctf::metadata::Trace;

use super::order::Rank;
use super::window::Window;
use crate::attach::{Backlog, MemoryBudget, Packet, StreamInfo};
use crate::sink::{Loss, Lost};

/// A stream that is being read.
pub(super) struct Input {
    /// Slot of its trace in the mux.
    pub(super) trace: usize,
    pub(super) info: StreamInfo,
    /// The order at equal times, and the number among all streams. Both are known with the first packet.
    pub(super) rank: Option<(Arc<Rank>, u32)>,
    feed: Feed,
    decoder: StreamDecoder,
    /// The one that was begun last.
    packet: Packet,
    /// The part of the packet that is in memory, if the packet is stored in a file.
    window: Window,
    in_packet: bool,
    /// Whether the events of other streams wait for it.
    pub(super) is_holding: bool,
    /// Known with the first packet.
    timescale: Option<Timescale>,
    /// Losses that have been found and not shown.
    losses: Vec<Loss>,
    /// No event before this time will arrive, in nanoseconds.
    watermark: i64,
    /// The time up to which the stream has been decoded, in nanoseconds: the watermark may be beyond
    /// packets that are still queued.
    reached: i64,
    /// The time of the event that was found last.
    time: i64,
    went_back: bool,
}

/// The source of a stream's packets.
pub(super) enum Feed {
    /// Files that are complete.
    Files(StreamReader),
    /// A source that runs beside.
    Queue {
        packets: VecDeque<Packet>,
        backlog: Backlog,
        ended: bool,
    },
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

enum Next {
    Packet,
    Waiting,
    Ended(Option<String>),
}

impl Input {
    pub(super) fn new(trace: usize, info: StreamInfo, feed: Feed, budget: &MemoryBudget) -> Self {
        Self {
            trace,
            info,
            rank: None,
            feed,
            decoder: StreamDecoder::new(),
            packet: Packet::none(budget),
            window: Window::default(),
            in_packet: false,
            is_holding: true,
            timescale: None,
            losses: Vec::new(),
            watermark: i64::MIN,
            reached: i64::MIN,
            time: i64::MIN,
            went_back: false,
        }
    }

    /// The queue that a source fills.
    pub(super) fn push_packet(&mut self, packet: Packet) {
        if let Feed::Queue { packets, .. } = &mut self.feed {
            packets.push_back(packet);
        }
    }

    /// Drops what has been pushed and not been decoded. Whether the source will push no more.
    pub(super) fn discard_packets(&mut self) -> bool {
        self.in_packet = false;
        self.packet.clear();
        match &mut self.feed {
            Feed::Files(_) => true,
            Feed::Queue {
                packets,
                backlog,
                ended,
            } => {
                packets.drain(..).for_each(|_| backlog.remove_packet());
                *ended
            }
        }
    }

    /// Marks the feed as complete: the source will push no more.
    pub(super) fn end_feed(&mut self) {
        if let Feed::Queue { ended, .. } = &mut self.feed {
            *ended = true;
        }
    }

    /// Raises the watermark, given in cycles of the trace's clock.
    pub(super) fn advance_watermark(&mut self, trace: &Trace, cycles: u64) {
        // Before its first packet a stream has not said its class. All of a trace have one clock,
        // in every tracer there is.
        let scale = self
            .timescale
            .or_else(|| trace.streams().find_map(|stream| stream.timescale()));
        if let Some(time) = scale.and_then(|scale| scale.nanoseconds(cycles)) {
            self.watermark = self.watermark.max(time);
            if !self.in_packet && self.feed.is_empty() {
                self.reached = self.watermark;
            }
        }
    }

    /// No event before this time will arrive, in nanoseconds.
    pub(super) fn watermark(&self) -> i64 {
        self.watermark
    }

    /// The packet that was begun last.
    pub(super) fn packet(&self) -> &Packet {
        &self.packet
    }

    /// The stream's number among those of equal time.
    pub(super) fn rank_number(&self) -> u32 {
        self.rank.as_ref().map_or(0, |(_, number)| *number)
    }

    /// Makes sure that the event that was found last is in memory. Fails with what has become of the
    /// stream.
    #[inline]
    pub(super) fn load_event(&mut self) -> Result<(), Step> {
        if self.packet.stored.is_none() {
            return Ok(());
        }
        let loaded = self.window.load_event(&mut self.packet, &self.decoder);
        loaded.map_err(|problem| self.fail(problem))
    }

    /// Other streams come first: an event that takes much memory is loaded again when it is its turn.
    #[inline]
    pub(super) fn free_event(&mut self) {
        if self.packet.stored.is_some() {
            Window::free_event(&mut self.packet, &self.decoder);
        }
    }

    /// The event that was found last.
    #[inline]
    pub(super) fn event<'a>(&'a self, trace: &'a Trace) -> Option<Event<'a>> {
        self.decoder.event(trace, &self.packet.bytes)
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
    pub(super) fn goes_back(&mut self, time: i64) -> bool {
        let back = time < self.time && !self.went_back;
        self.went_back |= back;
        self.time = time;
        back
    }

    /// Goes on to the next event or packet.
    #[inline]
    pub(super) fn advance(&mut self, trace: &Trace) -> Step {
        loop {
            if !self.in_packet {
                return self.next_packet(trace);
            }
            let (packet, decoder) = (&mut self.packet, &mut self.decoder);
            let found = match packet.stored {
                None => decoder
                    .advance(trace, &packet.bytes)
                    .map_err(|error| error.to_string()),
                Some(_) => self.window.advance(packet, decoder, trace),
            };
            match found {
                Ok(true) => return self.event_step(),
                Ok(false) => self.end_packet(),
                Err(problem) => return self.fail(problem),
            }
        }
    }

    #[inline]
    fn event_step(&mut self) -> Step {
        let Some(scale) = self.timescale else {
            return Step::Event(i64::MIN);
        };
        let cycles = self.decoder.cycles();
        match scale.nanoseconds(cycles) {
            Some(time) => Step::Event(time),
            None => self.fail(format!("the clock value {cycles} is out of range")),
        }
    }

    fn end_packet(&mut self) {
        let scale = self.timescale;
        let end = scale.and_then(|scale| scale.nanoseconds(self.decoder.cycles()));
        if let Some(end) = end {
            self.reached = self.reached.max(end);
            self.watermark = self.watermark.max(end);
        }
        self.free_packet();
    }

    /// Frees the packet. What is read from files is read into the same memory again.
    fn free_packet(&mut self) {
        self.in_packet = false;
        if matches!(self.feed, Feed::Queue { .. }) || self.packet.stored.is_some() {
            self.packet.clear();
        }
    }

    fn next_packet(&mut self, trace: &Trace) -> Step {
        match self.feed.next(&mut self.packet) {
            Next::Packet => {}
            Next::Waiting => return Step::Waiting,
            Next::Ended(problem) => return Step::Ended(problem),
        }
        let (packet, decoder) = (&mut self.packet, &mut self.decoder);
        let begun = match packet.stored {
            None => decoder
                .begin_packet(trace, &packet.bytes)
                .map_err(|error| error.to_string()),
            Some(_) => self.window.begin_packet(packet, decoder, trace),
        };
        match begun {
            Ok(head) => {
                self.set_packet_head(trace, &head);
                Step::Packet
            }
            Err(problem) => self.fail(problem),
        }
    }

    fn set_packet_head(&mut self, trace: &Trace, head: &PacketHead) {
        self.in_packet = true;
        self.info.class = head.stream_class;
        if head.stream_id.is_some() {
            self.info.id = head.stream_id;
        }
        let class = trace.stream(head.stream_class);
        self.timescale = class.and_then(|class| class.timescale());
        let time = |cycles: Option<u64>| self.timescale?.nanoseconds(cycles?);
        let losses = self.decoder.losses();
        let before = time(losses.previous_end).map(|end| end.max(self.reached));
        let (begin, end) = (time(head.begin), time(head.end));
        self.losses = found_losses(losses, before, begin, end);
    }

    /// A file that is wrong is wrong to its end; a relay may go on with a good packet.
    fn fail(&mut self, what: String) -> Step {
        self.free_packet();
        match &self.feed {
            Feed::Files(reader) => {
                let place = reader.place().map(|(file, offset)| {
                    format!(
                        "cannot decode a packet: {}, byte {offset}: {what}; the rest of the stream is not shown",
                        file.display()
                    )
                });
                Step::Ended(Some(place.unwrap_or(what)))
            }
            Feed::Queue { .. } => Step::Passed(format!(
                "cannot decode a packet: stream {}: {what}; the rest of the packet is not shown",
                self.info.name
            )),
        }
    }
}

fn found_losses(
    losses: &Losses,
    before: Option<i64>,
    begin: Option<i64>,
    end: Option<i64>,
) -> Vec<Loss> {
    let mut found = Vec::new();
    let mut push = |what, begin: Option<i64>, end: Option<i64>| {
        // Half a range is none.
        let (begin, end) = match (begin, end) {
            (Some(begin), Some(end)) => (Some(begin), Some(end)),
            _ => (None, None),
        };
        found.push(Loss { what, begin, end });
    };
    match losses.events {
        Some(what @ LostEvents::Some) => push(Lost::Events(what), begin, end),
        Some(what @ LostEvents::Count(_)) => push(Lost::Events(what), before, end),
        None => {}
    }
    if let Some(count) = losses.packets {
        push(Lost::Packets(count), before, begin);
    }
    found
}

impl Feed {
    fn is_empty(&self) -> bool {
        match self {
            Self::Files(_) => false,
            Self::Queue { packets, .. } => packets.is_empty(),
        }
    }

    fn next(&mut self, packet: &mut Packet) -> Next {
        match self {
            Self::Files(reader) => match next_in_files(reader, packet) {
                Ok(true) => Next::Packet,
                Ok(false) => Next::Ended(None),
                Err(error) => Next::Ended(Some(crate::with_sources(&*error))),
            },
            Self::Queue {
                packets,
                backlog,
                ended,
            } => match packets.pop_front() {
                Some(next) => {
                    backlog.remove_packet();
                    *packet = next;
                    Next::Packet
                }
                None if *ended => Next::Ended(None),
                None => Next::Waiting,
            },
        }
    }
}

/// Reads the next packet, or leaves it where it is if the memory budget has no room for it.
fn next_in_files(
    reader: &mut StreamReader,
    packet: &mut Packet,
) -> Result<bool, Arc<DirectoryError>> {
    let size = reader.peek().map_or(0, |next| next.bytes);
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    if packet.reservation.grow(size) {
        packet.stored = None;
        return reader.next(&mut packet.bytes);
    }
    packet.clear();
    let unread = reader.next_unread()?;
    Ok(unread.is_some_and(|unread| {
        packet.store_in(unread.file, unread.offset, unread.bytes);
        true
    }))
}
