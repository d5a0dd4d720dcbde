//! Every structure reads back what was written, and refuses what was not.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::Severity;

fn ring_header() -> RingHeader {
    RingHeader {
        number: 3,
        sub_buffer_size: 65536,
        sub_buffer_count: 16,
        mode: Mode::Overwrite,
        severity_class: SeverityClass::Debug,
        tid: 4_194_303,
        thread_name: *b"worker 3\0\0\0\0\0\0\0\0",
        created: 0x0102_0304_0506_0708,
    }
}

fn meta_header() -> MetaHeader {
    MetaHeader {
        pid: 4_194_303,
        uid: 1000,
        start_ticks: 77,
        uuid: [1; 16],
        boot_id: [2; 16],
        process_name: *b"app\0\0\0\0\0\0\0\0\0\0\0\0\0",
        program: b"/usr/bin/app".to_vec(),
        committed: 9,
        clock_offset: -5,
        lost_no_ring: 6,
    }
}

fn event_class() -> EventClass {
    EventClass {
        id: 1,
        severity: Severity::Warn,
        line: 12,
        target: "app::db".into(),
        file: "src/db.rs".into(),
        name: "query".into(),
        fields: FieldType::ALL
            .iter()
            .map(|kind| (format!("{kind:?}"), *kind))
            .collect(),
    }
}

#[test]
fn a_ring_header_reads_back_and_every_truncated_prefix_is_refused() {
    let bytes = ring_header().encode();
    assert_eq!(RingHeader::decode(&bytes), Ok(ring_header()));
    for length in 0..bytes.len() {
        let error = RingHeader::decode(&bytes[..length]).unwrap_err();
        assert!(
            matches!(error, FormatError::Truncated { .. }),
            "{length}: {error}"
        );
    }
}

#[test]
fn a_ring_header_with_any_changed_byte_is_refused() {
    let bytes = ring_header().encode();
    for index in 0..bytes.len() {
        let mut changed = bytes;
        changed[index] ^= 1;
        assert!(RingHeader::decode(&changed).is_err(), "byte {index}");
    }
}

#[test]
fn ring_sizes_outside_the_limits_are_refused() {
    for (size, count) in [
        (0, 16),
        (MIN_SUB_BUFFER_SIZE / 2, 16),
        (MIN_SUB_BUFFER_SIZE + 1, 16),
        (MAX_SUB_BUFFER_SIZE * 2, 2),
        (4096, 0),
        (4096, 1),
        (4096, 3),
        (4096, MAX_SUB_BUFFER_COUNT * 2),
        (MAX_SUB_BUFFER_SIZE, MAX_SUB_BUFFER_COUNT),
    ] {
        let header = RingHeader {
            sub_buffer_size: size,
            sub_buffer_count: count,
            ..ring_header()
        };
        let error = RingHeader::decode(&header.encode()).unwrap_err();
        assert!(
            matches!(error, FormatError::OutOfRange { .. }),
            "{size} x {count}: {error}"
        );
    }
}

#[test]
fn the_bytes_of_a_ring_header_are_the_same_on_every_host() {
    let bytes = ring_header().encode();
    assert_eq!(&bytes[..16], b"TRCRING\n\x01\0\0\0\x03\0\0\0");
    assert_eq!(
        &bytes[16..36],
        b"\0\0\x01\0\x10\0\0\0\x01\0\0\0\x02\0\0\0\xff\xff\x3f\0"
    );
    assert_eq!(&bytes[56..64], b"\x08\x07\x06\x05\x04\x03\x02\x01");
}

