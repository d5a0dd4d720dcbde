//! Trees that a killed relay or a power failure has damaged in every known way, repaired by the
//! next relay and read by `babeltrace2`: without an error, with exactly the events of the packets
//! that are whole.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use tests::babeltrace::Babeltrace;
use tests::lab::Lab;
use tests::producer::{Producer, TRACE_PATH, live_session, packet_of, stream};
use tests::relay::Relay;
use tests::tree::files;
use tests::wait_until;

use crate::repair::{EVENTS, SyntheticTrace, send};

/// Whole packets in the trace of the killed session, by CPU. The last one of CPU 0 has no index
/// entry, and half a packet follows on CPU 1.
const WHOLE: [u64; 2] = [4, 3];
/// Packets in the other session, on CPU 7.
const OTHER: u64 = 1;

/// A trace directory of a relay that was killed.
struct Damaged<'a>(&'a Path);

impl Damaged<'_> {
    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn len(&self, name: &str) -> u64 {
        self.path(name).metadata().unwrap().len()
    }

    fn set_len(&self, name: &str, len: u64) {
        let file = OpenOptions::new().write(true).open(self.path(name));
        file.unwrap().set_len(len).unwrap();
    }

    /// Overwrites everything from a position by zeros, as after a power failure.
    fn zero_from(&self, name: &str, at: u64) {
        let len = self.len(name);
        self.set_len(name, at);
        self.set_len(name, len);
    }

    fn flip(&self, name: &str, at: usize, bit: u8) {
        let mut bytes = fs::read(self.path(name)).unwrap();
        bytes[at] ^= bit;
        fs::write(self.path(name), bytes).unwrap();
    }

    /// Returns the directory of the session.
    fn session(&self) -> &Path {
        self.0
            .ancestors()
            .nth(TRACE_PATH.split('/').count())
            .unwrap()
    }
}

