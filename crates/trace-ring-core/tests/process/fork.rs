//! Rings of a program that forks, or runs another one.

use std::fs;

use crate::producer::{Producer, is_alive};
use crate::reader::{list_directories, read_process};

#[test]
fn a_forked_child_writes_to_a_directory_of_its_own_and_never_to_its_parents() {
    let mut producer = Producer::start("fork", &[]);
    producer.finish();
    let directories = list_directories(&producer.run_directory());
    assert_eq!(directories.len(), 9);
    for directory in directories {
        let process = read_process(&directory);
        let pid = process.meta.pid;
        assert!(
            directory
                .file_name()
                .unwrap()
                .to_str()
                .unwrap()
                .starts_with(&format!("{pid}-"))
        );
        let mut counts = Vec::new();
        for ring in &process.rings {
            let thread = ring.events[0].field("thread");
            assert!(
                ring.events
                    .iter()
                    .all(|event| event.field("thread") == thread)
            );
            let numbers = ring.events.iter().map(|event| event.number("n"));
            assert!(numbers.eq(0..ring.events.len() as u64));
            counts.push(ring.events.len() as u64 + ring.control.lost.total());
        }
        counts.sort_unstable();
        if pid == producer.pid() {
            assert_eq!(counts, [2, 20_000, 20_000, 20_000, 20_000]);
        } else {
            assert_eq!(counts, [5, 10]);
        }
    }
}

#[test]
fn a_forked_child_does_not_keep_its_dead_parents_directory_alive() {
    let mut producer = Producer::start("fork-and-end", &[]);
    producer.wait_for("child");
    producer.wait_for_end_but_keep_stdin();
    let directory = producer.own_directory();
    assert!(
        !is_alive(&directory),
        "the child holds the lock of its parent"
    );
    assert_eq!(read_process(&directory).event_count(), 1);
}

#[test]
fn a_program_that_calls_exec_leaves_its_events_to_the_drainer() {
    let mut producer = Producer::start("exec", &[]);
    // `cat` answers: the exec has happened.
    producer.write_line("hello");
    producer.wait_for_line("hello");
    let directory = producer.own_directory();
    assert!(!is_alive(&directory));
    assert_eq!(read_process(&directory).event_count(), 1);
    assert!(fs::exists(directory.join("r0")).unwrap());
}

#[test]
fn a_program_that_closes_all_its_files_is_still_alive_and_traces() {
    let mut producer = Producer::start("close-all", &[]);
    producer.wait_for("closed");
    assert!(is_alive(&producer.own_directory()));
    let process = producer.read();
    assert_eq!((process.event_count(), process.lost()), (3, 0));
}
