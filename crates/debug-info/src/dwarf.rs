//! Functions in debug information in the format DWARF. A function is a subprogram at the top level
//! of its unit: so `babeltrace2` 2.0 has it.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gimli::{
    AbbreviationsCacheStrategy, AttributeValue, DW_AT_abstract_origin, DW_AT_high_pc, DW_AT_low_pc,
    DW_AT_name, DW_AT_ranges, DW_AT_specification, DW_TAG_subprogram, DebugInfoOffset, Reader,
    RunTimeEndian, SectionId, UnitOffset,
};

use crate::error::FileError;
use crate::ranges::RangeIndex;
use crate::units::{Bytes, KnownUnits, Unit};

/// Longest name or path in bytes; of a longer one the begin is shown. Names of C++ templates have
/// thousands.
const MAX_NAME_BYTES: usize = 16 << 10;
/// Largest number of functions of a file, with 40 bytes for each. The largest browsers have a
/// million. Further ones are not found.
const MAX_FUNCTIONS: usize = 1 << 22;
/// Largest number of references that lead to the name of a function.
const MAX_NAME_REFERENCES: usize = 16;

type Dwarf = gimli::Dwarf<Bytes>;
pub(crate) type Entry = gimli::DebuggingInformationEntry<Bytes>;

/// The debug information of a file.
pub(crate) struct DebugInformation {
    /// What tells this file from others that are read, or were.
    pub(crate) number: u64,
    dwarf: Dwarf,
    /// Where the units begin.
    units: Vec<DebugInfoOffset>,
    /// The functions, in the order of the file.
    functions: Vec<FunctionEntry>,
    /// The addresses of the functions.
    function_ranges: RangeIndex,
    /// The addresses of the units.
    pub(crate) unit_ranges: RangeIndex,
    /// The units that do not say their addresses, one for each line table.
    pub(crate) units_without_ranges: Vec<u32>,
}

#[derive(Clone, Copy)]
pub(crate) struct FunctionEntry {
    /// The place of the unit.
    pub(crate) unit: u32,
    pub(crate) entry: UnitOffset,
}

