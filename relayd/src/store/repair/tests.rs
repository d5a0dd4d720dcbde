//! The repair of damaged trees, one file at a time.

mod marked;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::symlink;

use ctf::index::{Beacon, Entry, IndexFormat, MAX_ENTRY_BYTES};
use wire::{Bits, Bytes, ClassId, PacketIndex, Timestamp};

use super::*;

const PACKET: usize = 1000;

/// An output directory with one trace.
struct Output {
    directory: tempfile::TempDir,
}

impl Output {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let output = Self { directory };
        fs::create_dir_all(output.path("index")).unwrap();
        fs::write(output.path("metadata"), "/* CTF 1.8 */").unwrap();
        output
    }

    fn path(&self, name: &str) -> PathBuf {
        let trace = "host/session-20260101-000000/ust/uid/0/64-bit";
        self.directory.path().join(trace).join(name)
    }

    /// Writes a tracefile with a number of bytes, and its index file with a number of entries and
    /// this tail.
    fn stream(&self, name: &str, bytes: usize, entries: u64, tail: &[u8]) {
        fs::write(self.path(name), vec![1; bytes]).unwrap();
        let format = IndexFormat::V1_1;
        let mut index = format.header_bytes();
        for number in 0..entries {
            let mut bytes = [0; MAX_ENTRY_BYTES];
            index.extend(format.encode(&entry(number), &mut bytes));
        }
        index.extend(tail);
        fs::write(self.path(&format!("index/{name}.idx")), index).unwrap();
    }

    fn repair(&self) -> Repaired {
        repair(self.directory.path(), &BTreeSet::new())
    }

    /// Lengths of the tracefile and of its index file. None: it does not exist.
    fn sizes(&self, name: &str) -> (Option<u64>, Option<u64>) {
        let len = |path: PathBuf| path.metadata().ok().map(|about| about.len());
        let index = self.path(&format!("index/{name}.idx"));
        (len(self.path(name)), len(index))
    }
}

fn entry(number: u64) -> Entry {
    let size = PACKET as u64;
    Entry {
        offset: Bytes(number * size),
        packet: PacketIndex {
            packet_size: Bits(size * 8),
            content_size: Bits(size * 8),
            begin: Timestamp(0),
            end: Timestamp(1),
            events_discarded: 0,
            class: ClassId(0),
            instance: None,
            packet_seq: None,
        },
    }
}

fn beacon() -> Vec<u8> {
    Beacon::new(Timestamp(0)).to_bytes()
}

#[test]
fn a_tracefile_is_truncated_to_its_last_entry_and_the_beacon_removed() {
    let output = Output::new();
    output.stream("half_0", 2 * PACKET + 300, 2, &beacon());
    output.stream("whole_0", 3 * PACKET, 3, &beacon());
    let repaired = output.repair();
    assert_eq!(output.sizes("half_0"), (Some(2000), Some(16 + 2 * 72)));
    assert_eq!(output.sizes("whole_0"), (Some(3000), Some(16 + 3 * 72)));
    let want = Repaired {
        indexes: 2,
        tracefiles: 1,
        bytes: 300,
        ..Repaired::default()
    };
    assert_eq!(repaired, want);
    assert_eq!(
        output.repair(),
        Repaired::default(),
        "nothing is left to do"
    );
}

#[test]
fn a_tracefile_without_entries_is_emptied_and_its_index_file_removed() {
    let output = Output::new();
    output.stream("first_0", 300, 0, &beacon());
    output.repair();
    assert_eq!(output.sizes("first_0"), (Some(0), None));
}

#[test]
fn entries_beyond_the_tracefile_are_removed() {
    let output = Output::new();
    output.stream("short_0", 2 * PACKET + 1, 4, &beacon());
    // Half an entry before the beacon.
    output.stream("torn_0", 2 * PACKET, 2, &[&[1; 30][..], &beacon()].concat());
    output.repair();
    assert_eq!(output.sizes("short_0"), (Some(2000), Some(16 + 2 * 72)));
    assert_eq!(output.sizes("torn_0"), (Some(2000), Some(16 + 2 * 72)));
}

