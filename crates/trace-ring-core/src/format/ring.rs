//! The ring file: a fixed header, control words, a table with an entry per sub-buffer, and the
//! sub-buffers.

use super::{Bytes, FormatError, VERSION, set};

/// First eight bytes of a ring file.
pub const RING_MAGIC: u64 = u64::from_le_bytes(*b"TRCRING\n");
/// Bytes of the fixed header, its checksum included.
pub const RING_HEADER_SIZE: usize = 68;
/// Bytes that the fixed header and the control words take; the sub-buffer table begins here.
pub const RING_TABLE_OFFSET: usize = 1024;
/// Bytes of one entry of the sub-buffer table.
pub const RING_TABLE_ENTRY_SIZE: usize = 64;
/// The sub-buffers begin at a multiple of this.
pub const RING_PAGE_SIZE: usize = 4096;

/// Offset of `reserve` u64: end position of the sub-buffer that the writer may be changing.
pub const RING_RESERVE_OFFSET: usize = 512;
/// Offset of `commit` u64: position below which every byte is final.
pub const RING_COMMIT_OFFSET: usize = 576;
/// Offset of `consumed` u64: position below which the drainer has taken everything. Written by the
/// drainer only.
pub const RING_CONSUMED_OFFSET: usize = 640;
/// Offset of `released` u32: 1 when the drainer has seen the end of the thread and has taken
/// everything, the lost counters included. Written by the drainer only.
pub const RING_RELEASED_OFFSET: usize = 648;
/// Offset of `lost_full` u64, then `lost_big` u64 and `lost_nested` u64.
pub const RING_LOST_OFFSET: usize = 704;
/// Offset of `state` u32, one of [`RING_STATE_LIVE`] and [`RING_STATE_ENDED`].
pub const RING_STATE_OFFSET: usize = 768;

/// The ring's thread runs.
pub const RING_STATE_LIVE: u32 = 1;
/// The ring's thread has ended: nothing is written any more.
pub const RING_STATE_ENDED: u32 = 2;

/// Smallest sub-buffer in bytes.
pub const MIN_SUB_BUFFER_SIZE: u32 = 4096;
/// Largest sub-buffer in bytes.
pub const MAX_SUB_BUFFER_SIZE: u32 = 16 << 20;
/// Smallest number of sub-buffers in a ring.
pub const MIN_SUB_BUFFER_COUNT: u32 = 2;
/// Largest number of sub-buffers in a ring.
pub const MAX_SUB_BUFFER_COUNT: u32 = 256;
/// Largest number of data bytes in a ring. Below 2 GiB, so that the low half of a position differs
/// from turn to turn.
pub const MAX_RING_SIZE: u64 = 1 << 30;

/// What the writer does when the ring is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// New events are counted as lost until the drainer makes room.
    Discard,
    /// The oldest sub-buffer is overwritten (flight recorder).
    Overwrite,
}

/// Which severities a ring holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeverityClass {
    /// Every severity: the shared ring of a process with too many threads.
    All,
    /// Severities from INFO on.
    Normal,
    /// The severities DEBUG and TRACE.
    Debug,
}

/// The fixed header of a ring file. It is complete before the file gets its name, and never
/// changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingHeader {
    /// The number in the file name. Numbers are not used again while the process lives.
    pub number: u32,
    /// Bytes of a sub-buffer, a power of two.
    pub sub_buffer_size: u32,
    /// Number of sub-buffers, a power of two.
    pub sub_buffer_count: u32,
    /// What happens when the ring is full.
    pub mode: Mode,
    /// The severities in this ring.
    pub severity_class: SeverityClass,
    /// Thread id in the producer's pid namespace, 0 for the shared ring.
    pub tid: u32,
    /// The thread's name as the kernel had it when the ring was made, padded with NUL.
    pub thread_name: [u8; 16],
    /// CLOCK_MONOTONIC in nanoseconds when the ring was made. No event of the ring is older.
    pub created: u64,
}

