use ctf::index::Entry;
use proptest::prelude::*;
use wire::{Bits, ChunkId, PacketIndex, SeqNum, Timestamp};

use super::*;
use crate::name::BootId;
use crate::record::{ObjectKind, PacketsRecord};

const OBJECT: ObjectRecord = ObjectRecord {
    kind: ObjectKind::Commit,
    boot: BootId([3; 16]),
    number: 5,
};

fn entry(bytes: u64, begin: u64) -> Entry {
    Entry {
        offset: Bytes(4096),
        packet: PacketIndex {
            packet_size: Bits(bytes * 8),
            content_size: Bits(bytes * 8),
            begin: Timestamp(begin),
            end: Timestamp(begin + 10),
            ..PacketIndex::default()
        },
    }
}

fn object() -> Vec<u8> {
    let mut writer = ObjectWriter::new(OBJECT).unwrap();
    assert!(writer.is_empty());
    let metadata = b"/* CTF 1.8 */";
    writer
        .add_metadata(9, Some(ChunkId(0)), 0, Bytes(0), metadata)
        .unwrap();
    let entries = [entry(3, 100), entry(5, 90)];
    let filled = writer.add_packets(7, None, SeqNum(40), &entries, |bytes| {
        bytes.copy_from_slice(b"abcdefgh");
        Ok::<_, std::io::Error>(())
    });
    filled.unwrap();
    let failed = writer.add_packets(7, None, SeqNum(42), &entries, |_| {
        Err(std::io::Error::other("the disk"))
    });
    assert!(failed.is_err());
    writer.add_record(&Record::SessionEnd { at: 1 });
    writer.finish().unwrap().to_vec()
}

fn read(object: &[u8]) -> Result<Directory, ObjectError> {
    let footer = Footer::at_end(object, object.len() as u64)?;
    let stored = footer.directory_in(object).ok_or(ObjectError::Footer)?;
    footer.decode_directory(stored)
}

fn stored_block(object: &[u8], record: &PacketsRecord) -> Vec<u8> {
    let begin = usize::try_from(record.block.offset.0).unwrap();
    object[begin..begin + record.block.stored as usize].to_vec()
}

fn packets(directory: &Directory) -> PacketsRecord {
    let mut records = directory.records.iter();
    let packets = records.find_map(|record| match record {
        Record::Packets(packets) => Some(packets.clone()),
        _ => None,
    });
    packets.unwrap()
}

#[test]
fn an_object_is_read_back() {
    let object = object();
    let directory = read(&object).unwrap();
    assert_eq!(directory.object, OBJECT);
    assert_eq!(directory.records.len(), 3);
    let record = packets(&directory);
    assert_eq!((record.first, record.count), (SeqNum(40), 2));
    assert_eq!((record.begin, record.end), (Timestamp(90), Timestamp(110)));
    let raw = decode_block(&record.block, stored_block(&object, &record)).unwrap();
    let block = PacketBlock::parse(&record, raw).unwrap();
    assert_eq!(block.len(), 2);
    let (second, bytes) = block.packet(1).unwrap();
    assert_eq!((*second, bytes), (entry(5, 90), &b"defgh"[..]));
    assert_eq!(block.packet(0).unwrap().1, b"abc");
    assert!(block.packet(2).is_none() && !block.is_empty());
}

/// A commit object as the first relay with an archive has written it.
const FIRST: &[u8] = include_bytes!("data/commit-v1.bin");

#[test]
fn an_object_of_the_first_version_is_read_for_ever() {
    let directory = read(FIRST).unwrap();
    assert_eq!((directory.object, directory.records.len()), (OBJECT, 3));
    let record = packets(&directory);
    let raw = decode_block(&record.block, stored_block(FIRST, &record)).unwrap();
    let block = PacketBlock::parse(&record, raw).unwrap();
    assert_eq!(block.packet(1).unwrap(), (&entry(5, 90), &b"defgh"[..]));
}

#[test]
fn every_cut_and_every_changed_byte_is_noticed() {
    let object = object();
    let directory = read(&object).unwrap();
    for len in 0..object.len() {
        assert!(read(&object[..len]).is_err(), "cut at {len}");
    }
    for at in 0..object.len() {
        let mut changed = object.clone();
        changed[at] ^= 0x40;
        let record = packets(&directory);
        let block = decode_block(&record.block, stored_block(&changed, &record));
        let metadata = changed[..MAGIC.len()] != MAGIC;
        let is_noticed = read(&changed).is_err() || block.is_err() || metadata;
        // The first block is that of the metadata, whose checksum is tested as that of the other.
        let is_metadata = directory.records.iter().any(|record| {
            matches!(record, Record::Metadata(metadata)
                if (metadata.block.offset.0..metadata.block.offset.0 + u64::from(metadata.block.stored))
                    .contains(&(at as u64)))
        });
        assert!(is_noticed || is_metadata, "byte {at}");
    }
}

#[test]
fn a_directory_that_claims_much_takes_no_memory() {
    let object = object();
    let mut footer = Footer::at_end(&object, object.len() as u64).unwrap();
    let stored = footer.directory_in(&object).unwrap().to_vec();
    footer.raw = MAX_DIRECTORY_BYTES;
    let error = footer.decode_directory(&stored).unwrap_err();
    assert_eq!(error.to_string(), "its directory cannot be decompressed");
    let record = packets(&read(&object).unwrap());
    let claims = PacketsRecord {
        count: u32::MAX,
        ..record
    };
    let error = PacketBlock::parse(&claims, vec![0; 100]).unwrap_err();
    assert_eq!(error, ObjectError::BlockLength);
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
        let _ = read(&bytes);
    }
}
