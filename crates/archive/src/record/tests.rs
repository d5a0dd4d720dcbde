use proptest::prelude::*;

use super::*;

fn block() -> BlockPlace {
    BlockPlace {
        offset: Bytes(8),
        stored: 90,
        raw: 172,
        encoding: Encoding::Zstd,
        checksum: 0x0102_0304,
    }
}

fn records() -> Vec<Record> {
    let session = SessionKey {
        producer: [9; 16],
        id: 3,
    };
    let stream = StreamKey {
        number: 5,
        is_metadata: true,
    };
    vec![
        Record::Object(ObjectRecord {
            kind: ObjectKind::Part,
            boot: BootId([7; 16]),
            number: 12,
        }),
        Record::Session(SessionRecord {
            session,
            created: 1_700_000_000_000_000_000,
            live_timer: 1_000_000,
            ctf_version: 2,
            host: Text::from("robot-7"),
            name: Text::from("auto"),
        }),
        Record::Chunk(ChunkRecord {
            chunk: Some(ChunkId(1)),
            state: ChunkState::Deleted,
        }),
        Record::Stream(StreamRecord {
            stream,
            path: TracePath::parse(&Text::from("ust/uid/1000/64-bit")).unwrap(),
            name: FileName::parse(&Text::from("metadata")).unwrap(),
        }),
        Record::Packets(PacketsRecord {
            stream: 5,
            chunk: None,
            first: SeqNum(40),
            count: 2,
            begin: Timestamp(100),
            end: Timestamp(200),
            packet_bytes: Bytes(28),
            block: block(),
        }),
        Record::Metadata(MetadataRecord {
            stream: 5,
            chunk: Some(ChunkId(0)),
            generation: 1,
            offset: Bytes(4096),
            block: block(),
        }),
        Record::Skipped {
            stream: 5,
            first: SeqNum(42),
            count: 3,
        },
        Record::StreamEnd { stream, next: 45 },
        Record::SessionEnd { at: 17 },
        Record::Beacon {
            stream: 5,
            until: Timestamp(19),
            class: ClassId(3),
        },
    ]
}

#[test]
fn records_are_read_back() {
    let mut bytes = Vec::new();
    records()
        .iter()
        .for_each(|record| record.encode(&mut bytes));
    let mut from = &bytes[..];
    for record in records() {
        assert_eq!(Record::decode(&mut from), Ok(record));
    }
    assert!(from.is_empty());
}

#[test]
fn every_truncated_record_is_refused() {
    for record in records() {
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        for len in 0..bytes.len() {
            let mut from = &bytes[..len];
            assert!(
                Record::decode(&mut from).is_err(),
                "{record:?} cut at {len}"
            );
        }
    }
}

#[test]
fn a_malformed_record_is_refused_by_name() {
    let record = |record_type: u8, body: &[u8]| {
        let mut bytes = vec![record_type, 0, 0, 0, u8::try_from(body.len()).unwrap()];
        bytes.extend(body);
        Record::decode(&mut &bytes[..]).unwrap_err().to_string()
    };
    assert_eq!(
        record(99, b""),
        "unknown record type 99: a newer version has written it"
    );
    assert_eq!(
        record(9, &[0; 9]),
        "record of type 9 is longer than its fields"
    );
    let mut climbing = vec![0; 17];
    climbing[12] = 2;
    climbing[16] = 1;
    climbing.extend(b"..m");
    assert!(record(4, &climbing).starts_with("invalid name"));
    let mut last = Vec::new();
    let Record::Packets(mut packets) = records().remove(4) else {
        unreachable!()
    };
    packets.first = SeqNum(u64::MAX);
    Record::Packets(packets).encode(&mut last);
    assert!(Record::decode(&mut &last[..]).is_err());
}

proptest! {
    #[test]
    fn what_is_accepted_is_what_would_have_been_written(
        which in 0..records().len(),
        at: prop::sample::Index,
        byte: u8,
    ) {
        let mut bytes = Vec::new();
        records()[which].encode(&mut bytes);
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok(record) = Record::decode(&mut &bytes[..]) {
            let mut again = Vec::new();
            record.encode(&mut again);
            let decoded = Record::decode(&mut &again[..]);
            prop_assert_eq!(decoded, Ok(record));
        }
    }
}
