//! The blocks of an object, decoded.

use ctf::index::{Entry, IndexFormat};
use wire::Field;

use super::{ObjectError, decompress};
use crate::record::{BlockPlace, Encoding, PacketsRecord};

/// Bytes of an index entry in a block.
pub(super) const ENTRY_BYTES: usize = IndexFormat::V1_1.entry_len();

/// Decodes a block from its stored bytes.
///
/// # Errors
/// If they are not those that were written.
pub fn decode_block(place: &BlockPlace, stored: Vec<u8>) -> Result<Vec<u8>, ObjectError> {
    if stored.len() != place.stored as usize || crc32fast::hash(&stored) != place.checksum {
        return Err(ObjectError::Checksum("a block"));
    }
    match place.encoding {
        Encoding::Stored if place.stored == place.raw => Ok(stored),
        Encoding::Stored => Err(ObjectError::BlockLength),
        Encoding::Zstd => decompress(&stored, place.raw, "a block"),
    }
}

/// A decoded block of packets.
#[derive(Debug)]
pub struct PacketBlock {
    entries: Vec<Entry>,
    bytes: Vec<u8>,
    /// Where each packet ends in `bytes`.
    ends: Vec<usize>,
}

impl PacketBlock {
    /// Splits a decoded block into its entries and packets.
    ///
    /// # Errors
    /// If the entries do not add up to the length of the block.
    pub fn parse(record: &PacketsRecord, bytes: Vec<u8>) -> Result<Self, ObjectError> {
        let count = record.count as usize;
        let head = count.checked_mul(ENTRY_BYTES);
        let head = head
            .and_then(|len| bytes.get(..len))
            .ok_or(ObjectError::BlockLength)?;
        let mut entries = Vec::with_capacity(count);
        let (mut ends, mut end) = (Vec::with_capacity(count), head.len());
        for entry in head.chunks_exact(ENTRY_BYTES) {
            let mut from = entry;
            let offset = Field::read(&mut from).map_err(|_| ObjectError::BlockLength)?;
            let packet = Field::read(&mut from).map_err(|_| ObjectError::BlockLength)?;
            let entry = Entry { offset, packet };
            let size = entry.packet.packet_size.to_bytes();
            let size = size.and_then(|size| usize::try_from(size.0).ok());
            end = size
                .and_then(|size| end.checked_add(size))
                .filter(|end| *end <= bytes.len())
                .ok_or(ObjectError::BlockLength)?;
            entries.push(entry);
            ends.push(end);
        }
        if end != bytes.len() {
            return Err(ObjectError::BlockLength);
        }
        Ok(Self {
            entries,
            bytes,
            ends,
        })
    }

    /// Number of packets in the block.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether the block has no packet, which no relay writes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The index entry and the bytes of a packet, counted from 0 in the block. The offset of the
    /// entry is that in the tracefile of the relay.
    #[must_use]
    pub fn packet(&self, number: usize) -> Option<(&Entry, &[u8])> {
        let entry = self.entries.get(number)?;
        let end = *self.ends.get(number)?;
        let begin = match number.checked_sub(1) {
            Some(before) => *self.ends.get(before)?,
            None => self.entries.len() * ENTRY_BYTES,
        };
        Some((entry, self.bytes.get(begin..end)?))
    }
}
