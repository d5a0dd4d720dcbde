//! The selection of events that are shown: those between two times, those that a filter lets
//! through, and no more than were asked for. Losses and failures are reported and counted here,
//! whatever the sink.

use std::collections::HashMap;
use std::io;

use ctf::decode::Event;
use ctf::directory::TraceDirectory;
use ctf::metadata::Trace;
use daemon::output::print_message;
use daemon::progress::ProgressBar;

use crate::align::difference::DifferenceWatch;
use crate::attach::{Packet, StreamKey, TraceInfo, TraceKey};
use crate::bound::Bound;
use crate::filter::{Filter, UndeclaredNames};
use crate::interpret::debug_info::DebugInfo;
use crate::mux::Stage;
use crate::mux::slices::SliceStage;
use crate::sink::losses::{LossSum, write_warning};
use crate::sink::{
    Ended, Finished, Loss, Needs, Next, OpenSink, Origin, RenderedRun, Renderer, SinkError,
};
use crate::time::Nanoseconds;

/// The events that are to be shown.
#[derive(Debug, Default)]
pub struct Selection {
    /// The earliest time that is shown.
    pub begin: Option<Bound>,
    /// The latest time that is shown.
    pub end: Option<Bound>,
    /// The filter that events have to match.
    pub filter: Option<Filter>,
    /// No more events than this, of those that the sink shows.
    pub limit: Option<u64>,
    /// Whether to show nothing of traces whose metadata deviates from the specification.
    pub is_strict: bool,
}

/// The counts of what has been shown and what has not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Events that have been read, whether they were selected or not.
    pub read: u64,
    /// Events that have been shown.
    pub events: u64,
    /// Events and packets that were lost before they could be shown.
    pub lost: LossSum,
    /// Sessions, packets and streams that a relay has refused, or no longer had after the
    /// connection was lost.
    pub incomplete: u64,
    /// Streams and traces that could not be read to their end, packets that were passed over.
    pub failures: u64,
}

/// Largest number of streams and traces that have ended and that a sink may still remember. More
/// are not waited for until there is nothing to show.
const MAX_ENDED: usize = 64;

/// Appends a time as users want to see it.
pub type WriteTime = Box<dyn FnMut(Nanoseconds, &mut Vec<u8>)>;

/// The earliest and the latest time of a part of a trace that is shown.
type Span = (Nanoseconds, Nanoseconds);

/// The stage between the mux and a sink.
pub struct Select {
    selection: Selection,
    /// The names in the filter that no trace has declared, until they have been reported.
    undeclared: UndeclaredNames,
    /// The time of the last event that was not shown because of `begin` or `end`.
    outside: Option<Nanoseconds>,
    /// The times of single traces that are shown.
    spans: HashMap<TraceKey, Span>,
    /// Whether events are shown only at some times.
    has_times: bool,
    sink: OpenSink,
    needs: Needs,
    /// What has ended since the last flush.
    ended: Ended,
    /// Finds what addresses are. Absent without `--debug-info`.
    debug_info: Option<Box<DebugInfo>>,
    /// Looks whether the clocks of hosts differ. Absent if that is not of interest, or is known.
    differences: Option<Box<DifferenceWatch>>,
    /// Writes a time in warnings.
    write_time: WriteTime,
    tally: Tally,
    progress: ProgressBar,
}

impl Select {
    /// Shows `selection` to `sink`, and on standard error what was lost, with times as `write_time`
    /// writes them.
    #[must_use]
    pub fn new(selection: Selection, sink: OpenSink, needs: Needs, write_time: WriteTime) -> Self {
        let filter = selection.filter.as_ref();
        Self {
            undeclared: filter.map_or_else(UndeclaredNames::default, Filter::undeclared_names),
            outside: None,
            has_times: selection.begin.is_some() || selection.end.is_some(),
            selection,
            spans: HashMap::new(),
            sink,
            needs,
            ended: Ended::default(),
            debug_info: None,
            differences: None,
            write_time,
            tally: Tally::default(),
            progress: ProgressBar::hidden(),
        }
    }

