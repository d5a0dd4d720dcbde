//! Index files: where each packet of a tracefile lies, and which time it covers. The file ends in a
//! beacon until its stream is closed. To readers that follow the file, the beacon means that more
//! entries may be appended; to the next relay after a crash, that the tracefile may end in bytes
//! without an entry. `lttng-relayd` writes no beacons.
//!
//! [`ctf::index`] has the format. `doc/store.md` describes it, and when readers and writers hold
//! the lock.

use std::fs::File;
use std::io;

use bytes::BufMut;
use ctf::index::{Beacon, Entry, IndexFormat, MAX_ENTRY_BYTES};
use wire::{Field, Timestamp};

use super::disk;
use super::pool::Claim;
use super::reopenable_file::ReopenableFile;
use crate::limits::{ENTRIES_READ, LOCK_RETRY_INTERVAL, LOCK_TRIES};

/// Time of a beacon that gives no watermark.
const NO_WATERMARK: Timestamp = Timestamp(0);

/// An index file being written.
#[derive(Debug)]
pub(super) struct IndexFile {
    file: ReopenableFile,
    /// Until the file is dropped, no other stream may replace it.
    _claim: Claim,
    format: IndexFormat,
    entries: u64,
    /// Whether the file ends in a beacon.
    has_beacon: bool,
    /// Whether a reader has held the lock for too long. The writer does not wait for it again.
    is_held_up: bool,
}

impl IndexFile {
    /// Writes the header and a beacon without a watermark to an empty file. While the tracefile is
    /// closed and the index file has no entry, only the beacon shows readers that the stream has
    /// not ended.
    ///
    /// # Errors
    /// If they cannot be written.
    pub(super) fn begin(file: ReopenableFile, format: IndexFormat) -> io::Result<Self> {
        let mut bytes = format.header_bytes().to_vec();
        bytes.extend(Beacon::new(NO_WATERMARK).to_bytes());
        disk::write_all_at(file.opened()?, &bytes, 0)?;
        file.mark_written(bytes.len() as u64);
        let location = file.location();
        Ok(Self {
            _claim: location.pool().claim(location.id()),
            file,
            format,
            entries: 0,
            has_beacon: true,
            is_held_up: false,
        })
    }

