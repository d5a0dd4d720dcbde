//! Whether an index may be believed. It is a hint only: who finds it wrong goes by the packets.

use thiserror::Error;
use wire::{Bits, Bytes, Field, Timestamp};

use super::format::{Entry, IndexFormat, IndexHeader};

/// Why an index file is not to be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum IndexError {
    /// It ends before its header does. It may just have been made.
    #[error("index of {0} bytes has no whole header")]
    NoHeader(usize),
    /// Something else.
    #[error("index begins with {0:#010x}")]
    Magic(u32),
    /// Neither 1.0 nor 1.1.
    #[error("index of unknown version {major}.{minor}")]
    Version {
        /// Of the format.
        major: u32,
        /// Of the format.
        minor: u32,
    },
    /// Too short for what an entry must say, or longer than any version could make it.
    #[error("index entries of {0} bytes")]
    EntryLength(u32),
    /// A packet of no bytes, or not of whole bytes, or with more content than packet.
    #[error("index entry {number}: packet of {packet} with {content} of content")]
    PacketSize {
        /// Of the entry, from 0.
        number: u64,
        /// The whole packet.
        packet: Bits,
        /// Its content.
        content: Bits,
    },
    /// A packet that begins before the end of the packet before it, or ends beyond any file.
    #[error("index entry {number}: packet at {at}, which is not behind the one before")]
    Place {
        /// Of the entry, from 0.
        number: u64,
        /// Where it is said to begin.
        at: Bytes,
    },
    /// A packet that ends before it begins.
    #[error("index entry {number}: packet from {begin} to {end}")]
    Time {
        /// Of the entry, from 0.
        number: u64,
        /// Of the packet.
        begin: Timestamp,
        /// Of the packet.
        end: Timestamp,
    },
}

/// Largest distance from one entry to the next, in bytes: room for 500 more numbers than any version has.
const MAX_ENTRY_STRIDE: usize = 4096;

/// What a header says of the entries behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    format: IndexFormat,
    /// Bytes from one entry to the next.
    pub(super) stride: usize,
}

impl Layout {
    /// From the beginning of a file.
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
        if major != 1 || minor > 1 {
            return Err(IndexError::Version { major, minor });
        }
        let wrong = IndexError::EntryLength(entry_len);
        let stride = usize::try_from(entry_len).map_err(|_| wrong)?;
        if !(IndexFormat::V1_0.entry_len()..=MAX_ENTRY_STRIDE).contains(&stride) {
            return Err(wrong);
        }
        // A 1.1 that is too short for what 1.1 added has not got it.
        let format = if minor == 1 && stride >= IndexFormat::V1_1.entry_len() {
            IndexFormat::V1_1
        } else {
            IndexFormat::V1_0
        };
        Ok(Self { format, stride })
    }
}

/// Takes entries one after the other, and refuses those that cannot be true.
#[derive(Debug, Clone)]
pub(super) struct Checker {
    layout: Layout,
    /// Entries taken.
    pub(super) count: u64,
    /// End of the last packet.
    end: u64,
    /// Sizes of all packets together.
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

    /// Decodes and checks the entry that `bytes` begin with; `None` if there is not all of it.
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
        let end = entry.offset.0.checked_add(size);
        let Some(end) = end.filter(|_| entry.offset.0 >= self.end) else {
            return Err(IndexError::Place {
                number,
                at: entry.offset,
            });
        };
        if packet.begin > packet.end {
            return Err(IndexError::Time {
                number,
                begin: packet.begin,
                end: packet.end,
            });
        }
        self.count += 1;
        self.end = end;
        // Packets do not overlap, so that their sum is no more than `end`.
        self.total += size;
        Ok(Some(entry))
    }
}
