//! Consumers that end and are started again, while a program loses events for which there is no
//! room.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;
use tests::disk::SmallDisk;
use tests::lab::Lab;
use tests::process::Process;
use tests::relay::Relay;
use tests::wait_until;

use crate::system::{
    Agent, Shown, Writer, Writing, directories, rings, rings_command, session_directories,
};

/// Offsets in `meta` (doc/trace-ring-format.md).
const LOST_NO_RING: u64 = 2176;
const REPORTED_LOST: u64 = 2240;
/// Offsets in a ring.
const COMMIT: u64 = 576;
const CONSUMED: u64 = 640;
const LOST_FULL: u64 = 704;
const REPORTED_LOST_OF_RING: u64 = 656;

/// Size of the file system in KiB: `meta` and two of three rings.
const DISK: u32 = 240;

/// The files of the only process.
struct ProcessFiles(PathBuf);

impl ProcessFiles {
    fn word(&self, file: &Path, offset: u64) -> u64 {
        let mut word = [0; 8];
        let file = File::open(file).unwrap();
        file.read_exact_at(&mut word, offset).unwrap();
        u64::from_le_bytes(word)
    }

    fn lost_without_ring(&self) -> u64 {
        self.word(&self.0.join("meta"), LOST_NO_RING)
    }

    /// Whether the consumer has delivered everything, and has told that to the rings and to `meta`.
    fn is_released(&self) -> bool {
        let is_equal = |file: &Path, a, b| self.word(file, a) == self.word(file, b);
        let is_ring = |name: &str| name.starts_with('r');
        let names = std::fs::read_dir(&self.0).unwrap();
        let mut names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        is_equal(&self.0.join("meta"), LOST_NO_RING, REPORTED_LOST)
            && names.by_ref().filter(|name| is_ring(name)).all(|name| {
                let ring = self.0.join(name);
                is_equal(&ring, COMMIT, CONSUMED)
                    && is_equal(&ring, LOST_FULL, REPORTED_LOST_OF_RING)
            })
    }
}

/// Lets one consumer read a program in which a thread has no ring, ends it when the program stands
/// still, and lets the next one read the rest. What is shown and what is reported as discarded is
/// what was written.
fn restart_consumer(end: impl Fn(Agent)) {
    let lab = Lab::new();
    let Some(_disk) = SmallDisk::mount(&rings(&lab), DISK) else {
        return;
    };
    let relay = Relay::start(&lab);
    let writing = Writing {
        threads: 3,
        pause: Duration::from_millis(1),
        environment: &[("TRACE_RING_SIZE", "64K")],
        ..Writing::default()
    };
    let writer = Writer::start(&lab, "restarts", writing);
    writer.wait_for_events(50);
    let files = ProcessFiles(rings(&lab).join(&directories(&lab)[0]));
    let first = Agent::start(&lab, &relay, &[]);
    writer.wait_for_events(200);
    writer.process.signal(Signal::STOP);
    wait_until("everything is delivered", || files.is_released());
    let lost_before = files.lost_without_ring();
    assert!(lost_before >= 200, "{lost_before}");
    let list = Process::start(&mut rings_command(&lab, &["--list"])).wait();
    let table = list.expect_success();
    let lost = format!(" {lost_before} ");
    assert!(
        table.iter().any(|row| row.contains(&lost)),
        "{lost}: {table:#?}"
    );
    end(first);
    writer.process.signal(Signal::CONT);
    writer.wait_for_events(writer.progress()[0] + 200);
    let second = Agent::start(&lab, &relay, &[]);
    let written = writer.kill();
    second.stop(&lab);
    let output = relay.output.clone();
    // Ends the session of a consumer that was killed.
    assert!(relay.stop().status.success());
    let directories = session_directories(&output, written.pid);
    assert_eq!(directories.len(), 2);
    let mut parts: Vec<_> = directories.iter().map(|path| Shown::read(path)).collect();
    parts.sort_by_key(|part| {
        part.threads
            .values()
            .next()
            .and_then(|numbers| numbers.first().copied())
    });
    let mut shown = Shown::default();
    for part in parts {
        assert!(part.discarded > 0);
        shown.append(part);
    }
    shown.assert_complete(&written);
    assert_eq!(shown.threads.len(), 2);
}

#[test]
fn losses_without_a_ring_are_reported_once_when_the_consumer_is_restarted() {
    restart_consumer(|agent| drop(agent.stop_with_live_programs()));
}

#[test]
fn losses_without_a_ring_are_reported_once_when_the_consumer_is_killed() {
    restart_consumer(Agent::kill);
}
