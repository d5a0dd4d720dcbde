//! What one stream has for the archive: packets, read back from their tracefiles, or metadata. The
//! archiver follows the stream as a viewer does, so that it costs its writer nothing.

use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use archive::object::{ObjectWriter, packet_bytes};
use archive::record::{Record, StreamKey, StreamRecord};
use ctf::index::Entry;
use wire::{Bytes, ChunkId, ClassId, SeqNum, Timestamp};

use super::chunks::Chunks;
use super::known::{KnownBytes, KnownMetadata, KnownPackets, SeqRanges};
use super::unindexed::{EntryMaker, PacketMetadata};
use crate::limits::{ARCHIVE_BLOCK_BYTES, ENTRIES_READ, MAX_METADATA_BYTES};
use crate::publish::published::{PacketLookup, Published, PublishedMetadata, PublishedRun};
use crate::store::index_file::read_entries;
use crate::store::metadata::MetadataSource;
use crate::store::segment::OpenSegment;

/// A position in the packets of a stream.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PacketCursor {
    /// Number of the next packet, counted as those for viewers.
    next: u64,
    /// Sequence number after the last packet. None: none was read.
    after: Option<SeqNum>,
    /// Number of packets that were read, without those that the archive had before.
    read: u64,
    /// Bytes of metadata that do not describe the next packet, which has no index entry. None: it
    /// has one, or was not looked at.
    unread_with: Option<u64>,
}

/// The object to which packets are added.
#[derive(Debug)]
pub(super) struct PacketTarget<'a> {
    pub(super) object: &'a mut ObjectWriter,
    /// Bytes of blocks from which on none is added.
    pub(super) limit: u64,
    pub(super) chunks: &'a mut Chunks,
    /// Makes the entries of packets that have none.
    pub(super) entries: EntryMaker<'a>,
}

/// The packets of a stream, for the archive.
#[derive(Debug)]
pub(super) struct ArchivedPackets {
    pub(super) record: StreamRecord,
    published: Arc<Published>,
    /// The first packet that is in no commit object.
    committed: PacketCursor,
    /// Bytes of the packets before it, in the stream.
    committed_bytes: u64,
    /// The first packet that is in no part.
    parted: PacketCursor,
    /// What the archive had before.
    known: KnownPackets,
    /// The last beacon in a commit object. None: no commit object has the stream.
    beacon: Option<Timestamp>,
}

/// The metadata of a trace, for the archive.
#[derive(Debug)]
pub(super) struct ArchivedMetadata {
    pub(super) record: StreamRecord,
    published: Arc<PublishedMetadata>,
    /// The files with metadata, oldest first. Each rotation and each `lttng regenerate metadata`
    /// begins another one.
    files: Vec<MetadataFile>,
    /// What the archive had before.
    known: KnownMetadata,
    /// Whether the session can be resumed, so that its files continue those that the archive has.
    /// Files of other sessions may have been truncated or replaced since: they are another
    /// generation.
    is_resumable: bool,
}

#[derive(Debug)]
struct MetadataFile {
    source: Arc<MetadataSource>,
    chunk: Option<ChunkId>,
    generation: u32,
    received: u64,
    /// Bytes that are in commit objects.
    committed: u64,
    /// Bytes of these that are stored.
    acknowledged: u64,
    /// Bytes that are in parts.
    parted: u64,
    /// Whether readers need it no more, so that the file may be gone: its chunk is deleted, or
    /// another file has replaced it in the chunk.
    is_outdated: bool,
}

/// What a commit object has of a stream, to be acknowledged when the object is stored.
#[derive(Debug)]
pub(super) enum Acknowledged {
    Packets(Arc<Published>, u64),
    Metadata(Arc<PublishedMetadata>, Arc<MetadataSource>, u64),
}

impl ArchivedPackets {
    pub(super) fn new(record: StreamRecord, published: Arc<Published>) -> Self {
        Self {
            record,
            published,
            committed: PacketCursor::default(),
            committed_bytes: 0,
            parted: PacketCursor::default(),
            known: KnownPackets::default(),
            beacon: None,
        }
    }

