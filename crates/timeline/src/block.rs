//! Rows of a track that lie side by side, and what is seen of them when they are too small to be
//! told apart.

use std::borrow::Cow;
use std::sync::Arc;

use super::row::{Row, RowKind};
use super::row_file::{BLOCK_ROWS, RowFile, StoredRows};

/// Blocks of a group.
pub(super) const GROUP_BLOCKS: usize = 64;

/// Number of blocks that are read before others may change the track.
pub(super) const BLOCKS_AT_A_TIME: usize = 256;
/// Largest number of summaries that are kept of a block whose rows are stored, in a fifth of the
/// memory of its rows. A frame reads the rows of blocks that have more.
const MAX_KEPT_SUMMARIES: usize = 4;

/// Rows that lie side by side, and the time that they cover.
#[derive(Debug)]
pub(super) struct Block {
    rows: Rows,
    pub(super) min_start: i64,
    /// [`OPEN`] while a span of the block has not ended.
    pub(super) max_end: i64,
    /// The latest begin of a row.
    pub(super) max_start: i64,
    /// The latest end of the rows that are not open.
    max_known_end: i64,
    /// The number of spans that have not ended.
    open: usize,
    /// What the rows are when they are too small to be told apart, with numbers from 0; made when
    /// it is needed.
    pub(super) summary: Option<Vec<Summary>>,
}

/// Where the rows of a block are.
#[derive(Debug)]
enum Rows {
    InMemory(Vec<Row>),
    /// Those of a full block.
    Stored(StoredRows),
}

/// What is seen of [`GROUP_BLOCKS`] blocks that change no more. Of hundreds of millions of rows, a
/// frame looks at groups only.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) min_start: i64,
    pub(super) max_end: i64,
    /// The rows by kind and depth, with numbers from 0.
    pub(super) summary: Vec<Summary>,
}

/// Rows of a track that have one kind and depth.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Summary {
    /// The longest of them, or the counter's largest value.
    pub(super) longest: NumberedRow,
    /// The one that begins last, whose value a counter has from then on.
    pub(super) latest: NumberedRow,
    pub(super) start: i64,
    pub(super) end: i64,
    pub(super) count: u32,
}

/// A row and its number in the track.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct NumberedRow {
    pub(super) number: u64,
    pub(super) row: Row,
}

impl Block {
    pub(super) fn new() -> Self {
        Self {
            rows: Rows::InMemory(Vec::new()),
            min_start: i64::MAX,
            max_end: i64::MIN,
            max_start: i64::MIN,
            max_known_end: i64::MIN,
            open: 0,
            summary: None,
        }
    }

    pub(super) fn len(&self) -> usize {
        match &self.rows {
            Rows::InMemory(rows) => rows.len(),
            Rows::Stored(_) => BLOCK_ROWS,
        }
    }

    /// The rows, which are read if they are stored.
    pub(super) fn rows(&self) -> Cow<'_, [Row]> {
        match &self.rows {
            Rows::InMemory(rows) => Cow::Borrowed(rows),
            Rows::Stored(stored) => Cow::Owned(stored.read()),
        }
    }

    /// Moves the rows of a full block from memory to a file. Returns false if there is no room.
    pub(super) fn store(&mut self, file: &Arc<RowFile>) -> bool {
        let Rows::InMemory(rows) = &self.rows else {
            return true;
        };
        let Some(stored) = file.store(rows) else {
            return false;
        };
        self.rows = Rows::Stored(stored);
        let summary = self.summary.take();
        self.summary = summary.filter(|summary| summary.len() <= MAX_KEPT_SUMMARIES);
        true
    }

    /// Changes rows; `change` says whether it did.
    pub(super) fn change(&mut self, change: impl FnOnce(&mut [Row]) -> bool) {
        let has_changed = match &mut self.rows {
            Rows::InMemory(rows) => change(rows),
            Rows::Stored(stored) => {
                let mut rows = stored.read();
                change(&mut rows) && stored.write(&rows)
            }
        };
        if has_changed {
            self.summary = None;
        }
    }

    /// Adds a row to a block that is not full.
    pub(super) fn push(&mut self, row: Row) {
        let Rows::InMemory(rows) = &mut self.rows else {
            return;
        };
        rows.push(row);
        self.min_start = self.min_start.min(row.start);
        self.max_start = self.max_start.max(row.start);
        self.max_end = self.max_end.max(row.end());
        match row.is_open() {
            true => self.open += 1,
            false => self.max_known_end = self.max_known_end.max(row.end()),
        }
        self.summary = None;
    }

    /// Ends a span of the block.
    pub(super) fn close(&mut self, place: usize, time: i64) {
        let mut end = None;
        self.change(|rows| {
            if let Some(row) = rows.get_mut(place).filter(|row| row.is_open()) {
                row.close(time);
                end = Some(row.end());
            }
            end.is_some()
        });
        let Some(end) = end else {
            return;
        };
        self.open = self.open.saturating_sub(1);
        self.max_known_end = self.max_known_end.max(end);
        if self.open == 0 {
            self.max_end = self.max_known_end;
        }
    }

    /// The rows by kind and depth.
    pub(super) fn summary(&mut self) -> Cow<'_, [Summary]> {
        // Made late, because most blocks are never shown as a whole.
        if self.summary.is_none() {
            let summary = summarize(&*self.rows());
            if matches!(self.rows, Rows::Stored(_)) && summary.len() > MAX_KEPT_SUMMARIES {
                return summary.into();
            }
            self.summary = Some(summary);
        }
        self.summary.as_deref().unwrap_or_default().into()
    }
}

