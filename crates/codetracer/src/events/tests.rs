//! From items to packets and back to items.

use std::borrow::Cow;

use ctf::Metadata;
use ctf::decode::{StreamDecoder, Visitor};
use ctf::model::{Scope, Uuid};
use ctf::write::{Appended, MetadataText, PacketSize, StreamWriter, TraceDeclaration};
use proptest::prelude::*;
use wire::Timestamp;

use super::*;
use crate::record::Json;

/// Every kind and every kind of value, as the published writer writes them.
const EVERY_EVENT: &str = include_str!("../../tests/data/every-event.jsonl");

/// Writes all items to one packet, and reads them back, with the positions of definitions.
fn decoded(items: &[Item<'_>]) -> Vec<(String, Option<u64>, Option<Item<'static>>)> {
    let mut text = MetadataText::new(&TraceDeclaration::new(Uuid([7; 16]), "test"));
    let (stream, mut encoder) = EventEncoder::declare(&mut text, 0).unwrap();
    let mut writer = StreamWriter::new(&stream, 0, 0, PacketSize::new(1 << 24, 1 << 24));
    writer.set_context(&[5, 6, 7]);
    writer.open(Timestamp(0)).unwrap();
    for item in items {
        let mut buffer = String::new();
        let encoded = encoder.encode(item, &mut buffer);
        let appended = writer.append(encoded.class(), &encoded.at(Timestamp(1)));
        assert_eq!(appended, Ok(Appended::Written));
        if let Item::Record(record) = item {
            encoder.count_record(record);
        }
    }
    let mut metadata = Metadata::new();
    metadata.extend(text.as_str().as_bytes()).unwrap();
    let trace = metadata.trace();
    let packet = writer.close(Timestamp(2)).unwrap().bytes;
    let mut decoder = StreamDecoder::new();
    let mut fields = EventDecoder::default();
    decoder.begin_packet(trace, packet).unwrap();
    let mut all = Vec::new();
    while decoder.advance(trace, packet).unwrap() {
        let event = decoder.event(trace, packet).unwrap();
        fields.clear();
        event.visit(&mut fields).unwrap();
        let class = event.class().name().unwrap();
        assert!(EventDecoder::is_known_class(class));
        let item = fields.decode(class).map(owned);
        all.push((class.to_owned(), fields.position(), item));
    }
    all
}

fn owned(item: Item<'_>) -> Item<'static> {
    match item {
        Item::Record(record) => Item::Record(record.into_owned()),
        Item::Metadata(metadata) => Item::Metadata(metadata),
        Item::FileChunk(chunk) => Item::FileChunk(FileChunk {
            path: chunk.path.into_owned().into(),
            content: chunk.content.into_owned().into(),
            sha256: chunk.sha256.into_owned().into(),
            ..chunk
        }),
        Item::End { records } => Item::End { records },
    }
}

fn record(text: &str) -> Item<'_> {
    Item::Record(Record::parse(text).unwrap())
}

#[test]
fn records_of_every_kind_come_back_from_their_events() {
    let items: Vec<_> = EVERY_EVENT.lines().map(record).collect();
    let all = decoded(&items);
    assert_eq!(all.len(), items.len());
    for (item, (class, _, back)) in items.iter().zip(&all) {
        assert_eq!(back.as_ref(), Some(item), "{class}");
    }
    let positions: Vec<_> = all
        .iter()
        .filter_map(|(_, position, _)| *position)
        .collect();
    assert_eq!(positions, [0, 0, 0, 1, 2, 3, 0, 1]);
    let other = all.iter().filter(|(class, ..)| class == "ct:other").count();
    assert_eq!(other, 12);
}

#[test]
fn records_with_a_nul_in_a_text_come_back_from_their_events() {
    let items = [
        r#"{"Path":"a\u0000b"}"#,
        r#"{"Function":{"path_id":0,"line":1,"name":"\u0000"}}"#,
        r#"{"Variable":"\u0000\""}"#,
        r#"{"VariableName":"\u0000"}"#,
        r#"{"Event":{"kind":0,"metadata":"\u0000","content":"x"}}"#,
        r#"{"New\u0000":["\u0000"]}"#,
        r#"{"":1}"#,
        r#"{"Value":{"variable_id":0,"value":{"kind":"Raw","r":"\u0000"}}}"#,
    ]
    .map(record);
    for (item, (class, _, back)) in items.iter().zip(decoded(&items)) {
        assert_eq!(back.as_ref(), Some(item), "{class}");
        assert_eq!(
            class == "ct:other",
            !matches!(item, Item::Record(Record::Value { .. }))
        );
    }
}

#[test]
fn metadata_and_copies_of_files_come_back_from_their_events() {
    let items = [
        Item::Metadata(RecordingMetadata {
            workdir: "/work".into(),
            program: "main.small".into(),
            args: vec!["a\0b".into(), "\"".into()],
            others: vec![(
                "recording_id".into(),
                Json::parse(r#"{"a":[1,"\u0000"]}"#).unwrap().into_owned(),
            )],
        }),
        // A string of CTF ends at a NUL.
        Item::Metadata(RecordingMetadata {
            program: "a\0b".into(),
            workdir: "/w\0".into(),
            ..RecordingMetadata::default()
        }),
        Item::FileChunk(FileChunk {
            path: "demo/main.small".into(),
            size: 70_000,
            offset: 65_536,
            content: (0..=255).cycle().take(4464).collect::<Vec<u8>>().into(),
            sha256: "00ff".into(),
        }),
        Item::FileChunk(FileChunk {
            path: "empty".into(),
            size: 0,
            offset: 0,
            content: Cow::Borrowed(b""),
            sha256: "e3".into(),
        }),
    ];
    for (item, (class, _, back)) in items.iter().zip(decoded(&items)) {
        assert_eq!(back.as_ref(), Some(item), "{class}");
    }
}

#[test]
fn metadata_of_older_producers_has_three_fields() {
    let mut decoder = EventDecoder::default();
    decoder.begin_scope(Scope::Payload);
    decoder.begin_structure();
    for (name, text) in [("program", "p"), ("workdir", "/w"), ("args", "[\"a\"]")] {
        decoder.member(name);
        decoder.text(text.as_bytes());
    }
    decoder.end_structure();
    let want = RecordingMetadata {
        workdir: "/w".into(),
        program: "p".into(),
        args: vec!["a".into()],
        others: Vec::new(),
    };
    assert_eq!(decoder.decode("ct:meta"), Some(Item::Metadata(want)));
}

#[test]
fn the_context_of_a_packet_counts_records_and_open_calls() {
    let mut text = MetadataText::new(&TraceDeclaration::new(Uuid([7; 16]), "test"));
    let (_, mut encoder) = EventEncoder::declare(&mut text, 0).unwrap();
    let mut contexts = Vec::new();
    for line in [
        r#"{"Path":"p"}"#,
        r#"{"Call":{"function_id":0,"args":[]}}"#,
        r#"{"Call":{"function_id":0,"args":[]}}"#,
        r#"{"Step":{"path_id":0,"line":1}}"#,
        r#"{"Return":{"return_value":{}}}"#,
    ] {
        encoder.count_record(&Record::parse(line).unwrap());
        contexts.push(encoder.packet_context());
    }
    assert_eq!(
        contexts,
        [[1, 0, 0], [2, 1, 0], [3, 2, 0], [4, 2, 1], [5, 1, 1]]
    );
}

fn any_json() -> impl Strategy<Value = Json<'static>> {
    any::<(Vec<String>, Option<f64>, i64)>().prop_map(|value| {
        let text = serde_json::to_string(&value).unwrap();
        Json::parse(&text).unwrap().into_owned()
    })
}

fn any_record() -> impl Strategy<Value = Record<'static>> {
    let text = || any::<String>().prop_map(Cow::<'static, str>::Owned);
    prop_oneof![
        text().prop_map(Record::Path),
        (any::<u64>(), any::<i64>(), text()).prop_map(|(path_id, line, name)| Record::Function {
            path_id,
            line,
            name
        }),
        any_json().prop_map(Record::Type),
        (text(), any::<bool>()).prop_map(|(name, is_legacy)| Record::Variable { name, is_legacy }),
        (any::<u64>(), any::<i64>()).prop_map(|(path_id, line)| Record::Step { path_id, line }),
        (any::<u64>(), any_json())
            .prop_map(|(function_id, args)| Record::Call { function_id, args }),
        any_json().prop_map(Record::Return),
        (any::<u64>(), any_json())
            .prop_map(|(variable_id, value)| Record::Value { variable_id, value }),
        (any::<u8>(), text(), text()).prop_map(|(kind, metadata, content)| Record::Log {
            kind,
            metadata,
            content
        }),
        Just(Record::DropLastStep),
        ("x[a-z\0]{0,4}", any_json()).prop_map(|(kind, payload)| Record::Other {
            kind: kind.into(),
            payload
        }),
    ]
}

proptest! {
    #[test]
    fn any_record_comes_back_from_its_event_and_its_json(
        records in prop::collection::vec(any_record(), 1..20)
    ) {
        for record in &records {
            let text = record.to_string();
            prop_assert_eq!(&Record::parse(&text).unwrap(), record);
        }
        let items: Vec<_> = records.into_iter().map(Item::Record).collect();
        let back = decoded(&items);
        prop_assert_eq!(back.len(), items.len());
        for (item, (class, _, back)) in items.iter().zip(&back) {
            prop_assert_eq!(back.as_ref(), Some(item), "{}", class);
        }
    }
}
