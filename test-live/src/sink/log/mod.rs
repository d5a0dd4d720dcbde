//! One line for each event, for people: time, host, program with process and thread, severity,
//! name, and the fields as `key=value`. What is the same in `consumer rings --print` comes from
//! `daemon::event_text`.
//!
//! Read in this order; each module uses only those before it: `fields` (the fields of an event as
//! text), `line` (one line), `sent` (events that were sent in Trace Event Format).
//!
//! - Events within a span are indented, and an end has the duration. Which events are begins and
//!   ends is decided as for a `trace.json`, by the modules `kind` and `calls` of the sink `tef`.
//! - Of a span of `tracing` there is a line where it begins and one where it ends, which
//!   `daemon::span_lines` makes.
//! - Events that were sent in Trace Event Format are their phase and name, with their arguments as
//!   fields.
//! - In a recording of CodeTracer, calls are the begin and end of a span, and other lines say what
//!   the program has done. What defines names and numbers is not shown.
//! - A field `message` is shown after the name, without its own.
//! - Left out are the fields that the head of the line shows, those of the packet context that
//!   describe the packet, those whose names begin with `_`, and empty structures.
//! - Names and texts come from anywhere: control characters are escaped.

mod fields;
mod line;
mod recording;
mod sent;
#[cfg(test)]
mod tests;

use std::io::Write;

use ::tef::ctf::RecordDecoder;
use ::tef::json_args::has_json_args;
use ctf::decode::{Event, FieldError, LostEvents};
use ctf::metadata::Trace;
use ctf::model::EnvironmentValue;
use daemon::event_text::{EventSource, SourceId};
use daemon::open_spans::{EndedSpan, OpenSpans, SpanEdge};
use daemon::span_lines::{SpanEvent, SpanLines, SpanStep};
use viewer::attach::TraceKey;
use viewer::interpret::calls::{CallRecord, Recordings};
use viewer::interpret::debug_info::EventLocations;
use viewer::interpret::environment::Environment;
use viewer::interpret::kind::{RecordKind, RecordKinds};
use viewer::interpret::threads::{Host, OwnerKey, Thread, ThreadKey, ThreadNames};
use viewer::sink::{Ended, Finished, Loss, Lost, Needs, Next, OpenSink, Origin, Sink, SinkError};

use self::fields::{ContextHead, LogFields, Omitted};
use self::line::LineWriter;
use super::buffer;
use super::row::{Open, SinkRow};
use super::text::{ClockFormat, ShownTime, Times};

/// The clock of the trace, by which spans are measured.
const TRACE_CLOCK: u32 = 0;
/// The clock of programs that have sent their times.
const PROGRAM_CLOCK: u32 = 1;

/// The lowest of the severities that are shown as `DEBUG`.
const LOWEST_DEBUG: u8 = 13;

/// The tracers whose streams are numbered, and are not those of CPUs.
const OWN_TRACERS: [&str; 3] = ["trace-ring", "codetracer", "tldrs"];

/// The row of the sink that writes lines for people.
pub const ROW: SinkRow = SinkRow {
    name: "log",
    help: "One line for each event, for people: with severities, durations, and spans indented",
    needs: Needs::EVENTS,
    open: Open::Stream(|out, context| {
        let text = &context.options.text;
        let options = LogOptions {
            clock: text.clock(),
            has_colors: text.has_colors(context.is_terminal),
        };
        Ok(OpenSink::Events(Box::new(Log::new(out, options))))
    }),
    download: None,
};

/// The options of the sink.
#[derive(Debug, Clone, Default)]
pub struct LogOptions {
    /// The format of times. (`--clock-*`)
    pub clock: ClockFormat,
    /// Whether lines have colours. (`--color`)
    pub has_colors: bool,
}

/// Writes each event as a line for people.
#[derive(Debug)]
pub struct Log<W> {
    output: W,
    out: Vec<u8>,
    line: LineWriter,
    fields: LogFields,
    names: ThreadNames,
    spans: OpenSpans<ThreadKey>,
    span_lines: SpanLines,
    kinds: RecordKinds,
    sent: RecordDecoder,
    recordings: Recordings,
    /// The number of lines about losses.
    loss_lines: u64,
}

