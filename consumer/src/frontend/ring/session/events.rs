//! Reads the records of a ring in pieces, and appends them to the session as events; what cannot be
//! shown counts as missing.

use ctf::write::EventRecord;
use tracing::warn;
use wire::Timestamp;

use super::super::classes::read_fields;
use super::super::producer::ProducerRing;
use super::super::trace::TraceIdentity;
use super::RingSession;
use crate::limits::MAX_RING_TIME_LEAD;
use crate::packetize::{HostClock, PacketizeError};
use crate::queue::SessionClosed;

/// Chunks that are read from a ring before it is another's turn.
const CHUNKS_PER_TURN: usize = 4;

impl RingSession {
    /// Reads a part of one ring, and its losses. Returns whether there is more.
    pub(super) async fn read_ring(&mut self, number: u32) -> Result<bool, SessionClosed> {
        let mut lost = 0_u64;
        let mut has_more = true;
        for _ in 0..CHUNKS_PER_TURN {
            if !self.rate.has_bytes(std::time::Instant::now()) {
                break;
            }
            match self.read_chunk(number).await? {
                Some(missing) => lost = lost.saturating_add(missing),
                None => {
                    has_more = false;
                    break;
                }
            }
            // Nothing in a chunk may have to wait, and other sessions share the thread.
            tokio::task::yield_now().await;
        }
        let Some(ProducerRing::Open(reader)) = self.producer.rings().get_mut(&number) else {
            return Ok(false);
        };
        // The counters are the process's: any number is possible.
        lost = lost.saturating_add(reader.take_lost());
        if lost > 0 {
            self.report_lost(number, lost).await?;
        }
        Ok(has_more)
    }

    /// Reads one chunk, and appends its events. Returns the number of events that are missing, or
    /// `None` if there is nothing to read.
    async fn read_chunk(&mut self, number: u32) -> Result<Option<u64>, SessionClosed> {
        // Taken out, because `append` borrows all of the session. The memory is used again.
        let mut buffer = std::mem::take(&mut self.buffer);
        let Some(ProducerRing::Open(reader)) = self.producer.rings().get_mut(&number) else {
            return Ok(None);
        };
        let chunk = match reader.read_chunk(&mut buffer) {
            Ok(Some(chunk)) => chunk,
            Ok(None) => return Ok(None),
            Err(fault) => {
                self.producer.close_broken(number, &fault);
                return Ok(None);
            }
        };
        self.rate.take(buffer.len());
        let mut missing = chunk.overwritten;
        let mut records = chunk.records(&buffer);
        for record in &mut records {
            if !self.append(number, &record).await? {
                missing += 1;
            }
        }
        let end = records.end();
        if let Some(ProducerRing::Open(reader)) = self.producer.rings().get_mut(&number) {
            reader.finish_chunk(&chunk, &buffer, end);
        }
        self.buffer = buffer;
        Ok(Some(missing))
    }

    /// Appends an event. Returns false if it cannot be shown.
    async fn append(
        &mut self,
        number: u32,
        record: &trace_ring_core::format::Record<'_>,
    ) -> Result<bool, SessionClosed> {
        if self.producer.meta().class(record.class).is_none() {
            // Declared after `meta` was read in this turn, or never.
            let _ = self.producer.update_meta();
        }
        let stream = self.stream(number).await?;
        let thread = match self.producer.ring(number) {
            Some(ProducerRing::Open(reader)) if reader.header().tid != 0 => reader.header().tid,
            _ => record.tid,
        };
        let Some(class) = self.producer.meta().class(record.class) else {
            return Ok(false);
        };
        let Some(fields) = read_fields(class, record.fields()) else {
            return Ok(false);
        };
        let Some(output) = &mut self.output else {
            return Ok(false);
        };
        let values: Vec<_> = fields.iter().map(|field| field.value()).collect();
        let event = EventRecord {
            time: self.identity.checked_time(record.timestamp),
            process: self.identity.pid,
            thread: i32::try_from(thread).unwrap_or(0),
            values: &values,
        };
        if let Some(overload) = &mut self.overload {
            let is_admitted = overload.admits(class.severity, std::time::Instant::now());
            if let Some(step) = overload.take_step() {
                output.append_step(stream, step, event).await?;
            }
            if !is_admitted {
                return Ok(false);
            }
        }
        let metadata = output.packets.metadata();
        let declared = output
            .classes
            .declare(class, metadata, &output.stream_class);
        let declared = match declared {
            Ok(declared) => declared.clone(),
            Err(error) => {
                if !std::mem::replace(&mut output.has_refused_class, true) {
                    let process = self.identity.directory.as_str();
                    warn!(
                        process,
                        "event class not declared: {error}; its events are counted as discarded, and so are \
                         those of further such classes"
                    );
                }
                return Ok(false);
            }
        };
        match output.packets.append(stream, &declared, event).await {
            Ok(()) => Ok(true),
            Err(PacketizeError::Event(_)) => Ok(false),
            Err(PacketizeError::SessionClosed(gone)) => Err(gone),
        }
    }
}

impl TraceIdentity {
    /// Returns the time of an event, cut to the present if it is too far in the future.
    fn checked_time(&self, time: u64) -> Timestamp {
        // The clock of an earlier boot cannot be compared with that of this one.
        if !self.is_of_this_boot {
            return Timestamp(time);
        }
        let now = HostClock::now().0;
        let lead = u64::try_from(MAX_RING_TIME_LEAD.as_nanos()).unwrap_or(0);
        Timestamp(if time > now.saturating_add(lead) {
            now
        } else {
            time
        })
    }
}
