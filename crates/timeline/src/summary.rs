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
use super::search::{FoundRow, find_row};
use super::span_graph::{GraphNode, SpanGraph};
use super::store::Store;
use super::track::TrackRows;

/// Largest number of names of spans in a summary, and of names of events. The others are counted.
const MAX_NAMES: usize = 500;
/// Largest number of counters in a summary.
const MAX_COUNTERS: usize = 500;
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
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
        events: HashMap::new(),
        graph: SpanGraph::new(),
        buckets: MAX_BUCKETS,
        is_coarse: false,
    };
    let mut counters = Vec::new();
    for track in store.tracks() {
        // One track at a time, so that the decoding thread never waits for long.
        let matches = filter.map(|filter| filter.matches.read());
        let mut range = TrackRange::new(&track.rows.lock(), matches.as_deref(), from, to);
        drop(matches);
        counters.extend(range.counter(track.id, from));
        sums.add_track(track.id, &mut range);
    }
    counters.truncate(MAX_COUNTERS);
    RangeSummary {
        counters,
        ..sums.finish(store)
    }
}

/// What is to be counted of a track.
#[derive(Debug, Default)]
struct TrackRange {
    spans: Vec<SpanPart>,
    instants: Vec<(u64, Row)>,
    /// The values of a counter, and the last one before.
    values: Vec<Row>,
    /// The end of what is known: of the range, or of the track.
    to: i64,
    /// Whether spans may overlap without being of one thread.
    has_overlapping: bool,
}

/// The part of a span that is within a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct SpanPart {
    begin: i64,
    /// Of those that begin together the longest one is first: it is around the others.
    end: Reverse<i64>,
    depth: u16,
    number: u64,
    name: u32,
}

impl TrackRange {
    fn new(rows: &TrackRows, filter: Option<&Matches>, from: i64, to: i64) -> Self {
        let mut range = Self {
            to: rows.ended_at.map_or(to, |ended| ended.min(to)),
            has_overlapping: rows.has_overlapping,
            ..Self::default()
        };
        let mut before: Option<Row> = None;
        let is_shown = |row: &Row| filter.is_none_or(|matches| matches.contains(row.place));
        for (number, row) in rows.numbered() {
            if row.kind == RowKind::Counter && row.start < from && is_shown(row) {
                before = Some(*row);
            }
            if row.start > to || row.end() < from || !is_shown(row) {
                continue;
            }
            match row.kind {
                RowKind::Span => range.spans.push(SpanPart {
                    begin: row.start.max(from),
                    end: Reverse(row.end().min(range.to)),
                    depth: row.depth,
                    number,
                    name: row.name,
                }),
                RowKind::Instant => range.instants.push((number, *row)),
                RowKind::Counter => range.values.push(*row),
                RowKind::Loss => {}
            }
        }
        if range.values.first().is_none_or(|first| first.start > from) {
            range.values.splice(..0, before);
        }
        range
    }

