//! What the reader of a ring returns.

use std::path::Path;

use trace_ring_core::format::{Mode, RING_CONSUMED_OFFSET};

use super::written::*;
use crate::frontend::ring::producer::{Producer, ProducerRing};
use crate::frontend::ring::ring_reader::{RingFault, RingReader, Role};
use crate::frontend::ring::user_budget::UserBudgets;

/// A run directory with a process that has one ring.
pub(super) struct OneRing {
    pub(super) run: tempfile::TempDir,
    pub(super) process: WrittenProcess,
    pub(super) ring: WrittenRing,
}

impl OneRing {
    pub(super) fn new(mode: Mode) -> Self {
        let run = tempfile::tempdir().unwrap();
        let process = WrittenProcess::new(run.path(), 4_000_000);
        let ring = process.ring(0, mode);
        Self { run, process, ring }
    }

    pub(super) fn reader(&self, role: Role) -> RingReader {
        open(&self.process, role).unwrap()
    }

    /// Returns the reader, unless the ring is refused.
    pub(super) fn try_reader(&self, role: Role) -> Option<RingReader> {
        open(&self.process, role)
    }

    pub(super) fn path(&self) -> &Path {
        self.run.path()
    }
}

fn open(process: &WrittenProcess, role: Role) -> Option<RingReader> {
    let run = process.run_directory();
    let mut producer = Producer::open(&run, &process.name, role, &UserBudgets::default()).unwrap();
    producer.update();
    match producer.rings().remove(&0) {
        Some(ProducerRing::Open(reader)) => Some(reader),
        _ => None,
    }
}

/// Returns the numbers of all events that can be read now, and how many are missing before them.
pub(super) fn read(reader: &mut RingReader) -> Result<(Vec<u64>, u64), RingFault> {
    reader.update()?;
    let (mut numbers, mut missing, mut buffer) = (Vec::new(), 0, Vec::new());
    while let Some(chunk) = reader.read_chunk(&mut buffer)? {
        missing += chunk.overwritten;
        let mut records = chunk.records(&buffer);
        for record in &mut records {
            let number = record.fields().first_chunk().copied();
            numbers.push(number.map_or(u64::MAX, u64::from_le_bytes));
        }
        let end = records.end();
        reader.finish_chunk(&chunk, &buffer, end);
    }
    Ok((numbers, reader.take_lost().saturating_add(missing)))
}

#[test]
fn events_are_read_once_and_in_order() {
    let mut one = OneRing::new(Mode::Discard);
    let mut reader = one.reader(Role::Drainer);
    let mut numbers = Vec::new();
    for count in [1, RECORDS - 1, 1, 0, RECORDS + 7] {
        one.ring.write_many(count);
        let (new, lost) = read(&mut reader).unwrap();
        assert_eq!((new.len() as u64, lost), (count, 0));
        numbers.extend(new);
    }
    assert_eq!(numbers, (0..one.ring.events).collect::<Vec<_>>());
    assert_eq!(reader.damaged(), 0);
}

#[test]
fn drainer_that_starts_later_continues_where_the_last_one_was() {
    let mut one = OneRing::new(Mode::Discard);
    one.ring.write_many(10);
    let mut first = one.reader(Role::Drainer);
    assert_eq!(read(&mut first).unwrap().0.len(), 10);
    let point = first.point();
    one.ring.write_many(3);
    first.update().unwrap();
    first.release(&point, false).unwrap();
    assert_eq!(one.ring.word(RING_CONSUMED_OFFSET), 10 * RECORD);
    drop(first);
    let (numbers, lost) = read(&mut one.reader(Role::Drainer)).unwrap();
    assert_eq!((numbers, lost), (vec![10, 11, 12], 0));
}

#[test]
fn losses_that_were_reported_are_not_reported_again_by_the_next_drainer() {
    let mut one = OneRing::new(Mode::Discard);
    one.ring.write();
    one.ring.set(trace_ring_core::format::RING_LOST_OFFSET, 5);
    let mut first = one.reader(Role::Drainer);
    assert_eq!(read(&mut first).unwrap().1, 5);
    first.release(&first.point(), false).unwrap();
    drop(first);
    one.ring
        .set(trace_ring_core::format::RING_LOST_OFFSET + 8, 2);
    let (numbers, lost) = read(&mut one.reader(Role::Drainer)).unwrap();
    assert_eq!((numbers, lost), (vec![], 2));
}

#[test]
fn overwritten_events_are_counted_also_while_no_drainer_runs() {
    let mut one = OneRing::new(Mode::Overwrite);
    one.ring.write_many(10);
    let mut first = one.reader(Role::Drainer);
    read(&mut first).unwrap();
    first.release(&first.point(), false).unwrap();
    drop(first);
    one.ring.write_many(3 * RECORDS * SUB_BUFFERS);
    let (numbers, lost) = read(&mut one.reader(Role::Drainer)).unwrap();
    assert_eq!(numbers.len() as u64 + lost + 10, one.ring.events);
    assert_eq!(numbers.last(), Some(&(one.ring.events - 1)));
}

#[test]
fn observer_reads_what_is_in_the_ring_and_changes_nothing() {
    let mut one = OneRing::new(Mode::Discard);
    one.ring.write_many(RECORDS * SUB_BUFFERS);
    let before = std::fs::read(one.process.path.join("r0")).unwrap();
    // Also what a drainer has taken, as long as no writer can have changed it.
    let (numbers, lost) = read(&mut one.reader(Role::Observer)).unwrap();
    assert_eq!((numbers.len() as u64, lost), (one.ring.events, 0));
    assert_eq!(std::fs::read(one.process.path.join("r0")).unwrap(), before);
}

#[test]
fn record_that_is_longer_than_a_chunk_is_read() {
    use std::fs::OpenOptions;
    use trace_ring_core::format::*;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("r3");
    let header = RingHeader {
        number: 3,
        sub_buffer_size: 1 << 20,
        sub_buffer_count: 2,
        mode: Mode::Discard,
        severity_class: SeverityClass::All,
        tid: 0,
        thread_name: [0; 16],
        created: 0,
    };
    let mut options = OpenOptions::new();
    let file = options
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(&path)
        .unwrap();
    file.set_len(header.file_size()).unwrap();
    let mut ring = WrittenRing {
        file,
        header,
        commit: 0,
        events: 0,
    };
    let head = |position, size| {
        let class = 1;
        let header = RecordHeader {
            size,
            position,
            class,
            tid: 5,
            timestamp: 1,
        };
        header.encode().map(u64::to_le_bytes).concat()
    };
    let size = 600_000;
    ring.put(0, &head(0, size));
    ring.put(u64::from(size), &head(u64::from(size), 24));
    ring.commit = u64::from(size) + 24;
    ring.set(RING_COMMIT_OFFSET, ring.commit);
    let file = OpenOptions::new().read(true).open(&path).unwrap();
    let mut reader = RingReader::open(file, header.file_size(), 3, Role::Drainer);
    assert!(reader.is_err(), "no header yet");
    std::os::unix::fs::FileExt::write_all_at(&ring.file, &header.encode(), 0).unwrap();
    let file = OpenOptions::new().read(true).open(&path).unwrap();
    reader = RingReader::open(file, header.file_size(), 3, Role::Drainer);
    let mut reader = reader.unwrap();
    assert_eq!(read(&mut reader).unwrap().0.len(), 2);
    assert_eq!((reader.unread(), reader.damaged()), (0, 0));
}
