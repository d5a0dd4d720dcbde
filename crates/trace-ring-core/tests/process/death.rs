//! Producers that are killed.

use std::fs;

use trace_ring_core::format::{Mode, SeverityClass};

use crate::producer::{Producer, is_alive};

/// Events that each thread has finished, as the producer says.
fn progress(producer: &Producer, threads: usize) -> Vec<u64> {
    let bytes = fs::read(producer.progress_file()).unwrap_or_default();
    let mut counts: Vec<u64> = bytes
        .chunks_exact(8)
        .map(|count| u64::from_le_bytes(count.try_into().unwrap()))
        .collect();
    counts.resize(threads, 0);
    counts
}

/// Kills a producer when one of its threads has finished a random number of events; every finished
/// event must be there, in order and once, and at most one more per thread.
fn kill_and_check(threads: usize, mode: &str) {
    let count = threads.to_string();
    let variables = [
        ("THREADS", count.as_str()),
        ("TRACE_RING", mode),
        ("TRACE_RING_SIZE", "256K"),
    ];
    let mut producer = Producer::start("emit-until-killed", &variables);
    let target = fastrand::u64(1..20_000);
    while progress(&producer, threads)
        .iter()
        .all(|count| *count < target)
    {
        std::thread::yield_now();
    }
    assert!(is_alive(&producer.own_directory()));
    producer.kill();
    assert!(!is_alive(&producer.own_directory()));

    let process = producer.read();
    assert_eq!(process.meta.pid, producer.pid());
    let mut written = vec![0; threads];
    for ring in process.rings_of(SeverityClass::Normal) {
        let Some(first) = ring.events.first() else {
            continue;
        };
        let thread = usize::try_from(first.number("thread")).unwrap();
        assert!(
            ring.events
                .iter()
                .all(|event| event.number("thread") == thread as u64)
        );
        let end = ring.events_before + ring.events.len() as u64;
        let numbers = ring.events.iter().map(|event| event.number("n"));
        assert!(numbers.eq(ring.events_before..end), "in order and once");
        assert_eq!(ring.header.mode == Mode::Overwrite, mode == "overwrite");
        written[thread] = end + ring.control.lost.total();
    }
    for (written, finished) in written.iter().zip(progress(&producer, threads)) {
        assert!(
            (finished..=finished + 1).contains(written),
            "{finished} finished, {written} found"
        );
    }
}

#[test]
fn a_killed_thread_leaves_every_finished_event_and_counts_the_discarded_ones() {
    for _ in 0..10 {
        kill_and_check(1, "discard");
    }
}

#[test]
fn a_killed_thread_leaves_every_finished_event_that_was_not_overwritten() {
    for _ in 0..10 {
        kill_and_check(1, "overwrite");
    }
}

#[test]
fn four_killed_threads_leave_every_finished_event_and_count_the_discarded_ones() {
    for _ in 0..10 {
        kill_and_check(4, "discard");
    }
}

#[test]
fn four_killed_threads_leave_every_finished_event_that_was_not_overwritten() {
    for _ in 0..10 {
        kill_and_check(4, "overwrite");
    }
}
