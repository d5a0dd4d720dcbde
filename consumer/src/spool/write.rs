//! Writes steps to the files of a session: those that the session log keeps first, then packets and
//! beacons to the last segment, each file with one call for all steps of a batch.

use std::collections::{BTreeMap, VecDeque};
use std::io;

use super::disk::Disk;
use super::record::{
    LogRecord, MAX_RECORD_PACKET_BYTES, Positions, RecordHead, SEGMENT, SESSION_LOG, SegmentRecord,
    StateStep,
};
use super::session::{Segment, StateEntry, StatePlace, StoredSession};
use crate::limits::{MAX_SPOOL_BATCH_STEPS, SPOOL_TURN_BYTES};
use crate::queue::{Step, StreamKey};

/// A step that is not written yet.
#[derive(Debug)]
pub(super) enum PendingStep {
    Step(Step),
    /// The frontend has ended the session.
    End,
}

/// Steps as they will be written.
#[derive(Debug, Default)]
pub(super) struct Batch {
    log: Vec<u8>,
    segment: Vec<u8>,
    pub(super) entries: Vec<BatchEntry>,
    /// Number of pending steps that the batch consists of.
    pub(super) steps: usize,
    last_step: u64,
    last_state: u64,
    /// The changed numbers of the next packets.
    next_seqs: BTreeMap<StreamKey, u64>,
    /// Number of packets, and of those that are too long for a record and therefore lost.
    pub(super) packets: u64,
    pub(super) too_long: u64,
    is_end: bool,
}

/// A step of a batch.
#[derive(Debug)]
pub(super) enum BatchEntry {
    State {
        step: u64,
        state: StateStep,
    },
    /// A packet or beacon. `end`: the end of its record in the bytes for the segment.
    Data {
        step: Step,
        seq: u64,
        end: u64,
    },
}

/// Whether a step is written to the session log.
fn is_state(step: &PendingStep) -> bool {
    !matches!(
        step,
        PendingStep::Step(Step::Packet { .. } | Step::Beacon { .. })
    )
}

/// Where the batch was written.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) segment: u64,
    /// Offset of the batch in the segment, in bytes.
    pub(super) offset: u64,
    /// If the batch has begun the segment: the numbers of the next packets at its beginning.
    pub(super) begun: Option<Positions>,
}

impl Batch {
    /// Encodes the first steps of the pending ones.
    pub(super) fn encode(
        session: &StoredSession,
        pending: &VecDeque<PendingStep>,
        max_bytes: usize,
    ) -> Self {
        let mut batch = Self {
            last_step: session.next_step - 1,
            last_state: session.last_state,
            ..Self::default()
        };
        let max_bytes = max_bytes.min(SPOOL_TURN_BYTES);
        for step in pending.iter().take(MAX_SPOOL_BATCH_STEPS) {
            // A kill between the writes of the two files must not leave a step of the session log
            // whose packets are missing. So those that follow packets wait for the next batch.
            if batch.has_data() && is_state(step) {
                break;
            }
            let length = match step {
                PendingStep::Step(step) => step.weight(),
                PendingStep::End => 0,
            };
            // The first step is taken whatever its size: one that is larger than the limit would
            // otherwise never be written.
            if !batch.entries.is_empty() && batch.bytes() + length as u64 > max_bytes as u64 {
                break;
            }
            batch.add(session, step);
            batch.steps += 1;
        }
        batch
    }

