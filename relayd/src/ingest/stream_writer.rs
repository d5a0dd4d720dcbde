//! Writes one stream: takes its packets and indexes one at a time, hands them in sequence to the store and to
//! viewers, and rotates or closes the stream when everything before the boundary has come.

mod early;
mod pause;
mod rotating;

use std::sync::Arc;

use relay_proto::DataHeader;
use relay_proto::index::SendIndex;
use tracing::{debug, trace, warn};
use wire::{Bits, Bytes, SeqNum, StreamId, Timestamp};

use super::error::IngestError;
use super::reorder::{EarlyPacket, Reorder, Turn, Window};
use super::rotation::{Progress, Rotation, is_at_or_past};
use super::stream::{Arrival, ConnectionId};
use crate::ingest::index_joiner::{IndexFate, IndexJoiner, ReadyEntry};
use crate::limits::{MAX_PACKET_BYTES, MAX_READY_ENTRIES};
use crate::publish::published::Published;
use crate::publish::tally::Tally;
use crate::store::StoreError;
use crate::store::stream_files::{PacketPlace, StreamFiles};
use pause::Pause;
pub use pause::{Resumed, WhenFull};

/// Where the packets and indexes of one stream come in.
#[derive(Debug)]
pub(super) struct StreamWriter {
    id: StreamId,
    published: Arc<Published>,
    tally: Arc<Tally>,
    reorder: Reorder,
    /// The packet whose bytes go to the file as they come, and the connection that they come on.
    under_way: Option<(SeqNum, ConnectionId)>,
    /// None if the producer sends no indexes.
    joiner: Option<IndexJoiner<PacketPlace>>,
    files: StreamFiles,
    progress: Progress,
    rotation: Option<Rotation>,
    state: State,
    pause: Pause,
    beacon_on_disk: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    /// No index will come any more, and no packet after this one.
    Closing {
        last: Option<SeqNum>,
    },
    Closed,
}

impl StreamWriter {
    /// Of a stream that writes to `files`. Without indexes, bytes alone make a packet.
    pub(super) fn new(
        id: StreamId,
        (published, tally): (Arc<Published>, Arc<Tally>),
        files: StreamFiles,
        window: Window,
        has_indexes: bool,
        when_full: WhenFull,
    ) -> Self {
        Self {
            id,
            published,
            tally,
            reorder: Reorder::new(window),
            under_way: None,
            joiner: has_indexes.then(IndexJoiner::default),
            files,
            progress: Progress::default(),
            rotation: None,
            state: State::Open,
            pause: Pause::new(when_full),
            beacon_on_disk: None,
        }
    }

    // Packets.

    /// Some bytes of the packet that is received directly. With `padding`, the last, and zeros that
    /// follow them.
    pub(super) fn receive(
        &mut self,
        seq: SeqNum,
        from: ConnectionId,
        bytes: &[u8],
        padding: Option<u32>,
    ) -> Result<(), IngestError> {
        if self.under_way != Some((seq, from)) {
            // It took too long and was given up.
            return Ok(());
        }
        if self.has_unwritten() {
            self.keep_unwritten(None, bytes, padding);
            return Ok(());
        }
        let written = match padding {
            None => self
                .files
                .append(bytes)
                .map_err(|error| self.store_error(error)),
            Some(padding) => self.complete(seq, bytes, padding),
        };
        if written.as_ref().is_err_and(|error| self.can_wait(error)) {
            self.keep_unwritten(None, bytes, padding);
        }
        self.or_wait(written)
    }

    /// See [`DataStream::has_to_wait`](super::DataStream::has_to_wait).
    pub(super) fn has_to_wait(
        &mut self,
        packet: &DataHeader,
        from: ConnectionId,
        bytes: usize,
    ) -> Result<Arrival, IngestError> {
        // While there is no space nothing is given up: what is missing may be what waits for it.
        while !self.pause.is_paused()
            && self.reorder.is_full(bytes)
            && self.give_up(Some(packet.seq))?
        {}
        match self.reorder.turn(packet.seq) {
            Turn::Early => Ok(Arrival::Early),
            Turn::Now | Turn::Over => self.begin(packet, from),
        }
    }

    /// The connection has ended in the middle of a packet.
    pub(super) fn connection_ended(&mut self, from: ConnectionId) {
        if self
            .under_way
            .is_some_and(|(_, connection)| connection == from)
        {
            self.abandon();
        }
    }

    /// No data connection is left: what is missing will not come.
    pub(super) fn data_ended(&mut self) -> Result<(), IngestError> {
        if self.state == State::Closed {
            return Ok(());
        }
        while !self.pause.is_paused() && self.give_up(None)? {}
        self.flush()?;
        if self.state != State::Open && !self.pause.is_paused() {
            self.close();
        }
        Ok(())
    }

