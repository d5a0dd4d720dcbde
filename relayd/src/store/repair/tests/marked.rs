//! Trees with markers: what is repaired without a beacon, resumable traces, interrupted rotations,
//! and large trees.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use ctf::index::{Beacon, Entry, IndexFormat, MAX_ENTRY_BYTES};
use ctf::model::Uuid;
use ctf::write::{
    Appended, EventDeclaration, EventRecord, MetadataText, PacketSize, StreamWriter,
    TraceDeclaration, metadata_packets,
};
use wire::{Bytes, Timestamp};

use super::super::{Repaired, repair};

const TRACE: &str = "host/session/ust";
const MARKER: &str = ".relayd-open-20260101T000000+0000-0";
const UUID: Uuid = Uuid(*b"0123456789abcdef");

/// The files of a trace of one stream, as a relay writes them.
struct Recorded {
    metadata: Vec<u8>,
    data: Vec<u8>,
    index: Vec<u8>,
}

impl Recorded {
    fn new(packets: u64) -> Self {
        let mut text = MetadataText::new(&TraceDeclaration::new(UUID, "repair"));
        let class = text.stream(0).unwrap();
        let event = text
            .event(&class, &EventDeclaration::new(1, "event"))
            .unwrap();
        let mut writer = StreamWriter::new(&class, 3, 3, PacketSize::new(4096, 65_536));
        let (mut data, mut index) = (Vec::new(), IndexFormat::V1_1.header_bytes());
        for number in 0..packets {
            writer.open(Timestamp(100 * number + 1)).unwrap();
            let record = EventRecord {
                time: Timestamp(100 * number + 2),
                process: 1,
                thread: 1,
                values: &[],
            };
            assert_eq!(writer.append(&event, &record), Ok(Appended::Written));
            let packet = writer.close(Timestamp(100 * number + 3)).unwrap();
            let entry = Entry {
                offset: Bytes(data.len() as u64),
                packet: packet.index,
            };
            index.extend(IndexFormat::V1_1.encode(&entry, &mut [0; MAX_ENTRY_BYTES]));
            data.extend_from_slice(packet.bytes);
        }
        let metadata = metadata_packets(UUID, text.as_str());
        Self {
            metadata,
            data,
            index,
        }
    }

    /// Writes the trace as it is while it is recorded.
    fn write(&self, trace: &Path, marker: &str) {
        fs::create_dir_all(trace.join("index")).unwrap();
        fs::write(trace.join(marker), "").unwrap();
        fs::write(trace.join("metadata"), &self.metadata).unwrap();
        fs::write(trace.join("chan_0"), &self.data).unwrap();
        let index = [&self.index[..], &beacon()].concat();
        fs::write(trace.join("index/chan_0.idx"), index).unwrap();
    }

    fn assert_closed(&self, trace: &Path) {
        assert_eq!(fs::read(trace.join("metadata")).unwrap(), self.metadata);
        assert_eq!(fs::read(trace.join("chan_0")).unwrap(), self.data);
        assert_eq!(
            fs::read(trace.join("index/chan_0.idx")).unwrap(),
            self.index
        );
        assert_eq!(
            fs::read_dir(trace).unwrap().count(),
            3,
            "the marker is there"
        );
    }
}

fn beacon() -> Vec<u8> {
    Beacon::new(Timestamp(0)).to_bytes()
}

fn repair_all(output: &Path) -> Repaired {
    repair(output, &BTreeSet::new())
}

#[test]
fn a_lost_index_file_is_rebuilt_with_the_bytes_that_the_producer_sent() {
    for len in [None, Some(0), Some(7), Some(16), Some(16 + 72 + 5)] {
        let output = tempfile::tempdir().unwrap();
        let (trace, recorded) = (output.path().join(TRACE), Recorded::new(5));
        recorded.write(&trace, MARKER);
        let index = trace.join("index/chan_0.idx");
        match len {
            None => fs::remove_file(&index).unwrap(),
            Some(len) => fs::write(&index, &recorded.index[..len]).unwrap(),
        }
        let half = [&recorded.data[..], &recorded.data[..1000]].concat();
        fs::write(trace.join("chan_0"), half).unwrap();
        let repaired = repair_all(output.path());
        assert_eq!((repaired.rebuilt, repaired.bytes), (1, 1000), "{len:?}");
        recorded.assert_closed(&trace);
        assert_eq!(repair_all(output.path()), Repaired::default(), "{len:?}");
    }
}

