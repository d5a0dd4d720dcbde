//! Rotation of a stream: packets that have an entry stay in the old chunk, the others move to the
//! next one.

use tracing::debug;
use wire::PacketSeqNum;

use super::StreamWriter;
use crate::ingest::error::IngestError;
use crate::ingest::index_joiner::IndexJoiner;
use crate::store::chunk::Holding;

impl StreamWriter {
    /// Begins a rotation: from packet `at` on, by the tracer's count, the stream writes to another
    /// chunk, or to none.
    ///
    /// # Errors
    /// If the stream is closed, a rotation has begun already, or files in the other chunk cannot be
    /// created.
    pub fn begin_rotation(
        &mut self,
        at: PacketSeqNum,
        target: Option<Holding>,
    ) -> Result<(), IngestError> {
        let stream = self.id;
        if self.lifecycle.is_closed() {
            return Err(IngestError::NotOpen {
                stream,
                what: "a rotation",
                state: "was closed",
            });
        }
        if self.lifecycle.is_rotating() {
            return Err(IngestError::Rotating(stream));
        }
        self.flush_entries()?;
        self.lifecycle.begin_rotation(at, target);
        self.rotate_if_due()
    }

    /// Records that the chunk which the stream is about to leave is deleted: no packet from the
    /// boundary on stays there.
    ///
    /// # Errors
    /// If files in the other chunk cannot be created.
    pub fn leave_deleted_chunk(&mut self) -> Result<(), IngestError> {
        self.lifecycle.delete_left_chunk();
        self.rotate_if_due()
    }

    /// Whether ready entries wait until the stream has entered the other chunk, because their
    /// packets move there.
    pub(super) fn holds_entries(&self) -> bool {
        self.lifecycle.holds_first_entry(self.first_tracer_seq())
    }

    /// The tracer's number of the first packet that is ready for its entry.
    fn first_tracer_seq(&self) -> Option<PacketSeqNum> {
        let joiner = self.joiner.as_ref()?;
        joiner.first_ready()?.packet_seq
    }

    /// Enters the other chunk if every packet that stays in the old one has its entry, and none is
    /// in flight.
    pub(super) fn rotate_if_due(&mut self) -> Result<(), IngestError> {
        if self.packets.has_in_flight() {
            // It may be the last packet that stays, or the first that moves: its index decides.
            return Ok(());
        }
        let Some(rotation) = self.lifecycle.take_due_rotation(self.first_tracer_seq()) else {
            return Ok(());
        };
        debug!(stream = %self.id, progress = ?self.lifecycle.progress(), "stream enters another chunk");
        let entered = self.enter_chunk(rotation.target.clone());
        if entered.is_err() {
            // Nothing has moved: the rotation is still due.
            self.lifecycle.restore_rotation(rotation);
        }
        self.or_pause(entered)
    }

    /// Enters another chunk, or leaves the current one for none. Packets that have an entry stay,
    /// the others move along.
    fn enter_chunk(&mut self, target: Option<Holding>) -> Result<(), IngestError> {
        self.beacon_on_disk = None;
        let Some(chunk) = target else {
            self.packets.files.leave_chunk();
            return Ok(());
        };
        self.log_number_in(chunk.id());
        let lifecycle = &self.lifecycle;
        let places = self.joiner.iter_mut().flat_map(IndexJoiner::places_mut);
        let carried = places.filter(|(seq, _)| lifecycle.is_carried_over(*seq));
        let carried = carried.map(|(_, place)| place);
        let entered = self.packets.files.carry_over(carried, chunk);
        entered.map_err(|error| self.store_error(error))
    }
}
