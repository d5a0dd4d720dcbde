//! One line for each event, to the byte as `babeltrace2`'s `sink.text.pretty` writes it (version
//! 2.0.4), so that scripts and people find what they know.

mod class;
mod header;
mod number;
mod program;
mod style;
mod time;
mod values;

use std::io::Write;

use ctf::decode::Event;

pub use header::HeaderFields;
pub use time::{ClockFormat, Times};
pub use values::Names;

use self::class::ClassPrograms;
use self::style::Style;
use super::{Origin, Sink, SinkError, buffer};
use crate::attach::{StreamKey, TraceKey};

/// The look of lines. What `babeltrace2` calls the same is the same.
#[derive(Debug, Clone, Default)]
pub struct TextOptions {
    /// The format of times. (`--clock-*`)
    pub clock: ClockFormat,
    /// Whether the time since the event before is left out. (`--no-delta`)
    pub no_delta: bool,
    /// The places where names are shown. (`--names`)
    pub names: Names,
    /// The parts that stand before the event's name. (`--fields`)
    pub fields: HeaderFields,
    /// Whether lines have colours. (`--color`)
    pub colour: bool,
}

/// Writes each event as a line, as `babeltrace2` does.
pub struct TextSink<W> {
    output: W,
    out: Vec<u8>,
    options: TextOptions,
    style: Style,
    times: Times,
    classes: ClassPrograms,
    /// Cycles and time of the event before.
    before: Option<(u64, Option<i64>)>,
}

impl<W: Write> TextSink<W> {
    /// A sink that writes to `output`.
    pub fn new(output: W, options: TextOptions) -> Self {
        let style = if options.colour {
            Style::coloured()
        } else {
            Style::plain()
        };
        Self {
            output,
            out: buffer::with_capacity(),
            style,
            times: Times::new(options.clock.clone()),
            classes: ClassPrograms::new(options.fields, options.names, style),
            options,
            before: None,
        }
    }

    /// The time of an event, and how much later it is than the one before.
    fn write_time(&mut self, event: &Event<'_>) {
        if event.stream_class().timescale().is_none() {
            return;
        }
        let (cycles, time) = (event.cycles(), event.time());
        let before = self.before.replace((cycles, time));
        let (named, style) = (self.options.names.header, self.style);
        let out = &mut self.out;
        let put = |out: &mut Vec<u8>, text: &str| out.extend_from_slice(text.as_bytes());
        let begin = |out: &mut Vec<u8>, name: &str, bracket: &str| {
            if named {
                for text in [style.name, name, style.end, " = "] {
                    put(out, text);
                }
            } else {
                put(out, bracket);
            }
        };
        begin(out, "timestamp", "[");
        put(out, self.style.time);
        self.times.write_event_time(out, cycles, time);
        put(out, self.style.end);
        put(out, if named { ", " } else { "] " });
        if self.options.no_delta {
            return;
        }
        begin(out, "delta", "(");
        let since = |before: i64| time.unwrap_or(before).saturating_sub(before);
        let went_back = match before {
            // Cycles of clocks with different origins wrap around here, as in babeltrace2.
            _ if self.times.shows_cycles() => false,
            Some((_, Some(before))) => since(before) < 0,
            _ => false,
        };
        put(out, if went_back { "-" } else { "+" });
        match (self.times.shows_cycles(), before) {
            (true, None) => put(out, "????????????"),
            (true, Some((before, _))) => time::padded(out, cycles.wrapping_sub(before), 12),
            (false, Some((_, Some(before)))) if time.is_some() => {
                time::seconds(out, since(before).unsigned_abs());
            }
            (false, _) => put(out, "?.?????????"),
        }
        put(out, if named { ", " } else { ") " });
    }
}

impl<W: Write> Sink for TextSink<W> {
    fn event(&mut self, event: &Event<'_>, origin: Origin<'_>) -> Result<(), SinkError> {
        self.write_time(event);
        self.classes.write(event, origin, &mut self.out)?;
        self.out.push(b'\n');
        Ok(buffer::write_if_full(&mut self.out, &mut self.output)?)
    }

    fn stream_ended(&mut self, stream: StreamKey) {
        self.classes.forget_stream(stream);
    }

    fn trace_ended(&mut self, trace: TraceKey) {
        self.classes.forget_trace(trace);
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        Ok(buffer::flush(&mut self.out, &mut self.output)?)
    }
}
