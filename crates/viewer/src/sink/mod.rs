//! What a sink is: a destination of the events of a run.

pub mod losses;
pub mod render;

use std::io;
use std::time::Instant;

use ::ctf::decode::{Event, FieldError, LostEvents};
use thiserror::Error;

pub use self::render::{EventTime, RenderedRun, Renderer};
use crate::attach::{StreamInfo, StreamKey, TraceInfo, TraceKey};

/// A destination of events, which have been put in order.
pub trait Sink {
    /// Shows an event. Events come in order of time over all streams.
    ///
    /// # Errors
    /// If it cannot be written.
    fn event(&mut self, event: &Event<'_>, origin: Origin<'_>) -> Result<(), SinkError>;

    /// Whether the sink does nothing with events: it need not be shown them then.
    fn ignores_events(&self) -> bool {
        false
    }

    /// A renderer of events for another thread; none if this sink renders all events itself.
    fn renderer(&self) -> Option<Box<dyn Renderer>> {
        None
    }

    /// Shows events that a [`renderer`](Self::renderer) of this sink has rendered.
    ///
    /// # Errors
    /// If they cannot be written.
    fn show_run(&mut self, run: &RenderedRun) -> Result<(), SinkError> {
        let _ = run;
        Ok(())
    }

    /// Whether events of different streams must come in order of time. If not, a stream does not
    /// wait for others.
    fn needs_order(&self) -> bool {
        true
    }

    /// Whether the sink wants to be given packets.
    fn copies_packets(&self) -> bool {
        false
    }

    /// A whole packet, before its first event. A large one is given in pieces, one after the other.
    ///
    /// # Errors
    /// If it cannot be written.
    fn packet(&mut self, bytes: &[u8], origin: Origin<'_>) -> Result<(), SinkError> {
        let _ = (bytes, origin);
        Ok(())
    }

    /// More metadata of a trace, before the packets that need it. Only sinks that copy look at it.
    ///
    /// # Errors
    /// If it cannot be written.
    fn metadata(&mut self, bytes: &[u8], trace: &TraceInfo) -> Result<(), SinkError> {
        let _ = (bytes, trace);
        Ok(())
    }

    /// Events or packets that were lost, where that was found.
    ///
    /// # Errors
    /// If it cannot be written.
    fn lost(&mut self, loss: &Loss, origin: Origin<'_>) -> Result<(), SinkError> {
        let _ = (loss, origin);
        Ok(())
    }

    /// The value of a counter at the event that was shown last. Returns whether it was shown.
    ///
    /// # Errors
    /// If it cannot be written.
    fn counter(&mut self, name: &str, value: Number) -> Result<bool, SinkError> {
        let _ = (name, value);
        Ok(false)
    }

    /// Called when a stream has ended: what is remembered of it can be forgotten.
    fn stream_ended(&mut self, stream: StreamKey) {
        let _ = stream;
    }

    /// Called when a trace has ended, after all its streams have ended.
    fn trace_ended(&mut self, trace: TraceKey) {
        let _ = trace;
    }

    /// Called when something that was to be shown could not be read.
    fn set_incomplete(&mut self) {}

    /// A warning about the output, for the end of the run.
    fn warning(&self) -> Option<&'static str> {
        None
    }

    /// Writes what has been held back, because nothing more can be shown for now.
    ///
    /// # Errors
    /// If it cannot be written.
    fn flush(&mut self) -> Result<(), SinkError>;

    /// The time at which to flush again, if the sink has held something back.
    fn flush_deadline(&self) -> Option<Instant> {
        None
    }

    /// Whether the sink needs no further event.
    fn is_complete(&self) -> bool {
        false
    }

    /// A line about what has been written, after [`finish`](Self::finish).
    fn summary(&self) -> Option<String> {
        None
    }

    /// Completes the output: no further event follows.
    ///
    /// # Errors
    /// If it cannot be written.
    fn finish(&mut self) -> Result<(), SinkError> {
        self.flush()
    }
}

/// The trace and the stream that an event is from.
#[derive(Debug, Clone, Copy)]
pub struct Origin<'a> {
    /// The trace that the event is of.
    pub trace: &'a TraceInfo,
    /// The stream that the event is of.
    pub stream: &'a StreamInfo,
}

/// A number in a field of an event.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    /// An unsigned integer.
    Unsigned(u64),
    /// A signed integer.
    Signed(i64),
    /// A floating point number, neither infinite nor NaN.
    Float(f64),
}

/// A loss on a stream, and its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loss {
    /// The things that were lost.
    pub what: Lost,
    /// Nanoseconds since the clock's origin; none if it is not known.
    pub begin: Option<i64>,
    /// The end, likewise.
    pub end: Option<i64>,
}

/// The things that were lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lost {
    /// Events, and how many if that is known.
    Events(LostEvents),
    /// So many packets.
    Packets(u64),
}

/// Why an event cannot be shown.
#[derive(Debug, Error)]
pub enum SinkError {
    /// The output cannot be written.
    #[error("cannot write the output")]
    Write(#[from] io::Error),
    /// The event's bytes are not what they were when it was found.
    #[error("cannot show an event")]
    Field(#[from] FieldError),
    /// The sink cannot go on, for a reason of its own.
    #[error(transparent)]
    Sink(Box<dyn std::error::Error + Send + Sync>),
}
