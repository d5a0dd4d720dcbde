//! The rows: what is measured of the spans of each name, and of each process or thread if it was
//! asked for.

use std::collections::HashMap;

use viewer::interpret::duration_histogram::{DurationHistogram, Percentile};
use viewer::interpret::span_observer::SpanObserver;
use viewer::interpret::span_owners::OwnerNumber;

use crate::cli::SpanGroup;

/// Largest number of rows: names, times processes or threads if it was asked for. Further spans are
/// measured together in one row.
const MAX_ROWS: usize = 1 << 15;
/// Largest number of buckets of the histograms of all rows, in 32 MiB of memory.
const MAX_BUCKETS: usize = 1 << 21;

/// The process or thread of a row, and the name of its spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct RowKey {
    /// The number of the process or thread; 0 if rows have none.
    pub(super) owner: u32,
    pub(super) name: u32,
}

/// What is measured of spans.
#[derive(Debug, Default)]
pub(super) struct SpanRow {
    /// Absent for all that have no row of their own.
    pub(super) key: Option<RowKey>,
    /// The number of spans that have ended.
    pub(super) count: u64,
    /// Nanoseconds.
    pub(super) total: u64,
    pub(super) own: u64,
    /// The number of spans of which the own time is not known yet.
    pub(super) without_own: u64,
    pub(super) min: u64,
    pub(super) max: u64,
    /// The number of spans that have begun, and whose ends were not seen.
    pub(super) open: u64,
    /// The number of ends whose begins were not seen.
    pub(super) without_begin: u64,
    histogram: DurationHistogram,
}

/// The rows.
#[derive(Debug)]
pub(super) struct SpanTable {
    group: Option<SpanGroup>,
    places: HashMap<RowKey, u32>,
    /// The first row is that of all that have none of their own.
    rows: Vec<SpanRow>,
    buckets: usize,
    is_coarse: bool,
}

impl SpanRow {
    /// The mean duration in nanoseconds.
    pub(super) fn mean(&self) -> u64 {
        self.total.checked_div(self.count).unwrap_or(0)
    }

    /// The duration that `percent` of the spans do not exceed, in nanoseconds.
    pub(super) fn percentile(&self, percent: u64) -> u64 {
        match self.histogram.percentile(percent) {
            Percentile::Within(nanoseconds) => nanoseconds.clamp(self.min, self.max),
            Percentile::Longest => self.max,
        }
    }
}

impl SpanTable {
    pub(super) fn new(group: Option<SpanGroup>) -> Self {
        Self {
            group,
            places: HashMap::new(),
            rows: vec![SpanRow::default()],
            buckets: MAX_BUCKETS,
            is_coarse: false,
        }
    }

    /// All rows that have something to show.
    pub(super) fn rows(&self) -> impl Iterator<Item = &SpanRow> {
        let rows = self.rows.iter();
        rows.filter(|row| row.count + row.open + row.without_begin > 0)
    }

    /// What its readers may misunderstand.
    pub(super) fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let others = self.rows.first();
        if others.is_some_and(|row| row.count + row.open + row.without_begin > 0) {
            let what = match self.group {
                None => "names of spans",
                Some(SpanGroup::Process) => "names of spans and processes",
                Some(SpanGroup::Thread) => "names of spans and threads",
            };
            warnings.push(format!(
                "more than {MAX_ROWS} rows of {what}: further spans are in the row <other>; \
                 select some with --filter"
            ));
        }
        if self.is_coarse {
            warnings.push(format!(
                "more than {MAX_BUCKETS} different durations in all rows: percentiles are not \
                 exact; select some spans with --filter"
            ));
        }
        warnings
    }

    fn row(&mut self, place: u32) -> Option<&mut SpanRow> {
        self.rows.get_mut(usize::try_from(place).ok()?)
    }

    fn place(&mut self, owner: OwnerNumber, name: u32) -> u32 {
        let key = RowKey {
            owner: match self.group {
                None => 0,
                Some(SpanGroup::Process) => owner.process,
                Some(SpanGroup::Thread) => owner.thread,
            },
            name,
        };
        if let Some(place) = self.places.get(&key) {
            return *place;
        }
        if self.places.len() >= MAX_ROWS {
            return 0;
        }
        let place = u32::try_from(self.rows.len()).unwrap_or(0);
        self.places.insert(key, place);
        self.rows.push(SpanRow {
            key: Some(key),
            ..SpanRow::default()
        });
        place
    }
}

