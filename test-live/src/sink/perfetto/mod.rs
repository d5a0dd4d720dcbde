//! A trace in Perfetto's own format, for ui.perfetto.dev and the trace processor.
//!
//! How slices and tracks are written is in the package `perfetto`. Read in this order: `spans` (the
//! fields of spans of `tracing`), `sent` (events that were sent in Trace Event Format), `kernel`
//! (events of a Linux kernel), `output` (files).
//!
//! - Which events begin and end slices is decided as for a `trace.json`. A slice is drawn when it
//!   ends, on the first lane of its thread where it nests. What is open at the end has no end.
//! - The fields of a span of `tracing` are arguments of its slices.
//! - Events of a kernel for which Perfetto has tables are those of ftrace; other ones, and system
//!   calls, are slices and points in time of their threads.
//! - Times are in nanoseconds since 1970.

mod kernel;
mod output;
mod sent;
mod spans;

use std::io::{self, Write};

use ::perfetto::canvas::Canvas;
use ::perfetto::fields::EventFields;
use ::perfetto::tracks::{Host, Owner, Place, hash};
use ::perfetto::{Argument, CounterValue, Mark, Text, Value};
use ::tef::event::OwnerId;
use ::tef::json_args::visit_object;
use ::tef::open_slices::EndOf;
use ctf::decode::{Event, LostEvents};
use timeline::{Content, DownloadFormat};
use viewer::attach::TraceKey;
use viewer::filter::NumberSelector;
use viewer::interpret::calls::{CallRecord, Recordings};
use viewer::interpret::debug_info::EventLocations;
use viewer::interpret::environment::Environment;
use viewer::interpret::kind::{RecordKind, RecordKinds, target_of_span};
use viewer::sink::{
    Ended, Finished, Loss, Lost, Needs, Next, Number, OpenSink, Origin, Sink, SinkError,
};

use self::kernel::Kernel;
use self::output::Output;
use self::sent::{Drawn, Sent, SentRecords};
use self::spans::SpanFields;
use super::counters::Counters;
use super::row::{Open, SinkRow};
use super::tef::SentTimes;

/// Warns of spans that are shown as points in time.
const UNPAIRED_WARNING: &str = "begins and ends of spans without a thread cannot be paired and are shown as instants; \
    record them with: lttng add-context -u -t vpid -t vtid";

/// The row of the sink that writes Perfetto's format.
pub const ROW: SinkRow = SinkRow {
    name: "perfetto",
    help: "Perfetto's own format, for ui.perfetto.dev and its SQL; gzipped if the file ends in .gz",
    needs: Needs::EVENTS,
    open: Open::Stream(|out, context| {
        let tef = &context.options.tef;
        let out = Output::new(out, context.output);
        let sink = Perfetto::new(out, tef.options().sent, tef.counters()?);
        Ok(OpenSink::Events(Box::new(sink)))
    }),
    download: Some(DownloadFormat {
        name: "perfetto",
        file: "trace.pftrace",
        media_type: "application/octet-stream",
        content: Content::Events(|out| {
            let sent = SentTimes::Producer;
            Box::new(Perfetto::new(Output::Plain(out), sent, Vec::new()))
        }),
    }),
};

/// Writes a trace of Perfetto.
pub struct Perfetto {
    out: Output,
    buffer: Vec<u8>,
    sent_times: SentTimes,
    /// The time of the last event that had one, in nanoseconds.
    now: i64,
    /// Whether the last event had the time of a program.
    is_program_time: bool,
    canvas: Canvas,
    fields: EventFields,
    kinds: RecordKinds,
    sent: SentRecords,
    spans: SpanFields,
    kernel: Kernel,
    recordings: Recordings,
    counters: Counters,
    /// Whether the begin or end of a span was written as a point in time, because its thread is
    /// not known.
    has_unpaired: bool,
    is_finished: bool,
}

impl Perfetto {
    fn new(out: Output, sent_times: SentTimes, counters: Vec<NumberSelector>) -> Self {
        Self {
            out,
            buffer: Vec::new(),
            sent_times,
            now: 0,
            is_program_time: false,
            canvas: Canvas::default(),
            fields: EventFields::default(),
            kinds: RecordKinds::default(),
            sent: SentRecords::default(),
            spans: SpanFields::default(),
            kernel: Kernel::default(),
            recordings: Recordings::default(),
            counters: Counters::new(counters),
            has_unpaired: false,
            is_finished: false,
        }
    }

