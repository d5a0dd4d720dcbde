//! Finds rows by their names, and counts those of a range.

use std::collections::BinaryHeap;

use serde::Serialize;

use super::block::BLOCKS_AT_A_TIME;
use super::matches::Matches;
use super::row::{Row, RowKind};
use super::store::Store;
use super::view::View;

/// A row as pages are told of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FoundRow {
    pub(super) track: u32,
    pub(super) row: u32,
    pub(super) name: u32,
    pub(super) begin: String,
    /// Absent if the span has not ended.
    pub(super) end: Option<String>,
    pub(super) kind: u8,
    pub(super) depth: u16,
    /// The value of a counter. Absent for other rows.
    pub(super) value: Option<f64>,
}

/// Largest number of rows that are listed.
const MAX_HITS: usize = 200;

/// What is searched for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sought<'a> {
    pub(super) text: &'a str,
    /// Whether the text is a whole name. Otherwise names contain it, in any case.
    pub(super) is_whole: bool,
    pub(super) from: i64,
    pub(super) is_backward: bool,
}

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Search {
    /// The number of rows.
    pub(super) total: u64,
    /// The row that begins first after the time, or last before it.
    pub(super) next: Option<FoundRow>,
    /// The first rows that begin at the time or later, in order.
    pub(super) hits: Vec<FoundRow>,
}

/// Finds rows by their names.
pub(super) fn search(store: &Store, filter: Option<&Matches>, sought: Sought<'_>) -> Search {
    let Sought {
        from, is_backward, ..
    } = sought;
    let text = sought.text.to_lowercase();
    // Each name is compared once, and not in each of the many rows that have it.
    let names = store.names_from(0, usize::MAX);
    let is_named: Vec<bool> = names
        .iter()
        .map(|name| match sought.is_whole {
            true => **name == *sought.text,
            false => name.to_lowercase().contains(&text),
        })
        .collect();
    // A loss is of no event, and passes every filter.
    let is_found = |row: &Row| {
        let name = usize::try_from(row.name).unwrap_or(usize::MAX);
        is_named.get(name).copied().unwrap_or(false)
            // There are many, and the next one of the same name is all that is asked for.
            && (row.kind != RowKind::State || sought.is_whole)
            && (row.kind == RowKind::Loss
                || filter.is_none_or(|matches| matches.contains(row.place)))
    };
    let mut total = 0;
    // The begin, the track and the number of rows.
    let mut best: Option<(i64, u32, u64)> = None;
    // The latest one is on top.
    let mut hits: BinaryHeap<(i64, u32, u64)> = BinaryHeap::new();
    let mut see = |track: u32, number: u64, row: &Row| {
        total += 1;
        let place = (row.start, track, number);
        let is_next = match is_backward {
            true => row.start < from && best.is_none_or(|(best, ..)| row.start > best),
            false => row.start > from && best.is_none_or(|(best, ..)| row.start < best),
        };
        if is_next {
            best = Some(place);
        }
        let is_hit = hits.len() < MAX_HITS || hits.peek().is_some_and(|last| place < *last);
        if row.start >= from && is_hit {
            hits.push(place);
            if hits.len() > MAX_HITS {
                hits.pop();
            }
        }
    };
    for track in store.tracks() {
        // Some rows at a time, so that the decoding thread never waits for long.
        let mut next = Some(0);
        while let Some(number) = next {
            let rows = track.rows.lock();
            let mut blocks = rows.blocks_from(number);
            for (first, block) in blocks.by_ref().take(BLOCKS_AT_A_TIME) {
                let numbered = block.rows();
                let numbered = (first..).zip(&*numbered);
                numbered
                    .filter(|(_, row)| is_found(row))
                    .for_each(|(number, row)| see(track.id, number, row));
            }
            next = blocks.next().map(|(number, _)| number);
        }
    }
    let find = |(_, track, number)| find_row(store, track, number);
    Search {
        total,
        next: best.and_then(find),
        hits: hits
            .into_sorted_vec()
            .into_iter()
            .filter_map(find)
            .collect(),
    }
}

