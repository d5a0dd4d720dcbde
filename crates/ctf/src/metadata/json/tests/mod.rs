//! The declarations that fragments make.

mod refused;

use super::*;
use crate::model::{
    Base, BitField, ByteOrder, Clock, Encoding, EnvironmentValue, Integer, Label, Labels, Length,
    LogLevel, Member, Origin, Selection,
};

const PREAMBLE: &str = r#"{"type":"preamble","version":2}"#;
const STREAM: &str = r#"{"type":"data-stream-class"}"#;

/// In LTTng's dialect, from a recording by LTTng 2.15: shortened.
const LTTNG: &str = r#"{"type":"preamble","uuid":[139,107,192,88,218,160,65,209,172,108,249,234,71,36,222,254],"version":2}
{"type":"trace-class","namespace":"lttng.org,2009","name":"","uid":"8b6bc058-daa0-41d1-ac6c-f9ea4724defe",
"environment":{"tracer_name":"lttng-ust","tracer_major":2},"packet-header-field-class":{"type":"structure","member-classes":[
{"name":"magic","field-class":{"type":"fixed-length-unsigned-integer","length":32,"byte-order":"little-endian","alignment":8,"preferred-display-base":16,"roles":["packet-magic-number"]}},
{"name":"uuid","field-class":{"type":"static-length-blob","length":16,"roles":["metadata-stream-uuid"]}}]}}
{"description":"Monotonic Clock","frequency":1000000000,"id":"monotonic","name":"monotonic","offset-from-origin":{"cycles":617198853,"seconds":1795207708},"origin":"unix-epoch","type":"clock-class","uid":"5826a401-6e1b-4ccd-8154-624fe0e7b255"}
{"type":"data-stream-class","id":0,"default-clock-class-id":"monotonic","event-record-header-field-class":{"type":"structure","member-classes":[
{"name":"id","field-class":{"type":"fixed-length-unsigned-integer","length":16,"byte-order":"little-endian","alignment":8,"mappings":{"extended":[[65535,65535]],"compact":[[0,65534]]},"roles":["event-record-class-id"]}},
{"name":"v","field-class":{"type":"variant","selector-field-location":{"origin":"event-record-header","path":["id"]},"options":[
{"name":"compact","selector-field-ranges":[[0,65534]],"field-class":{"type":"structure","member-classes":[
{"name":"timestamp","field-class":{"type":"fixed-length-unsigned-integer","length":32,"byte-order":"little-endian","alignment":8,"roles":["default-clock-timestamp"]}}]}}]}}]}}
{"type":"event-record-class","attributes":{"lttng.org,2009":{"log-level":"debug:line","emf-uri":"a.c:1"}},"name":"a:b","payload-field-class":{"type":"structure","minimum-alignment":16,"member-classes":[
{"name":"text","field-class":{"type":"dynamic-length-string","length-field-location":{"origin":"event-record-payload","path":["_text_length"]}}}]}}"#;

/// The fragments as a JSON text sequence.
fn sequence(fragments: &[&str]) -> String {
    fragments
        .iter()
        .map(|fragment| format!("\x1e{fragment}\n"))
        .collect()
}

/// [`LTTNG`] as a JSON text sequence.
fn lttng() -> String {
    let mut out = String::new();
    let mut depth = 0_i32;
    for character in LTTNG.chars() {
        if character == '{' && depth == 0 {
            out.push('\x1e');
        }
        depth += match character {
            '{' => 1,
            '}' => -1,
            _ => 0,
        };
        out.push(character);
    }
    out
}

fn parse_all(text: &str) -> Result<Vec<Declaration>, MetadataError> {
    let mut parser = Parser::new();
    let declarations = parser.extend(text.as_bytes())?;
    parser.finish()?;
    Ok(declarations)
}

/// What is wrong with these fragments after a preamble.
fn refused(fragments: &[&str]) -> String {
    parse_all(&sequence(&[&[PREAMBLE], fragments].concat()))
        .unwrap_err()
        .to_string()
}

/// The class of the only member of a payload.
fn built(class: &str) -> Result<FieldClass<Reference>, MetadataError> {
    built_after(&[], class)
}

fn built_after(before: &[&str], class: &str) -> Result<FieldClass<Reference>, MetadataError> {
    let event = format!(
        r#"{{"type":"event-record-class","payload-field-class":{{"type":"structure","member-classes":[{{"name":"x","field-class":{class}}}]}}}}"#
    );
    let fragments = [&[PREAMBLE], before, &[STREAM, &event]].concat();
    let declarations = parse_all(&sequence(&fragments))?;
    let Some(Declaration::Event(event)) = declarations.last() else {
        panic!("no event")
    };
    Ok(event.payload.as_ref().unwrap().members[0].class.clone())
}

fn why(class: &str) -> String {
    built(class).unwrap_err().to_string()
}