    /// Draws an event. Returns where, unless there is nothing to draw.
    fn draw(&mut self, event: &Event<'_>, origin: Origin<'_>) -> Result<Option<Drawn>, SinkError> {
        let environment = Environment::of(event.trace());
        let owner = (host_of(environment, origin), &*origin.trace.name);
        let (times, now) = (self.sent_times, self.now);
        let sent = self.sent.draw(event, times, owner, now, &mut self.canvas)?;
        self.is_program_time = !matches!(sent, Sent::Other) && times == SentTimes::Producer;
        match sent {
            Sent::Drawn(drawn) => {
                self.now = drawn.time;
                return Ok(Some(drawn));
            }
            Sent::Nothing => return Ok(None),
            Sent::Other => {}
        }
        // An event without a time is shown where the one before it was.
        self.now = event.time().unwrap_or(self.now);
        let call = self.recordings.record(event, origin.trace.key)?;
        if let Some(CallRecord::None) = call {
            return Ok(None);
        }
        let kind = self.kinds.kind(event, origin.trace.key);
        self.fields.begin_event(kind.is_generic());
        event.visit(&mut self.fields)?;
        let program = self.recordings.program(origin.trace.key);
        let environment = environment.of_program(program);
        let mut owner = owner_of(&self.fields, environment, origin);
        if environment.is_kernel {
            let (now, canvas) = (self.now, &mut self.canvas);
            let kernel = &mut self.kernel;
            if kernel.draw(event, &self.fields, &mut owner, origin, now, canvas) {
                return Ok(None);
            }
        }
        let place = self.canvas.place(&owner, self.now);
        let drawn = Drawn {
            time: self.now,
            place,
        };
        if let Some(CallRecord::Begin(name, args)) = call {
            let mark = self.call(name, &args);
            self.canvas.begin(place, self.now, None, mark);
        } else if let Some(CallRecord::End(name, args)) = call {
            let mark = self.call(name, &args);
            self.end(place, EndOf::Name(&mark.name), &mark);
        } else {
            let name = event.class().name().unwrap_or("<unknown>");
            let is_kernel = environment.is_kernel;
            self.draw_kind(name, &kind, place, is_kernel, origin.locations);
        }
        Ok(Some(drawn))
    }

    fn call(&mut self, name: String, args: &[u8]) -> Mark {
        let args = format!("{{{}}}", String::from_utf8_lossy(args));
        self.fields.begin_event(false);
        visit_object(&args, &mut self.fields);
        Mark {
            name: name.into(),
            category: "ct".into(),
            arguments: self.fields.take_arguments(),
            ..Mark::default()
        }
    }

    /// Draws an event of a class of this name and kind, with what its addresses are.
    fn draw_kind(
        &mut self,
        name: &str,
        kind: &RecordKind,
        place: Place,
        is_kernel: bool,
        locations: Option<&EventLocations>,
    ) {
        let fits = kind.fits(place.is_thread, is_kernel);
        self.has_unpaired |= !fits && !is_kernel;
        let provider = name.split_once(':').map_or("", |(provider, _)| provider);
        let mut mark = Mark {
            name: name.into(),
            category: provider.into(),
            ..Mark::default()
        };
        match kind {
            RecordKind::Record => return self.draw_record(place),
            RecordKind::Log => {
                mark.name = self.fields.take_text("message");
                mark.category = self.fields.take_text("target");
                self.fields.spread_arguments();
            }
            RecordKind::SpanEnter | RecordKind::SpanExit if fits => {
                return self.draw_span(name, kind, place);
            }
            RecordKind::FunctionEntry | RecordKind::FunctionExit if fits => {
                let address = self.fields.take_unsigned("addr");
                let name = locations.and_then(EventLocations::function_name);
                mark.name = name.map_or_else(|| format!("{address:#x}").into(), Text::from);
            }
            RecordKind::Begin(span) | RecordKind::End(span) if fits => {
                mark.name = span.shown_name(name, is_kernel).into();
            }
            _ => self.spans.learn(name, place, &self.fields),
        }
        mark.arguments = self.fields.take_arguments();
        let located = locations.into_iter().flat_map(EventLocations::fields);
        let located = located.map(|(name, text)| Argument::new(name, Value::Text(text.into())));
        mark.arguments.extend(located);
        match kind {
            RecordKind::FunctionEntry | RecordKind::Begin(_) if fits => {
                self.canvas.begin(place, self.now, None, mark);
            }
            RecordKind::FunctionExit | RecordKind::End(_) if fits => {
                self.end(place, EndOf::Name(&mark.name), &mark);
            }
            _ => {
                self.canvas.instant(place, self.now, &mark);
                self.fields.give_back(mark.arguments);
            }
        }
    }