impl Group {
    /// The group of these blocks. `None` if one of them has room, or a span that has not ended.
    pub(super) fn of<'b>(blocks: impl Iterator<Item = &'b Block> + Clone) -> Option<Self> {
        let is_final = |block: &Block| block.len() == BLOCK_ROWS && block.open == 0;
        if !blocks.clone().all(is_final) {
            return None;
        }
        Some(Self {
            min_start: blocks.clone().map(|block| block.min_start).min()?,
            max_end: blocks.clone().map(|block| block.max_end).max()?,
            summary: {
                let rows: Vec<_> = blocks.map(Block::rows).collect();
                summarize(rows.iter().flat_map(|rows| &**rows))
            },
        })
    }
}

impl Group {
    /// The last row of a counter, if the first row of the group has this number.
    pub(super) fn last_counter(&self, first: u64) -> Option<Summary> {
        let is_counter = |of: &&Summary| of.latest.row.kind == RowKind::Counter;
        let counter = self.summary.iter().find(is_counter)?;
        let last = counter.numbered_from(first).latest;
        Some(Summary::of(last.number, &last.row))
    }
}

/// The summaries of the rows of each kind and depth.
fn summarize<'r>(rows: impl IntoIterator<Item = &'r Row>) -> Vec<Summary> {
    let mut all: Vec<Summary> = Vec::new();
    for (number, row) in (0..).zip(rows) {
        let same = |one: &&mut Summary| {
            (one.longest.row.kind, one.longest.row.depth) == (row.kind, row.depth)
        };
        let one = Summary::of(number, row);
        match all.iter_mut().find(same) {
            Some(summary) => summary.add(&one),
            None => all.push(one),
        }
    }
    all
}

impl Summary {
    /// A summary of one row.
    #[inline]
    pub(super) fn of(number: u64, row: &Row) -> Self {
        let one = NumberedRow { number, row: *row };
        Self {
            longest: one,
            latest: one,
            start: row.start,
            end: row.end(),
            count: 1,
        }
    }

    /// Returns the summary with `first` added to the numbers of its rows.
    pub(super) fn numbered_from(mut self, first: u64) -> Self {
        // A block counts from 0, so that its summary stays right when blocks before it are dropped.
        self.longest.number += first;
        self.latest.number += first;
        self
    }

    /// Adds other rows of the same kind and depth.
    #[inline]
    pub(super) fn add(&mut self, other: &Self) {
        if is_longer(&other.longest.row, &self.longest.row) {
            self.longest = other.longest;
        }
        if other.latest.row.start >= self.latest.row.start {
            self.latest = other.latest;
        }
        self.start = self.start.min(other.start);
        self.end = self.end.max(other.end);
        self.count = self.count.saturating_add(other.count);
    }
}

fn is_longer(one: &Row, other: &Row) -> bool {
    match one.kind {
        RowKind::Counter => one.value() > other.value(),
        _ => one.end().saturating_sub(one.start) > other.end().saturating_sub(other.start),
    }
}

#[cfg(test)]
mod tests {
    use super::super::row::EventPlace;
    use super::*;

    #[test]
    fn summary_of_a_block_names_the_longest_row_of_each_line() {
        let span = |start, end, depth| {
            let mut row = Row::new(RowKind::Span, start, end, 1, EventPlace::default());
            row.depth = depth;
            row
        };
        let rows = [
            span(0, 5, 0),
            span(1, 4, 1),
            span(10, 30, 0),
            span(31, 32, 0),
        ];
        let summaries = summarize(&rows);
        let found: Vec<_> = summaries
            .iter()
            .map(|of| {
                (
                    of.longest.number,
                    of.longest.row.start,
                    of.start,
                    of.end,
                    of.count,
                )
            })
            .collect();
        assert_eq!(found, [(2, 10, 0, 32, 3), (1, 1, 1, 4, 1)]);
    }
}
