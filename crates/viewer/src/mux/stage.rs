//! What the mux shows events to, and how far it came.

use ctf::decode::Event;
use ctf::metadata::{Trace, Warning};

use crate::attach::{Packet, StreamKey, TraceInfo, TraceKey};
use crate::sink::{Loss, Origin, SinkError};
use crate::time::Nanoseconds;

/// Receives the events of all streams, merged in time order.
pub trait Stage {
    /// Shows an event. Returns false if no further event is wanted. `time` is absent if the stream
    /// has no clock.
    ///
    /// # Errors
    /// If it cannot be shown.
    fn event(
        &mut self,
        event: &Event<'_>,
        time: Option<Nanoseconds>,
        origin: Origin<'_>,
    ) -> Result<bool, SinkError>;

    /// Whether events are only counted, by [`count_event`](Self::count_event): the stage need not
    /// see them then.
    fn counts_only(&self) -> bool {
        false
    }

    /// Counts an event. Returns false if no further event is wanted. `time` is absent if the stream
    /// has no clock.
    ///
    /// # Errors
    /// If it cannot be shown.
    fn count_event(
        &mut self,
        time: Option<Nanoseconds>,
        trace: TraceKey,
    ) -> Result<bool, SinkError> {
        let _ = (time, trace);
        Ok(true)
    }

    /// Takes a whole packet, before its events.
    ///
    /// # Errors
    /// If it cannot be shown.
    fn packet(&mut self, packet: &Packet, origin: Origin<'_>) -> Result<(), SinkError>;

    /// Takes more metadata, before the packets that need it.
    ///
    /// # Errors
    /// If it cannot be shown.
    fn metadata(&mut self, bytes: &[u8], trace: &TraceInfo) -> Result<(), SinkError>;

    /// Called when a trace has declared something, before the events of it.
    fn declared(&mut self, trace: &Trace) {
        let _ = trace;
    }

    /// Shows that events or packets were lost.
    ///
    /// # Errors
    /// If it cannot be shown.
    fn lost(&mut self, loss: &Loss, origin: Origin<'_>) -> Result<(), SinkError>;

    /// Called when nothing further of a stream is shown: what is remembered of it can be forgotten.
    fn stream_ended(&mut self, stream: StreamKey) {
        let _ = stream;
    }

    /// Called when nothing further of a trace is shown, after all its streams have ended.
    fn trace_ended(&mut self, trace: TraceKey) {
        let _ = trace;
    }

    /// Reports that something could not be read: a stream or a trace ends early, or a packet is
    /// skipped.
    fn report_failure(&mut self, what: &str);

    /// Reports something unusual by which nothing is lost.
    fn report_warning(&mut self, what: &str);

    /// Whether a trace is refused whose metadata deviates from the specification.
    fn is_strict(&self) -> bool {
        false
    }

    /// Reports what is unusual in the metadata of a trace. Returns whether the trace is refused
    /// therefore.
    fn report_metadata_warning(&mut self, trace: &str, warning: &Warning) -> bool {
        let is_refused = self.is_strict() && warning.deviation().is_some();
        if is_refused {
            self.report_failure(&format!(
                "cannot read metadata: trace {trace}: {warning}; with --strict the trace is not shown"
            ));
        } else {
            self.report_warning(&format!("trace {trace}: {warning}"));
        }
        is_refused
    }
}

/// Whether there is more to show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// A stream has nothing for now, and may yet have something earlier than all others.
    Waiting,
    /// All streams have ended.
    Ended,
    /// The stage wants no more.
    Enough,
}
