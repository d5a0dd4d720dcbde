//! The owner of one stream while it is written. The writer takes packets, indexes and beacons one
//! at a time, and passes each packet to its parts: [`PacketWriter`] (in sequence to the tracefile),
//! [`IndexJoiner`] (its index), [`Lifecycle`] (rotation and the end), [`Backpressure`] (a full
//! disk), and finally [`Published`] (viewers).

mod closing;
mod early_packets;
mod rewinding;
mod rotating;
mod whole_packets;

use std::sync::Arc;

use relay_proto::DataHeader;
use relay_proto::index::SendIndex;
use tracing::{debug, trace, warn};
use wire::{Bits, Bytes, SeqNum, StreamId, Timestamp};

use super::backpressure::{Backpressure, Resumed};
use super::error::{DiskFullPolicy, IngestError};
use super::index_joiner::{IndexFate, IndexJoiner, ReadyEntry};
use super::lifecycle::Lifecycle;
use super::packet_writer::{ConnectionId, InFlight, PacketWriter};
use super::reorder::{ReorderWindow, Turn};
use crate::limits::{MAX_PACKET_BYTES, MAX_READY_ENTRIES};
use crate::publish::published::Published;
use crate::publish::tally::Tally;
use crate::store::StoreError;
use crate::store::archive_log::StreamNumberLog;
use crate::store::chunk::Holding;
use crate::store::pipe::Pipe;
use crate::store::session_log::{Mark, StreamLog};
use crate::store::stream_files::{PacketPlace, StreamFiles};

/// The way in which the connection handles the bytes of a packet that begins to arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// The packet is the next in sequence: pass the bytes to [`StreamWriter::write_payload`] as
    /// they arrive.
    Direct,
    /// Packets before it are missing: keep the bytes for [`StreamWriter::add_early_packet`].
    Early,
    /// The packet has been given up: drop the bytes.
    Late,
}

/// The state of one stream, and the only way to its files.
#[derive(Debug)]
pub struct StreamWriter {
    id: StreamId,
    published: Arc<Published>,
    tally: Arc<Tally>,
    packets: PacketWriter,
    /// Joins packets with their indexes. None: the producer sends no indexes.
    joiner: Option<IndexJoiner<PacketPlace>>,
    lifecycle: Lifecycle<Holding>,
    backpressure: Backpressure,
    /// The beacon at the end of the current index file. None: no beacon was written, or the file
    /// has changed since.
    beacon_on_disk: Option<Timestamp>,
    /// Number by which the producer names the stream: packets and indexes with another come from a
    /// connection that was lost, and are dropped.
    wire_id: StreamId,
    /// Whether the stream waits for its producer to continue it: packets that still arrive are
    /// dropped, because their indexes will not.
    is_detached: bool,
    /// The log of the session. None: the session is not resumable.
    log: Option<StreamLog>,
    /// The log of numbers for the archive. None: the session is not archived, or is resumable.
    number_log: Option<StreamNumberLog>,
    /// Marks that must be in the log before the next entry is written.
    unlogged: Vec<Mark>,
    /// Ranges of packets that the producer has dropped, each with its end. Packets before them are
    /// still to arrive.
    skipped: Vec<(SeqNum, SeqNum)>,
}

impl StreamWriter {
    /// The writer of a stream that has these files. Without indexes, bytes alone make a packet.
    pub(super) fn new(
        id: StreamId,
        published: Arc<Published>,
        tally: Arc<Tally>,
        files: StreamFiles,
        window: ReorderWindow,
        has_indexes: bool,
        when_full: DiskFullPolicy,
    ) -> Self {
        Self {
            id,
            published,
            tally,
            packets: PacketWriter::new(files, window),
            joiner: has_indexes.then(IndexJoiner::default),
            lifecycle: Lifecycle::default(),
            backpressure: Backpressure::new(when_full),
            beacon_on_disk: None,
            wire_id: id,
            is_detached: false,
            log: None,
            number_log: None,
            unlogged: Vec::new(),
            skipped: Vec::new(),
        }
    }

    // Packets in sequence.

