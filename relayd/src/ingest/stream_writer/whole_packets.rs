//! Several packets by one write. The small packets of a pipelined producer are read together, and
//! most of the cost of writing one is that of the system call.

use relay_proto::WholePacket;
use wire::SeqNum;

use super::StreamWriter;
use crate::ingest::error::IngestError;
use crate::ingest::index_joiner::IndexJoiner;
use crate::ingest::reorder::Turn;

impl StreamWriter {
    /// Writes packets by one write, and records them. Returns whether it did: if not, none is
    /// written, and each is to be [begun](Self::begin_packet) and written on its own, which also
    /// tells why one cannot be written.
    ///
    /// # Errors
    /// If entries cannot be written. The packets are.
    pub fn write_packets<'a>(
        &mut self,
        packets: impl Iterator<Item = WholePacket<'a>> + Clone,
    ) -> Result<bool, IngestError> {
        let seqs = packets.clone().map(|packet| packet.header.seq);
        if !self.can_write_together(packets.clone()) {
            return Ok(false);
        }
        self.published.set_arriving(true);
        let Ok(places) = self.packets.write_packets(packets) else {
            return Ok(false);
        };
        for (seq, place) in seqs.zip(places) {
            self.record_packet(seq, place)?;
        }
        self.flush_full_batches()?;
        Ok(true)
    }

    /// Whether these packets are the next ones and valid, fit the current tracefile, and nothing
    /// else happens at one of them.
    fn can_write_together<'a>(&self, mut packets: impl Iterator<Item = WholePacket<'a>>) -> bool {
        let is_ready = self.lifecycle.is_open()
            && !self.lifecycle.has_boundary()
            && !self.backpressure.is_paused()
            && self.packets.is_idle()
            && self.skipped.is_empty();
        let (mut next, mut bytes, mut count) = (None, 0, 0);
        let are_valid = packets.all(|WholePacket { header, .. }| {
            let is_next = match next {
                None => self.packets.reorder.turn(header.seq) == Turn::Now,
                Some(next) => header.seq == next,
            };
            next = header.seq.0.checked_add(1).map(SeqNum);
            bytes += header.packet_bytes();
            count += 1;
            is_next
                && header.packet_bytes() > 0
                && !self.is_outdated(header.stream)
                && self.check_packet(&header).is_ok()
        });
        // Otherwise the connection is paused after one of them.
        let have_indexes = |joiner: &IndexJoiner<_>| !joiner.lacks_indexes_after(count);
        is_ready
            && are_valid
            && self.joiner.as_ref().is_none_or(have_indexes)
            && self.packets.files.has_room(bytes)
    }
}
