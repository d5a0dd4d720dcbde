//! Rows that are added, changed, stored and dropped.

use super::*;

const PLACE: EventPlace = EventPlace {
    packet: 0,
    event: 0,
};

fn rows(track: &TrackRows) -> Vec<(i64, i64, u32, u16)> {
    let rows = track.blocks.iter().map(Block::rows);
    let rows = rows.flat_map(std::borrow::Cow::into_owned);
    rows.map(|row| (row.start, row.end(), row.name, row.depth))
        .collect()
}

#[test]
fn begins_and_ends_of_spans_are_paired_by_name() {
    let mut track = TrackRows::default();
    track.begin(10, 1, None, PLACE);
    track.begin(20, 2, None, PLACE);
    track.add(Row::new(RowKind::Instant, 25, 25, 3, PLACE));
    assert!(!track.end(26, Some(9)), "no span of this name is open");
    assert!(track.end(30, Some(1)), "the span within ends too");
    assert_eq!(
        rows(&track),
        [(10, 30, 1, 0), (20, 30, 2, 1), (25, 25, 3, 2)]
    );
    assert!(!track.end(40, None));
    track.begin(50, 1, None, PLACE);
    track.end_all(60);
    assert_eq!(rows(&track).last(), Some(&(50, 60, 1, 0)));
}

#[test]
fn states_are_on_a_line_of_their_own_above_what_was_there_before() {
    let mut track = TrackRows::default();
    track.begin(10, 1, None, PLACE);
    track.set_state(20, Some((7, PLACE)));
    track.begin(30, 2, None, PLACE);
    track.set_state(40, Some((8, PLACE)));
    track.complete(35, 45, 3, PLACE);
    track.set_state(50, None);
    assert!(track.end(60, Some(2)));
    assert!(track.end(70, None));
    track.set_state(80, Some((7, PLACE)));
    track.end_all(90);
    assert_eq!(
        rows(&track),
        [
            (10, 70, 1, 1),
            (20, 40, 7, 0),
            (30, 60, 2, 2),
            (40, 50, 8, 0),
            (35, 45, 3, 3),
            (80, 90, 7, 0)
        ]
    );
    assert_eq!(track.depths, 4);
}

#[test]
fn spans_with_ids_end_in_any_order_and_do_not_cover_each_other() {
    let mut track = TrackRows::default();
    track.begin(0, 1, Some(10), PLACE);
    track.begin(10, 2, Some(20), PLACE);
    assert!(track.end_by_id(30, 10), "the outer one");
    track.begin(40, 3, Some(30), PLACE);
    assert!(track.end_by_id(50, 30));
    assert!(track.end_by_id(60, 20));
    assert!(!track.end_by_id(70, 20), "it has ended");
    track.begin(80, 4, Some(10), PLACE);
    assert!(track.end_by_id(90, 10));
    assert_eq!(
        rows(&track),
        [
            (0, 30, 1, 0),
            (10, 60, 2, 1),
            (40, 50, 3, 2),
            (80, 90, 4, 0)
        ]
    );
    track.begin(100, 1, Some(10), PLACE);
    track.begin(110, 2, Some(20), PLACE);
    track.add_loss();
    assert!(
        track.end_by_id(120, 10),
        "the end of the inner one may be lost"
    );
    let last = rows(&track).split_off(4);
    assert_eq!(last, [(100, 120, 1, 0), (110, 120, 2, 1)]);
    assert_eq!(track.depth(), 0);
}

#[test]
fn span_that_is_reported_at_its_end_moves_those_within_it_down() {
    let mut track = TrackRows::default();
    track.complete(5, 6, 9, PLACE);
    track.complete(12, 14, 1, PLACE);
    track.complete(15, 18, 2, PLACE);
    track.complete(11, 19, 3, PLACE);
    track.complete(10, 20, 4, PLACE);
    let found = rows(&track);
    assert_eq!(
        found,
        [
            (5, 6, 9, 0),
            (12, 14, 1, 2),
            (15, 18, 2, 2),
            (11, 19, 3, 1),
            (10, 20, 4, 0)
        ]
    );
    assert_eq!(track.depths, 3);
}

#[test]
fn oldest_rows_are_dropped_in_blocks_and_numbers_stay() {
    let mut track = TrackRows::default();
    let count = 3 * BLOCK_ROWS + 5;
    for time in 0..i64::try_from(count).unwrap() {
        track.add(Row::new(RowKind::Instant, time, time, 0, PLACE));
    }
    assert_eq!(track.drop_oldest(), (BLOCK_ROWS, 0));
    assert_eq!(track.len(), count - BLOCK_ROWS);
    let first = BLOCK_ROWS as u64;
    let time = i64::try_from(first).unwrap();
    assert_eq!(track.dropped_until, Some(time - 1));
    assert_eq!(track.row(first - 1), None);
    assert_eq!(track.row(first).unwrap().start, time);
    assert_eq!(track.number_of(300), 300);
    assert_eq!(track.row(count as u64), None);
    track.first_row = (1 << 32) + 256;
    assert_eq!(track.number_of(300), (1 << 32) + 300);
}

#[test]
fn spans_that_overlap_have_lines_of_their_own_until_they_end() {
    let mut track = TrackRows::default();
    track.begin_overlapping(10, 1, 100, PLACE);
    track.begin_overlapping(20, 1, 200, PLACE);
    assert!(track.end_overlapping(30, 100));
    assert!(!track.end_overlapping(31, 100), "it has ended");
    track.begin_overlapping(40, 2, 300, PLACE);
    track.end_all(50);
    assert_eq!(
        rows(&track),
        [(10, 30, 1, 0), (20, 50, 1, 1), (40, 50, 2, 0)]
    );
    track.begin_overlapping(51, 1, 100, PLACE);
    track.begin_overlapping(52, 1, 100, PLACE);
    assert!(track.end_overlapping(53, 100) && track.end_overlapping(54, 100));
    let nested = [(51, 54, 1, 0), (52, 53, 1, 1)];
    assert_eq!(rows(&track).split_at(3).1, nested, "of one key");
    track.begin_overlapping_hidden(100);
    assert!(track.end_overlapping(55, 100) && !track.end_overlapping(56, 100));
    assert_eq!(rows(&track).len(), 5);
    for key in 0..1000 {
        track.begin_overlapping(60, 3, key, PLACE);
    }
    assert_eq!(track.depths, MAX_DEPTH + 1);
    assert_eq!(track.overlapping.len(), usize::from(MAX_DEPTH));
}

#[test]
fn number_of_open_spans_is_limited() {
    let mut track = TrackRows::default();
    for time in 0..2000 {
        track.begin(time, 1, None, PLACE);
    }
    assert_eq!(track.open.len(), MAX_OPEN_SPANS);
    assert!(track.depths <= MAX_DEPTH + 1);
}
