//! Finds rows by their names, and counts those of a range.

use super::matches::Matches;
use super::protocol::FoundRow;
use super::row::{Row, RowKind};
use super::store::Store;
use super::view::View;

/// Finds the row that begins first after `from`, or last before it, among those whose names contain
/// `text` in any case. Returns the number of such rows, too.
pub(super) fn search(
    store: &Store,
    filter: Option<&Matches>,
    text: &str,
    from: i64,
    is_backward: bool,
) -> (u64, Option<FoundRow>) {
    let text = text.to_lowercase();
    // Each name is compared once, and not in each of the many rows that have it.
    let names = store.names_from(0, usize::MAX);
    let is_named: Vec<bool> = names
        .iter()
        .map(|name| name.to_lowercase().contains(&text))
        .collect();
    // A loss is of no event, and passes every filter.
    let is_found = |row: &Row| {
        let name = usize::try_from(row.name).unwrap_or(usize::MAX);
        is_named.get(name).copied().unwrap_or(false)
            && (row.kind == RowKind::Loss
                || filter.is_none_or(|matches| matches.contains(row.place)))
    };
    let is_better = |start: i64, best: i64| match is_backward {
        true => start > best,
        false => start < best,
    };
    let (mut total, mut best): (u64, Option<(i64, FoundRow)>) = (0, None);
    for track in store.tracks() {
        // One track at a time, so that the decoding thread never waits for long.
        let rows = track.rows.lock();
        for (number, row) in rows.numbered() {
            if !is_found(row) {
                continue;
            }
            total += 1;
            let is_beyond = match is_backward {
                true => row.start < from,
                false => row.start > from,
            };
            let is_next = best
                .as_ref()
                .is_none_or(|(start, _)| is_better(row.start, *start));
            if is_beyond && is_next {
                best = Some((row.start, found_row(track.id, number, row)));
            }
        }
    }
    (total, best.map(|(_, found)| found))
}

/// A row as pages are told of it.
pub(super) fn found_row(track: u32, number: u64, row: &Row) -> FoundRow {
    FoundRow {
        track,
        row: u32::try_from(number & u64::from(u32::MAX)).unwrap_or(0),
        name: row.name,
        begin: row.start.to_string(),
        end: (!row.is_open()).then(|| row.end().to_string()),
        kind: row.kind.code(),
        depth: row.depth,
    }
}

/// The number of rows that overlap a range.
pub(super) fn count_events(store: &Store, filter: Option<&Matches>, from: i64, to: i64) -> u64 {
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
        longest.kind != RowKind::Loss && longest.end() >= from
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
        let store = Store::new(10_000);
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
            let (total, found) = search(&store, None, text, from, is_backward);
            (total, found.map(|found| found.begin))
        };
        assert_eq!(begin("name3", 0, false), (20, Some("30".to_owned())));
        assert_eq!(begin("NAME3", 30, false), (20, Some("35".to_owned())));
        assert_eq!(begin("name3", 30, true), (20, None));
        assert_eq!(begin("name3", 500, true), (20, Some("435".to_owned())));
        assert_eq!(begin("other", 0, false), (0, None));
        assert_eq!(count_events(&store, None, i64::MIN / 2, i64::MAX / 2), 200);
        assert_eq!(count_events(&store, None, 30, 39), 2);
        // The range begins and ends within blocks of rows.
        assert_eq!(count_events(&store, None, 205, 985), 78 + 79);
    }
}
