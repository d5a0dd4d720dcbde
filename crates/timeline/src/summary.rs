//! What the rows of a range amount to: spans and events by name, values of counters, and a graph of
//! what was within what.
//!
//! Of a span that reaches beyond the range the part within it counts, so that the times of a thread
//! add up to no more than the range. The own time is that of `test-live spans`: at each moment it
//! is that of the span which began last.

use std::cmp::Reverse;
use std::collections::HashMap;

use serde::Serialize;
use viewer::interpret::duration_histogram::{DurationHistogram, Percentile};

use super::matches::{FilterState, Matches};
use super::row::{Row, RowKind};
use super::search::{FoundRow, found_row};
use super::span_graph::{GraphNode, SpanGraph};
use super::store::{Store, Track};

/// Largest number of names of spans in a summary, and of names of events. The others are counted.
const MAX_NAMES: usize = 500;
/// Largest number of counters in a summary.
const MAX_COUNTERS: usize = 500;
/// Number of blocks of rows that are read before others may change the track.
const BLOCKS_AT_A_TIME: usize = 256;
/// Largest number of buckets of the histograms of all names, in 16 MiB of memory.
const MAX_BUCKETS: usize = 1 << 20;

/// What the rows of a range amount to.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RangeSummary {
    /// Those with the most time first.
    pub(super) spans: Vec<SpanSummary>,
    /// The number of names of spans, also of those that are not in `spans`.
    pub(super) span_names: usize,
    /// States of threads, and threads that CPUs ran: those with the most time first. None has an
    /// own time.
    pub(super) states: Vec<SpanSummary>,
    /// The number of names of states, also of those that are not in `states`.
    pub(super) state_names: usize,
    /// Those with the most events first.
    pub(super) events: Vec<EventSummary>,
    /// The number of names of events, also of those that are not in `events`.
    pub(super) event_names: usize,
    pub(super) counters: Vec<CounterSummary>,
    /// The graph, each node before those within it.
    pub(super) graph: Vec<GraphNode>,
    /// Whether percentiles may be further than 0.5 % from the truth.
    pub(super) is_coarse: bool,
}

/// The spans of a name. Times are in nanoseconds, within the range.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SpanSummary {
    pub(super) name: u32,
    pub(super) count: u64,
    pub(super) total: u64,
    /// Absent if some of the spans have no thread: then what is within them is not known.
    pub(super) own: Option<u64>,
    pub(super) p50: u64,
    pub(super) p99: u64,
    pub(super) max: u64,
    /// The longest one.
    pub(super) longest: FoundRow,
}

/// The events of a name that are points in time.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct EventSummary {
    pub(super) name: u32,
    pub(super) count: u64,
    /// The first one.
    pub(super) first: FoundRow,
}

/// The values of a counter. The first one may be from before the range.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CounterSummary {
    pub(super) track: u32,
    /// The number of values within the range.
    pub(super) count: u64,
    pub(super) min: f64,
    pub(super) max: f64,
    /// The mean over the time for which there is a value.
    pub(super) mean: f64,
}

/// Summarizes the rows that overlap a range and pass a filter; losses are not among them.
pub(super) fn summarize(
    store: &Store,
    filter: Option<&FilterState>,
    from: i64,
    to: i64,
) -> RangeSummary {
    let mut sums = Sums {
        spans: HashMap::new(),
        states: HashMap::new(),
        events: HashMap::new(),
        graph: SpanGraph::new(),
        buckets: MAX_BUCKETS,
        is_coarse: false,
    };
    let mut counters = Vec::new();
    for track in store.tracks() {
        let mut range = TrackRange::new(from, to);
        // Some rows at a time, so that the decoding thread never waits for long.
        let mut next = Some(0);
        while let Some(number) = next {
            let matches = filter.map(|filter| filter.matches.read());
            next = sums.read_rows(&track, number, matches.as_deref(), &mut range);
        }
        counters.extend(range.counter(track.id));
        sums.add_own_times(&mut range);
    }
    counters.truncate(MAX_COUNTERS);
    RangeSummary {
        counters,
        ..sums.finish()
    }
}