    /// The counts so far.
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// Lets the sink write what it has held back, and forget what has ended.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn flush(&mut self) -> Result<Next, SinkError> {
        let next = self.sink.sink().flush(&self.ended)?;
        self.ended.streams.clear();
        self.ended.traces.clear();
        Ok(next)
    }

    /// Lets the sink complete its output: no further event follows.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn finish(&mut self) -> Result<Finished, SinkError> {
        self.flush()?;
        let is_whole = self.tally.incomplete == 0 && self.tally.failures == 0;
        self.sink.sink().finish(is_whole)
    }

    /// Makes a renderer of events for another thread. None if the sink has none.
    pub(crate) fn renderer(&self) -> Option<Box<dyn Renderer>> {
        match &self.sink {
            // What is mapped in a process is only known by all events before.
            _ if self.debug_info.is_some() => None,
            OpenSink::Rendered(sink) => Some(sink.renderer()),
            OpenSink::Events(_) | OpenSink::Packets(_) => None,
        }
    }

    /// Finds what the addresses in events are, and shows that with them.
    pub fn set_debug_info(&mut self, debug_info: DebugInfo) {
        self.debug_info = Some(Box::new(debug_info));
    }

    /// Tells the user, once, if samples of clocks among the events say that hosts differ by much.
    pub fn watch_differences(&mut self) {
        self.differences = Some(Box::default());
    }

    /// Shows on `bar` how many bytes of packets have been read.
    pub fn set_progress_bar(&mut self, bar: ProgressBar) {
        self.progress = bar;
    }

    /// Removes the progress bar.
    pub fn clear_progress_bar(&self) {
        self.progress.finish_and_clear();
    }

    /// Shows of a trace only the time in which all of its streams are active: from the latest begin
    /// of a first packet to the earliest end of a last one.
    pub fn restrict_to_intersection(&mut self, key: TraceKey, trace: &TraceDirectory) {
        let declared = trace.metadata.trace();
        let spans = trace.streams.iter().filter_map(|stream| {
            let scale = declared.stream(stream.class)?.timescale()?;
            let (begin, end) = stream.span()?;
            let time = |cycles| Nanoseconds::of_cycles(scale, cycles);
            time(begin).zip(time(end))
        });
        let both = |one: Span, other: Span| (one.0.max(other.0), one.1.min(other.1));
        if let Some(span) = spans.reduce(both) {
            self.spans.insert(key, span);
            self.has_times = true;
        }
    }

    /// Reports that something could not be read, and that its source continues.
    pub fn report_missing(&mut self, what: &str) {
        self.tally.incomplete += 1;
        self.write_message("error", what);
    }

    /// Tells the user something about what is shown.
    pub fn report_notice(&self, what: &str) {
        self.progress
            .suspend(|| print_message(format_args!("test-live: {what}")));
    }

    /// Writes a line to standard error, above the progress bar.
    fn write_message(&self, severity: &str, what: &str) {
        self.report_notice(&format!("{severity}: {what}"));
    }

    /// Reports the names in the filter that no trace has declared so far.
    pub(crate) fn report_undeclared_names(&mut self) {
        for description in self.undeclared.take_descriptions() {
            self.report_warning(&format!("--filter: {description}"));
        }
    }

    /// Says why nothing was shown, if there were events and none was selected. Otherwise none.
    pub fn describe_no_match(&mut self) -> Option<String> {
        let Tally { read, events, .. } = self.tally;
        if read == 0 || events > 0 {
            return None;
        }
        let mut time = Vec::new();
        if let Some(outside) = self.outside {
            (self.write_time)(outside, &mut time);
        }
        let time = String::from_utf8_lossy(&time);
        let is_before_begin = match (&mut self.selection.begin, self.outside) {
            (Some(begin), Some(last)) => begin.time(last) > last,
            _ => false,
        };
        Some(match self.outside {
            Some(_) if is_before_begin => {
                format!("no event at or after --begin: the last one is at {time}")
            }
            Some(_) => format!("no event at or before --end: the next one is at {time}"),
            None if let Some(filter) = &self.selection.filter => {
                let mut description = format!("none of the {read} events matches --filter");
                for missing in filter.describe_missing() {
                    description.push_str(&format!("; {missing}"));
                }
                description
            }
            None => format!("none of the {read} events is in the time range of all streams"),
        })
    }

    /// Whether all events are shown, and nothing else of them is wanted, as their packets.
    pub(crate) fn shows_all(&self) -> bool {
        let Selection { filter, limit, .. } = &self.selection;
        let copies = matches!(self.sink, OpenSink::Packets(_));
        !self.has_times && filter.is_none() && limit.is_none() && !copies
    }

    /// Counts an event, and says whether it is within the times that are shown.
    #[inline]
    fn place(&mut self, time: Option<Nanoseconds>, trace: TraceKey) -> Place {
        // By the first event, the traces that are there have declared theirs.
        if self.tally.read == 0 {
            self.report_undeclared_names();
        }
        self.tally.read += 1;
        if self.has_times {
            return self.place_in_times(time, trace);
        }
        Place::Within
    }

    /// Finds what the addresses in an event are.
    fn locate(&mut self, event: &Event<'_>, origin: Origin<'_>) -> Result<(), SinkError> {
        let Some(debug_info) = &mut self.debug_info else {
            return Ok(());
        };
        debug_info.locate(event, origin)?;
        for warning in debug_info.take_warnings() {
            self.write_message("warning", &warning);
        }
        Ok(())
    }

    fn place_in_times(&mut self, time: Option<Nanoseconds>, trace: TraceKey) -> Place {
        // An event without a time is before all others.
        let time = time.unwrap_or(Nanoseconds::MIN);
        let selection = &mut self.selection;
        if let Some(begin) = &mut selection.begin
            && time < begin.time(time)
        {
            self.outside = Some(time);
            return Place::Outside;
        }
        if let Some(end) = &mut selection.end
            && time > end.time(time)
        {
            // Events arrive in time order: none that follows is earlier.
            self.outside = Some(time);
            return Place::Behind;
        }
        // Few runs restrict single traces: others need no look into the map for each event.
        if !self.spans.is_empty()
            && let Some((begin, end)) = self.spans.get(&trace)
            && !(*begin..=*end).contains(&time)
        {
            return Place::Outside;
        }
        Place::Within
    }

    /// Whether `limit` has been reached before the first event.
    #[inline]
    #[must_use]
    pub fn is_limit_reached(&mut self) -> bool {
        let Some(limit) = self.selection.limit else {
            return false;
        };
        self.sink.sink().shown_events(self.tally.events) >= limit
    }
}