/// A row of a track, unless it has been dropped meanwhile.
fn find_row(store: &Store, track: u32, number: u64) -> Option<FoundRow> {
    let of = store.track(track)?;
    let rows = of.rows.lock();
    Some(found_row(track, number, &rows.row(number)?))
}

pub(super) fn found_row(track: u32, number: u64, row: &Row) -> FoundRow {
    FoundRow {
        track,
        row: u32::try_from(number & u64::from(u32::MAX)).unwrap_or(0),
        name: row.name,
        begin: row.start.to_string(),
        end: (!row.is_open()).then(|| row.end().to_string()),
        kind: row.kind.code(),
        depth: row.depth,
        value: (row.kind == RowKind::Counter).then(|| row.value()),
    }
}

/// The number of spans, instants and values of counters that overlap a range.
pub(super) fn count_rows(store: &Store, filter: Option<&Matches>, from: i64, to: i64) -> u64 {
    // With one pixel for all, what does not reach beyond the range is merged.
    let view = View { from, to, width: 1 };
    let mut rows = Vec::new();
    for track in store.tracks() {
        track
            .rows
            .lock()
            .visible(view, filter, usize::MAX, &mut rows);
    }
    let is_within = |row: &&super::view::VisibleRow| {
        let longest = row.longest.row;
        !matches!(longest.kind, RowKind::Loss | RowKind::State) && longest.end() >= from
    };
    let rows = rows.iter().filter(is_within);
    rows.map(|row| u64::from(row.count)).sum()
}

#[cfg(test)]
mod tests {
    use super::super::row::EventPlace;
    use super::super::store::TrackLabel;
    use super::*;

    #[test]
    fn rows_are_found_by_name_in_both_directions_and_counted_by_range() {
        let store = Store::new(10_000, None);
        let session = store.add_session("h/s", false);
        for (thread, offset) in [("one", 0), ("two", 5)] {
            let label = TrackLabel {
                process: String::new(),
                pid: None,
                thread: thread.to_owned(),
                is_counter: false,
            };
            let track = store.add_track(&session, label);
            for number in 0..100 {
                let name = store.name(&format!("Name{}", number % 10));
                let start = number * 10 + offset;
                store.change_rows(&track, |rows| {
                    rows.complete(start, start + 1, name, EventPlace::default());
                });
            }
        }
        let begin = |text, from, is_backward| {
            let sought = Sought {
                text,
                is_whole: false,
                from,
                is_backward,
            };
            let found = search(&store, None, sought);
            (found.total, found.next.map(|found| found.begin))
        };
        assert_eq!(begin("name3", 0, false), (20, Some("30".to_owned())));
        assert_eq!(begin("NAME3", 30, false), (20, Some("35".to_owned())));
        assert_eq!(begin("name3", 30, true), (20, None));
        assert_eq!(begin("name3", 500, true), (20, Some("435".to_owned())));
        assert_eq!(begin("other", 0, false), (0, None));
        let sought = Sought {
            text: "Name3",
            is_whole: true,
            from: 900,
            is_backward: false,
        };
        let found = search(&store, None, sought);
        let hits: Vec<_> = found.hits.iter().map(|found| &*found.begin).collect();
        assert_eq!(hits, ["930", "935"]);
        assert_eq!(found.total, 20);
        let part = Sought {
            text: "ame3",
            ..sought
        };
        assert_eq!(search(&store, None, part).total, 0);
        assert_eq!(count_rows(&store, None, i64::MIN / 2, i64::MAX / 2), 200);
        assert_eq!(count_rows(&store, None, 30, 39), 2);
        // The range begins and ends within blocks of rows.
        assert_eq!(count_rows(&store, None, 205, 985), 78 + 79);
    }
}