/// What an event says besides its fields.
#[derive(Debug, Clone, Copy)]
struct Head<'a> {
    name: &'a str,
    log_level: Option<u8>,
    /// Cycles and nanoseconds, if there is a clock.
    time: Option<ShownTime>,
    environment: Environment<'a>,
    trace: TraceKey,
    host: Host,
    /// Whether the streams of the trace are those of CPUs.
    has_cpus: bool,
    /// What the addresses in the event are.
    locations: Option<&'a EventLocations>,
}

impl Head<'_> {
    fn nanoseconds(&self) -> Option<i64> {
        self.time?.time
    }

    fn thread(&self, process: Option<i64>, thread: Thread) -> ThreadKey {
        ThreadKey {
            host: self.host,
            process: process.map(OwnerKey::Number),
            thread,
        }
    }
}

/// The begin or end of a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Edge<'a> {
    Begin(&'a str),
    End(&'a str),
}

impl<'a> Edge<'a> {
    /// What an event of this kind is, unless it is of a span of `tracing`; `captured` is the member
    /// that says which function.
    fn of(kind: &'a RecordKind, captured: &'a str) -> Option<Self> {
        match kind {
            RecordKind::Begin(span) => Some(Edge::Begin(&span.name)),
            RecordKind::End(span) => Some(Edge::End(&span.name)),
            RecordKind::FunctionEntry => Some(Edge::Begin(captured)),
            RecordKind::FunctionExit => Some(Edge::End(captured)),
            RecordKind::SpanEnter | RecordKind::SpanExit => None,
            RecordKind::Record | RecordKind::Log | RecordKind::Instant => None,
        }
    }
}

/// The member of the payload that is not shown as a field, because it is the name of a span or a
/// message.
fn captured_member(kind: &RecordKind, is_span: bool) -> &'static str {
    match kind {
        _ if is_span => "name",
        RecordKind::FunctionEntry | RecordKind::FunctionExit => "addr",
        _ => "message",
    }
}

impl<W: Write> Log<W> {
    /// A sink that writes to `output`, which needs no buffer of its own.
    pub fn new(output: W, options: LogOptions) -> Self {
        Self {
            output,
            out: buffer::with_capacity(),
            line: LineWriter::new(Times::new(options.clock), options.has_colors),
            fields: LogFields::default(),
            names: ThreadNames::default(),
            spans: OpenSpans::default(),
            span_lines: SpanLines::default(),
            kinds: RecordKinds::default(),
            sent: RecordDecoder::default(),
            recordings: Recordings::default(),
            loss_lines: 0,
        }
    }

    /// What an event says besides its fields.
    fn head<'a>(&mut self, event: &Event<'a>, origin: Origin<'a>) -> Head<'a> {
        let class = event.class();
        let trace = origin.trace.key;
        let environment = Environment::of(event.trace());
        let has_cpus = has_cpus(event.trace());
        Head {
            name: class.name().unwrap_or("<unknown>"),
            log_level: class.log_level().map(|level| severity(level.0, has_cpus)),
            time: ShownTime::of(event),
            environment,
            trace,
            host: self.names.host(environment.host, trace),
            has_cpus,
            locations: origin.locations,
        }
    }

