//! Events that have been found together, apart from the decoder that found them.

use std::cell::Cell;

use super::event::Event;
use crate::metadata::Trace;

/// Events that [`StreamDecoder::find_events`](super::StreamDecoder::find_events) has found in one
/// packet. They can be shown in any order, also while the decoder finds the events that follow, and
/// on another thread.
#[derive(Debug, Default)]
pub struct FoundEvents {
    pub(super) events: Vec<FoundEvent>,
    pub(super) stream_class: u64,
    /// The end of the packet's content, in bits from the first of the given bytes.
    pub(super) end: u64,
    pub(super) context_at: u64,
    /// The number of bits after the packet's head that are not in the given bytes.
    pub(super) shift: u64,
    /// The number of the packet among those that the decoder has begun.
    pub(super) packet: u64,
    /// The values that packet header and context have for the fields of events. What the fields of
    /// an event have for one another is written here when the event is shown.
    pub(super) slots: Vec<Cell<u64>>,
}

/// An event that was found.
#[derive(Debug, Clone, Copy)]
pub(super) struct FoundEvent {
    /// The place of the event class in the list of its stream class.
    pub(super) class: usize,
    /// The position of the event's contexts, in bits from the first of the given bytes.
    pub(super) fields_at: u64,
    pub(super) cycles: u64,
}

impl FoundEvents {
    /// The number of events.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Whether there is no event.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Forgets all events, and keeps their memory for those that are found next.
    pub fn clear(&mut self) {
        self.events.clear();
    }

    /// Forgets the events from this place on.
    pub fn truncate(&mut self, place: usize) {
        self.events.truncate(place);
    }

    /// The clock value of the event at this place, in cycles.
    #[inline]
    #[must_use]
    pub fn cycles(&self, place: usize) -> Option<u64> {
        self.events.get(place).map(|event| event.cycles)
    }

    /// The clock values of all events, in cycles.
    pub fn all_cycles(&self) -> impl Iterator<Item = u64> {
        self.events.iter().map(|event| event.cycles)
    }

    /// The event at this place. `bytes` and `trace` are those in which it was found.
    #[inline]
    #[must_use]
    pub fn event<'a>(
        &'a self,
        trace: &'a Trace,
        bytes: &'a [u8],
        place: usize,
    ) -> Option<Event<'a>> {
        let found = self.events.get(place)?;
        let stream = trace.streams.get(&self.stream_class)?;
        Some(Event {
            trace,
            stream,
            class: stream.events.get(found.class)?,
            cycles: found.cycles,
            bytes,
            end: self.end,
            context_at: self.context_at,
            fields_at: found.fields_at,
            shift: self.shift,
            slots: &self.slots,
            packet: self.packet,
        })
    }
}