#[test]
fn ctf_2_metadata_of_lttng_is_read() {
    let declarations = parse_all(&lttng()).unwrap();
    let [trace, name, major, clock, stream, event] = &declarations[..] else {
        panic!("{declarations:?}")
    };
    let Declaration::Trace(trace) = trace else {
        panic!("{trace:?}")
    };
    let uuid = Uuid::parse("8b6bc058-daa0-41d1-ac6c-f9ea4724defe");
    assert_eq!(trace.uuid, uuid);
    let header = trace.packet_header.as_ref().unwrap();
    let magic = Integer {
        base: Base::Hexadecimal,
        role: Some(Role::PacketMagic),
        ..Integer::unsigned(32, 8, ByteOrder::Little)
    };
    assert_eq!(header.members[0].class, FieldClass::Integer(magic));
    let blob = FieldClass::Blob {
        length: Length::Static(16),
        media_type: "application/octet-stream".into(),
        role: Some(Role::MetadataUuid),
    };
    assert_eq!(header.members[1].class, blob);
    let text = EnvironmentValue::Text("lttng-ust".into());
    assert_eq!(*name, Declaration::Environment("tracer_name".into(), text));
    let two = EnvironmentValue::Integer(2);
    assert_eq!(*major, Declaration::Environment("tracer_major".into(), two));
    let Declaration::Clock(clock, _) = clock else {
        panic!("{clock:?}")
    };
    let want = Clock {
        name: "monotonic".into(),
        uuid: Uuid::parse("5826a401-6e1b-4ccd-8154-624fe0e7b255"),
        description: Some("Monotonic Clock".into()),
        frequency: 1_000_000_000,
        precision: None,
        offset_seconds: 1_795_207_708,
        offset_cycles: 617_198_853,
        absolute: true,
    };
    assert_eq!(*clock, want);
    let Declaration::Stream(stream) = stream else {
        panic!("{stream:?}")
    };
    assert_eq!(
        (stream.id, stream.clock.as_deref()),
        (Some(0), Some("monotonic"))
    );
    let Declaration::Event(event) = event else {
        panic!("{event:?}")
    };
    assert_eq!((event.id, event.stream_id), (Some(0), Some(0)));
    assert_eq!(event.name.as_deref(), Some("a:b"));
    assert_eq!(event.log_level, Some(LogLevel(13)));
    assert_eq!(event.emf_uri.as_deref(), Some("a.c:1"));
    assert_eq!(event.payload.as_ref().unwrap().alignment, 16);
}

#[test]
fn a_json_event_header_has_its_roles_labels_and_references() {
    let declarations = parse_all(&lttng()).unwrap();
    let header = declarations
        .iter()
        .find_map(|declaration| match declaration {
            Declaration::Stream(stream) => stream.event_header.clone(),
            _ => None,
        });
    let header = header.unwrap();
    let FieldClass::Integer(id) = &header.members[0].class else {
        panic!("{header:?}")
    };
    assert_eq!(id.role, Some(Role::EventClassId));
    let label = |name: &str, low, high| Label {
        name: name.into(),
        ranges: vec![(low, high)],
    };
    // In the order in which they are written, which is the order in which they are shown.
    let labels = [label("extended", 65535, 65535), label("compact", 0, 65534)];
    assert_eq!(id.labels.as_ref().unwrap().as_slice(), labels);
    let FieldClass::Variant(variant) = &header.members[1].class else {
        panic!("{header:?}")
    };
    assert_eq!(variant.selector.origin, Origin::Root(Scope::EventHeader));
    assert_eq!(variant.selector.path, [Some("id".into())]);
    let compact = &variant.options[0];
    assert_eq!(compact.ranges, Selection::Ranges(vec![(0, 65534)]));
    let FieldClass::Structure(compact) = &compact.class else {
        panic!("{compact:?}")
    };
    let timestamp = Integer {
        role: Some(Role::Timestamp),
        clock: Some("monotonic".into()),
        ..Integer::unsigned(32, 8, ByteOrder::Little)
    };
    let member = Member {
        name: "timestamp".into(),
        written: "timestamp".into(),
        class: FieldClass::Integer(timestamp),
        hidden: false,
    };
    assert_eq!(compact.members, [member]);
}

#[test]
fn json_metadata_in_chunks_of_any_size_gives_the_same_declarations() {
    let text = lttng();
    let whole = parse_all(&text).unwrap();
    for size in [1, 2, 3, 7, 64, 1000] {
        let mut parser = Parser::new();
        let mut declarations = Vec::new();
        for piece in text.as_bytes().chunks(size) {
            declarations.extend(parser.extend(piece).unwrap());
        }
        // The last fragment is whole although nothing follows it.
        assert_eq!(declarations, whole);
        parser.finish().unwrap();
    }
}