#[test]
fn a_flipped_bit_in_an_index_file_is_reported_and_corrected_wherever_it_breaks_a_rule() {
    let recorded = Recorded::new(4);
    // Magic number, version and entry length; then of the second entry: offset and sizes.
    let header = 0..16;
    let entry = (16 + 72 + 2..16 + 72 + 24).filter(|at| (at - 16) % 8 < 6);
    for at in header.chain(entry) {
        let output = tempfile::tempdir().unwrap();
        let trace = output.path().join(TRACE);
        recorded.write(&trace, MARKER);
        let mut index = [&recorded.index[..], &beacon()].concat();
        index[at] ^= 0x10;
        fs::write(trace.join("index/chan_0.idx"), index).unwrap();
        assert_eq!(repair_all(output.path()).damaged, 1, "byte {at}");
        recorded.assert_closed(&trace);
    }
}

/// Writes to the marker what a relay writes that runs on this kernel.
fn mark_with_boot(trace: &Path) {
    let boot = daemon::host_clock::boot_id().unwrap();
    fs::write(trace.join(MARKER), boot).unwrap();
}

#[test]
fn packets_with_an_entry_stay_whatever_is_in_them_unless_there_was_a_power_loss() {
    let entry_at = |number: usize, begin: u64| {
        let bytes = &Recorded::new(10).index[16 + number * 72..][..72];
        let mut entry = IndexFormat::V1_1.decode(bytes).unwrap();
        (entry.packet.begin, entry.packet.end) = (Timestamp(begin), Timestamp(begin + 1));
        let mut encoded = [0; MAX_ENTRY_BYTES];
        IndexFormat::V1_1.encode(&entry, &mut encoded).to_vec()
    };
    let whole = Recorded::new(10);
    let size = whole.data.len() / 10;
    let mut without_magic = whole.data.clone();
    without_magic[9 * size..][..4].fill(0xa5);
    let mut zeros = whole.data.clone();
    zeros[4 * size..].fill(0);
    let mut earlier = whole.index[..16].to_vec();
    (0..10).for_each(|number| earlier.extend(entry_at(number, 5000 - 7 * number as u64)));
    let cases = [
        ("no magic number", &without_magic, &whole.index),
        ("zeros", &zeros, &whole.index),
        ("times that go back", &whole.data, &earlier),
    ];
    for (case, data, index) in cases {
        for (marker, is_resumable) in [(true, false), (true, true), (false, true)] {
            let recorded = Recorded {
                metadata: whole.metadata.clone(),
                data: data.clone(),
                index: index.clone(),
            };
            let output = tempfile::tempdir().unwrap();
            let trace = output.path().join(TRACE);
            recorded.write(&trace, MARKER);
            mark_with_boot(&trace);
            if !marker {
                fs::remove_file(trace.join(MARKER)).unwrap();
            }
            let mut resumable = BTreeSet::new();
            if is_resumable {
                resumable.insert(PathBuf::from(TRACE));
            }
            // The next packet, without an entry, is sent again.
            let begun = [&data[..], &data[..100]].concat();
            fs::write(trace.join("chan_0"), begun).unwrap();
            let repaired = repair(output.path(), &resumable);
            let got = (repaired.bytes, repaired.damaged, repaired.failed);
            assert_eq!(got, (100, 0, 0), "{case}");
            assert_eq!(fs::read(trace.join("chan_0")).unwrap(), *data, "{case}");
            let kept = fs::read(trace.join("index/chan_0.idx")).unwrap();
            assert!(kept.starts_with(index), "{case}");
        }
    }
    // After a power loss, zeros at the end are bytes that did not reach the disk; nothing else is.
    for (case, (data, index), left) in [
        ("no magic number", (&without_magic, &whole.index), 10),
        ("zeros", (&zeros, &whole.index), 4),
        ("times that go back", (&whole.data, &earlier), 10),
    ] {
        let output = tempfile::tempdir().unwrap();
        let trace = output.path().join(TRACE);
        let (data, index) = (data.clone(), index.clone());
        let metadata = whole.metadata.clone();
        let recorded = Recorded {
            metadata,
            data,
            index,
        };
        recorded.write(&trace, MARKER);
        let resumable = BTreeSet::from([PathBuf::from(TRACE)]);
        let _ = repair(output.path(), &resumable);
        let len = fs::metadata(trace.join("chan_0")).unwrap().len();
        assert_eq!(len, (left * size) as u64, "{case}");
    }
}

