//! The sink: finds the table of each event.

use std::time::Instant;

use ctf::decode::Event;
use viewer::sink::{Ended, Finished, Loss, Next, Origin, Sink, SinkError};

use super::classes::Classes;
use super::destination::Destination;
use super::name::{day_of, nanoseconds};
use super::tables::{Limits, Tables};

/// Writes tables.
#[derive(Debug)]
pub(super) struct Parquet {
    classes: Classes,
    tables: Tables,
    /// The number of events that have more fields than a table has columns.
    left_out: u64,
}

impl Parquet {
    pub(super) fn new(destination: Destination, limits: Limits) -> Self {
        Self {
            classes: Classes::default(),
            tables: Tables::new(destination, limits),
            left_out: 0,
        }
    }
}

impl Sink for Parquet {
    fn event(&mut self, event: &Event<'_>, origin: Origin<'_>) -> Result<(), SinkError> {
        let class = self.classes.class(event, origin);
        let class = class.map_err(|error| SinkError::Sink(Box::new(error)))?;
        let Some(class) = class else {
            self.left_out += 1;
            return Ok(());
        };
        let time = nanoseconds(event);
        let day = day_of(time);
        let last = class
            .last
            .filter(|(of, place)| *of == day && self.tables.is_open(*place));
        let place = match last {
            Some((_, place)) => place,
            None => self.tables.place(class.table(day), &class.schema)?,
        };
        class.last = Some((day, place));
        self.tables.append(place, (event, origin), time)
    }

    /// Does nothing: a table has rows of events only.
    fn lost(&mut self, _loss: &Loss, _origin: Origin<'_>) -> Result<(), SinkError> {
        Ok(())
    }

    fn flush(&mut self, ended: &Ended) -> Result<Next, SinkError> {
        for trace in &ended.traces {
            self.classes.forget_trace(*trace);
        }
        let deadline = self.tables.close_old(Instant::now())?;
        Ok(deadline.map_or(Next::Event, Next::FlushAt))
    }

    fn finish(&mut self, _is_whole: bool) -> Result<Finished, SinkError> {
        self.tables.finish()?;
        let mut finished = Finished::default();
        if self.left_out > 0 {
            let what = format!(
                "{} events have more fields than a table may have columns and are left out",
                self.left_out
            );
            finished.warnings.push(what);
        }
        Ok(finished)
    }
}
