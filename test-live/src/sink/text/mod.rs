//! One line for each event, to the byte as `babeltrace2`'s `sink.text.pretty` writes it (version
//! 2.0.4), so that scripts and people find what they know.

mod arguments;
mod class;
mod header;
mod line;
mod lists;
mod number;
mod program;
mod style;
mod time;
mod values;

use std::io::Write;

use ctf::decode::Event;

pub use arguments::TextArguments;
pub use header::HeaderFields;
pub(crate) use time::ShownTime;
use viewer::sink::{
    Ended, Finished, Loss, Needs, Next, OpenSink, Origin, RenderedRun, RenderedSink, Renderer,
    Sink, SinkError,
};
use viewer::time::Nanoseconds;

use self::class::ClassPrograms;
use self::line::{Line, LineBuffer, Literal, line_buffer};
use self::style::Style;
use super::buffer;
use super::row::{Open, SinkRow};
pub use time::{ClockFormat, Times};
pub use values::Names;

/// Lines as `babeltrace2` writes them.
pub const ROW: SinkRow = SinkRow {
    name: "text",
    help: "One line for each event, as babeltrace2 writes it",
    needs: Needs::EVENTS,
    open: Open::Stream(|out, context| {
        let options = context.options.text.options(context.is_terminal);
        Ok(OpenSink::Rendered(Box::new(TextSink::new(out, options))))
    }),
    download: None,
};

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
    lines: Lines,
}

/// Renders events as lines, and remembers the time of the event before.
struct Lines {
    line: Box<LineBuffer>,
    options: TextOptions,
    frame: TimeFrame,
    times: Times,
    classes: ClassPrograms,
}

/// What stands around the time of a line, and the time since the event before.
struct TimeFrame {
    before: Literal,
    between: Literal,
    behind: Literal,
    has_delta: bool,
    shows_cycles: bool,
    /// Cycles and time of the event before.
    last: Option<(u64, Option<i64>)>,
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
            behind: (if named { &b", "[..] } else { b") " }).into(),
            has_delta: !options.no_delta,
            shows_cycles: options.clock.cycles,
            last: None,
        }
    }

    /// Writes what stands between the time of an event and the rest of its line: how much later it
    /// is than the one before.
    #[inline]
    fn write_delta(&mut self, line: &mut Line<'_>, cycles: u64, time: Option<i64>) {
        let before = self.last.replace((cycles, time));
        line.literal(&self.between);
        if !self.has_delta {
            return;
        }
        let since = |before: i64| time.unwrap_or(before).saturating_sub(before);
        let went_back = match before {
            // Cycles of clocks with different origins wrap around here, as in babeltrace2.
            _ if self.shows_cycles => false,
            Some((_, Some(before))) => since(before) < 0,
            _ => false,
        };
        line.copy(if went_back { b"-" } else { b"+" }, 1);
        let cycles_since = before.map(|(before, _)| cycles.wrapping_sub(before));
        match (self.shows_cycles, before) {
            // One cycle back is not told from unknown, as in babeltrace2.
            (true, _) => match cycles_since.filter(|since| *since != u64::MAX) {
                Some(since) => time::padded(line.out(), since, 12),
                None => line.text(b"????????????"),
            },
            (false, Some((_, Some(before)))) if time.is_some() => {
                time::seconds_to_line(line, since(before).unsigned_abs());
            }
            (false, _) => line.text(b"?.?????????"),
        }
        line.literal(&self.behind);
    }
}

impl<W: Write> TextSink<W> {
    /// A sink that writes to `output`.
    pub fn new(output: W, options: TextOptions) -> Self {
        Self {
            output,
            out: buffer::with_capacity(),
            lines: Lines::new(options),
        }
    }
}

impl Lines {
    fn new(options: TextOptions) -> Self {
        let style = style(&options);
        Self {
            line: line_buffer(),
            frame: TimeFrame::new(&options, &style),
            times: Times::new(options.clock.clone()),
            classes: ClassPrograms::new(options.fields, options.names, style),
            options,
        }
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
        self.lines.next_event(event, origin, &mut self.out)?;
        Ok(buffer::write_if_full(&mut self.out, &mut self.output)?)
    }