    /// Sets what the archive has already: it is not added to objects.
    pub(super) fn set_known(&mut self, known: KnownPackets) {
        self.known = known;
    }

    /// Bytes of packets that are in no commit object.
    pub(super) fn pending(&self) -> u64 {
        let (packets, end) = self.published.next_packet();
        if packets == self.committed.next {
            return 0;
        }
        // Never nothing: the packets may be shorter than others that were withdrawn.
        end.0.saturating_sub(self.committed_bytes).max(1)
    }

    /// Number of packets that the archive has got from this relay.
    pub(super) fn added(&self) -> u64 {
        self.committed.read
    }

    /// Whether all packets are in parts.
    pub(super) fn is_parted(&self) -> bool {
        self.published.next_packet().0 == self.parted.next
    }

    pub(super) fn is_over(&self) -> bool {
        self.published.is_over()
    }

    /// The time before which no event will arrive, to be read before packets are looked up.
    pub(super) fn beacon(&self) -> Timestamp {
        if self.is_over() {
            return Timestamp(u64::MAX);
        }
        self.published.last_beacon().unwrap_or(Timestamp(0))
    }

    /// Whether the beacon is one that no commit object has.
    pub(super) fn has_new_beacon(&self) -> bool {
        Some(self.beacon()) > self.beacon.or(Some(Timestamp(0)))
    }

    /// Adds a beacon to a commit object that has all packets before it, and the stream if it is
    /// new: readers that merge streams by time wait for those that they know.
    pub(super) fn commit_beacon(&mut self, object: &mut ObjectWriter, until: Timestamp) {
        if self.beacon.is_none() {
            object.add_record(&Record::Stream(self.record.clone()));
        }
        let before = self.beacon.get_or_insert(Timestamp(0));
        if until > *before && self.published.next_packet().0 == self.committed.next {
            *before = until;
            object.add_record(&Record::Beacon {
                stream: self.record.stream.number,
                until,
                // A stream with a beacon has one.
                class: self.published.class().unwrap_or(ClassId(0)),
            });
        }
    }

    /// Adds packets to a commit object. What was added before an error stays in it.
    pub(super) fn commit(
        &mut self,
        target: &mut PacketTarget<'_>,
    ) -> (Option<Acknowledged>, io::Result<()>) {
        let (until, end) = self.published.next_packet();
        let before = self.committed.next;
        let mut cursor = self.committed;
        let known = &self.known.all;
        let read = self.read(&mut cursor, until, known, target);
        self.committed = cursor;
        if cursor.next == until {
            self.committed_bytes = end.0;
        }
        let published = Arc::clone(&self.published);
        let added = cursor.next > before;
        let added = added.then_some(Acknowledged::Packets(published, cursor.next));
        (added, read)
    }

    /// Adds packets that are acknowledged to a part. Returns the position after them, and whether
    /// they are all.
    pub(super) fn part(&self, target: &mut PacketTarget<'_>) -> io::Result<(PacketCursor, bool)> {
        let until = self.published.archived();
        let mut cursor = self.parted;
        let known = &self.known.parts;
        self.read(&mut cursor, until, known, target)?;
        Ok((cursor, cursor.next >= until))
    }

    /// Records that a part has all packets before a position.
    pub(super) fn set_parted(&mut self, cursor: PacketCursor) {
        self.parted = cursor;
    }

    /// Forgets what is needed only for packets that are in no part.
    pub(super) fn forget_parted(&self) {
        self.published.forget_seqs_before(self.parted.next);
    }

    /// The record of the end of the stream at this position, if it had a packet.
    pub(super) fn end(&self, cursor: &PacketCursor) -> Option<Record> {
        let next = cursor.after?.0;
        let stream = self.record.stream;
        Some(Record::StreamEnd { stream, next })
    }

