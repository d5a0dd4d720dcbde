//! Measures the spans of all events that a sink gets: what those sinks share that show spans and
//! not events.

use ctf::decode::{Event, FieldError};

use super::name_numbers::{NameNumbers, OTHER};
use super::span_edges::EdgeReader;
use super::span_observer::SpanObserver;
use super::span_owners::{MAX_OWNERS, SpanOwner};
use super::span_times::SpanTimes;
use crate::attach::TraceKey;
use crate::sink::{Ended, Origin};

/// Finds spans among events, and tells an observer how long they take.
#[derive(Debug)]
pub struct SpanMeter<O: SpanObserver> {
    reader: EdgeReader,
    times: SpanTimes<O>,
}

impl<O: SpanObserver> SpanMeter<O> {
    /// Measures spans for `observer`.
    pub fn new(observer: O) -> Self {
        Self {
            reader: EdgeReader::default(),
            times: SpanTimes::new(observer),
        }
    }

    /// What receives the results.
    pub fn observer(&self) -> &O {
        self.times.observer()
    }

    /// The names of spans by their numbers.
    pub fn names(&self) -> &NameNumbers {
        self.times.names()
    }

    /// The process and thread of a number that the observer got, by the names that are known now.
    pub fn owner(&self, number: u32) -> SpanOwner {
        self.reader.owner(number)
    }

    /// Whether the threads are of several hosts.
    pub fn has_several_hosts(&self) -> bool {
        self.reader.has_several_hosts()
    }

    /// Reads an event. If it is not shown, it ends spans, and a span that it begins is not
    /// measured.
    ///
    /// # Errors
    /// If the fields of the event cannot be decoded.
    pub fn read(
        &mut self,
        event: &Event<'_>,
        origin: Origin<'_>,
        is_shown: bool,
    ) -> Result<(), FieldError> {
        if let Some(edge) = self.reader.read(event, origin)? {
            self.times.add(&edge, origin.trace.key, is_shown);
        }
        Ok(())
    }

    /// Events of a trace were lost.
    pub fn add_loss(&mut self, trace: TraceKey) {
        self.times.add_loss(trace);
    }

    /// Forgets the traces that have ended; what is open of them has no end.
    pub fn end(&mut self, ended: &Ended) {
        for trace in &ended.traces {
            self.times.end_trace(*trace);
            self.reader.forget_trace(*trace);
        }
    }

    /// Measures what has been held back: nothing more comes.
    pub fn finish(&mut self) {
        self.times.finish();
    }

    /// What was not measured as it should have been, one sentence each.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = self.times.warnings();
        if self.reader.has_other_threads() {
            warnings.push(format!(
                "more than {MAX_OWNERS} threads: the spans of further ones are those of {OTHER}"
            ));
        }
        if self.reader.has_unpaired() {
            warnings.push(
                "begins and ends of spans without a thread cannot be paired and are left out; \
                 record them with: lttng add-context -u -t vpid -t vtid"
                    .to_owned(),
            );
        }
        warnings
    }
}
