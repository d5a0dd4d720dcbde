//! One loaded object: where it is, which file it is of, and its build id.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::system::LoadedObject;

/// Type of the note with the build id (`NT_GNU_BUILD_ID`), and its owner.
const NOTE_BUILD_ID: u32 = 3;
const NOTE_OWNER: &[u8] = b"GNU\0";

/// Longest build id that is believed, in bytes. Linkers write 8 to 32.
const MAX_BUILD_ID_SIZE: usize = 64;

/// A loaded object. Lives for ever, because threads keep references to it.
#[derive(Debug)]
pub(crate) struct Object {
    /// Address of its first segment (`baddr`).
    pub(crate) address: u64,
    /// Bytes from there to the end of its last segment (`memsz`).
    pub(crate) size: u64,
    /// Name by which the loader knows the file.
    name: Vec<u8>,
    /// Path of the file without symbolic links.
    pub(crate) path: String,
    /// Whether its addresses in memory differ from those in its file.
    pub(crate) is_pic: bool,
    /// Empty if it has none.
    pub(crate) build_id: Vec<u8>,
    /// State of the process in which it was last known to be loaded and listed.
    listed: AtomicU64,
}

/// What tells two objects apart. The same file may be loaded again, changed or not.
type Identity<'a> = (u64, u64, &'a [u8], &'a [u8]);

impl Object {
    /// The state of an object that was never listed.
    pub(crate) const NEVER: u64 = u64::MAX;

    /// Returns the object that the loader describes; `None` if it has no memory.
    pub(crate) fn new(loaded: LoadedObject) -> Option<Self> {
        let address = loaded.segments.iter().map(|part| part.address).min()?;
        let end = loaded.segments.iter().filter_map(|part| part.end()).max()?;
        let build_id = loaded.notes.iter().find_map(|notes| find_build_id(notes));
        Some(Self {
            address,
            size: end.checked_sub(address)?,
            name: loaded.name,
            path: String::new(),
            is_pic: loaded.bias != 0,
            build_id: build_id.unwrap_or_default().to_vec(),
            listed: AtomicU64::new(Self::NEVER),
        })
    }

    /// Finds the path of the file, which makes system calls.
    pub(crate) fn with_path(mut self) -> Self {
        self.path = find_path(&self.name);
        self
    }

    pub(crate) fn identity(&self) -> Identity<'_> {
        (self.address, self.size, &self.name, &self.build_id)
    }

    pub(crate) fn has_build_id(&self) -> bool {
        !self.build_id.is_empty()
    }

    #[inline]
    pub(crate) fn contains(&self, address: u64) -> bool {
        address.wrapping_sub(self.address) < self.size
    }

    /// Returns the state in which the object was last listed.
    #[inline]
    pub(crate) fn listed(&self) -> u64 {
        self.listed.load(Ordering::Acquire)
    }

    pub(crate) fn set_listed(&self, state: u64) {
        self.listed.store(state, Ordering::Release);
    }
}

/// The loader knows the program by no name, the vDSO by one without a path.
fn find_path(name: &[u8]) -> String {
    let path = if name.is_empty() {
        std::env::current_exe().ok()
    } else {
        Path::new(OsStr::from_bytes(name)).canonicalize().ok()
    };
    match path {
        Some(path) => path.to_string_lossy().into_owned(),
        None if name.contains(&b'/') => String::from_utf8_lossy(name).into_owned(),
        None => format!("[{}]", String::from_utf8_lossy(name)),
    }
}

/// Returns the build id in a segment of notes. Each note is three numbers (bytes of its owner,
/// bytes of its content, type), then owner and content, both padded to a multiple of 4.
fn find_build_id(mut notes: &[u8]) -> Option<&[u8]> {
    loop {
        let (owner_size, rest) = split_number(notes)?;
        let (size, rest) = split_number(rest)?;
        let (kind, rest) = split_number(rest)?;
        let (owner, rest) = split_padded(rest, owner_size)?;
        let (content, rest) = split_padded(rest, size)?;
        if kind == NOTE_BUILD_ID && owner == NOTE_OWNER {
            return (1..=MAX_BUILD_ID_SIZE)
                .contains(&content.len())
                .then_some(content);
        }
        notes = rest;
    }
}

fn split_number(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    // The object is of this machine.
    #[expect(
        clippy::host_endian_bytes,
        reason = "notes have the order of the machine"
    )]
    Some((u32::from_ne_bytes(*number), rest))
}

/// Splits off `size` bytes and their padding, which may be missing at the end.
fn split_padded(bytes: &[u8], size: u32) -> Option<(&[u8], &[u8])> {
    let size = usize::try_from(size).ok()?;
    let content = bytes.get(..size)?;
    let padded = size.checked_next_multiple_of(4)?;
    Some((content, bytes.get(padded..).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(owner: &[u8], kind: u32, content: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for number in [owner.len(), content.len(), kind as usize] {
            #[expect(
                clippy::host_endian_bytes,
                reason = "notes have the order of the machine"
            )]
            bytes.extend(u32::try_from(number).unwrap().to_ne_bytes());
        }
        for part in [owner, content] {
            bytes.extend(part);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        bytes
    }

    #[test]
    fn build_id_is_found_after_other_notes() {
        let mut notes = note(b"GNU\0", 1, &[0; 16]);
        notes.extend(note(b"stapsdt\0", 3, b"probe"));
        notes.extend(note(b"GNU\0", 3, &[1, 2, 3, 4, 5]));
        assert_eq!(find_build_id(&notes), Some(&[1, 2, 3, 4, 5][..]));
    }

    #[test]
    fn malformed_notes_have_no_build_id() {
        let whole = note(b"GNU\0", 3, &[7; 20]);
        for end in 0..whole.len() {
            assert_eq!(find_build_id(&whole[..end]), None, "{end}");
        }
        for (place, word) in [(0, u32::MAX), (4, u32::MAX), (4, 0), (4, 21), (8, 1)] {
            let mut notes = whole.clone();
            #[expect(
                clippy::host_endian_bytes,
                reason = "notes have the order of the machine"
            )]
            notes[place..place + 4].copy_from_slice(&word.to_ne_bytes());
            assert_eq!(find_build_id(&notes), None, "{place}: {word}");
        }
        let long = note(b"GNU\0", 3, &[7; MAX_BUILD_ID_SIZE + 1]);
        assert_eq!(find_build_id(&long), None);
    }
}