    /// The values of a counter of this track; `None` if there are none.
    fn counter(&self, track: u32, from: i64) -> Option<CounterSummary> {
        let first = self.values.first()?;
        let mut summary = CounterSummary {
            track,
            count: 0,
            min: first.value(),
            max: first.value(),
            mean: first.value(),
        };
        let ends = self.values.iter().skip(1).map(|row| row.start);
        let (mut sum, mut time) = (0.0, 0.0);
        for (row, end) in self.values.iter().zip(ends.chain([self.to])) {
            let value = row.value();
            summary.count += u64::from(row.start >= from);
            summary.min = summary.min.min(value);
            summary.max = summary.max.max(value);
            let lasts = length(row.start.max(from), end) as f64;
            sum += value * lasts;
            time += lasts;
        }
        if time > 0.0 {
            summary.mean = sum / time;
        }
        Some(summary)
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

impl Sums {
    fn add_track(&mut self, track: u32, range: &mut TrackRange) {
        for (number, row) in &range.instants {
            let number = *number;
            let sum = self.events.entry(row.name).or_insert(EventSum {
                count: 0,
                first: Place { track, number },
            });
            sum.count += 1;
        }
        for part in &range.spans {
            self.add_span(track, part, range.has_overlapping);
        }
        if !range.has_overlapping {
            range.spans.sort_unstable();
            self.add_own_times(&range.spans);
        }
    }

    fn add_span(&mut self, track: u32, part: &SpanPart, has_overlapping: bool) {
        let duration = length(part.begin, part.end.0);
        let place = Place {
            track,
            number: part.number,
        };
        let sum = self.spans.entry(part.name).or_insert_with(|| SpanSum {
            count: 0,
            total: 0,
            own: Some(0),
            durations: DurationHistogram::default(),
            max: 0,
            longest: place,
        });
        sum.count += 1;
        sum.total = sum.total.saturating_add(duration);
        if duration > sum.max {
            (sum.max, sum.longest) = (duration, place);
        }
        if has_overlapping {
            sum.own = None;
        }
        self.is_coarse |= !sum.durations.add(duration, &mut self.buckets);
    }

    /// Gives each moment of a thread to the span that began last. The spans are in order of their
    /// begins.
    fn add_own_times(&mut self, spans: &[SpanPart]) {
        let mut open: Vec<OpenPart> = Vec::new();
        let mut now = i64::MIN;
        for part in spans {
            self.close_until(part.begin, &mut now, &mut open);
            let around = open.last().map_or(SpanGraph::ROOT, |around| around.node);
            open.push(OpenPart {
                end: part.end.0,
                name: part.name,
                node: self.graph.within(around, part.name),
            });
        }
        self.close_until(i64::MAX, &mut now, &mut open);
    }

    /// Goes on to a time, and ends what ends until then.
    fn close_until(&mut self, time: i64, now: &mut i64, open: &mut Vec<OpenPart>) {
        loop {
            // Of those that end together the innermost one first.
            let ends = open.iter().enumerate().rev();
            let first = ends.min_by_key(|(_, part)| part.end);
            let first = first.map(|(place, part)| (place, part.end));
            let first = first.filter(|(_, end)| *end <= time);
            let until = first.map_or(time, |(_, end)| end);
            if let Some(last) = open.last() {
                let took = length(*now, until);
                self.graph.add(last.node, took);
                let own = self.spans.get_mut(&last.name);
                if let Some(own) = own.and_then(|sum| sum.own.as_mut()) {
                    *own = own.saturating_add(took);
                }
            }
            *now = until;
            match first {
                Some((place, _)) => drop(open.remove(place)),
                None => return,
            }
        }
    }

    fn finish(self, store: &Store) -> RangeSummary {
        let mut spans: Vec<_> = self.spans.into_iter().collect();
        spans.sort_unstable_by_key(|(name, sum)| (Reverse(sum.total), *name));
        let mut events: Vec<_> = self.events.into_iter().collect();
        events.sort_unstable_by_key(|(name, sum)| (Reverse(sum.count), *name));
        let (span_names, event_names) = (spans.len(), events.len());
        let spans = spans.into_iter().take(MAX_NAMES).filter_map(|(name, sum)| {
            let percentile = |percent| match sum.durations.percentile(percent) {
                Percentile::Within(duration) => duration.min(sum.max),
                Percentile::Longest => sum.max,
            };
            Some(SpanSummary {
                name,
                count: sum.count,
                total: sum.total,
                own: sum.own,
                p50: percentile(50),
                p99: percentile(99),
                max: sum.max,
                longest: find_row(store, sum.longest.track, sum.longest.number)?,
            })
        });
        let events = events
            .into_iter()
            .take(MAX_NAMES)
            .filter_map(|(name, sum)| {
                Some(EventSummary {
                    name,
                    count: sum.count,
                    first: find_row(store, sum.first.track, sum.first.number)?,
                })
            });
        RangeSummary {
            spans: spans.collect(),
            span_names,
            events: events.collect(),
            event_names,
            counters: Vec::new(),
            graph: self.graph.nodes_with_most(),
            is_coarse: self.is_coarse,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::row::EventPlace;
    use super::super::store::{Track, TrackLabel};
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
        let store = Store::new(1000);
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
        let store = Store::new(1000);
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
        let store = Store::new(1000);
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
            let store = Store::new(1000);
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
