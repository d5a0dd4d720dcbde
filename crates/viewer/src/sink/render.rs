//! Events that are rendered by other threads than that of the sink, which puts them in order.

use ctf::decode::Event;

use super::{Origin, SinkError};
use crate::time::Nanoseconds;

/// Renders events for a sink, on a thread of its own.
pub trait Renderer: Send {
    /// Forgets what is known of streams and their packets: other streams, or other parts of them,
    /// follow.
    fn forget_streams(&mut self);

    /// Appends an event to `out`, in two parts: between them the sink writes what depends on the
    /// event before. Returns the length of the first, which is empty for a sink that writes nothing
    /// there.
    ///
    /// # Errors
    /// If the event's bytes are not what they were when it was found.
    fn first_event(
        &mut self,
        event: &Event<'_>,
        origin: Origin<'_>,
        out: &mut Vec<u8>,
    ) -> Result<usize, SinkError> {
        self.next_event(event, origin, out).map(|()| 0)
    }

    /// Appends the event that follows the one that was rendered last.
    ///
    /// # Errors
    /// If the event's bytes are not what they were when it was found.
    fn next_event(
        &mut self,
        event: &Event<'_>,
        origin: Origin<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), SinkError>;
}

/// The time of an event in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventTime {
    /// The time in cycles of the stream's clock.
    pub cycles: u64,
    /// The time since the clock's origin; none if the stream has no clock.
    pub time: Option<Nanoseconds>,
}

/// Events that a [`Renderer`] has rendered, one after the other.
#[derive(Debug, Default)]
pub struct RenderedRun {
    events: u64,
    text: Vec<u8>,
    /// Where the second part of the first event begins.
    middle: usize,
    /// The times of the first and of the last event.
    times: Option<(EventTime, EventTime)>,
}

impl RenderedRun {
    /// The number of events.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.events
    }

    /// The times of the first and of the last event. None if there is no event.
    #[must_use]
    pub fn times(&self) -> Option<(EventTime, EventTime)> {
        self.times
    }

    /// The first part of the first event, and all that follows it.
    #[must_use]
    pub fn parts(&self) -> (&[u8], &[u8]) {
        self.text.split_at(self.middle)
    }

    /// Forgets all events, and keeps their memory.
    pub(crate) fn clear(&mut self) {
        // The memory is kept: what is used for the first time has to be mapped by the system.
        self.text.clear();
        (self.events, self.middle, self.times) = (0, 0, None);
    }

    /// The number of bytes of text.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.text.len()
    }

    /// The number of bytes that there is memory for.
    pub(crate) fn capacity(&self) -> usize {
        self.text.capacity()
    }

    /// Renders one more event.
    #[inline]
    pub(crate) fn add(
        &mut self,
        renderer: &mut dyn Renderer,
        event: &Event<'_>,
        origin: Origin<'_>,
    ) -> Result<(), SinkError> {
        let time = EventTime {
            cycles: event.cycles(),
            time: event.time().and_then(Nanoseconds::new),
        };
        let begin = self.text.len();
        let rendered = match &mut self.times {
            Some((_, last)) => {
                *last = time;
                renderer.next_event(event, origin, &mut self.text)
            }
            None => {
                self.times = Some((time, time));
                let middle = renderer.first_event(event, origin, &mut self.text);
                middle.map(|middle| self.middle = middle)
            }
        };
        match rendered {
            Ok(()) => self.events += 1,
            // A part of an event must not be shown.
            Err(_) => self.text.truncate(begin),
        }
        rendered
    }
}
