//! The writer on ordinary memory, read back between the steps.

#![allow(
    clippy::cast_possible_truncation,
    reason = "sizes and positions of these tests are small"
)]

use std::cell::Cell;
use std::rc::Rc;

use super::*;
use crate::format::{Records, SeverityClass};

const SUB_BUFFER_SIZE: u64 = 256;
const COUNT: u64 = 4;
const DATA_SIZE: u64 = SUB_BUFFER_SIZE * COUNT;
/// Bytes that a record of [`write_event`] takes: six fit into a sub-buffer, 16 bytes are left.
const RECORD_SIZE: u64 = 40;

#[derive(Default)]
struct PlainWord(Cell<u64>);

impl Word for PlainWord {
    fn load(&self, _: Ordering) -> u64 {
        self.0.get()
    }
    fn store(&self, value: u64, _: Ordering) {
        self.0.set(value);
    }
}

#[derive(Default)]
struct Words {
    reserve: PlainWord,
    commit: PlainWord,
    consumed: PlainWord,
    full: PlainWord,
    big: PlainWord,
    nested: PlainWord,
    data: Cell<Vec<u8>>,
    entries: Cell<Vec<SubBufferEntry>>,
}

struct PlainMemory(Rc<Words>);

impl RingMemory for PlainMemory {
    type Word = PlainWord;

    fn reserve(&self) -> &PlainWord {
        &self.0.reserve
    }
    fn commit(&self) -> &PlainWord {
        &self.0.commit
    }
    fn consumed(&self) -> &PlainWord {
        &self.0.consumed
    }
    fn lost_full(&self) -> &PlainWord {
        &self.0.full
    }
    fn lost_big(&self) -> &PlainWord {
        &self.0.big
    }
    fn lost_nested(&self) -> &PlainWord {
        &self.0.nested
    }
    fn fence(&self, _: Ordering) {}
    fn write(&mut self, offset: usize, bytes: &[u8]) {
        let mut data = self.0.data.take();
        data[offset..offset + bytes.len()].copy_from_slice(bytes);
        self.0.data.set(data);
    }
    fn write_entry(&mut self, index: usize, entry: &SubBufferEntry) {
        let mut entries = self.0.entries.take();
        entries[index] = *entry;
        self.0.entries.set(entries);
    }
}

fn ring(mode: Mode) -> (Rc<Words>, RingWriter<PlainMemory>) {
    let words = Rc::new(Words::default());
    words.data.set(vec![0; DATA_SIZE as usize]);
    words
        .entries
        .set(vec![SubBufferEntry::default(); COUNT as usize]);
    let header = RingHeader {
        number: 0,
        sub_buffer_size: SUB_BUFFER_SIZE as u32,
        sub_buffer_count: COUNT as u32,
        mode,
        severity_class: SeverityClass::Normal,
        tid: 1,
        thread_name: [0; 16],
        created: 0,
    };
    (
        Rc::clone(&words),
        RingWriter::new(PlainMemory(Rc::clone(&words)), &header),
    )
}

/// Writes an event of [`RECORD_SIZE`] bytes with one field; whether it was written.
fn write_event(writer: &mut RingWriter<PlainMemory>, value: u64) -> bool {
    let Some(offset) = writer.begin(10) else {
        return false;
    };
    writer.write(offset, &value.to_le_bytes());
    writer.write(offset + 8, &[1, 2]);
    writer.commit(10, 3, 0, value * 10);
    true
}

/// Returns the values between two positions, in order.
fn read(words: &Words, mut position: u64, end: u64) -> Vec<u64> {
    let data = words.data.take();
    let mut values = Vec::new();
    while position < end {
        let sub_buffer_end = end.min((position / SUB_BUFFER_SIZE + 1) * SUB_BUFFER_SIZE);
        let start = (position % DATA_SIZE) as usize;
        let bytes = &data[start..start + (sub_buffer_end - position) as usize];
        for record in Records::new(bytes, position) {
            let record = record.unwrap();
            let (value, rest) = record.fields().split_first_chunk().unwrap();
            let value = u64::from_le_bytes(*value);
            assert_eq!(
                (record.class, record.timestamp, rest),
                (3, value * 10, &[1, 2][..])
            );
            values.push(value);
        }
        position = sub_buffer_end;
    }
    words.data.set(data);
    values
}

#[test]
fn events_are_read_back_across_many_turns_of_the_ring() {
    let (words, mut writer) = ring(Mode::Discard);
    let mut expected = 0;
    for value in 0..1000 {
        assert!(write_event(&mut writer, value));
        if value % 7 == 6 {
            let values = read(&words, words.consumed.0.get(), words.commit.0.get());
            assert_eq!(values, (expected..=value).collect::<Vec<_>>());
            expected = value + 1;
            words.consumed.0.set(words.commit.0.get());
        }
    }
    assert_eq!(words.full.0.get(), 0);
}