#[test]
fn control_words_and_table_entries_read_back_and_truncated_ones_are_refused() {
    let lost = Lost {
        full: 1,
        big: 2,
        nested: u64::MAX,
    };
    let entry = SubBufferEntry {
        sequence: 5,
        events_before: 6,
        lost_before: lost,
    };
    let bytes = entry.encode();
    assert_eq!(SubBufferEntry::decode(&bytes), Ok(entry));
    assert!((0..bytes.len()).all(|length| SubBufferEntry::decode(&bytes[..length]).is_err()));
    assert_eq!(lost.total(), u64::MAX);

    let mut page = vec![0; RING_TABLE_OFFSET];
    page[RING_RESERVE_OFFSET] = 1;
    page[RING_COMMIT_OFFSET] = 2;
    page[RING_CONSUMED_OFFSET] = 3;
    page[RING_RELEASED_OFFSET] = 1;
    page[RING_LOST_OFFSET + 16] = 4;
    page[RING_STATE_OFFSET] = 2;
    let expected = RingControl {
        reserve: 1,
        commit: 2,
        consumed: 3,
        is_released: true,
        lost: Lost {
            full: 0,
            big: 0,
            nested: 4,
        },
        is_ended: true,
    };
    assert_eq!(RingControl::decode(&page), Ok(expected));
    assert!((0..RING_STATE_OFFSET + 4).all(|length| RingControl::decode(&page[..length]).is_err()));
}

#[test]
fn a_meta_header_reads_back_and_every_truncated_prefix_is_refused() {
    let bytes = meta_header().encode();
    assert_eq!(MetaHeader::decode(&bytes), Ok(meta_header()));
    for length in 0..bytes.len() {
        let error = MetaHeader::decode(&bytes[..length]).unwrap_err();
        assert!(
            matches!(error, FormatError::Truncated { .. }),
            "{length}: {error}"
        );
    }
}

#[test]
fn a_meta_header_with_any_changed_fixed_byte_is_refused() {
    let bytes = meta_header().encode();
    for index in 0..META_FIXED_SIZE {
        let mut changed = bytes;
        changed[index] ^= 0x80;
        assert!(MetaHeader::decode(&changed).is_err(), "byte {index}");
    }
}

#[test]
fn a_program_path_that_is_too_long_is_cut() {
    let header = MetaHeader {
        program: vec![b'x'; 2 * MAX_PROGRAM_SIZE],
        ..meta_header()
    };
    let read = MetaHeader::decode(&header.encode()).unwrap();
    assert_eq!(read.program.len(), MAX_PROGRAM_SIZE);
}

#[test]
fn pids_beyond_sixteen_bits_are_kept() {
    assert_eq!(
        MetaHeader::decode(&meta_header().encode()).unwrap().pid,
        4_194_303
    );
    assert_eq!(
        parse_directory_name("4194303-1-00000000"),
        Some((4_194_303, 1))
    );
}

#[test]
fn event_classes_read_back_and_an_unfinished_one_is_left_for_later() {
    let second = EventClass {
        id: 2,
        fields: Vec::new(),
        ..event_class()
    };
    let mut bytes = event_class().encode();
    let first_length = bytes.len();
    bytes.extend(second.encode());
    let mut records = MetaRecords::new(&bytes);
    assert_eq!(records.next(), Some(Ok(event_class())));
    assert_eq!(records.next(), Some(Ok(second)));
    assert_eq!((records.next(), records.consumed()), (None, bytes.len()));
    for length in 0..first_length {
        let mut records = MetaRecords::new(&bytes[..length]);
        assert_eq!((records.next(), records.consumed()), (None, 0), "{length}");
    }
}

#[test]
fn an_event_class_with_a_changed_byte_is_refused_or_ends_the_walk() {
    let bytes = event_class().encode();
    for index in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[index] ^= 1;
        // A changed kind is skipped.
        assert!(
            !matches!(MetaRecords::new(&changed).next(), Some(Ok(_))),
            "byte {index}"
        );
    }
}

