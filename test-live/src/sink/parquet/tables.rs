//! All tables that are open, within a budget of memory and of files.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ctf::decode::Event;
use viewer::sink::{Origin, SinkError};

use super::destination::Destination;
use super::name::{Day, partition};
use super::row::RowBuffers;
use super::schema::TableSchema;
use super::table::{Table, TableError};

/// The bounds of tables.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Largest number of bytes in memory of all tables. Vectors that grow may have twice as many.
    pub(super) max_bytes: usize,
    /// Largest number of bytes in memory of a table, which then become a row group.
    pub(super) max_table_bytes: usize,
    /// Largest number of rows of a row group. Readers share the work of a file by row groups, and
    /// pass over those whose times they do not want.
    pub(super) max_rows: usize,
    /// The number of bytes from which a file ends. With the last row group it has at most 64 MiB,
    /// which is what a bucket takes in one request.
    pub(super) max_file_bytes: usize,
    /// Largest number of files that are open at a time: well below what a process may have.
    pub(super) max_files: usize,
    /// The time after which a file ends at the latest, so that others see its rows. A clock is
    /// asked only between events that come together.
    pub(super) interval: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_bytes: 192 << 20,
            max_table_bytes: 28 << 20,
            max_rows: 1 << 18,
            max_file_bytes: 32 << 20,
            max_files: 128,
            interval: Duration::from_secs(60),
        }
    }
}

/// What the rows of a table have in common.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct TableKey {
    pub(super) event: Option<Arc<str>>,
    pub(super) day: Day,
    pub(super) host: Option<Arc<str>>,
    /// The number of the schema.
    pub(super) schema: u64,
}

/// The place of an open table. Another table may be there later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TablePlace {
    slot: usize,
    number: u64,
}

/// The tables that have rows or a file.
#[derive(Debug)]
pub(super) struct Tables {
    destination: Destination,
    limits: Limits,
    slots: Vec<Option<Slot>>,
    free: Vec<usize>,
    places: HashMap<TableKey, TablePlace>,
    bytes: usize,
    open_files: usize,
    /// The number of this run in the names of its files.
    run: u64,
    /// The number of tables, files and row groups so far.
    counter: u64,
    buffers: RowBuffers,
    /// No table is older than the interval before this time.
    deadline: Option<Instant>,
}

#[derive(Debug)]
struct Slot {
    number: u64,
    key: TableKey,
    table: Table,
}

impl Tables {
    pub(super) fn new(destination: Destination, limits: Limits) -> Self {
        Self {
            destination,
            limits,
            slots: Vec::new(),
            free: Vec::new(),
            places: HashMap::new(),
            bytes: 0,
            open_files: 0,
            // Random keys: two runs may write to one directory, also at the same time.
            run: RandomState::new().hash_one("run"),
            counter: 0,
            buffers: RowBuffers::default(),
            deadline: None,
        }
    }

    /// The place of the table of `key`, which is made if there is none.
    pub(super) fn place(
        &mut self,
        key: TableKey,
        schema: &Arc<TableSchema>,
    ) -> Result<TablePlace, TableError> {
        if let Some(place) = self.places.get(&key) {
            return Ok(*place);
        }
        let begun = Instant::now();
        let directory = partition(key.event.as_deref(), key.day, key.host.as_deref());
        let mut table = Table::new(Arc::clone(schema), directory, begun);
        // At once, so that an output that cannot be written is reported with the first event; if
        // there are many tables, when they are written.
        if self.open_files < self.limits.max_files {
            table.open_file(&self.destination)?;
            self.open_files += 1;
        }
        self.deadline.get_or_insert(begun + self.limits.interval);
        self.bytes += table.bytes;
        self.counter += 1;
        let number = self.counter;
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        let place = TablePlace { slot, number };
        self.places.insert(key.clone(), place);
        if let Some(free) = self.slots.get_mut(slot) {
            *free = Some(Slot { number, key, table });
        }
        Ok(place)
    }

    /// Whether the table is still in its place.
    #[inline]
    pub(super) fn is_open(&self, place: TablePlace) -> bool {
        let slot = self.slots.get(place.slot).and_then(Option::as_ref);
        slot.is_some_and(|slot| slot.number == place.number)
    }

    /// Appends an event to a table that is open, and writes what is too much in memory.
    pub(super) fn append(
        &mut self,
        place: TablePlace,
        event: (&Event<'_>, Origin<'_>),
        time: Option<i64>,
    ) -> Result<(), SinkError> {
        let Some(Some(slot)) = self.slots.get_mut(place.slot) else {
            return Ok(());
        };
        let table = &mut slot.table;
        let before = table.bytes;
        table.append(event, time, &mut self.buffers)?;
        self.bytes += table.bytes - before;
        let limits = self.limits;
        if table.bytes > limits.max_table_bytes || table.rows() >= limits.max_rows {
            self.write_rows(place.slot)?;
        }
        Ok(self.enforce_budget()?)
    }

