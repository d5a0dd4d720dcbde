//! One row of the timeline: a span, an instant, a loss, the value of a counter or a state.

use bytes::{Buf, BufMut};

/// What a row shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RowKind {
    /// A time with a begin and an end.
    Span,
    /// A point in time.
    Instant,
    /// Events or packets that were lost.
    Loss,
    /// A value from here to the next row.
    Counter,
    /// A time for which a thread was in a state, or a CPU ran a thread.
    State,
}

impl RowKind {
    /// The number of kinds.
    pub(super) const COUNT: usize = 5;

    /// The number of the kind in messages to the page, and in the file of the history.
    pub(super) const fn code(self) -> u8 {
        match self {
            Self::Span => 0,
            Self::Instant => 1,
            Self::Loss => 2,
            Self::Counter => 3,
            Self::State => 4,
        }
    }

    fn of_code(code: u16) -> Self {
        match code {
            0 => Self::Span,
            2 => Self::Loss,
            3 => Self::Counter,
            4 => Self::State,
            _ => Self::Instant,
        }
    }
}

/// The place of an event in the packet log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct EventPlace {
    /// The number of the packet.
    pub(super) packet: u32,
    /// The number of the event in its packet, from 0.
    pub(super) event: u32,
}

impl EventPlace {
    /// The number of a packet that is not in the log.
    pub(super) const NOT_KEPT: u32 = u32::MAX;
}

/// Bytes of a row, in memory and as it is stored.
pub(super) const ROW_BYTES: usize = 32;

/// A row. There are tens of millions of them: it has [`ROW_BYTES`] bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Row {
    /// The begin, in nanoseconds since the clock's origin.
    pub(super) start: i64,
    /// The end, in nanoseconds since the clock's origin; [`OPEN`] until it is known. For a counter
    /// the bits of its value, so that a row takes no more memory.
    end: i64,
    /// The number of the name.
    pub(super) name: u32,
    pub(super) place: EventPlace,
    /// How many spans of the track are around it.
    pub(super) depth: u16,
    pub(super) kind: RowKind,
}

/// The end of a span or state that has not ended.
pub(super) const OPEN: i64 = i64::MAX;

impl Row {
    /// A row from `start` to `end`.
    pub(super) fn new(kind: RowKind, start: i64, end: i64, name: u32, place: EventPlace) -> Self {
        Self {
            start,
            // Whatever a trace says, no span is shown that ends before it begins.
            end: end.max(start),
            name,
            place,
            depth: 0,
            kind,
        }
    }

    /// The value of a counter from `start` on.
    pub(super) fn counter(start: i64, value: f64, name: u32, place: EventPlace) -> Self {
        Self {
            start,
            end: value.to_bits().cast_signed(),
            name,
            place,
            depth: 0,
            kind: RowKind::Counter,
        }
    }

    /// The end, in nanoseconds since the clock's origin; [`OPEN`] until it is known.
    pub(super) fn end(&self) -> i64 {
        match self.kind {
            RowKind::Counter => self.start,
            _ => self.end,
        }
    }

    /// Writes the row as it is stored, in [`ROW_BYTES`] bytes.
    pub(super) fn put(&self, out: &mut impl BufMut) {
        out.put_i64_le(self.start);
        out.put_i64_le(self.end);
        out.put_u32_le(self.name);
        out.put_u32_le(self.place.packet);
        out.put_u32_le(self.place.event);
        out.put_u16_le(self.depth);
        out.put_u16_le(self.kind.code().into());
    }

    /// Reads a row that was stored, from at least [`ROW_BYTES`] bytes.
    pub(super) fn get(bytes: &mut impl Buf) -> Self {
        Self {
            start: bytes.get_i64_le(),
            end: bytes.get_i64_le(),
            name: bytes.get_u32_le(),
            place: EventPlace {
                packet: bytes.get_u32_le(),
                event: bytes.get_u32_le(),
            },
            depth: bytes.get_u16_le(),
            kind: RowKind::of_code(bytes.get_u16_le()),
        }
    }

    /// The value of a counter.
    pub(super) fn value(&self) -> f64 {
        f64::from_bits(self.end.cast_unsigned())
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self.kind, RowKind::Span | RowKind::State) && self.end == OPEN
    }

    /// Ends a span or state at this time, in nanoseconds since the clock's origin.
    pub(super) fn close(&mut self, end: i64) {
        // With `OPEN` itself as its end the span would stay open.
        self.end = end.max(self.start).min(OPEN - 1);
    }
}

/// What an event is on the timeline.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Action {
    /// The begin of a span of this name.
    Begin(u32),
    /// The end of the innermost span of this name, or of the innermost at all.
    End(Option<u32>),
    /// The begin of a span of this name that has an id, and the id. Such spans end in any order.
    Enter(u32, u64),
    /// The end of the span of this id.
    Exit(u64),
    /// The begin of a span of this name that may overlap others. Its end has the same key.
    AsyncBegin(u32, u64),
    /// The end of the span of this name and key.
    AsyncEnd(u32, u64),
    /// A span from one time to another.
    Complete(u32, i64, i64),
    /// A point in time.
    Instant(u32, i64),
    /// The value of a counter from a time on.
    Counter(u32, i64, f64),
}

impl Action {
    /// The number of the name, if it has one.
    pub(super) fn name(self) -> Option<u32> {
        match self {
            Self::Begin(name)
            | Self::Enter(name, _)
            | Self::AsyncBegin(name, _)
            | Self::AsyncEnd(name, _)
            | Self::Complete(name, ..)
            | Self::Instant(name, _)
            | Self::Counter(name, ..) => Some(name),
            Self::End(name) => name,
            Self::Exit(_) => None,
        }
    }
}
