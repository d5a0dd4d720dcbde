//! A `trace.json` in Chrome's Trace Event Format, as ui.perfetto.dev and chrome://tracing open it.
//!
//! Read in this order; each module uses only those before it and the options here: `fields` (what
//! is collected from an event's fields), `tracks` (the processes and threads that events are shown
//! on), `kind` (which record each event class becomes), `spans` (those of `tracing`), `sent`
//! (events that were of this format to begin with), `calls` (recordings of CodeTracer).
//!
//! - Most events are instants, with the payload as `args` and the contexts in `args.context`.
//! - Where both classes of a pair are declared (`X_begin` and `X_end`, `X_entry` and `X_exit`,
//!   `X_start` and `X_stop` or `X_end`, `syscall_entry_X` and `syscall_exit_X`, function entries
//!   and exits of `cyg_profile`), they begin and end a span, if the thread is known or the span
//!   stays on one CPU. Otherwise they are instants.
//! - The generic classes of our own producers become again what they came from: `tef:event` its
//!   record, `log:record` an instant, `span:enter` and `span:exit` a span.
//! - In a recording of CodeTracer, `ct:call` and `ct:return` begin and end a span with the name of
//!   the function. What defines names is not shown.
//! - Numbers that `--counter` selects become counters of their process, beside the record of their
//!   event.
//! - What programs have sent to a `tldrs` daemon is written as it was sent, with all its members;
//!   its times are those of the program unless [`SentTimes`] says otherwise.
//!
//! All but the last: an event belongs to the process and thread of its contexts `vpid`, `vtid` or
//! `pid`, `tid`; else to the process of the trace's environment, or one that stands for the trace,
//! and there to the CPU of its packet.

mod arguments;
mod fields;
mod sent;
mod spans;
#[cfg(test)]
mod tests;
mod tracks;

use std::borrow::Cow;
use std::io::{self, Write};
use std::ops::Range;

use ::tef::document::Records;
use ::tef::event::{OwnerId, write_microseconds};
use ctf::decode::{Event, FieldError};
use timeline::{Content, DownloadFormat};
use viewer::attach::TraceKey;
use viewer::filter::NumberSelector;
use viewer::interpret::calls::{CallRecord, Recordings};
use viewer::interpret::environment::Environment;
use viewer::interpret::kind::{RecordKind, RecordKinds, target_of_span};
use viewer::json_text::{float, integer, lossy_string, string};
use viewer::sink::{Ended, Finished, Loss, Needs, Next, Number, OpenSink, Origin, Sink, SinkError};

pub use self::arguments::TefArguments;
use self::fields::{EventFields, Member};
use self::sent::SentRecordWriter;
use self::spans::{SpanRecord, Spans};
use self::tracks::{Track, Tracks};
use super::buffer;
use super::counters::Counters;
use super::row::{Open, SinkRow};

/// Warns of spans that are shown as instants.
const UNPAIRED_WARNING: &str = "begins and ends of spans without a thread cannot be paired and are shown as instants; \
    record them with: lttng add-context -u -t vpid -t vtid";

/// The times of events that programs have sent in this format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SentTimes {
    /// The times that the program has written, on whatever clock.
    #[default]
    Producer,
    /// The times of arrival at the daemon, on the clock of all other events; of a slice that is its
    /// end.
    Arrival,
}

/// The options of the sink.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TefOptions {
    /// The times of events that were sent in this format.
    pub sent: SentTimes,
    /// Whether records that ui.perfetto.dev would misread are changed, and all are held until the
    /// end to come in order of time, since the first event.
    pub perfetto: bool,
}

