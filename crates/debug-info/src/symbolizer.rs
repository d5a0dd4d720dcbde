//! Addresses as text: the binary, the function and the source line.

use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use crate::dwarf::Function;
use crate::mappings::{Binary, Mapping};
use crate::search::{FileSearch, SearchOptions};
use crate::units::KnownUnits;

/// Bytes of all texts that are kept. With more, all are forgotten.
const MAX_KEPT_BYTES: usize = 64 << 20;
/// Memory of what is known of an address in bytes, without its texts.
const LOCATION_BYTES: usize = 256;

/// What an address is. Texts are empty if it is not known.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Location {
    /// The binary, with `@` and the address or `+` and the offset in it.
    pub binary: String,
    /// The function, with `+` and the offset in it.
    pub function: String,
    /// The source file, with `:` and the line.
    pub source: String,
    /// The name of the function, also where [`function`](Self::function) is empty because
    /// `babeltrace2` shows none.
    pub name: String,
}

impl Location {
    fn bytes(&self) -> usize {
        let texts = [&self.binary, &self.function, &self.source, &self.name];
        LOCATION_BYTES + texts.iter().map(|text| text.len()).sum::<usize>()
    }
}

/// Finds what addresses are.
pub struct Symbolizer {
    files: FileSearch,
    units: KnownUnits,
    /// Whether directories are shown. (`--debug-info-full-path`)
    shows_directories: bool,
    /// What is known, by binary and address in the file.
    known: HashMap<(Arc<Binary>, u64), Option<Arc<Location>>>,
    known_bytes: usize,
}

impl Symbolizer {
    /// A symbolizer that looks for files in these places.
    #[must_use]
    pub fn new(options: SearchOptions, shows_directories: bool) -> Self {
        Self {
            files: FileSearch::new(options),
            units: KnownUnits::default(),
            shows_directories,
            known: HashMap::new(),
            known_bytes: 0,
        }
    }

    /// What an address of a process is, in what is mapped there. None if the file is not the build
    /// that was traced.
    pub fn locate(&mut self, mapping: &Mapping, address: u64) -> Option<Arc<Location>> {
        let address = match mapping.binary.is_pic {
            true => address.wrapping_sub(mapping.base),
            false => address,
        };
        let key = (Arc::clone(&mapping.binary), address);
        if let Some(known) = self.known.get(&key) {
            return known.clone();
        }
        let found = self.find(&mapping.binary, address).map(Arc::new);
        let bytes = found.as_ref().map_or(LOCATION_BYTES, |found| found.bytes());
        if self.known_bytes + bytes > MAX_KEPT_BYTES {
            self.known.clear();
            self.known_bytes = 0;
        }
        self.known_bytes += bytes;
        self.known.insert(key, found.clone());
        found
    }

    /// Takes the warnings about files that are not used.
    pub fn take_warnings(&mut self) -> Vec<String> {
        self.files.take_warnings()
    }

    fn find(&mut self, binary: &Binary, address: u64) -> Option<Location> {
        let file = self.files.binary(binary);
        let is_required = binary.build_id.as_ref().is_some_and(|id| id.is_required);
        if file.is_none() && is_required {
            return None;
        }
        let path = self.files.path(binary);
        let sign = if binary.is_pic { '+' } else { '@' };
        let mut location = Location {
            binary: format!(
                "{}{sign}{}",
                self.shown_path(path.as_os_str().as_bytes()),
                hexadecimal(address)
            ),
            ..Location::default()
        };
        // Without the file, nothing is known of another one either.
        let separate = match &file {
            Some(file) if file.debug.is_some() => None,
            _ => self.files.separate(binary),
        };
        let with_debug = separate.as_ref().or(file.as_ref());
        let debug = with_debug.and_then(|file| file.debug.as_ref());
        let symbol = file.as_ref().and_then(|file| file.nearest_symbol(address));
        let function = match debug {
            Some(debug) => debug.function(&mut self.units, address),
            None => symbol.clone(),
        };
        if let Some(Function { name, offset }) = &function {
            location.function = format!("{name}+{}", hexadecimal(*offset));
        }
        let named = function.or(symbol);
        let in_separate = || separate.as_ref()?.nearest_symbol(address);
        location.name = named
            .or_else(in_separate)
            .map_or_else(String::new, |named| named.name);
        if let Some(source) = debug.and_then(|debug| debug.source(&mut self.units, address)) {
            let path = self.shown_path(source.path.as_bytes());
            location.source = format!("{path}:{}", source.line);
        }
        Some(location)
    }

    /// A path as it is shown: its last part, unless directories are shown.
    fn shown_path(&self, path: &[u8]) -> String {
        let mut shown = path;
        if !self.shows_directories && path.last() != Some(&b'/') {
            shown = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        }
        String::from_utf8_lossy(shown).into_owned()
    }
}

/// A number as `%#x` of C writes it.
fn hexadecimal(number: u64) -> String {
    match number {
        0 => "0".to_owned(),
        number => format!("{number:#x}"),
    }
}