    /// Draws the begin or end of a span of `tracing`, with all that is known of it at its end.
    fn draw_span(&mut self, class: &str, kind: &RecordKind, place: Place) {
        let span = self.fields.take_unsigned("span");
        let name = self.fields.take_text("name");
        let target = self.fields.take_text("target");
        let category = target_of_span(class).unwrap_or(&target).into();
        self.fields.spread_arguments();
        let mut mark = Mark {
            name,
            category,
            arguments: self.fields.take_arguments(),
            ..Mark::default()
        };
        if span != 0 {
            let id = Argument::new("span", Value::Unsigned(span));
            mark.arguments.insert(0, id);
        }
        let id = Some(span).filter(|span| *span != 0);
        if *kind == RecordKind::SpanEnter {
            return self.canvas.begin(place, self.now, id, mark);
        }
        let mut known = self.spans.fields(place, span).to_vec();
        known.append(&mut mark.arguments);
        mark.arguments = known;
        let of = id.map_or(EndOf::Name(mark.name.as_str()), EndOf::Span);
        let of = if id.is_none() && mark.name.is_empty() {
            EndOf::Innermost
        } else {
            of
        };
        self.end(place, of, &mark);
    }

    /// Draws a `tef:event`.
    fn draw_record(&mut self, place: Place) {
        let phase = self.fields.take_text("ph");
        let flow = self.fields.take_unsigned("flow_id");
        let dur = self.fields.take_unsigned("dur_ns");
        let mut mark = Mark {
            name: self.fields.take_text("name"),
            category: self.fields.take_text("cat"),
            ..Mark::default()
        };
        self.fields.spread_arguments();
        mark.arguments = self.fields.take_arguments();
        if flow != 0 {
            let flows = match &*phase {
                "f" => &mut mark.ending_flows,
                _ => &mut mark.flows,
            };
            flows.push(hash(("flow", flow)));
        }
        match &*phase {
            "B" => self.canvas.begin(place, self.now, None, mark),
            "E" if mark.name.is_empty() => self.end(place, EndOf::Innermost, &mark),
            "E" => self.end(place, EndOf::Name(&mark.name), &mark),
            "X" => {
                let dur = i64::try_from(dur).unwrap_or(i64::MAX);
                let end = self.now.saturating_add(dur);
                self.canvas.slice(place, self.now, Some(end), &mark);
            }
            _ => self.canvas.instant(place, self.now, &mark),
        }
    }

    /// Ends a slice. Without a begin a point in time is left of it.
    fn end(&mut self, place: Place, of: EndOf<'_, str>, mark: &Mark) {
        let add = |ended: &mut Mark| {
            for argument in &mark.arguments {
                let is_new = |known: &Argument| known.name != argument.name;
                if ended.arguments.iter().all(is_new) {
                    ended.arguments.push(argument.clone());
                }
            }
        };
        if !self.canvas.end(place, self.now, of, add) {
            self.canvas.instant(place, self.now, mark);
        }
    }

    fn write_if_full(&mut self) -> io::Result<()> {
        if self.canvas.encoder.is_full() {
            self.write()?;
        }
        Ok(())
    }

    fn write(&mut self) -> io::Result<()> {
        self.canvas.encoder.take(&mut self.buffer);
        let written = self.out.write_all(&self.buffer);
        self.buffer.clear();
        written
    }

    /// Writes all that has been held back.
    fn close(&mut self) -> io::Result<()> {
        // A sink that was finished is closed once more when it is dropped.
        if std::mem::replace(&mut self.is_finished, true) {
            return Ok(());
        }
        self.canvas.draw_open();
        self.canvas.encoder.finish(&mut self.buffer);
        self.write()?;
        self.out.finish()
    }
}

/// The host of a trace; one of its own if the trace does not name it.
fn host_of<'a>(environment: Environment<'a>, origin: Origin<'_>) -> Host<'a> {
    let unnamed = Host::OfTrace(origin.trace.key.0);
    environment.host.map_or(unnamed, Host::Named)
}

