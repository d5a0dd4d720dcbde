//! Shows nothing: for measuring how fast events are decoded, and for checking that they can be.

use ctf::decode::Event;
use viewer::sink::{Origin, Sink, SinkError};

/// Forgets all events.
#[derive(Debug)]
pub struct Dummy;

impl Sink for Dummy {
    fn event(&mut self, _event: &Event<'_>, _origin: Origin<'_>) -> Result<(), SinkError> {
        Ok(())
    }

    fn ignores_events(&self) -> bool {
        true
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        Ok(())
    }
}
