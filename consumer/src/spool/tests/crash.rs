//! A run that is killed, loses power or meets an error at each of its operations.

use std::io::ErrorKind;

use super::memory_disk::{Fault, MemoryDisk};
use super::*;

/// What a run has done until the disk has stopped it.
#[derive(Default)]
struct Run {
    /// Number of steps that were accepted.
    accepted: usize,
    /// Packets of each stream that were acknowledged.
    acknowledged: BTreeMap<StreamKey, u64>,
}

/// Returns the steps of the run, in batches.
fn script() -> Vec<Vec<Step>> {
    let mut batches = vec![begin_steps()];
    let mut numbers = [0, 0];
    let mut batch_of = |streams: &[usize]| {
        let mut batch = Vec::new();
        for &stream in streams {
            let key = u32::try_from(stream).unwrap();
            batch.push(packet(key, numbers[stream], 400));
            numbers[stream] += 1;
        }
        batch
    };
    batches.push(batch_of(&[0, 1, 0]));
    batches.push(batch_of(&[0]));
    let mut grown = vec![metadata("second")];
    grown.extend(batch_of(&[1, 1, 0]));
    grown.push(Step::Beacon {
        stream: StreamKey(1),
        until: Timestamp(77),
    });
    batches.push(grown);
    batches.push(batch_of(&[0, 0, 1]));
    let mut closing = batch_of(&[1]);
    closing.push(close(1));
    batches.push(closing);
    batches.push(batch_of(&[0, 0]));
    batches.push(vec![close(0)]);
    batches
}

fn small_segments(durability: Durability) -> SpoolSettings {
    // Segments of 1 KiB: two packets.
    settings(16 << 10, SpoolFullPolicy::Block, durability)
}

/// Runs the script with an uplink that takes a few steps in between, acknowledges some, and goes
/// away.
fn run(disk: &MemoryDisk, durability: Durability, retries: usize) -> Run {
    let mut spool = TestSpool::new(disk, &small_segments(durability));
    let mut run = Run::default();
    let key = spool.open_new(2000);
    for (number, batch) in script().into_iter().enumerate() {
        let mut accepted = spool.append(key, &batch);
        for _ in 0..retries {
            spool.store.retry();
            spool.run();
        }
        if accepted.try_recv() != Ok(true) {
            return run;
        }
        run.accepted += batch.len();
        if (1..4).contains(&number) {
            for _ in 0..3 {
                let Some(queued) = spool.take(key) else { break };
                if let Step::Packet { stream, .. } = queued.step {
                    run.acknowledged.insert(stream, queued.seq + 1);
                }
                queued.acknowledge();
            }
            spool.pass_acknowledgements(key);
        }
    }
    spool.end(key);
    for _ in 0..retries {
        spool.store.retry();
        spool.run();
    }
    spool.store.record_acknowledged();
    spool.store.close(key);
    run
}

fn sent() -> Vec<Step> {
    script().concat()
}

fn not_beacons(steps: &[Step]) -> usize {
    let is_beacon = |step: &&Step| matches!(step, Step::Beacon { .. });
    steps.len() - steps.iter().filter(is_beacon).count()
}

/// Checks what the next process finds.
fn check_recovered(disk: &MemoryDisk, run: &Run, case: &str) {
    let (spool, sessions) = TestSpool::recover(disk);
    assert_eq!(spool.counters.quarantined.get(), 0, "{case}");
    let sent = sent();
    let accepted = not_beacons(&sent[..run.accepted]);
    let Some(found) = sessions.first() else {
        assert_eq!(run.accepted, 0, "{case}: the session is gone");
        return;
    };
    assert_eq!(sessions.len(), 1, "{case}");
    assert_eq!(packets_and_gaps(found).1, 0, "{case}: {found:?}");
    let is_acknowledged = run.accepted == sent.len() && found.is_empty();
    assert!(
        is_acknowledged || check_prefix(found, &sent) >= accepted,
        "{case}: {} accepted, found {found:?}",
        run.accepted
    );
    // Of each stream, all packets that were accepted and not acknowledged.
    let mut counts = BTreeMap::<StreamKey, u64>::new();
    for step in &sent[..run.accepted] {
        if let Step::Packet { stream, .. } = step {
            let seq = counts.entry(*stream).or_default();
            let is_found = found.contains(&(step.clone(), *seq));
            let acknowledged = run.acknowledged.get(stream).copied().unwrap_or_default();
            assert!(is_found || *seq < acknowledged, "{case}: {stream:?} {seq}");
            *seq += 1;
        }
    }
}

fn operations(durability: Durability) -> u64 {
    let disk = MemoryDisk::default();
    let run = run(&disk, durability, 0);
    assert_eq!(run.accepted, sent().len());
    let operations = disk.0.lock().operations;
    assert!(operations > 20, "{operations}");
    operations
}