#[test]
fn cut_json_metadata_is_incomplete_or_has_fewer_declarations() {
    let text = lttng();
    let whole = parse_all(&text).unwrap();
    for length in 0..text.len() - 1 {
        let mut parser = Parser::new();
        let declarations = parser.extend(&text.as_bytes()[..length]).unwrap();
        assert!(whole.starts_with(&declarations));
        assert!(declarations.len() < whole.len());
        match parser.finish() {
            Ok(()) => assert!(text[length..].trim_start().starts_with('\x1e')),
            Err(MetadataError::Incomplete { at }) => assert!(at.line >= 1),
            Err(error) => assert!(error.to_string().contains("no preamble"), "{error}"),
        }
    }
}

#[test]
fn every_json_field_class_is_read() {
    let bits = |bits| BitField {
        bits,
        order: ByteOrder::Big,
        alignment: 4,
        slot: None,
    };
    let big = |kind: &str, more: &str| {
        format!(
            r#"{{"type":"fixed-length-{kind}","length":32,"byte-order":"big-endian","alignment":4{more}}}"#
        )
    };
    let flags = Labels::new(vec![Label {
        name: "f".into(),
        ranges: vec![(0, 3)],
    }]);
    for (text, want) in [
        (big("bit-array", ""), FieldClass::BitArray(bits(32))),
        (
            big("bit-array", r#","bit-order":"last-to-first""#),
            FieldClass::BitArray(bits(32)),
        ),
        (
            big("bit-array", r#","bit-order":"first-to-last""#),
            FieldClass::Reversed(Arc::new(FieldClass::BitArray(bits(32)))),
        ),
        (
            big("bit-map", r#","flags":{"f":[[0,3]]}"#),
            FieldClass::BitMap(bits(32), Arc::new(flags)),
        ),
        (big("boolean", ""), FieldClass::Boolean(bits(32))),
        (big("floating-point-number", ""), FieldClass::Float(bits(32))),
        (
            r#"{"type":"null-terminated-string","encoding":"utf-16le"}"#.to_owned(),
            FieldClass::String(Encoding::Utf16(ByteOrder::Little)),
        ),
        (
            r#"{"type":"static-length-string","length":5}"#.to_owned(),
            FieldClass::Text {
                length: Length::Static(5),
                encoding: Encoding::Utf8,
            },
        ),
        (
            r#"{"type":"static-length-blob","length":5,"media-type":"image/png"}"#.to_owned(),
            FieldClass::Blob {
                length: Length::Static(5),
                media_type: "image/png".into(),
                role: None,
            },
        ),
        (
            r#"{"type":"static-length-array","length":2,"minimum-alignment":64,"element-field-class":{"type":"null-terminated-string"}}"#
                .to_owned(),
            FieldClass::Array {
                element: Arc::new(FieldClass::String(Encoding::Utf8)),
                length: Length::Static(2),
                alignment: 64,
                role: None,
            },
        ),
    ] {
        assert_eq!(built(&text).unwrap(), want, "{text}");
    }
}

#[test]
fn json_numbers_keep_their_full_range() {
    let class = built(
        r#"{"type":"variable-length-signed-integer","preferred-display-base":2,"mappings":{"all":[[-9223372036854775808,18446744073709551615]]}}"#,
    );
    let FieldClass::VariableInteger(integer) = class.unwrap() else {
        panic!("no variable integer")
    };
    assert!(integer.signed);
    assert_eq!(integer.base, Base::Binary);
    let range = (i128::from(i64::MIN), i128::from(u64::MAX));
    assert_eq!(integer.labels.unwrap().as_slice()[0].ranges, [range]);
}

#[test]
fn a_field_location_without_origin_is_relative_to_the_enclosing_structure() {
    let class = built(
        r#"{"type":"optional","field-class":{"type":"null-terminated-string"},"selector-field-location":{"path":[null,"a","b"]}}"#,
    );
    let FieldClass::Optional {
        selector, ranges, ..
    } = class.unwrap()
    else {
        panic!("not optional")
    };
    assert_eq!(selector.origin, Origin::Enclosing);
    assert_eq!(selector.path, [None, Some("a".into()), Some("b".into())]);
    assert_eq!(ranges, []);
}

#[test]
fn an_alias_stands_for_its_class_and_has_a_role_only_where_it_means_something() {
    let alias = r#"{"type":"field-class-alias","name":"n","field-class":{"type":"fixed-length-unsigned-integer","length":8,"byte-order":"little-endian","roles":["packet-sequence-number"]}}"#;
    let class = built_after(&[alias], r#""n""#).unwrap();
    let plain = Integer::unsigned(8, 1, ByteOrder::Little);
    assert_eq!(class, FieldClass::Integer(plain));
    assert!(refused(&[alias, alias]).contains("fragment 3: a second field class \"n\""));
    assert!(why(r#""n""#).contains("no field class \"n\" before it"));
}