/// A kind of damage, and what is left of it.
struct Case {
    name: &'static str,
    damage: fn(&Damaged<'_>),
    /// Packets of CPU 0 and 1 that are read after the repair.
    packets: [u64; 2],
    /// Part of a line in the log.
    logged: &'static str,
}

const REPAIRED: &str = "output repaired after a crash";

const CASES: &[Case] = &[
    Case {
        name: "a kill",
        damage: |_| (),
        packets: WHOLE,
        logged: REPAIRED,
    },
    Case {
        name: "an index file is missing",
        damage: |tree| fs::remove_file(tree.path("index/a_0.idx")).unwrap(),
        packets: WHOLE,
        logged: "rebuilt=1",
    },
    Case {
        name: "an index file is empty",
        damage: |tree| tree.set_len("index/a_0.idx", 0),
        packets: WHOLE,
        logged: "rebuilt=1",
    },
    Case {
        name: "an index file ends in its header",
        damage: |tree| tree.set_len("index/b_0.idx", 7),
        packets: WHOLE,
        logged: "rebuilt=2",
    },
    Case {
        name: "an index file is zeros",
        damage: |tree| tree.zero_from("index/b_0.idx", 0),
        packets: WHOLE,
        logged: "rebuilt=2",
    },
    Case {
        name: "an index file ends in zeros",
        damage: |tree| tree.zero_from("index/b_0.idx", tree.len("index/b_0.idx") - 100),
        packets: WHOLE,
        logged: "rebuilt=2",
    },
    Case {
        name: "an index file ends in half an entry without a beacon",
        damage: |tree| tree.set_len("index/b_0.idx", 16 + 72 + 30),
        packets: WHOLE,
        logged: "rebuilt=2",
    },
    Case {
        name: "the directory of index files is missing",
        damage: |tree| fs::remove_dir_all(tree.path("index")).unwrap(),
        packets: WHOLE,
        logged: "rebuilt=2",
    },
    Case {
        name: "a tracefile is missing",
        damage: |tree| fs::remove_file(tree.path("b_0")).unwrap(),
        packets: [4, 0],
        logged: REPAIRED,
    },
    Case {
        name: "a tracefile is empty",
        damage: |tree| tree.set_len("b_0", 0),
        packets: [4, 0],
        logged: REPAIRED,
    },
    Case {
        name: "a tracefile ends within an indexed packet",
        damage: |tree| tree.set_len("b_0", 2 * 4096 + 1000),
        packets: [4, 2],
        logged: "tracefiles=1",
    },
    Case {
        name: "a tracefile ends in zeros within an indexed packet",
        damage: |tree| tree.zero_from("b_0", 2 * 4096 + 200),
        packets: [4, 2],
        logged: "tracefiles=1",
    },
    Case {
        name: "a whole packet is zeros",
        damage: |tree| tree.zero_from("b_0", 4096),
        packets: [4, 1],
        logged: "tracefiles=1",
    },
    Case {
        name: "zeros follow the last packet",
        damage: |tree| tree.set_len("a_0", tree.len("a_0") + 10_000),
        packets: WHOLE,
        logged: "tracefiles=2",
    },
    Case {
        name: "the last metadata packet is torn",
        damage: |tree| tree.set_len("metadata", tree.len("metadata") - 20),
        packets: WHOLE,
        logged: "metadata=1",
    },
    Case {
        name: "the metadata ends in zeros",
        damage: |tree| tree.zero_from("metadata", tree.len("metadata") - 20),
        packets: WHOLE,
        logged: "metadata=1",
    },
    Case {
        name: "the metadata is empty",
        damage: |tree| tree.set_len("metadata", 0),
        packets: [0, 0],
        logged: "metadata=1",
    },
    Case {
        name: "the metadata ends before the first stream",
        damage: |tree| tree.set_len("metadata", 200),
        packets: [0, 0],
        logged: "declares no stream",
    },
    Case {
        name: "a bit of an offset is flipped",
        damage: |tree| tree.flip("index/a_0.idx", 16 + 72 + 7, 1),
        packets: WHOLE,
        logged: "index file is damaged",
    },
    Case {
        name: "a bit of a packet size is flipped",
        damage: |tree| tree.flip("index/a_0.idx", 16 + 72 + 14, 4),
        packets: WHOLE,
        logged: "index file is damaged",
    },
    Case {
        name: "a bit of a begin time is flipped",
        damage: |tree| tree.flip("index/a_0.idx", 16 + 72 + 24 + 1, 4),
        packets: WHOLE,
        logged: "index file is damaged",
    },
    Case {
        name: "a bit of an index header is flipped",
        damage: |tree| tree.flip("index/a_0.idx", 2, 4),
        packets: WHOLE,
        logged: "index file is damaged",
    },
    Case {
        name: "a rotation stopped before the new chunk",
        damage: |tree| {
            let old = tree.session().join(".tmp_old_chunk");
            fs::create_dir(&old).unwrap();
            fs::rename(tree.session().join("ust"), old.join("ust")).unwrap();
        },
        packets: WHOLE,
        logged: "rotation completed",
    },
    Case {
        name: "a rotation stopped before the new chunk had its name",
        damage: |tree| {
            let new = tree.session().join(".tmp_new_chunk");
            fs::create_dir(&new).unwrap();
            fs::rename(tree.session().join("ust"), new.join("ust")).unwrap();
        },
        packets: WHOLE,
        logged: "rotation completed",
    },
    Case {
        name: "a deletion was interrupted",
        damage: |tree| {
            fs::create_dir_all(tree.session().join(".tmp_deleted_chunk-1-1/ust")).unwrap()
        },
        packets: WHOLE,
        logged: "chunks=1",
    },
    Case {
        name: "everything at once",
        damage: |tree| {
            tree.set_len("index/a_0.idx", 0);
            tree.zero_from("b_0", 2 * 4096 + 200);
            tree.set_len("metadata", tree.len("metadata") - 20);
            let old = tree.session().join(".tmp_old_chunk");
            fs::create_dir(&old).unwrap();
            fs::rename(tree.session().join("ust"), old.join("ust")).unwrap();
        },
        packets: [4, 2],
        logged: REPAIRED,
    },
];

/// Returns the output of a relay that was killed while it recorded two sessions.
fn killed_tree() -> (Lab, PathBuf) {
    let (lab, mut relay) = Relay::start_in_new_lab();
    let trace = SyntheticTrace::new();
    let mut producer = Producer::open(&relay, live_session("killed"));
    let streams = ["a_0", "b_0"].map(|name| producer.add_stream(stream(name, TRACE_PATH)));
    let metadata = producer.add_stream(stream("metadata", TRACE_PATH));
    producer.send_metadata(metadata, &trace.metadata, 0);
    producer.send_metadata(metadata, &trace.more_metadata, 0);
    for (cpu, to) in (0..).zip(streams) {
        let packets = trace.packets_of(cpu, 4);
        for (number, packet) in (0..3).zip(&packets) {
            send(&mut producer, to, number, packet);
        }
        let last = packet_of(to, 3, &packets[3].0, 0);
        // Without its index, and for CPU 1 without its end as well.
        let sent = if cpu == 0 {
            &last[..]
        } else {
            &last[..last.len() - 10]
        };
        let mut data = tests::producer::connect(relay.data);
        data.write_all(sent).unwrap();
        std::mem::forget(data);
    }
    let mut other = Producer::open(&relay, live_session("other"));
    let to = other.add_stream(stream("c_0", TRACE_PATH));
    let metadata = other.add_stream(stream("metadata", TRACE_PATH));
    other.send_metadata(metadata, &trace.metadata, 0);
    send(&mut other, to, 0, &trace.packets_of(7, OTHER)[0]);
    let len = |name: &str| {
        files(&relay.output, name)
            .into_values()
            .next()
            .map(|file| file.len())
    };
    wait_until("the unindexed bytes are written", || {
        len("/a_0") == Some(4 * 4096) && len("/b_0") > Some(3 * 4096)
    });
    relay.kill();
    let output = relay.output.clone();
    (lab, output)
}

fn copy_tree(from: &Path, to: &Path) {
    let mut command = Command::new("cp");
    command.arg("-a").arg(from.join(".")).arg(to);
    assert!(command.status().unwrap().success());
}

/// Makes the markers those of a relay that ran before the host lost its power.
fn set_other_boot(output: &Path) {
    let markers = files(output, "").into_keys();
    for marker in markers.filter(|path| path.contains("/.relayd-open-")) {
        std::fs::write(output.join(marker), "01234567-89ab-cdef-0123-456789abcdef").unwrap();
    }
}

/// Returns the directory in which the marker of an open trace is, below that of a session.
fn trace_of(output: &Path, session: &str) -> PathBuf {
    let metadata = files(output, "/metadata").into_keys();
    let mut found = metadata.filter(|path| path.contains(session));
    output
        .join(found.next().unwrap())
        .parent()
        .unwrap()
        .to_owned()
}

#[test]
fn babeltrace_reads_the_whole_packets_of_every_damaged_tree() {
    let (_killed, tree) = killed_tree();
    let refused = Babeltrace::Two.read(&tree);
    assert!(!refused.status.success(), "the tree needs no repair");
    for case in CASES {
        let lab = Lab::new();
        let output = lab.directory("output");
        copy_tree(&tree, &output);
        set_other_boot(&output);
        (case.damage)(&Damaged(&trace_of(&output, "killed")));
        let relay = Relay::start(&lab);
        assert!(
            relay.has_logged(&[case.logged]),
            "{}: {:#?}",
            case.name,
            relay.log()
        );
        assert!(relay.stop().status.success());
        let read = Babeltrace::Two.read(&output);
        assert_eq!(read.stderr, [""; 0], "{}", case.name);
        let lines = read.expect_success();
        let count = |cpu: u32| {
            let cpu = format!("cpu_id = {cpu} ");
            lines.iter().filter(|line| line.contains(&cpu)).count() as u64
        };
        let got = [count(0), count(1), count(7)];
        let [first, second] = case.packets;
        assert_eq!(
            got,
            [first, second, OTHER].map(|packets| packets * EVENTS),
            "{}",
            case.name
        );
        let unique: BTreeSet<_> = lines.iter().collect();
        assert_eq!(
            unique.len(),
            lines.len(),
            "{}: an event is there twice",
            case.name
        );
        let unfinished = |path: &String| path.contains("/.relayd") || path.contains(".tmp_");
        let left: Vec<_> = files(&output, "").into_keys().filter(unfinished).collect();
        assert_eq!(left, [""; 0], "{}", case.name);
    }
}

#[test]
fn traces_of_lttng_relayd_are_not_repaired() {
    let (_killed, tree) = killed_tree();
    let lab = Lab::new();
    let output = lab.directory("output");
    copy_tree(&tree, &output);
    // Neither markers nor beacons: it may be a damaged tree of any program.
    for session in ["killed", "other"] {
        let trace = trace_of(&output, session);
        for entry in fs::read_dir(&trace).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if name.starts_with(".relayd-open-") {
                fs::remove_file(&path).unwrap();
            }
        }
        for entry in fs::read_dir(trace.join("index")).unwrap() {
            let path = entry.unwrap().path();
            let file = OpenOptions::new().write(true).open(&path).unwrap();
            file.set_len(path.metadata().unwrap().len() - 16).unwrap();
        }
    }
    let before = tests::tree::tree(&output);
    let relay = Relay::start(&lab);
    assert!(!relay.has_logged(&["repaired"]), "{:#?}", relay.log());
    assert!(relay.stop().status.success());
    assert_eq!(tests::tree::tree(&output), before);
}