    /// If the tables take more memory than they may, writes the rows of the largest ones until a
    /// quarter of it is free.
    #[inline]
    pub(super) fn enforce_budget(&mut self) -> Result<(), TableError> {
        match self.bytes > self.limits.max_bytes {
            true => self.free_memory(),
            false => Ok(()),
        }
    }

    /// The bytes of memory of all tables.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    fn free_memory(&mut self) -> Result<(), TableError> {
        let goal = self.limits.max_bytes / 4 * 3;
        let tables = self.slots.iter().enumerate();
        let sizes = tables.filter_map(|(slot, table)| Some((table.as_ref()?.table.bytes, slot)));
        let mut sizes: Vec<_> = sizes.collect();
        sizes.sort_unstable_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
        for (_, slot) in &sizes {
            if self.bytes <= goal {
                return Ok(());
            }
            self.write_rows(*slot)?;
        }
        // Many tables take memory without any row.
        for (_, slot) in &sizes {
            if self.bytes <= goal {
                return Ok(());
            }
            self.close(*slot)?;
        }
        Ok(())
    }

    /// Writes the rows of a table as a row group, and ends the file if it is large.
    fn write_rows(&mut self, slot: usize) -> Result<(), TableError> {
        let has_file = |slot: &Slot| slot.table.has_file();
        let table = self.slots.get(slot).and_then(Option::as_ref);
        let Some(is_open) = table.filter(|slot| slot.table.has_rows()).map(has_file) else {
            return Ok(());
        };
        if !is_open {
            self.make_room_for_file()?;
        }
        let Some(Some(Slot { table, .. })) = self.slots.get_mut(slot) else {
            return Ok(());
        };
        table.open_file(&self.destination)?;
        self.open_files += usize::from(!is_open);
        let before = table.bytes;
        let written = table.write_rows();
        self.bytes = self.bytes.saturating_sub(before) + table.bytes;
        self.counter += 1;
        table.written = self.counter;
        let is_large = table.file_bytes() >= self.limits.max_file_bytes;
        written?;
        match is_large {
            true => self.close(slot),
            false => Ok(()),
        }
    }

    /// Ends the file that was written longest ago, if as many are open as may be.
    fn make_room_for_file(&mut self) -> Result<(), TableError> {
        if self.open_files < self.limits.max_files {
            return Ok(());
        }
        let tables = self.slots.iter().enumerate();
        let files = tables.filter_map(|(slot, table)| {
            let table = &table.as_ref()?.table;
            table.has_file().then_some((table.written, slot))
        });
        match files.min() {
            Some((_, oldest)) => self.close(oldest),
            None => Ok(()),
        }
    }

    /// Writes what is left of a table, ends its file and forgets the table.
    fn close(&mut self, slot: usize) -> Result<(), TableError> {
        let Some(Slot { mut table, key, .. }) = self.slots.get_mut(slot).and_then(Option::take)
        else {
            return Ok(());
        };
        self.free.push(slot);
        self.places.remove(&key);
        self.bytes = self.bytes.saturating_sub(table.bytes);
        self.open_files -= usize::from(table.has_file());
        if table.has_rows() {
            table.open_file(&self.destination)?;
            table.write_rows()?;
        }
        self.counter += 1;
        let name = format!("{:016x}-{:09}.parquet", self.run, self.counter);
        table.finish_file(&mut self.destination, &name)
    }

    /// Ends the files that are too old at this time. Returns when to come again.
    pub(super) fn close_old(&mut self, now: Instant) -> Result<Option<Instant>, TableError> {
        if self.deadline.is_none_or(|deadline| now < deadline) {
            return Ok(self.deadline);
        }
        let interval = self.limits.interval;
        let mut first = None;
        for slot in 0..self.slots.len() {
            let Some(Some(open)) = self.slots.get(slot) else {
                continue;
            };
            let end = open.table.begun + interval;
            if end <= now {
                self.close(slot)?;
            } else {
                first = first.into_iter().chain([end]).min();
            }
        }
        self.deadline = first;
        Ok(first)
    }

    /// Ends all files, and waits until they are where they should be.
    pub(super) fn finish(&mut self) -> Result<(), TableError> {
        for slot in 0..self.slots.len() {
            self.close(slot)?;
        }
        self.deadline = None;
        Ok(self.destination.finish()?)
    }
}
