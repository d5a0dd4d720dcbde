//! A `trace.json` in Chrome's Trace Event Format, as ui.perfetto.dev and chrome://tracing open it.
//!
//! Read in this order: `kind` (what becomes of which event class), `gather` (what is taken from
//! an event's fields), `tracks` (the processes and threads that it is shown on), `sent` (events that
//! were of this format to begin with), `records` (the order in which all come out), `perfetto`.
//!
//! - Most events are instants, with the payload as `args` and the contexts in `args.context`.
//! - Where both classes of a pair are declared (`X_begin` and `X_end`, `X_entry` and `X_exit`,
//!   `X_start` and `X_stop` or `X_end`, `syscall_entry_X` and `syscall_exit_X`, function entries and
//!   exits of `cyg_profile`), they begin and end a span.
//! - The generic classes of our own producers become again what they came from: `tef:event` its
//!   record, `log:record` an instant, `span:enter` and `span:exit` a span.
//!
//! - What programs have sent to a `tldrs` daemon comes out as it was sent, with all its members; its
//!   times are those of the program unless [`SentTimes`] says otherwise.
//!
//! All but the last: an event belongs to the process and thread of its contexts `vpid`, `vtid` or `pid`, `tid`; else to
//! the process of the trace's environment, or one that stands for the trace, and there to the CPU of
//! its packet.

mod gather;
mod kind;
mod own;
mod perfetto;
mod records;
mod sent;
#[cfg(test)]
mod tests;
mod tracks;

use std::collections::HashMap;
use std::io::Write;

use ::tef::event::write_microseconds;
use ctf::decode::{Event, FieldError};
use ctf::model::EnvironmentValue;

use self::gather::Gather;
use self::kind::Kind;
use self::records::{RecordTime, Records};
use self::sent::{SentRecordOptions, SentRecordWriter};
use self::tracks::{Environment, Track, Tracks};
use super::json_text::{hex, integer, lossy_string, string};
use super::{Origin, Sink, SinkError};
use crate::attach::TraceKey;

/// Written at once when there is so much of it.
const FULL: usize = 64 << 10;
const BEGIN: &[u8] = b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[";
const END: &[u8] = b"\n]}\n";
/// The same, if something has been subtracted from all times.
const END_WITH_ORIGIN: &[u8] = b"\n],\"metadata\":{\"ts_origin_us\":";

/// How times are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Times {
    /// As they are: usually microseconds since 1970.
    #[default]
    Absolute,
    /// Since the first event. Viewers that keep times as floating point numbers, as chrome://tracing
    /// does, show nanoseconds only so.
    SinceFirst,
}

/// The times of events that programs have sent in this format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SentTimes {
    /// As the program has written them, on whatever clock.
    #[default]
    Producer,
    /// When they arrived at the daemon, on the clock of all other events; of a slice that is its end.
    Arrival,
}

/// How events are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// Of events that come from elsewhere.
    pub times: Times,
    /// Of events that were sent in this format.
    pub sent: SentTimes,
    /// Whether what ui.perfetto.dev would take amiss is said otherwise, and all is held until the end to
    /// come in order, since the first event.
    pub perfetto: bool,
}

/// Writes one record for each event, within one object that [`finish`](Sink::finish) closes; it is
/// also closed when it is dropped.
#[derive(Debug)]
pub struct Tef<W: Write> {
    out: W,
    records: Records,
    /// Members of the record that is being written.
    members: Vec<u8>,
    options: Options,
    first: Option<i64>,
    /// Of the last event that had one.
    now: i64,
    tracks: Tracks,
    gather: Gather,
    kinds: HashMap<(TraceKey, u64, u64), Kind>,
    /// How many event classes a stream class had when `kinds` was filled.
    declared: HashMap<(TraceKey, u64), usize>,
    sender: SentRecordWriter,
    finished: bool,
}

