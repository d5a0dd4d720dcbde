//! The rows of one track, in blocks of equal size, and which spans are open.
//!
//! Rows are added as their events come: the begin of a span adds a row that its end completes. A
//! span that is reported when it has ended comes after those within it, which are moved one level
//! down then.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::block::{Block, GROUP_BLOCKS, Group};
use super::row::{EventPlace, OPEN, Row, RowKind};
use super::row_file::{BLOCK_ROWS, RowFile};

/// Largest depth that is shown. Spans within are shown at this depth.
const MAX_DEPTH: u16 = 63;
/// Open spans of a track. Further ones are shown as instants.
const MAX_OPEN_SPANS: usize = 1024;
/// Rows that a span which has ended may have within to be moved below it.
const MAX_MOVED_ROWS: usize = 1 << 16;

#[derive(Debug, Clone, Copy)]
struct OpenSpan {
    /// The number of the row. Absent if the span is not shown.
    row: Option<u64>,
    name: u32,
    /// The id of the span. Absent if its events do not say it.
    id: Option<u64>,
    depth: u16,
    /// The number of losses of the track when the span began. After more of them its end may be
    /// missing.
    losses: u32,
}

/// The rows of one track.
#[derive(Debug, Default)]
pub(super) struct TrackRows {
    pub(super) blocks: VecDeque<Block>,
    /// The number of blocks whose rows are stored: the first ones.
    stored: usize,
    /// Groups of blocks that have been seen as a whole, by the number of the group from the first
    /// row that there ever was.
    groups: BTreeMap<u64, Group>,
    /// The number of the first row that is kept; the rows before have been dropped.
    pub(super) first_row: u64,
    /// The time up to which rows have been dropped.
    pub(super) dropped_until: Option<i64>,
    /// The greatest depth of a row, plus one.
    pub(super) depths: u16,
    /// The open spans, each deeper than those before it.
    open: Vec<OpenSpan>,
    /// The number of losses so far.
    losses: u32,
    /// The spans that may overlap and have not ended, each with its key and row, at the depth of
    /// its place.
    overlapping: Vec<Option<(u64, u64)>>,
    /// Whether there was a span that may overlap others.
    pub(super) has_overlapping: bool,
    /// Keys of open spans that are not shown.
    hidden_overlapping: Vec<u64>,
    /// The row of the present state. Absent if it is not known, or not shown.
    state: Option<u64>,
    /// Whether there was a value of a counter.
    pub(super) has_counters: bool,
    /// Whether there was a state. States are on the first line, and all else is below it.
    pub(super) has_states: bool,
    /// When the track ended. Absent while events may come.
    pub(super) ended_at: Option<i64>,
}

impl TrackRows {
    /// The number of rows that are kept.
    pub(super) fn len(&self) -> usize {
        // All blocks but the last are full.
        let last = self.blocks.back().map_or(0, Block::len);
        self.blocks.len().saturating_sub(1) * BLOCK_ROWS + last
    }

    /// The number of rows that are kept and not in memory.
    pub(super) fn stored_len(&self) -> usize {
        self.stored * BLOCK_ROWS
    }

    fn next_row(&self) -> u64 {
        self.first_row + self.len() as u64
    }

    /// The blocks that are kept from that of a row on, each with the number of its first row.
    pub(super) fn blocks_from(&self, number: u64) -> impl Iterator<Item = (u64, &Block)> {
        let rows = usize::try_from(number.saturating_sub(self.first_row)).unwrap_or(usize::MAX);
        let firsts = (self.first_row..).step_by(BLOCK_ROWS);
        firsts.zip(&self.blocks).skip(rows / BLOCK_ROWS)
    }

    /// The group of blocks that begins with one of the blocks that are kept. `None` if it changes
    /// still.
    pub(super) fn group(&mut self, block: usize) -> Option<&Group> {
        let first = self.first_row / BLOCK_ROWS as u64 + block as u64;
        let end = block + GROUP_BLOCKS;
        // Rows may be moved in the last ones.
        if !first.is_multiple_of(GROUP_BLOCKS as u64) || end + GROUP_BLOCKS > self.blocks.len() {
            return None;
        }
        match self.groups.entry(first / GROUP_BLOCKS as u64) {
            Entry::Occupied(known) => Some(known.into_mut()),
            Entry::Vacant(new) => {
                Group::of(self.blocks.range(block..end)).map(|of| &*new.insert(of))
            }
        }
    }

