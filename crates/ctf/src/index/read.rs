//! Reads a complete index file.

use wire::{Bytes, Field, PacketIndex, Timestamp};

use super::check::{Checker, IndexError, Layout};
use super::format::{Beacon, Entry, IndexHeader};

/// The contents of an index file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entries {
    /// The entries in the order of the packets.
    pub entries: Vec<Entry>,
    /// The bytes after the last entry.
    pub tail: Tail,
    /// The sum of the sizes of all packets.
    pub total: Bytes,
}

/// The bytes after the last entry of an index file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tail {
    /// The file ends with the last entry, or with its header.
    Clean,
    /// A beacon: the stream will have no event before this time.
    Beacon(Timestamp),
    /// The first bytes of an incomplete entry. Holds their number.
    Torn(usize),
}

impl Entries {
    /// Whether a data stream file of this length consists of the packets of these entries. If it is
    /// longer, it is still being written, or the index is incomplete.
    #[must_use]
    pub fn covers_file(&self, file: Bytes) -> bool {
        self.total == file
    }
}

/// Reads an index file. The entries before a torn one count.
///
/// # Errors
/// If the header or an entry is invalid. The index is a hint only: the packets have the same
/// information.
pub fn read(bytes: &[u8]) -> Result<Entries, IndexError> {
    let layout = Layout::of(bytes)?;
    let mut checker = Checker::new(layout);
    // The file bounds the memory: `stride` is at least the length of the shortest entry.
    let mut entries = Vec::with_capacity(bytes.len() / layout.stride);
    let mut rest = bytes.get(IndexHeader::SIZE..).unwrap_or_default();
    while let Some(entry) = checker.check_entry(rest)? {
        let PacketIndex { begin, end, .. } = entry.packet;
        if begin > end {
            // No underflow: the entry has been counted.
            let number = checker.count - 1;
            return Err(IndexError::Time { number, begin, end });
        }
        entries.push(entry);
        rest = rest.get(layout.stride..).unwrap_or_default();
    }
    let tail = match Beacon::at_front(rest) {
        Some(beacon) => Tail::Beacon(beacon.until),
        None if rest.is_empty() => Tail::Clean,
        None => Tail::Torn(rest.len()),
    };
    Ok(Entries {
        entries,
        tail,
        total: Bytes(checker.total),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use wire::Bits;

    use super::super::format::IndexFormat;
    use super::super::format::tests::{RECORDED, entry, file};
    use super::*;

    fn changed(at: usize, byte: u8) -> Vec<u8> {
        let mut bytes = wire::hex::parse(RECORDED).unwrap();
        bytes[at] = byte;
        bytes
    }

    #[test]
    fn an_index_file_of_lttng_relayd_is_read() {
        let index = read(&wire::hex::parse(RECORDED).unwrap()).unwrap();
        assert_eq!(index.entries, [entry(0)]);
        assert_eq!(index.tail, Tail::Clean);
        assert!(index.covers_file(Bytes(4096)));
        assert!(!index.covers_file(Bytes(8192)));
    }

    #[test]
    fn entries_before_a_cut_entry_or_a_beacon_are_read() {
        let whole = file(IndexFormat::V1_1, &[entry(0), entry(1)]);
        for cut in 1..72 {
            let index = read(&whole[..whole.len() - cut]).unwrap();
            assert_eq!(index.entries, [entry(0)]);
            assert_eq!(index.tail, Tail::Torn(72 - cut));
        }
        let beacon = Beacon::new(Timestamp(9)).to_bytes();
        let index = read(&[whole, beacon].concat()).unwrap();
        assert_eq!(index.entries, [entry(0), entry(1)]);
        assert_eq!(index.tail, Tail::Beacon(Timestamp(9)));
    }

    #[test]
    fn a_cut_index_header_is_refused() {
        let whole = file(IndexFormat::V1_1, &[]);
        for have in 0..whole.len() {
            assert_eq!(read(&whole[..have]), Err(IndexError::NoHeader(have)));
        }
        assert_eq!(read(&whole).unwrap().entries, []);
    }

    #[test]
    fn the_index_header_gives_the_distance_between_entries() {
        // A later format with 8 more bytes, and a 1.1 that is as short as 1.0.
        for (stride, known) in [(80_u8, true), (64, false)] {
            let mut bytes = changed(15, stride);
            bytes.resize(16 + usize::from(stride), 0xee);
            let record = bytes[16..].to_vec();
            bytes.extend(&record);
            bytes[16 + usize::from(stride) + 6] = 0x10; // the second lies at 4096
            let index = read(&bytes).unwrap();
            assert_eq!(index.entries.len(), 2);
            assert_eq!(index.entries[1].offset, Bytes(4096));
            assert_eq!(index.entries[1].packet.instance.is_some(), known);
        }
    }

    #[test]
    fn each_invalid_index_is_refused_with_its_own_error() {
        let sizes = |packet, content| IndexError::PacketSize {
            number: 0,
            packet: Bits(packet),
            content: Bits(content),
        };
        for (bytes, want) in [
            (changed(0, 0), IndexError::Magic(0x00f1_dcc1)),
            (changed(7, 2), IndexError::Version { major: 2, minor: 1 }),
            (changed(11, 2), IndexError::Version { major: 1, minor: 2 }),
            (changed(15, 55), IndexError::EntryLength(55)),
            (changed(14, 0x10), IndexError::EntryLength(0x1048)),
            (changed(31, 1), sizes(0x8001, 0x7fe0)),
            (changed(30, 0), sizes(0, 0x7fe0)),
            (changed(38, 0x81), sizes(0x8000, 0x81e0)),
        ] {
            assert_eq!(read(&bytes), Err(want));
        }
        assert!(matches!(
            read(&changed(41, 1)),
            Err(IndexError::Time { number: 0, .. })
        ));
        let again = file(IndexFormat::V1_1, &[entry(0), entry(1), entry(1)]);
        let at = Bytes(4096);
        assert_eq!(read(&again), Err(IndexError::Place { number: 2, at }));
        let far = changed(16, 0xff);
        assert!(read(&far).is_ok());
        let mut beyond = far;
        beyond[17..24].fill(0xff);
        assert!(matches!(read(&beyond), Err(IndexError::Place { .. })));
    }

    proptest! {
        #[test]
        fn any_bytes_after_an_index_header_are_read_or_refused(bytes: Vec<u8>, stride in 56..200_u8) {
            let mut file = IndexFormat::V1_1.header_bytes();
            file[15] = stride;
            file.extend(bytes);
            let _ = read(&file);
        }

        #[test]
        fn what_is_written_is_read_back(count in 0..40_u64) {
            let entries: Vec<Entry> = (0..count).map(entry).collect();
            let index = read(&file(IndexFormat::V1_1, &entries)).unwrap();
            prop_assert_eq!(index.entries, entries);
            prop_assert_eq!(index.total, Bytes(4096 * count));
        }
    }
}