    fn read(
        &self,
        cursor: &mut PacketCursor,
        until: u64,
        known: &SeqRanges,
        target: &mut PacketTarget<'_>,
    ) -> io::Result<()> {
        while cursor.next < until && target.has_room() {
            if self.skip_known(cursor, until, known) {
                continue;
            }
            let PacketLookup::Packet { packet, run } = self.published.find_packet(cursor.next)
            else {
                // The rest was withdrawn: another tracefile has replaced it, or its chunk is
                // deleted.
                cursor.next = until;
                break;
            };
            if packet >= until {
                cursor.next = until;
                break;
            }
            let files = run.segment.open()?;
            // The file may have been replaced just before it was opened by name.
            if !self.published.has_tracefile(&run.segment) {
                continue;
            }
            run.segment.check(&files)?;
            cursor.next = packet;
            let chunk = target.chunks.add(run.segment.chunk());
            let end = run.end().min(until);
            while cursor.next < end && target.has_room() {
                if self.skip_known(cursor, end, known) {
                    continue;
                }
                if !self.read_block(cursor, end, &run, &files, chunk, target)? {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Moves past packets that the archive has already. Returns whether there were any.
    fn skip_known(&self, cursor: &mut PacketCursor, until: u64, known: &SeqRanges) -> bool {
        let Some((seq, next_mark)) = self.published.seq_of(cursor.next) else {
            return false;
        };
        let Some(known_end) = known.end_of(seq) else {
            return false;
        };
        let end = next_mark.map_or(until, |mark| mark.min(until));
        let count = (end - cursor.next).min(known_end.0 - seq.0);
        cursor.next += count;
        cursor.after = Some(SeqNum(seq.0 + count));
        count > 0
    }

    /// Adds one block of packets of a tracefile. Returns false if the metadata that describes them
    /// has not arrived.
    fn read_block(
        &self,
        cursor: &mut PacketCursor,
        end: u64,
        run: &PublishedRun,
        files: &OpenSegment,
        chunk: Option<ChunkId>,
        target: &mut PacketTarget<'_>,
    ) -> io::Result<bool> {
        let seq = self.published.seq_of(cursor.next);
        let (first, next_mark) = seq.ok_or_else(|| io::Error::other("a packet has no number"))?;
        let end = next_mark.map_or(end, |mark| mark.min(end));
        let mut entries = match &files.index {
            Some((index, format)) => {
                let read = |bytes: &mut [u8], offset| index.read_exact_at(bytes, offset);
                read_entries(read, *format, cursor.next - run.first, end - cursor.next)?
            }
            None => {
                let extents = self.extents(cursor.next, end)?;
                let trace = (&self.record.path, chunk);
                let (data, unread_with) = (&files.data, &mut cursor.unread_with);
                let maker = &mut target.entries;
                maker.entries(trace, data, &extents, unread_with)?
            }
        };
        if entries.is_empty() {
            return Ok(false);
        }
        let mut bytes = 0;
        // The packet that exceeds the limit belongs to the block, so that each has one.
        let len = entries.iter().take_while(|entry| {
            let has_room = bytes < ARCHIVE_BLOCK_BYTES;
            bytes += packet_bytes(entry);
            has_room
        });
        entries.truncate(len.count());
        if let Some(after) = cursor.after.filter(|after| *after < first) {
            target.object.add_record(&Record::Skipped {
                stream: self.record.stream.number,
                first: after,
                count: first.0 - after.0,
            });
        }
        let stream = self.record.stream.number;
        let object = &mut target.object;
        object.add_packets(stream, chunk, first, &entries, |buffer| {
            read_packets(files, &entries, buffer)
        })?;
        let count = entries.len() as u64;
        cursor.next += count;
        cursor.read += count;
        cursor.after = Some(SeqNum(first.0 + count));
        Ok(true)
    }

    /// The extents of packets that have no index entry: of some, and at least of the first.
    fn extents(&self, first: u64, end: u64) -> io::Result<Vec<(Bytes, Bytes)>> {
        let packets = (first..end).take(ENTRIES_READ);
        let extents = packets.map_while(|packet| self.published.extent_of(packet));
        let extents: Vec<_> = extents.collect();
        if extents.is_empty() {
            return Err(io::Error::other(
                "a stream without indexes has too many packets that are not archived",
            ));
        }
        Ok(extents)
    }
}

impl PacketTarget<'_> {
    pub(super) fn has_room(&self) -> bool {
        self.object.raw_len() < self.limit
    }
}

/// Reads packets of one tracefile into a buffer that has room for just these.
fn read_packets(files: &OpenSegment, entries: &[Entry], buffer: &mut [u8]) -> io::Result<()> {
    let mut rest = buffer;
    let mut entries = entries.iter().peekable();
    while let Some(first) = entries.next() {
        let begin = first.offset.0;
        let mut end = begin + packet_bytes(first);
        // Packets that lie one after the other are read together.
        while let Some(next) = entries.next_if(|next| next.offset.0 == end) {
            end += packet_bytes(next);
        }
        let len = usize::try_from(end - begin).map_err(io::Error::other)?;
        let piece = rest.split_off_mut(..len);
        let piece =
            piece.ok_or_else(|| io::Error::other("packets are longer than their entries"))?;
        files.data.read_exact_at(piece, begin)?;
    }
    Ok(())
}

impl ArchivedMetadata {
    pub(super) fn new(
        record: StreamRecord,
        published: Arc<PublishedMetadata>,
        is_resumable: bool,
    ) -> Self {
        Self {
            record,
            published,
            files: Vec::new(),
            known: KnownMetadata::new(),
            is_resumable,
        }
    }

    /// Sets what the archive has already: it is not added to commit objects. To be called before
    /// the first one.
    pub(super) fn set_known(&mut self, known: KnownMetadata) {
        self.known = known;
        for file in &mut self.files {
            file.follow_known(&self.known, self.is_resumable);
        }
    }

    /// Looks for metadata that has come.
    pub(super) fn refresh(&mut self) {
        for (source, received) in self.published.take_sources() {
            let known = self.files.iter_mut().rev();
            let mut known = known.filter(|file| Arc::ptr_eq(&file.source, &source));
            if let Some(file) = known.next() {
                file.received = received.0;
                continue;
            }
            let chunk = source.chunk().id();
            let earlier = self.files.iter().filter(|file| file.chunk == chunk);
            let generation = earlier.map(|file| file.generation + 1).max().unwrap_or(0);
            let mut file = MetadataFile {
                source,
                chunk,
                generation,
                received: received.0,
                committed: 0,
                acknowledged: 0,
                parted: 0,
                is_outdated: false,
            };
            file.follow_known(&self.known, self.is_resumable);
            self.files.push(file);
        }
        let mut later = None;
        for file in self.files.iter_mut().rev() {
            if later == Some(file.chunk) || file.source.chunk().is_deleted() {
                file.give_up();
            }
            later = Some(file.chunk);
        }
    }

    /// The metadata for packets that have no index, newest first.
    pub(super) fn of_packets(&self) -> impl Iterator<Item = PacketMetadata<'_>> {
        let files = self.files.iter().rev().filter(|file| !file.is_outdated);
        files.map(|file| PacketMetadata {
            trace: &self.record.path,
            chunk: file.chunk,
            source: &file.source,
            received: file.received,
        })
    }

    /// Bytes that are in no commit object.
    pub(super) fn pending(&self) -> u64 {
        let pending = self.files.iter().map(|file| file.received - file.committed);
        pending.sum()
    }

    pub(super) fn is_parted(&self) -> bool {
        self.files.iter().all(|file| file.parted == file.received)
    }

    pub(super) fn is_over(&self) -> bool {
        self.published.is_over()
    }

    /// Adds all metadata that is in no commit object. What was added before an error stays in it.
    pub(super) fn commit(
        &mut self,
        object: &mut ObjectWriter,
        chunks: &mut Chunks,
        added: &mut Vec<(StreamKey, Acknowledged)>,
    ) -> io::Result<()> {
        let stream = self.record.stream;
        for file in &mut self.files {
            if file.committed == file.received {
                continue;
            }
            chunks.add(file.source.chunk());
            file.write(stream, file.committed, file.received, object)?;
            file.committed = file.received;
            let (published, source) = (Arc::clone(&self.published), Arc::clone(&file.source));
            let done = Acknowledged::Metadata(published, source, file.received);
            added.push((stream, done));
        }
        Ok(())
    }

    /// Records that metadata is stored.
    pub(super) fn acknowledge(&mut self, source: &Arc<MetadataSource>, bytes: u64) {
        let of_source = |file: &&mut MetadataFile| Arc::ptr_eq(&file.source, source);
        if let Some(file) = self.files.iter_mut().find(of_source) {
            file.acknowledged = file.acknowledged.max(bytes);
        }
    }

    /// Adds the metadata of these chunks to a part, and what is in no part yet: all of it, so that
    /// a part can be read without others.
    pub(super) fn part(
        &self,
        object: &mut ObjectWriter,
        chunks: &mut Chunks,
        used: &[Option<ChunkId>],
    ) -> io::Result<()> {
        let stream = self.record.stream;
        for file in &self.files {
            let is_new = file.parted < file.acknowledged;
            let is_needed = is_new || used.contains(&file.chunk);
            if is_needed && file.acknowledged > 0 && !file.is_outdated {
                chunks.add(file.source.chunk());
                file.write(stream, 0, file.acknowledged, object)?;
            }
        }
        Ok(())
    }

    /// Records that a part has all metadata that is acknowledged.
    pub(super) fn set_parted(&mut self) {
        for file in &mut self.files {
            file.parted = file.acknowledged;
        }
    }

    /// Forgets files that were withdrawn and are in parts, but for the last one of each chunk that
    /// `is_open`: later parts need it.
    pub(super) fn forget_parted(&mut self, is_open: impl Fn(Option<ChunkId>) -> bool) {
        let last = self.files.last().map(|file| Arc::clone(&file.source));
        let is_last = |file: &MetadataFile| {
            last.as_ref()
                .is_some_and(|last| Arc::ptr_eq(last, &file.source))
        };
        self.files
            .retain(|file| is_last(file) || file.parted < file.received || is_open(file.chunk));
    }

    /// The record of the end of the stream.
    pub(super) fn end(&self) -> Option<Record> {
        let next = self.files.last()?.received;
        let stream = self.record.stream;
        Some(Record::StreamEnd { stream, next })
    }
}

impl MetadataFile {
    /// Leaves it out of all further objects.
    fn give_up(&mut self) {
        self.is_outdated = true;
        self.committed = self.received;
        self.acknowledged = self.received;
        self.parted = self.received;
    }

    /// Moves past what the archive has of the file, or begins another generation.
    fn follow_known(&mut self, known: &KnownMetadata, is_resumable: bool) {
        match known.get(&self.chunk) {
            Some(known) if is_resumable => self.skip_known(*known),
            Some(known) => {
                let next = known.generation.saturating_add(1);
                self.generation = self.generation.max(next);
            }
            None => {}
        }
    }

    fn skip_known(&mut self, known: KnownBytes) {
        // One byte is left, whose commit object acknowledges the others.
        let all = known.all.min(self.received.saturating_sub(1));
        self.committed = self.committed.max(all);
        self.acknowledged = self.acknowledged.max(all);
        self.parted = self.parted.max(known.parts.min(all));
    }

    fn write(
        &self,
        stream: StreamKey,
        from: u64,
        to: u64,
        object: &mut ObjectWriter,
    ) -> io::Result<()> {
        let len = usize::try_from((to - from).min(MAX_METADATA_BYTES)).map_err(io::Error::other)?;
        let mut piece = vec![0; len];
        self.source.open()?.read_exact_at(&mut piece, from)?;
        object.add_metadata(
            stream.number,
            self.chunk,
            self.generation,
            Bytes(from),
            &piece,
        )
    }
}

impl Acknowledged {
    /// Lets the producer know that data is in the archive.
    pub(super) fn publish(&self) {
        match self {
            Self::Packets(published, packets) => published.set_archived(*packets),
            Self::Metadata(published, source, bytes) => {
                if published.is_current(source) {
                    published.set_archived(*bytes);
                }
            }
        }
    }
}