    /// Returns the length of all records, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        (self.log.len() + self.segment.len()) as u64
    }

    /// Whether the batch has packets or beacons.
    pub(super) fn has_data(&self) -> bool {
        !self.segment.is_empty()
    }

    fn add(&mut self, session: &StoredSession, pending: &PendingStep) {
        self.last_step += 1;
        let head = RecordHead {
            step: self.last_step,
            after: self.last_state,
        };
        let next_seq = |stream: StreamKey, batch: &Self| {
            let own = batch.next_seqs.get(&stream).copied();
            own.or_else(|| session.next_seqs.get(&stream).copied())
                .unwrap_or_default()
        };
        let step = match pending {
            PendingStep::Step(step) => step,
            PendingStep::End => {
                let mut positions = session.next_seqs.clone();
                // The numbers of the session are those before this batch.
                positions.extend(self.next_seqs.iter());
                let positions = positions.into_iter().collect();
                self.is_end = true;
                return self.add_state(head, StateStep::End { positions });
            }
        };
        // The clone shares the bytes of a packet.
        let (record, seq) = match step.clone() {
            Step::AddTrace { path } => return self.add_state(head, StateStep::AddTrace { path }),
            Step::AddStream {
                trace,
                channel,
                class,
            } => {
                let state = StateStep::AddStream {
                    trace,
                    channel,
                    class,
                };
                return self.add_state(head, state);
            }
            Step::Metadata { trace, bytes } => {
                return self.add_state(head, StateStep::Metadata { trace, bytes });
            }
            Step::CloseStream { stream } => {
                let packets = next_seq(stream, self);
                return self.add_state(head, StateStep::CloseStream { stream, packets });
            }
            // Only the spool makes gaps.
            Step::Gap { .. } => return,
            Step::Packet {
                stream,
                bytes,
                index,
            } => {
                let seq = next_seq(stream, self);
                self.next_seqs.insert(stream, seq + 1);
                self.packets += 1;
                if bytes.len() > MAX_RECORD_PACKET_BYTES {
                    // The number stays used, so that the relay is told of a gap.
                    self.too_long += 1;
                    return;
                }
                let packet = SegmentRecord::Packet {
                    head,
                    stream,
                    seq,
                    index,
                    bytes,
                };
                (packet, seq)
            }
            Step::Beacon { stream, until } => {
                let beacon = SegmentRecord::Beacon {
                    head,
                    stream,
                    until,
                };
                (beacon, 0)
            }
        };
        record.encode(&mut self.segment);
        self.entries.push(BatchEntry::Data {
            step: step.clone(),
            seq,
            end: self.segment.len() as u64,
        });
    }

    fn add_state(&mut self, head: RecordHead, state: StateStep) {
        self.last_state = head.step;
        let record = LogRecord::Step(head, state);
        record.encode(&mut self.log);
        if let LogRecord::Step(_, state) = record {
            let step = head.step;
            self.entries.push(BatchEntry::State { step, state });
        }
    }
}

impl StoredSession {
    /// Writes a batch, and makes it safe against a power failure if `is_synced`. After a failure
    /// nothing of it counts as written.
    pub(super) fn write(
        &mut self,
        disk: &mut impl Disk,
        batch: &Batch,
        segment_bytes: u64,
        is_synced: bool,
    ) -> io::Result<Written> {
        // The directory is made for the first step, so that a session without any leaves nothing.
        if self.log.length == 0 {
            self.create(disk, is_synced)?;
        }
        let log_length = self.log.length;
        if !batch.log.is_empty() {
            self.append_to_log(disk, &batch.log)?;
        }
        let written = self.write_log_and_segment(disk, batch, segment_bytes, is_synced);
        if written.is_err() {
            // The steps of the log are written again with the packets.
            self.bytes -= self.log.length - log_length;
            self.log.length = log_length;
            self.log.has_tail = true;
            return written;
        }
        self.next_step = batch.last_step + 1;
        self.last_state = batch.last_state;
        self.next_seqs.extend(batch.next_seqs.iter());
        self.is_ended |= batch.is_end;
        written
    }

    fn write_log_and_segment(
        &mut self,
        disk: &mut impl Disk,
        batch: &Batch,
        segment_bytes: u64,
        is_synced: bool,
    ) -> io::Result<Written> {
        if !batch.log.is_empty() {
            // Before the packets are written: recovery cannot use a packet without the steps of the
            // log that it needs.
            self.sync_or_note(disk, self.log_path(), is_synced)?;
        }
        let last = self.segments.last_key_value();
        let last = last.filter(|_| self.is_active);
        let (number, offset) = last.map_or((self.next_segment, 0), |(number, segment)| {
            (*number, segment.length)
        });
        if !batch.has_data() {
            let (segment, begun) = (number, None);
            return Ok(Written {
                segment,
                offset,
                begun,
            });
        }
        if offset > 0 && offset + batch.segment.len() as u64 <= segment_bytes {
            let begun = None;
            self.append_to_segment(disk, number, &batch.segment, is_synced)?;
            self.add_packets(number, batch);
            return Ok(Written {
                segment: number,
                offset,
                begun,
            });
        }
        self.is_active = false;
        let number = self.next_segment;
        // These numbers do not include the batch yet, so they are those at the beginning of the
        // segment.
        let positions: Positions = self.next_seqs.clone().into_iter().collect();
        let mut bytes = SEGMENT.to_vec();
        let record = SegmentRecord::Segment {
            head: RecordHead {
                step: self.next_step,
                after: self.last_state,
            },
            identity: self.segment_identity(number),
            positions: positions.clone(),
        };
        record.encode(&mut bytes);
        let offset = bytes.len() as u64;
        bytes.extend_from_slice(&batch.segment);
        self.append_to_segment(disk, number, &bytes, is_synced)?;
        if is_synced && let Err(error) = disk.sync_directory(&self.directory) {
            // It is begun again, from its first byte.
            self.segments.remove(&number);
            self.bytes -= bytes.len() as u64;
            return Err(error);
        }
        self.next_segment += 1;
        self.is_active = true;
        self.add_packets(number, batch);
        Ok(Written {
            segment: number,
            offset,
            begun: Some(positions),
        })
    }

