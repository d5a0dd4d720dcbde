//! A `trace.json` in Chrome's Trace Event Format, as ui.perfetto.dev and chrome://tracing open it.
//!
//! Read in this order: `kind` (what becomes of which event class), `gather` (what is taken from
//! an event's fields), `tracks` (the processes and threads that it is shown on).
//!
//! - Most events are instants, with the payload as `args` and the contexts in `args.context`.
//! - Where both classes of a pair are declared (`X_begin` and `X_end`, `X_entry` and `X_exit`,
//!   `X_start` and `X_stop` or `X_end`, `syscall_entry_X` and `syscall_exit_X`, function entries and
//!   exits of `cyg_profile`), they begin and end a span.
//! - The generic classes of our own producers become again what they came from: `tef:event` its
//!   record, `log:record` an instant, `span:enter` and `span:exit` a span.
//!
//! An event belongs to the process and thread of its contexts `vpid`, `vtid` or `pid`, `tid`; else to
//! the process of the trace's environment, or one that stands for the trace, and there to the CPU of
//! its packet.

mod gather;
mod kind;
mod own;
#[cfg(test)]
mod tests;
mod tracks;

use std::collections::HashMap;
use std::io::Write;

use ctf::decode::{Event, FieldError};
use ctf::model::EnvironmentValue;

use self::gather::Gather;
use self::kind::Kind;
use self::tracks::{Environment, Track, Tracks};
use super::json_text::{hex, integer, lossy_string, string};
use super::{Origin, Sink, SinkError};
use crate::attach::TraceKey;

/// Written at once when there is so much of it.
const FULL: usize = 64 << 10;
const BEGIN: &[u8] = b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[";
const END: &[u8] = b"\n]}\n";

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

/// Writes one record for each event, within one object that [`finish`](Sink::finish) closes; it is
/// also closed when it is dropped.
#[derive(Debug)]
pub struct Tef<W: Write> {
    out: W,
    buffer: Vec<u8>,
    times: Times,
    first: Option<i64>,
    /// Of the last event that had one.
    now: i64,
    tracks: Tracks,
    gather: Gather,
    kinds: HashMap<(TraceKey, u64, u64), Kind>,
    /// How many event classes a stream class had when `kinds` was filled.
    declared: HashMap<(TraceKey, u64), usize>,
    any: bool,
    finished: bool,
}

impl<W: Write> Tef<W> {
    /// Into `out`, which needs no buffer of its own.
    pub fn new(out: W, times: Times) -> Self {
        Self {
            out,
            buffer: BEGIN.to_vec(),
            times,
            first: None,
            now: 0,
            tracks: Tracks::default(),
            gather: Gather::default(),
            kinds: HashMap::new(),
            declared: HashMap::new(),
            any: false,
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
        let base = match self.times {
            Times::Absolute => 0,
            Times::SinceFirst => *self.first.get_or_insert(self.now),
        };
        let time = i128::from(self.now) - i128::from(base);
        let identity = &self.gather.identity;
        let track = self.tracks.track(identity, environment, origin, |record| {
            separate(&mut self.any, &mut self.buffer);
            self.buffer.extend_from_slice(record);
        });
        separate(&mut self.any, &mut self.buffer);
        write_event(&mut self.buffer, name, kind, time, track, &self.gather);
        if self.buffer.len() >= FULL {
            self.drain()?;
        }
        Ok(())
    }

    fn drain(&mut self) -> Result<(), SinkError> {
        let written = self.out.write_all(&self.buffer);
        self.buffer.clear();
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

fn separate(any: &mut bool, out: &mut Vec<u8>) {
    out.extend_from_slice(if *any { b",\n" } else { b"\n" });
    *any = true;
}

/// Writes one record.
fn write_event(
    out: &mut Vec<u8>,
    name: &str,
    kind: &Kind,
    time: i128,
    track: Track,
    gather: &Gather,
) {
    let own = &gather.own;
    let phase: &[u8] = match kind {
        Kind::Record => own.phase(),
        Kind::SpanEnter => b"B",
        Kind::SpanExit => b"E",
        Kind::Begin(_) | Kind::FunctionEntry if kind.fits(track) => b"B",
        Kind::End(_) | Kind::FunctionExit if kind.fits(track) => b"E",
        _ => b"i",
    };
    out.extend_from_slice(b"{\"ph\":");
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
    out.extend_from_slice(b",\"ts\":");
    microseconds(time, out);
    if phase == b"i" || phase == b"I" {
        out.extend_from_slice(b",\"s\":\"t\"");
    }
    if matches!(kind, Kind::Record) {
        if phase == b"X" {
            out.extend_from_slice(b",\"dur\":");
            microseconds(i128::from(own.duration), out);
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
    out.extend_from_slice(b"}}");
}

/// Nanoseconds as microseconds with three decimals.
fn microseconds(time: i128, out: &mut Vec<u8>) {
    if time < 0 {
        out.push(b'-');
    }
    let time = time.unsigned_abs();
    integer(time / 1000, out);
    let rest = time % 1000;
    if rest > 0 {
        out.push(b'.');
        for place in [100, 10, 1] {
            integer(rest / place % 10, out);
        }
    }
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

    fn flush(&mut self) -> Result<(), SinkError> {
        self.drain()?;
        Ok(self.out.flush()?)
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        if !self.finished {
            self.finished = true;
            self.buffer.extend_from_slice(END);
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