impl RingHeader {
    /// Returns the bytes at the beginning of the file.
    #[must_use]
    pub fn encode(&self) -> [u8; RING_HEADER_SIZE] {
        let mut bytes = [0; RING_HEADER_SIZE];
        let mode: u32 = match self.mode {
            Mode::Discard => 0,
            Mode::Overwrite => 1,
        };
        let class: u32 = match self.severity_class {
            SeverityClass::All => 0,
            SeverityClass::Normal => 1,
            SeverityClass::Debug => 2,
        };
        set(&mut bytes, 0, &RING_MAGIC.to_le_bytes());
        set(&mut bytes, 8, &VERSION.to_le_bytes());
        set(&mut bytes, 12, &self.number.to_le_bytes());
        set(&mut bytes, 16, &self.sub_buffer_size.to_le_bytes());
        set(&mut bytes, 20, &self.sub_buffer_count.to_le_bytes());
        set(&mut bytes, 24, &mode.to_le_bytes());
        set(&mut bytes, 28, &class.to_le_bytes());
        set(&mut bytes, 32, &self.tid.to_le_bytes());
        set(&mut bytes, 40, &self.thread_name);
        set(&mut bytes, 56, &self.created.to_le_bytes());
        let crc = crc32fast::hash(bytes.get(..64).unwrap_or_default());
        set(&mut bytes, 64, &crc.to_le_bytes());
        bytes
    }

    /// Reads the header from the first bytes of a file.
    ///
    /// # Errors
    /// When bytes are missing, the magic number, version or checksum is wrong, or a size is outside
    /// its limits. The caller compares [`Self::file_size`] with the size of the file.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let what = "ring header";
        let bytes = Bytes { what, bytes };
        let fixed = bytes.slice(0, 64)?;
        let crc = bytes.u32(64)?;
        if bytes.u64(0)? != RING_MAGIC {
            return Err(FormatError::Magic { what });
        }
        let version = bytes.u32(8)?;
        if version != VERSION {
            return Err(FormatError::Version { what, got: version });
        }
        if crc32fast::hash(fixed) != crc {
            return Err(FormatError::Checksum { what });
        }
        let header = Self {
            number: bytes.u32(12)?,
            sub_buffer_size: bytes.u32(16)?,
            sub_buffer_count: bytes.u32(20)?,
            mode: match bytes.u32(24)? {
                0 => Mode::Discard,
                1 => Mode::Overwrite,
                got => return Err(out_of_range("ring mode", got)),
            },
            severity_class: match bytes.u32(28)? {
                0 => SeverityClass::All,
                1 => SeverityClass::Normal,
                2 => SeverityClass::Debug,
                got => return Err(out_of_range("severity class", got)),
            },
            tid: bytes.u32(32)?,
            thread_name: bytes.array(40)?,
            created: bytes.u64(56)?,
        };
        header.check_sizes()?;
        Ok(header)
    }

    fn check_sizes(&self) -> Result<(), FormatError> {
        let (size, count) = (self.sub_buffer_size, self.sub_buffer_count);
        if !size.is_power_of_two() || !(MIN_SUB_BUFFER_SIZE..=MAX_SUB_BUFFER_SIZE).contains(&size) {
            return Err(out_of_range("sub-buffer size", size));
        }
        if !count.is_power_of_two()
            || !(MIN_SUB_BUFFER_COUNT..=MAX_SUB_BUFFER_COUNT).contains(&count)
        {
            return Err(out_of_range("sub-buffer count", count));
        }
        if self.data_size() > MAX_RING_SIZE {
            return Err(FormatError::OutOfRange {
                what: "ring size",
                got: self.data_size(),
            });
        }
        Ok(())
    }

    /// Bytes of all sub-buffers together. A position modulo this is an offset into the data.
    #[must_use]
    pub fn data_size(&self) -> u64 {
        u64::from(self.sub_buffer_size) * u64::from(self.sub_buffer_count)
    }

    /// Returns the offset in the file of the first sub-buffer.
    #[must_use]
    pub fn data_offset(&self) -> u64 {
        let table = u64::from(self.sub_buffer_count) * RING_TABLE_ENTRY_SIZE as u64;
        (RING_TABLE_OFFSET as u64 + table).next_multiple_of(RING_PAGE_SIZE as u64)
    }

    /// Bytes of the whole file.
    #[must_use]
    pub fn file_size(&self) -> u64 {
        self.data_offset() + self.data_size()
    }

    /// Returns the offset in the file of the byte at `position`.
    #[must_use]
    pub fn offset_of(&self, position: u64) -> u64 {
        self.data_offset() + position % self.data_size().max(1)
    }

    /// Returns the offset in the file of the table entry of the sub-buffer that holds `position`.
    #[must_use]
    pub fn entry_offset_of(&self, position: u64) -> u64 {
        let slot = position % self.data_size().max(1) / u64::from(self.sub_buffer_size.max(1));
        RING_TABLE_OFFSET as u64 + slot * RING_TABLE_ENTRY_SIZE as u64
    }
}

