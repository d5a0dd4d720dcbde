//! Arbitrary bytes in a ring and in `meta`: no panic, no endless reading, nothing shown that was
//! not committed.

use std::os::unix::fs::FileExt;

use proptest::prelude::*;
use trace_ring_core::format::{
    META_HEADER_SIZE, Mode, RING_COMMIT_OFFSET, RING_CONSUMED_OFFSET, RING_RESERVE_OFFSET,
};

use super::reader::{OneRing, read};
use super::written::*;
use crate::frontend::ring::classes::read_fields;
use crate::frontend::ring::has_room;
use crate::frontend::ring::meta_reader::MetaReader;
use crate::frontend::ring::producer::{Producer, ProducerRing};
use crate::frontend::ring::ring_reader::Role;
use crate::frontend::ring::user_budget::UserBudgets;
use crate::limits::{MAX_RING_PROCESSES, MAX_RING_PROCESSES_OF_USER, MIN_RING_PROCESSES_OF_USER};

fn mode() -> impl Strategy<Value = Mode> {
    prop_oneof![Just(Mode::Discard), Just(Mode::Overwrite)]
}

/// Values that are likely to be wrong in some way.
fn word() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        0..RING * 3,
        (0..64_u64).prop_map(|bit| 1 << bit),
        (0..4 * SUB_BUFFERS).prop_map(|sub_buffer| sub_buffer * SUB_BUFFER),
        Just(u64::MAX - 7),
    ]
}

/// Reads a ring to its end, and checks that this takes bounded work: no more events than fit into
/// the ring.
fn read_bounded(one: &OneRing, role: Role) {
    let Some(mut reader) = one.try_reader(role) else {
        return;
    };
    for _ in 0..3 {
        match read(&mut reader) {
            Ok((numbers, _)) => assert!(numbers.len() as u64 <= RING / 24),
            Err(_) => return,
        }
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_over_a_valid_ring_do_no_harm(
        mode in mode(),
        events in 0..RECORDS * SUB_BUFFERS,
        scribbles in prop::collection::vec((0..RING + 4096, prop::collection::vec(any::<u8>(), 1..64)), 1..8),
    ) {
        let mut one = OneRing::new(mode);
        one.ring.write_many(events);
        let reader = one.reader(Role::Drainer);
        drop(reader);
        for (offset, bytes) in &scribbles {
            // Not the header: with it, the ring would be refused.
            let offset = (*offset).max(512);
            one.ring.file.write_all_at(bytes, offset).unwrap();
        }
        one.ring.file.set_len(one.ring.header.file_size()).unwrap();
        for role in [Role::Drainer, Role::Observer] {
            read_bounded(&one, role);
        }
    }

    #[test]
    fn arbitrary_control_words_do_no_harm(
        mode in mode(),
        events in 0..3 * RECORDS * SUB_BUFFERS,
        commit in word(),
        reserve in word(),
        consumed in word(),
    ) {
        let mut one = OneRing::new(mode);
        one.ring.write_many(events);
        let mut reader = one.reader(Role::Drainer);
        let _ = read(&mut reader);
        one.ring.set(RING_COMMIT_OFFSET, commit);
        one.ring.set(RING_RESERVE_OFFSET, reserve);
        one.ring.set(RING_CONSUMED_OFFSET, consumed);
        let _ = read(&mut reader);
        let _ = reader.release(&reader.point(), false);
        for role in [Role::Drainer, Role::Observer] {
            read_bounded(&one, role);
        }
    }

    #[test]
    fn every_record_that_is_shown_from_a_damaged_ring_was_written(
        events in 1..RECORDS * SUB_BUFFERS,
        offset in 0..RING,
        byte in any::<u8>(),
    ) {
        let mut one = OneRing::new(Mode::Discard);
        one.ring.write_many(events);
        // One byte of the frames and headers; the fields of a record are as the program has written
        // them.
        let offset = offset / RECORD * RECORD + offset % 8;
        one.ring.put(offset, &[byte]);
        let (mut numbers, missing) = read(&mut one.reader(Role::Drainer)).unwrap();
        // A record that says that it has no fields: it is not what its class says, and is not
        // shown.
        numbers.retain(|number| *number != u64::MAX);
        prop_assert!(numbers.iter().all(|number| *number < events));
        prop_assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]));
        prop_assert!(numbers.len() as u64 + missing <= events);
    }

    #[test]
    fn arbitrary_bytes_in_meta_do_no_harm(
        scribbles in prop::collection::vec((0..META_HEADER_SIZE as u64 + 400, prop::collection::vec(any::<u8>(), 1..64)), 1..8),
        fields in prop::collection::vec(any::<u8>(), 0..64),
    ) {
        let run = tempfile::tempdir().unwrap();
        let process = WrittenProcess::new(run.path(), 1);
        for class in 2..5 {
            process.declare(class);
        }
        let path = process.path.join("meta");
        let file = || std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let mut budget = UserBudgets::default().of_process(0);
        let mut reader = MetaReader::open(file(), &mut budget).unwrap();
        for (offset, bytes) in &scribbles {
            file().write_all_at(bytes, *offset).unwrap();
        }
        let _ = reader.update(&mut budget);
        if let Ok(reader) = MetaReader::open(file(), &mut budget) {
            for class in 0..10 {
                if let Some(class) = reader.class(class) {
                    let _ = read_fields(class, &fields);
                }
            }
        }
    }
}

