//! Model check: every interleaving (up to a number of preemptions) and every allowed memory order
//! of a writer and a reader on a ring of two sub-buffers with room for one record each.

#![allow(
    clippy::cast_possible_truncation,
    reason = "sizes and positions of this model are small"
)]

use std::sync::atomic::Ordering;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, fence};
use loom::thread;

use super::*;
use crate::format::{Records, SeverityClass};

const SUB_BUFFER_SIZE: u64 = 32;
const DATA_SIZE: u64 = 2 * SUB_BUFFER_SIZE;

/// A word that loom explores, or one that only the writer uses, which would only add states.
enum ModelWord {
    Shared(AtomicU64),
    WriterOnly(std::sync::atomic::AtomicU64),
}

impl Word for ModelWord {
    fn load(&self, order: Ordering) -> u64 {
        match self {
            Self::Shared(word) => word.load(order),
            Self::WriterOnly(word) => word.load(order),
        }
    }

    fn store(&self, value: u64, order: Ordering) {
        match self {
            Self::Shared(word) => word.store(value, order),
            Self::WriterOnly(word) => word.store(value, order),
        }
    }
}

fn shared() -> ModelWord {
    ModelWord::Shared(AtomicU64::new(0))
}

fn writer_only() -> ModelWord {
    ModelWord::WriterOnly(std::sync::atomic::AtomicU64::new(0))
}

struct ModelRing {
    reserve: ModelWord,
    commit: ModelWord,
    consumed: ModelWord,
    lost: ModelWord,
    data: Vec<AtomicU64>,
    events_before: Vec<AtomicU64>,
}

struct ModelMemory(Arc<ModelRing>);

impl RingMemory for ModelMemory {
    type Word = ModelWord;

    fn reserve(&self) -> &ModelWord {
        &self.0.reserve
    }
    fn commit(&self) -> &ModelWord {
        &self.0.commit
    }
    fn consumed(&self) -> &ModelWord {
        &self.0.consumed
    }
    fn lost_full(&self) -> &ModelWord {
        &self.0.lost
    }
    fn lost_big(&self) -> &ModelWord {
        &self.0.lost
    }
    fn lost_nested(&self) -> &ModelWord {
        &self.0.lost
    }
    fn fence(&self, order: Ordering) {
        fence(order);
    }
    fn write(&mut self, offset: usize, bytes: &[u8]) {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        self.0.data[offset / 8].store(u64::from_le_bytes(word), Ordering::Relaxed);
    }
    fn write_entry(&mut self, index: usize, entry: &SubBufferEntry) {
        self.0.events_before[index].store(entry.events_before, Ordering::Relaxed);
    }
}

fn ring(mode: Mode) -> (Arc<ModelRing>, RingWriter<ModelMemory>) {
    let words = |count| (0..count).map(|_| AtomicU64::new(0)).collect();
    let ring = Arc::new(ModelRing {
        reserve: if mode == Mode::Overwrite {
            shared()
        } else {
            writer_only()
        },
        commit: shared(),
        consumed: shared(),
        lost: writer_only(),
        data: words(DATA_SIZE / 8),
        events_before: words(2),
    });
    let header = RingHeader {
        number: 0,
        sub_buffer_size: SUB_BUFFER_SIZE as u32,
        sub_buffer_count: 2,
        mode,
        severity_class: SeverityClass::Normal,
        tid: 1,
        thread_name: [0; 16],
        created: 0,
    };
    (
        Arc::clone(&ring),
        RingWriter::new(ModelMemory(ring), &header),
    )
}

/// Writes events with the timestamps 1, 2, ...; a lost event takes none.
fn write_events(writer: &mut RingWriter<ModelMemory>, count: u64) {
    for _ in 0..count {
        if writer.begin(0).is_some() {
            let timestamp = writer.events + 1;
            writer.commit(0, 7, 0, timestamp);
        }
    }
}

