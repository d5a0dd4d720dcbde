//! The faults of an older tracer of this kind, which reads a shared region in place and trusts it.
//! Each test shows that this reader does not have one of them.

use std::fs;
use std::os::unix::fs::symlink;

use trace_ring_core::format::{Mode, RING_COMMIT_OFFSET, ring_file_name};

use super::reader::{OneRing, read};
use super::written::*;
use crate::frontend::ring::directory::{Access, DirectoryName, RefusedFile, RunDirectory};
use crate::frontend::ring::producer::{Producer, ProducerRing};
use crate::frontend::ring::ring_reader::Role;
use crate::frontend::ring::user_budget::UserBudgets;

#[test]
fn writer_that_laps_the_reader_by_whole_turns_is_noticed_and_the_loss_is_exact() {
    let mut one = OneRing::new(Mode::Overwrite);
    let mut reader = one.reader(Role::Drainer);
    one.ring.write_many(5);
    assert_eq!(read(&mut reader).unwrap(), ((0..5).collect(), 0));
    // Exactly two turns: the position in the ring is the same.
    one.ring.write_many(2 * RECORDS * SUB_BUFFERS);
    let (numbers, lost) = read(&mut reader).unwrap();
    assert!(lost > 0);
    assert_eq!(numbers.len() as u64 + lost + 5, one.ring.events);
    let first = numbers[0];
    assert_eq!(numbers, (first..one.ring.events).collect::<Vec<_>>());
}

#[test]
fn records_of_an_earlier_turn_are_not_shown_again() {
    let mut one = OneRing::new(Mode::Discard);
    let mut reader = one.reader(Role::Drainer);
    one.ring.write_many(RECORDS * SUB_BUFFERS);
    read(&mut reader).unwrap();
    reader.release(&reader.point(), false).unwrap();
    // The writer says that it has committed another turn, and has written nothing.
    one.ring
        .set(RING_COMMIT_OFFSET, one.ring.commit + SUB_BUFFER);
    let (numbers, _) = read(&mut reader).unwrap();
    assert!(numbers.is_empty());
    assert_eq!(reader.damaged(), 1);
}

#[test]
fn record_is_not_shown_before_it_is_committed() {
    let mut one = OneRing::new(Mode::Discard);
    let mut reader = one.reader(Role::Drainer);
    one.ring.write();
    let committed = one.ring.commit;
    one.ring.write();
    one.ring.set(RING_COMMIT_OFFSET, committed);
    assert_eq!(read(&mut reader).unwrap().0, [0]);
    one.ring.set(RING_COMMIT_OFFSET, one.ring.commit);
    assert_eq!(read(&mut reader).unwrap().0, [1]);
}

#[test]
fn ring_that_has_no_size_yet_is_neither_read_nor_removed() {
    let one = OneRing::new(Mode::Discard);
    let path = one.process.path.join(ring_file_name(1));
    fs::write(&path, []).unwrap();
    let run = one.process.run_directory();
    let mut producer = Producer::open(
        &run,
        &one.process.name,
        Role::Drainer,
        &UserBudgets::default(),
    )
    .unwrap();
    producer.update();
    assert!(matches!(producer.ring(0), Some(ProducerRing::Open(_))));
    assert!(matches!(producer.ring(1), Some(ProducerRing::Closed)));
    assert!(path.exists());
}

#[test]
fn process_ids_of_more_than_16_bits_stay_whole() {
    let name = DirectoryName::parse("4194303-17-0000000a").unwrap();
    assert_eq!(name.pid(), 4_194_303);
}

#[test]
fn process_lives_as_long_as_its_lock_whatever_process_has_its_pid() {
    let run = tempfile::tempdir().unwrap();
    // There is such a process, and it is another one.
    let process = WrittenProcess::new(run.path(), std::process::id());
    let directory = process.run_directory();
    let mut producer = Producer::open(
        &directory,
        &process.name,
        Role::Drainer,
        &UserBudgets::default(),
    )
    .unwrap();
    assert!(!producer.check_death().unwrap());
    process.die();
    assert!(producer.check_death().unwrap());
    // There is no such process here, as for one of another pid namespace.
    let process = WrittenProcess::new(run.path(), 4_194_304);
    let mut producer = Producer::open(
        &directory,
        &process.name,
        Role::Drainer,
        &UserBudgets::default(),
    )
    .unwrap();
    assert!(!producer.check_death().unwrap());
}

