//! Shows nothing: for measuring how fast events are decoded, and for checking that they can be.

use ctf::decode::Event;

use super::{Origin, Sink, SinkError};

/// Counts events and forgets them.
#[derive(Debug, Default)]
pub struct Dummy {
    events: u64,
}

impl Dummy {
    /// A sink that has seen no event.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The number of events so far.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.events
    }
}

impl Sink for Dummy {
    #[inline]
    fn event(&mut self, _event: &Event<'_>, _origin: Origin<'_>) -> Result<(), SinkError> {
        self.events += 1;
        Ok(())
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        Ok(())
    }
}
