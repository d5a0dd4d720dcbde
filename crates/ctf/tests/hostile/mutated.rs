//! Small valid traces, cut and changed: no reader panics, and none takes more time than the bytes
//! justify.

use ctf::Metadata;
use ctf::decode::StreamDecoder;
use ctf::model::Uuid;
use ctf::write::{
    Appended, Argument, ArgumentValue, EventDeclaration, EventRecord, FieldType, MetadataText,
    PacketSize, StreamWriter, TraceDeclaration, Value, metadata_packets,
};
use proptest::prelude::*;
use proptest::sample::Index;
use wire::Timestamp;

use crate::good;
use crate::must::{self, Work};

/// Packets, and to which of [`good::texts`] they belong.
const PACKETS: [(usize, &str); 11] = [
    (
        0,
        "c11ffcc1 00010203 04050607 08090a0b 0c0d0e0f 00000100 0900e802 e8020000 01020102 00030261 62007778 797a0268 690506ff 02040000 00000000 00010000 01000000 00000000 00000000 00000000 00000000 01017800 00000000 00",
    ),
    (
        1,
        "c1fc1fc1 00010203 04050607 08090a0b 0c0d0e0f 00000001 000902e8 02e80000 01020100 02030261 62007778 797a0268 690506ff 02000000 00000000 04010000 01000000 00000000 00000000 00000000 00000000 01017800 00000000 00",
    ),
    (
        0,
        "c11ffcc1 00010203 04050607 08090a0b 0c0d0e0f 0100f800 00026100 620001",
    ),
    (2, "97c0048d 80bc0000 00000001 00000000 c01f52"),
    (3, "12e09846 0e4d0000 02000000 00007f00 000026"),
    (4, "0d000000 00024102 030000"),
    (5, "40000003 00800602 c00000"),
    (
        8,
        "c11ffcc1 00010203 04050607 08090a0b 0c0d0e0f 00d005d0 05090400 01000000 00000000 00000000 00000000 00000000 00010202 61620061 00000078 797a0000 71000000 00727a00 00000000 00000203 027f6162 63646501 7400",
    ),
    (
        9,
        "c1fc1fc1 00010203 04050607 08090a0b 0c0d0e0f 00d005d0 05090400 01000000 00000000 00000000 00000000 00000000 00010202 61620061 00000078 797a0000 71000000 00727a00 00000000 00000203 027f6162 63646501 7400",
    ),
    (10, "38046100 0102050a 02040101 418c007f"),
    (11, "13406100 20020550 00a02001 0886407f"),
];

/// A trace that is good.
#[derive(Debug, Clone)]
struct Sample {
    metadata: Vec<u8>,
    packet: Vec<u8>,
}

fn samples() -> Vec<Sample> {
    let texts = good::texts();
    let sample = |(text, packet): &(usize, &str)| Sample {
        metadata: texts[*text].as_bytes().to_vec(),
        packet: wire::hex::parse(packet).unwrap(),
    };
    PACKETS.iter().map(sample).chain([written()]).collect()
}

/// One of our own writer, its metadata in packets.
fn written() -> Sample {
    let uuid = Uuid([9; 16]);
    let mut text = MetadataText::new(&TraceDeclaration::new(uuid, "tests"));
    let stream = text.stream(0).unwrap();
    let declaration = EventDeclaration {
        fields: vec![
            ("text".into(), FieldType::Text),
            ("args".into(), FieldType::Arguments),
        ],
        ..EventDeclaration::new(3, "e")
    };
    let class = text.event(&stream, &declaration).unwrap();
    let mut writer = StreamWriter::new(&stream, 0, 0, PacketSize::new(4096, 4096));
    writer.open(Timestamp(5)).unwrap();
    let flag = Argument {
        key: "k",
        value: ArgumentValue::Flag(true),
    };
    for time in 6..9 {
        let event = EventRecord {
            time: Timestamp(time),
            process: 1,
            thread: 2,
            values: &[Value::Text("a"), Value::Arguments(&[flag, flag])],
        };
        assert_eq!(writer.append(&class, &event), Ok(Appended::Written));
    }
    Sample {
        metadata: metadata_packets(uuid, text.as_str()),
        packet: writer.close(Timestamp(9)).unwrap().bytes.to_vec(),
    }
}

