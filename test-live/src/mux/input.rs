//! One stream: where its packets come from, and how far it has been decoded.

use std::collections::VecDeque;

use ctf::Timescale;
use ctf::decode::{Event, Losses, LostEvents, PacketHead, StreamDecoder};
use ctf::directory::StreamReader;
use ctf::metadata::Trace;

use crate::attach::{Backlog, StreamInfo};
use crate::sink::{Loss, Lost};

/// A stream that is being read.
pub(super) struct Input {
    /// Place of its trace.
    pub(super) trace: usize,
    pub(super) info: StreamInfo,
    feed: Feed,
    decoder: StreamDecoder,
    bytes: Vec<u8>,
    in_packet: bool,
    /// Known with the first packet.
    timescale: Option<Timescale>,
    /// Losses that have been found and not shown.
    losses: Vec<Loss>,
    /// No event before this will come, in nanoseconds.
    promise: i64,
    /// How far the stream has come, in nanoseconds: what is promised may be beyond packets that are
    /// still queued.
    reached: i64,
    /// The time of the event that was found last.
    time: i64,
    went_back: bool,
}

/// Where packets come from.
pub(super) enum Feed {
    /// Files that are complete.
    Files(StreamReader),
    /// A source that runs beside.
    Queue {
        packets: VecDeque<Vec<u8>>,
        backlog: Backlog,
        ended: bool,
    },
}

/// What a stream has come to.
pub(super) enum Step {
    /// A packet begins. Losses before it may be known.
    Packet,
    /// An event, at this time.
    Event(i64),
    /// Nothing for now.
    Waiting,
    /// Nothing any more, and why, if that is a failure.
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
    pub(super) fn new(trace: usize, info: StreamInfo, feed: Feed) -> Self {
        Self {
            trace,
            info,
            feed,
            decoder: StreamDecoder::new(),
            bytes: Vec::new(),
            in_packet: false,
            timescale: None,
            losses: Vec::new(),
            promise: i64::MIN,
            reached: i64::MIN,
            time: i64::MIN,
            went_back: false,
        }
    }

    /// The queue that a source fills.
    pub(super) fn push(&mut self, packet: Vec<u8>) {
        if let Feed::Queue { packets, .. } = &mut self.feed {
            packets.push_back(packet);
        }
    }

    /// Says that the source will push no more.
    pub(super) fn end(&mut self) {
        if let Feed::Queue { ended, .. } = &mut self.feed {
            *ended = true;
        }
    }

    /// Takes a promise, in cycles.
    pub(super) fn promise(&mut self, trace: &Trace, cycles: u64) {
        // Before its first packet a stream has not said its class. All of a trace have one clock,
        // in every tracer there is.
        let scale = self
            .timescale
            .or_else(|| trace.streams().find_map(|stream| stream.timescale()));
        if let Some(time) = scale.and_then(|scale| scale.nanoseconds(cycles)) {
            self.promise = self.promise.max(time);
            if !self.in_packet && self.feed.is_empty() {
                self.reached = self.promise;
            }
        }
    }

    /// No event before this will come, in nanoseconds.
    pub(super) fn promised(&self) -> i64 {
        self.promise
    }

    /// The packet that was begun last.
    pub(super) fn packet(&self) -> &[u8] {
        &self.bytes
    }

    /// The event that was found last.
    #[inline]
    pub(super) fn event<'a>(&'a self, trace: &'a Trace) -> Option<Event<'a>> {
        self.decoder.event(trace, &self.bytes)
    }

    /// What was lost before the packet that was begun last, and has not been taken.
    pub(super) fn losses(&self) -> &[Loss] {
        &self.losses
    }

    /// Takes what was lost before the packet that was begun last.
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
            match self.decoder.advance(trace, &self.bytes) {
                Ok(true) => return self.found(),
                Ok(false) => self.end_packet(),
                Err(error) => {
                    self.in_packet = false;
                    return self.fail(error.to_string());
                }
            }
        }
    }

    #[inline]
    fn found(&mut self) -> Step {
        let Some(scale) = self.timescale else {
            return Step::Event(i64::MIN);
        };
        let cycles = self.decoder.cycles();
        match scale.nanoseconds(cycles) {
            Some(time) => Step::Event(time),
            None => {
                self.in_packet = false;
                self.fail(format!("the clock value {cycles} is out of range"))
            }
        }
    }

    fn end_packet(&mut self) {
        self.in_packet = false;
        let scale = self.timescale;
        let end = scale.and_then(|scale| scale.nanoseconds(self.decoder.cycles()));
        if let Some(end) = end {
            self.reached = self.reached.max(end);
            self.promise = self.promise.max(end);
        }
    }

    fn next_packet(&mut self, trace: &Trace) -> Step {
        match self.feed.next(&mut self.bytes) {
            Next::Packet => {}
            Next::Waiting => return Step::Waiting,
            Next::Ended(problem) => {
                self.bytes = Vec::new();
                return Step::Ended(problem);
            }
        }
        match self.decoder.begin_packet(trace, &self.bytes) {
            Ok(head) => {
                self.begin(trace, &head);
                Step::Packet
            }
            Err(error) => self.fail(error.to_string()),
        }
    }

    fn begin(&mut self, trace: &Trace, head: &PacketHead) {
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
        match &self.feed {
            Feed::Files(reader) => {
                let place = reader.place().map(|(file, offset)| {
                    format!("{}, packet at byte {offset}: {what}", file.display())
                });
                self.bytes = Vec::new();
                Step::Ended(Some(place.unwrap_or(what)))
            }
            Feed::Queue { .. } => Step::Passed(format!(
                "stream {}: {what}; the rest of the packet is not shown",
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

    fn next(&mut self, bytes: &mut Vec<u8>) -> Next {
        match self {
            Self::Files(reader) => match reader.next(bytes) {
                Ok(true) => Next::Packet,
                Ok(false) => Next::Ended(None),
                Err(error) => Next::Ended(Some(crate::with_sources(&*error))),
            },
            Self::Queue {
                packets,
                backlog,
                ended,
            } => match packets.pop_front() {
                Some(packet) => {
                    backlog.take();
                    *bytes = packet;
                    Next::Packet
                }
                None if *ended => Next::Ended(None),
                None => Next::Waiting,
            },
        }
    }
}