    /// Makes the directory of the session, and its log.
    fn create(&mut self, disk: &mut impl Disk, is_synced: bool) -> io::Result<()> {
        disk.create_directory(&self.directory)?;
        let mut bytes = SESSION_LOG.to_vec();
        LogRecord::Session(self.description.clone(), self.identity).encode(&mut bytes);
        let path = self.log_path();
        // An earlier attempt may have written a part of the record.
        if self.log.has_tail {
            disk.truncate(&path, 0)?;
        }
        disk.write_at(&path, 0, &bytes)
            .inspect_err(|_| self.log.has_tail = true)?;
        self.log.has_tail = false;
        if is_synced {
            disk.sync_file(&path)?;
            // A synced file can be found after a power failure only if its name is synced, and the
            // names of the directories above it.
            disk.sync_directory(&self.directory)?;
            disk.sync_directory("")?;
        }
        self.log.length = bytes.len() as u64;
        self.bytes += self.log.length;
        Ok(())
    }

    fn append_to_segment(
        &mut self,
        disk: &mut impl Disk,
        number: u64,
        bytes: &[u8],
        is_synced: bool,
    ) -> io::Result<()> {
        let path = self.segment_path(number);
        let segment = self.segments.get(&number);
        let (length, has_tail) =
            segment.map_or((0, true), |segment| (segment.length, segment.has_tail));
        // A new segment has no file, unless an attempt to begin it has failed.
        if has_tail {
            match disk.truncate(&path, length) {
                Err(error) if length == 0 && error.kind() == io::ErrorKind::NotFound => {}
                truncated => truncated?,
            }
        }
        if let Some(segment) = self.segments.get_mut(&number) {
            // Until write and sync have succeeded, an unknown part of the bytes may be in the file.
            segment.has_tail = true;
        }
        disk.write_at(&path, length, bytes)?;
        self.sync_or_note(disk, path, is_synced)?;
        let segment = self.segments.entry(number).or_default();
        segment.has_tail = false;
        segment.length += bytes.len() as u64;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    fn sync_or_note(
        &mut self,
        disk: &mut impl Disk,
        path: String,
        is_synced: bool,
    ) -> io::Result<()> {
        if is_synced {
            return disk.sync_file(&path);
        }
        if !self.unsynced.contains(&path) {
            self.unsynced.push(path);
        }
        Ok(())
    }

    fn add_packets(&mut self, number: u64, batch: &Batch) {
        let segment: &mut Segment = self.segments.entry(number).or_default();
        for entry in &batch.entries {
            if let BatchEntry::Data {
                step: Step::Packet { stream, .. },
                seq,
                ..
            } = entry
            {
                segment.add_packet(*stream, *seq);
            }
        }
    }

    /// Numbers packets that are dropped before they are written, so that they are seen as a gap.
    pub(super) fn skip_packet(&mut self, stream: StreamKey) {
        *self.next_seqs.entry(stream).or_default() += 1;
    }

    /// Syncs what was written since the last call that has synced all of it. What fails keeps no
    /// other file from being synced, and nothing is forgotten.
    pub(super) fn sync(&mut self, disk: &mut impl Disk) -> io::Result<()> {
        if self.unsynced.is_empty() {
            return Ok(());
        }
        let mut fault = None;
        self.unsynced.retain(|path| match disk.sync_file(path) {
            // The segment has been freed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => {
                fault.get_or_insert(error);
                true
            }
            // A file that is synced stays in the list until the directories are: without its name,
            // a new file would be lost with all that is in it.
            Ok(()) => true,
        });
        for directory in [&*self.directory, ""] {
            if let Err(error) = disk.sync_directory(directory) {
                fault.get_or_insert(error);
            }
        }
        match fault {
            Some(error) => Err(error),
            None => {
                self.unsynced.clear();
                Ok(())
            }
        }
    }

    /// Adds steps of the session log to those that are to be forwarded.
    pub(super) fn add_state_entry(&mut self, step: u64, state: StateStep) {
        let place = StatePlace::Memory(state);
        self.reader.states.push_back(StateEntry { step, place });
    }
}
