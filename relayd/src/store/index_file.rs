//! Index files: where each packet of a tracefile lies and which time it covers, and at the tail a
//! beacon, as long as the last word of the stream is one.
//!
//! Everything is big-endian. The format is LTTng's CTF index 1.0 or 1.1 (`struct ctf_packet_index`);
//! the beacon is ours and described in `doc/store.md`.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use wire::{Bytes, DecodeError, Field, PacketIndex, PacketIndexV1_0, Timestamp, wire_struct};

use crate::limits::{LOCK_PAUSE, LOCK_TRIES};

wire_struct! {
    /// Stands at the beginning. (`struct ctf_packet_index_file_hdr`)
    #[derive(Copy)]
    pub IndexHeader [16 bytes] {
        /// [`IndexHeader::MAGIC`].
        magic: u32,
        /// 1.
        major: u32,
        /// 0 or 1.
        minor: u32,
        /// Bytes of an entry. A reader goes by this.
        entry_len: u32,
    }

    /// The last word of a stream that has none of its packets left to say. Shorter than any entry,
    /// so that readers who do not know it see an index file that was torn off.
    #[derive(Copy)]
    pub Beacon [16 bytes] {
        /// [`Beacon::MAGIC`].
        magic: u64,
        /// No event from before this will come.
        until: Timestamp,
    }
}

impl IndexHeader {
    /// What every index file begins with.
    pub const MAGIC: u32 = 0xc1f1_dcc1;
}

impl Beacon {
    /// What a beacon begins with.
    pub const MAGIC: u64 = 0xc1f1_0000_00be_ac01;
}

/// Which index format a stream's producer can fill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexFormat {
    /// From producers before LTTng 2.8.
    V1_0,
    /// With the instance of the stream and the tracer's number of the packet.
    V1_1,
}

/// Bytes of the longest entry.
const MOST_ENTRY_BYTES: usize = Bytes::SIZE + PacketIndex::SIZE;

impl IndexFormat {
    /// Bytes of an entry.
    #[must_use]
    pub fn entry_len(self) -> usize {
        Bytes::SIZE
            + match self {
                Self::V1_0 => PacketIndexV1_0::SIZE,
                Self::V1_1 => PacketIndex::SIZE,
            }
    }

    fn header(self) -> IndexHeader {
        IndexHeader {
            magic: IndexHeader::MAGIC,
            major: 1,
            minor: match self {
                Self::V1_0 => 0,
                Self::V1_1 => 1,
            },
            entry_len: u32::try_from(self.entry_len()).expect("an entry is short"),
        }
    }

    /// Writes an entry to the front of `bytes` and gives that part.
    fn encode<'a>(self, entry: &Entry, bytes: &'a mut [u8; MOST_ENTRY_BYTES]) -> &'a [u8] {
        let (place, _) = bytes.split_at_mut(self.entry_len());
        let mut to = &mut *place;
        entry.offset.write(&mut to);
        match self {
            Self::V1_0 => PacketIndexV1_0::from(entry.packet).write(&mut to),
            Self::V1_1 => entry.packet.write(&mut to),
        }
        place
    }

    fn decode(self, mut bytes: &[u8]) -> Result<Entry, DecodeError> {
        let offset = Bytes::read(&mut bytes)?;
        let packet = match self {
            Self::V1_0 => PacketIndexV1_0::read(&mut bytes)?.into(),
            Self::V1_1 => PacketIndex::read(&mut bytes)?,
        };
        Ok(Entry { offset, packet })
    }
}

/// One packet in an index file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Where in the tracefile it begins.
    pub offset: Bytes,
    /// The rest.
    pub packet: PacketIndex,
}

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
        let mut header = Vec::with_capacity(IndexHeader::SIZE);
        format.header().write(&mut header);
        file.write_all_at(&header, 0)?;
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

    /// Appends an entry. The packet that it points at must be whole.
    ///
    /// # Errors
    /// As the system says. No reader takes a part of an entry for one.
    pub fn append(&mut self, entry: &Entry) -> io::Result<()> {
        let mut bytes = [0; MOST_ENTRY_BYTES];
        let entry = self.format.encode(entry, &mut bytes);
        self.locked(|file, end| file.write_all_at(entry, end))?;
        self.entries += 1;
        self.has_beacon = false;
        Ok(())
    }

    /// Puts a beacon behind the entries, in place of the one before.
    ///
    /// # Errors
    /// As the system says.
    pub fn beacon(&mut self, until: Timestamp) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(Beacon::SIZE);
        Beacon {
            magic: Beacon::MAGIC,
            until,
        }
        .write(&mut bytes);
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
        let end = IndexHeader::SIZE as u64 + self.entries * self.format.entry_len() as u64;
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
    let at = IndexHeader::SIZE as u64 + number * format.entry_len() as u64;
    file.read_exact_at(entry, at)?;
    format.decode(entry).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use wire::{Bits, ClassId, InstanceId, PacketSeqNum};

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
        index.append(&entry(0)).unwrap();
        assert_eq!(contents(&index), wire::hex::parse(RECORDED).unwrap());
        index.append(&entry(1)).unwrap();
        for number in 0..2 {
            let read = read_entry(index.file(), IndexFormat::V1_1, number).unwrap();
            assert_eq!(read, entry(number));
        }
        assert!(read_entry(index.file(), IndexFormat::V1_1, 2).is_err());
    }

    #[test]
    fn an_old_entry_knows_neither_instance_nor_packet() {
        let mut index = IndexFile::begin(tempfile::tempfile().unwrap(), IndexFormat::V1_0).unwrap();
        index.append(&entry(0)).unwrap();
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
        index.append(&entry(0)).unwrap();
        let before = contents(&index);
        for until in [7, 8] {
            index.beacon(Timestamp(until)).unwrap();
            let bytes = contents(&index);
            assert_eq!(bytes[..before.len()], before);
            let beacon = Beacon::read(&mut &bytes[before.len()..]).unwrap();
            assert_eq!(
                beacon,
                Beacon {
                    magic: Beacon::MAGIC,
                    until: Timestamp(until)
                }
            );
        }
        index.append(&entry(1)).unwrap();
        assert_eq!(contents(&index).len(), 16 + 2 * 72);
        index.beacon(Timestamp(9)).unwrap();
        index.end().unwrap();
        assert_eq!(contents(&index).len(), 16 + 2 * 72);
    }

    #[test]
    fn a_reader_that_keeps_the_lock_does_not_stop_the_writer() {
        let named = tempfile::NamedTempFile::new().unwrap();
        let mut index = IndexFile::begin(named.reopen().unwrap(), IndexFormat::V1_1).unwrap();
        let reader = named.reopen().unwrap();
        reader.lock_shared().unwrap();
        index.append(&entry(0)).unwrap();
        assert!(index.is_held_up);
        reader.unlock().unwrap();
        index.append(&entry(1)).unwrap();
        assert!(!index.is_held_up);
        assert_eq!(contents(&index).len(), 16 + 2 * 72);
    }
}