    /// Begins a packet that arrives on this connection.
    ///
    /// # Errors
    /// If the stream cannot have this packet, or its tracefile cannot be begun.
    pub fn begin_packet(
        &mut self,
        packet: &DataHeader,
        from: ConnectionId,
    ) -> Result<Arrival, IngestError> {
        if self.is_outdated(packet.stream) {
            return Ok(Arrival::Late);
        }
        self.check_packet(packet)?;
        let (stream, seq) = (self.id, packet.seq);
        match self.packets.reorder.turn(seq) {
            Turn::Now if !self.packets.has_in_flight() => {
                // A packet that became the next one while the disk was full is still in the window.
                if self.backpressure.is_paused() && self.packets.reorder.has_packet(seq) {
                    return Err(IngestError::Twice { stream, seq });
                }
                let begun = self.begin_file_for(seq, packet.data_size);
                if begun.as_ref().is_err_and(|error| self.pauses_on(error)) {
                    self.packets
                        .keep_unwritten(Some(packet.data_size), &[], None);
                }
                self.or_pause(begun)?;
                // Even if the stream is paused now: the bytes of the packet are kept until its
                // tracefile can be begun.
                self.packets.start_packet(seq, from);
                self.published.set_arriving(true);
                Ok(Arrival::Direct)
            }
            Turn::Early => Ok(Arrival::Early),
            // The packet is in flight already, perhaps on another connection.
            Turn::Now => Err(IngestError::Twice { stream, seq }),
            Turn::Over => self.check_given_up(seq).map(|()| Arrival::Late),
        }
    }

    fn check_packet(&self, packet: &DataHeader) -> Result<(), IngestError> {
        let (stream, seq, size) = (self.id, packet.seq, packet.packet_bytes());
        let state = if self.lifecycle.is_closed() {
            Some("was closed")
        } else if self.packets.files.chunk().is_none() {
            Some("left its chunk")
        } else {
            None
        };
        if let Some(state) = state {
            return Err(IngestError::NotOpen {
                stream,
                what: "a packet",
                state,
            });
        }
        if size > MAX_PACKET_BYTES {
            return Err(IngestError::TooLong { stream, seq, size });
        }
        if seq == SeqNum(u64::MAX) {
            return Err(IngestError::Unnumbered(stream));
        }
        if size == 0 && self.log.is_some() {
            return Err(IngestError::Empty { stream, seq });
        }
        let joiner = self.joiner.as_ref();
        match joiner.and_then(|joiner| joiner.pending_index(seq)) {
            Some(index) => check_size(stream, seq, Bytes(size), index.packet_size),
            None => Ok(()),
        }
    }

    /// Checks a packet whose turn is over. It is no error if the packet was given up.
    fn check_given_up(&self, seq: SeqNum) -> Result<(), IngestError> {
        let stream = self.id;
        let joiner = self.joiner.as_ref();
        if joiner.is_none_or(|joiner| joiner.is_lost(seq)) {
            warn!(%stream, %seq, "packet dropped: it comes after it was given up");
            return Ok(());
        }
        Err(IngestError::Twice { stream, seq })
    }

