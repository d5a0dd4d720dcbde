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

use super::block::BLOCKS_AT_A_TIME;
use super::matches::{FilterState, Matches};
use super::row::{Row, RowKind};
use super::search::{FoundRow, found_row};
use super::span_graph::{GraphNode, SpanGraph};
use super::store::{Store, Track};

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
    /// The graph, each node before those within it. Empty if a track has more spans than there may
    /// be rows in memory.
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
    /// Absent if some of the spans have no thread: then what is within them is not known; or if the
    /// graph is absent.
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
        has_too_many: false,
    };
    let mut counters = Vec::new();
    for track in store.tracks() {
        let mut range = TrackRange::new((from, to), store.max_rows_of_track());
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
    /// Largest number of spans that are collected.
    max_spans: usize,
    /// Whether there were more of them.
    has_too_many: bool,
    /// The last value of a counter before the range.
    before: Option<Row>,
    values: Option<CounterValues>,
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

/// The values of a counter so far.
#[derive(Debug, Clone, Copy)]
struct CounterValues {
    /// The number of values within the range.
    count: u64,
    min: f64,
    max: f64,
    /// The mean over the time before `last`, which is `time` nanoseconds.
    mean: f64,
    time: f64,
    last: Row,
}

impl TrackRange {
    fn new((from, to): (i64, i64), max_spans: usize) -> Self {
        Self {
            from,
            to,
            spans: Vec::new(),
            max_spans,
            has_too_many: false,
            before: None,
            values: None,
            has_overlapping: false,
        }
    }

    fn add_span(&mut self, part: SpanPart) {
        if self.spans.len() >= self.max_spans {
            self.has_too_many = true;
            self.spans = Vec::new();
        }
        if !self.has_too_many {
            self.spans.push(part);
        }
    }

    fn add_value(&mut self, row: Row) {
        let before = self.before.filter(|_| row.start != self.from);
        let begin = || before.map(CounterValues::new);
        let mut values = match self.values.take().or_else(begin) {
            Some(mut values) => {
                values.add(row, self.from);
                values
            }
            None => CounterValues::new(row),
        };
        values.count += 1;
        self.values = Some(values);
    }

    /// The values of a counter of this track; `None` if there are none.
    fn counter(&self, track: u32) -> Option<CounterSummary> {
        let begin = || self.before.map(CounterValues::new);
        let mut values = self.values.or_else(begin)?;
        values.last_until(self.to, self.from);
        Some(CounterSummary {
            track,
            count: values.count,
            min: values.min,
            max: values.max,
            mean: match values.time > 0.0 {
                true => values.mean,
                false => values.last.value(),
            },
        })
    }
}

impl CounterValues {
    fn new(first: Row) -> Self {
        let value = first.value();
        Self {
            count: 0,
            min: value,
            max: value,
            mean: 0.0,
            time: 0.0,
            last: first,
        }
    }

    /// Counts the time of the last value up to another time, from the begin of the range on.
    fn last_until(&mut self, time: i64, from: i64) {
        let lasted = length(self.last.start.max(from), time) as f64;
        if lasted > 0.0 {
            self.time += lasted;
            let part = lasted / self.time;
            // Weighted before they are added: the sum of large values may be too large.
            self.mean = self.mean * (1.0 - part) + self.last.value() * part;
        }
    }

    /// Adds the next value.
    fn add(&mut self, row: Row, from: i64) {
        self.last_until(row.start, from);
        self.min = self.min.min(row.value());
        self.max = self.max.max(row.value());
        self.last = row;
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
    /// Whether a track has too many spans to know what is within what.
    has_too_many: bool,
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
            let is_before = block.max_end < range.from;
            // Only of a counter is it of interest what was before.
            if block.min_start > range.to || is_before && !rows.has_counters {
                continue;
            }
            if is_before {
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
                    range.add_span(part);
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
            RowKind::Counter => range.add_value(row),
            RowKind::Loss => {}
        }
    }

    /// Adds the own times of the spans of a track, which are known when all have been read.
    fn add_own_times(&mut self, range: &mut TrackRange) {
        self.has_too_many |= range.has_too_many;
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

    fn finish(mut self) -> RangeSummary {
        if self.has_too_many {
            self.spans.values_mut().for_each(|sum| sum.own = None);
            self.graph = SpanGraph::new();
        }
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
mod tests;