/// What is to be counted of a track.
#[derive(Debug)]
struct TrackRange {
    from: i64,
    /// The end of what is known: of the range, or of the track.
    to: i64,
    spans: Vec<SpanPart>,
    /// The last value of a counter before the range.
    before: Option<Row>,
    values: Vec<Row>,
    /// Whether spans may overlap without being of one thread.
    has_overlapping: bool,
}

/// The part of a span that is within a range.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SpanPart {
    begin: i64,
    /// Of those that begin together the longest one is first: it is around the others.
    end: Reverse<i64>,
    depth: u16,
    number: u64,
    name: u32,
}

impl TrackRange {
    fn new(from: i64, to: i64) -> Self {
        Self {
            from,
            to,
            spans: Vec::new(),
            before: None,
            values: Vec::new(),
            has_overlapping: false,
        }
    }

    /// The values of a counter of this track; `None` if there are none.
    fn counter(&self, track: u32) -> Option<CounterSummary> {
        let is_at_begin = |first: &Row| first.start == self.from;
        let before = self.before;
        let before = before.filter(|_| !self.values.first().is_some_and(is_at_begin));
        let values: Vec<&Row> = before.iter().chain(&self.values).collect();
        let first = values.first()?.value();
        let ends = values.iter().skip(1).map(|row| row.start).chain([self.to]);
        let lasts = values.iter().zip(ends);
        let lasts = lasts.map(|(row, end)| length(row.start.max(self.from), end) as f64);
        let whole: f64 = lasts.clone().sum();
        // Weighted before they are added: the sum of large values may be too large.
        let parts = values.iter().zip(lasts);
        let mean = parts.map(|(row, lasts)| row.value() * (lasts / whole));
        Some(CounterSummary {
            track,
            count: self.values.len() as u64,
            min: values.iter().fold(first, |min, row| min.min(row.value())),
            max: values.iter().fold(first, |max, row| max.max(row.value())),
            mean: if whole > 0.0 { mean.sum() } else { first },
        })
    }
}

/// The nanoseconds from one time to another; 0 if that is earlier.
fn length(from: i64, to: i64) -> u64 {
    to.saturating_sub(from).max(0).cast_unsigned()
}

/// The sums of all tracks.
#[derive(Debug)]
struct Sums {
    spans: HashMap<u32, SpanSum>,
    states: HashMap<u32, SpanSum>,
    events: HashMap<u32, EventSum>,
    graph: SpanGraph,
    /// The number of buckets that histograms may still have.
    buckets: usize,
    is_coarse: bool,
}

/// A row of a track.
#[derive(Debug, Clone, Copy)]
struct Place {
    track: u32,
    number: u64,
    row: Row,
}

#[derive(Debug)]
struct SpanSum {
    count: u64,
    total: u64,
    own: Option<u64>,
    durations: DurationHistogram,
    max: u64,
    longest: Place,
}

#[derive(Debug)]
struct EventSum {
    count: u64,
    first: Place,
}

/// A span that is open at the moment that is looked at.
#[derive(Debug)]
struct OpenPart {
    end: i64,
    name: u32,
    node: u32,
}

impl Place {
    fn found(&self) -> FoundRow {
        found_row(self.track, self.number, &self.row)
    }
}