    /// Forgets the groups with rows from one on, which has changed.
    fn forget_groups(&mut self, row: u64) {
        let group = row / (BLOCK_ROWS * GROUP_BLOCKS) as u64;
        if self
            .groups
            .last_key_value()
            .is_some_and(|(last, _)| *last >= group)
        {
            self.groups.split_off(&group);
        }
    }

    /// The row of a number, unless it has been dropped.
    pub(super) fn row(&self, number: u64) -> Option<Row> {
        let place = usize::try_from(number.checked_sub(self.first_row)?).ok()?;
        let block = self.blocks.get(place / BLOCK_ROWS)?;
        block.rows().get(place % BLOCK_ROWS).copied()
    }

    /// The number of a row, of which the page knows the lower 32 bits.
    pub(super) fn number_of(&self, low: u32) -> u64 {
        let first = u32::try_from(self.first_row & u64::from(u32::MAX)).unwrap_or(0);
        self.first_row + u64::from(low.wrapping_sub(first))
    }

    /// The name of the innermost span at a time.
    pub(super) fn innermost(&mut self, time: i64) -> Option<u32> {
        let mut near = Vec::new();
        let mut place = 0;
        while place < self.blocks.len() {
            let group = self.group(place);
            if group.is_some_and(|group| time < group.min_start || group.max_end < time) {
                place += GROUP_BLOCKS;
                continue;
            }
            near.push(place);
            place += 1;
        }
        let near = near.into_iter().filter_map(|place| self.blocks.get(place));
        let near = near.filter(|block| block.min_start <= time && time <= block.max_end);
        let is_around =
            |row: &Row| row.kind == RowKind::Span && row.start <= time && time <= row.end();
        // The last one, as among the rows of a block.
        let deepest = near.filter_map(|block| {
            let rows = block.rows();
            let around = rows.iter().filter(|row| is_around(row));
            around.max_by_key(|row| row.depth).copied()
        });
        deepest.max_by_key(|row| row.depth).map(|row| row.name)
    }

    fn push(&mut self, row: Row) -> u64 {
        let number = self.next_row();
        let is_full = |block: &Block| block.len() >= BLOCK_ROWS;
        if self.blocks.back().is_none_or(is_full) {
            self.blocks.push_back(Block::new());
        }
        if let Some(block) = self.blocks.back_mut() {
            block.push(row);
        }
        // A row after the end: the session has been opened again.
        self.ended_at = None;
        self.depths = self.depths.max(row.depth + 1);
        self.has_counters |= row.kind == RowKind::Counter;
        number
    }

    /// The depth below all open spans. Some of those around them may have ended.
    fn depth(&self) -> u16 {
        let first = u16::from(self.has_states);
        let deepest = self.open.last().map_or(first, |span| span.depth + 1);
        deepest.min(MAX_DEPTH)
    }

    /// Adds an instant, a loss or a counter.
    pub(super) fn add(&mut self, mut row: Row) {
        row.depth = match row.kind {
            RowKind::Instant => self.depth(),
            _ => 0,
        };
        self.push(row);
    }

    /// Changes the state to one of this name; to an unknown one if there is none.
    pub(super) fn set_state(&mut self, time: i64, state: Option<(u32, EventPlace)>) {
        if !self.has_states {
            self.make_line_of_states();
        }
        let before = self.state.take();
        self.close_row(before, time);
        if let Some((name, place)) = state {
            let row = Row::new(RowKind::State, time, OPEN, name, place);
            self.state = Some(self.push(row));
        }
    }

    /// Moves everything one line down.
    fn make_line_of_states(&mut self) {
        self.has_states = true;
        self.groups.clear();
        let lower = |depth: u16| (depth + 1).min(MAX_DEPTH);
        for block in &mut self.blocks {
            block.change(|rows| {
                for row in rows {
                    row.depth = lower(row.depth);
                    self.depths = self.depths.max(row.depth + 1);
                }
                true
            });
        }
        for span in &mut self.open {
            span.depth = lower(span.depth);
        }
    }