/// The ranges `(begin, end, place)` of units and functions, while they are found.
#[derive(Default)]
struct FoundRanges {
    functions: Vec<(u64, u64, u32)>,
    units: Vec<(u64, u64, u32)>,
    line_tables: HashSet<usize>,
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
        static FILES: AtomicU64 = AtomicU64::new(0);
        let mut found = Self {
            number: FILES.fetch_add(1, Ordering::Relaxed),
            dwarf,
            units: Vec::new(),
            functions: Vec::new(),
            function_ranges: RangeIndex::default(),
            unit_ranges: RangeIndex::default(),
            units_without_ranges: Vec::new(),
        };
        found.find_functions()?;
        Ok(Some(found).filter(|found| !found.units.is_empty()))
    }

    /// Memory of the indexes in bytes.
    pub(crate) fn index_bytes(&self) -> usize {
        let functions = self.functions.len() * size_of::<FunctionEntry>();
        let units = self.units.len() * size_of::<DebugInfoOffset>();
        functions + units + self.function_ranges.bytes() + self.unit_ranges.bytes()
    }

    /// The function at an address of the file. Absent if it has no name.
    pub(crate) fn function(&self, known: &mut KnownUnits, address: u64) -> Option<Function> {
        let function = self.functions_at(address).next()?;
        let unit = self.unit(known, function.unit)?;
        let entry = unit.entry(function.entry).ok()?;
        let name = self.name(known, &unit, &entry)?;
        // A function in several pieces has no first byte, and no name in babeltrace2.
        let low = self.address(&unit, &entry, DW_AT_low_pc)?;
        let offset = address.wrapping_sub(low);
        Some(Function { name, offset })
    }

    /// The functions at an address, in the order of the file.
    pub(crate) fn functions_at(&self, address: u64) -> impl Iterator<Item = FunctionEntry> {
        let places = self.function_ranges.owners(address).into_iter();
        places.filter_map(|place| self.functions.get(usize::try_from(place).ok()?).copied())
    }

    fn find_functions(&mut self) -> Result<(), gimli::Error> {
        let mut found = FoundRanges::default();
        let mut headers = self.dwarf.units();
        while let Some(header) = headers.next()? {
            let Some(offset) = header.debug_info_offset() else {
                continue;
            };
            let place = u32::try_from(self.units.len()).unwrap_or(u32::MAX);
            self.units.push(offset);
            // A unit that is broken has no functions; those of others are found.
            if let Ok(unit) = self.dwarf.unit(header) {
                self.find_unit_ranges(&unit, place, &mut found);
                // What was found before an error counts.
                let _ = self.find_functions_of(&unit, place, &mut found);
            }
        }
        self.functions.shrink_to_fit();
        self.function_ranges = RangeIndex::new(found.functions);
        self.unit_ranges = RangeIndex::new(found.units);
        Ok(())
    }

    fn find_unit_ranges(&mut self, unit: &Unit, place: u32, found: &mut FoundRanges) {
        if let Some(ranges) = self.unit_ranges(unit) {
            let left = MAX_FUNCTIONS.saturating_sub(found.units.len());
            // The last line of a unit may have no code, and the address at which the next begins.
            let ranges = ranges.into_iter().take(left);
            let ranges = ranges.map(|(begin, end)| (begin, end.saturating_add(1), place));
            found.units.extend(ranges);
        } else if let Some(program) = &unit.line_program
            && found.line_tables.insert(program.header().offset().0)
        {
            self.units_without_ranges.push(place);
        }
    }

    fn find_functions_of(
        &mut self,
        unit: &Unit,
        place: u32,
        found: &mut FoundRanges,
    ) -> Result<(), gimli::Error> {
        let mut entries = unit.entries();
        if !entries.next_entry()? || !entries.next_entry()? {
            return Ok(());
        }
        let mut current = entries.current().cloned();
        while let Some(entry) = current {
            if entry.tag() == DW_TAG_subprogram {
                let function = u32::try_from(self.functions.len()).unwrap_or(u32::MAX);
                let ranges = self.ranges(unit, &entry);
                if found.functions.len() + ranges.len() > MAX_FUNCTIONS {
                    return Ok(());
                }
                if !ranges.is_empty() {
                    self.functions.push(FunctionEntry {
                        unit: place,
                        entry: entry.offset(),
                    });
                }
                let ranges = ranges.into_iter();
                let ranges = ranges.map(|(begin, end)| (begin, end, function));
                found.functions.extend(ranges);
            }
            current = entries.next_sibling()?.cloned();
        }
        Ok(())
    }

    pub(crate) fn unit(&self, known: &mut KnownUnits, place: u32) -> Option<Arc<Unit>> {
        known.unit(self.number, place, || {
            let offset = self.units.get(usize::try_from(place).ok()?)?;
            let header = self.dwarf.unit_header(*offset).ok()?;
            self.dwarf.unit(header).ok()
        })
    }

    fn unit_ranges(&self, unit: &Unit) -> Option<Vec<(u64, u64)>> {
        let mut entries = unit.entries();
        entries.next_entry().ok()?;
        let ranges = self.ranges(unit, entries.current()?);
        Some(ranges).filter(|ranges| !ranges.is_empty())
    }

    /// The addresses of what an entry describes.
    pub(crate) fn ranges(&self, unit: &Unit, entry: &Entry) -> Vec<(u64, u64)> {
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
    fn name(&self, known: &mut KnownUnits, unit: &Unit, entry: &Entry) -> Option<String> {
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
        let mut other: Option<Arc<Unit>> = None;
        for _ in 0..MAX_NAME_REFERENCES {
            let at = match next {
                AttributeValue::UnitRef(at) => at,
                AttributeValue::DebugInfoRef(at) => {
                    let place = self.units.partition_point(|unit| *unit <= at);
                    let place = u32::try_from(place.checked_sub(1)?).ok()?;
                    let unit = self.unit(known, place)?;
                    let at = at.to_unit_offset(&unit.header)?;
                    other = Some(unit);
                    at
                }
                _ => return None,
            };
            let unit = other.as_deref().unwrap_or(unit);
            let entry = unit.entry(at).ok()?;
            if let Some(name) = own(unit, &entry) {
                return Some(name);
            }
            next = reference(&entry)?;
        }
        None
    }

    pub(crate) fn text(&self, unit: &Unit, value: AttributeValue<Bytes>) -> Option<String> {
        let bytes = self.dwarf.attr_string(unit, value).ok()?;
        let mut bytes = bytes.to_slice().ok()?.into_owned();
        bytes.truncate(MAX_NAME_BYTES);
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }
}