/// Writes one record for each event, within one object that [`finish`](Sink::finish) closes; it is
/// also closed when the sink is dropped.
#[derive(Debug)]
pub struct Tef<W: Write> {
    out: W,
    records: Records,
    /// Members of the record that is being written.
    members: Vec<u8>,
    options: TefOptions,
    /// The time of the last event that had one, in nanoseconds.
    now: i64,
    tracks: Tracks,
    fields: EventFields,
    kinds: RecordKinds,
    sent: SentRecordWriter,
    spans: Spans,
    recordings: Recordings,
    counters: Counters,
    /// Time in nanoseconds and process of the event that was written last; `None` if it has
    /// neither.
    last_shown: Option<(i128, OwnerId<'static>)>,
    /// Whether the begin or end of a span was written as an instant, because its thread is not
    /// known.
    has_unpaired: bool,
    is_finished: bool,
}

/// Records of Trace Event Format.
pub const ROW: SinkRow = SinkRow {
    name: "tef",
    help: "A trace.json in Trace Event Format, for ui.perfetto.dev and chrome://tracing",
    needs: Needs::EVENTS,
    open: Open::Stream(|out, context| {
        let tef = &context.options.tef;
        let sink = Tef::with_counters(out, tef.options(), tef.counters()?);
        Ok(OpenSink::Events(Box::new(sink)))
    }),
    download: Some(DownloadFormat {
        name: "tef",
        file: "trace.json",
        media_type: "application/json",
        content: Content::Events(|out| {
            let options = TefOptions {
                sent: SentTimes::Producer,
                perfetto: true,
            };
            Box::new(Tef::new(out, options))
        }),
    }),
};

impl<W: Write> Tef<W> {
    /// A sink that writes to `out`, which needs no buffer of its own.
    pub fn new(out: W, options: TefOptions) -> Self {
        Self::with_counters(out, options, Vec::new())
    }

    /// A sink that also writes the numbers of some fields as counters.
    pub fn with_counters(out: W, options: TefOptions, counters: Vec<NumberSelector>) -> Self {
        Self {
            out,
            counters: Counters::new(counters),
            records: Records::new(options.perfetto),
            members: Vec::new(),
            options,
            now: 0,
            tracks: Tracks::default(),
            fields: EventFields::default(),
            kinds: RecordKinds::default(),
            sent: SentRecordWriter::default(),
            spans: Spans::default(),
            recordings: Recordings::default(),
            last_shown: None,
            has_unpaired: false,
            is_finished: false,
        }
    }

    /// Writes the record of an event whose fields `visit` visits.
    fn write_event(
        &mut self,
        name: &str,
        kind: &RecordKind,
        time: Option<i64>,
        environment: Environment<'_>,
        origin: Origin<'_>,
        visit: impl FnOnce(&mut EventFields) -> Result<(), FieldError>,
    ) -> Result<(), SinkError> {
        self.fields.begin_event(kind.is_generic());
        visit(&mut self.fields)?;
        if let Some(locations) = origin.locations {
            self.fields.add_locations(locations);
        }
        // An event without a time is shown where the one before it was.
        self.now = time.unwrap_or(self.now);
        let (fields, records) = (&self.fields, &mut self.records);
        let program = self.recordings.program(origin.trace.key);
        let environment = environment.of_program(program);
        let track = self.tracks.track(fields, environment, origin, records);
        self.last_shown = Some((self.now.into(), OwnerId::Number(track.process)));
        // Of the kernel, threads may be known by other means than contexts.
        let fits = kind.fits(track.is_thread, track.is_kernel);
        self.has_unpaired |= !fits && !track.is_kernel;
        self.members.clear();
        let parts = write_members(&mut self.members, name, kind, track, fields);
        let span = SpanRecord {
            id: fields.unsigned(Member::Span),
            time: self.now,
            track,
            trace: origin.trace.key,
            head: self.members.get(parts.head).unwrap_or_default(),
            has_categories: parts.has_categories,
            args: self.members.get(parts.args).unwrap_or_default(),
        };
        match kind {
            // A span without an id is a slice, which only nests by time.
            RecordKind::SpanEnter if fits && span.id != 0 => self.spans.begin(span, records),
            RecordKind::SpanExit if fits && span.id != 0 => self.spans.end(span, records),
            _ => {
                records.add(Some(self.now.into()), &self.members);
            }
        }
        Ok(buffer::write_if_full(
            &mut self.records.buffer,
            &mut self.out,
        )?)
    }

