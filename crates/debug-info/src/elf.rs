//! What is read of an ELF file: symbols of functions, build ids, debug information.

use std::cell::Cell;
use std::fs::File;
use std::io::Read;
use std::sync::Arc;

use flate2::read::ZlibDecoder;
use gimli::{RunTimeEndian, SectionId};
use object::elf::{FileHeader32, FileHeader64, SHT_NOTE, STT_FUNC};
use object::read::elf::{ElfFile as ObjectFile, FileHeader, SectionHeader, Sym};
use object::{
    CompressionFormat, Endian, Endianness, FileKind, Object, ObjectSection, ReadCache, ReadRef,
};

use crate::dwarf::{DebugInformation, Function};
use crate::error::FileError;

/// Bytes that are read and decompressed of a file at most. Debug information of a browser has half
/// of that.
pub(crate) const MAX_FILE_BYTES: u64 = 1 << 30;
/// Largest section of abbreviations in bytes. Decoded, it takes several times as much; that of a
/// browser has 20 MiB.
const MAX_ABBREVIATION_BYTES: u64 = 64 << 20;
/// Largest number of sections with notes that are looked at for a build id. Files have about four.
const MAX_NOTE_SECTIONS: usize = 64;
/// The type of the note with a build id. (`NT_GNU_BUILD_ID`)
const BUILD_ID_NOTE: u32 = 3;

/// What is needed of an ELF file.
pub(crate) struct ElfFile {
    build_ids: Vec<Vec<u8>>,
    symbols: Symbols,
    /// Functions and source lines. Absent if the file has no debug information.
    pub(crate) debug: Option<DebugInformation>,
    /// The number of bytes that have been read and of indexes, about as many as are kept.
    pub(crate) bytes: u64,
    /// Why the debug information cannot be read.
    pub(crate) debug_error: Option<FileError>,
}

/// The symbols of functions.
#[derive(Debug, Default)]
struct Symbols {
    /// Addresses, and where the names begin. In order of address, one for each.
    functions: Vec<(u64, u32)>,
    names: Vec<u8>,
}

/// Reads from a file, until too much has been read.
#[derive(Clone, Copy)]
struct BoundedFile<'a> {
    file: &'a ReadCache<File>,
    left: &'a Cell<u64>,
}

impl BoundedFile<'_> {
    fn count(self, size: u64) -> Result<(), ()> {
        let left = self.left.get().checked_sub(size).ok_or(())?;
        self.left.set(left);
        Ok(())
    }
}

impl<'a> ReadRef<'a> for BoundedFile<'a> {
    fn len(self) -> Result<u64, ()> {
        self.file.len()
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'a [u8], ()> {
        self.count(size)?;
        self.file.read_bytes_at(offset, size)
    }

    fn read_bytes_at_until(
        self,
        range: std::ops::Range<u64>,
        delimiter: u8,
    ) -> Result<&'a [u8], ()> {
        let bytes = self.file.read_bytes_at_until(range, delimiter)?;
        self.count(u64::try_from(bytes.len()).map_err(drop)?)?;
        Ok(bytes)
    }
}

impl ElfFile {
    /// Reads a file.
    pub(crate) fn read(file: File) -> Result<Self, FileError> {
        let cache = ReadCache::new(file);
        let left = Cell::new(MAX_FILE_BYTES);
        let file = BoundedFile {
            file: &cache,
            left: &left,
        };
        let read = FileKind::parse(file)
            .map_err(FileError::Elf)
            .and_then(|kind| match kind {
                FileKind::Elf32 => Self::parse::<FileHeader32<Endianness>>(file),
                _ => Self::parse::<FileHeader64<Endianness>>(file),
            });
        match read {
            // It failed because nothing more may be read.
            Err(FileError::Elf(_)) if left.get() == 0 => Err(FileError::TooLarge(MAX_FILE_BYTES)),
            read => read,
        }
    }

    fn parse<Elf: FileHeader<Endian = Endianness>>(
        file: BoundedFile<'_>,
    ) -> Result<Self, FileError> {
        let elf = ObjectFile::<Elf, _>::parse(file)?;
        let debug = DebugInformation::read(
            match elf.endian().is_big_endian() {
                true => RunTimeEndian::Big,
                false => RunTimeEndian::Little,
            },
            |id| section(&elf, id, file.left),
        );
        let (debug, debug_error) = match debug {
            Ok(debug) => (debug, None),
            Err(error) => (None, Some(error)),
        };
        let index_bytes = debug.as_ref().map_or(0, DebugInformation::index_bytes);
        let index_bytes = u64::try_from(index_bytes).unwrap_or(u64::MAX);
        Ok(Self {
            build_ids: build_ids(&elf, file),
            symbols: Symbols::read(&elf)?,
            debug,
            bytes: MAX_FILE_BYTES - file.left.get() + index_bytes,
            debug_error,
        })
    }

