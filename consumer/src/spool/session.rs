//! One session in the spool: which files it has, what is in them, what of it is acknowledged, and
//! which segments can be freed or dropped.

use std::collections::{BTreeMap, VecDeque};
use std::io;

use uuid::Uuid;

use super::disk::Disk;
use super::record::{LogRecord, Positions, SegmentIdentity, StateStep};
use crate::limits::MIN_FREED_SEGMENT_BYTES;
use crate::queue::{SessionDescription, SessionIdentity, StreamKey};

/// The name of the session log in the directory of a session.
pub(super) const LOG_NAME: &str = "session.log";

/// Files and directories of this prefix in the spool's directory are damaged, and kept for people.
pub(super) const QUARANTINE: &str = "quarantine-";

/// A session in the spool.
#[derive(Debug)]
pub(super) struct StoredSession {
    pub(super) description: SessionDescription,
    pub(super) identity: SessionIdentity,
    pub(super) directory: String,
    pub(super) log: LogFile,
    pub(super) segments: BTreeMap<u64, Segment>,
    pub(super) next_segment: u64,
    /// Whether the last segment takes more records.
    pub(super) is_active: bool,
    /// Number of the next step, from 1.
    pub(super) next_step: u64,
    /// Number of the last step in the session log; 0: none.
    pub(super) last_state: u64,
    /// The number of the next packet of each stream that has had one.
    pub(super) next_seqs: BTreeMap<StreamKey, u64>,
    /// The packets of each stream before these are acknowledged.
    pub(super) acknowledged: BTreeMap<StreamKey, u64>,
    /// Whether `acknowledged` has changed since it was recorded in the session log.
    pub(super) has_unrecorded: bool,
    pub(super) reader: ReadPosition,
    /// Whether the frontend has ended the session.
    pub(super) is_ended: bool,
    /// Whether a part of the session log is lost, so that the session is kept for people when it
    /// ends.
    pub(super) is_broken: bool,
    /// Bytes of all files.
    pub(super) bytes: u64,
    /// Files that were written since the last sync, at the durability `interval`.
    pub(super) unsynced: Vec<String>,
}

/// The session log, as it is on disk.
#[derive(Debug, Default)]
pub(super) struct LogFile {
    /// Length in bytes; 0 if the file is not created yet.
    pub(super) length: u64,
    /// Whether the file may have bytes after its length, of a write that has failed.
    pub(super) has_tail: bool,
}

/// A file of packets and beacons.
#[derive(Debug, Default)]
pub(super) struct Segment {
    /// Length of the whole records, in bytes.
    pub(super) length: u64,
    /// Whether the file may have bytes after its length, of a write that has failed.
    pub(super) has_tail: bool,
    /// The packets, as far as they are known: the number of the first one of each stream, and that
    /// after the last one.
    pub(super) packets: BTreeMap<StreamKey, (u64, u64)>,
    /// Whether an earlier process has written it, and it is not read yet: `packets` is not
    /// complete.
    pub(super) is_unknown: bool,
}

impl Segment {
    pub(super) fn add_packet(&mut self, stream: StreamKey, seq: u64) {
        let (_, end) = self.packets.entry(stream).or_insert((seq, seq));
        *end = (*end).max(seq + 1);
    }

    pub(super) fn packets(&self) -> u64 {
        let counts = self.packets.values().map(|(first, end)| end - first);
        // The numbers may come from a file, and a wrong one must not make the sum overflow.
        counts.fold(0, u64::saturating_add)
    }
}

/// How far the steps of a session have been forwarded to the uplink.
#[derive(Debug, Default)]
pub(super) struct ReadPosition {
    /// Number of the segment of the next packet or beacon; of a later one if this is gone.
    pub(super) segment: u64,
    /// Offset in it, in bytes. 0: nothing has been read.
    pub(super) offset: u64,
    /// Steps of the session log that are not forwarded yet.
    pub(super) states: VecDeque<StateEntry>,
    /// The number of the next packet of each stream.
    pub(super) next_seqs: BTreeMap<StreamKey, u64>,
    /// Number of streams that have been added.
    pub(super) streams: u32,
    /// Whether the end of the session was reached.
    pub(super) is_at_end: bool,
    /// The record up to whose end the segment's checksums have been verified.
    pub(super) verified: Option<(u64, u64)>,
    /// Failed attempts to read since the last success.
    pub(super) failures: u32,
}