/// The owner of an event, as its contexts and its environment say.
fn owner_of<'a>(
    fields: &'a EventFields,
    environment: Environment<'a>,
    origin: Origin<'a>,
) -> Owner<'a> {
    let name = fields.context_text(&["procname"]);
    let pid = fields
        .context_number(&["vpid", "pid"])
        .or(environment.process);
    // The contexts of a recording say nothing.
    let pid = pid.filter(|_| !environment.is_recording);
    let thread = environment.thread(fields.context_number(&["vtid", "tid"]));
    let own_name = environment.process_name;
    let own_name = own_name.filter(|_| pid == environment.process || environment.is_recording);
    Owner {
        host: host_of(environment, origin),
        trace: &origin.trace.name,
        process: pid.map(OwnerId::Number),
        // Of the kernel `procname` is a thread's name, which is not always the process' own.
        process_name: own_name.or_else(|| {
            let is_main = !environment.is_kernel || thread == pid;
            name.filter(|_| is_main)
        }),
        thread: thread.map(OwnerId::Number),
        thread_name: name,
        cpu: fields.cpu.unwrap_or(0),
        is_recording: environment.is_recording,
    }
}

impl Sink for Perfetto {
    fn event(&mut self, event: &Event<'_>, origin: Origin<'_>) -> Result<(), SinkError> {
        let drawn = self.draw(event, origin)?;
        if let (Some(drawn), false) = (drawn, self.counters.is_empty()) {
            let canvas = &mut self.canvas;
            self.counters
                .each_value(event, origin.trace.key, |name, value| {
                    canvas.counter(drawn.place.parent, name, drawn.time, counter_value(value));
                    true
                })?;
        }
        Ok(self.write_if_full()?)
    }

    fn lost(&mut self, loss: &Loss, origin: Origin<'_>) -> Result<(), SinkError> {
        let (what, name) = match loss.what {
            Lost::Events(LostEvents::Count(count)) => (count, format!("{count} events lost")),
            Lost::Events(LostEvents::Some) => (0, "events may be lost".to_owned()),
            Lost::Packets(count) => (count, format!("{count} packets lost")),
        };
        let mark = Mark {
            name: name.into(),
            category: "lost".into(),
            arguments: vec![Argument::new("count", Value::Unsigned(what))],
            ..Mark::default()
        };
        // Times of programs may be on another clock.
        let end = loss.end.filter(|_| !self.is_program_time);
        let end = end.map_or(self.now, |end| nanoseconds(end.get()));
        let begin = loss.begin.filter(|_| !self.is_program_time);
        let begin = begin.map(|begin| nanoseconds(begin.get()));
        let owner = Owner {
            host: Host::OfTrace(origin.trace.key.0),
            trace: &origin.trace.name,
            process: None,
            process_name: None,
            thread: None,
            thread_name: None,
            cpu: 0,
            is_recording: false,
        };
        self.canvas
            .lost(&owner, &origin.stream.name, (begin, end), &mark);
        self.kernel.lose(origin, &mut self.canvas);
        Ok(self.write_if_full()?)
    }

    fn flush(&mut self, ended: &Ended) -> Result<Next, SinkError> {
        for trace in &ended.traces {
            self.forget_trace(*trace);
        }
        for stream in &ended.streams {
            self.kernel.forget_stream(*stream);
        }
        // What has been drawn is not written yet: it is put in order of time.
        Ok(Next::Event)
    }

    fn finish(&mut self, _is_whole: bool) -> Result<Finished, SinkError> {
        self.close()?;
        Ok(Finished {
            warnings: self
                .has_unpaired
                .then(|| UNPAIRED_WARNING.to_owned())
                .into_iter()
                .collect(),
            missing: self.counters.describe_missing(),
            ..Finished::default()
        })
    }
}

impl Perfetto {
    fn forget_trace(&mut self, trace: TraceKey) {
        self.kinds.forget_trace(trace);
        self.recordings.forget_trace(trace);
    }
}

fn counter_value(value: Number) -> CounterValue {
    match value {
        Number::Signed(value) => CounterValue::Integer(value),
        Number::Unsigned(value) => value.into(),
        Number::Float(value) => CounterValue::Float(value),
    }
}

fn nanoseconds(time: impl TryInto<i64>) -> i64 {
    time.try_into().unwrap_or(i64::MAX)
}

impl Drop for Perfetto {
    fn drop(&mut self) {
        // A failure cannot be reported from here.
        let _ = self.close();
    }
}