    /// Writes an event of a class that the trace declares, whose fields `visit` visits.
    /// One that is not selected is of a span, whose other events may be.
    fn write_declared(
        &mut self,
        head: Head<'_>,
        kind: &RecordKind,
        is_selected: bool,
        visit: impl FnOnce(&mut LogFields) -> Result<(), FieldError>,
    ) -> Result<(), SinkError> {
        let span_event = SpanEvent::of(head.name);
        let captured_member = captured_member(kind, span_event.is_some());
        self.fields.begin_event(Omitted::ShownAndInternal {
            captured: captured_member,
            has_cpus: head.has_cpus,
            has_span_ids: span_event.is_some(),
        });
        visit(&mut self.fields)?;
        self.fields.push_other_ids();
        if let Some(locations) = head.locations {
            self.fields.push_locations(locations);
        }
        let environment = head.environment;
        let context = &self.fields.head;
        // The number of the innermost namespace is the one that the program itself sees.
        let pid = context.vpid.or(context.pid).or(environment.process);
        let tid = context.vtid.or(context.tid);
        let thread = environment.thread(tid);
        let key = match thread {
            Some(tid) => head.thread(pid, Thread::Id(OwnerKey::Number(tid))),
            None => head.thread(pid, Thread::Cpu(context.cpu.unwrap_or(0))),
        };
        // Without an id, only the thread says which span is entered or left.
        let is_edge = matches!(kind, RecordKind::SpanEnter | RecordKind::SpanExit);
        let is_span_line = thread.is_some() && (context.span.is_some() || is_edge);
        if span_event.is_some() && !is_span_line {
            self.fields.push_span_ids();
        }
        let (context, captured) = (&self.fields.head, self.fields.captured());
        let is_paired = kind.fits(thread.is_some(), environment.is_kernel);
        let mut span_line = None;
        if let Some((event, target)) = span_event.filter(|_| is_span_line) {
            let step = SpanStep {
                event,
                group: head.trace.0,
                process: pid,
                id: context.span,
                parent: context.parent,
                name: captured,
                time: head.nanoseconds(),
                is_selected,
            };
            let members = self.fields.members();
            let Some(line) = self.span_lines.line(&mut self.spans, key, &step, members) else {
                return Ok(());
            };
            span_line = Some((target, line));
        } else if !is_selected {
            return Ok(());
        }
        let edge = Edge::of(kind, captured).filter(|_| is_paired);
        let span = |name| span_edge(name, head.nanoseconds());
        let ended = match edge {
            Some(Edge::End(name)) => self.spans.end(&key, span(name)),
            _ => EndedSpan {
                depth: self.spans.depth(&key),
                ..EndedSpan::default()
            },
        };
        let source = source(&head, context, &self.names, pid, tid);
        if let Some((target, line)) = span_line {
            self.line
                .begin(head.time, source, head.log_level, line.depth);
            self.line.push_span(target, &line.text);
            let [_, contexts] = self.fields.texts();
            self.line.end(["", contexts], &mut self.out);
            return Ok(());
        }
        self.line
            .begin(head.time, source, head.log_level, ended.depth);
        self.line.push_printable(head.name);
        self.line.push_duration(ended.duration);
        self.line.push_captured(captured_member, captured);
        self.line.end(self.fields.texts(), &mut self.out);
        // After its line, because a begin is not within its own span.
        if let Some(Edge::Begin(name)) = edge {
            self.spans.begin(key, head.trace.0, span(name), ());
        }
        Ok(())
    }

    fn write_loss(&mut self, loss: &Loss, origin: Origin<'_>) {
        // The ends of open spans may be among what was lost.
        self.spans.add_loss(origin.trace.key.0);
        self.span_lines.add_loss();
        let mut what = match loss.what {
            Lost::Events(LostEvents::Some) => "events may be lost".to_owned(),
            Lost::Events(LostEvents::Count(1)) => "1 event lost".to_owned(),
            Lost::Events(LostEvents::Count(count)) => format!("{count} events lost"),
            Lost::Packets(1) => "1 packet lost".to_owned(),
            Lost::Packets(count) => format!("{count} packets lost"),
        };
        if let Some(begin) = loss.begin {
            let mut time = Vec::new();
            self.line.times.write(&mut time, begin.get());
            what.push_str(&format!(" since {}", String::from_utf8_lossy(&time)));
        }
        what.push_str(&format!(" in stream {}", origin.stream.name));
        if !origin.trace.name.is_empty() {
            what.push_str(&format!(" of trace {}", origin.trace.name));
        }
        // A loss has no cycles.
        let time = loss.end.or(loss.begin);
        let time = time.map(|time| ShownTime::near(time.get()));
        self.line.begin(time, EventSource::default(), None, 0);
        self.line.push_loss(&what);
        self.line.end(["", ""], &mut self.out);
        self.loss_lines += 1;
    }
}

