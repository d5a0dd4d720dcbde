//! The layout of an index file. No other module knows it; this one opens no files.

use wire::{Bytes, DecodeError, Field, PacketIndex, PacketIndexV1_0, Timestamp, wire_struct};

wire_struct! {
    /// The header at the beginning of an index file. (`struct ctf_packet_index_file_hdr`)
    #[derive(Copy)]
    pub IndexHeader [16 bytes] {
        /// The magic number, [`IndexHeader::MAGIC`].
        magic: u32,
        /// The major version, 1.
        major: u32,
        /// The minor version, 0 or 1.
        minor: u32,
        /// The size of an entry in bytes, which readers use as the distance between entries.
        entry_len: u32,
    }

    /// The beacon after the last entry: the stream will have no event before `until`. A beacon is
    /// shorter than any entry, so that readers that do not know it see a truncated index file.
    #[derive(Copy)]
    pub Beacon [16 bytes] {
        /// The magic number, [`Beacon::MAGIC`].
        magic: u64,
        /// The time before which the stream has no further event, in cycles.
        until: Timestamp,
    }
}

impl IndexHeader {
    /// The first 32 bits of every index file.
    pub const MAGIC: u32 = 0xc1f1_dcc1;
}

impl Beacon {
    /// The first 64 bits of a beacon. No entry has them: as an offset they would be beyond any
    /// file.
    pub const MAGIC: u64 = 0xc1f1_0000_00be_ac01;

    /// The beacon for this time.
    #[must_use]
    pub const fn new(until: Timestamp) -> Self {
        Self {
            magic: Self::MAGIC,
            until,
        }
    }

    /// The 16 bytes of the beacon.
    #[must_use]
    pub fn to_bytes(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Self::SIZE);
        self.write(&mut bytes);
        bytes
    }

    /// The beacon at the front of `bytes`; `None` if they do not begin with a whole one.
    #[must_use]
    pub fn at_front(mut bytes: &[u8]) -> Option<Self> {
        Self::read(&mut bytes)
            .ok()
            .filter(|beacon| beacon.magic == Self::MAGIC)
    }
}

/// The entry of one packet in an index file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The offset of the packet in the data stream file.
    pub offset: Bytes,
    /// The sizes, times and counters of the packet.
    pub packet: PacketIndex,
}

/// The format of an index file: a producer cannot fill more than its version knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexFormat {
    /// CTF index 1.0, of producers before LTTng 2.8: entries of 56 bytes.
    V1_0,
    /// CTF index 1.1: entries of 72 bytes, with the instance of the stream and the tracer's number
    /// of the packet.
    V1_1,
}

/// Bytes of the longest entry that is written.
pub const MAX_ENTRY_BYTES: usize = Bytes::SIZE + PacketIndex::SIZE;

impl IndexFormat {
    /// The size of an entry in bytes.
    #[must_use]
    pub const fn entry_len(self) -> usize {
        Bytes::SIZE
            + match self {
                Self::V1_0 => PacketIndexV1_0::SIZE,
                Self::V1_1 => PacketIndex::SIZE,
            }
    }

    /// The offset in the file of the entry of this number, which counts from 0.
    #[must_use]
    pub const fn position(self, number: u64) -> u64 {
        IndexHeader::SIZE as u64 + number * self.entry_len() as u64
    }

    /// The header of a file of this format.
    #[must_use]
    pub fn header(self) -> IndexHeader {
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

    /// The 16 bytes of [`header`](Self::header).
    #[must_use]
    pub fn header_bytes(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(IndexHeader::SIZE);
        self.header().write(&mut bytes);
        bytes
    }

    /// Writes an entry to the front of `bytes` and returns that part.
    pub fn encode<'a>(self, entry: &Entry, bytes: &'a mut [u8; MAX_ENTRY_BYTES]) -> &'a [u8] {
        // The array has room for the longest entry: the split does not panic.
        let (place, _) = bytes.split_at_mut(self.entry_len());
        let mut to = &mut *place;
        entry.offset.write(&mut to);
        match self {
            Self::V1_0 => PacketIndexV1_0::from(entry.packet).write(&mut to),
            Self::V1_1 => entry.packet.write(&mut to),
        }
        place
    }

    /// Reads the entry at the front of `bytes`.
    ///
    /// # Errors
    /// If they are fewer than [`entry_len`](Self::entry_len).
    pub fn decode(self, mut bytes: &[u8]) -> Result<Entry, DecodeError> {
        let offset = Bytes::read(&mut bytes)?;
        let packet = match self {
            Self::V1_0 => PacketIndexV1_0::read(&mut bytes)?.into(),
            Self::V1_1 => PacketIndex::read(&mut bytes)?,
        };
        Ok(Entry { offset, packet })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;
    use wire::{Bits, ClassId, InstanceId, PacketSeqNum};

    use super::*;

    /// The first entry of a recording by lttng-relayd 2.13.9, channel `chan0`, CPU 1.
    pub(crate) const RECORDED: &str = "
        c1f1dcc1 00000001 00000001 00000048
        0000000000000000 0000000000008000 0000000000007fe0
        000002ba7333c036 000002ba748323c1 0000000000000000
        0000000000000000 0000000000000001 0000000000000000";

    /// The entry that a test uses for the packet of this number.
    pub(crate) fn entry(number: u64) -> Entry {
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

    /// The bytes of a whole index file.
    pub(crate) fn file(format: IndexFormat, entries: &[Entry]) -> Vec<u8> {
        let mut bytes = format.header_bytes();
        for entry in entries {
            bytes.extend(format.encode(entry, &mut [0; MAX_ENTRY_BYTES]));
        }
        bytes
    }

    #[test]
    fn index_header_and_entry_are_the_bytes_that_lttng_relayd_writes() {
        let recorded = wire::hex::parse(RECORDED).unwrap();
        assert_eq!(file(IndexFormat::V1_1, &[entry(0)]), recorded);
        assert_eq!(IndexFormat::V1_1.decode(&recorded[16..]), Ok(entry(0)));
    }

    #[test]
    fn an_index_1_0_entry_has_neither_instance_id_nor_packet_number() {
        let bytes = file(IndexFormat::V1_0, &[entry(0)]);
        assert_eq!(bytes.len(), 16 + 56);
        assert_eq!(
            bytes[..16],
            [0xc1, 0xf1, 0xdc, 0xc1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 56]
        );
        let read = IndexFormat::V1_0.decode(&bytes[16..]).unwrap();
        assert_eq!((read.packet.instance, read.packet.packet_seq), (None, None));
    }

    #[test]
    fn a_beacon_is_recognised_by_its_whole_magic_only() {
        let bytes = Beacon::new(Timestamp(7)).to_bytes();
        let want = wire::hex::parse("c1f1000000beac01 0000000000000007").unwrap();
        assert_eq!(bytes, want);
        assert_eq!(Beacon::at_front(&bytes).unwrap().until, Timestamp(7));
        for length in 0..bytes.len() {
            assert_eq!(Beacon::at_front(&bytes[..length]), None);
        }
        assert_eq!(Beacon::at_front(&[0; 16]), None);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(bytes: [u8; MAX_ENTRY_BYTES]) {
            let entry = IndexFormat::V1_1.decode(&bytes).unwrap();
            let mut written = [0; MAX_ENTRY_BYTES];
            prop_assert_eq!(IndexFormat::V1_1.encode(&entry, &mut written), &bytes);
        }
    }
}
