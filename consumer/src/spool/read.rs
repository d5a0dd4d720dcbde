//! Forwards the steps of a session to the uplink, in order: those of the session log and those of
//! the segments merged by their numbers. As long as the uplink keeps up, steps are forwarded when
//! they were written, from memory; otherwise they are read back.
//!
//! The numbers of packets that are missing (dropped, or damaged) are noticed at the next packet of
//! the stream, at the beginning of the next segment, or at the end of the stream, and become a gap.

use std::io;

use bytes::Bytes;
use record_log::{Damage, RECORD_HEAD_BYTES, Records};
use thiserror::Error;
use wire::Field;

use super::disk::Disk;
use super::record::{LogRecord, RecordHead, SEGMENT, SegmentRecord, StateStep};
use super::session::{StateEntry, StatePlace, StoredSession};
use super::write::{Batch, BatchEntry, Written};
use crate::limits::SPOOL_TURN_BYTES;
use crate::queue::{Permits, SessionClosed, SpoolSender, Step, StreamKey};

/// Bytes at the beginning of a record: its head, its kind and the numbers of its step.
const PEEKED_BYTES: usize = RECORD_HEAD_BYTES + u32::SIZE + RecordHead::SIZE;

/// Why forwarding has paused.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Another session has its turn; there is more.
    More,
    /// The queue to the uplink has no capacity for the next step of this many bytes.
    NeedsCapacity(usize),
    /// Everything that was written has been forwarded.
    CaughtUp,
    /// The last step has been forwarded.
    Ended,
    /// The uplink has ended the session.
    Closed,
}

/// A step could not be read.
#[derive(Debug, Error)]
pub(super) enum ReadFault {
    #[error(transparent)]
    Disk(#[from] io::Error),
    /// The bytes at the offset in the segment are no record.
    #[error("segment {segment}: damaged at byte {offset}: {damage}")]
    Segment {
        segment: u64,
        offset: u64,
        damage: Damage,
    },
    /// A step of the session log that was there is damaged.
    #[error("the session log is damaged")]
    Log,
}

/// The next record of the segments, before its checksum has been verified.
#[derive(Debug, Clone, Copy)]
struct Peeked {
    segment: u64,
    offset: u64,
    /// Length of the record with its head, in bytes.
    length: u64,
    step: u64,
}

impl StoredSession {
    /// Forwards the steps of a batch that has just been written, if all before it have been
    /// forwarded.
    pub(super) fn forward_written(
        &mut self,
        batch: Batch,
        written: &Written,
        sender: &SpoolSender,
        was_caught_up: bool,
    ) -> Progress {
        let mut progress = Progress::CaughtUp;
        let mut is_direct = was_caught_up;
        if is_direct && batch.has_data() {
            // Nothing before the batch is left to be read. If the batch has begun a segment, the
            // reader skips the record at its beginning; the positions in that record are handled
            // here.
            self.reader.segment = written.segment;
            self.reader.offset = written.offset;
            for &(stream, before) in written.begun.iter().flatten() {
                if self.forward_gap(stream, before, sender).is_err() {
                    return Progress::Closed;
                }
            }
        }
        for entry in batch.entries {
            if is_direct {
                progress = self.forward_entry(&entry, written, sender);
                is_direct = progress == Progress::CaughtUp;
                if is_direct || progress == Progress::Ended {
                    continue;
                }
            }
            // Packets are read back from their segment; of what waits, only the steps of the
            // session log stay in memory.
            if let BatchEntry::State { step, state } = entry {
                self.add_state_entry(step, state);
            }
        }
        match progress {
            // Nothing was tried, because earlier steps are still to be read.
            Progress::CaughtUp if !was_caught_up => Progress::More,
            progress => progress,
        }
    }

    fn forward_entry(
        &mut self,
        entry: &BatchEntry,
        written: &Written,
        sender: &SpoolSender,
    ) -> Progress {
        match entry {
            BatchEntry::State { state, .. } => {
                let weight = state_weight(state);
                match sender.try_acquire(weight) {
                    Some(permits) => self.forward_state(state.clone(), permits, sender),
                    None => Progress::NeedsCapacity(weight),
                }
            }
            BatchEntry::Data { step, seq, end } => {
                let weight = step.weight();
                let Some(permits) = sender.try_acquire(weight) else {
                    return Progress::NeedsCapacity(weight);
                };
                if self
                    .forward_data(step.clone(), *seq, permits, sender)
                    .is_err()
                {
                    return Progress::Closed;
                }
                self.reader.offset = written.offset + end;
                Progress::CaughtUp
            }
        }
    }

