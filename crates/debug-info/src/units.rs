//! Units and line tables that have been decoded, and are kept for the next address.

use std::collections::HashMap;
use std::num::NonZero;
use std::sync::Arc;

use gimli::{EndianArcSlice, RunTimeEndian};

pub(crate) type Bytes = EndianArcSlice<RunTimeEndian>;
pub(crate) type Unit = gimli::Unit<Bytes>;

/// Bytes of all line tables that are kept, of all files, and of all units. With more, all are
/// forgotten.
const MAX_KEPT_BYTES: usize = 256 << 20;
/// Largest number of units that are kept. With more, all are forgotten. Each keeps its
/// abbreviations, whose bytes are not known: a compiler writes some kilobytes.
const MAX_KEPT_UNITS: usize = 1024;
/// Largest number of lines of a table. Tables of the largest units have a million; further lines
/// are not found.
const MAX_LINES: usize = 1 << 22;
/// Memory of what is known of a line table in bytes, without its lines.
const TABLE_BYTES: usize = 128;

/// An entry of a line table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Line {
    address: u64,
    /// The number of the file in its unit.
    pub(crate) file: u32,
    pub(crate) line: u32,
}

/// The entries of a line table, in the order of addresses and for each in that of the table.
#[derive(Debug)]
pub(crate) struct LineTable(Vec<Line>);

impl LineTable {
    /// Decodes the table of a unit. What is before an error counts.
    fn read(program: gimli::IncompleteLineProgram<Bytes>) -> Self {
        let mut rows = program.rows();
        let mut lines = Vec::new();
        let number = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        while lines.len() < MAX_LINES
            && let Ok(Some((_, row))) = rows.next_row()
        {
            if !row.end_sequence() {
                lines.push(Line {
                    address: row.address(),
                    file: number(row.file_index()),
                    line: number(row.line().map_or(0, NonZero::get)),
                });
            }
        }
        lines.shrink_to_fit();
        lines.sort_by_key(|line| line.address);
        Self(lines)
    }

    /// The last entry for exactly this address.
    pub(crate) fn last_at(&self, address: u64) -> Option<Line> {
        let after = self.0.partition_point(|line| line.address <= address);
        let line = self.0.get(after.checked_sub(1)?)?;
        (line.address == address).then_some(*line)
    }

    fn bytes(&self) -> usize {
        TABLE_BYTES + self.0.len() * size_of::<Line>()
    }
}

/// Memory of a unit and of the names of its files in bytes.
fn bytes_of(unit: &Unit) -> usize {
    let program = unit.line_program.as_ref();
    let names = program.map_or(0, |program| {
        let header = program.header();
        size_of_val(header.file_names()) + size_of_val(header.include_directories())
    });
    size_of::<Unit>() + names
}

/// Units and line tables of all files, by the number of the file.
#[derive(Default)]
pub(crate) struct KnownUnits {
    units: HashMap<(u64, u32), Option<Arc<Unit>>>,
    unit_bytes: usize,
    /// By the offset of the table: units may share one.
    tables: HashMap<(u64, usize), Arc<LineTable>>,
    table_bytes: usize,
}

impl KnownUnits {
    /// The unit at a place of a file. `read` reads it, if it is not known.
    pub(crate) fn unit(
        &mut self,
        file: u64,
        place: u32,
        read: impl FnOnce() -> Option<Unit>,
    ) -> Option<Arc<Unit>> {
        if let Some(known) = self.units.get(&(file, place)) {
            return known.clone();
        }
        let unit = read().map(Arc::new);
        let bytes = unit.as_deref().map_or(0, bytes_of);
        if self.units.len() >= MAX_KEPT_UNITS || self.unit_bytes + bytes > MAX_KEPT_BYTES {
            self.units.clear();
            self.unit_bytes = 0;
        }
        self.unit_bytes += bytes;
        self.units.insert((file, place), unit.clone());
        unit
    }

    /// The line table of a unit.
    pub(crate) fn line_table(&mut self, file: u64, unit: &Unit) -> Option<Arc<LineTable>> {
        let program = unit.line_program.as_ref()?;
        let key = (file, program.header().offset().0);
        if let Some(known) = self.tables.get(&key) {
            return Some(Arc::clone(known));
        }
        let table = Arc::new(LineTable::read(program.clone()));
        if self.table_bytes + table.bytes() > MAX_KEPT_BYTES {
            self.tables.clear();
            self.table_bytes = 0;
        }
        self.table_bytes += table.bytes();
        self.tables.insert(key, Arc::clone(&table));
        Some(table)
    }
}
