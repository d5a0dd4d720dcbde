//! Checks of an index file. An index is a hint only: if it is wrong, the packets have the same
//! information.

use thiserror::Error;
use wire::{Bits, Bytes, Field, Timestamp};

use super::format::{Entry, IndexFormat, IndexHeader};

/// The reason why an index file must not be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum IndexError {
    /// The file ends before its header does; it may just have been created. Holds its length in
    /// bytes.
    #[error("index of {0} bytes has no whole header")]
    NoHeader(usize),
    /// The file does not begin with the magic number of an index. Holds its first 32 bits.
    #[error("index begins with {0:#010x}")]
    Magic(u32),
    /// The version is neither 1.0 nor 1.1.
    #[error("index of unknown version {major}.{minor}")]
    Version {
        /// The major version in the header.
        major: u32,
        /// The minor version in the header.
        minor: u32,
    },
    /// Too short for what an entry must say, or longer than any version could make it.
    #[error("index entries of {0} bytes")]
    EntryLength(u32),
    /// A packet of no bytes, or not of whole bytes, or with more content than packet.
    #[error("index entry {number}: packet of {packet} with {content} of content")]
    PacketSize {
        /// The number of the entry, from 0.
        number: u64,
        /// The size of the packet, padding included.
        packet: Bits,
        /// The size of its content.
        content: Bits,
    },
    /// A packet that begins before the end of the packet before it, or ends beyond any file.
    #[error("index entry {number}: packet at {at}, which is not behind the one before")]
    Place {
        /// The number of the entry, from 0.
        number: u64,
        /// The offset of the packet in the data stream file, as in the entry.
        at: Bytes,
    },
    /// A packet that ends before it begins: its times are wrong, or its clock has begun again at 0
    /// in it.
    #[error("index entry {number}: packet from {begin} to {end}")]
    Time {
        /// The number of the entry, from 0.
        number: u64,
        /// The time of the packet's beginning.
        begin: Timestamp,
        /// The time of the packet's end.
        end: Timestamp,
    },
}

/// Largest distance from one entry to the next, in bytes: room for 500 more numbers than any
/// version has.
const MAX_ENTRY_STRIDE: usize = 4096;

/// The size and format of the entries, from the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    format: IndexFormat,
    /// Bytes from one entry to the next.
    pub(super) stride: usize,
}

impl Layout {
    /// Reads the layout from the beginning of a file.
    pub(super) fn of(mut bytes: &[u8]) -> Result<Self, IndexError> {
        let have = bytes.len();
        let Ok(header) = IndexHeader::read(&mut bytes) else {
            return Err(IndexError::NoHeader(have));
        };
        let IndexHeader {
            magic,
            major,
            minor,
            entry_len,
        } = header;
        if magic != IndexHeader::MAGIC {
            return Err(IndexError::Magic(magic));
        }
        // Version 1.1 adds to the entries of 1.0; what later ones have is not known.
        if major != 1 || minor > 1 {
            return Err(IndexError::Version { major, minor });
        }
        let wrong = IndexError::EntryLength(entry_len);
        let stride = usize::try_from(entry_len).map_err(|_| wrong)?;
        if !(IndexFormat::V1_0.entry_len()..=MAX_ENTRY_STRIDE).contains(&stride) {
            return Err(wrong);
        }
        // Entries of version 1.1 that are too short for the two fields that 1.1 added do not have
        // them.
        let format = if minor == 1 && stride >= IndexFormat::V1_1.entry_len() {
            IndexFormat::V1_1
        } else {
            IndexFormat::V1_0
        };
        Ok(Self { format, stride })
    }
}

/// Checks entries one after the other, each against those before it.
#[derive(Debug, Clone)]
pub(super) struct Checker {
    layout: Layout,
    /// The number of entries that have been checked.
    pub(super) count: u64,
    /// The end of the last packet in the data stream file, in bytes.
    end: u64,
    /// The sum of the sizes of all packets, in bytes.
    pub(super) total: u64,
}

impl Checker {
    pub(super) fn new(layout: Layout) -> Self {
        Self {
            layout,
            count: 0,
            end: 0,
            total: 0,
        }
    }

    /// Decodes and checks the entry at the front of `bytes`; `None` if `bytes` end within it.
    pub(super) fn check_entry(&mut self, bytes: &[u8]) -> Result<Option<Entry>, IndexError> {
        let Some(record) = bytes.get(..self.layout.stride) else {
            return Ok(None);
        };
        let Ok(entry) = self.layout.format.decode(record) else {
            return Ok(None);
        };
        let number = self.count;
        let packet = entry.packet;
        if packet.packet_size.0 == 0
            || !packet.packet_size.0.is_multiple_of(8)
            || packet.content_size > packet.packet_size
        {
            return Err(IndexError::PacketSize {
                number,
                packet: packet.packet_size,
                content: packet.content_size,
            });
        }
        let size = packet.packet_size.0 / 8;
        // babeltrace2 too drops an index whose offsets go back, and reads the data file instead.
        let end = entry.offset.0.checked_add(size);
        let Some(end) = end.filter(|_| entry.offset.0 >= self.end) else {
            return Err(IndexError::Place {
                number,
                at: entry.offset,
            });
        };
        self.count += 1;
        self.end = end;
        // Packets do not overlap, so that their sum is no more than `end`.
        self.total += size;
        Ok(Some(entry))
    }
}