/// Where an event of this process and thread is from.
fn source<'a>(
    head: &Head<'a>,
    context: &'a ContextHead,
    names: &'a ThreadNames,
    pid: Option<i64>,
    tid: Option<i64>,
) -> EventSource<'a> {
    let own_name = head.environment.process_name.unwrap_or_default();
    EventSource {
        host: match head.environment.host {
            Some(host) => host,
            None => &context.hostname,
        },
        program: match &*context.procname {
            "" if own_name.is_empty() => names.program(head.host, pid.map(OwnerKey::Number)),
            "" => own_name,
            procname => procname,
        },
        pid: pid.map(SourceId::Number),
        tid: tid.map(SourceId::Number),
    }
}

/// The severity that is shown for a log level. The lowest one is `TRACE` in our own traces and
/// TRACE_DEBUG in those of LTTng, whose tracepoints have it unless they declare another.
fn severity(log_level: u8, is_by_lttng: bool) -> u8 {
    if is_by_lttng {
        log_level.min(LOWEST_DEBUG)
    } else {
        log_level
    }
}

/// Whether the streams of a trace are those of CPUs. Those of our own producers are not.
fn has_cpus(trace: &Trace) -> bool {
    match trace.environment_value("tracer_name") {
        Some(EnvironmentValue::Text(name)) => !OWN_TRACERS.contains(&&**name),
        _ => true,
    }
}

/// An edge of a span by the clock of the trace.
fn span_edge(name: &str, time: Option<i64>) -> SpanEdge<'_> {
    SpanEdge {
        name: Some(name).filter(|name| !name.is_empty()),
        time,
        clock: TRACE_CLOCK,
        id: None,
    }
}

impl<W: Write> Sink for Log<W> {
    fn event(&mut self, event: &Event<'_>, origin: Origin<'_>) -> Result<(), SinkError> {
        let head = self.head(event, origin);
        let trace = head.trace;
        if has_json_args(event.class().name()) && self.write_sent(event, head)? {
            return Ok(buffer::write_if_full(&mut self.out, &mut self.output)?);
        }
        match self.recordings.record(event, trace)? {
            Some(CallRecord::None) => {}
            Some(record) => self.write_recorded(event, head, &record)?,
            None => {
                let kind = self.kinds.kind(event, trace);
                self.write_declared(head, &kind, true, |fields| event.visit(fields))?;
            }
        }
        Ok(buffer::write_if_full(&mut self.out, &mut self.output)?)
    }

    fn filtered_out(&mut self, event: &Event<'_>, origin: Origin<'_>) -> Result<(), SinkError> {
        // The fields or the end of a span whose other events are shown.
        if SpanEvent::of(event.class().name().unwrap_or_default()).is_some() {
            let head = self.head(event, origin);
            let kind = self.kinds.kind(event, head.trace);
            self.write_declared(head, &kind, false, |fields| event.visit(fields))?;
        }
        Ok(buffer::write_if_full(&mut self.out, &mut self.output)?)
    }

    fn shown_events(&self, _events: u64) -> u64 {
        self.line.lines - self.loss_lines
    }

    fn lost(&mut self, loss: &Loss, origin: Origin<'_>) -> Result<(), SinkError> {
        self.write_loss(loss, origin);
        Ok(buffer::write_if_full(&mut self.out, &mut self.output)?)
    }

    fn flush(&mut self, ended: &Ended) -> Result<Next, SinkError> {
        for trace in &ended.traces {
            self.kinds.forget_trace(*trace);
            self.recordings.forget_trace(*trace);
            // The ends of its open spans do not come any more.
            self.spans.forget_group(trace.0);
            self.span_lines.forget_group(trace.0);
        }
        buffer::flush(&mut self.out, &mut self.output)?;
        Ok(Next::Event)
    }

    fn finish(&mut self, _is_whole: bool) -> Result<Finished, SinkError> {
        buffer::flush(&mut self.out, &mut self.output)?;
        Ok(Finished::default())
    }
}
