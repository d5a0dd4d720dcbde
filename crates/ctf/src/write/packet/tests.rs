//! The bytes of packets, and events that are refused.

use proptest::prelude::*;

use super::*;
use crate::model::Uuid;
use crate::write::{EventDeclaration, FieldType, MetadataText, TraceDeclaration, Width};

/// A stream class with `1: x:y { u8 n; }` and `70000: x:text { string t; }`.
fn classes() -> (DeclaredStreamClass, DeclaredEventClass, DeclaredEventClass) {
    let uuid = Uuid(*b"0123456789abcdef");
    let mut metadata = MetadataText::new(&TraceDeclaration::new(uuid, "test"));
    let stream = metadata.stream(5).unwrap();
    let number = EventDeclaration {
        fields: vec![("n".into(), FieldType::Unsigned(Width::Bits8))],
        ..EventDeclaration::new(1, "x:y")
    };
    let text = EventDeclaration {
        fields: vec![("t".into(), FieldType::Text)],
        ..EventDeclaration::new(70_000, "x:text")
    };
    let number = metadata.event(&stream, &number).unwrap();
    let text = metadata.event(&stream, &text).unwrap();
    (stream, number, text)
}

fn writer(stream: &DeclaredStreamClass) -> StreamWriter {
    StreamWriter::new(stream, 2, 3, PacketSize::new(4096, 16_384))
}

