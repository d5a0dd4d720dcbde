//! Builds an object: blocks are appended and compressed as they come, the directory at the end.

use bytes::Bytes as Buffer;
use ctf::index::{Entry, IndexFormat, MAX_ENTRY_BYTES};
use wire::{Bytes, ChunkId, Field, SeqNum, Timestamp};
use zstd::bulk::Compressor;

use super::block::ENTRY_BYTES;
use super::{Footer, MAGIC};
use crate::record::{BlockPlace, Encoding, MetadataRecord, ObjectRecord, PacketsRecord, Record};

/// Level of compression. 1 takes a quarter of the time of 3, for a tenth more bytes.
const LEVEL: i32 = 1;

/// An object that is being built, in memory.
pub struct ObjectWriter {
    bytes: Vec<u8>,
    directory: Vec<u8>,
    compressor: Compressor<'static>,
    /// The block that is being filled, for its memory.
    block: Vec<u8>,
    /// Bytes of all blocks before they were compressed.
    raw_len: u64,
}

impl std::fmt::Debug for ObjectWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ObjectWriter({} bytes)", self.bytes.len())
    }
}

impl ObjectWriter {
    /// An object without blocks.
    ///
    /// # Errors
    /// If there is no memory for the compressor.
    pub fn new(object: ObjectRecord) -> std::io::Result<Self> {
        let mut directory = Vec::new();
        Record::Object(object).encode(&mut directory);
        Ok(Self {
            bytes: MAGIC.to_vec(),
            directory,
            compressor: Compressor::new(LEVEL)?,
            block: Vec::new(),
            raw_len: 0,
        })
    }

    /// Bytes of the blocks so far, before they were compressed.
    #[must_use]
    pub fn raw_len(&self) -> u64 {
        self.raw_len
    }

    /// Whether the object has no block.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.len() == MAGIC.len()
    }

    /// Appends a record that describes no block.
    pub fn add_record(&mut self, record: &Record) {
        record.encode(&mut self.directory);
    }

    /// Appends a block of packets with consecutive numbers. `read` fills the given buffer with
    /// their bytes, one packet after the other.
    ///
    /// # Errors
    /// Those of `read`, and of the compressor. Nothing was appended then.
    pub fn add_packets<E: From<std::io::Error>>(
        &mut self,
        stream: u64,
        chunk: Option<ChunkId>,
        first: SeqNum,
        entries: &[Entry],
        read: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let sizes = entries.iter().map(packet_bytes);
        let packet_bytes: u64 = sizes.sum();
        let head = entries.len() * ENTRY_BYTES;
        let too_long = || std::io::Error::other("a block of packets is too long");
        let len = usize::try_from(packet_bytes).map_err(|_| too_long())? + head;
        let mut block = std::mem::take(&mut self.block);
        block.clear();
        let mut buffer = [0; MAX_ENTRY_BYTES];
        for entry in entries {
            block.extend_from_slice(IndexFormat::V1_1.encode(entry, &mut buffer));
        }
        block.resize(len, 0);
        let done = read(block.get_mut(head..).unwrap_or_default());
        let done = done.and_then(|()| Ok(self.add_block(&block)?));
        self.block = block;
        let begins = entries.iter().map(|entry| entry.packet.begin);
        let ends = entries.iter().map(|entry| entry.packet.end);
        let record = PacketsRecord {
            stream,
            chunk,
            first,
            count: u32::try_from(entries.len()).map_err(|_| too_long())?,
            begin: begins.min().unwrap_or(Timestamp(0)),
            end: ends.max().unwrap_or(Timestamp(0)),
            packet_bytes: Bytes(packet_bytes),
            block: done?,
        };
        Record::Packets(record).encode(&mut self.directory);
        Ok(())
    }

    /// Appends a piece of metadata.
    ///
    /// # Errors
    /// Those of the compressor.
    pub fn add_metadata(
        &mut self,
        stream: u64,
        chunk: Option<ChunkId>,
        generation: u32,
        offset: Bytes,
        piece: &[u8],
    ) -> std::io::Result<()> {
        let block = self.add_block(piece)?;
        let record = MetadataRecord {
            stream,
            chunk,
            generation,
            offset,
            block,
        };
        Record::Metadata(record).encode(&mut self.directory);
        Ok(())
    }

    /// Appends the block of a record of packets or metadata as it is stored in another object.
    ///
    /// # Errors
    /// If the record has no block.
    pub fn add_stored(&mut self, record: &Record, stored: &[u8]) -> std::io::Result<()> {
        let mut record = record.clone();
        let place = match &mut record {
            Record::Packets(packets) => &mut packets.block,
            Record::Metadata(metadata) => &mut metadata.block,
            _ => return Err(std::io::Error::other("a record without a block")),
        };
        place.offset = Bytes(self.bytes.len() as u64);
        self.raw_len += u64::from(place.raw);
        self.bytes.extend_from_slice(stored);
        record.encode(&mut self.directory);
        Ok(())
    }

    fn add_block(&mut self, raw: &[u8]) -> std::io::Result<BlockPlace> {
        let too_long = |_| std::io::Error::other("a block is longer than 4 GiB");
        let offset = self.bytes.len();
        let raw_len = u32::try_from(raw.len()).map_err(too_long)?;
        self.bytes.reserve(raw.len());
        let compressed = self.compressor.compress(raw)?;
        // Data that does not become shorter is read faster as it is.
        let (stored, encoding) = if compressed.len() < raw.len() {
            (&compressed[..], Encoding::Zstd)
        } else {
            (raw, Encoding::Stored)
        };
        self.bytes.extend_from_slice(stored);
        self.raw_len += raw.len() as u64;
        Ok(BlockPlace {
            offset: Bytes(offset as u64),
            stored: u32::try_from(stored.len()).map_err(too_long)?,
            raw: raw_len,
            encoding,
            checksum: crc32fast::hash(stored),
        })
    }

    /// Completes the object: its bytes.
    ///
    /// # Errors
    /// Those of the compressor, or if the directory is longer than readers allow.
    pub fn finish(mut self) -> std::io::Result<Buffer> {
        let too_long = |_| std::io::Error::other("a directory is longer than 4 GiB");
        let stored = self.compressor.compress(&self.directory)?;
        let mut footer = Footer {
            directory: Bytes(self.bytes.len() as u64),
            stored: u32::try_from(stored.len()).map_err(too_long)?,
            raw: u32::try_from(self.directory.len()).map_err(too_long)?,
            checksum: crc32fast::hash(&stored),
            footer_checksum: 0,
            magic: MAGIC,
        };
        self.bytes.extend_from_slice(&stored);
        let mut fields = Vec::with_capacity(Footer::SIZE);
        footer.write(&mut fields);
        footer.footer_checksum = crc32fast::hash(fields.get(..20).unwrap_or_default());
        footer.write(&mut self.bytes);
        Ok(self.bytes.into())
    }
}

/// Bytes of the packet of an entry, padding included.
#[must_use]
pub fn packet_bytes(entry: &Entry) -> u64 {
    entry.packet.packet_size.to_bytes().map_or(0, |size| size.0)
}