impl Sums {
    /// Reads some rows of a track from a number on. Returns the number of the next one, unless
    /// there is none.
    fn read_rows(
        &mut self,
        track: &Track,
        number: u64,
        filter: Option<&Matches>,
        range: &mut TrackRange,
    ) -> Option<u64> {
        let rows = track.rows.lock();
        range.has_overlapping = rows.has_overlapping;
        range.to = rows.ended_at.map_or(range.to, |ended| ended.min(range.to));
        let is_shown = |row: &Row| filter.is_none_or(|matches| matches.contains(row.place));
        let mut blocks = rows.blocks_from(number);
        for (first, block) in blocks.by_ref().take(BLOCKS_AT_A_TIME) {
            if block.min_start > range.to {
                continue;
            }
            if block.max_end < range.from {
                let is_value = |row: &&Row| row.kind == RowKind::Counter && is_shown(row);
                let rows = block.rows();
                let last = rows.iter().rev().find(is_value);
                range.before = last.copied().or(range.before);
                continue;
            }
            for (number, row) in (first..).zip(&*block.rows()) {
                if is_shown(row) {
                    self.read_row(track.id, number, row, range);
                }
            }
        }
        blocks.next().map(|(number, _)| number)
    }

    fn read_row(&mut self, track: u32, number: u64, row: &Row, range: &mut TrackRange) {
        let row = *row;
        if row.kind == RowKind::Counter && row.start < range.from {
            range.before = Some(row);
        }
        if row.start > range.to || row.end() < range.from {
            return;
        }
        let place = Place { track, number, row };
        match row.kind {
            RowKind::Span | RowKind::State => {
                let part = SpanPart {
                    begin: row.start.max(range.from),
                    end: Reverse(row.end().min(range.to)),
                    depth: row.depth,
                    number,
                    name: row.name,
                };
                self.add_span(&part, place);
                if row.kind == RowKind::Span {
                    range.spans.push(part);
                }
            }
            RowKind::Instant => {
                let sum = self.events.entry(row.name).or_insert(EventSum {
                    count: 0,
                    first: place,
                });
                sum.count += 1;
                if row.start < sum.first.row.start {
                    sum.first = place;
                }
            }
            RowKind::Counter => range.values.push(row),
            RowKind::Loss => {}
        }
    }

    /// Adds the own times of the spans of a track, which are known when all have been read.
    fn add_own_times(&mut self, range: &mut TrackRange) {
        if range.has_overlapping {
            for part in &range.spans {
                if let Some(sum) = self.spans.get_mut(&part.name) {
                    sum.own = None;
                }
            }
            return;
        }
        range.spans.sort_unstable();
        self.add_moments(&range.spans);
    }

    fn add_span(&mut self, part: &SpanPart, place: Place) {
        let duration = length(part.begin, part.end.0);
        let (sums, own) = match place.row.kind {
            RowKind::State => (&mut self.states, None),
            _ => (&mut self.spans, Some(0)),
        };
        let sum = sums.entry(part.name).or_insert_with(|| SpanSum {
            count: 0,
            total: 0,
            own,
            durations: DurationHistogram::default(),
            max: 0,
            longest: place,
        });
        sum.count += 1;
        sum.total = sum.total.saturating_add(duration);
        if duration > sum.max {
            (sum.max, sum.longest) = (duration, place);
        }
        self.is_coarse |= !sum.durations.add(duration, &mut self.buckets);
    }

    /// Gives each moment of a thread to the span that began last. The spans are in order of their
    /// begins.
    fn add_moments(&mut self, spans: &[SpanPart]) {
        let mut open: Vec<OpenPart> = Vec::new();
        let mut now = i64::MIN;
        for part in spans {
            self.close_until(part.begin, &mut now, &mut open);
            let around = open.last().map_or(SpanGraph::ROOT, |around| around.node);
            let name = part.name;
            open.push(OpenPart {
                end: part.end.0,
                name,
                node: self.graph.within(around, name),
            });
        }
        self.close_until(i64::MAX, &mut now, &mut open);
    }

    /// Goes on to a time, and ends what ends until then. Only the last one is looked at: those that
    /// began before have no moment meanwhile, whether they end or not.
    fn close_until(&mut self, time: i64, now: &mut i64, open: &mut Vec<OpenPart>) {
        while let Some(last) = open.last() {
            let until = last.end.min(time);
            let took = length(*now, until);
            self.graph.add(last.node, took);
            let own = self.spans.get_mut(&last.name);
            if let Some(own) = own.and_then(|sum| sum.own.as_mut()) {
                *own = own.saturating_add(took);
            }
            *now = until.max(*now);
            if last.end > time {
                break;
            }
            open.pop();
        }
        *now = time;
    }

