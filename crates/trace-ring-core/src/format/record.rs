//! Records in a sub-buffer: a frame of eight bytes, then a CTF event.

use super::{Bytes, FormatError};

/// Bytes of the frame (size and check) before the event.
pub const FRAME_SIZE: usize = 8;
/// Bytes of the event header: class u32, tid u32, timestamp u64.
pub const EVENT_HEADER_SIZE: usize = 16;
/// Bytes of the smallest record: a frame and an event without fields.
pub const MIN_RECORD_SIZE: usize = FRAME_SIZE + EVENT_HEADER_SIZE;
/// Records begin at multiples of this.
pub const RECORD_ALIGN: usize = 8;
/// In place of a record's size: nothing more in this sub-buffer.
pub const END_MARK: u32 = u32::MAX;

/// The frame and event header of a record: what stands before its fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordHeader {
    /// Bytes of frame and event, without the padding to the next record.
    pub size: u32,
    /// Position of the record in the ring; the frame holds its low 32 bits.
    pub position: u64,
    /// Class of the event, a number from `meta`, from 1.
    pub class: u32,
    /// Thread id in the shared ring, 0 in a thread's own ring. As CTF these four bytes are padding.
    pub tid: u32,
    /// Time of the event, by CLOCK_MONOTONIC in nanoseconds.
    pub timestamp: u64,
}

impl RecordHeader {
    /// Returns the three words at the beginning of a record.
    #[must_use]
    #[inline]
    pub fn encode(&self) -> [u64; 3] {
        let check = self.position << 32;
        [
            u64::from(self.size) | check,
            u64::from(self.class) | u64::from(self.tid) << 32,
            self.timestamp,
        ]
    }
}

/// A record in a reader's copy of a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// Position of the frame in the ring.
    pub position: u64,
    /// Class of the event. The reader checks that `meta` has it.
    pub class: u32,
    /// Thread id in the shared ring, otherwise 0.
    pub tid: u32,
    /// CLOCK_MONOTONIC in nanoseconds, as the producer says.
    pub timestamp: u64,
    /// The CTF event: header and fields, without the frame and without padding at the end.
    pub event: &'a [u8],
}

impl<'a> Record<'a> {
    /// Returns the fields: the event without its header.
    #[must_use]
    pub fn fields(&self) -> &'a [u8] {
        self.event.get(EVENT_HEADER_SIZE..).unwrap_or_default()
    }
}

/// Walks the records of **one sub-buffer**, or of a part of it that begins at a record.
///
/// An item is an error when the bytes are no record; the walk ends with it, because the next record
/// cannot be found before the next sub-buffer.
#[derive(Debug, Clone)]
pub struct Records<'a> {
    bytes: &'a [u8],
    position: u64,
}

impl<'a> Records<'a> {
    /// Begins a walk over `bytes`, the committed bytes from `position` on, at most up to the end of
    /// the sub-buffer.
    #[must_use]
    pub fn new(bytes: &'a [u8], position: u64) -> Self {
        Self { bytes, position }
    }

    /// Returns the position of the next record, or of the first byte that is none.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position
    }

    fn next_record(&self) -> Result<Option<(Record<'a>, usize)>, FormatError> {
        if self.bytes.len() < MIN_RECORD_SIZE {
            // The end mark may stand in fewer bytes than a record takes, and the last 16 bytes may
            // have none.
            return Ok(None);
        }
        let bytes = Bytes {
            what: "record",
            bytes: self.bytes,
        };
        let size = bytes.u32(0)?;
        if size == END_MARK {
            return Ok(None);
        }
        let length = usize::try_from(size).unwrap_or(usize::MAX);
        if length < MIN_RECORD_SIZE || length > self.bytes.len() {
            return Err(FormatError::OutOfRange {
                what: "record size",
                got: size.into(),
            });
        }
        let check = bytes.u32(4)?;
        if u64::from(check) != self.position & u64::from(u32::MAX) {
            return Err(FormatError::OutOfRange {
                what: "record check",
                got: check.into(),
            });
        }
        let record = Record {
            position: self.position,
            class: bytes.u32(8)?,
            tid: bytes.u32(12)?,
            timestamp: bytes.u64(16)?,
            event: bytes.slice(FRAME_SIZE, length - FRAME_SIZE)?,
        };
        Ok(Some((record, length.next_multiple_of(RECORD_ALIGN))))
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, FormatError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.next_record() {
            Ok(Some((record, step))) => {
                self.bytes = self.bytes.get(step..).unwrap_or_default();
                self.position = self.position.saturating_add(step as u64);
                Some(Ok(record))
            }
            Ok(None) => {
                self.bytes = &[];
                None
            }
            Err(error) => {
                self.bytes = &[];
                Some(Err(error))
            }
        }
    }
}