/// The place of an event relative to the times that are shown.
enum Place {
    Within,
    /// The event is before these times, or not in those of its trace.
    Outside,
    /// The event is after these times, as are all that follow.
    Behind,
}

impl Stage for Select {
    #[inline]
    fn event(
        &mut self,
        event: &Event<'_>,
        time: Option<Nanoseconds>,
        origin: Origin<'_>,
    ) -> Result<bool, SinkError> {
        if let Some(debug_info) = &mut self.debug_info {
            debug_info.learn(event, origin)?;
        }
        if let Some(differences) = &mut self.differences
            && let Some(notice) = differences.see(event)
        {
            self.differences = None;
            self.report_notice(&notice);
        }
        match self.place(time, origin.trace.key) {
            Place::Within => {}
            Place::Outside => return Ok(true),
            Place::Behind => return Ok(false),
        }
        if self.debug_info.is_some() {
            self.locate(event, origin)?;
        }
        let debug_info = self.debug_info.as_ref();
        let origin = Origin {
            locations: debug_info.map(|debug_info| debug_info.locations()),
            ..origin
        };
        let selection = &mut self.selection;
        if let Some(filter) = &mut selection.filter
            && !filter.matches(event, origin)
        {
            self.sink.sink().filtered_out(event, origin)?;
            // The sink may have shown that something has ended.
            return Ok(!self.is_limit_reached());
        }
        self.sink.sink().event(event, origin)?;
        self.tally.events += 1;
        Ok(!self.is_limit_reached())
    }

