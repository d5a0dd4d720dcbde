//! The counts of events by name and by stream, and their table.

use std::collections::HashMap;
use std::time::Duration;

use ::tef::Record;
use ::tef::ctf::{Decoded, RecordDecoder};
use viewer::attach::{StreamKey, TraceKey};
use viewer::interpret::event_name::counted_name;
use viewer::sink::Origin;
use viewer::sink::losses::LossSum;
use viewer::slots::Slots;
use viewer::terminal::printable;

/// Rows of streams that have ended. If there are more, those with the fewest events become one.
const MAX_ENDED_STREAMS: usize = 4096;
/// Rows of names. The events of further names are counted together.
const MAX_NAMES: usize = 1 << 16;
/// The name under which the events of further names are counted.
const OTHER_NAMES: &str = "<other names>";

/// The counts of events by name and by stream.
#[derive(Debug, Default)]
pub(super) struct CountTable {
    names: Vec<CountRow>,
    streams: Slots<CountRow>,
    /// The counts of streams that have ended and have no row of their own any more, and how many
    /// there are.
    others: CountRow,
    other_streams: usize,
    /// The rows of streams that have ended.
    ended: Vec<usize>,
    all: CountRow,
    pub(super) losses: LossSum,
    by_name: HashMap<String, usize>,
    by_class: HashMap<(TraceKey, u64, u64), usize>,
    by_stream: HashMap<StreamKey, usize>,
    /// The class of the event before: many come in a row.
    last_class: Option<((TraceKey, u64, u64), usize)>,
    last_stream: Option<(StreamKey, usize)>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct CountRow {
    name: String,
    count: u64,
    /// The count when the last picture was drawn.
    before: u64,
}

/// The time that the rates of a picture are over, on the clock of the trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Span {
    /// The time since the picture before.
    Last(Duration),
    /// The time since the beginning.
    All(Duration),
}

impl CountTable {
    /// Counts an event of Trace Event Format by the name that it was sent with, if it has one.
    pub(super) fn count_sent(
        &mut self,
        decoder: &RecordDecoder,
        class: (TraceKey, u64, u64),
        name: Option<&str>,
        origin: Origin<'_>,
    ) {
        let sent = match name.and_then(|name| decoder.decode(name)) {
            Some(Decoded::Record {
                record: Record::Event(sent),
                ..
            }) => Some(sent),
            _ => None,
        };
        match sent.as_ref().and_then(counted_name) {
            Some(sent) => {
                let place = self.name_place(sent);
                self.count_at(place, origin);
            }
            None => self.count(class, name, origin),
        }
    }

    #[inline]
    pub(super) fn count(
        &mut self,
        class: (TraceKey, u64, u64),
        name: Option<&str>,
        origin: Origin<'_>,
    ) {
        let place = match self.last_class {
            Some((last, place)) if last == class => place,
            _ => self.class_place(class, name),
        };
        self.count_at(place, origin);
    }

    #[inline]
    pub(super) fn count_at(&mut self, place: usize, origin: Origin<'_>) {
        if let Some(row) = self.names.get_mut(place) {
            row.count += 1;
        }
        let place = match self.last_stream {
            Some((last, place)) if last == origin.stream.key => place,
            _ => self.stream_place(origin),
        };
        if let Some(row) = self.streams.get_mut(place) {
            row.count += 1;
        }
        self.all.count += 1;
    }

    fn class_place(&mut self, class: (TraceKey, u64, u64), name: Option<&str>) -> usize {
        let place = match self.by_class.get(&class) {
            Some(place) => *place,
            None => {
                let place = self.name_place(name.unwrap_or("<unknown>"));
                // Several classes of one name share a row.
                self.by_class.insert(class, place);
                place
            }
        };
        self.last_class = Some((class, place));
        place
    }

    pub(super) fn name_place(&mut self, name: &str) -> usize {
        if let Some(place) = self.by_name.get(name) {
            return *place;
        }
        let name = if self.by_name.len() >= MAX_NAMES {
            OTHER_NAMES
        } else {
            name
        };
        let names = &mut self.names;
        let place = self
            .by_name
            .entry(name.to_owned())
            .or_insert_with_key(|name| {
                names.push(CountRow::new(name));
                names.len() - 1
            });
        *place
    }

    fn stream_place(&mut self, origin: Origin<'_>) -> usize {
        let key = origin.stream.key;
        let streams = &mut self.streams;
        let place = *self.by_stream.entry(key).or_insert_with(|| {
            let name = format!("{} {}", origin.trace.name, origin.stream.name);
            streams.insert(CountRow::new(&name))
        });
        self.last_stream = Some((key, place));
        place
    }