#[test]
fn event_classes_outside_the_limits_are_refused() {
    let content = |class: &EventClass| class.encode().split_off(META_RECORD_HEADER_SIZE);
    let class = event_class();
    assert_eq!(EventClass::decode(&content(&class)), Ok(class.clone()));
    for id in [0, MAX_CLASSES + 1] {
        assert!(
            EventClass::decode(&content(&EventClass {
                id,
                ..class.clone()
            }))
            .is_err()
        );
    }
    let mut wrong_severity = content(&class);
    wrong_severity[8] = 9;
    assert!(EventClass::decode(&wrong_severity).is_err());
    let mut too_long = content(&class);
    too_long.push(0);
    assert!(EventClass::decode(&too_long).is_err());
}

#[test]
fn names_and_fields_beyond_the_limits_are_cut_by_the_writer() {
    let class = EventClass {
        name: "ä".repeat(MAX_NAME_SIZE),
        fields: vec![("f".into(), FieldType::U8); MAX_FIELDS + 10],
        ..event_class()
    };
    let bytes = class.encode();
    let read = MetaRecords::new(&bytes).next().unwrap().unwrap();
    assert_eq!(
        (read.name.len(), read.fields.len()),
        (MAX_NAME_SIZE, MAX_FIELDS)
    );
}

#[test]
fn a_record_reads_back_and_every_truncated_prefix_has_none() {
    let position = 0x1_2345_6780;
    let header = RecordHeader {
        size: 29,
        position,
        class: 4,
        tid: 5,
        timestamp: 6,
    };
    let mut bytes: Vec<u8> = header
        .encode()
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect();
    bytes.extend_from_slice(b"hello\0\0\0");
    let mut records = Records::new(&bytes, position);
    let record = records.next().unwrap().unwrap();
    assert_eq!(
        (record.class, record.tid, record.timestamp, record.fields()),
        (4, 5, 6, &b"hello"[..])
    );
    assert_eq!((records.next(), records.position()), (None, position + 32));
    for length in 0..29 {
        let record = Records::new(&bytes[..length], position).next();
        assert!(!matches!(record, Some(Ok(_))), "{length}");
    }
}

#[test]
fn a_record_with_an_impossible_size_or_check_ends_the_walk() {
    for (size, position) in [(0, 0), (23, 0), (65, 0), (u32::MAX - 1, 0), (32, 8)] {
        let header = RecordHeader {
            size,
            position,
            class: 1,
            tid: 0,
            timestamp: 0,
        };
        let mut bytes: Vec<u8> = header
            .encode()
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect();
        bytes.resize(64, 0);
        let mut records = Records::new(&bytes, 0);
        assert!(records.next().unwrap().is_err(), "{size} at {position}");
        assert_eq!(records.next(), None);
    }
}

#[test]
fn the_end_mark_ends_a_sub_buffer() {
    let bytes = [0xff; 64];
    assert_eq!(Records::new(&bytes, 0).next(), None);
}

