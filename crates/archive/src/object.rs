//! Commit objects and parts, which have one form: blocks of data, a directory that describes them,
//! and a footer that says where the directory is.
//!
//! ```text
//! magic 8 bytes | blocks | directory | footer 32 bytes
//! ```
//!
//! A reader gets the end of the object, which usually has footer and directory, and then the blocks
//! that it needs. Everything in an object is hostile input: lengths are checked before memory is
//! taken, and decoding stops at the length that was announced.

mod block;
mod writer;

use std::io::Read;

use thiserror::Error;
use wire::{Bytes, DecodeError, Field, wire_struct};

pub use block::{PacketBlock, decode_block};
pub use writer::{ObjectWriter, packet_bytes};

use crate::record::{ObjectRecord, Record, RecordError};

/// First and last bytes of an object, with the version of its form.
pub const MAGIC: [u8; 8] = *b"rlarchv1";

/// Bytes at the end of an object that a reader gets first: the directory of most objects is
/// shorter.
pub const TAIL_BYTES: u64 = 64 << 10;

/// Maximum length of a directory when it is decoded, in bytes: that of a commit object with a block
/// for each of as many streams as a relay may have.
pub const MAX_DIRECTORY_BYTES: u32 = 128 << 20;

/// Largest window of a Zstandard frame, as a power of 2 in bytes: a frame cannot make its reader
/// take more memory than that besides the data. Frames are written with less.
const MAX_WINDOW_LOG: u32 = 23;

wire_struct! {
    /// The last bytes of an object.
    #[derive(Copy)]
    pub Footer [32 bytes] {
        /// Offset of the directory in the object.
        directory: Bytes,
        /// Bytes of the directory in the object: one frame of Zstandard.
        stored: u32,
        /// Bytes of the directory when it is decoded.
        raw: u32,
        /// CRC-32 of the stored bytes.
        checksum: u32,
        /// CRC-32 of the fields above.
        footer_checksum: u32,
        /// The magic number, [`MAGIC`].
        magic: [u8; 8],
    }
}

/// The reason why bytes are no object, or not the part of one that they should be.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ObjectError {
    /// The object is cut, or is none.
    #[error("it has no footer: it is cut, or was not written by a relay")]
    NoFooter,
    /// The directory cannot be where the footer says.
    #[error("its footer is damaged")]
    Footer,
    /// The bytes of a directory or block are others than were written.
    #[error("{0} does not have its checksum")]
    Checksum(&'static str),
    /// The bytes of a directory or block cannot be decompressed, or to another length.
    #[error("{0} cannot be decompressed")]
    Compression(&'static str),
    /// A record cannot be read.
    #[error("record {number} of its directory: {source}")]
    Record {
        /// Number of the record, counted from 0.
        number: usize,
        /// What is wrong with it.
        source: RecordError,
    },
    /// The first record is not that of the object.
    #[error("its directory does not begin with the object")]
    NoObject,
    /// A block has another length, or its entries do not add up to it.
    #[error("a block of packets does not have the length of its entries")]
    BlockLength,
}

/// The directory of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directory {
    /// What the object is.
    pub object: ObjectRecord,
    /// The records after that.
    pub records: Vec<Record>,
}

impl Footer {
    /// Reads the footer at the end of `tail`, which is the end of an object of `len` bytes.
    ///
    /// # Errors
    /// If there is none, or the directory cannot be where it says.
    pub fn at_end(tail: &[u8], len: u64) -> Result<Self, ObjectError> {
        let (_, mut bytes) = tail
            .split_last_chunk::<{ Self::SIZE }>()
            .map(|(rest, footer)| (rest, &footer[..]))
            .ok_or(ObjectError::NoFooter)?;
        let checked = bytes.get(..20).unwrap_or_default();
        let checksum = crc32fast::hash(checked);
        let footer = Self::read(&mut bytes).map_err(|_: DecodeError| ObjectError::NoFooter)?;
        if footer.magic != MAGIC {
            return Err(ObjectError::NoFooter);
        }
        let end = footer.directory.0.checked_add(u64::from(footer.stored));
        let is_in_object =
            footer.directory.0 >= MAGIC.len() as u64 && end == len.checked_sub(Self::SIZE as u64);
        if footer.footer_checksum != checksum || !is_in_object || footer.raw > MAX_DIRECTORY_BYTES {
            return Err(ObjectError::Footer);
        }
        Ok(footer)
    }

    /// The stored directory, if `tail`, which is the end of an object, has all of it.
    #[must_use]
    pub fn directory_in<'a>(&self, tail: &'a [u8]) -> Option<&'a [u8]> {
        let end = tail.len().checked_sub(Self::SIZE)?;
        let begin = end.checked_sub(self.stored as usize)?;
        tail.get(begin..end)
    }

    /// Decodes the directory from its stored bytes.
    ///
    /// # Errors
    /// If they are not those that were written.
    pub fn decode_directory(&self, stored: &[u8]) -> Result<Directory, ObjectError> {
        if stored.len() != self.stored as usize || crc32fast::hash(stored) != self.checksum {
            return Err(ObjectError::Checksum("its directory"));
        }
        let raw = decompress(stored, self.raw, "its directory")?;
        let (mut from, mut records) = (&raw[..], Vec::new());
        let mut object = None;
        while !from.is_empty() {
            let number = records.len();
            let record = Record::decode(&mut from);
            match record.map_err(|source| ObjectError::Record { number, source })? {
                Record::Object(first) if object.is_none() && records.is_empty() => {
                    object = Some(first);
                }
                record => records.push(record),
            }
        }
        let object = object.ok_or(ObjectError::NoObject)?;
        Ok(Directory { object, records })
    }
}

/// Decompresses a frame that has `raw` bytes. Takes memory as they come, because the length is only
/// what somebody has written into the object.
fn decompress(stored: &[u8], raw: u32, what: &'static str) -> Result<Vec<u8>, ObjectError> {
    let failed = || ObjectError::Compression(what);
    let mut decoder = zstd::stream::read::Decoder::with_buffer(stored).map_err(|_| failed())?;
    decoder
        .window_log_max(MAX_WINDOW_LOG)
        .map_err(|_| failed())?;
    let mut bytes = Vec::new();
    // One byte more, which shows that the frame is longer than announced.
    let mut limited = decoder.take(u64::from(raw) + 1);
    limited.read_to_end(&mut bytes).map_err(|_| failed())?;
    if bytes.len() != raw as usize {
        return Err(failed());
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests;