    /// Writes the begin or end of a call in a recording of CodeTracer.
    fn write_call(
        &mut self,
        call: &CallRecord,
        event: &Event<'_>,
        environment: Environment<'_>,
        origin: Origin<'_>,
    ) -> Result<(), SinkError> {
        let (phase, name, args) = match call {
            CallRecord::Begin(name, args) => ("B", name, args),
            CallRecord::End(name, args) => ("E", name, args),
            CallRecord::None | CallRecord::Instant => return Ok(()),
        };
        self.fields.begin_event(false);
        // Only the CPU is needed: the arguments are in the call.
        event.visit_packet_context(&mut self.fields)?;
        self.now = event.time().unwrap_or(self.now);
        let program = self.recordings.program(origin.trace.key);
        let environment = environment.of_program(program);
        let (fields, records) = (&self.fields, &mut self.records);
        let track = self.tracks.track(fields, environment, origin, records);
        let out = &mut self.members;
        out.clear();
        out.extend_from_slice(format!("\"ph\":\"{phase}\",\"name\":").as_bytes());
        string(name, out);
        out.extend_from_slice(b",\"cat\":\"ct\",\"pid\":");
        integer(track.process, out);
        out.extend_from_slice(b",\"tid\":");
        integer(track.thread, out);
        out.extend_from_slice(b",\"args\":{");
        out.extend_from_slice(args);
        out.push(b'}');
        self.records.add(Some(self.now.into()), &self.members);
        Ok(buffer::write_if_full(
            &mut self.records.buffer,
            &mut self.out,
        )?)
    }

    /// Writes the records of an event, without counters.
    fn write_records(&mut self, event: &Event<'_>, origin: Origin<'_>) -> Result<(), SinkError> {
        let options = &self.options;
        // The records of an event without a process must get no counter.
        self.last_shown = None;
        if let Some(sent) = self.sent.write_event(event, options, &mut self.records)? {
            self.last_shown = sent.ts.zip(sent.process);
            return Ok(buffer::write_if_full(
                &mut self.records.buffer,
                &mut self.out,
            )?);
        }
        let call = self.recordings.record(event, origin.trace.key)?;
        let environment = Environment::of(event.trace());
        if let Some(CallRecord::None) = call {
            return Ok(());
        }
        if let Some(call @ (CallRecord::Begin(..) | CallRecord::End(..))) = &call {
            return self.write_call(call, event, environment, origin);
        }
        let kind = self.kinds.kind(event, origin.trace.key);
        let name = event.class().name().unwrap_or("<unknown>");
        let visit = |fields: &mut EventFields| event.visit(fields);
        self.write_event(name, &kind, event.time(), environment, origin, visit)
    }

    /// Writes the counters of an event that was written.
    fn write_counters(&mut self, event: &Event<'_>, trace: TraceKey) -> Result<(), SinkError> {
        let Self {
            counters,
            last_shown,
            members,
            records,
            ..
        } = self;
        counters.each_value(event, trace, |name, value| {
            let Some((ts, process)) = last_shown else {
                return false;
            };
            write_counter_members(members, name, process, value);
            records.add(Some(*ts), members);
            true
        })?;
        Ok(buffer::write_if_full(
            &mut self.records.buffer,
            &mut self.out,
        )?)
    }