impl<W: Write> Tef<W> {
    /// Into `out`, which needs no buffer of its own.
    pub fn new(out: W, options: Options) -> Self {
        Self {
            out,
            records: Records::new(BEGIN.to_vec(), options.perfetto),
            members: Vec::new(),
            options,
            first: None,
            now: 0,
            tracks: Tracks::default(),
            gather: Gather::default(),
            kinds: HashMap::new(),
            declared: HashMap::new(),
            sender: SentRecordWriter::default(),
            finished: false,
        }
    }

    fn shown(
        &mut self,
        name: &str,
        kind: &Kind,
        time: Option<i64>,
        environment: Environment<'_>,
        origin: Origin<'_>,
        visit: impl FnOnce(&mut Gather) -> Result<(), FieldError>,
    ) -> Result<(), SinkError> {
        self.gather.begin(kind.is_own());
        visit(&mut self.gather)?;
        self.now = time.unwrap_or(self.now);
        let base = match self.options.times {
            Times::Absolute => 0,
            Times::SinceFirst => *self.first.get_or_insert(self.now),
        };
        let time = i128::from(self.now) - i128::from(base);
        let identity = &self.gather.identity;
        let track = self.tracks.track(identity, environment, origin, |record| {
            let name = RecordTime {
                is_metadata: true,
                ..RecordTime::default()
            };
            self.records.add(name, record);
        });
        self.members.clear();
        write_event(&mut self.members, name, kind, track, &self.gather);
        let when = RecordTime {
            ts: Some(time),
            dur: match kind {
                Kind::Record => self.gather.own.duration.into(),
                _ => 0,
            },
            is_metadata: false,
        };
        self.records.add(when, &self.members);
        self.drain_if_full()
    }

    fn drain_if_full(&mut self) -> Result<(), SinkError> {
        if self.records.buffer.len() >= FULL {
            self.drain()?;
        }
        Ok(())
    }

    fn drain(&mut self) -> Result<(), SinkError> {
        let written = self.out.write_all(&self.records.buffer);
        self.records.buffer.clear();
        Ok(written?)
    }

    /// What becomes of an event's class. Decided anew when there are more classes, because the other
    /// half of a pair may be among them.
    fn kind(&mut self, event: &Event<'_>, trace: TraceKey) -> Kind {
        let stream = event.stream_class();
        let classes = stream.events();
        let declared = self.declared.entry((trace, stream.id())).or_default();
        if *declared != classes.len() {
            *declared = classes.len();
            self.kinds
                .retain(|(known, of, _), _| (*known, *of) != (trace, stream.id()));
        }
        let class = event.class();
        let key = (trace, stream.id(), class.id());
        let kind = self.kinds.entry(key).or_insert_with(|| {
            let exists = |name: &str| classes.iter().any(|class| class.name() == Some(name));
            Kind::of(class.name().unwrap_or_default(), exists)
        });
        kind.clone()
    }
}