impl SpanObserver for SpanTable {
    type Mark = u32;

    fn begin(&mut self, owner: OwnerNumber, name: u32, _parent: Option<u32>) -> u32 {
        self.place(owner, name)
    }

    fn end(&mut self, mark: u32, duration: u64) {
        let mut buckets = self.buckets;
        let Some(row) = self.row(mark) else {
            return;
        };
        row.min = match row.count {
            0 => duration,
            _ => row.min.min(duration),
        };
        row.max = row.max.max(duration);
        row.count += 1;
        row.without_own += 1;
        row.total = row.total.saturating_add(duration);
        let is_exact = row.histogram.add(duration, &mut buckets);
        self.buckets = buckets;
        self.is_coarse |= !is_exact;
    }

    fn add_own_time(&mut self, mark: u32, own: u64) {
        if let Some(row) = self.row(mark) {
            row.without_own = row.without_own.saturating_sub(1);
            row.own = row.own.saturating_add(own);
        }
    }

    fn pass(&mut self, _mark: u32, _own: u64) {}

    fn leave_open(&mut self, mark: u32) {
        if let Some(row) = self.row(mark) {
            row.open += 1;
        }
    }

    fn count_whole(&mut self, owner: OwnerNumber, name: u32, duration: u64) {
        let place = self.place(owner, name);
        self.end(place, duration);
    }

    fn count_open(&mut self, owner: OwnerNumber, name: u32) {
        let place = self.place(owner, name);
        self.leave_open(place);
    }

    fn miss_begin(&mut self, owner: OwnerNumber, name: u32) {
        let place = self.place(owner, name);
        if let Some(row) = self.row(place) {
            row.without_begin += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(number: u32) -> OwnerNumber {
        OwnerNumber {
            process: number,
            thread: 2 * number,
        }
    }

    #[test]
    fn rows_beyond_the_limit_are_one_and_nothing_is_left_uncounted() {
        let mut table = SpanTable::new(Some(SpanGroup::Process));
        let many = 2 * u32::try_from(MAX_ROWS).unwrap();
        for number in 0..many {
            let mark = table.begin(owner(number % 8), number, None);
            table.end(mark, u64::from(number));
            table.add_own_time(mark, 1);
        }
        assert_eq!(table.rows.len(), MAX_ROWS + 1);
        assert_eq!(
            table.rows().map(|row| row.count).sum::<u64>(),
            u64::from(many)
        );
        assert_eq!(table.rows[0].count, MAX_ROWS as u64);
        assert!(table.warnings()[0].contains("names of spans and processes"));
    }

    #[test]
    fn buckets_of_all_rows_are_bounded() {
        let mut table = SpanTable::new(None);
        table.buckets = 10;
        for number in 0..20 {
            let mark = table.begin(owner(1), number % 2, None);
            table.end(mark, u64::from(number) * 1000);
        }
        assert_eq!(table.buckets, 0);
        assert!(table.warnings()[0].contains("different durations"));
        let row = table.rows().next().unwrap();
        assert_eq!((row.count, row.min, row.max), (10, 0, 18_000));
    }

    #[test]
    fn spans_are_grouped_by_name_process_or_thread() {
        for (group, rows) in [
            (None, 1),
            (Some(SpanGroup::Process), 2),
            (Some(SpanGroup::Thread), 3),
        ] {
            let mut table = SpanTable::new(group);
            for (process, thread) in [(1, 1), (1, 2), (3, 3)] {
                let mark = table.begin(OwnerNumber { process, thread }, 0, None);
                table.end(mark, 5);
            }
            assert_eq!(table.rows().count(), rows, "{group:?}");
        }
    }
}
