//! `test-live spans`: how long spans take, by their names.
//!
//! Read in this order: `table` (the rows), `report` (rows as text and JSON). Which events are
//! begins and ends of spans, and what is within what, is found by `viewer::interpret`.

mod report;
mod table;

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use ctf::decode::Event;
use daemon::output::stdout;
use jiff::Timestamp;
use viewer::interpret::span_meter::SpanMeter;
use viewer::run::{Outcome, Stop};
use viewer::sink::{Ended, Finished, Loss, Needs, Next, OpenSink, Origin, Sink, SinkError};

use self::report::{ReportOptions, sorted_rows, table_text, write_json};
use self::table::SpanTable;
use crate::cli::SpansArguments;
use crate::run::{self, RunOutput};
use crate::sink::picture::{ClockReads, Picture, terminal_size};
use crate::sink::text::ClockFormat;
use crate::top::text::cut_to_width;

/// Time between two tables on a terminal.
const TERMINAL_INTERVAL: Duration = Duration::from_secs(1);

/// Measures the spans of the targets, and prints them when all have ended or `stop` is requested.
///
/// # Errors
/// If nothing can be read or standard output cannot be written.
pub fn run(arguments: &SpansArguments, stop: &Stop) -> anyhow::Result<Outcome> {
    let is_terminal = io::stdout().is_terminal() && !arguments.json;
    let open = |_is_endless| {
        let sink = SpansSink::new(arguments, is_terminal);
        Ok(OpenSink::Events(Box::new(sink)))
    };
    let output = RunOutput {
        name: "test-live spans".to_owned(),
        needs: Needs::EVENTS,
        clock: ClockFormat {
            gmt: arguments.clock_gmt,
            ..ClockFormat::default()
        },
        limit: None,
        is_terminal,
        open: &open,
    };
    run::show_selected_events(&arguments.read, &output, stop)
}

/// Measures spans, and shows a table of them.
struct SpansSink {
    meter: SpanMeter<SpanTable>,
    options: ReportOptions,
    is_json: bool,
    refresh: Option<Refresh>,
    clock_reads: ClockReads,
    has_events: bool,
}

/// Tables that are shown while events come.
struct Refresh {
    interval: Duration,
    at: Instant,
    /// Absent if tables are written one below the other.
    picture: Option<Picture>,
}

impl SpansSink {
    fn new(arguments: &SpansArguments, is_terminal: bool) -> Self {
        let picture = is_terminal.then(Picture::default);
        let default = is_terminal.then_some(TERMINAL_INTERVAL);
        let interval = arguments.interval.or(default);
        Self {
            meter: SpanMeter::new(SpanTable::new(arguments.by)),
            options: ReportOptions {
                group: arguments.by,
                sort: arguments.sort,
                limit: arguments.limit,
            },
            is_json: arguments.json,
            refresh: interval.map(|interval| Refresh {
                interval,
                at: Instant::now() + interval,
                picture,
            }),
            clock_reads: ClockReads::default(),
            has_events: false,
        }
    }

    fn add(
        &mut self,
        event: &Event<'_>,
        origin: Origin<'_>,
        is_shown: bool,
    ) -> Result<(), SinkError> {
        self.meter.read(event, origin, is_shown)?;
        if self.clock_reads.is_due() {
            self.refresh_at(Instant::now())?;
        }
        Ok(())
    }

    /// Shows a table if it is time to.
    fn refresh_at(&mut self, now: Instant) -> io::Result<()> {
        let Some(refresh) = self.refresh.as_mut().filter(|refresh| now >= refresh.at) else {
            return Ok(());
        };
        refresh.at = now + refresh.interval;
        let rows = sorted_rows(&self.meter, self.options);
        let group = self.options.group;
        let mut out = stdout();
        match &mut refresh.picture {
            Some(picture) => {
                let (lines, columns) = terminal_size();
                let table = table_text(&rows, group, columns);
                // The last row stays free, because a line end there would scroll the picture.
                let lines = table.lines().take(lines.saturating_sub(1));
                let lines: Vec<_> = lines.map(|line| cut_to_width(line, columns)).collect();
                picture.draw(&lines.join("\n"), &mut out)
            }
            None => {
                // Written at once, so that messages do not come between the rows.
                let table = table_text(&rows, group, usize::MAX);
                let text = format!("{:.0}\n{table}\n", Timestamp::now());
                out.write_all(text.as_bytes())?;
                out.flush()
            }
        }
    }

    fn warnings(&self) -> Vec<String> {
        let table = self.meter.observer();
        let mut warnings = table.warnings();
        if self.has_events && table.rows().next().is_none() {
            warnings.push("no event begins or ends a span".to_owned());
        }
        warnings.extend(self.meter.warnings());
        warnings
    }
}

impl Sink for SpansSink {
    fn event(&mut self, event: &Event<'_>, origin: Origin<'_>) -> Result<(), SinkError> {
        self.has_events = true;
        self.add(event, origin, true)
    }

    fn filtered_out(&mut self, event: &Event<'_>, origin: Origin<'_>) -> Result<(), SinkError> {
        self.add(event, origin, false)
    }

    fn lost(&mut self, _loss: &Loss, origin: Origin<'_>) -> Result<(), SinkError> {
        self.meter.add_loss(origin.trace.key);
        Ok(())
    }

    fn flush(&mut self, ended: &Ended) -> Result<Next, SinkError> {
        self.meter.end(ended);
        self.refresh_at(Instant::now())?;
        Ok(match &self.refresh {
            Some(refresh) => Next::FlushAt(refresh.at),
            None => Next::Event,
        })
    }

    fn finish(&mut self, _is_whole: bool) -> Result<Finished, SinkError> {
        self.meter.finish();
        let mut out = stdout();
        let rows = sorted_rows(&self.meter, self.options);
        match self.is_json {
            true => write_json(&rows, self.options.group, &mut out)?,
            false => {
                let picture = self.refresh.as_ref().and_then(|of| of.picture.as_ref());
                // The whole table takes the place of the picture.
                picture.map_or(Ok(()), |picture| picture.clear(&mut out))?;
                let table = table_text(&rows, self.options.group, usize::MAX);
                out.write_all(table.as_bytes())?;
            }
        }
        out.flush()?;
        Ok(Finished {
            warnings: self.warnings(),
            ..Finished::default()
        })
    }
}