fn decode(sample: &Sample) -> Work {
    // What was declared before an error counts.
    let mut metadata = Metadata::new();
    let _ = metadata.extend(&sample.metadata);
    let work = must::decode(&mut metadata, None, &sample.packet);
    let bits = sample.packet.len() as u64 * 8;
    // Elements of no bits are bounded too, by a number that the packet does not say.
    assert!(
        work.events <= bits && work.calls <= 64 * (bits + (1 << 16)),
        "{work:?}"
    );
    work
}

#[test]
fn unchanged_sample_packets_decode_without_error() {
    for (place, sample) in samples().iter().enumerate() {
        let metadata = Metadata::read(&sample.metadata).unwrap();
        let mut decoder = StreamDecoder::new();
        let (trace, packet) = (metadata.trace(), &*sample.packet);
        decoder.begin_packet(trace, packet).unwrap();
        let mut events = 0;
        while decoder
            .advance(trace, packet)
            .unwrap_or_else(|error| panic!("{place}: {error}"))
        {
            events += 1;
        }
        assert!(events > 0, "{place}");
    }
}

#[test]
fn a_sample_packet_cut_anywhere_never_panics() {
    for sample in samples() {
        for end in 0..sample.packet.len().min(200) {
            let packet = sample.packet[..end].to_vec();
            let metadata = sample.metadata.clone();
            decode(&Sample { metadata, packet });
        }
        for end in (0..sample.metadata.len()).step_by(7) {
            let metadata = sample.metadata[..end].to_vec();
            must::read_metadata_alike_in(metadata.chunks(5));
        }
    }
}

/// What happens to bytes on a bad way.
#[derive(Debug, Clone)]
enum Change {
    Byte(Index, u8),
    Bit(Index, u8),
    Cut(Index),
    Remove(Index, Index),
    Repeat(Index, Index),
}

impl Change {
    fn any() -> impl Strategy<Value = Self> {
        prop_oneof![
            4 => any::<(Index, u8)>().prop_map(|(at, byte)| Self::Byte(at, byte)),
            4 => (any::<Index>(), 0..8_u8).prop_map(|(at, bit)| Self::Bit(at, bit)),
            1 => any::<Index>().prop_map(Self::Cut),
            1 => any::<(Index, Index)>().prop_map(|(from, to)| Self::Remove(from, to)),
            1 => any::<(Index, Index)>().prop_map(|(from, to)| Self::Repeat(from, to)),
        ]
    }

    fn to(&self, bytes: &mut Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        let place = |index: &Index| index.index(bytes.len());
        match self {
            Self::Byte(at, byte) => *at.get_mut(bytes) = *byte,
            Self::Bit(at, bit) => *at.get_mut(bytes) ^= 1 << bit,
            Self::Cut(at) => bytes.truncate(place(at)),
            Self::Remove(one, other) => {
                let (from, to) = (place(one).min(place(other)), place(one).max(place(other)));
                bytes.drain(from..to);
            }
            Self::Repeat(one, other) => {
                let (from, to) = (place(one).min(place(other)), place(one).max(place(other)));
                bytes.extend_from_within(from..to);
            }
        }
    }
}

fn any_sample() -> impl Strategy<Value = Sample> {
    prop::sample::select(samples())
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    prop::collection::vec(Change::any(), 1..6)
}

proptest! {
    #[test]
    fn mutated_packets_are_decoded_up_to_the_first_error(
        mut sample in any_sample(),
        changes in changes(),
    ) {
        changes.iter().for_each(|change| change.to(&mut sample.packet));
        decode(&sample);
    }

    #[test]
    fn mutated_metadata_gives_the_same_result_in_chunks(
        mut sample in any_sample(),
        changes in changes(),
        piece in 1..80_usize,
    ) {
        changes.iter().for_each(|change| change.to(&mut sample.metadata));
        must::read_metadata_alike_in(sample.metadata.chunks(piece));
        decode(&sample);
    }
}
