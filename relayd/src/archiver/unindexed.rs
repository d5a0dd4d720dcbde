//! Index entries of packets whose producer sends no indexes, from the heads of the packets. The
//! metadata of their trace says how to read these, and may arrive after them.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use ctf::index::Entry;
use wire::{Bytes, ChunkId, ClassId, PacketIndex, Timestamp, TracePath};

use crate::limits::MAX_REPAIRED_METADATA;
use crate::store::metadata::MetadataSource;
use crate::store::repair::packets::PacketReader;

/// The metadata of the packets of a trace in a chunk.
#[derive(Debug, Clone, Copy)]
pub(super) struct PacketMetadata<'a> {
    pub(super) trace: &'a TracePath,
    pub(super) chunk: Option<ChunkId>,
    pub(super) source: &'a MetadataSource,
    /// Bytes that have arrived.
    pub(super) received: u64,
}

/// Makes the index entries of the packets of one session.
#[derive(Debug)]
pub(super) struct EntryMaker<'a> {
    metadata: Vec<PacketMetadata<'a>>,
    /// Whether no more metadata will arrive, or none is waited for.
    is_complete: bool,
    /// The trace and the chunk of the packets that were read last, and the reader for them. None:
    /// their metadata cannot be used.
    last: Option<(&'a TracePath, Option<ChunkId>, Option<PacketReader>)>,
}

impl<'a> EntryMaker<'a> {
    pub(super) fn new(
        metadata: impl Iterator<Item = PacketMetadata<'a>>,
        is_complete: bool,
    ) -> Self {
        Self {
            metadata: metadata.collect(),
            is_complete,
            last: None,
        }
    }

    /// The entries of packets of a trace, up to the first one whose metadata may still arrive. If
    /// that is the first of all, sets `unread_with` to the bytes of the metadata: nothing is read
    /// before there are more. A packet that the metadata does not describe gets an entry without
    /// times.
    pub(super) fn entries(
        &mut self,
        (trace, chunk): (&TracePath, Option<ChunkId>),
        data: &File,
        extents: &[(Bytes, Bytes)],
        unread_with: &mut Option<u64>,
    ) -> io::Result<Vec<Entry>> {
        let mut own = self.metadata.iter();
        let metadata = own.find(|own| own.trace == trace && own.chunk == chunk);
        let received = metadata.map_or(0, |own| own.received);
        if !self.is_complete && *unread_with == Some(received) {
            return Ok(Vec::new());
        }
        let is_last = |(path, id, _): &(_, _, _)| *path == trace && *id == chunk;
        if !self.last.as_ref().is_some_and(is_last) {
            self.last = None;
            if let Some(metadata) = metadata {
                self.last = Some((metadata.trace, chunk, metadata.reader()?));
            }
        }
        let reader = self.last.as_ref();
        let reader = reader.and_then(|(.., reader)| reader.as_ref());
        let mut entries = Vec::new();
        for (offset, len) in extents {
            let end = offset.0 + len.0;
            let found = reader.map(|reader| reader.entry_at(data, offset.0, end));
            let found = found.transpose()?.flatten();
            if found.is_none() && !self.is_complete {
                break;
            }
            entries.push(entry(found, *offset, *len));
        }
        *unread_with = entries.is_empty().then_some(received);
        Ok(entries)
    }
}

impl PacketMetadata<'_> {
    /// A reader of the packets. None: the metadata is not whole yet, or cannot be used.
    fn reader(&self) -> io::Result<Option<PacketReader>> {
        if self.received > MAX_REPAIRED_METADATA {
            return Ok(None);
        }
        let len = usize::try_from(self.received).map_err(io::Error::other)?;
        let mut text = vec![0; len];
        self.source.open()?.read_exact_at(&mut text, 0)?;
        Ok(PacketReader::new(&text))
    }
}

/// The entry of a packet at this place. `found` is what its head says, which has no power over the
/// length with which it arrived.
fn entry(found: Option<Entry>, offset: Bytes, len: Bytes) -> Entry {
    let packet_size = len.to_bits().unwrap_or_default();
    let mut packet = found.map_or_else(
        || PacketIndex {
            packet_size,
            content_size: packet_size,
            begin: Timestamp(0),
            end: Timestamp(0),
            events_discarded: 0,
            class: ClassId(0),
            instance: None,
            packet_seq: None,
        },
        |found| found.packet,
    );
    packet.packet_size = packet_size;
    packet.content_size = packet.content_size.min(packet_size);
    Entry { offset, packet }
}