fn out_of_range(what: &'static str, got: u32) -> FormatError {
    FormatError::OutOfRange {
        what,
        got: got.into(),
    }
}

/// Counters of events that a ring's threads gave up. Each only grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lost {
    /// The ring was full (discard mode).
    pub full: u64,
    /// The event was larger than a sub-buffer, or than it said it would be.
    pub big: u64,
    /// The event came while the thread was already writing one: from a signal handler or a
    /// formatter.
    pub nested: u64,
}

impl Lost {
    /// Returns the sum of the counters. A hostile producer's sum saturates.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.full
            .saturating_add(self.big)
            .saturating_add(self.nested)
    }

    fn decode(bytes: Bytes<'_>, offset: usize) -> Result<Self, FormatError> {
        Ok(Self {
            full: bytes.u64(offset)?,
            big: bytes.u64(offset + 8)?,
            nested: bytes.u64(offset + 16)?,
        })
    }
}

/// The words of a ring file that change while it lives. They may have any value: the reader checks
/// each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RingControl {
    /// The number at [`RING_RESERVE_OFFSET`].
    pub reserve: u64,
    /// The number at [`RING_COMMIT_OFFSET`].
    pub commit: u64,
    /// The number at [`RING_CONSUMED_OFFSET`].
    pub consumed: u64,
    /// Whether the word at [`RING_RELEASED_OFFSET`] is set.
    pub is_released: bool,
    /// Events lost up to now, those after the last record included.
    pub lost: Lost,
    /// Whether the ring's thread has ended.
    pub is_ended: bool,
}

impl RingControl {
    /// Reads the control words from the first [`RING_TABLE_OFFSET`] bytes of the file.
    ///
    /// # Errors
    /// When bytes are missing.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let bytes = Bytes {
            what: "ring control words",
            bytes,
        };
        Ok(Self {
            reserve: bytes.u64(RING_RESERVE_OFFSET)?,
            commit: bytes.u64(RING_COMMIT_OFFSET)?,
            consumed: bytes.u64(RING_CONSUMED_OFFSET)?,
            is_released: bytes.u32(RING_RELEASED_OFFSET)? != 0,
            lost: Lost::decode(bytes, RING_LOST_OFFSET)?,
            is_ended: bytes.u32(RING_STATE_OFFSET)? == RING_STATE_ENDED,
        })
    }
}

/// One entry of the sub-buffer table, written when the writer enters the sub-buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SubBufferEntry {
    /// Number of the sub-buffer since the ring was made, from 1: position of its first byte divided
    /// by its size, plus one. 0 in a sub-buffer that was never used.
    pub sequence: u64,
    /// Events committed to the ring before this sub-buffer. In overwrite mode, this minus the
    /// number of events that the reader has seen is the exact number that was overwritten.
    pub events_before: u64,
    /// The lost counters when the writer entered the sub-buffer.
    pub lost_before: Lost,
}

impl SubBufferEntry {
    /// Returns the bytes in the table.
    #[must_use]
    pub fn encode(&self) -> [u8; RING_TABLE_ENTRY_SIZE] {
        let mut bytes = [0; RING_TABLE_ENTRY_SIZE];
        let lost = self.lost_before;
        let words = [
            self.sequence,
            self.events_before,
            lost.full,
            lost.big,
            lost.nested,
        ];
        for (index, word) in words.iter().enumerate() {
            set(&mut bytes, index * 8, &word.to_le_bytes());
        }
        bytes
    }

    /// Reads an entry.
    ///
    /// # Errors
    /// When bytes are missing.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let bytes = Bytes {
            what: "sub-buffer entry",
            bytes,
        };
        bytes.slice(0, RING_TABLE_ENTRY_SIZE)?;
        Ok(Self {
            sequence: bytes.u64(0)?,
            events_before: bytes.u64(8)?,
            lost_before: Lost::decode(bytes, 16)?,
        })
    }
}