    /// Reads steps and forwards them, as far as the capacity of the queue allows it. `permits` were
    /// acquired for the first of them.
    pub(super) fn forward_stored(
        &mut self,
        disk: &mut impl Disk,
        sender: &SpoolSender,
        mut permits: Option<Permits>,
    ) -> Result<Progress, ReadFault> {
        let mut bytes = 0;
        while bytes < SPOOL_TURN_BYTES {
            let next = self.peek(disk)?;
            let state = self
                .reader
                .states
                .front()
                .map(|entry| (entry.step, entry.weight()));
            let (weight, is_state) = match (state, next) {
                (None, None) if self.is_ended => return Ok(Progress::Ended),
                (None, None) => return Ok(Progress::CaughtUp),
                (Some((step, weight)), next) if next.is_none_or(|next| step < next.step) => {
                    // The number of the step decides the order, so it must be right.
                    if let Some(next) = next {
                        self.verify(disk, next)?;
                    }
                    (weight, true)
                }
                (_, Some(next)) => (usize::try_from(next.length).unwrap_or(usize::MAX), false),
                (Some((_, weight)), None) => (weight, true),
            };
            // The next step may be a longer one than that for which the permits were asked: damage
            // may have been found in between, and the segment with that step set aside.
            let given = permits.take().filter(|permits| permits.weight >= weight);
            let Some(permits) = given.or_else(|| sender.try_acquire(weight)) else {
                return Ok(Progress::NeedsCapacity(weight));
            };
            bytes += weight;
            if is_state {
                match self.forward_next_state(disk, permits, sender)? {
                    Progress::CaughtUp => {}
                    progress => return Ok(progress),
                }
            } else if let Some(next) = next
                && self.forward_record(disk, next, permits, sender)?.is_err()
            {
                return Ok(Progress::Closed);
            }
            self.reader.failures = 0;
        }
        Ok(Progress::More)
    }

    /// Finds the next record of the segments.
    fn peek(&mut self, disk: &mut impl Disk) -> Result<Option<Peeked>, ReadFault> {
        loop {
            // The segment of the position may have been dropped or set aside.
            let Some((&number, segment)) = self.segments.range(self.reader.segment..).next() else {
                return Ok(None);
            };
            if number != self.reader.segment {
                self.reader.segment = number;
                self.reader.offset = 0;
            }
            let (offset, length) = (self.reader.offset, segment.length);
            // A file without a byte is no segment that has been read, but one that a crash has
            // left: it goes on to the check of its header, and is repaired.
            if offset >= length && length > 0 {
                if self.segments.range(number + 1..).next().is_none() {
                    return Ok(None);
                }
                self.reader.segment = number + 1;
                self.reader.offset = 0;
                continue;
            }
            let path = self.segment_path(number);
            let mut offset = offset;
            if offset == 0 {
                let mut magic = SEGMENT;
                read_exactly(disk, &path, number, 0, length, &mut magic)?;
                if magic != SEGMENT {
                    return Err(damaged(number, 0, Damage::Corrupt));
                }
                offset = magic.len() as u64;
            }
            let mut head = [0; PEEKED_BYTES];
            read_exactly(disk, &path, number, offset, length, &mut head)?;
            let [l0, l1, l2, l3, ..] = head;
            let body = u64::from(u32::from_le_bytes([l0, l1, l2, l3]));
            let length_of_record = body + RECORD_HEAD_BYTES as u64;
            // Only bytes that count as written are read. A write that has failed may have left
            // more.
            if length_of_record > length - offset {
                return Err(damaged(number, offset, Damage::Torn));
            }
            let mut step = head
                .get(RECORD_HEAD_BYTES + u32::SIZE..)
                .unwrap_or_default();
            let step = u64::read(&mut step).unwrap_or_default();
            return Ok(Some(Peeked {
                segment: number,
                offset,
                length: length_of_record,
                step,
            }));
        }
    }

