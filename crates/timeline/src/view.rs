//! What a page sees of a track in a range of time: rows that are at least as long as a few pixels,
//! and the others merged.

use super::block::{Block, GROUP_BLOCKS, NumberedRow, Summary};
use super::matches::Matches;
use super::row::{Row, RowKind};
use super::row_file::BLOCK_ROWS;
use super::track::TrackRows;

/// The number of pixels that small rows are merged into.
const MERGED_PIXELS: i64 = 2;

/// The part of the timeline that a page shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct View {
    /// The first time in view, in nanoseconds since the clock's origin.
    pub(super) from: i64,
    /// The last time in view, which is later than `from`.
    pub(super) to: i64,
    /// The width of the view in pixels; at least 1.
    pub(super) width: u32,
}

/// A row, or several of one kind and depth that are too small to be told apart.
pub(super) type VisibleRow = Summary;

impl View {
    /// Rows below this duration, in nanoseconds, are merged.
    pub(super) fn resolution(&self) -> i64 {
        let span = self.to.saturating_sub(self.from);
        span.saturating_mul(MERGED_PIXELS) / i64::from(self.width.max(1))
    }

    /// Returns the part in half as many pixels, so that about half as many rows are to be seen.
    /// `None` if it has one pixel only.
    pub(super) fn halved(self) -> Option<Self> {
        let width = self.width / 2;
        (width > 0).then_some(Self { width, ..self })
    }
}

/// What is seen of rows that cover a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    /// Nothing, because they are before the view.
    Before,
    /// Nothing, because they are after the view.
    After,
    /// All of them, too close to be told apart.
    Small,
    /// Some of them, or each.
    Partly,
}

impl Seen {
    fn of(view: View, min_start: i64, max_end: i64) -> Self {
        let is_within = min_start >= view.from && max_end <= view.to;
        match is_within && max_end.saturating_sub(min_start) < view.resolution() {
            _ if min_start > view.to => Self::After,
            _ if max_end < view.from => Self::Before,
            true => Self::Small,
            false => Self::Partly,
        }
    }
}

/// Merges small rows that follow each other, by kind and depth.
struct Merger<'o> {
    resolution: i64,
    pending: Vec<Option<Summary>>,
    out: &'o mut Vec<VisibleRow>,
    /// Largest number of rows in `out`. Further ones are left out.
    max: usize,
    /// Whether any row was left out.
    is_full: bool,
}

impl Merger<'_> {
    /// Adds rows of one kind and depth.
    #[inline]
    fn add(&mut self, rows: Summary) {
        let NumberedRow { row, .. } = rows.longest;
        let slot = usize::from(row.depth) * RowKind::COUNT + usize::from(row.kind.code());
        if self.pending.len() <= slot {
            self.pending.resize(slot + 1, None);
        }
        let Some(pending) = self.pending.get_mut(slot) else {
            return;
        };
        if let Some(merged) = pending {
            let (first, last) = (merged.start.min(rows.start), merged.end.max(rows.end));
            if last.saturating_sub(first) < self.resolution {
                merged.add(&rows);
                return;
            }
        }
        if let Some(merged) = pending.replace(rows) {
            self.push(merged, rows.start);
        }
    }

    /// Appends rows that nothing else is merged with. The next ones begin at `next`.
    fn push(&mut self, mut merged: Summary, next: i64) {
        let (longest, latest) = (merged.longest, merged.latest);
        let gap = next.saturating_sub(latest.row.start);
        // Until then a counter has its latest value, not its largest one.
        if is_counter(&longest.row) && longest != latest && gap >= self.resolution {
            merged.count -= 1;
            merged.latest = longest;
            self.push_row(merged);
            merged = Summary::of(latest.number, &latest.row);
        }
        self.push_row(merged);
    }

    fn push_row(&mut self, row: VisibleRow) {
        match self.out.len() < self.max {
            true => self.out.push(row),
            false => self.is_full = true,
        }
    }
}