#[test]
fn a_tracefile_whose_index_file_cannot_be_rebuilt_is_left_as_it_is() {
    let output = tempfile::tempdir().unwrap();
    let (trace, mut recorded) = (output.path().join(TRACE), Recorded::new(4));
    let size = recorded.data.len() / 4;
    // The third packet is none, and the second entry is damaged.
    recorded.data[2 * size..][..4].fill(0xa5);
    recorded.index[16 + 72 + 3] ^= 0x10;
    recorded.write(&trace, MARKER);
    for is_resumable in [false, true] {
        let resumable = is_resumable.then(|| PathBuf::from(TRACE));
        let repaired = repair(output.path(), &resumable.into_iter().collect());
        assert_eq!((repaired.damaged, repaired.failed), (1, 1));
        assert_eq!(fs::read(trace.join("chan_0")).unwrap(), recorded.data);
        let index = fs::read(trace.join("index/chan_0.idx")).unwrap();
        assert_eq!(index, [&recorded.index[..], &beacon()].concat());
        assert!(trace.join(MARKER).exists());
    }
}

#[test]
fn a_resumable_trace_is_cut_behind_its_last_entry_and_stays_open() {
    let output = tempfile::tempdir().unwrap();
    let (trace, recorded) = (output.path().join(TRACE), Recorded::new(3));
    recorded.write(&trace, MARKER);
    // A whole packet without an entry, half an entry, half a metadata packet, and a stream without
    // packets.
    let entries = &recorded.index[..16 + 2 * 72];
    fs::write(trace.join("index/chan_0.idx"), [entries, &[1; 9]].concat()).unwrap();
    let torn = [&recorded.metadata[..], &recorded.metadata[..20]].concat();
    fs::write(trace.join("metadata"), torn).unwrap();
    fs::write(trace.join("idle_0"), "").unwrap();
    fs::write(
        trace.join("index/idle_0.idx"),
        [IndexFormat::V1_1.header_bytes(), beacon()].concat(),
    )
    .unwrap();
    let resumable = BTreeSet::from([PathBuf::from(TRACE)]);
    let repaired = repair(output.path(), &resumable);
    assert_eq!(
        (repaired.tracefiles, repaired.indexes, repaired.metadata),
        (1, 1, 1)
    );
    let two = recorded.data.len() / 3 * 2;
    assert_eq!(
        fs::read(trace.join("chan_0")).unwrap(),
        recorded.data[..two]
    );
    let index = fs::read(trace.join("index/chan_0.idx")).unwrap();
    assert_eq!(index, [entries, &beacon()].concat());
    assert_eq!(fs::read(trace.join("metadata")).unwrap(), recorded.metadata);
    assert!(trace.join(MARKER).exists() && trace.join("index/idle_0.idx").exists());
    assert_eq!(repair(output.path(), &resumable), Repaired::default());
    // Without its index file, the trace continues after its last whole packet.
    fs::write(
        trace.join("chan_0"),
        &recorded.data[..recorded.data.len() - 1],
    )
    .unwrap();
    fs::remove_file(trace.join("index/chan_0.idx")).unwrap();
    assert_eq!(repair(output.path(), &resumable).rebuilt, 1);
    let index = fs::read(trace.join("index/chan_0.idx")).unwrap();
    assert_eq!(index, [entries, &beacon()].concat());
}

