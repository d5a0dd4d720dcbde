//! Going over to another chunk: what has an entry stays, the rest is taken along.

use tracing::debug;
use wire::PacketSeqNum;

use super::super::error::IngestError;
use super::super::rotation::{Progress, Rotation};
use super::{State, StreamWriter};
use crate::ingest::index_joiner::IndexJoiner;
use crate::store::chunk::Holding;

impl StreamWriter {
    /// See [`DataStream::rotate`](crate::ingest::DataStream::rotate).
    pub(in super::super) fn begin_rotation(
        &mut self,
        at: PacketSeqNum,
        target: Option<Holding>,
    ) -> Result<(), IngestError> {
        if self.state == State::Closed {
            let (stream, state) = (self.id, "was closed");
            return Err(IngestError::NotOpen {
                stream,
                what: "a rotation",
                state,
            });
        }
        // A stream that stopped without a packet may still wait to leave its chunk.
        if self
            .rotation
            .as_ref()
            .is_some_and(|rotation| rotation.target.is_some())
        {
            return Err(IngestError::Rotating(self.id));
        }
        self.flush()?;
        self.rotation = Some(Rotation { at, target });
        self.rotate()
    }

    /// See [`DataStream::leave_deleted`](crate::ingest::DataStream::leave_deleted).
    pub(in super::super) fn leave_deleted(&mut self) -> Result<(), IngestError> {
        let has_nothing = self.progress == Progress::default() && self.under_way.is_none();
        match self.rotation.take_if(|_| has_nothing) {
            Some(rotation) => self.switch(rotation.target),
            None => Ok(()),
        }
    }

    /// Goes over to the other chunk if everything that stays is there.
    pub(super) fn rotate(&mut self) -> Result<(), IngestError> {
        if self.under_way.is_some() {
            // It is either the next to stay or the first to be taken along.
            return Ok(());
        }
        let progress = &self.progress;
        let Some(rotation) = self.rotation.take_if(|rotation| rotation.is_due(progress)) else {
            return Ok(());
        };
        debug!(stream = %self.id, ?progress, "goes over to another chunk");
        let target = rotation.target.clone();
        let switched = self.switch(target);
        if switched.is_err() {
            // Nothing has moved: it is still to be done.
            self.rotation = Some(rotation);
        }
        self.or_wait(switched)
    }

    fn switch(&mut self, target: Option<Holding>) -> Result<(), IngestError> {
        self.beacon_on_disk = None;
        let pivot = self.progress.indexed;
        let switched = match target {
            None => {
                self.files.leave();
                Ok(())
            }
            Some(chunk) => {
                let along = self.joiner.iter_mut().flat_map(IndexJoiner::places);
                let along = along.filter(|(seq, _)| pivot.is_none_or(|pivot| *seq > pivot));
                self.files.carry_over(along.map(|(_, place)| place), chunk)
            }
        };
        switched.map_err(|error| self.store_error(error))
    }
}
