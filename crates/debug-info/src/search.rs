//! Where the files of a binary are on this host: itself, and separate files with debug information.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use rustix::fs::OFlags;

use crate::elf::{ElfFile, MAX_FILE_BYTES};
use crate::error::FileError;
use crate::mappings::{Binary, DebugLink};

/// Where files with debug information are, unless the user says otherwise.
const DEFAULT_DIRECTORY: &str = "/usr/lib/debug";
/// Bytes of all files that are kept. With more, those that were not used for longest are forgotten.
const MAX_KEPT_BYTES: u64 = MAX_FILE_BYTES;
/// Largest number of files that are kept or known to be missing.
const MAX_FILES: usize = 4096;
/// Largest number of warnings. Traces may name any number of files.
const MAX_WARNINGS: usize = 32;

/// Where files are looked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SearchOptions {
    /// The directory with files of debug information. (`--debug-info-dir`)
    pub directory: Option<PathBuf>,
    /// The root of the traced host. (`--debug-info-target-prefix`)
    pub target_prefix: Option<PathBuf>,
}

/// Opens files, and keeps those that have been used last.
pub(crate) struct FileSearch {
    options: SearchOptions,
    files: HashMap<PathBuf, KnownFile>,
    /// The number of the last use of a file.
    uses: u64,
    kept_bytes: u64,
    /// All warnings so far, each once.
    warnings: Vec<String>,
    /// The number of those that have been taken.
    taken: usize,
}

struct KnownFile {
    /// Absent if the file cannot be used.
    file: Option<Arc<ElfFile>>,
    used: u64,
}

impl FileSearch {
    pub(crate) fn new(options: SearchOptions) -> Self {
        Self {
            options,
            files: HashMap::new(),
            uses: 0,
            kept_bytes: 0,
            warnings: Vec::new(),
            taken: 0,
        }
    }

    /// Takes the warnings about files that are not used.
    pub(crate) fn take_warnings(&mut self) -> Vec<String> {
        let new = self.warnings.get(self.taken..).unwrap_or_default().to_vec();
        self.taken = self.warnings.len();
        new
    }

    /// The path of a binary on this host.
    pub(crate) fn path(&self, binary: &Binary) -> PathBuf {
        match &self.options.target_prefix {
            Some(prefix) => joined(&[prefix.as_os_str().as_bytes(), &binary.path]),
            None => bytes_to_path(&binary.path),
        }
    }

    /// The file of a binary. Absent if it cannot be used.
    pub(crate) fn binary(&mut self, binary: &Binary) -> Option<Arc<ElfFile>> {
        let path = self.path(binary);
        let file = self.file(&path, None)?;
        if let Some(id) = &binary.build_id
            && !file.is_build(&id.bytes)
        {
            self.warn(&path, &FileError::OtherBuild);
            return None;
        }
        Some(file)
    }

    /// The file with the debug information of a binary, which has none itself.
    pub(crate) fn separate(&mut self, binary: &Binary) -> Option<Arc<ElfFile>> {
        let has_debug = |file: &Arc<ElfFile>| file.debug.is_some();
        let of_build = binary.build_id.as_ref().and_then(|id| {
            let path = self.build_id_path(&id.bytes)?;
            let file = self.file(&path, None)?;
            if file.has_build_id() && !file.is_build(&id.bytes) {
                self.warn(&path, &FileError::OtherBuild);
                return None;
            }
            Some(file)
        });
        if let Some(file) = of_build.filter(has_debug) {
            return Some(file);
        }
        let link = binary.debug_link.as_ref()?;
        let paths = self.link_paths(binary, link)?;
        // The first file with that checksum is the one, whatever it has.
        let file = paths
            .iter()
            .find_map(|path| self.file(path, Some(link.crc)));
        file.filter(has_debug)
    }

    fn directory(&self) -> &[u8] {
        let directory = self.options.directory.as_deref();
        let directory = directory.map(|directory| directory.as_os_str().as_bytes());
        directory.unwrap_or(DEFAULT_DIRECTORY.as_bytes())
    }

    fn build_id_path(&self, id: &[u8]) -> Option<PathBuf> {
        let (first, rest) = id.split_first()?;
        let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
        let name = format!("{first:02x}/{rest}.debug");
        Some(joined(&[self.directory(), b".build-id", name.as_bytes()]))
    }