#[test]
fn a_full_ring_keeps_the_oldest_events_and_counts_every_other_one() {
    let (words, mut writer) = ring(Mode::Discard);
    let written = (0..100)
        .filter(|value| write_event(&mut writer, *value))
        .count() as u64;
    assert_eq!(written, SUB_BUFFER_SIZE / RECORD_SIZE * COUNT);
    assert_eq!(words.full.0.get(), 100 - written);
    assert_eq!(
        read(&words, 0, words.commit.0.get()),
        (0..written).collect::<Vec<_>>()
    );
    words.consumed.0.set(words.commit.0.get());
    assert!(write_event(&mut writer, 100));
    let entry = words.entries.take()[0];
    assert_eq!(
        (entry.sequence, entry.events_before, entry.lost_before.full),
        (5, written, 100 - written)
    );
}

#[test]
fn a_sub_buffer_is_used_again_only_when_the_drainer_has_taken_all_of_it() {
    let (words, mut writer) = ring(Mode::Discard);
    while write_event(&mut writer, 0) {}
    words.consumed.0.set(SUB_BUFFER_SIZE - 8);
    assert!(!write_event(&mut writer, 1));
    words.consumed.0.set(SUB_BUFFER_SIZE);
    assert!(write_event(&mut writer, 1));
}

#[test]
fn a_consumed_position_that_cannot_be_true_makes_no_room() {
    let (words, mut writer) = ring(Mode::Discard);
    while write_event(&mut writer, 0) {}
    let commit = words.commit.0.get();
    for position in [commit + 1, commit + DATA_SIZE, u64::MAX] {
        words.consumed.0.set(position);
        assert!(!write_event(&mut writer, 1), "{position}");
    }
    assert_eq!(words.commit.0.get(), commit);
}

#[test]
fn a_writer_that_laps_the_reader_by_whole_turns_is_noticed_and_the_loss_is_exact() {
    let (words, mut writer) = ring(Mode::Overwrite);
    let per_turn = SUB_BUFFER_SIZE / RECORD_SIZE * COUNT;
    // Three whole turns: position modulo size is where a reader that saw nothing would stand.
    for value in 0..3 * per_turn {
        assert!(write_event(&mut writer, value));
    }
    let whole = words.reserve.0.get() - DATA_SIZE;
    assert_eq!(whole % DATA_SIZE, 0);
    let values = read(&words, whole, words.commit.0.get());
    let entry = words.entries.take()[0];
    assert_eq!(entry.sequence, whole / SUB_BUFFER_SIZE + 1);
    assert_eq!(entry.events_before, 2 * per_turn);
    assert_eq!(values, (2 * per_turn..3 * per_turn).collect::<Vec<_>>());
}

#[test]
fn an_event_larger_than_a_sub_buffer_is_counted_and_harms_no_other() {
    let (words, mut writer) = ring(Mode::Discard);
    assert!(write_event(&mut writer, 1));
    assert!(
        writer
            .begin(SUB_BUFFER_SIZE as usize - MIN_RECORD_SIZE + 1)
            .is_none()
    );
    assert!(writer.begin(usize::MAX).is_none());
    assert!(write_event(&mut writer, 2));
    assert_eq!(words.big.0.get(), 2);
    assert_eq!(read(&words, 0, words.commit.0.get()), [1, 2]);
}

#[test]
fn the_largest_event_takes_a_whole_sub_buffer() {
    let (words, mut writer) = ring(Mode::Discard);
    let size = SUB_BUFFER_SIZE as usize - MIN_RECORD_SIZE;
    let offset = writer.begin(size).unwrap();
    writer.write(offset, &vec![7; size]);
    writer.commit(size, 1, 0, 1);
    assert!(writer.begin(0).is_some());
    writer.commit(0, 1, 0, 2);
    let data = words.data.take();
    let record = Records::new(&data[..SUB_BUFFER_SIZE as usize], 0)
        .next()
        .unwrap()
        .unwrap();
    assert_eq!(record.fields(), vec![7; size]);
    assert_eq!(
        words.commit.0.get(),
        SUB_BUFFER_SIZE + MIN_RECORD_SIZE as u64
    );
}

#[test]
fn remains_of_an_earlier_turn_are_not_taken_for_records() {
    let (words, mut writer) = ring(Mode::Overwrite);
    for value in 0..100 {
        write_event(&mut writer, value);
    }
    let commit = words.commit.0.get();
    let data = words.data.take();
    let stale = &data[(commit % DATA_SIZE) as usize..][..RECORD_SIZE as usize];
    assert!(Records::new(stale, commit).next().unwrap().is_err());
}

#[test]
fn an_event_that_was_begun_but_not_committed_is_invisible() {
    let (words, mut writer) = ring(Mode::Discard);
    write_event(&mut writer, 1);
    let commit = words.commit.0.get();
    let offset = writer.begin(8).unwrap();
    writer.write(offset, &[9; 8]);
    assert_eq!(words.commit.0.get(), commit);
    write_event(&mut writer, 2);
    assert_eq!(read(&words, 0, words.commit.0.get()), [1, 2]);
}
