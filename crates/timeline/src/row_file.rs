//! The rows that memory has no room for, in a file without a name: it goes with the process.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rustix::fs::fstatvfs;
use tracing::error;

use super::row::{ROW_BYTES, Row};

/// Rows of a block. All blocks but the last have as many. With few a view of millions of rows looks
/// at many blocks; with many a view in which no block is small enough to be summarized looks at
/// many rows.
pub(super) const BLOCK_ROWS: usize = 64;
/// Bytes of a block of rows.
const BLOCK_BYTES: usize = BLOCK_ROWS * ROW_BYTES;
/// Rows that are stored for each that may be in memory, where 2 to 9 bytes of a stored one stay.
const STORED_ROWS: usize = 4;
/// Largest number of rows that are stored: a page knows the lower 32 bits of a number.
const MAX_ROWS: usize = 1 << 31;
/// Bytes by which the file grows between two looks how full its file system is.
const GROWTH: u64 = 64 << 20;
/// The part of the file system that is left to others.
const LEFT_FREE: u64 = 20;

/// A file of blocks of rows.
#[derive(Debug)]
pub(super) struct RowFile {
    file: File,
    places: Mutex<Places>,
    /// Largest size of the file, in bytes.
    max_bytes: u64,
    /// Whether it could not be read or written. No more blocks are stored then.
    has_failed: AtomicBool,
}

/// Where blocks may be written, in bytes from the begin of the file.
#[derive(Debug, Default)]
struct Places {
    /// Those of blocks that have been dropped.
    free: Vec<u64>,
    /// The end of the last block.
    end: u64,
    /// How far the file may grow before its file system is looked at again.
    max_end: u64,
}

/// The place of a block in the file. It is free again when this is dropped.
#[derive(Debug)]
pub(super) struct StoredRows {
    file: Arc<RowFile>,
    place: u64,
}

impl RowFile {
    /// A file beside about so many rows in memory.
    pub(super) fn new(file: File, rows_in_memory: usize) -> Self {
        let rows = rows_in_memory.saturating_mul(STORED_ROWS).min(MAX_ROWS);
        Self {
            file,
            places: Mutex::default(),
            max_bytes: (rows / BLOCK_ROWS * BLOCK_BYTES) as u64,
            has_failed: AtomicBool::new(false),
        }
    }

    /// Writes the rows of a full block. `None` if there is no room for them, or the file has
    /// failed.
    pub(super) fn store(self: &Arc<Self>, rows: &[Row]) -> Option<StoredRows> {
        if self.has_failed.load(Ordering::Relaxed) {
            return None;
        }
        let stored = StoredRows {
            place: self.take_place()?,
            file: Arc::clone(self),
        };
        match stored.try_write(rows) {
            Ok(()) => Some(stored),
            Err(error) => {
                // Then others have written meanwhile, or there is a quota.
                if !is_lack_of_space(&error) {
                    self.fail(&error);
                }
                None
            }
        }
    }

    fn take_place(&self) -> Option<u64> {
        let mut places = self.places.lock();
        if let Some(place) = places.free.pop() {
            return Some(place);
        }
        if places.end >= self.max_bytes {
            return None;
        }
        if places.end >= places.max_end {
            self.has_room().then_some(())?;
            places.max_end = places.end + GROWTH;
        }
        let place = places.end;
        places.end += BLOCK_BYTES as u64;
        Some(place)
    }

    /// Whether the file may grow.
    fn has_room(&self) -> bool {
        match fstatvfs(&self.file) {
            Ok(system) => {
                let free = system.f_bavail.saturating_mul(system.f_frsize);
                let all = system.f_blocks.saturating_mul(system.f_frsize);
                free >= all / LEFT_FREE + GROWTH
            }
            Err(error) => {
                self.fail(&error.into());
                false
            }
        }
    }

    fn fail(&self, error: &io::Error) {
        if !self.has_failed.swap(true, Ordering::Relaxed) {
            error!("the file of the history has failed: older rows are missing: {error}");
        }
    }
}