impl TrackRows {
    /// Appends what is to be seen of the track: with a filter only losses, and rows whose event
    /// matches. Returns false if that would be more than `max` rows in `out`: then some are
    /// missing.
    pub(super) fn visible(
        &mut self,
        view: View,
        filter: Option<&Matches>,
        max: usize,
        out: &mut Vec<VisibleRow>,
    ) -> bool {
        let is_shown = |row: &Row| {
            row.kind == RowKind::Loss || filter.is_none_or(|matches| matches.contains(row.place))
        };
        let mut merger = Merger {
            resolution: view.resolution(),
            pending: Vec::new(),
            out,
            max,
            is_full: false,
        };
        // The value of a counter before the first row in view.
        let mut before: Option<Summary> = None;
        let mut place = 0;
        while place < self.blocks.len() {
            // The view is made again in fewer pixels: the rest of this one is not needed.
            if merger.is_full {
                return false;
            }
            let first = self.first_row + (place * BLOCK_ROWS) as u64;
            // A summary says nothing of single events, which a filter asks for.
            if filter.is_none()
                && let Some(group) = self.group(place)
            {
                let seen = Seen::of(view, group.min_start, group.max_end);
                match seen {
                    Seen::Partly | Seen::After => {}
                    Seen::Before => {
                        before = group.last_counter(first).or(before);
                    }
                    Seen::Small => {
                        for of in &group.summary {
                            merger.add(of.numbered_from(first));
                        }
                    }
                }
                if seen != Seen::Partly {
                    place += GROUP_BLOCKS;
                    continue;
                }
            }
            let Some(block) = self.blocks.get_mut(place) else {
                break;
            };
            place += 1;
            match Seen::of(view, block.min_start, block.max_end) {
                Seen::After => continue,
                // Only of a counter is it of interest what was before.
                Seen::Before if !self.has_counters => continue,
                Seen::Before => {
                    before = last_counter(block, first, is_shown).or(before);
                    continue;
                }
                Seen::Small if block.len() == BLOCK_ROWS && filter.is_none() => {
                    for of in &*block.summary() {
                        merger.add(of.numbered_from(first));
                    }
                    continue;
                }
                Seen::Small | Seen::Partly => {}
            }
            // Of a block that is partly in view only some rows count.
            let rows = block.rows();
            for (row, of) in (first..).zip(&*rows).filter(|(_, of)| is_shown(of)) {
                if of.start > view.to || of.end() < view.from {
                    if of.start < view.from && is_counter(of) {
                        before = Some(Summary::of(row, of));
                    }
                    continue;
                }
                merger.add(Summary::of(row, of));
            }
        }
        if let Some(before) = before {
            merger.push_row(before);
        }
        for merged in std::mem::take(&mut merger.pending).into_iter().flatten() {
            merger.push(merged, view.to);
        }
        !merger.is_full
    }
}

impl TrackRows {
    /// The number of rows that overlap a range: losses, and rows whose event passes the filter.
    pub(super) fn count(&self, (from, to): (i64, i64), filter: Option<&Matches>) -> u64 {
        let is_shown = |row: &&Row| {
            row.start <= to
                && row.end() >= from
                && (row.kind == RowKind::Loss
                    || filter.is_none_or(|matches| matches.contains(row.place)))
        };
        let blocks = self.blocks.iter();
        let counts = blocks.map(|block| {
            let is_outside = block.min_start > to || block.max_end < from;
            let is_within = block.min_start >= from && block.max_end <= to;
            match (is_outside, is_within && filter.is_none()) {
                (true, _) => 0,
                (false, true) => block.len(),
                (false, false) => block.rows().iter().filter(is_shown).count(),
            }
        });
        counts.map(|count| count as u64).sum()
    }
}

/// The last value of a counter in a block whose first row has this number.
fn last_counter(block: &Block, first: u64, is_shown: impl Fn(&Row) -> bool) -> Option<Summary> {
    let rows = block.rows();
    let values = (first..).zip(&*rows);
    let values = values.filter(|(_, row)| is_counter(row) && is_shown(row));
    values.last().map(|(number, row)| Summary::of(number, row))
}