    /// Returns the number of packets in a segment, for a report: damage in it is not reported here.
    pub(super) fn count_packets(&self, disk: &mut impl Disk, number: u64) -> u64 {
        let Some(segment) = self.segments.get(&number) else {
            return 0;
        };
        if !segment.is_unknown {
            return segment.packets();
        }
        let mut bytes = vec![0; usize::try_from(segment.length).unwrap_or_default()];
        if disk
            .read_at(&self.segment_path(number), 0, &mut bytes)
            .is_err()
        {
            return 0;
        }
        let is_packet = |body: &&[u8]| {
            let record = SegmentRecord::decode(&Bytes::copy_from_slice(body));
            matches!(record, Ok(SegmentRecord::Packet { .. }))
        };
        let records = Records::new(SEGMENT, &bytes);
        records.filter(is_packet).count() as u64
    }

    fn verify(&mut self, disk: &mut impl Disk, next: Peeked) -> Result<(), ReadFault> {
        let place = Some((next.segment, next.offset));
        if self.reader.verified != place {
            self.read_record(disk, next)?;
            self.reader.verified = place;
        }
        Ok(())
    }

    fn read_record(&self, disk: &mut impl Disk, next: Peeked) -> Result<SegmentRecord, ReadFault> {
        let path = self.segment_path(next.segment);
        let corrupt = || damaged(next.segment, next.offset, Damage::Corrupt);
        let body = read_body(disk, &path, next.offset, next.length)?.ok_or_else(corrupt)?;
        let record = SegmentRecord::decode(&body).map_err(|_| corrupt())?;
        let is_first = next.offset == SEGMENT.len() as u64;
        let is_whole = match &record {
            // A checksum is good in a file that was copied or restored under another name, too.
            SegmentRecord::Segment { identity, .. } => {
                is_first && *identity == self.segment_identity(next.segment)
            }
            _ => !is_first,
        };
        if is_whole { Ok(record) } else { Err(corrupt()) }
    }

    fn forward_record(
        &mut self,
        disk: &mut impl Disk,
        next: Peeked,
        permits: Permits,
        sender: &SpoolSender,
    ) -> Result<Result<(), SessionClosed>, ReadFault> {
        let record = self.read_record(disk, next)?;
        let is_usable = record.head().after <= self.last_state;
        let forwarded = match record {
            SegmentRecord::Segment { positions, .. } => positions
                .into_iter()
                .try_for_each(|(stream, before)| self.forward_gap(stream, before, sender)),
            // The session log has lost the step that this one needs. The packet becomes a gap.
            _ if !is_usable => Ok(()),
            SegmentRecord::Packet {
                stream,
                seq,
                index,
                bytes,
                ..
            } => {
                // Of a segment from an earlier process, the packets become known here. It can be
                // freed only when these are acknowledged.
                if let Some(segment) = self.segments.get_mut(&next.segment) {
                    segment.add_packet(stream, seq);
                }
                let step = Step::Packet {
                    stream,
                    bytes,
                    index,
                };
                self.forward_data(step, seq, permits, sender)
            }
            SegmentRecord::Beacon { stream, until, .. } => {
                self.forward_data(Step::Beacon { stream, until }, 0, permits, sender)
            }
        };
        if forwarded.is_ok() {
            self.reader.offset = next.offset + next.length;
        }
        Ok(forwarded)
    }

    /// Forwards a packet or beacon, unless the packet has been acknowledged to an earlier process.
    fn forward_data(
        &mut self,
        step: Step,
        seq: u64,
        permits: Permits,
        sender: &SpoolSender,
    ) -> Result<(), SessionClosed> {
        if let Step::Packet { stream, .. } = step {
            self.forward_gap(stream, seq, sender)?;
            // In a recovered session the numbers begin with those that had been acknowledged.
            let next = self.reader.next_seqs.entry(stream).or_default();
            if seq < *next {
                return Ok(());
            }
            *next = seq + 1;
        }
        sender.forward(permits, step, seq)
    }

    /// Forwards a gap, if packets before a number are missing.
    fn forward_gap(
        &mut self,
        stream: StreamKey,
        before: u64,
        sender: &SpoolSender,
    ) -> Result<(), SessionClosed> {
        let next = self.reader.next_seqs.entry(stream).or_default();
        if before <= *next {
            return Ok(());
        }
        let packets = before - std::mem::replace(next, before);
        // A gap takes no capacity: it stands for many packets.
        let permits = sender.try_acquire(0).ok_or(SessionClosed)?;
        let gap = Step::Gap {
            stream,
            before,
            packets,
        };
        sender.forward(permits, gap, 0)
    }