#[test]
fn repair_leaves_closed_index_files_and_those_of_other_relays_alone() {
    let output = Output::new();
    output.stream("closed_0", 2 * PACKET + 300, 2, &[]);
    output.stream("strange_0", 2 * PACKET, 1, &beacon());
    let strange = output.path("index/strange_0.idx");
    let mut bytes = fs::read(&strange).unwrap();
    bytes[0] ^= 1;
    fs::write(&strange, bytes).unwrap();
    output.stream("overlapping_0", 3 * PACKET, 2, &beacon());
    let overlapping = output.path("index/overlapping_0.idx");
    let mut bytes = fs::read(&overlapping).unwrap();
    // The offset of the second entry.
    bytes[16 + 72..][..8].copy_from_slice(&500_u64.to_be_bytes());
    fs::write(&overlapping, bytes).unwrap();
    let reported = Repaired {
        damaged: 1,
        failed: 2,
        ..Repaired::default()
    };
    assert_eq!(output.repair(), reported);
    assert_eq!(output.sizes("closed_0"), (Some(2300), Some(16 + 2 * 72)));
    assert_eq!(output.sizes("strange_0").0, Some(2000));
    assert_eq!(output.sizes("overlapping_0").0, Some(3000));
}

#[test]
fn a_trace_that_another_relay_writes_is_left_alone() {
    for locked in ["metadata", "busy_0"] {
        let output = Output::new();
        output.stream("busy_0", 2 * PACKET + 300, 2, &beacon());
        let file = File::open(output.path(locked)).unwrap();
        file.lock().unwrap();
        assert_eq!(output.repair(), Repaired::default(), "{locked}");
        file.unlock().unwrap();
        // The lock of a reader does not count.
        file.lock_shared().unwrap();
        assert_eq!(output.repair().tracefiles, 1, "{locked}");
    }
}

#[test]
fn symbolic_links_are_not_followed() {
    let (output, other) = (Output::new(), Output::new());
    other.stream("mine_0", PACKET + 1, 1, &beacon());
    // Links to a directory, a tracefile and an index file of another output.
    symlink(other.directory.path(), output.directory.path().join("link")).unwrap();
    symlink(other.path("mine_0"), output.path("mine_0")).unwrap();
    fs::copy(
        other.path("index/mine_0.idx"),
        output.path("index/mine_0.idx"),
    )
    .unwrap();
    output.stream("own_0", PACKET, 1, &beacon());
    fs::remove_file(output.path("index/own_0.idx")).unwrap();
    symlink(
        other.path("index/mine_0.idx"),
        output.path("index/own_0.idx"),
    )
    .unwrap();
    let reported = Repaired {
        failed: 2,
        ..Repaired::default()
    };
    assert_eq!(output.repair(), reported);
    let untouched = (Some(1001), Some(16 + 72 + 16));
    assert_eq!(other.sizes("mine_0"), untouched);
}

#[test]
fn a_deletion_that_was_interrupted_is_completed() {
    let output = Output::new();
    let left = output.path("../../../../.tmp_deleted_chunk-77-0");
    fs::create_dir_all(left.join("ust")).unwrap();
    fs::write(left.join("ust/metadata"), "").unwrap();
    assert_eq!(output.repair().chunks, 1);
    assert!(!left.exists());
}

#[test]
fn directories_that_are_too_deep_are_reported() {
    let output = tempfile::tempdir().unwrap();
    fs::create_dir_all(
        output
            .path()
            .join(vec!["d"; MAX_OUTPUT_DEPTH + 2].join("/")),
    )
    .unwrap();
    let repaired = repair(output.path(), &BTreeSet::new());
    assert_eq!(repaired.failed, 1);
}
