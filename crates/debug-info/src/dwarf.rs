//! Functions and source lines in debug information in the format DWARF.
//!
//! A function is a subprogram at the top level of its unit, and the source line of an address is
//! where the code there was inlined, else that of an entry of the line table for exactly this
//! address: so `babeltrace2` 2.0 has it. An event of LTTng-UST is in an inlined function, and its
//! line is that of the tracepoint.

use std::ops::Range;
use std::sync::Arc;

use gimli::{
    AbbreviationsCacheStrategy, AttributeValue, DW_AT_abstract_origin, DW_AT_call_file,
    DW_AT_call_line, DW_AT_high_pc, DW_AT_low_pc, DW_AT_name, DW_AT_ranges, DW_AT_specification,
    DW_TAG_inlined_subroutine, DW_TAG_subprogram, DebugInfoOffset, EndianArcSlice, Reader,
    RunTimeEndian, SectionId, UnitOffset,
};

use crate::error::FileError;

/// Longest name or path in bytes; of a longer one the begin is shown. Names of C++ templates have
/// thousands.
const MAX_NAME_BYTES: usize = 16 << 10;
/// Largest number of functions of a file, with 40 bytes for each. The largest browsers have a
/// million. Further ones are not found.
const MAX_FUNCTIONS: usize = 1 << 22;
/// Largest number of references that lead to the name of a function.
const MAX_NAME_REFERENCES: usize = 16;
/// Largest number of units in which an address is looked for. It is in one, except in a file that
/// was made to take long.
const MAX_UNITS_OF_ADDRESS: usize = 256;

type Bytes = EndianArcSlice<RunTimeEndian>;
type Dwarf = gimli::Dwarf<Bytes>;
type Unit = gimli::Unit<Bytes>;
type Entry = gimli::DebuggingInformationEntry<Bytes>;

/// The debug information of a file.
pub(crate) struct DebugInformation {
    dwarf: Dwarf,
    units: Vec<UnitIndex>,
    /// The ranges of functions, in the order of the file.
    functions: Vec<FunctionRange>,
}

struct UnitIndex {
    offset: DebugInfoOffset,
    /// The addresses of the unit. None if the unit does not say them.
    ranges: Option<Vec<(u64, u64)>>,
    /// The places of its functions.
    functions: Range<usize>,
}

struct FunctionRange {
    begin: u64,
    end: u64,
    /// The place of the unit.
    unit: u32,
    entry: UnitOffset,
}

impl FunctionRange {
    fn contains(&self, address: u64) -> bool {
        (self.begin..self.end).contains(&address)
    }
}

/// A line of a source file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SourceLine {
    pub(crate) path: String,
    pub(crate) line: u64,
}

/// A function, and how far from its first byte an address is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) offset: u64,
}

/// The names of the sections that are read.
pub(crate) const SECTIONS: [SectionId; 9] = [
    SectionId::DebugAbbrev,
    SectionId::DebugAddr,
    SectionId::DebugInfo,
    SectionId::DebugLine,
    SectionId::DebugLineStr,
    SectionId::DebugRanges,
    SectionId::DebugRngLists,
    SectionId::DebugStr,
    SectionId::DebugStrOffsets,
];

impl DebugInformation {
    /// Finds the functions in debug information. `section` returns the bytes of a section. None if
    /// there is no debug information.
    pub(crate) fn read(
        endian: RunTimeEndian,
        mut section: impl FnMut(SectionId) -> Result<Arc<[u8]>, FileError>,
    ) -> Result<Option<Self>, FileError> {
        let mut load = |id: SectionId| {
            let bytes = match SECTIONS.contains(&id) {
                true => section(id)?,
                false => Arc::from([]),
            };
            Ok::<_, FileError>(Bytes::new(bytes, endian))
        };
        let mut dwarf = Dwarf::load(&mut load)?;
        // Without it, a table that many units share is parsed for each of them.
        dwarf.populate_abbreviations_cache(AbbreviationsCacheStrategy::Duplicates);
        let mut found = Self {
            dwarf,
            units: Vec::new(),
            functions: Vec::new(),
        };
        found.find_functions()?;
        Ok(Some(found).filter(|found| !found.units.is_empty()))
    }