    /// Continues a file of a relay before this one after its first `entries` entries. Whatever
    /// follows is removed, and a beacon written.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn restore(
        file: ReopenableFile,
        format: IndexFormat,
        entries: u64,
    ) -> io::Result<Self> {
        let location = file.location();
        let mut index = Self {
            _claim: location.pool().claim(location.id()),
            file,
            format,
            entries,
            has_beacon: false,
            is_held_up: false,
        };
        if entries == 0 {
            // It may end in its header.
            let header = format.header_bytes();
            index.write_locked(|file, _| disk::write_all_at(file, &header, 0))?;
        }
        index.write_locked(disk::set_len)?;
        index.write_beacon(NO_WATERMARK)?;
        Ok(index)
    }

    /// The file, for readers.
    pub(super) fn file(&self) -> &ReopenableFile {
        &self.file
    }

    /// Closes the file until it is [reopened](Self::reopen).
    ///
    /// # Errors
    /// If it ends in no beacon and none can be written. It stays open then.
    pub(super) fn close_files(&mut self) -> io::Result<()> {
        // A tracefile is not locked while it is closed: only the beacon shows that it goes on.
        if self.file.handle().is_some() && !self.has_beacon {
            self.write_beacon(NO_WATERMARK)?;
        }
        self.file.close();
        Ok(())
    }

    /// Reopens the file if it is closed. Returns whether it was.
    ///
    /// # Errors
    /// If it cannot be opened, or its name belongs to another file.
    pub(super) fn reopen(&mut self) -> io::Result<bool> {
        self.file.reopen()
    }

    /// Whether the file ends in a beacon.
    pub(super) fn has_beacon(&self) -> bool {
        self.has_beacon
    }

    /// Appends entries and a beacon without a watermark, by one system call. The packets that the
    /// entries point at must be whole.
    ///
    /// # Errors
    /// If they cannot be written. The file has none of the entries then.
    pub(super) fn append(&mut self, entries: &[Entry]) -> io::Result<()> {
        let len = entries.len() * self.format.entry_len() + Beacon::SIZE;
        // On the stack for a single entry, which is the common case.
        let (mut one, mut many) = ([0; MAX_ENTRY_BYTES + Beacon::SIZE], Vec::new());
        let all = match one.get_mut(..len) {
            Some(one) => one,
            None => {
                many.resize(len, 0);
                &mut many[..]
            }
        };
        let mut rest = &mut *all;
        for entry in entries {
            let mut bytes = [0; MAX_ENTRY_BYTES];
            rest.put_slice(self.format.encode(entry, &mut bytes));
        }
        // In one write with the entries: a reader must not find an open file without a beacon.
        Beacon::new(NO_WATERMARK).write(&mut rest);
        self.write_locked(|file, end| disk::write_all_at(file, all, end))?;
        self.file.mark_written(len as u64);
        self.entries += entries.len() as u64;
        self.has_beacon = true;
        Ok(())
    }

    /// Writes a beacon after the entries, in place of the previous one.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn write_beacon(&mut self, until: Timestamp) -> io::Result<()> {
        let bytes = Beacon::new(until).to_bytes();
        self.write_locked(|file, end| disk::write_all_at(file, &bytes, end))?;
        if !std::mem::replace(&mut self.has_beacon, true) {
            // One beacon in place of another is not synced: the beacons of thousands of idle
            // streams would keep the disk busy, and any of them says that the file has not been
            // closed.
            self.file.mark_written(bytes.len() as u64);
        }
        Ok(())
    }

    /// Removes the beacon, so that the file ends with its last entry.
    ///
    /// # Errors
    /// If the file cannot be truncated.
    pub(super) fn remove_beacon(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.has_beacon) {
            self.write_locked(disk::set_len)?;
            self.file.mark_written(0);
        }
        Ok(())
    }

    /// Position of the next entry, in bytes.
    pub(super) fn position(&self) -> u64 {
        self.format.position(self.entries)
    }

    /// Number of entries in the file, without the beacon.
    pub(super) fn entries(&self) -> u64 {
        self.entries
    }

    /// Whether the file has no entry.
    pub(super) fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Calls `write` with the end of the entries while no reader holds the lock.
    fn write_locked(&mut self, write: impl FnOnce(&File, u64) -> io::Result<()>) -> io::Result<()> {
        let file = self.file.opened()?;
        let end = self.format.position(self.entries);
        // Readers lock the file while they read its end, where the entry replaces the beacon.
        let locked = lock(file, self.is_held_up);
        self.is_held_up = !locked;
        let written = write(file, end);
        if written.is_err() {
            // A partial entry is useless, and the beacon that it overwrote is still true.
            let _ = disk::set_len(file, end);
            let tail = Beacon::new(NO_WATERMARK).to_bytes();
            self.has_beacon = disk::write_all_at(file, &tail, end).is_ok();
        }
        if locked {
            // Ignored: what was written is valid, and closing the file releases the lock at last.
            let _ = file_lock::unlock(file);
        }
        written
    }
}

/// Locks the file, for which readers are waited for up to [`LOCK_TRIES`] times. Returns whether it
/// is locked.
fn lock(file: &File, was_held_up: bool) -> bool {
    let tries = if was_held_up { 0 } else { LOCK_TRIES };
    let is_held = || matches!(file_lock::try_lock_exclusive(file), Ok(true));
    is_held()
        || (0..tries).any(|_| {
            std::thread::sleep(LOCK_RETRY_INTERVAL);
            is_held()
        })
}