    /// Ends a stream. Its row stays, unless there are many.
    pub(super) fn end_stream(&mut self, key: StreamKey) {
        // The place of the stream may be given to another one.
        self.last_stream = None;
        let Some(place) = self.by_stream.remove(&key) else {
            return;
        };
        self.ended.push(place);
        if self.ended.len() <= MAX_ENDED_STREAMS {
            return;
        }
        let streams = &self.streams;
        let count = |place: &usize| streams.get(*place).map_or(0, |row| row.count);
        self.ended
            .sort_by_key(|place| std::cmp::Reverse(count(place)));
        // Half of them, so that they are sorted once in thousands of streams.
        for place in self.ended.split_off(MAX_ENDED_STREAMS / 2) {
            if let Some(row) = self.streams.remove(place) {
                self.others.count += row.count;
                // Otherwise all these events would be in the rate of the next picture.
                self.others.before += row.before;
                self.other_streams += 1;
            }
        }
        self.others.name = format!("<{} streams that have ended>", self.other_streams);
    }

    /// Ends a trace: its classes are forgotten.
    pub(super) fn end_trace(&mut self, trace: TraceKey) {
        self.last_class = None;
        self.by_class.retain(|(of, ..), _| *of != trace);
    }

    /// The next picture shows the events from now on.
    pub(super) fn start_next_span(&mut self) {
        let rows = self.names.iter_mut().chain(self.streams.values_mut());
        for row in rows.chain([&mut self.all, &mut self.others]) {
            row.before = row.count;
        }
    }

    pub(super) fn text(&self, span: Span, rows: usize, columns: usize) -> String {
        let mut lines = Vec::new();
        let count = self.all.count;
        lines.push(format!(
            "{} events/s, {count} events in all, {} names, {} streams, {}",
            span.rate(&self.all),
            self.names.len(),
            self.streams.len() + self.other_streams,
            self.losses
        ));
        let others = (self.other_streams > 0).then_some(&self.others);
        let streams_of = || self.streams.iter().map(|(_, row)| row).chain(others);
        // The sum, and an empty line and a heading before each list.
        let free = rows.saturating_sub(5);
        // Streams get half of the lines, and those that the names leave.
        let streams = streams_of()
            .count()
            .min((free / 2).max(free.saturating_sub(self.names.len())));
        let names = free.saturating_sub(streams);
        for (title, list, most) in [
            ("EVENT", self.names.iter().collect(), names),
            ("STREAM", streams_of().collect(), streams),
        ] {
            lines.push(String::new());
            lines.push(format!("{:>12} {:>15}  {title}", "PER SECOND", "TOTAL"));
            for row in span.sorted(list).into_iter().take(most) {
                let (rate, count) = (span.rate(row), row.count);
                lines.push(format!("{rate:>12} {count:>15}  {}", row.name));
            }
        }
        let mut text = String::new();
        for line in lines.iter().take(rows) {
            text.extend(line.chars().take(columns));
            text.push('\n');
        }
        text
    }
}

impl CountRow {
    fn new(name: &str) -> Self {
        Self {
            // Names come from traces, and are shown on a terminal.
            name: printable(name).collect(),
            ..Self::default()
        }
    }
}

impl Span {
    fn events(self, row: &CountRow) -> u64 {
        match self {
            Self::Last(_) => row.count - row.before,
            Self::All(_) => row.count,
        }
    }

    /// Events per second of the trace, rounded; `-` if no time has passed between its events.
    fn rate(self, row: &CountRow) -> String {
        let (Self::Last(time) | Self::All(time)) = self;
        let (events, nanoseconds) = (u128::from(self.events(row)), time.as_nanos());
        match (events * 1_000_000_000 + nanoseconds / 2).checked_div(nanoseconds) {
            Some(rate) => rate.to_string(),
            None if events == 0 => "0".to_owned(),
            None => "-".to_owned(),
        }
    }

