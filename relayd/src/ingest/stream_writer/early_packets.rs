//! Early packets: how long they wait for missing ones, and when those are given up. No packet that
//! has arrived is lost by that.

use relay_proto::DataHeader;
use tracing::{debug, warn};
use wire::SeqNum;

use super::{Arrival, StreamWriter};
use crate::ingest::error::IngestError;
use crate::ingest::packet_writer::{ConnectionId, PacketWriter};
use crate::ingest::reorder::{EarlyPacket, LostPackets, Turn};
use crate::ingest::reorder_budget::EarlyBuffer;
use crate::store::stream_files::PacketPlace;

impl StreamWriter {
    /// Whether an early packet, of which `bytes` bytes have arrived, must still wait. The packets
    /// that are missing before it are given up if the window is full.
    ///
    /// # Errors
    /// If early packets cannot be written.
    pub fn recheck_early_packet(
        &mut self,
        packet: &DataHeader,
        from: ConnectionId,
        bytes: usize,
    ) -> Result<Arrival, IngestError> {
        if self.is_outdated(packet.stream) {
            return Ok(Arrival::Late);
        }
        self.give_up_missing_while(Some(packet.seq), |packets| packets.reorder.is_full(bytes))?;
        self.place_early_packet(packet, from)
    }

    /// Gives up the packets that are missing before an early packet, because memory is needed. The
    /// packet still waits while the disk has no space.
    ///
    /// # Errors
    /// If early packets cannot be written.
    pub fn hasten_early_packet(
        &mut self,
        packet: &DataHeader,
        from: ConnectionId,
    ) -> Result<Arrival, IngestError> {
        if self.is_outdated(packet.stream) {
            return Ok(Arrival::Late);
        }
        self.give_up_missing_while(Some(packet.seq), |_| true)?;
        self.place_early_packet(packet, from)
    }

    /// Declares the first packet of the stream, unless it has begun or the packet is known.
    /// Otherwise the first one that arrives is taken for it, which is wrong if packets can overtake
    /// each other.
    pub fn declare_first_packet(&mut self, seq: SeqNum) {
        self.packets.reorder.declare_first(seq);
    }

    /// Gives up a packet that its producer has abandoned on this connection, before all of it had
    /// arrived.
    ///
    /// # Errors
    /// Those of [`skip_packets`](Self::skip_packets).
    pub fn abandon_packet(&mut self, seq: SeqNum, from: ConnectionId) -> Result<(), IngestError> {
        if self.packets.is_in_flight(seq, from) {
            self.drop_in_flight();
        }
        self.skip_packets(seq, 1)
    }

    fn place_early_packet(
        &mut self,
        packet: &DataHeader,
        from: ConnectionId,
    ) -> Result<Arrival, IngestError> {
        match self.packets.reorder.turn(packet.seq) {
            Turn::Early => Ok(Arrival::Early),
            Turn::Now | Turn::Over => self.begin_packet(packet, from),
        }
    }

    /// Adds an early packet that has arrived completely, with this header.
    ///
    /// # Errors
    /// If this or another early packet cannot be written.
    pub fn add_early_packet(
        &mut self,
        packet: &DataHeader,
        payload: EarlyBuffer,
    ) -> Result<(), IngestError> {
        if self.is_outdated(packet.stream) {
            return Ok(());
        }
        let early = EarlyPacket {
            seq: packet.seq,
            payload,
            padding: packet.padding_size,
        };
        match self.packets.reorder.turn(early.seq) {
            Turn::Now if !self.packets.has_in_flight() => {
                // The packets before it have arrived meanwhile.
                self.packets.reorder.keep_packet(early);
                self.write_ready_packets()
            }
            Turn::Now => Err(IngestError::Twice {
                stream: self.id,
                seq: early.seq,
            }),
            Turn::Over => self.check_given_up(early.seq),
            Turn::Early => {
                debug!(stream = %self.id, seq = %early.seq, "packet waits for one before it");
                self.tally.count_early();
                self.packets.reorder.keep_packet(early);
                self.count_early_packets();
                self.give_up_missing_while(None, |packets| packets.reorder.is_full(0))
            }
        }
    }

    /// Gives up all missing packets, so that the early packets are written, unless the disk has no
    /// space.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn give_up_missing(&mut self) -> Result<(), IngestError> {
        if self.lifecycle.is_closed() {
            return Ok(());
        }
        self.give_up_missing_while(None, |_| true)?;
        self.flush_entries()
    }

    pub(super) fn give_up_missing_while(
        &mut self,
        arriving: Option<SeqNum>,
        is_needed: impl Fn(&PacketWriter) -> bool,
    ) -> Result<(), IngestError> {
        // While the disk has no space nothing is given up: the missing packet may be the one that
        // waits for space.
        while !self.backpressure.is_paused()
            && is_needed(&self.packets)
            && self.give_up_gap(arriving)?
        {}
        Ok(())
    }

    /// Gives up the packets that are missing before the first early one, and writes the early
    /// packets that are then next in sequence. Returns whether any packet was missing.
    fn give_up_gap(&mut self, arriving: Option<SeqNum>) -> Result<bool, IngestError> {
        let Some(lost) = self.packets.reorder.give_up_missing(arriving) else {
            return Ok(false);
        };
        // The packet in flight is the first of those that are given up.
        self.drop_in_flight();
        self.record_lost(lost);
        self.write_ready_packets()?;
        Ok(true)
    }

    /// Records that packets are lost.
    pub(super) fn record_lost(&mut self, lost: LostPackets) {
        self.tally.count_lost(lost.count());
        if let Some(joiner) = &mut self.joiner {
            joiner.give_up_packets(lost.first, lost.last);
        }
        warn!(
            stream = %self.id,
            first = lost.first.0,
            last = lost.last.0,
            count = lost.count(),
            "packets lost: they have not come, and what came after them is written now"
        );
        self.add_mark(SeqNum(lost.last.0 + 1));
    }

    /// Writes the early packets that are next in sequence.
    pub(super) fn write_ready_packets(&mut self) -> Result<(), IngestError> {
        while let Some(early) = self.packets.take_ready_packet() {
            self.count_early_packets();
            match self.write_early_packet(&early) {
                Err(error) if self.pauses_on(&error) => {
                    // Back to the window, from where the next attempt takes it.
                    self.packets.reorder.keep_packet(early);
                    self.count_early_packets();
                    self.pause(error);
                    return Ok(());
                }
                written => self.record_packet(early.seq, written?)?,
            }
        }
        self.flush_full_batches()
    }

    fn write_early_packet(&mut self, early: &EarlyPacket) -> Result<PacketPlace, IngestError> {
        let data_size = u32::try_from(early.payload.len()).unwrap_or(u32::MAX);
        self.begin_file_for(early.seq, data_size)?;
        let written = self.packets.write_early_packet(early);
        written.map_err(|error| self.store_error(error))
    }

    pub(super) fn count_early_packets(&self) {
        let (packets, bytes) = self.packets.reorder.waiting_packets();
        self.tally.set_waiting(packets as u64, bytes.0);
    }
}
