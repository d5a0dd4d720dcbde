//! What a page sees of a track in a range of time: rows that are at least as long as a few pixels, and the others merged.

use super::matches::Matches;
use super::row::{Row, RowKind};
use super::track::{BLOCK_ROWS, Summary, TrackRows};

/// The number of pixels that small rows are merged into.
const MERGED_PIXELS: i64 = 2;

/// The part of the timeline that a page shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct View {
    /// In nanoseconds since the clock's origin.
    pub(super) from: i64,
    /// Later than `from`.
    pub(super) to: i64,
    /// In pixels; at least 1.
    pub(super) width: u32,
}

/// A row, or several of one depth that are too small to be told apart.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct VisibleRow {
    /// The number of the row, the longest if there are several.
    pub(super) row: u64,
    /// What is merged, and the longest of it.
    pub(super) merged: Summary,
}

impl View {
    /// Rows below this duration, in nanoseconds, are merged.
    pub(super) fn resolution(&self) -> i64 {
        let span = self.to.saturating_sub(self.from);
        span.saturating_mul(MERGED_PIXELS) / i64::from(self.width.max(1))
    }
}

/// Merges small rows that follow each other, by kind and depth.
struct Merger<'o> {
    resolution: i64,
    pending: Vec<Option<VisibleRow>>,
    out: &'o mut Vec<VisibleRow>,
}

impl Merger<'_> {
    fn add_row(&mut self, number: u64, row: &Row) {
        self.add(number, row, (row.start, row.end()), 1);
    }

    /// Adds `count` rows of the kind and depth of `longest`, which is one of them and has this number.
    #[inline]
    fn add(&mut self, number: u64, longest: &Row, (start, end): (i64, i64), count: u32) {
        let slot = usize::from(longest.depth) * RowKind::COUNT + usize::from(longest.kind.code());
        if self.pending.len() <= slot {
            self.pending.resize(slot + 1, None);
        }
        let Some(pending) = self.pending.get_mut(slot) else {
            return;
        };
        if let Some(current) = pending {
            let merged = &mut current.merged;
            let (first, last) = (merged.start.min(start), merged.end.max(end));
            if last.saturating_sub(first) < self.resolution {
                if merged.add(longest, (start, end), count) {
                    current.row = number;
                }
                return;
            }
        }
        self.out.extend(pending.take());
        *pending = Some(VisibleRow {
            row: number,
            merged: Summary {
                longest: *longest,
                start,
                end,
                count,
            },
        });
    }
}

impl TrackRows {
    /// Appends what is to be seen of the track: with a filter only losses, and rows whose event matches.
    pub(super) fn visible(
        &mut self,
        view: View,
        filter: Option<&Matches>,
        out: &mut Vec<VisibleRow>,
    ) {
        let is_shown = |row: &Row| {
            row.kind == RowKind::Loss || filter.is_none_or(|matches| matches.contains(row.place))
        };
        let mut merger = Merger {
            resolution: view.resolution(),
            pending: Vec::new(),
            out,
        };
        // The value of a counter before the first row in view.
        let mut before: Option<(u64, Summary)> = None;
        let mut number = self.first_row;
        for block in &mut self.blocks {
            let first = number;
            number += BLOCK_ROWS as u64;
            if block.min_start > view.to {
                continue;
            }
            if block.max_end < view.from {
                let rows = (first..).zip(&block.rows);
                if let Some((row, last)) = rows
                    .filter(|(_, row)| is_counter(row) && is_shown(row))
                    .last()
                {
                    before = Some((row, Summary::of(last)));
                }
                continue;
            }
            // Of a block that is partly in view only some rows count.
            let is_within = block.min_start >= view.from && block.max_end <= view.to;
            let is_small =
                is_within && block.max_end.saturating_sub(block.min_start) < merger.resolution;
            if is_small && block.rows.len() == BLOCK_ROWS && filter.is_none() {
                for (longest, of) in block.summary() {
                    let row = first + longest;
                    merger.add(row, &of.longest, (of.start, of.end), of.count);
                }
                continue;
            }
            let rows = (first..).zip(&block.rows);
            for (row, of) in rows.filter(|(_, of)| is_shown(of)) {
                if of.start > view.to || of.end() < view.from {
                    if of.start < view.from && is_counter(of) {
                        before = Some((row, Summary::of(of)));
                    }
                    continue;
                }
                merger.add_row(row, of);
            }
        }
        if let Some((row, merged)) = before {
            merger.out.push(VisibleRow { row, merged });
        }
        let Merger { pending, out, .. } = merger;
        out.extend(pending.into_iter().flatten());
    }
}

fn is_counter(row: &Row) -> bool {
    row.kind == RowKind::Counter
}

#[cfg(test)]
mod tests {
    use super::super::row::EventPlace;
    use super::*;

    const PLACE: EventPlace = EventPlace {
        packet: 0,
        event: 0,
    };

    fn visible(track: &mut TrackRows, from: i64, to: i64, width: u32) -> Vec<VisibleRow> {
        let mut out = Vec::new();
        track.visible(View { from, to, width }, None, &mut out);
        out.sort_by_key(|row| row.merged.start);
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
        let total: u64 = all.iter().map(|row| u64::from(row.merged.count)).sum();
        assert_eq!(total, 10_001);
        assert!(all.len() <= 1002, "{}", all.len());
        let long = all.last().unwrap();
        assert_eq!((long.merged.count, long.merged.longest.name), (1, 2));
        assert_eq!(long.row, 10_000);
        let near = visible(&mut track, 500, 540, 1000);
        let starts: Vec<_> = near.iter().map(|row| row.merged.start).collect();
        assert_eq!(starts, [500, 510, 520, 530, 540]);
    }

    #[test]
    fn number_of_visible_rows_does_not_depend_on_the_number_of_rows() {
        let mut track = TrackRows::default();
        for time in 0..1_000_000 {
            track.add(Row::new(RowKind::Instant, time, time, 1, PLACE));
        }
        let all = visible(&mut track, 0, 1_000_000, 100);
        let total: u64 = all.iter().map(|row| u64::from(row.merged.count)).sum();
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
        let values: Vec<_> = seen.iter().map(|row| row.merged.longest.value()).collect();
        assert_eq!(values, [2.5, 3.5]);
    }
}