fn is_counter(row: &Row) -> bool {
    row.kind == RowKind::Counter
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::row::EventPlace;
    use super::super::row_file::RowFile;
    use super::*;

    const PLACE: EventPlace = EventPlace {
        packet: 0,
        event: 0,
    };

    fn visible(track: &mut TrackRows, from: i64, to: i64, width: u32) -> Vec<VisibleRow> {
        let mut out = Vec::new();
        assert!(track.visible(View { from, to, width }, None, usize::MAX, &mut out));
        out.sort_by_key(|row| row.start);
        out
    }

    #[test]
    fn small_rows_are_merged_and_counted_and_long_ones_are_not() {
        let mut track = TrackRows::default();
        for time in 0..10_000 {
            track.complete(time * 10, time * 10 + 5, 1, PLACE);
        }
        track.complete(100_000, 150_000, 2, PLACE);
        let all = visible(&mut track, 0, 200_000, 1000);
        let total: u64 = all.iter().map(|row| u64::from(row.count)).sum();
        assert_eq!(total, 10_001);
        assert!(all.len() <= 1002, "{}", all.len());
        let long = all.last().unwrap();
        assert_eq!((long.count, long.longest.row.name), (1, 2));
        assert_eq!(long.longest.number, 10_000);
        let near = visible(&mut track, 500, 540, 1000);
        let starts: Vec<_> = near.iter().map(|row| row.start).collect();
        assert_eq!(starts, [500, 510, 520, 530, 540]);
    }

    #[test]
    fn rows_that_overlap_a_range_are_counted() {
        let mut track = TrackRows::default();
        for time in 0..1000 {
            track.complete(time * 10, time * 10 + 5, 1, PLACE);
        }
        for (from, to, count) in [
            (-5, 20_000, 1000),
            (0, 0, 1),
            (6, 9, 0),
            (25, 30, 2),
            (6405, 6410, 2),
            (9996, 20_000, 0),
        ] {
            assert_eq!(track.count((from, to), None), count, "{from} {to}");
        }
        assert_eq!(track.count((0, 9999), Some(&Matches::default())), 0);
    }

    #[test]
    fn groups_of_blocks_show_what_their_rows_would() {
        let mut track = TrackRows::default();
        let mut random = 1_u64;
        for time in 0..60_000 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let length = i64::try_from(random >> 58).unwrap();
            match random % 5 {
                0 => track.complete(time * 10 - length, time * 10, 1, PLACE),
                1 => track.begin(time * 10, 2, None, PLACE),
                2 => drop(track.end(time * 10, None)),
                3 => track.set_state(time * 10, Some((3, PLACE))),
                _ => track.add(Row::counter(time * 10, random as f64, 4, PLACE)),
            }
            if time == 30_000 {
                for _ in 0..100 {
                    track.drop_oldest();
                }
            }
            // Groups are made while rows are added.
            if time % 5000 == 0 {
                visible(&mut track, 0, time * 10, 10);
            }
        }
        let mut all = Matches::default();
        all.add(PLACE.packet, Box::new([1]));
        for (from, to) in [
            (0, 600_000),
            (123_456, 456_789),
            (500_000, 600_000),
            (599_990, 700_000),
        ] {
            for width in [1, 10, 1000] {
                let view = View { from, to, width };
                let seen = |filter, track: &mut TrackRows| {
                    let mut out = Vec::new();
                    assert!(track.visible(view, filter, usize::MAX, &mut out));
                    let mut counts = std::collections::BTreeMap::new();
                    for row in &out {
                        let longest = row.longest.row;
                        let of = counts
                            .entry((longest.kind.code(), longest.depth))
                            .or_insert((0, 0));
                        of.0 += row.count;
                        of.1 = of.1.max(row.end);
                    }
                    counts
                };
                // With a filter each row is looked at.
                assert_eq!(
                    seen(None, &mut track),
                    seen(Some(&all), &mut track),
                    "{view:?}"
                );
            }
        }
    }

    #[test]
    fn number_of_visible_rows_does_not_depend_on_the_number_of_rows() {
        let mut track = TrackRows::default();
        for time in 0..1_000_000 {
            track.add(Row::new(RowKind::Instant, time, time, 1, PLACE));
        }
        let all = visible(&mut track, 0, 1_000_000, 100);
        let total: u64 = all.iter().map(|row| u64::from(row.count)).sum();
        assert_eq!(total, 1_000_000);
        assert!(all.len() <= 2 * 100, "{}", all.len());
    }

    #[test]
    fn open_span_and_the_counter_value_before_the_view_are_visible() {
        let mut track = TrackRows::default();
        track.begin(10, 1, None, PLACE);
        assert_eq!(visible(&mut track, 1000, 2000, 100).len(), 1);
        track.end(20, None);
        assert_eq!(visible(&mut track, 1000, 2000, 100).len(), 0);
        let mut track = TrackRows::default();
        for (time, value) in [(10, 1.5), (20, 2.5), (1500, 3.5)] {
            track.add(Row::counter(time, value, 1, PLACE));
        }
        let seen = visible(&mut track, 1000, 2000, 100);
        let values: Vec<_> = seen.iter().map(|row| row.longest.row.value()).collect();
        assert_eq!(values, [2.5, 3.5]);
    }

    #[test]
    fn counter_has_its_latest_value_in_a_gap_although_larger_ones_are_merged() {
        let values = |times: &[i64], from, to, width| {
            let mut track = TrackRows::default();
            for (place, time) in times.iter().enumerate() {
                // Of each burst the largest value is the second one.
                let value = [3.0, 9.0, 1.0][place % 3];
                track.add(Row::counter(*time, value, 1, PLACE));
            }
            let seen = visible(&mut track, from, to, width);
            let total: u32 = seen.iter().map(|row| row.count).sum();
            assert_eq!(usize::try_from(total).unwrap(), times.len());
            seen.iter()
                .map(|row| (row.start, row.longest.row.value(), row.count))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            values(&[100, 101, 102, 5000, 5001, 5002], 0, 10_000, 100),
            [(100, 9.0, 2), (102, 1.0, 1), (5000, 9.0, 2), (5002, 1.0, 1)]
        );
        // Without a gap it is too short to be seen.
        let steady: Vec<i64> = (0..3000).collect();
        let seen = values(&steady, 0, 3000, 100);
        assert!(seen.len() <= 52, "{}", seen.len());
        // Blocks of rows are merged in the same way.
        let bursts: Vec<i64> = (0..300).map(|time| time + 100_000 * (time / 150)).collect();
        let seen = values(&bursts, 0, 300_000, 100);
        assert_eq!(
            seen,
            [
                (0, 9.0, 149),
                (149, 1.0, 1),
                (100_150, 9.0, 149),
                (100_299, 1.0, 1)
            ]
        );
    }

    /// Does one of all that changes rows.
    fn change(track: &mut TrackRows, random: u64, time: i64) {
        let key = random >> 60;
        let length = i64::try_from(random >> 55).unwrap();
        match random % 11 {
            0..3 => track.complete(time - length, time, 1, PLACE),
            3 => track.begin(time, 2, None, PLACE),
            4 => drop(track.end(time, None)),
            5 if time > 400_000 => track.set_state(time, Some((3, PLACE))),
            6 => track.begin_overlapping(time, 4, key, PLACE),
            7 => drop(track.end_overlapping(time, key)),
            8 => track.begin(time, 5, Some(key), PLACE),
            9 => drop(track.end_by_id(time, key)),
            _ => track.add(Row::counter(time, random as f64, 6, PLACE)),
        }
    }

    #[test]
    fn tracks_of_which_rows_are_stored_show_what_those_in_memory_do() {
        let file = Arc::new(RowFile::new(tempfile::tempfile().unwrap(), 60_000));
        let (mut stored, mut in_memory) = (TrackRows::default(), TrackRows::default());
        let mut random = 1_u64;
        for time in 0..60_000 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            // Its lowest bits are hardly random.
            let number = random >> 3;
            change(&mut stored, number, time * 10);
            change(&mut in_memory, number, time * 10);
            if stored.len() - stored.stored_len() > 5 * BLOCK_ROWS {
                assert!(stored.oldest_in_memory().is_some() && stored.store_oldest(&file));
            }
            if time % 600 == 599 {
                assert_eq!(stored.drop_oldest().1, BLOCK_ROWS);
                in_memory.drop_oldest();
            }
        }
        assert!(stored.stored_len() > 30_000);
        for number in 0..stored.len() as u64 + stored.first_row {
            assert_eq!(stored.row(number), in_memory.row(number));
        }
        assert_eq!(stored.depths, in_memory.depths);
        assert_eq!(stored.dropped_until, in_memory.dropped_until);
        for from in (0..600_000).step_by(7777) {
            let range = (from, from + 20_000);
            assert_eq!(stored.count(range, None), in_memory.count(range, None));
            assert_eq!(stored.innermost(from), in_memory.innermost(from));
            for width in [1, 100, 2000] {
                let shown = [&mut stored, &mut in_memory]
                    .map(|track| visible(track, from, from + 100_000, width));
                assert_eq!(shown[0], shown[1]);
            }
        }
    }
}