    fn finish(self) -> RangeSummary {
        let (spans, span_names) = in_order(self.spans);
        let (states, state_names) = in_order(self.states);
        let mut events: Vec<_> = self.events.into_iter().collect();
        events.sort_unstable_by_key(|(name, sum)| (Reverse(sum.count), *name));
        let event_names = events.len();
        let events = events.into_iter().take(MAX_NAMES);
        let events = events.map(|(name, sum)| EventSummary {
            name,
            count: sum.count,
            first: sum.first.found(),
        });
        RangeSummary {
            spans,
            span_names,
            states,
            state_names,
            events: events.collect(),
            event_names,
            counters: Vec::new(),
            graph: self.graph.nodes_with_most(),
            is_coarse: self.is_coarse,
        }
    }
}

/// The sums of the names with the most time, and the number of all names.
fn in_order(sums: HashMap<u32, SpanSum>) -> (Vec<SpanSummary>, usize) {
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_unstable_by_key(|(name, sum)| (Reverse(sum.total), *name));
    let names = sums.len();
    let most = sums.into_iter().take(MAX_NAMES).map(|(name, sum)| {
        let percentile = |percent| match sum.durations.percentile(percent) {
            Percentile::Within(duration) => duration.min(sum.max),
            Percentile::Longest => sum.max,
        };
        SpanSummary {
            name,
            count: sum.count,
            total: sum.total,
            own: sum.own,
            p50: percentile(50),
            p99: percentile(99),
            max: sum.max,
            longest: sum.longest.found(),
        }
    });
    (most.collect(), names)
}

#[cfg(test)]
mod tests {
    use super::super::row::EventPlace;
    use super::super::store::TrackLabel;
    use super::*;

    const PLACE: EventPlace = EventPlace {
        packet: 0,
        event: 0,
    };

    fn track(store: &Store, is_counter: bool) -> std::sync::Arc<Track> {
        let session = store.add_session("h/s", false);
        let label = TrackLabel {
            process: String::new(),
            pid: None,
            thread: String::new(),
            is_counter,
        };
        store.add_track(&session, label)
    }

    /// Name, count, total and own time of all spans.
    fn spans(summary: &RangeSummary) -> Vec<(u32, u64, u64, Option<u64>)> {
        let spans = summary.spans.iter();
        spans
            .map(|span| (span.name, span.count, span.total, span.own))
            .collect()
    }

    #[test]
    fn times_are_those_within_the_range_and_own_times_without_what_is_within() {
        let store = Store::new(1000, None);
        let track = track(&store, false);
        store.change_rows(&track, |rows| {
            rows.begin(0, 1, None, PLACE);
            rows.begin(20, 2, None, PLACE);
            rows.add(Row::new(RowKind::Instant, 25, 25, 9, PLACE));
            rows.end(40, None);
            rows.complete(50, 60, 2, PLACE);
            rows.end(100, None);
            rows.begin(110, 3, None, PLACE);
        });
        let all = summarize(&store, None, -10, 150);
        assert_eq!(
            spans(&all),
            [
                (1, 1, 100, Some(70)),
                (3, 1, 40, Some(40)),
                (2, 2, 30, Some(30))
            ]
        );
        let graph = all.graph.iter();
        let graph: Vec<_> = graph.map(|of| (of.depth, of.name, of.total)).collect();
        assert_eq!(graph, [(0, 1, 100), (1, 2, 30), (0, 3, 40)]);
        let events: Vec<_> = all.events.iter().map(|of| (of.name, of.count)).collect();
        assert_eq!(events, [(9, 1)]);
        let twice = &all.spans[2];
        assert_eq!((twice.p50, twice.p99, twice.max), (10, 20, 20));
        assert_eq!(twice.longest.begin, "20");

        let part = summarize(&store, None, 30, 55);
        assert_eq!(spans(&part), [(1, 1, 25, Some(10)), (2, 2, 15, Some(15))]);
    }