    /// The most frequent first; of equals the one that has had more, then by name.
    fn sorted(self, mut rows: Vec<&CountRow>) -> Vec<&CountRow> {
        rows.sort_by(|a, b| {
            let order = self.events(b).cmp(&self.events(a));
            order
                .then(b.count.cmp(&a.count))
                .then_with(|| a.name.cmp(&b.name))
        });
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use viewer::test_support::TestOrigin;

    fn counted() -> CountTable {
        let mut table = CountTable::default();
        let (one, two) = (TestOrigin::new("t", "one"), TestOrigin::new("t", "two"));
        for (place, name, class, count) in [
            (&one, "a", 0, 3),
            (&two, "b\x1b[2J", 1, 5),
            (&two, "a", 2, 1),
            (&one, "a", 0, 2),
        ] {
            for _ in 0..count {
                table.count((place.trace.key, 0, class), Some(name), place.origin());
            }
        }
        table
    }

    #[test]
    fn events_are_summed_by_name_and_by_stream_and_sorted_by_rate() {
        let text = counted().text(Span::All(Duration::from_secs(2)), usize::MAX, usize::MAX);
        assert_eq!(
            text,
            "6 events/s, 11 events in all, 2 names, 2 streams, nothing lost\n\n\
             \x20 PER SECOND           TOTAL  EVENT\n\
             \x20          3               6  a\n\
             \x20          3               5  b\u{fffd}[2J\n\n\
             \x20 PER SECOND           TOTAL  STREAM\n\
             \x20          3               6  t two\n\
             \x20          3               5  t one\n"
        );
    }

    #[test]
    fn event_rates_are_for_the_time_since_the_last_picture() {
        let mut table = counted();
        table.start_next_span();
        let place = TestOrigin::new("t", "three");
        table.count((place.trace.key, 0, 9), Some("rare"), place.origin());
        let text = table.text(Span::Last(Duration::from_secs(1)), 100, 100);
        let first = text.lines().nth(3).unwrap();
        assert_eq!(
            first.split_whitespace().collect::<Vec<_>>(),
            ["1", "1", "rare"]
        );
    }

    #[test]
    fn ended_streams_keep_their_counts_and_share_a_row_beyond_a_limit() {
        let mut table = CountTable::default();
        let streams = 3 * MAX_ENDED_STREAMS;
        for stream in 0..streams {
            let place = TestOrigin::new("t", &format!("s{stream}"));
            let count = if stream == 7 { 100 } else { 1 };
            for _ in 0..count {
                table.count((place.trace.key, 0, 0), Some("e"), place.origin());
            }
            table.end_stream(place.stream.key);
            table.end_trace(place.trace.key);
        }
        assert!(table.by_stream.is_empty() && table.by_class.is_empty());
        assert!(table.streams.len() <= MAX_ENDED_STREAMS);
        let all = Span::All(Duration::from_secs(1));
        let text = table.text(all, usize::MAX, usize::MAX);
        let events = streams + 99;
        let head = format!("{events} events in all, 1 names, {streams} streams");
        assert!(text.contains(&head), "{}", text.lines().next().unwrap());
        let rows = text.lines().skip_while(|line| !line.ends_with("STREAM"));
        let counts = rows
            .skip(1)
            .map(|row| row.split_whitespace().nth(1).unwrap());
        let sum: usize = counts.map(|count| count.parse::<usize>().unwrap()).sum();
        assert_eq!(sum, events);
        let others = format!("<{} streams that have ended>", table.other_streams);
        assert!(text.contains(&others) && text.contains("100  t s7"));
    }

    #[test]
    fn event_names_beyond_the_limit_are_counted_together() {
        let mut table = CountTable::default();
        let place = TestOrigin::new("t", "s");
        for class in 0..MAX_NAMES as u64 + 10 {
            let name = format!("e{class}");
            table.count((place.trace.key, 0, class), Some(&name), place.origin());
        }
        assert_eq!(table.names.len(), MAX_NAMES + 1);
        let last = table.names.last().unwrap();
        assert_eq!((last.name.as_str(), last.count), (OTHER_NAMES, 10));
    }

    #[test]
    fn the_counter_fits_the_terminal() {
        let mut table = CountTable::default();
        for stream in 0..50 {
            let place = TestOrigin::new("trace", &format!("stream {stream} {}", "x".repeat(100)));
            table.count(
                (place.trace.key, 0, 0),
                Some(&"n".repeat(stream)),
                place.origin(),
            );
        }
        for rows in [0, 1, 3, 24] {
            let text = table.text(Span::Last(Duration::from_secs(1)), rows, 40);
            assert!(text.lines().count() <= rows);
            assert!(text.lines().all(|line| line.chars().count() <= 40));
        }
        assert_eq!(
            table
                .text(Span::Last(Duration::from_secs(1)), 24, 40)
                .lines()
                .count(),
            24
        );
    }
}
