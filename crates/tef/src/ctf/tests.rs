//! From lines to packets and back to lines.

use ::ctf::Metadata;
use ::ctf::decode::StreamDecoder;
use ::ctf::model::Uuid;
use ::ctf::write::{Appended, MetadataText, PacketSize, StreamWriter, TraceDeclaration};
use proptest::prelude::*;
use wire::Timestamp;

use super::*;
use crate::event::tests::{line, meaning};
use crate::event::{Event, Record};
use crate::phase::{FAMILIES, Field};

/// A trace of one packet.
struct Recording {
    metadata: MetadataText,
    classes: Classes,
    writer: StreamWriter,
}

impl Recording {
    fn new() -> Self {
        let mut metadata = MetadataText::new(&TraceDeclaration::new(Uuid([7; 16]), "test"));
        let stream = metadata.stream(0).unwrap();
        let classes = Classes::declare(&mut metadata, &stream).unwrap();
        let mut writer = StreamWriter::new(&stream, 0, 0, PacketSize::new(1 << 20, 1 << 20));
        writer.open(Timestamp(0)).unwrap();
        Self {
            metadata,
            classes,
            writer,
        }
    }

    fn append<'e>(&'e mut self, encode: impl FnOnce(&'e Classes) -> Encoded<'e>) {
        let encoded = encode(&self.classes);
        let event = encoded.at(Timestamp(1));
        let appended = self.writer.append(encoded.class(), &event).unwrap();
        assert_eq!(appended, Appended::Written);
    }

    /// Shows what is found in each event.
    fn read(&mut self, mut show: impl FnMut(&str, Option<Decoded<'_>>)) {
        let mut metadata = Metadata::new();
        metadata.extend(self.metadata.as_str().as_bytes()).unwrap();
        let trace = metadata.trace();
        let packet = self.writer.close(Timestamp(2)).unwrap().bytes;
        let mut decoder = StreamDecoder::new();
        let mut record = RecordDecoder::default();
        decoder.begin_packet(trace, packet).unwrap();
        while decoder.advance(trace, packet).unwrap() {
            let event = decoder.event(trace, packet).unwrap();
            record.clear();
            event.visit(&mut record).unwrap();
            let class = event.class().name().unwrap();
            assert!(RecordDecoder::is_known_class(class));
            show(class, record.decode(class));
        }
    }
}

#[test]
fn each_phase_is_encoded_in_the_event_class_of_its_family() {
    let phases = FAMILIES.iter().flat_map(|family| family.phases.chars());
    let phases: Vec<_> = phases.chain(['?', 'é']).collect();
    let mut recording = Recording::new();
    for phase in &phases {
        let line = format!(r#"{{"ph":"{phase}"}}"#);
        let record = Record::parse(&line).unwrap();
        recording.append(|classes| classes.record(9, &record));
    }
    let mut left = phases.iter();
    recording.read(|class, found| {
        let phase = left.next().unwrap().to_string();
        let record = Record::Event(Event::new(&phase));
        assert_eq!(found, Some(Decoded::Record { client: 9, record }));
        assert_eq!(
            class.strip_prefix("tef:"),
            Some(crate::phase::family(&phase).class)
        );
    });
    assert!(left.next().is_none());
}

#[test]
fn records_of_the_daemon_are_decoded_as_they_were_encoded() {
    let opened = Client {
        client: 1,
        pid: Some(1234),
        uid: 1000,
        exe: "/bin/x y",
        opened: true,
        offset: None,
    };
    let closed = Client {
        pid: None,
        opened: false,
        offset: Some(-5),
        ..opened
    };
    let lost = Lost {
        client: 1,
        count: u64::MAX,
        reason: "no object at byte 0",
    };
    let mut recording = Recording::new();
    recording.append(|classes| classes.client(&opened));
    recording.append(|classes| classes.client(&closed));
    recording.append(|classes| classes.lost(&lost));
    recording.append(|classes| classes.record(2, &Record::Raw("{}")));
    let mut found = Vec::new();
    recording.read(|class, one| found.push(format!("{class} {:?}", one.unwrap())));
    let raw = Decoded::Record {
        client: 2,
        record: Record::Raw("{}"),
    };
    assert_eq!(
        found,
        [
            format!("tef:client {:?}", Decoded::Client(opened)),
            format!("tef:client {:?}", Decoded::Client(closed)),
            format!("tef:lost {:?}", Decoded::Lost(lost)),
            format!("tef:raw {raw:?}"),
        ]
    );
}

#[test]
fn an_event_of_a_foreign_producer_with_our_class_name_is_not_decoded() {
    let decoder = RecordDecoder::default();
    assert_eq!(decoder.decode("tef:complete"), None);
    assert_eq!(decoder.decode("tef:nothing"), None);
    assert_eq!(decoder.decode("complete"), None);
    assert!(!RecordDecoder::is_known_class("tef:event"));
}

#[test]
fn an_event_without_a_thread_is_encoded_with_the_first_thread_of_its_process() {
    let recording = Recording::new();
    for (line, process, thread) in [
        (r#"{"ph":"C","pid":5}"#, 5, 5),
        (r#"{"ph":"C","pid":5,"tid":0}"#, 5, 0),
        (r#"{"ph":"C","tid":6}"#, 0, 6),
        (r#"{"ph":"C","pid":"p"}"#, 0, 0),
    ] {
        let record = Record::parse(line).unwrap();
        let encoded = recording.classes.record(1, &record);
        let event = encoded.at(Timestamp(1));
        assert_eq!((event.process, event.thread), (process, thread), "{line}");
    }
}

#[test]
fn no_family_has_more_fields_than_an_encoded_event_holds() {
    let record = Record::parse(r#"{"ph":"?","name":"n"}"#).unwrap();
    let recording = Recording::new();
    let encoded = recording.classes.record(1, &record);
    assert_eq!(
        encoded.at(Timestamp(1)).values.len(),
        5 + crate::phase::OTHER.fields.len()
    );
    assert!(
        FAMILIES
            .iter()
            .all(|family| family.fields.len() <= Field::COUNT - 3)
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_record_is_decoded_from_a_packet_with_the_same_meaning(
        lines in prop::collection::vec(line(), 1..40),
    ) {
        let mut recording = Recording::new();
        for line in &lines {
            let record = Record::parse(line).unwrap();
            recording.append(|classes| classes.record(3, &record));
        }
        let mut sent = lines.iter();
        recording.read(|class, found| {
            let Some(Decoded::Record { client: 3, record }) = found else {
                panic!("{class}: {found:?}");
            };
            let mut json = Vec::new();
            record.write_json(&mut json);
            let json = String::from_utf8(json).unwrap();
            let line = sent.next().unwrap();
            assert_eq!(meaning(&json), meaning(line), "{class}: {line}");
            assert_eq!(Record::parse(line).unwrap().meaning(), record.meaning());
        });
        prop_assert!(sent.next().is_none());
    }
}
