//! Reads the packets of one stream and finds their events, piece by piece.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::sync::Arc;

use ctf::Timescale;
use ctf::decode::{FoundEvents, Losses, LostEvents, PacketHead, StreamDecoder};
use ctf::directory::{DirectoryError, StreamReader};
use ctf::metadata::Trace;

use super::window::Window;
use crate::attach::{Backlog, MemoryBudget, Packet, StreamInfo};
use crate::sink::{Loss, Lost};
use crate::time::Nanoseconds;

/// Most events of a packet that are found at a time.
const MAX_FOUND: usize = 256;

/// The packets of a stream that are still to be read, and how far the one that was begun last has
/// been decoded.
pub(super) struct Decoding {
    feed: Feed,
    info: StreamInfo,
    decoder: StreamDecoder,
    /// The packet that was begun last.
    packet: Packet,
    /// The part of the packet that is in memory, if the packet is stored in a file.
    window: Window,
    in_packet: bool,
    /// Whether events must have times within their packet, each no earlier than the one before.
    checks_times: bool,
    /// The times that the next events of the packet may have.
    allowed_times: Option<RangeInclusive<Option<Nanoseconds>>>,
    /// An error after the events that were found last, which are shown before it is reported.
    problem: Option<String>,
    /// How cycles become nanoseconds. Absent before the first packet, or without a clock.
    timescale: Option<Timescale>,
    /// No event before this time will arrive. Absent if nothing is known of the stream's times.
    watermark: Option<Nanoseconds>,
    /// The watermark in cycles.
    watermark_cycles: Option<u64>,
    /// The time up to which the stream has been decoded: the watermark may be beyond packets that
    /// are still queued. Absent before the first.
    reached: Option<Nanoseconds>,
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

/// What comes next in a stream.
pub(super) enum Piece {
    /// The begin of a packet, and what is known by then.
    Packet(Box<PacketStart>),
    /// Events of the packet, at least one: those that were given to [`Decoding::next_piece`].
    Events,
    /// Nothing for now: the source may bring more.
    Waiting,
    /// The end of the stream, with the reason if that is a failure.
    Ended(Option<String>),
    /// Something cannot be read and is passed over.
    Passed(String),
}

/// What is known when a packet begins.
pub(super) struct PacketStart {
    pub(super) class: u64,
    pub(super) id: Option<u64>,
    /// The time at which the packet begins. None if packets do not say.
    pub(super) begin: Option<Nanoseconds>,
    /// Losses before the packet, or in it.
    pub(super) losses: Vec<Loss>,
}

/// Events that were found in one packet.
#[derive(Default)]
pub(super) struct TimedEvents {
    pub(super) events: FoundEvents,
    /// The time of each; none if the stream has no clock.
    pub(super) times: Vec<Option<Nanoseconds>>,
}

impl TimedEvents {
    /// Fills in the times. Events from the first on whose time is out of range are removed.
    fn fill_times(&mut self, scale: Option<&Timescale>) -> Result<(), String> {
        let count = self.events.len();
        let Some(scale) = scale else {
            self.times.resize(count, None);
            return Ok(());
        };
        let times = self.events.all_cycles();
        let times = times.map_while(|cycles| scale.nanoseconds(cycles).map(Nanoseconds::new));
        self.times.extend(times);
        let known = self.times.len();
        if known < count {
            let cycles = self.events.all_cycles().nth(known).unwrap_or(0);
            self.events.truncate(known);
            return Err(format!("the clock value {cycles} is out of range"));
        }
        Ok(())
    }
}

enum Next {
    Packet,
    Waiting,
    Ended(Option<String>),
}

impl Decoding {
    pub(super) fn new(info: StreamInfo, feed: Feed, budget: &MemoryBudget) -> Self {
        Self {
            feed,
            info,
            decoder: StreamDecoder::new(),
            packet: Packet::none(budget),
            window: Window::default(),
            in_packet: false,
            checks_times: false,
            allowed_times: None,
            problem: None,
            timescale: None,
            watermark: None,
            watermark_cycles: None,
            reached: None,
        }
    }

    /// Ends the stream, as if it could not be decoded, before events whose times are not within
    /// their packet or go backwards.
    pub(super) fn check_times(&mut self) {
        self.checks_times = true;
    }

    /// Whether the packets come from files that are complete.
    pub(super) fn is_of_files(&self) -> bool {
        matches!(self.feed, Feed::Files(_))
    }

    /// Adds a packet to the queue that a source fills.
    pub(super) fn push_packet(&mut self, packet: Packet) {
        if let Feed::Queue { packets, .. } = &mut self.feed {
            packets.push_back(packet);
        }
    }

