//! A temporary file for the packets that the memory budget has no room for.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The directory for large temporary files: unlike `/tmp`, this is no file system in memory.
const DIRECTORY: &str = "/var/tmp";

/// A file without a name, which is gone when the program is. It is as long as what is in it at a
/// time: the space of a packet that was dropped is used for another.
#[derive(Debug)]
pub(crate) struct SpillFile {
    file: File,
    /// Where the packets in the file begin and end, in bytes.
    used: Mutex<BTreeMap<u64, u64>>,
}

/// Space for one packet. Dropping it gives the space back.
#[derive(Debug)]
pub(crate) struct SpillExtent {
    spill: Arc<SpillFile>,
    offset: u64,
}

impl SpillFile {
    pub(crate) fn new() -> io::Result<Self> {
        // A user who sets TMPDIR has chosen a directory.
        let file = if std::env::var_os("TMPDIR").is_none() && Path::new(DIRECTORY).is_dir() {
            // The directory may not be writable, as in some containers.
            tempfile::tempfile_in(DIRECTORY).or_else(|_| tempfile::tempfile())?
        } else {
            tempfile::tempfile()?
        };
        Ok(Self {
            file,
            used: Mutex::default(),
        })
    }

    /// The first space that is large enough. The search is short: the file has at most two packets
    /// of each stream.
    pub(crate) fn allocate(self: &Arc<Self>, bytes: u64) -> SpillExtent {
        let mut used = self.used();
        let mut offset: u64 = 0;
        for (begin, end) in &*used {
            if begin.saturating_sub(offset) >= bytes {
                break;
            }
            offset = *end;
        }
        // A packet of no bytes takes one: no two may begin at the same place.
        used.insert(offset, offset.saturating_add(bytes.max(1)));
        SpillExtent {
            spill: Arc::clone(self),
            offset,
        }
    }

    fn used(&self) -> MutexGuard<'_, BTreeMap<u64, u64>> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SpillExtent {
    pub(crate) fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let at = self.offset.saturating_add(offset);
        self.spill.file.write_all_at(bytes, at)
    }

    pub(crate) fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let at = self.offset.saturating_add(offset);
        self.spill.file.read_exact_at(bytes, at)
    }
}

impl Drop for SpillExtent {
    fn drop(&mut self) {
        let mut used = self.spill.used();
        used.remove(&self.offset);
        // Gives the space after the last packet back to the file system. If that fails, the space
        // is used again.
        let end = used.last_key_value().map_or(0, |(_, end)| *end);
        let _ = self.spill.file.set_len(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spill_file_space_is_reused_and_returned_to_the_system() {
        let spill = Arc::new(SpillFile::new().unwrap());
        let write = |len: u64, byte: u8| {
            let extent = spill.allocate(len);
            let bytes = vec![byte; usize::try_from(len).unwrap()];
            extent.write_at(&bytes, 0).unwrap();
            extent
        };
        let (first, second, third) = (write(100, 1), write(50, 2), write(10, 3));
        assert_eq!((first.offset, second.offset, third.offset), (0, 100, 150));
        drop(second);
        let (larger, smaller) = (write(51, 4), write(20, 5));
        assert_eq!((larger.offset, smaller.offset), (160, 100));
        for (extent, len, byte) in [(&first, 100, 1), (&third, 10, 3), (&smaller, 20, 5)] {
            let mut bytes = vec![0; len];
            extent.read_at(&mut bytes, 0).unwrap();
            assert_eq!(bytes, vec![byte; len]);
        }
        let len = || spill.file.metadata().unwrap().len();
        assert_eq!(len(), 211);
        drop((larger, third));
        assert_eq!(len(), 120);
        drop((first, smaller));
        assert_eq!(len(), 0);
    }
}