#[test]
fn accepted_steps_are_found_after_a_kill_at_each_operation() {
    for at in 0..=operations(Durability::Process) {
        let disk = MemoryDisk::failing(Fault::StopAt(at));
        let run = run(&disk, Durability::Process, 0);
        check_recovered(&disk.after_kill(), &run, &format!("operation {at}"));
    }
}

#[test]
fn accepted_steps_are_found_after_a_power_failure_at_each_operation() {
    for at in 0..=operations(Durability::Packet) {
        let disk = MemoryDisk::failing(Fault::StopAt(at));
        let run = run(&disk, Durability::Packet, 0);
        let case = format!("operation {at}");
        check_recovered(&disk.after_power_failure(), &run, &case);
        check_recovered(&disk.after_kill(), &run, &case);
    }
}

#[test]
fn session_is_whole_after_an_error_at_each_operation() {
    for durability in [Durability::Process, Durability::Packet] {
        for kind in [ErrorKind::StorageFull, ErrorKind::Other] {
            for at in 0..=operations(durability) {
                let disk = MemoryDisk::failing(Fault::FailAt(at, kind));
                let run = run(&disk, durability, 2);
                let case = format!("{kind} at operation {at}");
                assert_eq!(run.accepted, sent().len(), "{case}");
                check_recovered(&disk.after_kill(), &run, &case);
            }
        }
    }
}

#[test]
fn a_failed_sync_at_the_interval_forgets_nothing_that_was_written() {
    let written = || {
        let disk = MemoryDisk::default();
        let mut spool = TestSpool::new(&disk, &small_segments(Durability::Interval));
        let key = spool.open_new(2000);
        for batch in script() {
            let mut accepted = spool.append(key, &batch);
            assert_eq!(accepted.try_recv(), Ok(true));
        }
        (disk, spool)
    };
    let operations = |disk: &MemoryDisk| disk.0.lock().operations;
    let (disk, mut spool) = written();
    let before = operations(&disk);
    spool.store.sync();
    let syncs = operations(&disk) - before;
    // The log, some segments, and two directories.
    assert!(syncs > 5, "{syncs}");
    let run = Run {
        accepted: sent().len(),
        ..Run::default()
    };
    for at in 0..syncs {
        let (disk, mut spool) = written();
        disk.0.lock().fault = Fault::FailAt(before + at, ErrorKind::Other);
        spool.store.sync();
        spool.store.sync();
        let case = format!("sync {at} fails");
        check_recovered(&disk.after_power_failure(), &run, &case);
        // Nothing is left to be done.
        let done = operations(&disk);
        spool.store.sync();
        assert_eq!(operations(&disk), done, "{case}");
    }
}

#[test]
fn recovery_can_be_killed_at_each_operation() {
    let disk = MemoryDisk::failing(Fault::StopAt(operations(Durability::Process) / 2));
    let run = run(&disk, Durability::Process, 0);
    let left = disk.after_kill();
    let (_, whole) = TestSpool::recover(&left.after_kill());
    for at in 0..100 {
        let disk = left.after_kill();
        disk.0.lock().fault = Fault::StopAt(at);
        let settings = small_segments(Durability::Process);
        let mut spool = TestSpool::new(&disk, &settings);
        if let Ok(found) = recover(&mut spool.store.disk) {
            for stored in found.sessions {
                spool.open(stored, ROOMY);
            }
            spool.run();
        }
        let disk = disk.after_kill();
        check_recovered(&disk, &run, &format!("operation {at}"));
        assert_eq!(TestSpool::recover(&disk).1, whole);
    }
}

#[test]
fn nothing_is_left_of_a_session_that_is_removed_even_if_that_is_interrupted() {
    let mut at = 0;
    loop {
        let disk = MemoryDisk::default();
        let mut spool = TestSpool::new(&disk, &small_segments(Durability::Process));
        let key = spool.open_new(ROOMY);
        for batch in script() {
            spool.append(key, &batch);
        }
        spool.end(key);
        spool.acknowledge_all(key);
        let begun = disk.0.lock().operations;
        disk.0.lock().fault = Fault::StopAt(begun + at);
        spool.store.remove(key);
        let is_done = disk.0.lock().operations < begun + at;
        let disk = disk.after_kill();
        let (spool, sessions) = TestSpool::recover(&disk);
        assert_eq!(spool.counters.quarantined.get(), 0);
        // What was not removed may be sent again, but is not taken for lost.
        let mut gaps = sessions.iter().map(|steps| packets_and_gaps(steps).1);
        assert!(gaps.all(|packets| packets == 0), "operation {at}");
        if is_done {
            assert_eq!(disk.paths(), [""; 0]);
            return;
        }
        at += 1;
    }
}