    /// Drops what has been pushed and not been decoded. Returns whether the source will push no
    /// more.
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
            .as_ref()
            .or_else(|| trace.streams().find_map(|stream| stream.timescale()));
        let time = scale.and_then(|scale| Nanoseconds::of_cycles(scale, cycles));
        if time.is_some() {
            self.watermark = self.watermark.max(time);
            self.watermark_cycles = self.watermark_cycles.max(Some(cycles));
            // Packets that are queued may have events from before the watermark.
            if !self.in_packet && self.feed.is_empty() {
                self.reached = self.watermark;
            }
        }
    }

    /// No event before this time will arrive. Absent if nothing is known of the stream's times.
    pub(super) fn watermark(&self) -> Option<Nanoseconds> {
        self.watermark
    }

    /// The latest of the watermark and of the times that were found, in cycles.
    pub(super) fn reached_cycles(&self) -> Option<u64> {
        let found = self.timescale.as_ref().map(|_| self.decoder.cycles());
        self.watermark_cycles.max(found)
    }

    /// Takes over corrections of times that have changed, also for what was found last.
    pub(super) fn correct_times(&mut self, trace: &Trace, found: &mut TimedEvents) {
        if self.timescale.is_none() {
            return;
        }
        let class = trace.stream(self.info.class);
        self.timescale = class.and_then(|class| class.timescale().cloned());
        let Some(scale) = &self.timescale else {
            return;
        };
        let time = |cycles| Nanoseconds::of_cycles(scale, cycles);
        self.watermark = self.watermark_cycles.and_then(time);
        self.reached = self.reached.and(time(self.decoder.cycles()));
        found.times.clear();
        // Those whose times were in range are; corrections are small beside that range.
        found.times.extend(found.events.all_cycles().map(time));
    }

    /// The packet that was begun last.
    pub(super) fn packet(&self) -> &Packet {
        &self.packet
    }

    /// Makes sure that the event of a stored packet that was found last is in memory.
    pub(super) fn load_event(&mut self) -> Result<(), String> {
        self.window.load_event(&mut self.packet, &self.decoder)
    }

    /// Frees an event that takes much memory, because other streams come first. It is loaded again
    /// when it is its turn.
    pub(super) fn free_event(&mut self) {
        Window::free_event(&mut self.packet, &self.decoder);
    }

    /// Whether the packet is left in its file, because there is no memory for it.
    pub(super) fn is_stored(&self) -> bool {
        self.packet.stored.is_some()
    }

    /// Goes on to what comes next. Events replace those in `found`.
    pub(super) fn next_piece(&mut self, trace: &Trace, found: &mut TimedEvents) -> Piece {
        found.events.clear();
        found.times.clear();
        loop {
            if let Some(problem) = self.problem.take() {
                return self.fail(problem);
            }
            if !self.in_packet {
                return self.next_packet(trace);
            }
            let mut more = self.find_events(trace, &mut found.events);
            if let Err(problem) = found.fill_times(self.timescale.as_ref()) {
                more = Err(problem);
            }
            if self.checks_times && !self.allow_times(&found.times) {
                found.events.clear();
                found.times.clear();
                return self.fail("events are not in order of time".to_owned());
            }
            if !found.events.is_empty() {
                // An error is reported after the events that came before it.
                match more {
                    Ok(true) => {}
                    Ok(false) => self.end_packet(),
                    Err(problem) => self.problem = Some(problem),
                }
                return Piece::Events;
            }
            match more {
                Ok(true) => {}
                Ok(false) => self.end_packet(),
                Err(problem) => return self.fail(problem),
            }
        }
    }

    /// Finds the next events. Returns false if the packet has none after them.
    fn find_events(&mut self, trace: &Trace, found: &mut FoundEvents) -> Result<bool, String> {
        let decoder = &mut self.decoder;
        let packet = &mut self.packet;
        if packet.stored.is_none() && matches!(self.feed, Feed::Files(_)) {
            let more = decoder.find_events(trace, &packet.bytes, MAX_FOUND, found);
            return more.map_err(|error| error.to_string());
        }
        // One at a time: more metadata may arrive before the next event of a source that runs
        // beside, and the next event of a stored packet may take the memory of this one.
        let more = if packet.stored.is_some() {
            self.window.advance(packet, decoder, trace)?
        } else {
            let more = decoder.advance(trace, &packet.bytes);
            more.map_err(|error| error.to_string())?
        };
        decoder.copy_event(found);
        Ok(more)
    }