    pub(super) fn begin(
        &mut self,
        packet: &DataHeader,
        from: ConnectionId,
    ) -> Result<Arrival, IngestError> {
        let (stream, seq, size) = (self.id, packet.seq, packet.packet_bytes());
        let state = match self.state {
            State::Closed => Some("was closed"),
            _ if self.files.chunk().is_none() => Some("left its chunk"),
            _ => None,
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
        let index = self
            .joiner
            .as_ref()
            .and_then(|joiner| joiner.waiting_index(seq));
        if let Some(index) = index {
            same_size(stream, seq, Bytes(size), index.packet_size)?;
        }
        match self.reorder.turn(seq) {
            Turn::Now if self.under_way.is_none() => {
                if self.pause.is_paused() && self.reorder.has_packet(seq) {
                    return Err(IngestError::Twice { stream, seq });
                }
                let begun = self.begin_file_for(packet.data_size);
                if begun.as_ref().is_err_and(|error| self.can_wait(error)) {
                    self.keep_unwritten(Some(packet.data_size), &[], None);
                }
                self.or_wait(begun)?;
                self.under_way = Some((seq, from));
                Ok(Arrival::Direct)
            }
            Turn::Early => Ok(Arrival::Early),
            Turn::Now => Err(IngestError::Twice { stream, seq }),
            Turn::Over => self.over(seq).map(|()| Arrival::Late),
        }
    }

    /// A packet has come whose turn is over: no error if it had been given up.
    fn over(&self, seq: SeqNum) -> Result<(), IngestError> {
        let stream = self.id;
        if self
            .joiner
            .as_ref()
            .is_none_or(|joiner| joiner.is_lost(seq))
        {
            warn!(%stream, %seq, "packet dropped: it comes after it was given up");
            return Ok(());
        }
        Err(IngestError::Twice { stream, seq })
    }

    /// Goes to the next tracefile if a packet does not fit this one.
    fn begin_file_for(&mut self, data_size: u32) -> Result<(), IngestError> {
        let Some(number) = self.files.next_number(data_size) else {
            return Ok(());
        };
        // What viewers may see of a file, they may before it goes.
        self.flush()?;
        if let Some(chunk) = self.files.chunk().filter(|_| self.files.replaces(number)) {
            // Before the file goes, so that no viewer opens the new one in its place.
            self.published.retire(chunk.chunk(), number);
        }
        self.beacon_on_disk = None;
        self.files
            .begin_next(number)
            .map_err(|error| self.store_error(error))
    }

    /// The bytes of the packet under way are all there.
    fn complete(&mut self, seq: SeqNum, bytes: &[u8], padding: u32) -> Result<(), IngestError> {
        let place = self
            .files
            .finish(bytes, padding)
            .map_err(|error| self.store_error(error))?;
        self.under_way = None;
        self.passed(seq, place)?;
        self.take_waiting()
    }

    /// The packets whose turn has come while they waited.
    fn take_waiting(&mut self) -> Result<(), IngestError> {
        while self.under_way.is_none() {
            let Some(early) = self.reorder.take_ready_packet() else {
                break;
            };
            self.count_waiting();
            let place = match self.write_early(&early) {
                Err(error) if self.can_wait(&error) => {
                    self.reorder.keep_packet(early);
                    self.count_waiting();
                    self.wait(error);
                    return Ok(());
                }
                written => written?,
            };
            self.passed(early.seq, place)?;
        }
        self.flush_soon()
    }

    fn write_early(&mut self, early: &EarlyPacket) -> Result<PacketPlace, IngestError> {
        self.begin_file_for(u32::try_from(early.payload.len()).unwrap_or(u32::MAX))?;
        let written = self.files.finish(&early.payload, early.padding);
        written.map_err(|error| self.store_error(error))
    }

    fn passed(&mut self, seq: SeqNum, place: PacketPlace) -> Result<(), IngestError> {
        trace!(stream = %self.id, %seq, bytes = place.packet_len().0, "packet written");
        self.tally.written(place.packet_len().0);
        self.reorder.advance_past(seq);
        self.progress.data = Some(seq);
        // A packet of no bytes has no index either: that would be a beacon.
        if let Some(joiner) = self
            .joiner
            .as_mut()
            .filter(|_| place.packet_len() > Bytes(0))
        {
            let taken = joiner.data(seq, place);
            taken.map_err(|source| IngestError::Pending {
                stream: self.id,
                source,
            })?;
        }
        Ok(())
    }

    pub(super) fn keep(&mut self, early: EarlyPacket) -> Result<(), IngestError> {
        match self.reorder.turn(early.seq) {
            Turn::Now if self.under_way.is_none() => {
                // What comes before it has come meanwhile.
                self.reorder.keep_packet(early);
                self.take_waiting()
            }
            Turn::Now => Err(IngestError::Twice {
                stream: self.id,
                seq: early.seq,
            }),
            Turn::Over => self.over(early.seq),
            Turn::Early => {
                debug!(stream = %self.id, seq = %early.seq, "packet waits for one before it");
                self.reorder.keep_packet(early);
                self.count_waiting();
                while !self.pause.is_paused() && self.reorder.is_full(0) {
                    if !self.give_up(None)? {
                        break;
                    }
                }
                Ok(())
            }
        }
    }

    /// Gives up the packets missing before the first that waits, and writes those that then can be.
    /// Gives whether there were any.
    fn give_up(&mut self, arriving: Option<SeqNum>) -> Result<bool, IngestError> {
        let Some(lost) = self.reorder.give_up_missing(arriving) else {
            return Ok(false);
        };
        self.abandon();
        self.tally.lost(lost.count());
        if let Some(joiner) = &mut self.joiner {
            joiner.lost(lost.first, lost.last);
        }
        warn!(
            stream = %self.id,
            first = lost.first.0,
            last = lost.last.0,
            count = lost.count(),
            "packets lost: they have not come, and what came after them is written now"
        );
        self.take_waiting()?;
        Ok(true)
    }

    fn count_waiting(&self) {
        let (packets, bytes) = self.reorder.waiting_packets();
        self.tally.waiting(packets as u64, bytes.0);
    }

    fn abandon(&mut self) {
        if let Some((seq, _)) = self.under_way.take() {
            debug!(stream = %self.id, %seq, "packet dropped: it did not come to its end");
            self.drop_unwritten();
            self.files.abandon();
        }
    }

    // Indexes.

    pub(super) fn index(&mut self, index: &SendIndex) -> Result<(), IngestError> {
        let stream = self.id;
        let seq = index.seq.ok_or(IngestError::Unnumbered(stream))?;
        let (State::Open, Some(joiner)) = (self.state, &mut self.joiner) else {
            let state = "was closed or said to have none";
            return Err(IngestError::NotOpen {
                stream,
                what: "an index",
                state,
            });
        };
        if let Some(place) = joiner.waiting_data(seq) {
            same_size(stream, seq, place.packet_len(), index.packet.packet_size)?;
        }
        self.published.forget_beacon();
        let fate = joiner.index(seq, index.packet);
        match fate.map_err(|source| IngestError::Pending { stream, source })? {
            IndexFate::Kept => self.flush_soon(),
            IndexFate::Late => {
                debug!(%stream, %seq, "index dropped: its packet is lost");
                Ok(())
            }
        }
    }

    pub(super) fn beacon(&mut self, index: &SendIndex) -> Result<(), IngestError> {
        self.flush()?;
        // It may have overtaken a packet of which only half is there.
        let is_settled = self.joiner.as_ref().is_none_or(IndexJoiner::is_empty)
            && self.under_way.is_none()
            && self.reorder.is_empty();
        let until = is_settled.then_some(index.packet.end);
        self.published.beacon(until, index.packet.class);
        Ok(())
    }

    /// Puts the last beacon on disk, unless it is there.
    pub(super) fn write_beacon(&mut self) -> Result<(), StoreError> {
        let beacon = self.published.last_beacon();
        if beacon == self.beacon_on_disk || self.state == State::Closed {
            return Ok(());
        }
        self.beacon_on_disk = beacon;
        beacon.map_or(Ok(()), |until| self.files.beacon(until))
    }

    /// Closes the files that can be opened again. Gives whether all are closed.
    pub(super) fn close_files(&mut self) -> bool {
        self.files.close_files()
    }

    /// Entries may have become due: they are written together with those that become due while the
    /// connection is at what it has received, which then calls [`flush`](Self::flush).
    fn flush_soon(&mut self) -> Result<(), IngestError> {
        let joiner = self.joiner.as_ref().map_or(0, IndexJoiner::len);
        if self.state == State::Open && self.rotation.is_none() && joiner < MAX_READY_ENTRIES {
            return Ok(());
        }
        self.flush()
    }

    /// Writes the entries that are due, and lets viewers see the packets.
    pub(super) fn flush(&mut self) -> Result<(), IngestError> {
        while let Some(first) = self.next_due(|_| true) {
            let place = first.place;
            let mut batch = vec![first];
            // With a rotation ahead, each may be the last that stays.
            while self.rotation.is_none()
                && let Some(next) = self.next_due(|next| next.is_beside(&place))
            {
                batch.push(next);
            }
            match self.write_entries(&place, &batch) {
                Ok(()) => {}
                // The entries have been answered: none of them may be dropped, whatever the error.
                Err(error) => {
                    if let Some(joiner) = &mut self.joiner {
                        batch.into_iter().rev().for_each(|due| joiner.not_yet(due));
                    }
                    return self.or_wait(Err(error));
                }
            }
            self.rotate()?;
        }
        self.rotate()?;
        self.close_if_done();
        Ok(())
    }

    fn next_due(
        &mut self,
        is_wanted: impl Fn(&PacketPlace) -> bool,
    ) -> Option<ReadyEntry<PacketPlace>> {
        self.joiner.as_mut()?.next_ready_if(is_wanted)
    }

    /// Writes the entries of packets that lie beside this place.
    fn write_entries(
        &mut self,
        place: &PacketPlace,
        batch: &[ReadyEntry<PacketPlace>],
    ) -> Result<(), IngestError> {
        let entries = batch.iter().map(|due| (due.place, due.index));
        let segment = self
            .files
            .index(place, entries)
            .map_err(|error| self.store_error(error))?;
        self.beacon_on_disk = None;
        if segment.is_none() {
            let packets = batch.len();
            debug!(stream = %self.id, packets, "index dropped: another tracefile has replaced that of its packet");
        }
        for ReadyEntry { seq, index, place } in batch {
            if let Some(segment) = &segment {
                self.published.packet(segment, index.class, place.end());
            }
            self.progress.indexed = Some(*seq);
            self.progress.tracer_seq = index.packet_seq.or(self.progress.tracer_seq);
        }
        Ok(())
    }

    // Whether everything has come, and the end.

    /// Whether something up to `last` is under way. Numbers wrap around, "none" is 2^64-1, and the
    /// lower of the two numbers decides, as with the reference. An index that has been answered and is
    /// not in its file is under way as well, also if no entry has been written before.
    pub(super) fn is_pending(&mut self, last: Option<SeqNum>) -> bool {
        if let Err(error) = self.flush() {
            warn!(stream = %self.id, %error, "index entries not written: reported as pending");
        }
        let number = |seq: Option<SeqNum>| seq.map_or(u64::MAX, |seq| seq.0);
        let first_unwritten = self.joiner.as_ref().and_then(IndexJoiner::first_index);
        if first_unwritten.is_some_and(|seq| is_at_or_past(number(last), seq.0)) {
            return true;
        }
        let data = number(self.progress.data);
        let reached = match self.joiner {
            Some(_) => data.min(number(self.progress.indexed)),
            None => data,
        };
        !is_at_or_past(reached, number(last))
    }

    /// No packet after `last` will come, and no index at all.
    ///
    /// # Errors
    /// If entries that are due cannot be written. The stream stays open then.
    pub(super) fn close_after(&mut self, last: Option<SeqNum>) -> Result<(), IngestError> {
        if self.state == State::Open {
            self.flush()?;
            self.state = State::Closing { last };
            self.close_if_done();
        }
        Ok(())
    }

    fn close_if_done(&mut self) {
        let State::Closing { last } = self.state else {
            return;
        };
        if self.pause.is_paused() {
            // What is kept comes first.
            return;
        }
        let has_data = match (self.progress.data, last) {
            (_, None) => true,
            (None, Some(_)) => false,
            (Some(data), Some(last)) => data >= last,
        };
        if has_data && !self.joiner.as_ref().is_some_and(IndexJoiner::awaits_data) {
            self.close();
        }
    }

    /// Nothing is waited for any more.
    pub(super) fn close(&mut self) {
        if self.state == State::Closed {
            return;
        }
        self.state = State::Closed;
        let is_cut = self.has_unwritten();
        self.end_pause();
        self.abandon();
        self.rotation = None;
        if let Err(error) = self.write_the_rest() {
            warn!(stream = %self.id, %error, "packets are missing at the end of the stream");
        }
        if is_cut || self.pause.is_paused() {
            warn!(stream = %self.id, "the stream ends while there is no space on the disk: what waited is lost");
        }
        self.end_pause();
        let unindexed = self.files.give_up_indexes();
        if unindexed > 0 {
            warn!(stream = %self.id, unindexed, "packets at the end have no index");
        }
        self.files.leave();
        self.published.end();
    }

    /// Writes what waits for nothing but what will not come any more.
    fn write_the_rest(&mut self) -> Result<(), IngestError> {
        self.take_waiting()?;
        while !self.pause.is_paused() && self.give_up(None)? {}
        if let Some(joiner) = &mut self.joiner {
            joiner.drop_data();
        }
        self.flush()
    }

    fn store_error(&self, source: StoreError) -> IngestError {
        // While it waits it tries again and again.
        if !(self.tally.is_paused() && source.kind().is_transient()) {
            self.files.pool().faults().count(&source);
        }
        IngestError::Store {
            stream: self.id,
            source,
        }
    }
}

/// The index of a packet says how long the packet is, in bits.
fn same_size(stream: StreamId, seq: SeqNum, packet: Bytes, index: Bits) -> Result<(), IngestError> {
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