    fn forward_next_state(
        &mut self,
        disk: &mut impl Disk,
        permits: Permits,
        sender: &SpoolSender,
    ) -> Result<Progress, ReadFault> {
        let state = match self.reader.states.front() {
            None => return Ok(Progress::CaughtUp),
            Some(StateEntry {
                place: StatePlace::Memory(state),
                ..
            }) => state.clone(),
            Some(StateEntry {
                place: StatePlace::Log { offset, length },
                ..
            }) => {
                let body = read_body(disk, &self.log_path(), *offset, *length)?;
                let record = body.and_then(|body| LogRecord::decode(&body).ok());
                let Some(LogRecord::Step(_, state)) = record else {
                    return Err(ReadFault::Log);
                };
                state
            }
        };
        let progress = self.forward_state(state, permits, sender);
        if progress != Progress::Closed {
            self.reader.states.pop_front();
        }
        Ok(progress)
    }

    fn forward_state(
        &mut self,
        state: StateStep,
        permits: Permits,
        sender: &SpoolSender,
    ) -> Progress {
        let mut seq = 0;
        let missing = match &state {
            StateStep::CloseStream { stream, packets } => vec![(*stream, *packets)],
            StateStep::End { positions } => positions.clone(),
            StateStep::AddStream { .. } => {
                let stream = StreamKey(self.reader.streams);
                self.reader.streams += 1;
                // The uplink expects this packet first. Those before it were acknowledged to an
                // earlier process, which may have removed them.
                seq = self
                    .reader
                    .next_seqs
                    .get(&stream)
                    .copied()
                    .unwrap_or_default();
                Vec::new()
            }
            StateStep::AddTrace { .. } | StateStep::Metadata { .. } => Vec::new(),
        };
        for (stream, before) in missing {
            if self.forward_gap(stream, before, sender).is_err() {
                return Progress::Closed;
            }
        }
        match state.into_step() {
            None => {
                self.reader.is_at_end = true;
                Progress::Ended
            }
            Some(step) => match sender.forward(permits, step, seq) {
                Ok(()) => Progress::CaughtUp,
                Err(SessionClosed) => Progress::Closed,
            },
        }
    }
}

impl StateEntry {
    fn weight(&self) -> usize {
        match &self.place {
            StatePlace::Memory(state) => state_weight(state),
            StatePlace::Log { length, .. } => {
                usize::try_from(*length).unwrap_or(usize::MAX) + Step::ENTRY_BYTES
            }
        }
    }
}

fn state_weight(state: &StateStep) -> usize {
    let content = match state {
        StateStep::AddTrace { path } => path.len(),
        StateStep::AddStream { channel, .. } => channel.len(),
        StateStep::Metadata { bytes, .. } => bytes.len(),
        StateStep::CloseStream { .. } | StateStep::End { .. } => 0,
    };
    content + Step::ENTRY_BYTES
}

fn damaged(segment: u64, offset: u64, damage: Damage) -> ReadFault {
    ReadFault::Segment {
        segment,
        offset,
        damage,
    }
}

/// Fills a buffer from a segment of this length; a segment that ends before is torn.
fn read_exactly(
    disk: &mut impl Disk,
    path: &str,
    segment: u64,
    offset: u64,
    length: u64,
    buffer: &mut [u8],
) -> Result<(), ReadFault> {
    if offset + buffer.len() as u64 > length {
        return Err(damaged(segment, offset, Damage::Torn));
    }
    match disk.read_at(path, offset, buffer) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            Err(damaged(segment, offset, Damage::Torn))
        }
        read => Ok(read?),
    }
}

/// Reads a record, and returns its body if that has its checksum. The length must be checked
/// against the file's.
pub(super) fn read_body(
    disk: &mut impl Disk,
    path: &str,
    offset: u64,
    length: u64,
) -> io::Result<Option<Bytes>> {
    let mut record = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    disk.read_at(path, offset, &mut record)?;
    let mut records = Records::of_part(&record);
    let is_whole = records.next().is_some() && records.offset() == record.len();
    let record = Bytes::from(record);
    Ok(is_whole.then(|| record.slice(RECORD_HEAD_BYTES..)))
}