    /// Events of the track are lost: the ends of its open spans may be among them.
    pub(super) fn add_loss(&mut self) {
        self.losses = self.losses.wrapping_add(1);
    }

    /// Begins a span, which has an id if its end says it.
    pub(super) fn begin(&mut self, time: i64, name: u32, id: Option<u64>, place: EventPlace) {
        let mut row = Row::new(RowKind::Span, time, OPEN, name, place);
        if self.open.len() >= MAX_OPEN_SPANS {
            row = Row::new(RowKind::Instant, time, time, name, place);
        }
        row.depth = self.depth();
        let number = self.push(row);
        if row.is_open() {
            self.push_open(Some(number), name, id);
        }
    }

    /// Begins a span that is not shown: only the ends of others are found by it.
    pub(super) fn begin_hidden(&mut self, name: u32, id: Option<u64>) {
        if self.open.len() < MAX_OPEN_SPANS {
            self.push_open(None, name, id);
        }
    }

    fn push_open(&mut self, row: Option<u64>, name: u32, id: Option<u64>) {
        let (depth, losses) = (self.depth(), self.losses);
        self.open.push(OpenSpan {
            row,
            name,
            id,
            depth,
            losses,
        });
    }

    /// Ends the innermost open span of this name, or of any name if none is given, and those within
    /// it. Returns false if there is none.
    pub(super) fn end(&mut self, time: i64, name: Option<u32>) -> bool {
        let is_it = |span: &OpenSpan| name.is_none_or(|name| span.name == name);
        let Some(place) = self.open.iter().rposition(is_it) else {
            return false;
        };
        for span in self.open.split_off(place) {
            self.close_row(span.row, time);
        }
        true
    }

    /// Ends the open span of this id. Those within it stay open until their own ends come, unless
    /// these may be lost. Returns false if there is none.
    pub(super) fn end_by_id(&mut self, time: i64, id: u64) -> bool {
        let is_it = |span: &OpenSpan| span.id == Some(id);
        let Some(place) = self.open.iter().rposition(is_it) else {
            return false;
        };
        for (number, span) in self.open.split_off(place).into_iter().enumerate() {
            match number > 0 && span.id.is_some() && span.losses == self.losses {
                true => self.open.push(span),
                false => self.close_row(span.row, time),
            }
        }
        true
    }

    /// Begins a span that may overlap others: it is shown on the first line that is free until its
    /// end.
    pub(super) fn begin_overlapping(&mut self, time: i64, name: u32, key: u64, place: EventPlace) {
        self.has_overlapping = true;
        let free = self.overlapping.iter().position(Option::is_none);
        let line = free.unwrap_or(self.overlapping.len());
        let depth = u16::try_from(line).unwrap_or(MAX_DEPTH);
        let mut row = Row::new(RowKind::Span, time, OPEN, name, place);
        if depth >= MAX_DEPTH {
            row = Row::new(RowKind::Instant, time, time, name, place);
        }
        row.depth = depth.min(MAX_DEPTH);
        let number = self.push(row);
        if !row.is_open() {
            return;
        }
        match self.overlapping.get_mut(line) {
            Some(free) => *free = Some((key, number)),
            None => self.overlapping.push(Some((key, number))),
        }
    }

    /// Begins a span that may overlap others and is not shown.
    pub(super) fn begin_overlapping_hidden(&mut self, key: u64) {
        if self.hidden_overlapping.len() < usize::from(MAX_DEPTH) {
            self.hidden_overlapping.push(key);
        }
    }

    /// Ends the span of this key. Returns false if there is none.
    pub(super) fn end_overlapping(&mut self, time: i64, key: u64) -> bool {
        let is_it = |span: &&mut Option<(u64, u64)>| span.is_some_and(|(of, _)| of == key);
        let begun = self.overlapping.iter_mut().filter(is_it);
        // Spans of one key are nested: the one that began last ends first.
        let last = begun.max_by_key(|span| span.map(|(_, row)| row));
        let Some((_, row)) = last.and_then(Option::take) else {
            let hidden = self.hidden_overlapping.iter().rposition(|of| *of == key);
            return hidden
                .map(|place| self.hidden_overlapping.remove(place))
                .is_some();
        };
        self.close_row(Some(row), time);
        true
    }