    /// Writes some bytes of the packet in flight. With `padding` they are the last ones, followed
    /// by that number of zeros. The bytes are dropped if the packet has been given up meanwhile,
    /// because it took too long.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn write_payload(
        &mut self,
        seq: SeqNum,
        from: ConnectionId,
        bytes: &[u8],
        padding: Option<u32>,
    ) -> Result<(), IngestError> {
        if !self.packets.is_in_flight(seq, from) {
            return Ok(());
        }
        if self.packets.has_unwritten() {
            // Written now, they would overtake the bytes that are kept.
            self.packets.keep_unwritten(None, bytes, padding);
            return Ok(());
        }
        let written = match padding {
            None => self
                .packets
                .append_payload(bytes)
                .map_err(|e| self.store_error(e)),
            Some(padding) => self.finish_packet(seq, bytes, padding),
        };
        if written.as_ref().is_err_and(|error| self.pauses_on(error)) {
            self.packets.keep_unwritten(None, bytes, padding);
        }
        self.or_pause(written)
    }

    /// Moves some bytes of the packet in flight, up to `len`, from a pipe to its tracefile. Returns
    /// how many. The others are to be read from the pipe and [written](Self::write_payload), as is
    /// the end of the packet, even if no bytes are left for it.
    pub fn splice_payload(
        &mut self,
        seq: SeqNum,
        from: ConnectionId,
        pipe: &mut Pipe,
        len: usize,
    ) -> usize {
        if !self.packets.is_in_flight(seq, from) || self.packets.has_unwritten() {
            return 0;
        }
        self.packets.splice_payload(pipe, len)
    }

    fn finish_packet(
        &mut self,
        seq: SeqNum,
        bytes: &[u8],
        padding: u32,
    ) -> Result<(), IngestError> {
        let finished = self.packets.finish_packet(seq, bytes, padding);
        let place = finished.map_err(|error| self.store_error(error))?;
        self.record_packet(seq, place)?;
        self.write_ready_packets()
    }

    /// Begins the next tracefile if packet `seq` does not fit the current one.
    fn begin_file_for(&mut self, seq: SeqNum, data_size: u32) -> Result<(), IngestError> {
        let Some(number) = self.packets.files.next_number(data_size) else {
            return Ok(());
        };
        // Entries of the current file are published before the file may be replaced.
        self.flush_entries()?;
        if self.packets.files.next_replaces() {
            self.log_replacing(seq)?;
        }
        let files = &mut self.packets.files;
        if let Some(chunk) = files.chunk().filter(|_| files.next_replaces()) {
            // Before the file is replaced, so that no viewer opens the new one in its place.
            self.published.retire_tracefile(chunk.chunk(), number);
        }
        // The index file of the next tracefile has none.
        self.beacon_on_disk = None;
        let begun = files.begin_next(number);
        begun.map_err(|error| self.store_error(error))?;
        self.add_mark(seq);
        Ok(())
    }

    /// Records that a packet is whole in its tracefile.
    fn record_packet(&mut self, seq: SeqNum, place: PacketPlace) -> Result<(), IngestError> {
        trace!(stream = %self.id, %seq, bytes = place.packet_len().0, "packet written");
        self.tally.count_packet(place.packet_len().0);
        self.log_first_number(seq);
        self.lifecycle.record_packet(seq);
        // An empty packet has no index: an index with packet size 0 is a beacon.
        let joiner = self.joiner.as_mut();
        if let Some(joiner) = joiner.filter(|_| place.packet_len() > Bytes(0)) {
            let stream = self.id;
            let joined = joiner.add_packet(seq, place);
            joined.map_err(|source| IngestError::Pending { stream, source })?;
        }
        if self.joiner.is_none() {
            self.publish_unindexed(seq, place);
        }
        if !self.skipped.is_empty() {
            self.give_up_skipped();
        }
        Ok(())
    }

    /// Publishes a packet of a stream without indexes, for the archive: viewers cannot see it.
    fn publish_unindexed(&mut self, seq: SeqNum, place: PacketPlace) {
        let is_archived = self.published.keeps_seqs() && place.packet_len() > Bytes(0);
        let files = &mut self.packets.files;
        if is_archived && let Some(segment) = files.unindexed_segment(&place) {
            let (offset, len) = (place.offset(), place.packet_len());
            self.published
                .add_unindexed_packet(&segment, seq, offset, len);
        }
    }

    /// Drops the packet in flight if it was arriving on this connection, which has ended.
    pub fn drop_packet_from(&mut self, connection: ConnectionId) {
        if self.packets.is_from(connection) {
            self.drop_in_flight();
        }
    }

    fn drop_in_flight(&mut self) {
        if let Some(seq) = self.packets.drop_in_flight() {
            debug!(stream = %self.id, %seq, "packet dropped: it is incomplete");
        }
    }

    // Indexes and beacons.

    /// Adds an index or a beacon. The entry is written by the next
    /// [`flush_entries`](Self::flush_entries), or before.
    ///
    /// # Errors
    /// If the stream cannot have this index, or entries cannot be written.
    pub fn add_index(&mut self, index: &SendIndex) -> Result<(), IngestError> {
        if self.is_outdated(index.stream) {
            return Ok(());
        }
        if index.packet.is_beacon() {
            return self.add_beacon(index);
        }
        let stream = self.id;
        let seq = index.seq.ok_or(IngestError::Unnumbered(stream))?;
        let is_open = self.lifecycle.is_open();
        let Some(joiner) = self.joiner.as_mut().filter(|_| is_open) else {
            let state = "was closed or said to have none";
            return Err(IngestError::NotOpen {
                stream,
                what: "an index",
                state,
            });
        };
        if let Some(place) = joiner.pending_packet(seq) {
            check_size(stream, seq, place.packet_len(), index.packet.packet_size)?;
        }
        self.published.forget_beacon();
        self.published.set_arriving(true);
        let fate = joiner.add_index(seq, index.packet);
        match fate.map_err(|source| IngestError::Pending { stream, source })? {
            IndexFate::Kept => self.flush_full_batches(),
            IndexFate::Late => {
                debug!(%stream, %seq, "index dropped: its packet is lost");
                Ok(())
            }
        }
    }

    /// Whether so many packets wait for their indexes that no more should be read before these.
    #[must_use]
    pub fn lacks_indexes(&self) -> bool {
        let joiner = self.joiner.as_ref();
        joiner.is_some_and(IndexJoiner::lacks_indexes) && !self.lifecycle.is_closed()
    }

    /// Whether so many indexes wait for their packets that no more should be read before these.
    #[must_use]
    pub fn lacks_packets(&self) -> bool {
        let joiner = self.joiner.as_ref();
        joiner.is_some_and(IndexJoiner::lacks_packets) && !self.lifecycle.is_closed()
    }

    fn add_beacon(&mut self, index: &SendIndex) -> Result<(), IngestError> {
        // Otherwise ready entries would count as pending below.
        self.flush_entries()?;
        // The beacon may have overtaken a packet that is still pending, whose events can be
        // earlier: then it says nothing.
        let has_pending = self
            .joiner
            .as_ref()
            .is_some_and(|joiner| !joiner.is_empty());
        let is_settled = !has_pending && self.packets.is_idle();
        let until = is_settled.then_some(index.packet.end);
        self.published.set_beacon(until, index.packet.class);
        Ok(())
    }

    /// Writes the last beacon to disk, unless it is there already.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write_beacon(&mut self) -> Result<(), StoreError> {
        let beacon = self.published.last_beacon();
        if beacon == self.beacon_on_disk || self.lifecycle.is_closed() {
            return Ok(());
        }
        // Even if the write fails: the next beacon is another attempt, and this one is not retried
        // every second.
        self.beacon_on_disk = beacon;
        beacon.map_or(Ok(()), |until| self.packets.files.write_beacon(until))
    }

    /// Writes the ready entries if they are many, or if a rotation or the end of the stream depends
    /// on them. Otherwise they wait until the connection has handled everything that it has
    /// received and calls [`flush_entries`](Self::flush_entries): one write for many entries.
    fn flush_full_batches(&mut self) -> Result<(), IngestError> {
        let pending = self.joiner.as_ref().map_or(0, IndexJoiner::len);
        let can_wait = self.lifecycle.is_open() && !self.lifecycle.has_boundary();
        if can_wait && pending < MAX_READY_ENTRIES {
            return Ok(());
        }
        self.flush_entries()
    }

    /// Writes the ready entries and publishes their packets to viewers.
    ///
    /// # Errors
    /// If they cannot be written. They stay ready.
    pub fn flush_entries(&mut self) -> Result<(), IngestError> {
        self.rotate_if_due()?;
        while !self.holds_entries()
            && let Some(joiner) = &mut self.joiner
        {
            // With a rotation ahead, one by one: each may be the last that stays in the old chunk.
            let is_single = self.lifecycle.has_boundary();
            let batch = joiner.take_ready_batch(is_single, PacketPlace::shares_tracefile_with);
            if batch.is_empty() {
                break;
            }
            let written = self.write_batch(&batch);
            if let (Err(_), Some(joiner)) = (&written, &mut self.joiner) {
                // The producer was told that the indexes are accepted: none may be dropped,
                // whatever the error.
                joiner.return_batch(batch);
                return self.or_pause(written);
            }
            self.rotate_if_due()?;
        }
        self.close_if_done();
        Ok(())
    }

    /// Writes entries of packets that lie in one tracefile.
    fn write_batch(&mut self, batch: &[ReadyEntry<PacketPlace>]) -> Result<(), IngestError> {
        let Some(ReadyEntry { place, .. }) = batch.first() else {
            return Ok(());
        };
        self.log_marks()?;
        let entries = batch.iter().map(|ready| (ready.place, ready.index));
        let written = self.packets.files.write_entries(place, entries);
        let segment = written.map_err(|error| self.store_error(error))?;
        // The entries were written over the beacon.
        self.beacon_on_disk = None;
        if segment.is_none() {
            let packets = batch.len();
            debug!(stream = %self.id, packets, "index dropped: another tracefile has replaced that of its packet");
        }
        for ReadyEntry { seq, index, place } in batch {
            if let Some(segment) = &segment {
                self.published
                    .add_packet(segment, index.class, *seq, place.end());
            }
            self.lifecycle.record_entry(*seq, index.packet_seq);
        }
        let has_pending = (self.joiner.as_ref()).is_some_and(|joiner| !joiner.is_empty());
        let is_arriving = has_pending || self.packets.has_in_flight();
        self.published.set_arriving(is_arriving);
        Ok(())
    }

    /// Closes the files that can be reopened. Returns whether all are closed.
    pub fn close_files(&mut self) -> bool {
        self.packets.files.close_files()
    }

    // A full disk.

    fn pauses_on(&self, error: &IngestError) -> bool {
        self.backpressure.pauses_on(error)
    }

    fn pause(&mut self, why: IngestError) {
        self.backpressure.pause(why);
        self.tally.set_paused(true);
    }

    /// Pauses the stream if the error allows it. Returns any other error.
    fn or_pause(&mut self, done: Result<(), IngestError>) -> Result<(), IngestError> {
        match done {
            Err(error) if self.pauses_on(&error) => {
                self.pause(error);
                Ok(())
            }
            done => done,
        }
    }

    /// Ends a pause without a retry: what was kept is dropped.
    fn end_pause(&mut self) {
        self.backpressure.end();
        self.packets.drop_unwritten();
        self.tally.set_paused(false);
    }

    /// Retries to write what the disk had no space for.
    ///
    /// # Errors
    /// If it cannot be written for another reason than before.
    pub fn resume(&mut self) -> Result<Resumed, IngestError> {
        if !self.backpressure.is_paused() {
            return Ok(Resumed::Already);
        }
        self.backpressure.begin_retry();
        let written = self.write_kept();
        if self.backpressure.is_paused() {
            written?;
            return Ok(Resumed::No(self.backpressure.take_unreported()));
        }
        let was_reported = self.backpressure.end();
        // Also after an error that ends the session, which is not paused any more.
        self.tally.set_paused(false);
        written?;
        // The producer may have closed the stream during the pause.
        self.close_if_done();
        Ok(Resumed::Yes { was_reported })
    }

    fn write_kept(&mut self) -> Result<(), IngestError> {
        if let Some((kept, InFlight { seq, connection })) = self.packets.take_unwritten() {
            if let Some(data_size) = kept.begins
                && let Err(error) = self.begin_file_for(seq, data_size)
            {
                if self.pauses_on(&error) {
                    self.packets
                        .keep_unwritten(kept.begins, &kept.bytes, kept.padding);
                }
                return self.or_pause(Err(error));
            }
            // None of the bytes may have arrived when the tracefile could not be begun.
            if !kept.bytes.is_empty() || kept.padding.is_some() {
                self.write_payload(seq, connection, &kept.bytes, kept.padding)?;
            }
        }
        if !self.backpressure.is_paused() {
            self.write_ready_packets()?;
            self.flush_entries()?;
        }
        Ok(())
    }

    fn store_error(&self, source: StoreError) -> IngestError {
        // A paused stream retries several times a second: all attempts are one fault.
        if !(self.tally.is_paused() && source.kind().is_transient()) {
            self.packets.files.pool().faults().count(&source);
        }
        IngestError::Store {
            stream: self.id,
            source,
        }
    }
}

/// Checks that a packet has the size, in bits, that its index says.
fn check_size(
    stream: StreamId,
    seq: SeqNum,
    packet: Bytes,
    index: Bits,
) -> Result<(), IngestError> {
    if packet.to_bits() == Some(index) {
        return Ok(());
    }
    Err(IngestError::Size {
        stream,
        seq,
        packet: packet.0,
        index: index.0 / 8,
    })
}
