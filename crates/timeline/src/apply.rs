//! How an action changes the rows of a track.

use super::row::{Action, EventPlace, Row, RowKind};
use super::store::{Store, Track};
use super::track::TrackRows;

/// Changes the rows of a track. Spans are paired whether they are shown or not.
pub(super) fn apply(
    store: &Store,
    track: &Track,
    action: Action,
    time: i64,
    place: EventPlace,
    is_shown: bool,
) {
    store.change_rows(track, |rows| match action {
        Action::Begin(name) if is_shown => rows.begin(time, name, None, place),
        Action::Begin(name) => rows.begin_hidden(name, None),
        Action::Enter(name, id) if is_shown => rows.begin(time, name, Some(id), place),
        Action::Enter(name, id) => rows.begin_hidden(name, Some(id)),
        Action::End(name) => {
            if !rows.end(time, name) && is_shown {
                add_end(store, rows, time, name, place);
            }
        }
        Action::Exit(id) => {
            if !rows.end_by_id(time, id) && is_shown {
                add_end(store, rows, time, None, place);
            }
        }
        Action::AsyncEnd(name, key) => {
            if !rows.end_overlapping(time, key) && is_shown {
                rows.add(Row::new(RowKind::Instant, time, time, name, place));
            }
        }
        Action::AsyncBegin(_, key) if !is_shown => rows.begin_overlapping_hidden(key),
        _ if !is_shown => {}
        Action::AsyncBegin(name, key) => rows.begin_overlapping(time, name, key, place),
        Action::Complete(name, start, end) => rows.complete(start, end, name, place),
        Action::Instant(name, at) => {
            rows.add(Row::new(RowKind::Instant, at, at, name, place));
        }
        Action::Counter(name, at, value) => rows.add(Row::counter(at, value, name, place)),
    });
}

/// Shows an end whose begin is not known.
fn add_end(store: &Store, rows: &mut TrackRows, time: i64, name: Option<u32>, place: EventPlace) {
    let name = name.unwrap_or_else(|| store.name("<end>"));
    rows.add(Row::new(RowKind::Instant, time, time, name, place));
}
