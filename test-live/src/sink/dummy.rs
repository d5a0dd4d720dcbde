//! Shows nothing: for measuring how fast events are decoded, and for checking that they can be.

use ctf::decode::Event;
use viewer::sink::{Ended, Finished, Loss, Needs, Next, OpenSink, Origin, Sink, SinkError};

use super::row::{Open, SinkRow};

/// The row of the sink that has no output.
pub const ROW: SinkRow = SinkRow {
    name: "dummy",
    help: "No output: decode only",
    needs: Needs {
        // Events need not be handed over: they are counted as they are found.
        events: false,
        ..Needs::EVENTS
    },
    open: Open::Stream(|_, _| Ok(OpenSink::Events(Box::new(Dummy)))),
    download: None,
};

/// A sink that forgets all events.
#[derive(Debug)]
pub struct Dummy;

impl Sink for Dummy {
    fn event(&mut self, _event: &Event<'_>, _origin: Origin<'_>) -> Result<(), SinkError> {
        Ok(())
    }

    fn lost(&mut self, _loss: &Loss, _origin: Origin<'_>) -> Result<(), SinkError> {
        Ok(())
    }

    fn flush(&mut self, _ended: &Ended) -> Result<Next, SinkError> {
        Ok(Next::Event)
    }

    fn finish(&mut self, _is_whole: bool) -> Result<Finished, SinkError> {
        Ok(Finished::default())
    }
}