    /// The function at an address of the file. Absent if it has no name.
    pub(crate) fn function(&self, address: u64) -> Option<Function> {
        let mut functions = self.functions.iter();
        let function = functions.find(|function| function.contains(address))?;
        let unit = self.unit(function.unit)?;
        let entry = unit.entry(function.entry).ok()?;
        let name = self.name(&unit, &entry)?;
        // A function in several pieces has no first byte, and no name in babeltrace2.
        let low = self.address(&unit, &entry, DW_AT_low_pc)?;
        let offset = address.wrapping_sub(low);
        Some(Function { name, offset })
    }

    /// The source line at an address of the file.
    pub(crate) fn source(&self, address: u64) -> Option<SourceLine> {
        // The last line of a unit may have no code, and the address at which the next unit begins.
        let is_within = |ranges: &Vec<(u64, u64)>| {
            let mut ranges = ranges.iter();
            ranges.any(|(begin, end)| (*begin..=*end).contains(&address))
        };
        let mut looked_at = 0;
        for (place, index) in (0..).zip(&self.units) {
            let functions = self.functions.get(index.functions.clone());
            let mut functions = functions.unwrap_or_default().iter();
            let function = functions.find(|function| function.contains(address));
            if function.is_none() && !index.ranges.as_ref().is_none_or(is_within) {
                continue;
            }
            looked_at += 1;
            if looked_at > MAX_UNITS_OF_ADDRESS {
                return None;
            }
            let unit = self.unit(place)?;
            if let Some(function) = function {
                match self.inlined_at(&unit, function.entry, address) {
                    Inlined::At(line) => return Some(line),
                    Inlined::Unknown => return None,
                    Inlined::Nothing => {}
                }
            }
            if let Some(line) = self.line_at(&unit, address) {
                return Some(line);
            }
        }
        None
    }

    fn find_functions(&mut self) -> Result<(), gimli::Error> {
        let mut headers = self.dwarf.units();
        while let Some(header) = headers.next()? {
            let Some(offset) = header.debug_info_offset() else {
                continue;
            };
            // A unit that is broken has no functions; those of others are found.
            let unit = self.dwarf.unit(header);
            let ranges = unit.as_ref().ok().and_then(|unit| self.unit_ranges(unit));
            let place = u32::try_from(self.units.len()).unwrap_or(u32::MAX);
            let begin = self.functions.len();
            if let Ok(unit) = unit {
                // What was found before an error counts.
                let _ = self.find_functions_of(&unit, place);
            }
            self.units.push(UnitIndex {
                offset,
                ranges,
                functions: begin..self.functions.len(),
            });
        }
        Ok(())
    }

    fn find_functions_of(&mut self, unit: &Unit, place: u32) -> Result<(), gimli::Error> {
        let mut entries = unit.entries();
        if !entries.next_entry()? || !entries.next_entry()? {
            return Ok(());
        }
        let mut current = entries.current().cloned();
        while let Some(entry) = current {
            if entry.tag() == DW_TAG_subprogram {
                for (begin, end) in self.ranges(unit, &entry) {
                    if self.functions.len() >= MAX_FUNCTIONS {
                        return Ok(());
                    }
                    self.functions.push(FunctionRange {
                        begin,
                        end,
                        unit: place,
                        entry: entry.offset(),
                    });
                }
            }
            current = entries.next_sibling()?.cloned();
        }
        Ok(())
    }

    fn unit(&self, place: u32) -> Option<Unit> {
        let index = self.units.get(usize::try_from(place).ok()?)?;
        let header = self.dwarf.unit_header(index.offset).ok()?;
        self.dwarf.unit(header).ok()
    }

