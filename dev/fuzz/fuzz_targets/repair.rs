//! A trace directory that a relay has left. The first byte says what shows that a relay has written
//! it; then metadata, a tracefile and its index file. What is repaired needs no repair, and packets
//! with an entry stay.
#![no_main]

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use ctf::index::{Beacon, Entry, IndexFormat};
use fuzz::{output, sections};
use libfuzzer_sys::fuzz_target;
use relayd::store::repair::{Repaired, repair};

const TRACE: &str = "host/session/ust";

/// Bytes of a beacon.
const BEACON: usize = 16;

/// Packets begin with a magic number, and have sizes and times.
const GOOD_METADATA: &str = include_str!("../../../crates/ctf/tests/hostile/metadata/classes.tsdl");

fuzz_target!(|input: &[u8]| {
    let Some((flags, input)) = input.split_first() else {
        return;
    };
    let (is_marked, is_of_boot) = (flags & 1 != 0, flags & 2 != 0);
    let (is_resumable, has_good_metadata) = (flags & 4 != 0, flags & 8 != 0);
    let output = output();
    let trace = output.path().join(TRACE);
    fs::create_dir_all(trace.join("index")).expect("a directory");
    let mut sections = sections(input);
    let metadata = sections.next().unwrap_or_default();
    let metadata = match has_good_metadata {
        true => GOOD_METADATA.as_bytes(),
        false => metadata,
    };
    let data = sections.next().unwrap_or_default();
    let index = sections.next().unwrap_or_default();
    fs::write(trace.join("metadata"), metadata).expect("a file");
    fs::write(trace.join("chan_0"), data).expect("a file");
    fs::write(trace.join("index/chan_0.idx"), index).expect("a file");
    // A marker of this boot says that there was no power loss.
    let boot = fs::read("/proc/sys/kernel/random/boot_id").expect("the id of the kernel");
    if is_marked {
        let boot = if is_of_boot { boot.trim_ascii() } else { b"" };
        fs::write(trace.join(".relayd-open-0-0"), boot).expect("a file");
    }
    let mut resumable = BTreeSet::new();
    if is_resumable {
        resumable.insert(PathBuf::from(TRACE));
    }
    // Twice, because a repair may be interrupted and is then done again.
    let first = repair(output.path(), &resumable);
    let again = repair(output.path(), &resumable);
    // Metadata may be damaged in another way than by its end, which then is found.
    let failed = again.failed;
    let nothing = Repaired {
        failed,
        ..Repaired::default()
    };
    if first.failed == 0 {
        assert_eq!(again, nothing, "after {first:?}");
    }
    let left = fs::read(trace.join("chan_0")).unwrap_or_default();
    assert!(
        data.starts_with(&left),
        "the repair has written to a tracefile"
    );
    // There was no power loss.
    let is_complete = is_resumable && !is_marked || is_marked && is_of_boot;
    let end = if is_complete {
        indexed_end(index, data)
    } else {
        0
    };
    assert!(left.len() as u64 >= end, "a packet with an entry is gone");
});

/// End of the last packet in the tracefile that has an entry: those before the first entry that
/// cannot be right.
fn indexed_end(index: &[u8], data: &[u8]) -> u64 {
    let format = IndexFormat::V1_1;
    let mut end = 0;
    let Some(mut entries) = index.strip_prefix(&format.header_bytes()[..]) else {
        return end;
    };
    if let Some((before, last)) = entries.split_last_chunk::<BEACON>()
        && Beacon::at_front(last).is_some()
    {
        entries = before;
    }
    for entry in entries.chunks_exact(format.entry_len()) {
        let Ok(Entry { offset, packet }) = format.decode(entry) else {
            break;
        };
        let size = packet.packet_size.to_bytes().unwrap_or_default().0;
        let last = offset.0.saturating_add(size);
        let is_valid = size > 0 && offset.0 >= end && packet.content_size <= packet.packet_size;
        if !is_valid || last > data.len() as u64 {
            break;
        }
        end = last;
    }
    end
}
