//! Index files: where each packet of a tracefile lies and which time it covers, and at the tail a
//! beacon, as long as the last word of the stream is one.
//!
//! The bytes are [`ctf::index`]'s. `doc/store.md` describes them, and who may hold the lock.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use ctf::index::{Beacon, Entry, IndexFormat, MOST_ENTRY_BYTES};
use wire::Timestamp;

use crate::limits::{LOCK_PAUSE, LOCK_TRIES};

/// An index file being written.
#[derive(Debug)]
pub struct IndexFile {
    file: Arc<File>,
    format: IndexFormat,
    entries: u64,
    /// Whether a beacon stands behind the entries.
    has_beacon: bool,
    /// Whether some reader has held the lock for too long, so that it is not waited for again.
    is_held_up: bool,
}

impl IndexFile {
    /// Begins an empty file.
    ///
    /// # Errors
    /// As the system says.
    pub fn begin(file: File, format: IndexFormat) -> io::Result<Self> {
        file.write_all_at(&format.header_bytes(), 0)?;
        let (file, has_beacon) = (Arc::new(file), false);
        Ok(Self {
            file,
            format,
            entries: 0,
            has_beacon,
            is_held_up: false,
        })
    }

    /// Goes on with a file in which there is only a beacon so far.
    #[must_use]
    pub fn resume(file: File, format: IndexFormat) -> Self {
        let (file, has_beacon) = (Arc::new(file), true);
        Self {
            file,
            format,
            entries: 0,
            has_beacon,
            is_held_up: false,
        }
    }

    /// The file, for readers.
    #[must_use]
    pub fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// Appends entries, by one call to the system. The packets that they point at must be whole.
    ///
    /// # Errors
    /// As the system says. No reader takes a part of an entry for one.
    pub fn append(&mut self, entries: &[Entry]) -> io::Result<()> {
        let mut bytes = [0; MOST_ENTRY_BYTES];
        match entries {
            [entry] => {
                let entry = self.format.encode(entry, &mut bytes);
                self.locked(|file, end| file.write_all_at(entry, end))?;
            }
            _ => {
                let mut all = Vec::with_capacity(entries.len() * self.format.entry_len());
                for entry in entries {
                    all.extend_from_slice(self.format.encode(entry, &mut bytes));
                }
                self.locked(|file, end| file.write_all_at(&all, end))?;
            }
        }
        self.entries += entries.len() as u64;
        self.has_beacon = false;
        Ok(())
    }

    /// Puts a beacon behind the entries, in place of the one before.
    ///
    /// # Errors
    /// As the system says.
    pub fn beacon(&mut self, until: Timestamp) -> io::Result<()> {
        let bytes = Beacon::new(until).to_bytes();
        self.locked(|file, end| file.write_all_at(&bytes, end))?;
        self.has_beacon = true;
        Ok(())
    }

    /// Takes the beacon away: the file ends with its last entry.
    ///
    /// # Errors
    /// As the system says.
    pub fn end(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.has_beacon) {
            self.locked(|file, end| file.set_len(end))?;
        }
        Ok(())
    }

    /// Whether there is no entry in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Calls `write` with the end of the entries while no reader holds the lock.
    fn locked(&mut self, write: impl FnOnce(&File, u64) -> io::Result<()>) -> io::Result<()> {
        let end = self.format.position(self.entries);
        let locked = self.lock();
        let written = write(&self.file, end);
        if locked {
            self.file.unlock()?;
        }
        written
    }

    fn lock(&mut self) -> bool {
        let tries = if self.is_held_up { 0 } else { LOCK_TRIES };
        let locked = self.file.try_lock().is_ok()
            || (0..tries).any(|_| {
                std::thread::sleep(LOCK_PAUSE);
                self.file.try_lock().is_ok()
            });
        self.is_held_up = !locked;
        locked
    }
}