    /// Closes the document, and writes what has been held back.
    fn close(&mut self) -> io::Result<()> {
        // A sink that was finished is closed once more when it is dropped.
        if !std::mem::replace(&mut self.is_finished, true) {
            self.records.finish();
        }
        buffer::flush(&mut self.records.buffer, &mut self.out)
    }
}

/// Writes the members of the record of a counter, but not its `ts`.
fn write_counter_members(out: &mut Vec<u8>, name: &str, process: &OwnerId<'_>, value: Number) {
    out.clear();
    out.extend_from_slice(b"\"ph\":\"C\",\"name\":");
    string(name, out);
    out.extend_from_slice(b",\"pid\":");
    match process {
        OwnerId::Number(number) => integer(*number, out),
        OwnerId::Text(text) => string(text, out),
    }
    out.extend_from_slice(b",\"args\":{\"value\":");
    match value {
        Number::Unsigned(value) => integer(value, out),
        Number::Signed(value) => integer(value, out),
        Number::Float(value) => float(value, 64, out),
    }
    out.push(b'}');
}

/// Where parts of a record are among its members.
struct MemberParts {
    /// What is between the phase and `args`.
    head: Range<usize>,
    has_categories: bool,
    /// The members of `args`.
    args: Range<usize>,
}

/// Writes the members of one record, but not its `ts`.
fn write_members(
    out: &mut Vec<u8>,
    event: &str,
    kind: &RecordKind,
    track: Track,
    fields: &EventFields,
) -> MemberParts {
    let phase: &[u8] = match kind {
        // A record without phase is an instant.
        RecordKind::Record if fields.text(Member::Phase).is_empty() => b"i",
        RecordKind::Record => fields.text(Member::Phase),
        _ if !kind.fits(track.is_thread, track.is_kernel) => b"i",
        RecordKind::SpanEnter | RecordKind::FunctionEntry | RecordKind::Begin(_) => b"B",
        RecordKind::SpanExit | RecordKind::FunctionExit | RecordKind::End(_) => b"E",
        RecordKind::Log | RecordKind::Instant => b"i",
    };
    let name: Cow<'_, [u8]> = match kind {
        RecordKind::Record | RecordKind::SpanEnter => fields.text(Member::Name).into(),
        // Viewers end a span only by its own name.
        RecordKind::SpanExit if !fields.text(Member::Name).is_empty() => {
            fields.text(Member::Name).into()
        }
        RecordKind::Log => fields.text(Member::Message).into(),
        RecordKind::Begin(span) | RecordKind::End(span) if phase != b"i" => {
            span.name.as_bytes().into()
        }
        RecordKind::FunctionEntry | RecordKind::FunctionExit => match fields.function_name() {
            b"" => format!("{:#x}", fields.unsigned(Member::Address))
                .into_bytes()
                .into(),
            name => name.into(),
        },
        _ => event.as_bytes().into(),
    };
    let category = match kind {
        RecordKind::Record => fields.text(Member::Category),
        RecordKind::SpanEnter | RecordKind::SpanExit if target_of_span(event).is_some() => {
            target_of_span(event).unwrap_or_default().as_bytes()
        }
        RecordKind::SpanEnter | RecordKind::Log => fields.text(Member::Target),
        _ => event
            .split_once(':')
            .map_or("", |(provider, _)| provider)
            .as_bytes(),
    };
    out.extend_from_slice(b"\"ph\":");
    lossy_string(phase, out);
    let head = out.len();
    out.extend_from_slice(b",\"name\":");
    lossy_string(&name, out);
    if !category.is_empty() {
        out.extend_from_slice(b",\"cat\":");
        lossy_string(category, out);
    }
    if matches!(phase, b"i" | b"I") {
        // The scope: an instant is drawn on the line of its thread only.
        out.extend_from_slice(b",\"s\":\"t\"");
    }
    if matches!(kind, RecordKind::Record) {
        let is_slice = phase == b"X";
        if is_slice {
            out.extend_from_slice(b",\"dur\":");
            write_microseconds(fields.unsigned(Member::Duration).into(), out);
        }
        let flow = fields.unsigned(Member::Flow);
        if flow != 0 {
            // Slices and flow events name their flow by different members.
            let member = if is_slice { "bind_id" } else { "id" };
            out.extend_from_slice(format!(",\"{member}\":\"{flow:#x}\"").as_bytes());
        }
    }
    out.extend_from_slice(b",\"pid\":");
    integer(track.process, out);
    out.extend_from_slice(b",\"tid\":");
    integer(track.thread, out);
    let head = head..out.len();
    out.extend_from_slice(b",\"args\":{");
    let args = out.len();
    fields.write_arguments(out);
    let args = args..out.len();
    out.push(b'}');
    MemberParts {
        head,
        has_categories: !category.is_empty(),
        args,
    }
}

impl<W: Write> Sink for Tef<W> {
    fn event(&mut self, event: &Event<'_>, origin: Origin<'_>) -> Result<(), SinkError> {
        self.write_records(event, origin)?;
        if self.counters.is_empty() {
            return Ok(());
        }
        self.write_counters(event, origin.trace.key)
    }

    fn lost(&mut self, _loss: &Loss, origin: Origin<'_>) -> Result<(), SinkError> {
        self.spans.add_loss(origin.trace.key);
        Ok(())
    }

    fn flush(&mut self, ended: &Ended) -> Result<Next, SinkError> {
        for trace in &ended.traces {
            self.kinds.forget_trace(*trace);
            self.spans.forget_trace(*trace);
            self.tracks.forget_trace(*trace);
            self.recordings.forget_trace(*trace);
        }
        buffer::flush(&mut self.records.buffer, &mut self.out)?;
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

impl<W: Write> Drop for Tef<W> {
    fn drop(&mut self) {
        if !self.is_finished {
            // A failure cannot be reported from here.
            let _ = self.close();
        }
    }
}
