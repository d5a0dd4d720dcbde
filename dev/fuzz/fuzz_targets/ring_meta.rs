//! The `meta` of a traced process, over which bytes are written while the consumer reads it.
#![no_main]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::LazyLock;

use consumer::frontend::ring::classes::read_fields;
use consumer::frontend::ring::meta_reader::MetaReader;
use consumer::frontend::ring::user_budget::UserBudgets;
use fuzz::Overwrites;
use libfuzzer_sys::fuzz_target;
use trace_ring_core::Severity;
use trace_ring_core::format::{EventClass, FieldType, META_COMMITTED_OFFSET, MetaHeader};

static FILE: LazyLock<File> = LazyLock::new(|| tempfile::tempfile().expect("a file"));
static META: LazyLock<Vec<u8>> = LazyLock::new(meta);

fuzz_target!(|input: &[u8]| {
    // The input before may have written over the end.
    FILE.set_len(META.len() as u64).expect("a size");
    FILE.write_all_at(&META, 0).expect("a write");
    let file = || FILE.try_clone().expect("a file");
    let budgets = UserBudgets::default();
    // One for each reader, so that what one takes is not missing for the other.
    let (mut budget, mut other_budget) = (budgets.of_process(0), budgets.of_process(0));
    let mut reader = MetaReader::open(file(), &mut budget).expect("good metadata");
    let _ = reader.update(&mut budget);
    for (offset, bytes) in Overwrites(input) {
        FILE.write_all_at(bytes, offset).expect("a write");
        let _ = reader.update(&mut budget);
        decode(&reader, input);
        if let Ok(mut other) = MetaReader::open(file(), &mut other_budget) {
            let _ = other.update(&mut other_budget);
            decode(&other, input);
        }
    }
});

/// Decodes arbitrary bytes as fields of each class.
fn decode(reader: &MetaReader, fields: &[u8]) {
    for id in 0..8 {
        if let Some(class) = reader.class(id) {
            let _ = read_fields(class, fields);
        }
    }
}

/// The bytes of `meta` with a class of each field type, and one of all.
fn meta() -> Vec<u8> {
    let header = MetaHeader {
        pid: 1,
        uid: 0,
        start_ticks: 17,
        uuid: [1; 16],
        boot_id: [0; 16],
        process_name: [b'p'; 16],
        program: b"/usr/bin/program".to_vec(),
        committed: 0,
        clock_offset: 0,
        lost_no_ring: 0,
    };
    let mut records = Vec::new();
    for (id, count) in [(1, 1), (2, FieldType::ALL.len()), (3, 0)] {
        let types = FieldType::ALL.iter().take(count).enumerate();
        let fields = types.map(|(number, kind)| (format!("field{number}"), *kind));
        let class = EventClass {
            id,
            severity: Severity::Info,
            line: 1,
            target: "target".into(),
            file: "file.rs".into(),
            name: "name".into(),
            fields: fields.collect(),
        };
        records.extend(class.encode());
    }
    let mut meta = header.encode().to_vec();
    let committed = (records.len() as u64).to_le_bytes();
    meta[META_COMMITTED_OFFSET..][..8].copy_from_slice(&committed);
    meta.extend(records);
    meta
}