    /// Does nothing: `babeltrace2` has no line for losses either, but on standard error.
    fn lost(&mut self, _loss: &Loss, _origin: Origin<'_>) -> Result<(), SinkError> {
        Ok(())
    }

    fn flush(&mut self, ended: &Ended) -> Result<Next, SinkError> {
        for stream in &ended.streams {
            self.lines.classes.forget_stream(*stream);
        }
        for trace in &ended.traces {
            self.lines.classes.forget_trace(*trace);
        }
        buffer::flush(&mut self.out, &mut self.output)?;
        Ok(Next::Event)
    }

    fn finish(&mut self, _is_whole: bool) -> Result<Finished, SinkError> {
        buffer::flush(&mut self.out, &mut self.output)?;
        Ok(Finished::default())
    }
}

impl<W: Write> RenderedSink for TextSink<W> {
    fn renderer(&self) -> Box<dyn Renderer> {
        Box::new(Lines::new(self.lines.options.clone()))
    }

    fn show_run(&mut self, run: &RenderedRun) -> Result<(), SinkError> {
        let Some((first, last)) = run.times() else {
            return Ok(());
        };
        let (time, rest) = run.parts();
        let lines = &mut self.lines;
        // Only here it is known how much later the first event of a run is than the one before.
        if first.time.is_some() {
            let mut line = Line::new(&mut lines.line, &mut self.out);
            line.literal(&lines.frame.before);
            line.text(time);
            let time = first.time.map(Nanoseconds::get);
            lines.frame.write_delta(&mut line, first.cycles, time);
            line.out();
            // The line after the run begins with the time since its last event.
            lines.frame.last = Some((last.cycles, last.time.map(Nanoseconds::get)));
        }
        Ok(buffer::append_or_write(
            &mut self.out,
            rest,
            &mut self.output,
        )?)
    }
}

impl Renderer for Lines {
    fn forget_streams(&mut self) {
        // What is known of classes holds for all parts of their traces.
        self.classes.forget_packets();
    }

    fn first_event(
        &mut self,
        event: &Event<'_>,
        origin: Origin<'_>,
        out: &mut Vec<u8>,
    ) -> Result<usize, SinkError> {
        let begin = out.len();
        if let Some(time) = ShownTime::of(event) {
            self.times.write_event_time(out, time);
            self.frame.last = Some((time.cycles, time.time));
        }
        let first = out.len() - begin;
        let mut line = Line::new(&mut self.line, out);
        self.classes.write(event, origin, &mut line)?;
        line.copy(b"\n", 1);
        line.out();
        Ok(first)
    }

    #[inline]
    fn next_event(
        &mut self,
        event: &Event<'_>,
        origin: Origin<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), SinkError> {
        let mut line = Line::new(&mut self.line, out);
        if let Some(time) = ShownTime::of(event) {
            line.literal(&self.frame.before);
            self.times.write_event_time_to_line(&mut line, time);
            self.frame.write_delta(&mut line, time.cycles, time.time);
        }
        self.classes.write(event, origin, &mut line)?;
        line.copy(b"\n", 1);
        line.out();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn difference_of_cycles_is_unknown_for_the_first_event_and_one_cycle_back() {
        let mut options = TextOptions::default();
        options.clock.cycles = true;
        let mut frame = TimeFrame::new(&options, &Style::plain());
        let mut delta = |cycles| {
            let line = line::written(|line| frame.write_delta(line, cycles, None));
            String::from_utf8(line).unwrap()
        };
        assert_eq!(delta(7), "] (+????????????) ");
        assert_eq!(delta(9), "] (+000000000002) ");
        assert_eq!(delta(8), "] (+????????????) ");
        assert_eq!(delta(6), "] (+18446744073709551614) ");
    }
}
