//! Rings of many threads, and of threads that end.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::FileExt;

use trace_ring_core::format::*;

use crate::producer::Producer;
use crate::reader::{list_directories, read_process};

#[test]
fn threads_beyond_the_limit_share_one_ring_and_lose_nothing() {
    let mut producer = Producer::start("threads", &[("THREADS", "70")]);
    producer.wait_for("written");
    let process = producer.read();
    assert_eq!(process.rings_of(SeverityClass::Normal).len(), 64);
    let [shared] = &process.rings_of(SeverityClass::All)[..] else {
        panic!("one shared ring")
    };
    let tids: HashSet<u32> = shared.events.iter().map(|event| event.tid).collect();
    assert_eq!((tids.len(), shared.header.tid), (6, 0));
    assert_eq!((process.event_count(), process.lost()), (7000, 0));
    for thread in 0..70 {
        let events = process.rings.iter().flat_map(|ring| &ring.events);
        let own = events.filter(|event| event.number("thread") == thread);
        assert!(own.map(|event| event.number("n")).eq(0..100));
    }
}

#[test]
fn a_ring_file_that_can_be_seen_is_complete() {
    let mut producer = Producer::start("threads", &[("THREADS", "60")]);
    let mut seen = HashSet::new();
    while seen.len() < 60 {
        for directory in list_directories(&producer.run_directory()) {
            MetaHeader::decode(&fs::read(directory.join(META_FILE)).unwrap()).unwrap();
            Control::decode(&fs::read(directory.join(CONTROL_FILE)).unwrap()).unwrap();
            for entry in fs::read_dir(&directory).unwrap() {
                let name = entry.unwrap().file_name();
                let Some(number) = parse_ring_file_name(name.to_str().unwrap()) else {
                    continue;
                };
                let file = fs::File::open(directory.join(&name)).unwrap();
                let mut head = [0; RING_HEADER_SIZE];
                file.read_exact_at(&mut head, 0).unwrap();
                let header = RingHeader::decode(&head).unwrap();
                assert_eq!(file.metadata().unwrap().len(), header.file_size());
                seen.insert(number);
            }
        }
    }
    producer.finish();
}

#[test]
fn a_ring_of_an_ended_thread_stays_until_the_drainer_has_released_it() {
    let mut producer = Producer::start("sequential-threads", &[]);
    producer.wait_for("ended");
    let directory = producer.own_directory();
    let first = &read_process(&directory).rings[0];
    assert!(first.control.is_ended);
    assert_eq!(&first.header.thread_name, b"worker 0\0\0\0\0\0\0\0\0");

    producer.go_on();
    producer.wait_for("ended");
    assert_eq!(
        read_process(&directory).rings.len(),
        2,
        "the first ring is not released"
    );

    let file = fs::OpenOptions::new()
        .write(true)
        .open(directory.join("r0"))
        .unwrap();
    file.write_all_at(&1_u32.to_le_bytes(), RING_RELEASED_OFFSET as u64)
        .unwrap();
    producer.go_on();
    producer.wait_for("ended");
    let numbers: Vec<u32> = read_process(&directory)
        .rings
        .iter()
        .map(|ring| ring.header.number)
        .collect();
    assert_eq!(numbers, [1, 2], "the number of a ring is not used again");
}

#[test]
fn events_of_a_threads_last_destructors_go_to_the_shared_ring() {
    let mut producer = Producer::start("late", &[]);
    producer.finish();
    let process = producer.read();
    assert_eq!((process.event_count(), process.lost()), (6, 0));
    assert_eq!(process.rings_of(SeverityClass::All)[0].events.len(), 3);
}