    /// Whether the packet may have events at these times.
    fn allow_times(&mut self, times: &[Option<Nanoseconds>]) -> bool {
        let (Some(first), Some(last)) = (times.first(), times.last()) else {
            return true;
        };
        let Some(allowed) = &mut self.allowed_times else {
            return false;
        };
        // By key, because `is_sorted` itself compares `Option`s in two steps.
        let are_sorted = times.is_sorted_by_key(|time| Nanoseconds::order_key(*time));
        let are_allowed = are_sorted && allowed.contains(first) && allowed.contains(last);
        *allowed = *last..=*allowed.end();
        are_allowed
    }

    fn end_packet(&mut self) {
        let scale = self.timescale.as_ref();
        let end = scale.and_then(|scale| Nanoseconds::of_cycles(scale, self.decoder.cycles()));
        self.reached = self.reached.max(end);
        self.watermark = self.watermark.max(end);
        self.watermark_cycles = self.watermark_cycles.max(Some(self.decoder.cycles()));
        self.in_packet = false;
    }

    /// Frees the packet, of which nothing more is shown. What is read from files is read into the
    /// same memory again.
    pub(super) fn free_packet(&mut self) {
        if !self.in_packet && (!self.is_of_files() || self.packet.stored.is_some()) {
            self.packet.clear();
        }
    }

    fn next_packet(&mut self, trace: &Trace) -> Piece {
        self.free_packet();
        let packet = &mut self.packet;
        match self.feed.next(packet) {
            Next::Packet => {}
            Next::Waiting => return Piece::Waiting,
            Next::Ended(problem) => return Piece::Ended(problem),
        }
        let decoder = &mut self.decoder;
        let begun = match packet.stored {
            None => decoder
                .begin_packet(trace, &packet.bytes)
                .map_err(|error| error.to_string()),
            Some(_) => self.window.begin_packet(packet, decoder, trace),
        };
        match begun {
            Ok(head) => Piece::Packet(Box::new(self.begin_packet(trace, &head))),
            Err(problem) => self.fail(problem),
        }
    }

    fn begin_packet(&mut self, trace: &Trace, head: &PacketHead) -> PacketStart {
        self.in_packet = true;
        self.info.class = head.stream_class;
        if head.stream_id.is_some() {
            self.info.id = head.stream_id;
        }
        let class = trace.stream(head.stream_class);
        self.timescale = class.and_then(|class| class.timescale().cloned());
        let time = |cycles: Option<u64>| Nanoseconds::of_cycles(self.timescale.as_ref()?, cycles?);
        let losses = self.decoder.losses();
        let before = time(losses.previous_end).and_then(|end| self.reached.max(Some(end)));
        let (begin, end) = (time(head.begin), time(head.end));
        self.allowed_times = begin.zip(end).map(|(begin, end)| Some(begin)..=Some(end));
        PacketStart {
            class: self.info.class,
            id: self.info.id,
            begin,
            losses: found_losses(losses, before, begin, end),
        }
    }

    /// Ends the packet, the rest of which cannot be shown. A file that is wrong is wrong to its
    /// end; a relay may go on with a good packet.
    pub(super) fn fail(&mut self, what: String) -> Piece {
        self.in_packet = false;
        self.problem = None;
        self.free_packet();
        match &self.feed {
            Feed::Files(reader) => {
                let place = reader.place().map(|(file, offset)| {
                    format!(
                        "cannot decode a packet: {}, byte {offset}: {what}; the rest of the stream is not shown",
                        file.display()
                    )
                });
                Piece::Ended(Some(place.unwrap_or(what)))
            }
            Feed::Queue { .. } => Piece::Passed(format!(
                "cannot decode a packet: stream {}: {what}; the rest of the packet is not shown",
                self.info.name
            )),
        }
    }
}

fn found_losses(
    losses: &Losses,
    before: Option<Nanoseconds>,
    begin: Option<Nanoseconds>,
    end: Option<Nanoseconds>,
) -> Vec<Loss> {
    let mut found = Vec::new();
    let mut push = |what, begin: Option<Nanoseconds>, end: Option<Nanoseconds>| {
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
    // The packet before has left its memory, which this one uses again.
    if packet.reservation.grow(size) {
        packet.stored = None;
        let is_read = reader.next(&mut packet.bytes);
        packet.data_file = reader.data_file();
        return is_read;
    }
    packet.clear();
    let unread = reader.next_unread()?;
    Ok(unread.is_some_and(|unread| {
        packet.store_in(unread.file, unread.offset, unread.bytes);
        packet.data_file = reader.data_file();
        true
    }))
}
