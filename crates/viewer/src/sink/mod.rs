//! What a sink is: a destination of the events of a run, and what it needs of them.

pub mod losses;
pub mod render;

use std::io;
use std::time::Instant;

use ctf::decode::{Event, FieldError, LostEvents};
use debug_info::EventLocations;
use thiserror::Error;

pub use self::render::{EventTime, RenderedRun, Renderer};
use crate::attach::{StreamInfo, StreamKey, TraceInfo, TraceKey};
use crate::time::Nanoseconds;

/// A destination of events, which have been put in order.
pub trait Sink {
    /// Shows an event. Events come in order of time over all streams, unless the sink
    /// [needs](Needs) no order.
    ///
    /// # Errors
    /// If it cannot be written.
    fn event(&mut self, event: &Event<'_>, origin: Origin<'_>) -> Result<(), SinkError>;

    /// Called for an event within the times that are shown, which the filter does not let through.
    /// It may be the end of something that is shown.
    ///
    /// # Errors
    /// If the event cannot be decoded.
    fn filtered_out(&mut self, event: &Event<'_>, origin: Origin<'_>) -> Result<(), SinkError> {
        let _ = (event, origin);
        Ok(())
    }

    /// The number of events that the output shows, of `events` that the sink was given. An event
    /// may be nothing that users see, as the definition of a name.
    fn shown_events(&self, events: u64) -> u64 {
        events
    }

    /// Shows events or packets that were lost, where that was found. Losses are reported on
    /// standard error in any case: a sink whose form has no place for them does nothing.
    ///
    /// # Errors
    /// If it cannot be written.
    fn lost(&mut self, loss: &Loss, origin: Origin<'_>) -> Result<(), SinkError>;

    /// Writes what has been held back, because nothing more can be shown for now, and forgets the
    /// streams and traces that have `ended`.
    ///
    /// # Errors
    /// If it cannot be written.
    fn flush(&mut self, ended: &Ended) -> Result<Next, SinkError>;

    /// Completes the output: no further call follows. Without `is_whole`, something that was to be
    /// shown could not be read.
    ///
    /// # Errors
    /// If it cannot be written.
    fn finish(&mut self, is_whole: bool) -> Result<Finished, SinkError>;
}

/// A sink that takes packets and metadata as they were recorded, besides events.
pub trait PacketSink: Sink {
    /// Takes a whole packet, before its first event. A large one comes in pieces, one after the
    /// other.
    ///
    /// # Errors
    /// If it cannot be written.
    fn packet(&mut self, bytes: &[u8], origin: Origin<'_>) -> Result<(), SinkError>;

    /// Takes more metadata of a trace, before the packets that need it.
    ///
    /// # Errors
    /// If it cannot be written.
    fn metadata(&mut self, bytes: &[u8], trace: &TraceInfo) -> Result<(), SinkError>;
}

/// A sink whose events other threads can render.
pub trait RenderedSink: Sink {
    /// Makes a renderer for another thread.
    fn renderer(&self) -> Box<dyn Renderer>;

    /// Shows events that a [renderer](Self::renderer) of this sink has rendered.
    ///
    /// # Errors
    /// If they cannot be written.
    fn show_run(&mut self, run: &RenderedRun) -> Result<(), SinkError>;
}

/// A sink by what it can take.
pub enum OpenSink {
    /// The sink takes events, and nothing else.
    Events(Box<dyn Sink>),
    /// The sink takes packets besides events.
    Packets(Box<dyn PacketSink>),
    /// The sink takes events that other threads have rendered, besides others.
    Rendered(Box<dyn RenderedSink>),
}

impl OpenSink {
    /// The sink, as one that takes events.
    #[inline]
    pub fn sink(&mut self) -> &mut dyn Sink {
        match self {
            Self::Events(sink) => &mut **sink,
            Self::Packets(sink) => &mut **sink,
            Self::Rendered(sink) => &mut **sink,
        }
    }
}

/// What a sink needs of the events of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Needs {
    /// The events themselves. Otherwise they are only counted, which is faster.
    pub events: bool,
    /// An order of time over all streams. Otherwise a stream does not wait for others.
    pub order: bool,
    /// Everything from the begin of a session on, also of a session that is opened again under the
    /// same name.
    pub begin: bool,
    /// Why no part of a trace may be left out, as the end of a sentence about the sink. Absent if a
    /// selection is allowed.
    pub whole: Option<&'static str>,
}

impl Needs {
    /// The needs of most sinks: events, in order.
    pub const EVENTS: Self = Self {
        events: true,
        order: true,
        begin: false,
        whole: None,
    };
}

/// What nothing more comes of.
#[derive(Debug, Default)]
pub struct Ended {
    /// Streams that have ended, in that order.
    pub streams: Vec<StreamKey>,
    /// Traces that have ended, after all their streams.
    pub traces: Vec<TraceKey>,
}

/// What a sink waits for after a flush.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// The sink waits for an event.
    Event,
    /// The sink waits for an event, or for a flush at this time.
    FlushAt(Instant),
    /// The sink waits for nothing: its output is complete.
    Finish,
}

/// What there is to say about a finished output.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Finished {
    /// What of the output its reader may misunderstand, one sentence each.
    pub warnings: Vec<String>,
    /// What was asked for and was not found, one sentence each.
    pub missing: Vec<String>,
    /// What has been written, in one line.
    pub summary: Option<String>,
}

/// The trace and the stream that an event is from.
#[derive(Debug, Clone, Copy)]
pub struct Origin<'a> {
    /// The trace that the event is of.
    pub trace: &'a TraceInfo,
    /// The stream that the event is of.
    pub stream: &'a StreamInfo,
    /// What the addresses in the event are. Absent without `--debug-info`.
    pub locations: Option<&'a EventLocations>,
}

/// A number in a field of an event.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    /// An unsigned integer of up to 64 bits.
    Unsigned(u64),
    /// A signed integer of up to 64 bits.
    Signed(i64),
    /// A floating point number, neither infinite nor NaN.
    Float(f64),
}

/// A loss on a stream, and its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loss {
    /// The things that were lost.
    pub what: Lost,
    /// The begin of the time of the loss. Absent if it is not known.
    pub begin: Option<Nanoseconds>,
    /// The end of the time of the loss. Absent if it is not known.
    pub end: Option<Nanoseconds>,
}

/// The things that were lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lost {
    /// Events, and how many if that is known.
    Events(LostEvents),
    /// This number of packets.
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
