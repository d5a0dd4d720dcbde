//! The bytes of a process directory: `meta`, `control` and the ring files `r<n>`.
//!
//! Every number is little-endian, in the files and in the events. The page
//! `doc/trace-ring-format.md` says the same byte by byte. The functions here are safe on hostile
//! input: they check lengths and limits before they allocate, and they never panic. They do not
//! open, map or write files.
//!
//! # Memory order
//!
//! A ring has one writer (or one at a time: a shared ring is written under a lock in the producer's
//! private memory).
//!
//! - The writer stores records and table entries by plain stores, then `commit` with **release**
//!   order. A reader loads `commit`, passes an **acquire** fence, and may then read every byte
//!   below it.
//! - In overwrite mode the writer stores `reserve` before it changes a sub-buffer's bytes, with a
//!   **release** fence between. A reader copies, passes an **acquire** fence, loads `reserve` again
//!   and drops what it copied from positions below `reserve` minus the data size, as in a seqlock.
//! - In discard mode the writer enters a sub-buffer only after an **acquire** load of `consumed`
//!   has shown that the drainer has taken what the sub-buffer held. The drainer writes `consumed`
//!   after it has copied and kept the data.
//! - The lost counters are only ever added to. A reader that has seen `state` = ended and then
//!   reads the counters has the final values, because the writer stores `state` last, with release
//!   order.
//!
//! A reader uses `pread`. One `pread` may copy a part of an eight-byte word: a reader reads the
//! control words twice and takes them when both copies agree.

mod control;
mod field;
mod meta;
mod record;
mod ring;
#[cfg(test)]
mod tests;

pub use control::*;
pub use field::*;
pub use meta::*;
pub use record::*;
pub use ring::*;

/// The layout version that this crate writes; a reader refuses any other.
pub const VERSION: u32 = 1;

/// File name of the process's description inside its directory.
pub const META_FILE: &str = "meta";
/// File name of the filter that other processes may change.
pub const CONTROL_FILE: &str = "control";

/// Returns the file name of the ring `number`: `r0`, `r1`, ...
#[must_use]
pub fn ring_file_name(number: u32) -> String {
    format!("r{number}")
}

/// Returns the number of a ring file, `None` for every other name. Only the form that
/// [`ring_file_name`] makes is accepted.
#[must_use]
pub fn parse_ring_file_name(name: &str) -> Option<u32> {
    let number = name.strip_prefix('r')?.parse().ok()?;
    (ring_file_name(number) == name).then_some(number)
}

/// Returns the pid and start time (clock ticks since boot) in a process directory's name
/// `<pid>-<start ticks>-<8 hex digits>`.
///
/// `None` for every other name, above all for one with a leading dot: that directory is not
/// complete yet.
#[must_use]
pub fn parse_directory_name(name: &str) -> Option<(u32, u64)> {
    let mut parts = name.split('-');
    let (pid, start, random) = (parts.next()?, parts.next()?, parts.next()?);
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_whole = parts.next().is_none()
        && digits(pid)
        && digits(start)
        && random.len() == 8
        && random.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_whole {
        Some((pid.parse().ok()?, start.parse().ok()?))
    } else {
        None
    }
}

/// Why bytes are not what they should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// Fewer bytes than the structure has.
    #[error("{what} is truncated: {have} bytes, {need} are needed")]
    Truncated {
        /// The structure that was read.
        what: &'static str,
        /// Bytes that it takes.
        need: usize,
        /// Bytes that there are.
        have: usize,
    },
    /// The first bytes are those of something else.
    #[error("{what} does not begin with its magic number")]
    Magic {
        /// The structure that was read.
        what: &'static str,
    },
    /// The layout version is not [`VERSION`].
    #[error("{what} has version {got}, which is not supported")]
    Version {
        /// The structure that was read.
        what: &'static str,
        /// The version that was found.
        got: u32,
    },
    /// The checksum does not match the bytes.
    #[error("{what} has a wrong checksum")]
    Checksum {
        /// The structure that was read.
        what: &'static str,
    },
    /// A value is outside its limits.
    #[error("{what} is out of range: {got}")]
    OutOfRange {
        /// Name of the value.
        what: &'static str,
        /// The value that was found.
        got: u64,
    },
}

/// Little-endian access to a byte slice at fixed offsets; every miss is [`FormatError::Truncated`].
#[derive(Clone, Copy)]
struct Bytes<'a> {
    what: &'static str,
    bytes: &'a [u8],
}

impl<'a> Bytes<'a> {
    fn array<const N: usize>(self, offset: usize) -> Result<[u8; N], FormatError> {
        let tail = self.bytes.get(offset..).unwrap_or_default();
        tail.first_chunk().copied().ok_or(FormatError::Truncated {
            what: self.what,
            need: offset.saturating_add(N),
            have: self.bytes.len(),
        })
    }

    fn u8(self, offset: usize) -> Result<u8, FormatError> {
        self.array(offset).map(u8::from_le_bytes)
    }

    fn u16(self, offset: usize) -> Result<u16, FormatError> {
        self.array(offset).map(u16::from_le_bytes)
    }

    fn u32(self, offset: usize) -> Result<u32, FormatError> {
        self.array(offset).map(u32::from_le_bytes)
    }

    fn u64(self, offset: usize) -> Result<u64, FormatError> {
        self.array(offset).map(u64::from_le_bytes)
    }

    fn slice(self, offset: usize, length: usize) -> Result<&'a [u8], FormatError> {
        let tail = self.bytes.get(offset..).unwrap_or_default();
        tail.get(..length).ok_or(FormatError::Truncated {
            what: self.what,
            need: offset.saturating_add(length),
            have: self.bytes.len(),
        })
    }
}

/// Writes at fixed offsets of a buffer of fixed size. The offsets are constants of this module: a
/// write outside the buffer is a bug here, and is left out rather than a panic in a traced program.
fn set(bytes: &mut [u8], offset: usize, value: &[u8]) {
    if let Some(target) = bytes
        .get_mut(offset..)
        .and_then(|tail| tail.get_mut(..value.len()))
    {
        target.copy_from_slice(value);
    }
}
