//! A spool that is full, and a disk that is full or fails.

use super::memory_disk::Fault;
use super::*;

/// Returns a spool of 64 KiB, with segments of 4 KiB, and a session whose uplink takes few steps.
fn small_spool(on_full: SpoolFullPolicy) -> (TestSpool, StoreKey) {
    let settings = settings(64 << 10, on_full, Durability::Process);
    let mut spool = TestSpool::new(&MemoryDisk::default(), &settings);
    let key = spool.open_new(4000);
    let accepted = spool.append(key, &begin_steps());
    assert!(is_accepted(accepted));
    (spool, key)
}

fn is_accepted(mut accepted: oneshot::Receiver<bool>) -> bool {
    accepted.try_recv() == Ok(true)
}

/// Appends packets to stream 0 until one is not accepted. Returns their number, and that one.
fn fill(spool: &mut TestSpool, key: StoreKey) -> (u64, oneshot::Receiver<bool>) {
    for number in 0..1000 {
        let mut accepted = spool.append(key, &[packet(0, number, 1000)]);
        if accepted.try_recv() != Ok(true) {
            return (number, accepted);
        }
    }
    panic!("never full");
}

#[test]
fn full_spool_blocks_until_packets_are_acknowledged() {
    let (mut spool, key) = small_spool(SpoolFullPolicy::Block);
    let (packets, mut accepted) = fill(&mut spool, key);
    assert!((30..64).contains(&packets), "{packets}");
    assert!(spool.counters.bytes.get() <= 64 << 10);
    assert!(spool.counters.fault().unwrap().starts_with("full"));
    let steps = spool.acknowledge_all(key);
    assert!(accepted.try_recv().unwrap());
    assert_eq!(spool.counters.fault(), None);
    assert_eq!(packets_and_gaps(&steps), (packets + 1, 0));
    assert!(spool.counters.bytes.get() < 8 << 10);
}

#[test]
fn full_spool_drops_the_oldest_packets_that_are_not_in_flight() {
    let (mut spool, key) = small_spool(SpoolFullPolicy::DropOldest);
    let total = 300;
    for number in 0..total {
        let accepted = spool.append(key, &[packet(0, number, 1000)]);
        assert!(is_accepted(accepted), "{number}");
    }
    spool.append(key, &[close(0), close(1)]);
    spool.end(key);
    let dropped = spool.counters.dropped.get();
    assert!(dropped > 200, "{dropped}");
    let steps = spool.acknowledge_all(key);
    assert_eq!(packets_and_gaps(&steps), (total - dropped, dropped));
    // The first ones were in flight, the last ones are the newest.
    let numbers: Vec<u64> = steps
        .iter()
        .filter(|(step, _)| matches!(step, Step::Packet { .. }))
        .map(|(_, seq)| *seq)
        .collect();
    assert_eq!((numbers[0], *numbers.last().unwrap()), (0, total - 1));
    let gap = steps.iter().find_map(|(step, _)| match step {
        Step::Gap {
            before, packets, ..
        } => Some((*before, *packets)),
        _ => None,
    });
    let (before, packets) = gap.unwrap();
    assert!(!numbers.contains(&(before - packets)) && numbers.contains(&before));
}

#[test]
fn gap_of_dropped_packets_is_found_by_the_next_process() {
    let (mut spool, key) = small_spool(SpoolFullPolicy::DropOldest);
    for number in 0..200 {
        spool.append(key, &[packet(0, number, 1000)]);
    }
    let dropped = spool.counters.dropped.get();
    let (_, sessions) = TestSpool::recover(&spool.store.disk.after_kill());
    assert_eq!(packets_and_gaps(&sessions[0]), (200 - dropped, dropped));
}

#[test]
fn session_that_fills_the_spool_does_not_keep_others_from_writing() {
    let (mut spool, hog) = small_spool(SpoolFullPolicy::Block);
    fill(&mut spool, hog);
    let other = spool.open_new(ROOMY);
    assert!(is_accepted(spool.append(other, &begin_steps())));
    for number in 0..100 {
        assert!(
            is_accepted(spool.append(other, &[packet(0, number, 1000)])),
            "{number}"
        );
        spool.acknowledge_all(other);
    }
}

#[test]
fn packet_larger_than_the_spool_is_accepted_alone() {
    let (mut spool, key) = small_spool(SpoolFullPolicy::Block);
    assert!(is_accepted(spool.append(key, &[packet(0, 0, 200_000)])));
    assert!(!is_accepted(spool.append(key, &[packet(0, 1, 200_000)])));
    let steps = spool.acknowledge_all(key);
    assert_eq!(packets_and_gaps(&steps), (2, 0));
}

#[test]
fn full_disk_blocks_until_there_is_space() {
    let (mut spool, key) = small_spool(SpoolFullPolicy::Block);
    spool.store.disk.0.lock().fault = Fault::Full;
    let mut accepted = spool.append(key, &[packet(0, 0, 100)]);
    assert!(accepted.try_recv().is_err());
    assert!(spool.counters.fault().unwrap().starts_with("cannot write"));
    spool.store.disk.0.lock().fault = Fault::None;
    spool.store.retry();
    spool.run();
    assert!(is_accepted(accepted));
    assert_eq!(spool.counters.fault(), None);
    assert_eq!(packets_and_gaps(&spool.acknowledge_all(key)), (1, 0));
}

#[test]
fn full_disk_drops_packets_but_no_other_steps() {
    let (mut spool, key) = small_spool(SpoolFullPolicy::DropOldest);
    assert!(is_accepted(spool.append(key, &[packet(0, 0, 100)])));
    spool.store.disk.0.lock().fault = Fault::Full;
    let steps = [packet(0, 1, 100), metadata("more"), packet(0, 2, 100)];
    assert!(
        is_accepted(spool.append(key, &steps)),
        "frontends are not blocked"
    );
    spool.store.disk.0.lock().fault = Fault::None;
    spool.store.retry();
    spool.run();
    assert!(is_accepted(
        spool.append(key, &[packet(0, 3, 100), close(0)])
    ));
    let found = spool.acknowledge_all(key);
    let dropped = spool.counters.dropped.get();
    assert!(dropped > 0);
    assert_eq!(packets_and_gaps(&found), (4 - dropped, dropped));
    assert!(found.iter().any(|(step, _)| *step == metadata("more")));
}

#[test]
fn session_ends_if_the_spool_is_full_and_the_uplink_is_gone() {
    let (mut spool, key) = small_spool(SpoolFullPolicy::Block);
    let (_, mut accepted) = fill(&mut spool, key);
    spool.store.detach(key);
    spool.run();
    assert_eq!(accepted.try_recv(), Ok(false));
}

#[test]
fn packets_that_the_uplink_does_not_take_stay_on_disk_only() {
    let (mut spool, key) = small_spool(SpoolFullPolicy::Block);
    let mut sent = begin_steps();
    for number in 0..40 {
        sent.push(packet(u32::from(number % 3 == 0), number, 900));
    }
    let accepted = spool.append(key, &sent[4..]);
    assert!(is_accepted(accepted));
    let mut in_memory = 0;
    while spool.session(key).steps.try_next_step().is_some() {
        in_memory += 1;
    }
    assert!(in_memory < 10, "{in_memory}");
    let (_, sessions) = TestSpool::recover(&spool.store.disk.after_kill());
    assert_eq!(check_prefix(&sessions[0], &sent), sent.len());
}
