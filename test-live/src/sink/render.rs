//! Events that are rendered by other threads than that of the sink, which puts them in order.

use ctf::decode::Event;

use super::{Origin, SinkError};

/// Renders events for a sink, on a thread of its own. What depends on the event before is left to the sink.
pub trait Renderer: Send {
    /// Appends what the sink needs of an event to `out`: two parts. Returns the length of the first.
    ///
    /// # Errors
    /// If the event's bytes are not what they were when it was found.
    fn render(
        &mut self,
        event: &Event<'_>,
        origin: Origin<'_>,
        out: &mut Vec<u8>,
    ) -> Result<usize, SinkError>;
}

/// An event that a [`Renderer`] has rendered.
#[derive(Debug, Clone, Copy)]
pub struct RenderedEvent<'a> {
    /// The time in cycles of the stream's clock.
    pub cycles: u64,
    /// The time in nanoseconds since the clock's origin; none if the stream has no clock.
    pub time: Option<i64>,
    /// The two parts of what was rendered.
    pub parts: (&'a [u8], &'a [u8]),
}

/// Events that have been rendered one after the other.
#[derive(Debug, Default)]
pub(crate) struct RenderedEvents {
    text: Vec<u8>,
    /// Of each event: where its second part begins, and where it ends.
    ends: Vec<(usize, usize)>,
}

impl RenderedEvents {
    /// Forgets all events, and keeps their memory.
    pub(crate) fn clear(&mut self) {
        self.text.clear();
        self.ends.clear();
    }

    /// Renders one more event. Returns false if that failed: the sink shall fail in its place.
    pub(crate) fn add(
        &mut self,
        renderer: &mut dyn Renderer,
        event: &Event<'_>,
        origin: Origin<'_>,
    ) -> bool {
        let begin = self.text.len();
        let rendered = renderer.render(event, origin, &mut self.text);
        match rendered {
            Ok(first) => self.ends.push((begin + first, self.text.len())),
            Err(_) => self.text.truncate(begin),
        }
        rendered.is_ok()
    }

    /// The number of bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.text.len()
    }

    /// Both parts of the event at this place; none if it has not been rendered.
    #[inline]
    pub(crate) fn parts(&self, place: usize) -> Option<(&[u8], &[u8])> {
        let (middle, end) = *self.ends.get(place)?;
        let before = place
            .checked_sub(1)
            .and_then(|before| self.ends.get(before));
        let begin = before.map_or(0, |(_, end)| *end);
        Some((self.text.get(begin..middle)?, self.text.get(middle..end)?))
    }
}