#[test]
fn fields_read_back_and_truncated_ones_are_refused() {
    let cases: [(FieldType, &[u8], FieldValue<'_>); 9] = [
        (FieldType::U8, &[255], FieldValue::Unsigned(255)),
        (
            FieldType::U64,
            &[1, 0, 0, 0, 0, 0, 0, 1],
            FieldValue::Unsigned(0x0100_0000_0000_0001),
        ),
        (FieldType::I8, &[255], FieldValue::Signed(-1)),
        (
            FieldType::I32,
            &[254, 255, 255, 255],
            FieldValue::Signed(-2),
        ),
        (
            FieldType::F64,
            &[0, 0, 0, 0, 0, 0, 0xf0, 0x3f],
            FieldValue::Float(1.0),
        ),
        (FieldType::F32, &[0, 0, 0x80, 0x3f], FieldValue::Float(1.0)),
        (FieldType::Bool, &[2], FieldValue::Bool(true)),
        (
            FieldType::Str,
            &[2, 0, b'a', 0xff],
            FieldValue::Str(&[b'a', 0xff]),
        ),
        (FieldType::Bytes, &[0, 0], FieldValue::Bytes(&[])),
    ];
    for (kind, bytes, value) in cases {
        assert_eq!(
            read_field(kind, bytes),
            Ok((value, bytes.len())),
            "{kind:?}"
        );
        for length in 0..bytes.len() {
            assert!(
                read_field(kind, &bytes[..length]).is_err(),
                "{kind:?} {length}"
            );
        }
    }
}

#[test]
fn every_field_type_has_its_own_code() {
    for kind in FieldType::ALL {
        assert_eq!(FieldType::from_code(kind.code()), Some(kind));
    }
    assert_eq!(
        (FieldType::from_code(0), FieldType::from_code(14)),
        (None, None)
    );
}

#[test]
fn a_control_file_reads_back_and_a_change_in_progress_is_refused() {
    let control = Control {
        generation: 7,
        directives: "warn,app::db=debug".into(),
    };
    let bytes = control.encode().unwrap();
    assert_eq!(Control::decode(&bytes), Ok(control));
    for length in 0..bytes.len() {
        assert!(Control::decode(&bytes[..length]).is_err(), "{length}");
    }
    let mut changing = bytes;
    changing[CONTROL_BODY_OFFSET + 10] ^= 1;
    assert_eq!(
        Control::decode(&changing),
        Err(FormatError::Checksum {
            what: "control file"
        })
    );
    let too_long = "x".repeat(MAX_DIRECTIVES_SIZE + 1);
    assert_eq!(Control::encode_body(&too_long), None);
    assert_eq!(
        Control::encode_body(&too_long[1..]).map(|body| body.len() + CONTROL_BODY_OFFSET),
        Some(CONTROL_SIZE)
    );
}

#[test]
fn only_complete_directory_names_are_accepted() {
    assert_eq!(parse_directory_name("12-345-00ab12ff"), Some((12, 345)));
    for name in [
        ".12-345-00ab12ff",
        "12-345",
        "12-345-xyz",
        "12-345-00ab12ff-1",
        "-1-345-00ab12ff",
        "meta",
    ] {
        assert_eq!(parse_directory_name(name), None, "{name}");
    }
}

#[test]
fn only_ring_file_names_have_a_ring_number() {
    assert_eq!(parse_ring_file_name(&ring_file_name(17)), Some(17));
    for name in ["r", ".r1", "r01", "r+1", "meta", "r4294967296"] {
        assert_eq!(parse_ring_file_name(name), None, "{name}");
    }
}

proptest! {
    #[test]
    fn readers_stay_within_arbitrary_bytes(bytes in vec(any::<u8>(), 0..5000), position in any::<u64>()) {
        let _ = RingHeader::decode(&bytes);
        let _ = RingControl::decode(&bytes);
        let _ = SubBufferEntry::decode(&bytes);
        let _ = MetaHeader::decode(&bytes);
        let _ = EventClass::decode(&bytes);
        let _ = Control::decode(&bytes);
        prop_assert!(Records::new(&bytes, position).count() <= bytes.len() / MIN_RECORD_SIZE + 1);
        prop_assert!(MetaRecords::new(&bytes).count() <= bytes.len() / META_RECORD_HEADER_SIZE);
        for kind in FieldType::ALL {
            prop_assert!(read_field(kind, &bytes).is_ok_and(|(_, length)| length <= bytes.len())
                || read_field(kind, &bytes).is_err());
        }
    }

    #[test]
    fn an_event_class_that_is_accepted_is_written_as_it_was_read(index in 0..80_usize, byte: u8) {
        let mut content = event_class().encode().split_off(META_RECORD_HEADER_SIZE);
        content[index] = byte;
        if let Ok(class) = EventClass::decode(&content)
            && class.name.is_ascii() && class.target.is_ascii() && class.file.is_ascii()
            && class.fields.iter().all(|(name, _)| name.is_ascii())
        {
            prop_assert_eq!(class.encode().split_off(META_RECORD_HEADER_SIZE), content);
        }
    }
}