/// Writes the members of one record, but not its `ts`.
fn write_event(out: &mut Vec<u8>, name: &str, kind: &Kind, track: Track, gather: &Gather) {
    let own = &gather.own;
    let phase: &[u8] = match kind {
        Kind::Record => own.phase(),
        Kind::SpanEnter => b"B",
        Kind::SpanExit => b"E",
        Kind::Begin(_) | Kind::FunctionEntry if kind.fits(track) => b"B",
        Kind::End(_) | Kind::FunctionExit if kind.fits(track) => b"E",
        _ => b"i",
    };
    out.extend_from_slice(b"\"ph\":");
    lossy_string(phase, out);
    out.extend_from_slice(b",\"name\":");
    let mut category = name
        .split_once(':')
        .map_or("", |(provider, _)| provider)
        .as_bytes();
    match kind {
        Kind::Record | Kind::SpanEnter => {
            lossy_string(&own.name, out);
            category = if matches!(kind, Kind::Record) {
                &own.category
            } else {
                &own.target
            };
        }
        Kind::Log => {
            lossy_string(&own.message, out);
            category = &own.target;
        }
        Kind::Begin(span) | Kind::End(span) if phase != b"i" => string(span, out),
        Kind::FunctionEntry | Kind::FunctionExit => {
            out.extend_from_slice(b"\"0x");
            hex_number(gather.address, out);
            out.push(b'"');
        }
        _ => string(name, out),
    }
    if !category.is_empty() {
        out.extend_from_slice(b",\"cat\":");
        lossy_string(category, out);
    }
    if phase == b"i" || phase == b"I" {
        out.extend_from_slice(b",\"s\":\"t\"");
    }
    if matches!(kind, Kind::Record) {
        if phase == b"X" {
            out.extend_from_slice(b",\"dur\":");
            write_microseconds(i128::from(own.duration), out);
        }
        if own.flow != 0 {
            let member: &[u8] = if phase == b"X" {
                b",\"bind_id\":\"0x"
            } else {
                b",\"id\":\"0x"
            };
            out.extend_from_slice(member);
            hex_number(own.flow, out);
            out.push(b'"');
        }
    }
    out.extend_from_slice(b",\"pid\":");
    integer(track.process, out);
    out.extend_from_slice(b",\"tid\":");
    integer(track.thread, out);
    out.extend_from_slice(b",\"args\":{");
    gather.write_arguments(out);
    out.push(b'}');
}

/// Without leading zeros.
fn hex_number(value: u64, out: &mut Vec<u8>) {
    let begin = out.len();
    hex(&value.to_be_bytes(), out);
    let zeros = out
        .iter()
        .skip(begin)
        .take_while(|digit| **digit == b'0')
        .count();
    out.drain(begin..begin + zeros.min(15));
}

impl<W: Write> Sink for Tef<W> {
    fn event(&mut self, event: &Event<'_>, origin: Origin<'_>) -> Result<(), SinkError> {
        if SentRecordWriter::knows(event.class().name().unwrap_or_default()) {
            let how = SentRecordOptions {
                times: self.options.sent,
                perfetto: self.options.perfetto,
            };
            if self.sender.show(event, how, &mut self.records)? {
                return self.drain_if_full();
            }
        }
        let kind = self.kind(event, origin.trace.key);
        let trace = event.trace();
        let text = |name| match trace.environment_value(name) {
            Some(EnvironmentValue::Text(text)) => Some(&**text),
            _ => None,
        };
        let environment = Environment {
            host: text("hostname"),
            process_name: text("procname"),
            process: match trace.environment_value("vpid") {
                Some(EnvironmentValue::Integer(vpid)) => Some(*vpid),
                _ => None,
            },
            is_kernel: text("domain") == Some("kernel"),
        };
        let name = event.class().name().unwrap_or("<unknown>");
        let visit = |gather: &mut Gather| event.visit(gather);
        self.shown(name, &kind, event.time(), environment, origin, visit)
    }

    fn trace_ended(&mut self, trace: TraceKey) {
        self.kinds.retain(|(of, ..), _| *of != trace);
        self.declared.retain(|(of, _), _| *of != trace);
        self.tracks.forget_trace(trace);
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        self.drain()?;
        Ok(self.out.flush()?)
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        if !self.finished {
            self.finished = true;
            let origin = self.records.write_held();
            let out = &mut self.records.buffer;
            match origin {
                Some(origin) => {
                    out.extend_from_slice(END_WITH_ORIGIN);
                    write_microseconds(origin, out);
                    out.extend_from_slice(b"}}\n");
                }
                None => out.extend_from_slice(END),
            }
        }
        self.flush()
    }
}

impl<W: Write> Drop for Tef<W> {
    fn drop(&mut self) {
        if !self.finished {
            // Nobody is left who could be told of a failure.
            let _ = self.finish();
        }
    }
}