    fn counts_only(&self) -> bool {
        !self.needs.events && self.selection.filter.is_none()
    }

    #[inline]
    fn count_event(
        &mut self,
        time: Option<Nanoseconds>,
        trace: TraceKey,
    ) -> Result<bool, SinkError> {
        match self.place(time, trace) {
            Place::Within => {}
            Place::Outside => return Ok(true),
            Place::Behind => return Ok(false),
        }
        self.tally.events += 1;
        Ok(!self.is_limit_reached())
    }

    fn packet(&mut self, packet: &Packet, origin: Origin<'_>) -> Result<(), SinkError> {
        self.progress.inc(packet.len());
        // A relay with many short sessions ends streams while packets keep coming: the sink must be
        // told of them before they pile up.
        if self.ended.streams.len() + self.ended.traces.len() >= MAX_ENDED {
            self.flush()?;
        }
        let OpenSink::Packets(sink) = &mut self.sink else {
            return Ok(());
        };
        match packet.each_piece(|piece| sink.packet(piece, origin)) {
            Ok(copied) => copied,
            Err(error) => {
                let stream = &origin.stream.name;
                self.report_failure(&format!(
                    "cannot read a packet from its file: stream {stream}: {error}; \
                     the rest of the packet is not copied"
                ));
                Ok(())
            }
        }
    }

    fn declared(&mut self, trace: &Trace) {
        self.undeclared.add_declarations(trace);
    }

    fn stream_ended(&mut self, stream: StreamKey) {
        self.ended.streams.push(stream);
    }

    fn trace_ended(&mut self, trace: TraceKey) {
        // No event of the trace comes any more, and its key is not used again.
        self.spans.remove(&trace);
        if let Some(debug_info) = &mut self.debug_info {
            debug_info.forget_trace(trace);
        }
        self.ended.traces.push(trace);
    }

    fn metadata(&mut self, bytes: &[u8], trace: &TraceInfo) -> Result<(), SinkError> {
        match &mut self.sink {
            OpenSink::Packets(sink) => sink.metadata(bytes, trace),
            OpenSink::Events(_) | OpenSink::Rendered(_) => Ok(()),
        }
    }

    fn lost(&mut self, loss: &Loss, origin: Origin<'_>) -> Result<(), SinkError> {
        self.tally.lost.add(loss);
        let write_time = &mut self.write_time;
        // A closed standard error is not a failure of the viewer.
        self.progress.suspend(|| {
            let _ = write_warning(&mut io::stderr(), loss, origin, |time, out| {
                write_time(time, out);
            });
        });
        self.sink.sink().lost(loss, origin)
    }

    fn report_failure(&mut self, what: &str) {
        self.tally.failures += 1;
        self.write_message("error", what);
    }

    fn report_warning(&mut self, what: &str) {
        self.write_message("warning", what);
    }

    fn is_strict(&self) -> bool {
        self.selection.is_strict
    }
}

impl SliceStage for Select {
    fn show_run(&mut self, run: &RenderedRun) -> Result<(), SinkError> {
        if let OpenSink::Rendered(sink) = &mut self.sink {
            sink.show_run(run)?;
        }
        self.count_events(run.events());
        Ok(())
    }

    fn count_events(&mut self, count: u64) {
        self.tally.read += count;
        self.tally.events += count;
    }

    fn add_bytes_read(&mut self, bytes: u64) {
        self.progress.inc(bytes);
    }
}
