//! The parser as a whole: text in, declarations out.

mod refused;
mod types;

use super::*;
use crate::model::{
    ByteOrder, EnvironmentValue, EventDraft, FieldClass, Integer, LogLevel, Member, Reference,
    Role, StreamDraft, Structure, TraceDraft,
};

const TYPES: &str = "typealias integer { size = 8; } := u8;
typealias integer { size = 32; } := u32;
typealias integer { size = 64; } := u64;
";
const TRACE: &str = "trace { major = 1; minor = 8; byte_order = le; };
";

fn in_pieces(text: &[u8], size: usize) -> Result<(Vec<Declaration>, Vec<String>), MetadataError> {
    let mut parser = Parser::new(true);
    let mut declarations = Vec::new();
    for piece in text.chunks(size.max(1)) {
        declarations.extend(parser.extend(piece)?);
    }
    parser.finish()?;
    let warnings = parser.take_warnings();
    Ok((
        declarations,
        warnings.iter().map(ToString::to_string).collect(),
    ))
}

fn parsed(text: &str) -> Vec<Declaration> {
    in_pieces(text.as_bytes(), text.len()).unwrap().0
}

fn refused(text: &str) -> String {
    in_pieces(text.as_bytes(), text.len())
        .unwrap_err()
        .to_string()
}

fn event(declarations: &[Declaration]) -> &EventDraft {
    let event = declarations.iter().rev().find_map(|draft| match draft {
        Declaration::Event(event) => Some(event),
        _ => None,
    });
    event.expect("an event")
}

fn stream(declarations: &[Declaration]) -> &StreamDraft {
    let stream = declarations.iter().find_map(|draft| match draft {
        Declaration::Stream(stream) => Some(stream),
        _ => None,
    });
    stream.expect("a stream")
}

/// The payload's members of an event with these `fields`.
fn members(fields: &str) -> Vec<Member<Reference>> {
    let text = format!("{TYPES}{TRACE}event {{ name = e; fields := struct {{ {fields} }}; }};");
    event(&parsed(&text))
        .payload
        .as_ref()
        .unwrap()
        .members
        .clone()
}

fn integer(class: &FieldClass<Reference>) -> &Integer {
    match class {
        FieldClass::Integer(integer) => integer,
        other => panic!("{other:?}"),
    }
}

fn inner(class: &FieldClass<Reference>) -> &Structure<Reference> {
    match class {
        FieldClass::Structure(structure) => structure,
        other => panic!("{other:?}"),
    }
}

fn role(structure: &Structure<Reference>, name: &str) -> Option<Role> {
    let mut members = structure.members.iter();
    match &members.find(|member| &*member.name == name).unwrap().class {
        FieldClass::Integer(integer) => integer.role,
        FieldClass::Array { role, .. } => *role,
        _ => None,
    }
}

/// The kind of a declaration, as a word.
const fn rank(declaration: &Declaration) -> u8 {
    match declaration {
        Declaration::Trace(_) => 0,
        Declaration::Environment(..) => 1,
        Declaration::Clock(..) => 2,
        Declaration::Stream(_) => 3,
        Declaration::Event(_) => 4,
    }
}

/// Every kind of declaration, in an order in which each needs a later one.
const BACKWARDS: &str = r#"/* CTF 1.8 */
typealias integer { size = 8; align = 8; } := uint8_t;
typealias integer { size = 64; align = 8; map = clock.mono.value; } := stamp_t;
variant numbers { uint8_t _small; stamp_t _big; };
event {
	name = "one"; id = 1; stream_id = 7; loglevel = 6; model.emf.uri = "http://é/";
	context := struct { uint8_t n; uint8_t list[n]; };
	fields := struct {
		enum : uint8_t { _small, _big = 5 ... 9, "quoted" } tag; // é
		variant numbers <event.fields.tag> value;
		uint8_t fixed[env.count][2];
		string text;
	};
};
stream {
	id = 7; odd = 1;
	packet.context := struct { stamp_t timestamp_begin; stamp_t timestamp_end; };
	event.header := struct { uint8_t id; stamp_t timestamp; };
};
callsite { name = "one"; };
trace {
	major = 1; minor = 8; byte_order = be;
	uuid = "2a6422d0-6cee-11e0-8c08-cb07d7b3a564";
	packet.header := struct { uint8_t stream_id; uint8_t uuid[16]; };
};
env { count = 0x10; host = "a\tb"; };
clock { name = "mono"; freq = 1000; offset_s = -3; offset = 4; absolute = TRUE; };
"#;

#[test]
fn tsdl_blocks_in_any_order_are_declared_in_the_order_of_their_dependencies() {
    let (declarations, warnings) = in_pieces(BACKWARDS.as_bytes(), usize::MAX).unwrap();
    let ranks: Vec<u8> = declarations.iter().map(rank).collect();
    assert_eq!(ranks, [0, 1, 1, 2, 4, 3]);
    assert_eq!(
        warnings,
        ["metadata, line 16, column 10: unknown attribute `odd` in `stream`"]
    );
    let Declaration::Trace(TraceDraft {
        uuid,
        packet_header: Some(header),
        at,
        ..
    }) = &declarations[0]
    else {
        panic!("{:?}", declarations[0]);
    };
    assert_eq!(at.line, 21);
    assert_eq!(
        uuid.unwrap().to_string(),
        "2a6422d0-6cee-11e0-8c08-cb07d7b3a564"
    );
    assert_eq!(role(header, "uuid"), Some(Role::MetadataUuid));
    assert_eq!(integer(&header.members[0].class).order, ByteOrder::Big);
    let Declaration::Environment(name, value) = &declarations[2] else {
        panic!("{:?}", declarations[2]);
    };
    assert_eq!(**name, *"host");
    assert_eq!(*value, EnvironmentValue::Text("a\tb".into()));
    let Declaration::Clock(clock, _) = &declarations[3] else {
        panic!("{:?}", declarations[3]);
    };
    assert_eq!((clock.frequency, clock.absolute), (1000, true));
    assert_eq!((clock.offset_seconds, clock.offset_cycles), (-3, 4));
    let event = event(&declarations);
    assert_eq!((event.id, event.stream_id), (Some(1), Some(7)));
    assert_eq!(event.log_level, Some(LogLevel(6)));
    assert_eq!(event.emf_uri.as_deref(), Some("http://é/"));
}