    fn unit_ranges(&self, unit: &Unit) -> Option<Vec<(u64, u64)>> {
        let mut entries = unit.entries();
        entries.next_entry().ok()?;
        let ranges = self.ranges(unit, entries.current()?);
        Some(ranges).filter(|ranges| !ranges.is_empty())
    }

    /// The addresses of what an entry describes.
    fn ranges(&self, unit: &Unit, entry: &Entry) -> Vec<(u64, u64)> {
        if let Some(low) = self.address(unit, entry, DW_AT_low_pc)
            && let Some(high) = entry.attr(DW_AT_high_pc)
        {
            // A number counts from the low address.
            let end = match high.udata_value() {
                Some(size) => low.checked_add(size),
                None => self.address(unit, entry, DW_AT_high_pc),
            };
            return end.map(|end| (low, end)).into_iter().collect();
        }
        let Some(value) = entry.attr_value(DW_AT_ranges) else {
            return Vec::new();
        };
        let mut found = Vec::new();
        if let Ok(Some(mut ranges)) = self.dwarf.attr_ranges(unit, value) {
            while let Ok(Some(range)) = ranges.next()
                && found.len() < MAX_FUNCTIONS
            {
                found.push((range.begin, range.end));
            }
        }
        found
    }

    fn address(&self, unit: &Unit, entry: &Entry, name: gimli::DwAt) -> Option<u64> {
        let value = entry.attr_value(name)?;
        self.dwarf.attr_address(unit, value).ok().flatten()
    }

    /// The name of a function, which may be in the entry of its declaration.
    fn name(&self, unit: &Unit, entry: &Entry) -> Option<String> {
        let own = |unit: &Unit, entry: &Entry| {
            let value = entry.attr_value(DW_AT_name)?;
            self.text(unit, value)
        };
        let reference = |entry: &Entry| {
            let origin = entry.attr_value(DW_AT_abstract_origin);
            origin.or_else(|| entry.attr_value(DW_AT_specification))
        };
        if let Some(name) = own(unit, entry) {
            return Some(name);
        }
        let mut next = reference(entry)?;
        let mut other: Option<Unit> = None;
        for _ in 0..MAX_NAME_REFERENCES {
            let at = match next {
                AttributeValue::UnitRef(at) => at,
                AttributeValue::DebugInfoRef(at) => {
                    let place = self.units.partition_point(|unit| unit.offset <= at);
                    let place = u32::try_from(place.checked_sub(1)?).ok()?;
                    let unit = self.unit(place)?;
                    let at = at.to_unit_offset(&unit.header)?;
                    other = Some(unit);
                    at
                }
                _ => return None,
            };
            let unit = other.as_ref().unwrap_or(unit);
            let entry = unit.entry(at).ok()?;
            if let Some(name) = own(unit, &entry) {
                return Some(name);
            }
            next = reference(&entry)?;
        }
        None
    }

    fn text(&self, unit: &Unit, value: AttributeValue<Bytes>) -> Option<String> {
        let bytes = self.dwarf.attr_string(unit, value).ok()?;
        let mut bytes = bytes.to_slice().ok()?.into_owned();
        bytes.truncate(MAX_NAME_BYTES);
        Some(String::from_utf8_lossy(&bytes).into_owned())
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
    fn line_at(&self, unit: &Unit, address: u64) -> Option<SourceLine> {
        let program = unit.line_program.clone()?;
        let mut rows = program.rows();
        let (mut found, mut highest) = (None, 0);
        // What is before an error counts.
        while let Ok(Some((_, row))) = rows.next_row() {
            highest = highest.max(row.address());
            if row.address() == address && !row.end_sequence() {
                let line = row.line().map_or(0, std::num::NonZero::get);
                found = Some((row.file_index(), line));
            }
        }
        // The highest address is where the code ends, also if an entry says otherwise.
        let (file, line) = found.filter(|_| address < highest)?;
        let path = self.path(unit, rows.header(), file)?;
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