/// Reads the entry with this number, counted from 0.
///
/// # Errors
/// If it is not there.
pub fn read_entry(file: &File, format: IndexFormat, number: u64) -> io::Result<Entry> {
    let mut bytes = [0; MOST_ENTRY_BYTES];
    let (entry, _) = bytes.split_at_mut(format.entry_len());
    file.read_exact_at(entry, format.position(number))?;
    format.decode(entry).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use ctf::index::{Follower, News};
    use wire::{Bits, Bytes, ClassId, InstanceId, PacketIndex, PacketSeqNum};

    use super::*;

    fn entry(number: u64) -> Entry {
        Entry {
            offset: Bytes(4096 * number),
            packet: PacketIndex {
                packet_size: Bits(32768),
                content_size: Bits(32736),
                begin: Timestamp(0x02ba_7333_c036),
                end: Timestamp(0x02ba_7483_23c1),
                events_discarded: 0,
                class: ClassId(0),
                instance: Some(InstanceId(1)),
                packet_seq: Some(PacketSeqNum(number)),
            },
        }
    }

    fn contents(index: &IndexFile) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(index.file().metadata().unwrap().len()).unwrap()];
        index.file().read_exact_at(&mut bytes, 0).unwrap();
        bytes
    }

    /// The first entry of a recording by lttng-relayd 2.13.9, channel `chan0`, CPU 1.
    const RECORDED: &str = "
        c1f1dcc1 00000001 00000001 00000048
        0000000000000000 0000000000008000 0000000000007fe0
        000002ba7333c036 000002ba748323c1 0000000000000000
        0000000000000000 0000000000000001 0000000000000000";

    #[test]
    fn an_entry_is_what_lttng_relayd_writes() {
        let mut index = IndexFile::begin(tempfile::tempfile().unwrap(), IndexFormat::V1_1).unwrap();
        index.append(&[entry(0)]).unwrap();
        assert_eq!(contents(&index), wire::hex::parse(RECORDED).unwrap());
        index.append(&[entry(1)]).unwrap();
        for number in 0..2 {
            let read = read_entry(index.file(), IndexFormat::V1_1, number).unwrap();
            assert_eq!(read, entry(number));
        }
        assert!(read_entry(index.file(), IndexFormat::V1_1, 2).is_err());
    }

    #[test]
    fn an_old_entry_knows_neither_instance_nor_packet() {
        let mut index = IndexFile::begin(tempfile::tempfile().unwrap(), IndexFormat::V1_0).unwrap();
        index.append(&[entry(0)]).unwrap();
        assert_eq!(contents(&index).len(), 16 + 56);
        assert_eq!(
            contents(&index)[..16],
            [0xc1, 0xf1, 0xdc, 0xc1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 56]
        );
        let read = read_entry(index.file(), IndexFormat::V1_0, 0).unwrap();
        assert_eq!((read.packet.instance, read.packet.packet_seq), (None, None));
    }

    #[test]
    fn a_beacon_stands_behind_the_entries_and_leaves_no_trace() {
        let mut index = IndexFile::begin(tempfile::tempfile().unwrap(), IndexFormat::V1_1).unwrap();
        index.append(&[entry(0)]).unwrap();
        let before = contents(&index);
        for until in [7, 8] {
            index.beacon(Timestamp(until)).unwrap();
            let bytes = contents(&index);
            assert_eq!(bytes[..before.len()], before);
            assert_eq!(
                bytes[before.len()..],
                Beacon::new(Timestamp(until)).to_bytes()
            );
        }
        index.append(&[entry(1)]).unwrap();
        assert_eq!(contents(&index).len(), 16 + 2 * 72);
        index.beacon(Timestamp(9)).unwrap();
        index.end().unwrap();
        assert_eq!(contents(&index).len(), 16 + 2 * 72);
    }

    #[test]
    fn a_follower_is_given_what_is_written_in_order() {
        let named = tempfile::NamedTempFile::new().unwrap();
        let mut follower = Follower::open(named.path()).unwrap();
        assert_eq!(follower.poll().unwrap(), News::None);
        let mut index = IndexFile::begin(named.reopen().unwrap(), IndexFormat::V1_1).unwrap();
        for number in 0..3 {
            index.beacon(Timestamp(number)).unwrap();
            assert_eq!(follower.poll().unwrap(), News::Beacon(Timestamp(number)));
            index.append(&[entry(number)]).unwrap();
            assert_eq!(follower.poll().unwrap(), News::Entries(vec![entry(number)]));
        }
        index.end().unwrap();
        named.close().unwrap();
        assert_eq!(follower.poll().unwrap(), News::Gone);
        assert!(!index.is_held_up);
    }

    #[test]
    fn a_reader_that_keeps_the_lock_does_not_stop_the_writer() {
        let named = tempfile::NamedTempFile::new().unwrap();
        let mut index = IndexFile::begin(named.reopen().unwrap(), IndexFormat::V1_1).unwrap();
        let reader = named.reopen().unwrap();
        reader.lock_shared().unwrap();
        index.append(&[entry(0)]).unwrap();
        assert!(index.is_held_up);
        reader.unlock().unwrap();
        index.append(&[entry(1)]).unwrap();
        assert!(!index.is_held_up);
        assert_eq!(contents(&index).len(), 16 + 2 * 72);
    }
}