/// Copies the bytes of one sub-buffer from `position` to `end`.
fn copy(ring: &ModelRing, position: u64, end: u64) -> Vec<u8> {
    let words = (position..end).step_by(8);
    words
        .flat_map(|at| {
            let word = &ring.data[(at % DATA_SIZE / 8) as usize];
            word.load(Ordering::Relaxed).to_le_bytes()
        })
        .collect()
}

/// Returns the timestamps of the records in a copy, each of which must be whole.
fn timestamps(bytes: &[u8], position: u64) -> Vec<u64> {
    Records::new(bytes, position)
        .map(|record| record.expect("a whole record"))
        .map(|record| {
            assert_eq!((record.class, record.event.len()), (7, 16));
            record.timestamp
        })
        .collect()
}

/// Checks a model with at most three preemptions: enough to find each ordering or claim that is
/// left out of the protocol.
fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

#[derive(Default)]
struct DiscardReader {
    position: u64,
    seen: Vec<u64>,
}

impl DiscardReader {
    fn drain(&mut self, ring: &ModelRing) {
        let commit = ring.commit.load(Ordering::Acquire);
        while self.position < commit {
            let end = commit.min((self.position / SUB_BUFFER_SIZE + 1) * SUB_BUFFER_SIZE);
            self.seen
                .extend(timestamps(&copy(ring, self.position, end), self.position));
            self.position = end;
        }
        ring.consumed.store(self.position, Ordering::Release);
    }
}

#[test]
fn discard_mode_shows_every_committed_record_once_and_counts_the_others() {
    const WRITTEN: u64 = 4;
    check(|| {
        let (ring, mut writer) = ring(Mode::Discard);
        let producer = thread::spawn(move || write_events(&mut writer, WRITTEN));
        let mut reader = DiscardReader::default();
        reader.drain(&ring);
        reader.drain(&ring);
        producer.join().unwrap();
        reader.drain(&ring);
        let lost = ring.lost.load(Ordering::Relaxed);
        let expected: Vec<u64> = (1..=WRITTEN - lost).collect();
        assert_eq!(reader.seen, expected);
    });
}

#[test]
fn overwrite_mode_shows_only_whole_records_and_the_overwritten_ones_can_be_counted() {
    const WRITTEN: u64 = 4;
    check(|| {
        let (ring, mut writer) = ring(Mode::Overwrite);
        let producer = thread::spawn(move || write_events(&mut writer, WRITTEN));
        read_overwritten(&ring);
        producer.join().unwrap();
        let (seen, overwritten) = read_overwritten(&ring);
        assert_eq!((seen, overwritten), (vec![3, 4], 2));
    });
}

/// Reads what is whole, oldest first, and the number of events before it.
fn read_overwritten(ring: &ModelRing) -> (Vec<u64>, u64) {
    let commit = ring.commit.load(Ordering::Acquire);
    let from = commit
        .saturating_sub(DATA_SIZE)
        .next_multiple_of(SUB_BUFFER_SIZE);
    let mut copies = Vec::new();
    let mut position = from;
    while position < commit {
        let end = commit.min((position / SUB_BUFFER_SIZE + 1) * SUB_BUFFER_SIZE);
        let index = (position % DATA_SIZE / SUB_BUFFER_SIZE) as usize;
        let events_before = ring.events_before[index].load(Ordering::Relaxed);
        copies.push((position, events_before, copy(ring, position, end)));
        position = end;
    }
    fence(Ordering::Acquire);
    let whole = ring
        .reserve
        .load(Ordering::Relaxed)
        .saturating_sub(DATA_SIZE);
    copies.retain(|(position, ..)| *position >= whole);
    let seen = copies
        .iter()
        .flat_map(|(position, _, bytes)| timestamps(bytes, *position));
    let seen: Vec<u64> = seen.collect();
    let Some((_, overwritten, _)) = copies.first() else {
        return (seen, 0);
    };
    let expected: Vec<u64> = (overwritten + 1..).take(seen.len()).collect();
    assert_eq!(seen, expected);
    (seen, *overwritten)
}