    #[test]
    fn a_moment_of_spans_that_overlap_is_of_the_one_that_began_last() {
        let store = Store::new(1000, None);
        let thread = track(&store, false);
        store.change_rows(&thread, |rows| {
            rows.begin(0, 1, Some(10), PLACE);
            rows.begin(10, 2, Some(20), PLACE);
            rows.end_by_id(30, 10);
            rows.end_by_id(60, 20);
        });
        let all = summarize(&store, None, 0, 100);
        assert_eq!(spans(&all), [(2, 1, 50, Some(50)), (1, 1, 30, Some(10))]);
        let other = track(&store, false);
        store.change_rows(&other, |rows| {
            rows.begin_overlapping(0, 1, 1, PLACE);
            rows.begin_overlapping(5, 1, 2, PLACE);
            rows.end_overlapping(9, 1);
            rows.end_overlapping(9, 2);
        });
        let all = summarize(&store, None, 0, 100);
        assert_eq!(spans(&all), [(2, 1, 50, Some(50)), (1, 3, 43, None)]);
    }

    #[test]
    fn values_of_a_counter_last_until_the_next_one_or_the_end_of_the_track() {
        let store = Store::new(1000, None);
        let track = track(&store, true);
        for (time, value) in [(0, 1.0), (10, 3.0), (20, 9.0)] {
            let row = Row::counter(time, value, 1, PLACE);
            store.change_rows(&track, |rows| rows.add(row));
        }
        track.end(40);
        let counter = |from, to| {
            let summary = summarize(&store, None, from, to);
            let found = summary.counters.first();
            found.map(|of| (of.count, of.min, of.max, of.mean))
        };
        assert_eq!(counter(0, 30), Some((3, 1.0, 9.0, 130.0 / 30.0)));
        assert_eq!(counter(5, 15), Some((1, 1.0, 3.0, 2.0)));
        assert_eq!(counter(12, 18), Some((0, 3.0, 3.0, 3.0)));
        assert_eq!(counter(20, 100), Some((1, 9.0, 9.0, 9.0)));
        assert_eq!(counter(-10, -5), None);
    }

    #[test]
    fn own_times_of_random_spans_are_those_of_each_moment() {
        let mut seed = 1_u64;
        let mut random = |below: i64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            i64::try_from(seed >> 33).unwrap() % below
        };
        for _ in 0..200 {
            let store = Store::new(1000, None);
            let track = track(&store, false);
            let mut all = Vec::new();
            let mut begin = 0;
            for id in 0..20_u32 {
                begin += random(5);
                let end = begin + 1 + random(20);
                all.push((begin, end, id % 4));
                store.change_rows(&track, |rows| {
                    let row = Row::new(RowKind::Span, begin, end, id % 4, PLACE);
                    rows.add(row);
                });
            }
            let (from, to) = (random(30), 30 + random(60));
            let mut own = [0_u64; 4];
            for moment in from..to {
                let is_open = |(_, (begin, end, _)): &(usize, &(i64, i64, u32))| {
                    (*begin..*end).contains(&moment)
                };
                // What began before the range began at its begin, the longest first.
                let began = |(place, (begin, end, _)): &(usize, &(i64, i64, u32))| {
                    ((*begin).max(from), Reverse((*end).min(to)), *place)
                };
                let last = all.iter().enumerate().filter(is_open).max_by_key(began);
                if let Some((_, (.., name))) = last {
                    own[usize::try_from(*name).unwrap()] += 1;
                }
            }
            for span in summarize(&store, None, from, to).spans {
                assert_eq!(span.own, Some(own[usize::try_from(span.name).unwrap()]));
            }
        }
    }
}
