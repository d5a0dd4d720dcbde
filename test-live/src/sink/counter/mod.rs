//! The number of events, by name and by stream: what `top` is to processes. Rates are per second of
//! the trace, not of this program. Events that programs have sent in Trace Event Format count by
//! the name that they were sent with.

mod table;

use std::io::Write;
use std::time::{Duration, Instant};

use ::tef::ctf::RecordDecoder;
use ctf::decode::Event;
use viewer::sink::{Ended, Finished, Loss, Needs, Next, OpenSink, Origin, Sink, SinkError};

use self::table::{CountTable, Span};
use super::picture::{ClockReads, Picture, terminal_size};
use super::row::{Open, SinkRow};

/// Time between two pictures.
const REFRESH: Duration = Duration::from_secs(1);

/// Counts by name and by stream.
pub const ROW: SinkRow = SinkRow {
    name: "counter",
    help: "The number of events per second",
    needs: Needs::EVENTS,
    open: Open::Stream(|out, context| {
        let screen = if context.is_terminal {
            Screen::Terminal(Box::new(terminal_size))
        } else {
            Screen::Plain
        };
        Ok(OpenSink::Events(Box::new(Counter::new(out, screen))))
    }),
    download: None,
};

/// The device that the counts are shown on.
pub enum Screen {
    /// A terminal, drawn anew each second. Says how many rows and columns it has now.
    Terminal(Box<dyn Fn() -> (usize, usize) + Send>),
    /// Something else: one table at the end.
    Plain,
}

/// Counts events by name and by stream.
pub struct Counter<W> {
    out: W,
    screen: Screen,
    table: CountTable,
    decoder: RecordDecoder,
    clock_reads: ClockReads,
    /// The times of the first event, of the last one, and of the last one in the last picture, in
    /// nanoseconds.
    first_time: Option<i64>,
    last_time: i64,
    shown_time: i64,
    shown: Instant,
    picture: Picture,
}

impl<W: Write> Counter<W> {
    /// Shows the counts on `screen` through `out`.
    pub fn new(out: W, screen: Screen) -> Self {
        let now = Instant::now();
        Self {
            out,
            screen,
            table: CountTable::default(),
            decoder: RecordDecoder::default(),
            clock_reads: ClockReads::default(),
            first_time: None,
            last_time: 0,
            shown_time: 0,
            shown: now,
            picture: Picture::default(),
        }
    }

    fn refresh_at(&mut self, now: Instant) -> Result<(), SinkError> {
        let Screen::Terminal(size) = &self.screen else {
            return Ok(());
        };
        let since = now.saturating_duration_since(self.shown);
        if since < REFRESH {
            return Ok(());
        }
        // Asked each time, because users change the size of their windows.
        let (rows, columns) = size();
        let text = self.table.text(
            Span::Last(time_between(self.shown_time, self.last_time)),
            // The last row stays free, because a line end there would scroll the picture.
            rows.saturating_sub(1),
            columns,
        );
        self.picture.draw(&text, &mut self.out)?;
        self.table.start_next_span();
        self.shown = now;
        self.shown_time = self.last_time;
        Ok(())
    }
}

impl<W: Write> Sink for Counter<W> {
    #[inline]
    fn event(&mut self, event: &Event<'_>, origin: Origin<'_>) -> Result<(), SinkError> {
        let class = event.class();
        let key = (origin.trace.key, event.stream_class().id(), class.id());
        if let Some(time) = event.time() {
            if self.first_time.is_none() {
                (self.first_time, self.shown_time) = (Some(time), time);
            }
            self.last_time = time;
        }
        let name = class.name();
        if name.is_some_and(RecordDecoder::is_known_class) {
            self.decoder.clear();
            event.visit_fields(&mut self.decoder)?;
            self.table.count_sent(&self.decoder, key, name, origin);
        } else {
            self.table.count(key, name, origin);
        }
        if self.clock_reads.is_due() {
            self.refresh_at(Instant::now())?;
        }
        Ok(())
    }

    fn lost(&mut self, loss: &Loss, _origin: Origin<'_>) -> Result<(), SinkError> {
        self.table.losses.add(loss);
        Ok(())
    }

    fn flush(&mut self, ended: &Ended) -> Result<Next, SinkError> {
        for stream in &ended.streams {
            self.table.end_stream(*stream);
        }
        for trace in &ended.traces {
            self.table.end_trace(*trace);
        }
        self.refresh_at(Instant::now())?;
        Ok(Next::Event)
    }

    fn finish(&mut self, is_whole: bool) -> Result<Finished, SinkError> {
        self.table.losses.is_partial = !is_whole;
        // The last table has all rows, and takes the place of the picture.
        self.picture.clear(&mut self.out)?;
        let first = self.first_time.unwrap_or(self.last_time);
        let all = Span::All(time_between(first, self.last_time));
        let text = self.table.text(all, usize::MAX, usize::MAX);
        self.out.write_all(text.as_bytes())?;
        self.out.flush()?;
        Ok(Finished::default())
    }
}

/// The time from one event to another, in nanoseconds; zero if it is not known.
fn time_between(from: i64, to: i64) -> Duration {
    Duration::from_nanos(u64::try_from(to.saturating_sub(from)).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::super::picture::CLEAR_ALL;
    use super::*;
    use viewer::test_support::TestOrigin;

    #[test]
    fn rates_of_the_counter_are_per_second_of_the_trace() {
        let place = TestOrigin::new("t", "s");
        let mut counter = Counter::new(Vec::new(), Screen::Plain);
        for _ in 0..20 {
            let class = (place.trace.key, 0, 0);
            counter.table.count(class, Some("e"), place.origin());
        }
        (counter.first_time, counter.last_time) = (Some(1_000_000_000), 11_000_000_000);
        counter.finish(true).unwrap();
        let text = String::from_utf8(counter.out).unwrap();
        assert!(
            text.starts_with("2 events/s, 20 events in all, 1 names,"),
            "{text}"
        );
        let mut counter = Counter::new(Vec::new(), Screen::Plain);
        let class = (place.trace.key, 0, 0);
        counter.table.count(class, Some("e"), place.origin());
        counter.finish(false).unwrap();
        let text = String::from_utf8(counter.out).unwrap();
        assert!(text.starts_with("- events/s, 1 events in all"), "{text}");
        assert!(
            text.contains("nothing lost in what could be read"),
            "{text}"
        );
    }

    #[test]
    fn the_counter_is_drawn_once_a_second_on_a_terminal_and_once_in_a_file() {
        let place = TestOrigin::new("t", "s");
        for terminal in [true, false] {
            let screen = if terminal {
                Screen::Terminal(Box::new(|| (24, 80)))
            } else {
                Screen::Plain
            };
            let mut counter = Counter::new(Vec::new(), screen);
            let begin = counter.shown;
            counter
                .table
                .count((place.trace.key, 0, 0), Some("e"), place.origin());
            counter.refresh_at(begin).unwrap();
            assert!(counter.out.is_empty());
            counter.refresh_at(begin + REFRESH).unwrap();
            assert_eq!(counter.out.starts_with(CLEAR_ALL), terminal);
            let drawn = counter.out.len();
            counter.refresh_at(begin + REFRESH * 3 / 2).unwrap();
            assert_eq!(counter.out.len(), drawn);
            counter.finish(true).unwrap();
            assert!(String::from_utf8(counter.out).unwrap().ends_with("  t s\n"));
        }
    }
}