    /// Ends all open spans: no more events come.
    pub(super) fn end_all(&mut self, time: i64) {
        self.close_all(time);
        self.ended_at = Some(time);
    }

    /// Ends all open spans and the state: their ends are lost.
    pub(super) fn close_all(&mut self, time: i64) {
        for (_, row) in std::mem::take(&mut self.overlapping).into_iter().flatten() {
            self.close_row(Some(row), time);
        }
        for span in std::mem::take(&mut self.open) {
            self.close_row(span.row, time);
        }
        let state = self.state.take();
        self.close_row(state, time);
    }

    fn close_row(&mut self, number: Option<u64>, time: i64) {
        let Some(place) = number.and_then(|number| number.checked_sub(self.first_row)) else {
            return;
        };
        let place = usize::try_from(place).unwrap_or(usize::MAX);
        if let Some(block) = self.blocks.get_mut(place / BLOCK_ROWS) {
            block.close(place % BLOCK_ROWS, time);
        }
    }

    /// Adds a span that has ended, around those that have begun and ended within it.
    pub(super) fn complete(&mut self, start: i64, end: i64, name: u32, place: EventPlace) {
        let mut row = Row::new(RowKind::Span, start, end, name, place);
        row.depth = self.depth();
        let is_within =
            |inner: &Row| inner.start >= start && inner.end() <= end && inner.kind != RowKind::Loss;
        let mut looked_at = 0;
        // The rows within came last: the first one outside ends the search.
        let blocks = self.blocks.iter_mut().rev();
        for block in blocks.take(MAX_MOVED_ROWS / BLOCK_ROWS + 1) {
            let mut is_done = false;
            block.change(|rows| {
                let mut has_changed = false;
                for inner in rows.iter_mut().rev() {
                    looked_at += 1;
                    // States are on a line of their own.
                    let is_state = inner.kind == RowKind::State;
                    is_done = looked_at > MAX_MOVED_ROWS || !(is_state || is_within(inner));
                    if is_done {
                        break;
                    }
                    if !is_state && inner.depth < MAX_DEPTH {
                        inner.depth += 1;
                        self.depths = self.depths.max(inner.depth + 1);
                        has_changed = true;
                    }
                }
                has_changed
            });
            if is_done {
                break;
            }
        }
        self.forget_groups(self.next_row().saturating_sub(looked_at as u64));
        self.push(row);
    }

    /// The latest begin of a row of the oldest block. A block that is being filled stays.
    pub(super) fn oldest(&self) -> Option<i64> {
        let block = self.blocks.front().filter(|_| self.blocks.len() > 1);
        Some(block?.max_start)
    }

    /// The latest begin of a row of the oldest block in memory. A block that is being filled stays.
    pub(super) fn oldest_in_memory(&self) -> Option<i64> {
        let block = self.blocks.get(self.stored);
        let block = block.filter(|_| self.stored + 1 < self.blocks.len());
        Some(block?.max_start)
    }

    /// Moves the rows of the oldest block in memory to a file. Returns false if there is no room.
    pub(super) fn store_oldest(&mut self, file: &Arc<RowFile>) -> bool {
        // While its rows are in memory: a view of everything reads none of them.
        self.group(self.stored);
        let block = self.blocks.get_mut(self.stored);
        let is_stored = block.is_some_and(|block| block.store(file));
        self.stored += usize::from(is_stored);
        is_stored
    }

    /// Drops the oldest block. Returns how many rows it had, in memory and in the file.
    pub(super) fn drop_oldest(&mut self) -> (usize, usize) {
        let Some(block) = self.blocks.pop_front() else {
            return (0, 0);
        };
        self.first_row += block.len() as u64;
        self.groups = self
            .groups
            .split_off(&self.first_row.div_ceil((BLOCK_ROWS * GROUP_BLOCKS) as u64));
        self.dropped_until = self.dropped_until.max(Some(block.max_start));
        match self.stored.checked_sub(1) {
            Some(stored) => {
                self.stored = stored;
                (0, block.len())
            }
            None => (block.len(), 0),
        }
    }
}

#[cfg(test)]
mod tests;
