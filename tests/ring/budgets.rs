//! A user who fills the run directory, and one whose programs declare as much as they may: programs
//! of other users are shown all the same, and readers take bounded memory.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::os::unix::fs::{DirBuilderExt, chown};
use std::path::Path;

use rustix::process::Signal;
use tests::process::Process;
use tests::relay::Relay;
use tests::wait_until;
use trace_ring_core::Severity;
use trace_ring_core::format::{
    EventClass, FieldType, MAX_CLASSES, MAX_FIELDS, META_FILE, MetaHeader,
};

use crate::system::{Agent, Shown, peak_memory, session_directory};
use crate::users::{Host, OWNER, STRANGER};

/// Memory that a reader may take at the most: that of the classes of one user, and its own.
const MAX_MEMORY: u64 = 400 << 20;

/// Entries of the hostile user: more than the inodes of any honest one.
const JUNK: usize = 66_000;

/// A file system that lists new entries first, as that of run directories does.
const MEMORY: &str = "/dev/shm";

/// Makes the directory of a process of the hostile user.
fn make_directory(host: &Host, number: usize) -> std::path::PathBuf {
    let path = host
        .rings
        .join(format!("{}-17-00000000", 5_000_000 + number));
    DirBuilder::new().mode(0o700).create(&path).unwrap();
    chown(&path, Some(STRANGER), Some(STRANGER)).unwrap();
    path
}

/// Returns a `meta` with as many classes as the format allows, each with as many fields. It takes
/// 14 MiB.
fn largest_meta() -> Vec<u8> {
    let mut class = EventClass {
        id: 0,
        severity: Severity::Info,
        line: 1,
        target: String::new(),
        file: String::new(),
        name: String::new(),
        fields: vec![(String::new(), FieldType::U64); MAX_FIELDS],
    };
    let mut records = Vec::new();
    for id in 1..=MAX_CLASSES {
        class.id = id;
        records.extend(class.encode());
    }
    let header = MetaHeader {
        pid: 1,
        uid: STRANGER,
        start_ticks: 17,
        uuid: [1; 16],
        boot_id: [0; 16],
        process_name: [b'h'; 16],
        program: b"/bin/hostile".to_vec(),
        committed: records.len() as u64,
        clock_offset: 0,
        lost_no_ring: 0,
    };
    [&header.encode()[..], &records].concat()
}

/// Writes `meta` of a process that lives as long as the returned file is open.
fn write_meta(directory: &Path, bytes: &[u8]) -> File {
    let path = directory.join(META_FILE);
    fs::write(&path, bytes).unwrap();
    chown(&path, Some(STRANGER), Some(STRANGER)).unwrap();
    let file = File::open(path).unwrap();
    assert!(!matches!(file.try_lock(), Err(TryLockError::WouldBlock)));
    file
}

#[test]
fn entries_of_a_user_hide_no_program_of_another() {
    let Some(host) = Host::with_readable_rings_in(Path::new(MEMORY)) else {
        return;
    };
    let relay = Relay::start(&host.lab);
    let before = host.start_writer(OWNER);
    for number in 0..JUNK {
        make_directory(&host, number);
    }
    let table = host.run_rings(0, &["--list"]).expect_success();
    let row = format!("{} ", before.pid());
    assert!(
        table.iter().any(|line| line.starts_with(&row)),
        "{table:#?}"
    );
    let agent = Agent::start_in(&host.rings, &host.lab, &relay, &[]);
    let after = host.start_writer(0);
    for writer in [before, after] {
        writer.wait_for_events(writer.progress()[0] + 50);
        let directory = host.rings.join(host.directory_of(writer.pid()));
        let written = writer.kill();
        wait_until("the program is drained", || !directory.exists());
        let session = session_directory(&relay.output, written.pid);
        Shown::read(&session).assert_without_loss(&written);
    }
    let log = agent.stop_with_live_programs();
    let crowded = format!("uid={STRANGER} entries={}", JUNK - 1024);
    assert!(log.iter().any(|line| line.contains(&crowded)), "{log:#?}");
}

#[test]
fn classes_of_a_hostile_user_take_bounded_memory_of_readers() {
    let Some(host) = Host::with_readable_rings_in(Path::new(MEMORY)) else {
        return;
    };
    let relay = Relay::start(&host.lab);
    let meta = largest_meta();
    let first = make_directory(&host, 0);
    let mut alive = vec![write_meta(&first, &meta)];
    // One file in many directories, and many of its own.
    for number in 1..17 {
        let directory = make_directory(&host, number);
        fs::hard_link(first.join(META_FILE), directory.join(META_FILE)).unwrap();
    }
    for number in 17..25 {
        alive.push(write_meta(&make_directory(&host, number), &meta));
    }
    let honest = host.start_writer(OWNER);
    let print = Process::start(&mut host.rings_command(0, &["--print"]));
    let of_honest = format!("ring-writer[{}:", honest.pid());
    wait_until("events of the honest program are shown", || {
        print.stdout().iter().any(|line| line.contains(&of_honest))
    });
    let agent = Agent::start_in(&host.rings, &host.lab, &relay, &[]);
    honest.wait_for_events(honest.progress()[0] + 50);
    let directory = host.rings.join(host.directory_of(honest.pid()));
    let written = honest.kill();
    wait_until("the program is drained", || !directory.exists());
    let session = session_directory(&relay.output, written.pid);
    Shown::read(&session).assert_without_loss(&written);
    for reader in [print.id(), agent.id()] {
        let memory = peak_memory(reader);
        assert!(memory < MAX_MEMORY, "{} MiB", memory >> 20);
    }
    print.signal(Signal::INT);
    assert!(print.wait().status.success());
    let log = agent.stop_with_live_programs();
    for reason in ["it has 17 names", "further event classes are not read"] {
        assert!(log.iter().any(|line| line.contains(reason)), "{log:#?}");
    }
}
