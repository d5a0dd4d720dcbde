//! Source lines in debug information in the format DWARF.
//!
//! The source line of an address is where the code there was inlined, else that of an entry of the
//! line table for exactly this address: so `babeltrace2` 2.0 has it. An event of LTTng-UST is in an
//! inlined function, and its line is that of the tracepoint.

use gimli::{
    AttributeValue, DW_AT_call_file, DW_AT_call_line, DW_TAG_inlined_subroutine, UnitOffset,
};

use crate::dwarf::{DebugInformation, Entry};
use crate::units::{Bytes, KnownUnits, Unit};

/// Largest number of units in which an address is looked for. It is in one, except in a file that
/// was made to take long.
const MAX_UNITS_OF_ADDRESS: usize = 256;

/// A line of a source file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SourceLine {
    pub(crate) path: String,
    pub(crate) line: u64,
}

impl DebugInformation {
    /// The source line at an address of the file.
    pub(crate) fn source(&self, known: &mut KnownUnits, address: u64) -> Option<SourceLine> {
        let functions: Vec<_> = self.functions_at(address).collect();
        let mut units = self.unit_ranges.owners(address);
        units.extend(functions.iter().map(|function| function.unit));
        units.extend(&self.units_without_ranges);
        units.sort_unstable();
        units.dedup();
        for place in units.into_iter().take(MAX_UNITS_OF_ADDRESS) {
            let unit = self.unit(known, place)?;
            let function = functions.iter().find(|function| function.unit == place);
            if let Some(function) = function {
                match self.inlined_at(&unit, function.entry, address) {
                    Inlined::At(line) => return Some(line),
                    Inlined::Unknown => return None,
                    Inlined::Nothing => {}
                }
            }
            if let Some(line) = self.line_at(known, &unit, address) {
                return Some(line);
            }
        }
        None
    }

    /// Where the code at an address within a function was inlined.
    ///
    /// Of the entries on each level, the first after that in which the next level was entered is
    /// passed over, and the last one says whether there is a line, because babeltrace2 does so.
    fn inlined_at(&self, unit: &Unit, function: UnitOffset, address: u64) -> Inlined {
        let found = self.find_inlined(unit, function, address);
        match found {
            Ok(None) => Inlined::Nothing,
            Ok(Some(entry)) => {
                let line = self.call_line(unit, &entry);
                line.map_or(Inlined::Unknown, Inlined::At)
            }
            Err(NoEntry) => Inlined::Unknown,
        }
    }

    fn find_inlined(
        &self,
        unit: &Unit,
        function: UnitOffset,
        address: u64,
    ) -> Result<Option<Entry>, NoEntry> {
        let mut entries = unit.entries_at_offset(function)?;
        entries.next_entry()?;
        enter_first_child(&mut entries)?;
        loop {
            let entry = entries.current().cloned().ok_or(NoEntry)?;
            let ranges = self.ranges(unit, &entry);
            let mut ranges = ranges.iter();
            let contains = ranges.any(|(begin, end)| (*begin..*end).contains(&address));
            if contains {
                if entry.tag() == DW_TAG_inlined_subroutine {
                    return Ok(Some(entry));
                }
                if entry.has_children() {
                    enter_first_child(&mut entries)?;
                }
            }
            let last = entries.current().cloned();
            if entries.next_sibling()?.is_none() {
                return Ok(last.filter(|_| contains));
            }
        }
    }

    /// The line of the call that was inlined.
    fn call_line(&self, unit: &Unit, entry: &Entry) -> Option<SourceLine> {
        let number = |value: Option<AttributeValue<Bytes>>| match value? {
            AttributeValue::FileIndex(number) => Some(number),
            value => value.udata_value(),
        };
        let file = number(entry.attr_value(DW_AT_call_file))?;
        let line = number(entry.attr_value(DW_AT_call_line))?;
        let program = unit.line_program.as_ref()?;
        let path = self.path(unit, program.header(), file)?;
        Some(SourceLine { path, line })
    }

    /// The line of the last entry of the line table for exactly this address.
    fn line_at(&self, known: &mut KnownUnits, unit: &Unit, address: u64) -> Option<SourceLine> {
        let line = known.line_table(self.number, unit)?.last_at(address)?;
        let header = unit.line_program.as_ref()?.header();
        let path = self.path(unit, header, line.file.into())?;
        let line = line.line.into();
        Some(SourceLine { path, line })
    }

    /// The path of a file of a line table: its name after that of its directory.
    fn path(
        &self,
        unit: &Unit,
        header: &gimli::LineProgramHeader<Bytes>,
        file: u64,
    ) -> Option<String> {
        // Before DWARF 5, no file has the number 0.
        if file == 0 && header.version() < 5 {
            return Some("???".to_owned());
        }
        let file = header.file(file)?;
        let name = self.text(unit, file.path_name())?;
        if name.starts_with('/') {
            return Some(name);
        }
        let directory = file.directory(header);
        Some(
            match directory.and_then(|directory| self.text(unit, directory)) {
                Some(directory) => format!("{directory}/{name}"),
                None => name,
            },
        )
    }
}

/// What is inlined at an address.
enum Inlined {
    At(SourceLine),
    Nothing,
    /// The entries of the function do not say it, and nothing else is asked.
    Unknown,
}

/// An entry is missing or broken.
struct NoEntry;

impl From<gimli::Error> for NoEntry {
    fn from(_: gimli::Error) -> Self {
        Self
    }
}

/// Goes to the first entry within the current one.
fn enter_first_child(entries: &mut gimli::EntriesCursor<'_, Bytes>) -> Result<(), NoEntry> {
    let has_children = entries.current().is_some_and(Entry::has_children);
    if has_children && entries.next_entry()? && entries.current().is_some() {
        Ok(())
    } else {
        Err(NoEntry)
    }
}