#[test]
fn ring_that_is_truncated_while_it_is_read_is_given_up() {
    let mut one = OneRing::new(Mode::Discard);
    let mut reader = one.reader(Role::Drainer);
    one.ring.write_many(10);
    reader.update().unwrap();
    one.ring.file.set_len(100).unwrap();
    assert!(reader.read_chunk(&mut Vec::new()).is_err());
    assert!(reader.update().is_err());
}

#[test]
fn commit_that_goes_back_or_too_far_breaks_the_ring() {
    for commit in [RECORD, RING * 100, 10 * RECORD + 1] {
        let mut one = OneRing::new(Mode::Discard);
        let mut reader = one.reader(Role::Drainer);
        one.ring.write_many(10);
        read(&mut reader).unwrap();
        one.ring.set(RING_COMMIT_OFFSET, commit);
        assert!(reader.update().is_err(), "{commit}");
    }
}

#[test]
fn process_with_too_many_rings_has_the_first_ones_read() {
    let run = tempfile::tempdir().unwrap();
    let process = WrittenProcess::new(run.path(), 1);
    let limit = u32::try_from(crate::limits::MAX_RINGS_OF_PROCESS).unwrap();
    for number in 0..limit + 3 {
        process.ring(number, Mode::Discard);
    }
    let directory = process.run_directory();
    let mut producer = Producer::open(
        &directory,
        &process.name,
        Role::Drainer,
        &UserBudgets::default(),
    )
    .unwrap();
    producer.update();
    producer.update();
    assert_eq!(producer.rings().len(), limit as usize);
}

#[test]
fn file_with_a_second_name_is_refused() {
    let run = tempfile::tempdir().unwrap();
    let process = WrittenProcess::new(run.path(), 1);
    process.ring(0, Mode::Discard);
    let directory = process.run_directory();
    let budgets = UserBudgets::default();
    let open = || Producer::open(&directory, &process.name, Role::Drainer, &budgets);
    assert!(open().is_ok());
    let other = run.path().join("2-17-00000000");
    std::fs::create_dir(&other).unwrap();
    std::fs::hard_link(process.path.join("r0"), other.join("r0")).unwrap();
    let mut producer = open().unwrap();
    producer.update();
    assert!(matches!(producer.ring(0), Some(ProducerRing::Closed)));
    std::fs::hard_link(process.path.join("meta"), other.join("meta")).unwrap();
    let refused = open().unwrap_err();
    assert_eq!(refused.to_string(), "it has 2 names");
}

#[test]
fn classes_of_all_processes_of_a_user_take_no_more_than_its_budget() {
    let run = tempfile::tempdir().unwrap();
    let processes = [1, 2, 3].map(|pid| WrittenProcess::new(run.path(), pid));
    for process in &processes {
        process.declare_many(2..5002, 64);
    }
    let directory = processes[0].run_directory();
    let budgets = UserBudgets::default();
    let open = |process: &WrittenProcess| {
        Producer::open(&directory, &process.name, Role::Observer, &budgets).unwrap()
    };
    let known = |producer: &mut Producer| {
        let meta = producer.meta();
        (1..5002).filter(|id| meta.class(*id).is_some()).count()
    };
    let [mut first, mut second] = [&processes[0], &processes[1]].map(open);
    assert_eq!((known(&mut first), first.meta().is_full()), (5001, false));
    // What fits, from the first on; nothing more is read later.
    let fitting = known(&mut second);
    assert!((1000..1500).contains(&fitting), "{fitting}");
    assert!(second.meta().is_full());
    second.update_meta().unwrap();
    assert_eq!(known(&mut second), fitting);
    drop(first);
    assert_eq!(known(&mut open(&processes[2])), 5001);
    // Those who show no events need none.
    let without = Producer::open_without_classes(
        &directory,
        &processes[1].name,
        Role::Observer,
        &UserBudgets::default(),
    );
    assert_eq!(known(&mut without.unwrap()), 0);
}

#[test]
fn user_with_many_processes_leaves_room_for_those_of_others() {
    let all = MAX_RING_PROCESSES;
    assert!(has_room(MAX_RING_PROCESSES_OF_USER - 1, all - 1, false));
    assert!(!has_room(MAX_RING_PROCESSES_OF_USER, all - 1, false));
    assert!(has_room(MAX_RING_PROCESSES_OF_USER, all - 1, true));
    assert!(!has_room(all, all, true));
    for few in 0..MIN_RING_PROCESSES_OF_USER {
        assert!(has_room(few, all, false));
        assert!(!has_room(few, 2 * all, false));
    }
    assert!(!has_room(MIN_RING_PROCESSES_OF_USER, all, false));
}