    /// Whether the file is the build with this id.
    pub(crate) fn is_build(&self, id: &[u8]) -> bool {
        self.build_ids.iter().any(|known| known == id)
    }

    /// Whether the file says which build it is.
    pub(crate) fn has_build_id(&self) -> bool {
        !self.build_ids.is_empty()
    }

    /// The function whose symbol is the nearest before an address of the file.
    pub(crate) fn nearest_symbol(&self, address: u64) -> Option<Function> {
        self.symbols.nearest(address)
    }
}

impl Symbols {
    fn read<'d, Elf: FileHeader<Endian = Endianness>>(
        elf: &ObjectFile<'d, Elf, BoundedFile<'d>>,
    ) -> Result<Self, FileError> {
        let endian = elf.endian();
        let table = elf.elf_symbol_table();
        if table.is_empty() {
            return Ok(Self::default());
        }
        let names = elf.elf_section_table().section(table.string_section())?;
        let names = names.data(endian, elf.data())?.to_vec();
        let functions = table.iter().filter(|symbol| symbol.st_type() == STT_FUNC);
        let mut functions: Vec<(u64, u32)> = functions
            .map(|symbol| (symbol.st_value(endian).into(), symbol.st_name(endian)))
            .collect();
        // A stable order: of several symbols for one address, the first one is shown.
        functions.sort_by_key(|(address, _)| *address);
        functions.dedup_by_key(|(address, _)| *address);
        functions.shrink_to_fit();
        Ok(Self { functions, names })
    }

    fn nearest(&self, address: u64) -> Option<Function> {
        let after = self
            .functions
            .partition_point(|(begin, _)| *begin <= address);
        let (begin, name) = self.functions.get(after.checked_sub(1)?)?;
        let name = self.names.get(usize::try_from(*name).ok()?..)?;
        let name = name.split(|byte| *byte == 0).next()?;
        Some(Function {
            name: String::from_utf8_lossy(name).into_owned(),
            offset: address - begin,
        })
    }
}

/// The build ids of a file: the first notes of sections, if they are of that type.
fn build_ids<'d, Elf: FileHeader<Endian = Endianness>>(
    elf: &ObjectFile<'d, Elf, BoundedFile<'d>>,
    file: BoundedFile<'d>,
) -> Vec<Vec<u8>> {
    let endian = elf.endian();
    let sections = elf.elf_section_table().iter();
    let sections = sections.filter(|section| section.sh_type(endian) == SHT_NOTE);
    let note = |section: &Elf::SectionHeader| {
        let mut notes = section.notes(endian, file).ok()??;
        let note = notes.next().ok()??;
        let is_build_id = note.name() == b"GNU" && note.n_type(endian) == BUILD_ID_NOTE;
        is_build_id.then(|| note.desc().to_vec())
    };
    sections.take(MAX_NOTE_SECTIONS).filter_map(note).collect()
}

/// The bytes of a section with debug information; empty if there is none.
fn section<'d, Elf: FileHeader<Endian = Endianness>>(
    elf: &ObjectFile<'d, Elf, BoundedFile<'d>>,
    id: SectionId,
    left: &Cell<u64>,
) -> Result<Arc<[u8]>, FileError> {
    let Some(section) = elf.section_by_name_bytes(id.name().as_bytes()) else {
        return Ok(Arc::from([]));
    };
    let data = section.compressed_data()?;
    if id == SectionId::DebugAbbrev && data.uncompressed_size > MAX_ABBREVIATION_BYTES {
        return Err(FileError::TooLarge(MAX_ABBREVIATION_BYTES));
    }
    match data.format {
        CompressionFormat::None => Ok(Arc::from(data.data)),
        CompressionFormat::Zlib => {
            // The size is what the file says of itself: memory is only taken for what comes.
            let mut bytes = Vec::new();
            let most = left.get();
            let size = ZlibDecoder::new(data.data)
                .take(most)
                .read_to_end(&mut bytes)?;
            let size = u64::try_from(size).unwrap_or(u64::MAX);
            left.set(most - size.min(most));
            if size >= most || size != data.uncompressed_size {
                return Err(FileError::TooLarge(MAX_FILE_BYTES));
            }
            Ok(bytes.into())
        }
        _ => Err(object_error()),
    }
}

/// The error for a form of compression that is not read.
fn object_error() -> FileError {
    FileError::Read(std::io::Error::other("unknown compression of sections"))
}

#[cfg(test)]
mod tests;