/// A step of the session log that is not forwarded yet.
#[derive(Debug)]
pub(super) struct StateEntry {
    /// Number of the step.
    pub(super) step: u64,
    pub(super) place: StatePlace,
}

#[derive(Debug)]
pub(super) enum StatePlace {
    Memory(StateStep),
    /// In the session log, which an earlier process has written: offset and length of the record.
    Log {
        offset: u64,
        length: u64,
    },
}

/// Returns the name of a session's directory.
pub(super) fn directory_name(identity: &SessionIdentity) -> String {
    let producer = Uuid::from_bytes(identity.producer).hyphenated();
    format!("{producer}-{}", identity.id)
}

/// Returns the number of the segment of this file name.
pub(super) fn segment_number(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("packets-")?.strip_suffix(".log")?;
    digits
        .parse()
        .ok()
        // There is a next segment.
        .filter(|number| *number < u64::MAX && segment_name(*number) == name)
}

/// Returns the name of a segment's file.
pub(super) fn segment_name(number: u64) -> String {
    format!("packets-{number:08}.log")
}

impl StoredSession {
    /// A session that has no files yet.
    pub(super) fn new(description: SessionDescription, identity: SessionIdentity) -> Self {
        Self {
            description,
            identity,
            directory: directory_name(&identity),
            log: LogFile::default(),
            segments: BTreeMap::new(),
            next_segment: 0,
            is_active: false,
            next_step: 1,
            last_state: 0,
            next_seqs: BTreeMap::new(),
            acknowledged: BTreeMap::new(),
            has_unrecorded: false,
            reader: ReadPosition::default(),
            is_ended: false,
            is_broken: false,
            bytes: 0,
            unsynced: Vec::new(),
        }
    }

    pub(super) fn log_path(&self) -> String {
        format!("{}/{LOG_NAME}", self.directory)
    }

    pub(super) fn segment_path(&self, number: u64) -> String {
        format!("{}/{}", self.directory, segment_name(number))
    }

    pub(super) fn segment_identity(&self, number: u64) -> SegmentIdentity {
        SegmentIdentity {
            producer: self.identity.producer,
            id: self.identity.id,
            number,
        }
    }

    /// Whether everything that was written has been forwarded.
    pub(super) fn is_caught_up(&self) -> bool {
        self.reader.states.is_empty()
            && self
                .segments
                .range(self.reader.segment..)
                .all(|(number, segment)| {
                    *number == self.reader.segment && self.reader.offset >= segment.length
                })
    }

    /// Returns the number of packets that were written and are not acknowledged, as far as they are
    /// known: those of segments that an earlier process has written count when they have been read.
    pub(super) fn unacknowledged(&self) -> u64 {
        self.count_packets_from(&self.acknowledged)
    }

    /// Returns the number of packets that were written and have not been forwarded, as far as they
    /// are known.
    pub(super) fn unforwarded(&self) -> u64 {
        self.count_packets_from(&self.reader.next_seqs)
    }

    /// Counts the packets of all streams from these positions on.
    fn count_packets_from(&self, positions: &BTreeMap<StreamKey, u64>) -> u64 {
        let count = |(stream, (first, end)): (&StreamKey, &(u64, u64))| {
            let before = positions.get(stream).copied().unwrap_or_default();
            end.saturating_sub(before.max(*first))
        };
        let segments = self.segments.values();
        let counts = segments.flat_map(|segment| &segment.packets).map(count);
        counts.fold(0, u64::saturating_add)
    }

    /// Takes positions that the uplink has reported.
    pub(super) fn acknowledge(&mut self, positions: impl IntoIterator<Item = (StreamKey, u64)>) {
        for (stream, before) in positions {
            let position = self.acknowledged.entry(stream).or_default();
            if before > *position {
                *position = before;
                self.has_unrecorded = true;
            }
        }
    }

    /// Records in the session log what has been acknowledged.
    pub(super) fn record_acknowledged(&mut self, disk: &mut impl Disk) -> io::Result<()> {
        if !self.has_unrecorded || self.log.length == 0 {
            return Ok(());
        }
        let positions: Positions = self.acknowledged.clone().into_iter().collect();
        let mut bytes = Vec::new();
        LogRecord::Acknowledged(positions).encode(&mut bytes);
        self.append_to_log(disk, &bytes)?;
        self.has_unrecorded = false;
        Ok(())
    }