#[test]
fn observer_does_not_keep_a_drainer_from_a_dead_process() {
    let run = tempfile::tempdir().unwrap();
    let process = WrittenProcess::new(run.path(), 1);
    let directory = process.run_directory();
    let open =
        |role| Producer::open(&directory, &process.name, role, &UserBudgets::default()).unwrap();
    let (mut observer, mut drainer) = (open(Role::Observer), open(Role::Drainer));
    assert!(!observer.check_death().unwrap());
    process.die();
    assert!(observer.check_death().unwrap());
    assert!(drainer.check_death().unwrap());
}

#[test]
fn symbolic_links_and_fifos_of_a_hostile_process_are_not_opened() {
    let run = tempfile::tempdir().unwrap();
    let process = WrittenProcess::new(run.path(), 1);
    let secret = run.path().join("secret");
    fs::write(&secret, "not for the trace").unwrap();
    symlink(&secret, process.path.join("r0")).unwrap();
    symlink(&process.path, run.path().join("2-17-00000000")).unwrap();
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    let fifo = process.path.join("r1");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let directory = RunDirectory::open(run.path()).unwrap();
    let opened = directory.open_process(&process.name).unwrap();
    for (name, access) in [
        ("r0", Access::Read),
        ("r1", Access::ReadWrite),
        ("r1", Access::Read),
    ] {
        let refused = opened.open_file(name, access).unwrap_err();
        assert!(matches!(refused, RefusedFile::Type(_)), "{name}: {refused}");
    }
    let link = DirectoryName::parse("2-17-00000000").unwrap();
    assert!(directory.open_process(&link).is_err());
    // Removing what the process has left does not follow the links either.
    let producer = Producer::open(
        &directory,
        &process.name,
        Role::Drainer,
        &UserBudgets::default(),
    )
    .unwrap();
    producer.remove(&directory).unwrap();
    assert!(secret.exists() && !process.path.exists());
}

#[test]
fn removing_a_dead_process_leaves_directories_of_its_own_alone() {
    let run = tempfile::tempdir().unwrap();
    let process = WrittenProcess::new(run.path(), 1);
    fs::create_dir(process.path.join("mine")).unwrap();
    let directory = process.run_directory();
    let producer = Producer::open(
        &directory,
        &process.name,
        Role::Drainer,
        &UserBudgets::default(),
    )
    .unwrap();
    assert!(producer.remove(&directory).is_err());
    assert!(process.path.join("mine").exists());
}

#[test]
fn ring_with_a_small_memory_need_is_read_like_any_other() {
    // The ring of these tests has 16 KiB, and the smallest has 8.
    let mut one = OneRing::new(Mode::Discard);
    one.ring.write();
    assert_eq!(read(&mut one.reader(Role::Drainer)).unwrap().0, [0]);
    assert!(one.path().exists());
}

#[test]
fn directory_of_a_process_that_died_while_it_made_it_is_removed_later() {
    let run = tempfile::tempdir().unwrap();
    let [dead, live] = [1, 2].map(|pid| WrittenProcess::new(run.path(), pid));
    let hide = |process: &WrittenProcess| {
        let hidden = run.path().join(format!(".{}", process.name.as_str()));
        fs::rename(&process.path, &hidden).unwrap();
        hidden
    };
    let (hidden, living) = (hide(&dead), hide(&live));
    dead.die();
    let directory = RunDirectory::open(run.path()).unwrap();
    let now = std::time::SystemTime::now();
    assert_eq!(directory.remove_unfinished(now).unwrap(), 0);
    let later = now + std::time::Duration::from_secs(100);
    assert_eq!(directory.remove_unfinished(later).unwrap(), 1);
    assert!(!hidden.exists() && living.exists());
    drop(live);
}