impl StoredRows {
    /// Writes all rows of the block. Returns false if that fails.
    pub(super) fn write(&self, rows: &[Row]) -> bool {
        let written = self.try_write(rows);
        written.inspect_err(|error| self.file.fail(error)).is_ok()
    }

    fn try_write(&self, rows: &[Row]) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(BLOCK_BYTES);
        rows.iter().for_each(|row| row.put(&mut bytes));
        self.file.file.write_all_at(&bytes, self.place)
    }

    /// Reads all rows of the block; none if that fails.
    pub(super) fn read(&self) -> Vec<Row> {
        let mut bytes = [0; BLOCK_BYTES];
        match self.file.file.read_exact_at(&mut bytes, self.place) {
            Ok(()) => {
                let mut bytes = &bytes[..];
                (0..BLOCK_ROWS).map(|_| Row::get(&mut bytes)).collect()
            }
            Err(error) => {
                self.file.fail(&error);
                Vec::new()
            }
        }
    }
}

fn is_lack_of_space(error: &io::Error) -> bool {
    use io::ErrorKind;
    matches!(
        error.kind(),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge
    )
}

impl Drop for StoredRows {
    fn drop(&mut self) {
        self.file.places.lock().free.push(self.place);
    }
}

#[cfg(test)]
mod tests {
    use super::super::row::{EventPlace, OPEN, RowKind};
    use super::*;

    const PLACE: EventPlace = EventPlace {
        packet: 7,
        event: 9,
    };

    #[test]
    fn rows_of_all_kinds_are_read_as_they_were_stored() {
        let file = Arc::new(RowFile::new(tempfile::tempfile().unwrap(), 1000));
        let mut deep = Row::new(RowKind::Span, -5, OPEN, 3, PLACE);
        deep.depth = 63;
        let rows = [
            deep,
            Row::new(RowKind::Instant, i64::MIN, i64::MIN, u32::MAX, PLACE),
            Row::new(RowKind::Loss, 1, 2, 0, EventPlace::default()),
            Row::counter(8, -0.5, 1, PLACE),
            Row::new(RowKind::State, 9, 10, 2, PLACE),
        ];
        let block: Vec<Row> = rows.into_iter().cycle().take(BLOCK_ROWS).collect();
        let stored = file.store(&block).unwrap();
        assert_eq!(stored.read(), block);
        let mut other = block.clone();
        other.reverse();
        let second = file.store(&other).unwrap();
        assert!(stored.write(&other));
        assert_eq!((stored.read(), second.read()), (other.clone(), other));
        // A place is used again.
        let place = stored.place;
        drop(stored);
        assert_eq!(file.store(&block).unwrap().place, place);
        assert_eq!(file.places.lock().end, 2 * BLOCK_BYTES as u64);
    }

    #[test]
    fn file_has_room_for_so_many_blocks_and_for_others_when_these_are_dropped() {
        let file = Arc::new(RowFile::new(tempfile::tempfile().unwrap(), BLOCK_ROWS));
        let block = [Row::new(RowKind::Instant, 0, 0, 0, PLACE); BLOCK_ROWS];
        let mut stored: Vec<_> = (0..4).map(|_| file.store(&block).unwrap()).collect();
        assert!(file.store(&block).is_none());
        stored.pop();
        assert!(file.store(&block).is_some());
    }

    #[test]
    fn file_that_fails_stores_nothing_more() {
        let block = [Row::new(RowKind::Instant, 0, 0, 0, PLACE); BLOCK_ROWS];
        let named = tempfile::NamedTempFile::new().unwrap();
        let read_only = File::open(named.path()).unwrap();
        let file = Arc::new(RowFile::new(read_only, 1000));
        assert!(file.store(&block).is_none());
        assert!(file.has_failed.load(Ordering::Relaxed));
        // One that becomes shorter while it is used.
        let file = Arc::new(RowFile::new(named.into_file(), 1000));
        let stored = file.store(&block).unwrap();
        file.file.set_len(0).unwrap();
        assert_eq!(stored.read(), []);
        assert!(file.store(&block).is_none());
    }
}