#[test]
fn tsdl_text_cut_anywhere_gives_the_same_declarations() {
    let (whole, warnings) = in_pieces(BACKWARDS.as_bytes(), usize::MAX).unwrap();
    for size in [1, 2, 3, 7, 64, 500] {
        let (pieces, warnings_of_pieces) = in_pieces(BACKWARDS.as_bytes(), size).unwrap();
        assert_eq!(whole, pieces, "pieces of {size}");
        assert_eq!(warnings, warnings_of_pieces, "pieces of {size}");
    }
}

#[test]
fn a_tsdl_declaration_is_given_as_soon_as_it_is_complete() {
    let mut parser = Parser::new(true);
    let text = format!("{TYPES}{TRACE}struct s {{ u8 a; }};");
    assert_eq!(parser.extend(text.as_bytes()).unwrap().len(), 1);
    assert!(
        parser
            .extend(b"event { name = a; fields := struct s")
            .unwrap()
            .is_empty()
    );
    assert_eq!(
        parser.finish(),
        Err(MetadataError::Incomplete {
            at: Position {
                line: 5,
                column: 20
            }
        })
    );
    assert_eq!(parser.extend(b"; }").unwrap().len(), 1);
    assert_eq!(parser.extend(b"; event { name = b; }").unwrap().len(), 1);
    assert!(parser.finish().is_err());
    assert_eq!(parser.extend(b";").unwrap(), []);
    parser.finish().unwrap();
}

#[test]
fn a_tsdl_token_cut_between_two_chunks_is_one_token() {
    let mut parser = Parser::new(true);
    parser.extend(TRACE.as_bytes()).unwrap();
    assert!(parser.extend(b"env { na").unwrap().is_empty());
    assert!(parser.extend(b"me = \"\xc3").unwrap().is_empty());
    let declarations = parser.extend(b"\xa9\\").unwrap();
    assert!(declarations.is_empty());
    assert_eq!(
        parser.extend(b"n\"; }").unwrap(),
        [Declaration::Environment(
            "name".into(),
            EnvironmentValue::Text("é\n".into())
        )]
    );
}

#[test]
fn a_tsdl_declaration_that_names_a_later_clock_is_pending_with_all_that_follow() {
    let mut parser = Parser::new(true);
    let text = format!(
        "{TRACE}typealias integer {{ size = 8; map = clock.c.value; }} := t;
        event {{ name = a; fields := struct {{ t t; }}; }};"
    );
    assert_eq!(parser.extend(text.as_bytes()).unwrap().len(), 1);
    let error = parser.finish().unwrap_err().to_string();
    assert_eq!(error, "metadata, line 2, column 37: there is no clock `c`");
    assert_eq!(parser.extend(b"clock { name = c; };").unwrap().len(), 2);
    parser.finish().unwrap();
}

#[test]
fn tsdl_text_without_signature_is_accepted_from_metadata_packets_only() {
    assert!(Parser::new(true).extend(b"trace").is_ok());
    assert!(Parser::new(false).extend(b"/* CTF 1.8\n*/").is_ok());
    for text in [&b"trace"[..], b" /* CTF 2", b"/* CTF 2", b"/* CTF 3.0 */"] {
        Parser::new(false).extend(text).unwrap_err();
    }
    let mut parser = Parser::new(false);
    parser.extend(b"/* CTF").unwrap();
    parser.finish().unwrap_err();
}

#[test]
fn roles_of_an_event_header_reach_into_variants_and_those_of_others_do_not() {
    let declarations = parsed(&format!(
        "{TYPES}{TRACE}stream {{
            packet.context := struct {{ u64 _packet_size; struct {{ string content_size; }} in; }};
            event.header := struct {{
                enum : u8 {{ compact, extended }} id;
                variant <id> {{
                    struct {{ u32 timestamp; }} compact;
                    struct {{ u32 id; u64 timestamp; }} extended;
                }} v;
            }};
            event.context := struct {{ u8 id; }};
        }};"
    ));
    let stream = stream(&declarations);
    let context = stream.packet_context.as_ref().unwrap();
    assert_eq!(role(context, "packet_size"), Some(Role::PacketSize));
    let header = stream.event_header.as_ref().unwrap();
    assert_eq!(role(header, "id"), Some(Role::EventClassId));
    let FieldClass::Variant(variant) = &header.members[1].class else {
        panic!("{:?}", header.members[1]);
    };
    assert_eq!(
        role(inner(&variant.options[0].class), "timestamp"),
        Some(Role::Timestamp)
    );
    assert_eq!(
        role(inner(&variant.options[1].class), "id"),
        Some(Role::EventClassId)
    );
    assert_eq!(role(stream.event_context.as_ref().unwrap(), "id"), None);
}

#[test]
fn an_unknown_log_level_is_a_warning() {
    let text = format!("{TRACE}event {{ name = a; loglevel = 15; }};");
    let (declarations, warnings) = in_pieces(text.as_bytes(), text.len()).unwrap();
    assert_eq!(event(&declarations).log_level, None);
    assert_eq!(warnings, ["metadata, line 2, column 30: unknown log level"]);
}
