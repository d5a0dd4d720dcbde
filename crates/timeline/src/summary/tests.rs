//! Sums of spans, events and counters.

use super::*;
use crate::row::EventPlace;
use crate::store::TrackLabel;
use crate::track::TrackRows;

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
    assert_eq!(counter(0, 40), Some((3, 1.0, 9.0, 5.5)));
    assert_eq!(counter(5, 15), Some((1, 1.0, 3.0, 2.0)));
    assert_eq!(counter(12, 18), Some((0, 3.0, 3.0, 3.0)));
    assert_eq!(counter(20, 100), Some((1, 9.0, 9.0, 9.0)));
    assert_eq!(counter(-10, -5), None);
}

#[test]
fn own_times_of_more_spans_than_memory_has_rows_are_not_known() {
    let store = Store::new(10_000, Some(tempfile::tempfile().unwrap()));
    let (many, few) = (track(&store, false), track(&store, false));
    for number in 0..40_000 {
        let add = |rows: &mut TrackRows| rows.complete(number * 10, number * 10 + 5, 1, PLACE);
        store.change_rows(&many, add);
    }
    store.change_rows(&few, |rows| rows.complete(0, 20, 2, PLACE));
    let all = summarize(&store, None, 0, 400_000);
    assert_eq!(spans(&all), [(1, 40_000, 200_000, None), (2, 1, 20, None)]);
    assert_eq!(all.graph, []);
    let part = summarize(&store, None, 0, 40);
    assert_eq!(spans(&part), [(1, 5, 20, Some(20)), (2, 1, 20, Some(20))]);
    assert_eq!(part.graph.len(), 2);
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
            let is_open =
                |(_, (begin, end, _)): &(usize, &(i64, i64, u32))| (*begin..*end).contains(&moment);
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
