//! One line for each event, to the byte as `babeltrace2`'s `sink.text.pretty` writes it (version
//! 2.0.4), so that scripts and people find what they know.

mod class;
mod header;
mod number;
mod program;
mod short;
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
use super::{Origin, RenderedEvent, Renderer, Sink, SinkError, buffer};
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
    frame: TimeFrame,
    times: Times,
    classes: ClassPrograms,
    /// Cycles and time of the event before.
    before: Option<(u64, Option<i64>)>,
}

/// What stands around the time of a line, and around the time since the event before.
struct TimeFrame {
    before: Box<[u8]>,
    between: Box<[u8]>,
    behind: &'static [u8],
}

impl TimeFrame {
    fn new(options: &TextOptions, style: &Style) -> Self {
        let name = |name: &str| format!("{}{name}{} = ", style.name, style.end);
        let named = options.names.header;
        let (begin, end) = if named {
            (name("timestamp"), ", ")
        } else {
            ("[".to_owned(), "] ")
        };
        let delta = match (options.no_delta, named) {
            (true, _) => String::new(),
            (false, true) => name("delta"),
            (false, false) => "(".to_owned(),
        };
        let before = format!("{begin}{}", style.time);
        let between = format!("{}{end}{delta}", style.end);
        Self {
            before: before.into_bytes().into(),
            between: between.into_bytes().into(),
            behind: if named { b", " } else { b") " },
        }
    }
}

/// Renders lines without the time since the event before.
struct LineRenderer {
    times: Times,
    classes: ClassPrograms,
}

impl<W: Write> TextSink<W> {
    /// A sink that writes to `output`.
    pub fn new(output: W, options: TextOptions) -> Self {
        let style = style(&options);
        Self {
            output,
            out: buffer::with_capacity(),
            frame: TimeFrame::new(&options, &style),
            times: Times::new(options.clock.clone()),
            classes: ClassPrograms::new(options.fields, options.names, style),
            options,
            before: None,
        }
    }

    /// Writes what stands between the time of an event and the rest of its line: how much later it is than the one
    /// before.
    #[inline]
    fn write_delta(&mut self, cycles: u64, time: Option<i64>) {
        let out = &mut self.out;
        let before = self.before.replace((cycles, time));
        short::push(out, &self.frame.between);
        if self.options.no_delta {
            return;
        }
        let since = |before: i64| time.unwrap_or(before).saturating_sub(before);
        let went_back = match before {
            // Cycles of clocks with different origins wrap around here, as in babeltrace2.
            _ if self.times.shows_cycles() => false,
            Some((_, Some(before))) => since(before) < 0,
            _ => false,
        };
        out.push(if went_back { b'-' } else { b'+' });
        match (self.times.shows_cycles(), before) {
            (true, None) => out.extend_from_slice(b"????????????"),
            (true, Some((before, _))) => time::padded(out, cycles.wrapping_sub(before), 12),
            (false, Some((_, Some(before)))) if time.is_some() => {
                time::seconds(out, since(before).unsigned_abs());
            }
            (false, _) => out.extend_from_slice(b"?.?????????"),
        }
        short::push(out, self.frame.behind);
    }
}

fn style(options: &TextOptions) -> Style {
    if options.colour {
        Style::coloured()
    } else {
        Style::plain()
    }
}

impl<W: Write> Sink for TextSink<W> {
    fn event(&mut self, event: &Event<'_>, origin: Origin<'_>) -> Result<(), SinkError> {
        if event.stream_class().timescale().is_some() {
            let (cycles, time) = (event.cycles(), event.time());
            short::push(&mut self.out, &self.frame.before);
            self.times.write_event_time(&mut self.out, cycles, time);
            self.write_delta(cycles, time);
        }
        self.classes.write(event, origin, &mut self.out)?;
        self.out.push(b'\n');
        Ok(buffer::write_if_full(&mut self.out, &mut self.output)?)
    }

    fn renderer(&self) -> Option<Box<dyn Renderer>> {
        let options = &self.options;
        Some(Box::new(LineRenderer {
            times: Times::new(options.clock.clone()),
            classes: ClassPrograms::new(options.fields, options.names, style(options)),
        }))
    }

    fn rendered_event(&mut self, event: &RenderedEvent<'_>) -> Result<(), SinkError> {
        let (time, rest) = event.parts;
        if event.time.is_some() {
            short::push(&mut self.out, &self.frame.before);
            short::push(&mut self.out, time);
            self.write_delta(event.cycles, event.time);
        }
        self.out.extend_from_slice(rest);
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

impl Renderer for LineRenderer {
    fn render(
        &mut self,
        event: &Event<'_>,
        origin: Origin<'_>,
        out: &mut Vec<u8>,
    ) -> Result<usize, SinkError> {
        let begin = out.len();
        if event.stream_class().timescale().is_some() {
            self.times
                .write_event_time(out, event.cycles(), event.time());
        }
        let first = out.len() - begin;
        self.classes.write(event, origin, out)?;
        out.push(b'\n');
        Ok(first)
    }
}
