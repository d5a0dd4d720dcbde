//! A ring over which bytes are written while the consumer reads it.
#![no_main]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::LazyLock;

use consumer::frontend::ring::ring_reader::{RingFault, RingReader, Role};
use fuzz::Overwrites;
use libfuzzer_sys::fuzz_target;
use trace_ring_core::format::{
    END_MARK, MIN_RECORD_SIZE, Mode, RING_COMMIT_OFFSET, RING_RESERVE_OFFSET, RING_STATE_LIVE,
    RING_STATE_OFFSET, RecordHeader, RingHeader, SeverityClass, SubBufferEntry,
};

/// Bytes of the fields of an event.
const FIELDS: u64 = 16;
/// Bytes of a record.
const RECORD: u64 = MIN_RECORD_SIZE as u64 + FIELDS;

static FILE: LazyLock<File> = LazyLock::new(|| tempfile::tempfile().expect("a file"));

fuzz_target!(|input: &[u8]| {
    let [flags, events, rest @ ..] = input else {
        return;
    };
    let mode = [Mode::Discard, Mode::Overwrite][usize::from(flags & 1)];
    let role = [Role::Drainer, Role::Observer][usize::from(flags >> 1 & 1)];
    let header = header(mode);
    // More events than the ring has room for, so that it discards or overwrites some.
    FILE.write_all_at(&ring(&header, u64::from(*events) * 4), 0)
        .expect("a write");
    let (file, size) = (|| FILE.try_clone().expect("a file"), header.file_size());
    let Ok(mut reader) = RingReader::open(file(), size, 0, role) else {
        panic!("a good ring is refused");
    };
    // After an error a reader is not asked again.
    let mut is_broken = read(&mut reader, &header).is_err();
    for (offset, bytes) in Overwrites(rest) {
        // The file keeps its size, with which it is read.
        let room = size.saturating_sub(offset).min(bytes.len() as u64) as usize;
        FILE.write_all_at(&bytes[..room], offset).expect("a write");
        is_broken = is_broken || read(&mut reader, &header).is_err();
        if !is_broken {
            let _ = reader.release(&reader.point(), false);
        }
        for role in [Role::Drainer, Role::Observer] {
            if let Ok(mut other) = RingReader::open(file(), size, 0, role) {
                let header = *other.header();
                let _ = read(&mut other, &header);
            }
        }
    }
});

/// Reads a ring to its end: no more than it has room for.
fn read(reader: &mut RingReader, header: &RingHeader) -> Result<(), RingFault> {
    reader.update()?;
    let (mut bytes, mut buffer) = (0, Vec::new());
    let mut chunks = 0;
    while let Some(chunk) = reader.read_chunk(&mut buffer)? {
        let mut records = chunk.records(&buffer);
        for record in &mut records {
            bytes += record.event.len() as u64;
        }
        let end = records.end();
        reader.finish_chunk(&chunk, &buffer, end);
        chunks += 1;
        assert!(bytes <= header.data_size(), "more than the ring holds");
        assert!(
            chunks <= u64::from(header.sub_buffer_count) * 4 + 4,
            "a ring without end"
        );
    }
    let _ = reader.take_lost();
    Ok(())
}

fn header(mode: Mode) -> RingHeader {
    RingHeader {
        number: 0,
        sub_buffer_size: 4096,
        sub_buffer_count: 4,
        mode,
        severity_class: SeverityClass::Normal,
        tid: 1,
        thread_name: [0; 16],
        created: 0,
    }
}

/// The bytes of a ring to which events were written until it was full, if it discards, or over
/// itself.
fn ring(header: &RingHeader, events: u64) -> Vec<u8> {
    let mut file = vec![0; header.file_size() as usize];
    let mut put = |offset: u64, bytes: &[u8]| {
        let begin = offset as usize;
        file[begin..begin + bytes.len()].copy_from_slice(bytes);
    };
    put(0, &header.encode());
    put(RING_STATE_OFFSET as u64, &RING_STATE_LIVE.to_le_bytes());
    let size = u64::from(header.sub_buffer_size);
    let (mut commit, mut written) = (0, 0);
    while written < events {
        let room = size - commit % size;
        if room < RECORD {
            put(header.offset_of(commit), &END_MARK.to_le_bytes());
            commit += room;
        }
        if commit % size == 0 {
            if header.mode == Mode::Discard && commit >= header.data_size() {
                break;
            }
            let entry = SubBufferEntry {
                sequence: commit / size + 1,
                events_before: written,
                lost_before: Default::default(),
            };
            put(header.entry_offset_of(commit), &entry.encode());
            put(RING_RESERVE_OFFSET as u64, &(commit + size).to_le_bytes());
        }
        let record = RecordHeader {
            size: RECORD as u32,
            position: commit,
            class: 1,
            tid: 0,
            timestamp: written,
        };
        let words: Vec<u8> = record
            .encode()
            .into_iter()
            .flat_map(u64::to_le_bytes)
            .collect();
        put(header.offset_of(commit), &words);
        commit += RECORD;
        written += 1;
    }
    put(RING_COMMIT_OFFSET as u64, &commit.to_le_bytes());
    file
}