    fn link_paths(&self, binary: &Binary, link: &DebugLink) -> Option<[PathBuf; 3]> {
        // A name with a directory in it leads elsewhere.
        let name = Path::new(OsStr::from_bytes(&link.name));
        if name.file_name() != Some(name.as_os_str()) {
            return None;
        }
        let path = self.path(binary);
        let directory = path.parent()?.as_os_str().as_bytes();
        Some([
            joined(&[directory, &link.name]),
            joined(&[directory, b".debug", &link.name]),
            joined(&[self.directory(), directory, &link.name]),
        ])
    }

    /// A file, if it can be used and has this checksum.
    fn file(&mut self, path: &Path, crc: Option<u32>) -> Option<Arc<ElfFile>> {
        self.uses += 1;
        // A file with a wrong checksum may be asked for with another one: each has a place.
        let key = match crc {
            Some(crc) => path.join(format!("{crc:08x}")),
            None => path.to_owned(),
        };
        if let Some(known) = self.files.get_mut(&key) {
            known.used = self.uses;
            return known.file.clone();
        }
        let file = match open(path, crc) {
            Ok(file) => file.map(Arc::new),
            Err(error) => {
                // Files with debug information are looked for in several places.
                let is_separate = path.extension() == Some(OsStr::new("debug"));
                let is_missing = crc.is_some() || is_not_found(&error) && is_separate;
                if !is_missing {
                    self.warn(path, &error);
                }
                None
            }
        };
        if let Some(error) = file.as_ref().and_then(|file| file.debug_error.as_ref()) {
            self.warn(path, error);
        }
        self.kept_bytes += file.as_ref().map_or(0, |file| file.bytes);
        let known = KnownFile {
            file: file.clone(),
            used: self.uses,
        };
        self.files.insert(key, known);
        self.forget_unused();
        file
    }

    fn forget_unused(&mut self) {
        while self.kept_bytes > MAX_KEPT_BYTES || self.files.len() > MAX_FILES {
            let oldest = self.files.iter().min_by_key(|(_, known)| known.used);
            let Some(path) = oldest.map(|(path, _)| path.clone()) else {
                return;
            };
            let removed = self.files.remove(&path).and_then(|known| known.file);
            self.kept_bytes -= removed.map_or(0, |file| file.bytes);
        }
    }

    /// Warns of a file, once.
    fn warn(&mut self, path: &Path, error: &FileError) {
        let path = path.display();
        let text = match self.warnings.len() {
            ..MAX_WARNINGS => {
                format!("cannot use a file for --debug-info: {path}: {error}; it is ignored")
            }
            MAX_WARNINGS => "further files cannot be used for --debug-info".to_owned(),
            _ => return,
        };
        if !self.warnings.contains(&text) {
            self.warnings.push(text);
        }
    }
}

fn is_not_found(error: &FileError) -> bool {
    matches!(error, FileError::Read(error) if error.kind() == io::ErrorKind::NotFound)
}

/// Opens a file. None if it does not have this checksum.
fn open(path: &Path, crc: Option<u32>) -> Result<Option<ElfFile>, FileError> {
    let mut parts = path.components();
    if parts.any(|part| part == Component::ParentDir) || path.as_os_str().as_bytes().contains(&0) {
        return Err(FileError::Path);
    }
    let mut file = regular_file::open(path, OFlags::RDONLY)?;
    if let Some(crc) = crc {
        if file.metadata()?.len() > MAX_FILE_BYTES {
            return Err(FileError::TooLarge(MAX_FILE_BYTES));
        }
        if checksum(&mut file)? != crc {
            return Ok(None);
        }
    }
    ElfFile::read(file).map(Some)
}

fn checksum(file: &mut File) -> io::Result<u32> {
    let mut hasher = crc32fast::Hasher::new();
    let mut buffer = vec![0; 64 << 10];
    let mut left = MAX_FILE_BYTES;
    loop {
        let size = file.read(&mut buffer)?;
        left = left.saturating_sub(size.try_into().unwrap_or(u64::MAX));
        // A file that grows while it is read has no checksum.
        if size == 0 || left == 0 {
            return Ok(hasher.finalize());
        }
        hasher.update(buffer.get(..size).unwrap_or_default());
    }
}

/// Joins parts of a path, with one `/` between any two.
fn joined(parts: &[&[u8]]) -> PathBuf {
    let mut path = Vec::new();
    for (place, part) in parts.iter().enumerate() {
        let mut part = *part;
        if place > 0 {
            while let [b'/', rest @ ..] = part {
                part = rest;
            }
            while path.last() == Some(&b'/') {
                path.pop();
            }
            path.push(b'/');
        }
        path.extend_from_slice(part);
    }
    PathBuf::from(std::ffi::OsString::from_vec(path))
}

fn bytes_to_path(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}