    /// Appends records to the session log.
    pub(super) fn append_to_log(&mut self, disk: &mut impl Disk, bytes: &[u8]) -> io::Result<()> {
        let path = self.log_path();
        // The flag is set before the write, whose failure leaves an unknown part of the bytes.
        if std::mem::replace(&mut self.log.has_tail, true) {
            disk.truncate(&path, self.log.length)?;
        }
        disk.write_at(&path, self.log.length, bytes)?;
        self.log.has_tail = false;
        self.log.length += bytes.len() as u64;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Removes the segments whose packets are all acknowledged and forwarded. If
    /// `is_short_of_space`, the segment that is being written as well, however small. If
    /// `is_synced`, a power failure does not forget that they are acknowledged.
    pub(super) fn free_segments(
        &mut self,
        disk: &mut impl Disk,
        is_short_of_space: bool,
        is_synced: bool,
    ) -> io::Result<()> {
        let mut freed = Vec::new();
        for (number, segment) in self.segments.range(..=self.reader.segment) {
            let is_read = *number < self.reader.segment || self.reader.offset >= segment.length;
            let is_large = segment.length >= MIN_FREED_SEGMENT_BYTES || is_short_of_space;
            let is_writing = self.is_active && self.segments.keys().next_back() == Some(number);
            let is_acknowledged = segment.packets.iter().all(|(stream, (_, end))| {
                self.acknowledged.get(stream).copied().unwrap_or_default() >= *end
            });
            if is_read && is_acknowledged && (is_large || !is_writing) {
                freed.push(*number);
            }
        }
        if freed.is_empty() {
            return Ok(());
        }
        // Before the segments, so that their packets are not taken for lost after a crash. On a
        // full disk only the removal makes space for the record.
        let mut recorded = self.record_acknowledged(disk);
        if is_synced {
            recorded = recorded.and_then(|()| disk.sync_file(&self.log_path()));
        }
        for number in freed {
            self.remove_segment(disk, number)?;
        }
        recorded.or_else(|_| self.record_acknowledged(disk))
    }

    /// Returns the oldest segment of which nothing has been forwarded.
    pub(super) fn droppable_segment(&self) -> Option<u64> {
        let mut unread = self.segments.range(self.reader.segment..);
        unread
            .find(|(number, _)| **number > self.reader.segment || self.reader.offset == 0)
            .map(|(number, _)| *number)
    }

    /// Removes a segment with all that is in it. Returns its length in bytes.
    pub(super) fn remove_segment(&mut self, disk: &mut impl Disk, number: u64) -> io::Result<u64> {
        match disk.unlink(&self.segment_path(number)) {
            // An earlier attempt may have removed the file and failed later.
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        Ok(self.forget_segment(number))
    }

    /// Removes a segment whose file is gone. Returns its length in bytes.
    pub(super) fn forget_segment(&mut self, number: u64) -> u64 {
        if self.segments.keys().next_back() == Some(&number) {
            self.is_active = false;
        }
        let segment = self.segments.remove(&number);
        let length = segment.map_or(0, |segment| segment.length);
        self.bytes -= length;
        if self.reader.segment <= number {
            let is_read = self.reader.segment == number;
            if is_read {
                self.reader.segment = number + 1;
                self.reader.offset = 0;
            }
        }
        length
    }

    /// Removes all files of the session, or keeps them for people if they are damaged.
    pub(super) fn remove(&mut self, disk: &mut impl Disk) -> io::Result<()> {
        if self.log.length == 0 && !self.log.has_tail && self.segments.is_empty() {
            return match disk.remove_directory(&self.directory) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            };
        }
        if self.is_broken {
            return disk.rename(&self.directory, &format!("{QUARANTINE}{}", self.directory));
        }
        // A crash in between must not make the packets of removed segments look lost. If this
        // fails, the relay has them nevertheless.
        let _ = self.record_acknowledged(disk);
        // The log last: without it, the directory would be taken for damaged after a crash.
        for entry in disk.list(&self.directory)? {
            if entry.name != LOG_NAME {
                disk.unlink(&format!("{}/{}", self.directory, entry.name))?;
            }
        }
        disk.unlink(&self.log_path())?;
        disk.remove_directory(&self.directory)
    }
}
