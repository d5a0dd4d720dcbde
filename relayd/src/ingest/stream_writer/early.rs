//! Early packets that can wait no longer, because memory is needed: what is missing before them is
//! given up, and nothing that has arrived is lost.

use relay_proto::DataHeader;

use super::super::error::IngestError;
use super::super::reorder::Turn;
use super::super::stream::{Arrival, ConnectionId};
use super::{State, StreamWriter};

impl StreamWriter {
    /// See [`DataStream::stop_waiting`](crate::ingest::DataStream::stop_waiting).
    pub(in super::super) fn stop_waiting(
        &mut self,
        packet: &DataHeader,
        from: ConnectionId,
    ) -> Result<Arrival, IngestError> {
        // While there is no space nothing is given up: what is missing may be what waits for it.
        while !self.pause.is_paused() && self.give_up(Some(packet.seq))? {}
        match self.reorder.turn(packet.seq) {
            Turn::Early => Ok(Arrival::Early),
            Turn::Now | Turn::Over => self.begin(packet, from),
        }
    }

    /// See [`DataStream::give_up_missing`](crate::ingest::DataStream::give_up_missing).
    pub(in super::super) fn give_up_missing(&mut self) -> Result<(), IngestError> {
        if self.state == State::Closed {
            return Ok(());
        }
        while !self.pause.is_paused() && self.give_up(None)? {}
        self.flush()
    }
}