/// Reads up to `count` entries, but no more than [`ENTRIES_READ`], from number `first` on, counted
/// from 0. `read` is called once, to fill a buffer from a position in the file.
///
/// # Errors
/// If the file has fewer entries, or one is invalid.
pub fn read_entries(
    read: impl FnOnce(&mut [u8], u64) -> io::Result<()>,
    format: IndexFormat,
    first: u64,
    count: u64,
) -> io::Result<Vec<Entry>> {
    let count = usize::try_from(count).map_or(ENTRIES_READ, |count| count.min(ENTRIES_READ));
    let mut bytes = [0; ENTRIES_READ * MAX_ENTRY_BYTES];
    let (entries, _) = bytes.split_at_mut(count * format.entry_len());
    read(entries, format.position(first))?;
    entries
        .chunks_exact(format.entry_len())
        .map(|entry| format.decode(entry).map_err(io::Error::other))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use ctf::index::{FollowEvent, IndexFollower};
    use wire::{Bits, Bytes, ClassId, InstanceId, PacketIndex, PacketSeqNum};

    use super::super::reopenable_file::{self, test_file};
    use super::*;

    fn begun(format: IndexFormat) -> IndexFile {
        IndexFile::begin(test_file().1, format).unwrap()
    }

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
        reopenable_file::contents(index.file.opened().unwrap())
    }

    /// The first entry of a recording by lttng-relayd 2.13.9, channel `chan0`, CPU 1.
    const RECORDED: &str = "
        c1f1dcc1 00000001 00000001 00000048
        0000000000000000 0000000000008000 0000000000007fe0
        000002ba7333c036 000002ba748323c1 0000000000000000
        0000000000000000 0000000000000001 0000000000000000";

    #[test]
    fn an_entry_is_what_lttng_relayd_writes() {
        let mut index = begun(IndexFormat::V1_1);
        index.append(&[entry(0)]).unwrap();
        index.remove_beacon().unwrap();
        assert_eq!(contents(&index), wire::hex::parse(RECORDED).unwrap());
        index.append(&[entry(1)]).unwrap();
        let read = |first, count| {
            let file = index.file.opened().unwrap();
            let bytes = |bytes: &mut [u8], at| file.read_exact_at(bytes, at);
            read_entries(bytes, IndexFormat::V1_1, first, count)
        };
        assert_eq!(read(0, 2).unwrap(), [entry(0), entry(1)]);
        assert_eq!(read(1, 1).unwrap(), [entry(1)]);
        assert!(read(1, 2).is_err());
        assert!(read(0, u64::MAX).is_err());
    }

    #[test]
    fn entries_end_in_a_beacon_until_the_file_is_closed() {
        let mut index = begun(IndexFormat::V1_1);
        for entries in [&[entry(0)][..], &[entry(1), entry(2)]] {
            index.append(entries).unwrap();
            let end = usize::try_from(index.position()).unwrap();
            let bytes = contents(&index);
            assert_eq!(bytes[end..], Beacon::new(NO_WATERMARK).to_bytes());
        }
        index.remove_beacon().unwrap();
        assert_eq!(contents(&index).len(), 16 + 3 * 72);
    }

    #[test]
    fn a_file_without_entries_ends_in_a_beacon_from_the_beginning() {
        let index = begun(IndexFormat::V1_1);
        let mut want = IndexFormat::V1_1.header_bytes().to_vec();
        want.extend(Beacon::new(NO_WATERMARK).to_bytes());
        assert_eq!(contents(&index), want);
    }

    #[test]
    fn an_old_entry_knows_neither_instance_nor_packet() {
        let mut index = begun(IndexFormat::V1_0);
        index.append(&[entry(0)]).unwrap();
        index.remove_beacon().unwrap();
        assert_eq!(contents(&index).len(), 16 + 56);
        assert_eq!(
            contents(&index)[..16],
            [0xc1, 0xf1, 0xdc, 0xc1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 56]
        );
        let file = index.file.opened().unwrap();
        let bytes = |bytes: &mut [u8], at| file.read_exact_at(bytes, at);
        let read = read_entries(bytes, IndexFormat::V1_0, 0, 1).unwrap();
        let packet = read[0].packet;
        assert_eq!((packet.instance, packet.packet_seq), (None, None));
    }

    #[test]
    fn a_beacon_stands_behind_the_entries_and_leaves_no_trace() {
        let mut index = begun(IndexFormat::V1_1);
        index.append(&[entry(0)]).unwrap();
        index.remove_beacon().unwrap();
        let before = contents(&index);
        for until in [7, 8] {
            index.write_beacon(Timestamp(until)).unwrap();
            let bytes = contents(&index);
            assert_eq!(bytes[..before.len()], before);
            assert_eq!(
                bytes[before.len()..],
                Beacon::new(Timestamp(until)).to_bytes()
            );
        }
        index.append(&[entry(1)]).unwrap();
        assert_eq!(contents(&index).len(), 16 + 2 * 72 + Beacon::SIZE);
        index.write_beacon(Timestamp(9)).unwrap();
        index.remove_beacon().unwrap();
        assert_eq!(contents(&index).len(), 16 + 2 * 72);
    }

    #[test]
    fn an_index_file_that_was_closed_ends_in_a_beacon_and_goes_on() {
        let (directory, file) = test_file();
        let path = directory.path().join("ust/file");
        let mut index = IndexFile::begin(file, IndexFormat::V1_1).unwrap();
        index.append(&[entry(0)]).unwrap();
        index.close_files().unwrap();
        assert!(index.append(&[entry(1)]).is_err());
        let mut follower = IndexFollower::open(&path).unwrap();
        assert_eq!(
            follower.poll().unwrap(),
            FollowEvent::Entries(vec![entry(0)])
        );
        assert_eq!(follower.poll().unwrap(), FollowEvent::Beacon(NO_WATERMARK));
        let aside = path.with_extension("aside");
        std::fs::rename(&path, &aside).unwrap();
        std::fs::write(&path, "other").unwrap();
        assert!(index.reopen().is_err());
        std::fs::rename(&aside, &path).unwrap();
        assert!(index.reopen().unwrap());
        index.append(&[entry(1)]).unwrap();
        assert_eq!(
            follower.poll().unwrap(),
            FollowEvent::Entries(vec![entry(1)])
        );
        // A beacon with a watermark is not replaced by one without.
        index.write_beacon(Timestamp(7)).unwrap();
        index.close_files().unwrap();
        assert_eq!(follower.poll().unwrap(), FollowEvent::Beacon(Timestamp(7)));
    }

    #[test]
    fn a_follower_is_given_what_is_written_in_order() {
        let (directory, file) = test_file();
        let path = directory.path().join("ust/file");
        let mut follower = IndexFollower::open(&path).unwrap();
        assert_eq!(follower.poll().unwrap(), FollowEvent::None);
        let mut index = IndexFile::begin(file, IndexFormat::V1_1).unwrap();
        for number in 0..3 {
            index.write_beacon(Timestamp(number)).unwrap();
            assert_eq!(
                follower.poll().unwrap(),
                FollowEvent::Beacon(Timestamp(number))
            );
            index.append(&[entry(number)]).unwrap();
            assert_eq!(
                follower.poll().unwrap(),
                FollowEvent::Entries(vec![entry(number)])
            );
        }
        index.remove_beacon().unwrap();
        directory.close().unwrap();
        assert_eq!(follower.poll().unwrap(), FollowEvent::Gone);
        assert!(!index.is_held_up);
    }

    #[test]
    fn a_reader_that_keeps_the_lock_does_not_stop_the_writer() {
        let (directory, file) = test_file();
        let mut index = IndexFile::begin(file, IndexFormat::V1_1).unwrap();
        let reader = File::open(directory.path().join("ust/file")).unwrap();
        reader.lock_shared().unwrap();
        index.append(&[entry(0)]).unwrap();
        assert!(index.is_held_up);
        reader.unlock().unwrap();
        index.append(&[entry(1)]).unwrap();
        assert!(!index.is_held_up);
        assert_eq!(contents(&index).len(), 16 + 2 * 72 + Beacon::SIZE);
    }
}