fn at<'a>(time: u64, values: &'a [Value<'a>]) -> EventRecord<'a> {
    EventRecord {
        time: Timestamp(time),
        process: 0x11,
        thread: -1,
        values,
    }
}

#[test]
fn a_written_packet_has_header_events_and_padding() {
    let (stream, number, text) = classes();
    let mut writer = writer(&stream);
    writer.open(Timestamp(0x100)).unwrap();
    let written = Ok(Appended::Written);
    assert_eq!(
        writer.append(&number, &at(0x101, &[Value::Unsigned(9)])),
        written
    );
    assert_eq!(
        writer.append(&text, &at(0x102, &[Value::Text("ab")])),
        written
    );
    let far = 0x102 + (1 << 32);
    assert_eq!(
        writer.append(&number, &at(far, &[Value::Unsigned(8)])),
        written
    );
    let near = far + u64::from(u32::MAX);
    assert_eq!(
        writer.append(&number, &at(near, &[Value::Unsigned(7)])),
        written
    );
    writer.discard(6);
    let packet = writer.close(Timestamp(near)).unwrap();
    let head = wire::hex::parse(
        "c11ffcc1 30313233343536373839616263646566 05000000 0200000000000000
         0001000000000000 0101000002000000 1005000000000000 0080000000000000
         0000000000000000 0600000000000000 03000000",
    )
    .unwrap();
    assert_eq!(packet.bytes[..HEAD_BYTES], head);
    let events = wire::hex::parse(
        "0100 01010000 11000000 ffffffff 09
         ffff 70110100 0201000000000000 11000000 ffffffff 616200
         ffff 01000000 0201000001000000 11000000 ffffffff 08
         0100 01010000 11000000 ffffffff 07",
    )
    .unwrap();
    let content = HEAD_BYTES + events.len();
    assert_eq!(packet.bytes[HEAD_BYTES..content], events);
    assert_eq!(packet.bytes.len(), 4096);
    assert!(packet.bytes[content..].iter().all(|byte| *byte == 0));
    let index = PacketIndex {
        packet_size: Bits(32_768),
        content_size: Bits(content as u64 * 8),
        begin: Timestamp(0x100),
        end: Timestamp(near),
        events_discarded: 6,
        class: ClassId(5),
        instance: Some(InstanceId(2)),
        packet_seq: Some(PacketSeqNum(0)),
    };
    assert_eq!(packet.index, index);
}

#[test]
fn written_packets_have_sequence_numbers_and_cumulative_discarded_events() {
    let (stream, ..) = classes();
    let mut writer = writer(&stream);
    for number in 0..3 {
        writer.open(Timestamp(10 * number)).unwrap();
        writer.discard(2);
        let packet = writer.close(Timestamp(10 * number + 10)).unwrap();
        assert_eq!(packet.index.packet_seq, Some(PacketSeqNum(number)));
        assert_eq!(packet.index.events_discarded, 2 * (number + 1));
        assert_eq!(packet.index.content_size, Bits(84 * 8));
        assert_eq!(packet.bytes[64], u8::try_from(number).unwrap());
    }
}

#[test]
fn an_event_that_does_not_fit_is_not_written_to_the_packet() {
    let (stream, number, text) = classes();
    let mut writer = writer(&stream);
    writer.open(Timestamp(0)).unwrap();
    let long = "x".repeat(3000);
    let values = [Value::Text(&long)];
    let event = at(1, &values);
    assert_eq!(writer.append(&text, &event), Ok(Appended::Written));
    assert_eq!(
        writer.append(&text, &at(2, event.values)),
        Ok(Appended::Full)
    );
    // Its time does not count either.
    let short = at(1, &[Value::Unsigned(1)]);
    assert_eq!(writer.append(&number, &short), Ok(Appended::Written));
    let packet = writer.close(Timestamp(2)).unwrap();
    let content = 84 + (14 + 8 + 3001) + (6 + 8 + 1);
    assert_eq!(packet.index.content_size, Bits(content * 8));
}

#[test]
fn an_event_larger_than_a_packet_is_written_to_its_own_up_to_the_limit() {
    let (stream, number, text) = classes();
    let mut writer = writer(&stream);
    writer.open(Timestamp(0)).unwrap();
    let longer = "x".repeat(20_000);
    let values = [Value::Text(&longer)];
    let event = at(1, &values);
    assert_eq!(
        writer.append(&text, &event),
        Err(PacketError::TooLong(16_384))
    );
    assert!(!writer.has_events());
    let long = "x".repeat(10_000);
    let values = [Value::Text(&long)];
    let event = at(1, &values);
    assert_eq!(writer.append(&text, &event), Ok(Appended::Written));
    let values = [Value::Unsigned(1)];
    let event = at(1, &values);
    assert_eq!(writer.append(&number, &event), Ok(Appended::Full));
    assert_eq!(writer.close(Timestamp(1)).unwrap().bytes.len(), 12_288);
    writer.open(Timestamp(1)).unwrap();
    assert_eq!(writer.append(&number, &event), Ok(Appended::Written));
    assert_eq!(writer.close(Timestamp(1)).unwrap().bytes.len(), 4096);
}

#[test]
fn event_timestamps_of_a_written_packet_never_decrease() {
    let (stream, number, _) = classes();
    let mut writer = writer(&stream);
    let back = |got, last| PacketError::TimeWentBack {
        got: Timestamp(got),
        last: Timestamp(last),
    };
    let values = [Value::Unsigned(1)];
    writer.open(Timestamp(10)).unwrap();
    assert_eq!(writer.append(&number, &at(9, &values)), Err(back(9, 10)));
    assert_eq!(
        writer.append(&number, &at(12, &values)),
        Ok(Appended::Written)
    );
    assert_eq!(writer.append(&number, &at(11, &values)), Err(back(11, 12)));
    assert_eq!(writer.close(Timestamp(11)), Err(back(11, 12)));
    writer.close(Timestamp(20)).unwrap();
    assert_eq!(writer.open(Timestamp(19)), Err(back(19, 20)));
    writer.open(Timestamp(20)).unwrap();
}

#[test]
fn each_mismatched_event_or_value_is_refused_with_its_own_error() {
    let (stream, number, _) = classes();
    let mut writer = writer(&stream);
    let values = [Value::Unsigned(1)];
    let event = at(1, &values);
    assert_eq!(writer.append(&number, &event), Err(PacketError::NotOpen));
    assert_eq!(writer.close(Timestamp(1)), Err(PacketError::NotOpen));
    writer.open(Timestamp(0)).unwrap();
    assert_eq!(writer.open(Timestamp(0)), Err(PacketError::Open));
    let none = PacketError::Values { got: 0, want: 1 };
    assert_eq!(writer.append(&number, &at(1, &[])), Err(none));
    let wide = at(1, &[Value::Unsigned(256)]);
    assert_eq!(writer.append(&number, &wide), Err(PacketError::Value(0)));
    let mut other = MetadataText::new(&TraceDeclaration::new(Uuid([0; 16]), "other"));
    let other_stream = other.stream(5).unwrap();
    let foreign = other.event(&other_stream, &EventDeclaration::new(1, "x"));
    let refused = writer.append(&foreign.unwrap(), &at(1, &[]));
    assert_eq!(refused, Err(PacketError::OtherStream(1)));
    assert!(!writer.has_events());
}

/// Walks the events of a packet of `x:text` by hand: times and texts.
fn texts(packet: &[u8], content: usize) -> Vec<(u64, String)> {
    let u32_at = |at: usize| u32::from_le_bytes(packet[at..at + 4].try_into().unwrap());
    let u64_at = |at: usize| u64::from_le_bytes(packet[at..at + 8].try_into().unwrap());
    let (mut found, mut at) = (Vec::new(), HEAD_BYTES);
    while at < content {
        assert_eq!(
            (packet[at], packet[at + 1], u32_at(at + 2)),
            (0xff, 0xff, 70_000)
        );
        let time = u64_at(at + 6);
        let begin = at + 14 + 8;
        let length = packet[begin..].iter().position(|byte| *byte == 0).unwrap();
        let text = std::str::from_utf8(&packet[begin..begin + length]).unwrap();
        found.push((time, text.to_owned()));
        at = begin + length + 1;
    }
    assert_eq!(at, content);
    found
}

proptest! {
    #[test]
    fn every_written_event_is_decoded_from_its_packet(
        events in proptest::collection::vec((0..1_u64 << 40, "[a-z]{0,2000}"), 0..30),
    ) {
        let (stream, _, class) = classes();
        let mut writer = writer(&stream);
        let (mut time, mut want, mut got) = (0, Vec::new(), Vec::new());
        writer.open(Timestamp(0)).unwrap();
        for (step, text) in &events {
            time += step;
            let values = [Value::Text(text)];
            if writer.append(&class, &at(time, &values)).unwrap() == Appended::Full {
                let last = want.last().map_or(0, |(time, _)| *time);
                let packet = writer.close(Timestamp(last)).unwrap();
                let content = usize::try_from(packet.index.content_size.0 / 8).unwrap();
                got.extend(texts(packet.bytes, content));
                writer.open(Timestamp(last)).unwrap();
                let again = writer.append(&class, &at(time, &values)).unwrap();
                prop_assert_eq!(again, Appended::Written);
            }
            want.push((time, text.clone()));
        }
        let packet = writer.close(Timestamp(time)).unwrap();
        let content = usize::try_from(packet.index.content_size.0 / 8).unwrap();
        got.extend(texts(packet.bytes, content));
        prop_assert_eq!(got, want);
    }
}

#[test]
fn the_content_size_of_a_written_packet_excludes_its_padding() {
    let (stream, number, _) = classes();
    let mut writers = [writer(&stream), writer(&stream)];
    for writer in &mut writers {
        writer.open(Timestamp(1)).unwrap();
        let event = at(2, &[Value::Unsigned(7)]);
        assert_eq!(writer.append(&number, &event), Ok(Appended::Written));
    }
    let [one, other] = &mut writers;
    let packet = one.close(Timestamp(3)).unwrap();
    let (content, index) = other.close_content(Timestamp(3)).unwrap();
    assert_eq!(index, packet.index);
    assert_eq!(content.len() as u64 * 8, index.content_size.0);
    assert_eq!(content, packet.bytes[..content.len()]);
    // The next packet begins anew.
    other.open(Timestamp(3)).unwrap();
    let (content, index) = other.close_content(Timestamp(4)).unwrap();
    assert_eq!(
        (content.len(), index.packet_seq),
        (84, Some(PacketSeqNum(1)))
    );
}