#[test]
fn a_chunk_that_lies_in_two_places_is_gathered_in_one() {
    let recorded = Recorded::new(2);
    let archive = "archives/20260101T000000+0000-20260101T000500+0000-0";
    let dated = "20260101T000000+0000-0";
    // Where a rotation stopped between two entries, and where the chunk is after the repair.
    for (part, rest, whole) in [
        (archive, "", archive),
        (".tmp_old_chunk", "", "archives/20260101T000000+0000-END-0"),
        ("", ".tmp_new_chunk", ""),
        (".tmp_new_chunk", ".tmp_new_chunk", dated),
    ] {
        let output = tempfile::tempdir().unwrap();
        let session = output.path().join("host/session");
        recorded.write(&session.join(part).join("kernel"), MARKER);
        recorded.write(&session.join(rest).join("ust/uid/0/64-bit"), MARKER);
        assert!(repair_all(output.path()).chunks > 0, "{part}");
        let mut whole = session.join(whole);
        if whole.ends_with("20260101T000000+0000-END-0") {
            // The end is the time at which the directory was created.
            let archive = fs::read_dir(session.join("archives")).unwrap().next();
            whole = archive.unwrap().unwrap().path();
        }
        recorded.assert_closed(&whole.join("kernel"));
        recorded.assert_closed(&whole.join("ust/uid/0/64-bit"));
        let temporary = [".tmp_old_chunk", ".tmp_new_chunk"];
        assert!(temporary.iter().all(|name| !session.join(name).exists()));
        assert_eq!(repair_all(output.path()), Repaired::default(), "{part}");
    }
}

#[test]
fn rotations_of_other_relays_and_of_living_ones_are_left_alone() {
    let recorded = Recorded::new(2);
    let output = tempfile::tempdir().unwrap();
    let old = output.path().join("host/session/.tmp_old_chunk/ust");
    recorded.write(&old, "no-marker");
    fs::write(old.join("index/chan_0.idx"), &recorded.index).unwrap();
    assert_eq!(repair_all(output.path()), Repaired::default());
    assert!(old.exists());
    fs::rename(old.join("no-marker"), old.join(MARKER)).unwrap();
    let metadata = fs::File::open(old.join("metadata")).unwrap();
    metadata.lock().unwrap();
    assert_eq!(repair_all(output.path()), Repaired::default());
    assert!(old.exists());
    metadata.unlock().unwrap();
    assert_eq!(repair_all(output.path()).chunks, 1);
}

#[test]
fn a_tree_of_100_000_files_is_repaired() {
    const TRACES: usize = 500;
    const STREAMS: usize = 100;
    const OPEN: usize = 5;
    // In memory if possible: to create the files on a busy disk takes minutes.
    let output = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    let output = output.unwrap();
    let recorded = Recorded::new(1);
    for number in 0..TRACES {
        let trace = output.path().join(format!("host/session-{number}/ust"));
        recorded.write(&trace, MARKER);
        let is_open = number % (TRACES / OPEN) == 0;
        if !is_open {
            fs::remove_file(trace.join(MARKER)).unwrap();
        }
        let tail = if is_open { beacon() } else { Vec::new() };
        let index = [&recorded.index[..], &tail].concat();
        let half = if is_open { 100 } else { 0 };
        let data = [&recorded.data[..], &recorded.data[..half]].concat();
        for stream in 0..STREAMS {
            fs::write(trace.join(format!("chan_{stream}")), &data).unwrap();
            fs::write(trace.join(format!("index/chan_{stream}.idx")), &index).unwrap();
        }
    }
    let begun = Instant::now();
    let repaired = repair_all(output.path());
    println!(
        "{} files repaired in {:?}",
        2 * TRACES * STREAMS,
        begun.elapsed()
    );
    let want = Repaired {
        indexes: (OPEN * STREAMS) as u64,
        tracefiles: (OPEN * STREAMS) as u64,
        bytes: (OPEN * STREAMS * 100) as u64,
        ..Repaired::default()
    };
    assert_eq!(repaired, want);
    assert_eq!(repair_all(output.path()), Repaired::default());
}
