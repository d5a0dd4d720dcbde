//! Inputs that once took too long, caused a panic, or had two different results. Each is as small
//! as it could be made.

use ctf::decode::{DecodeError, FieldError, PacketHead, StreamDecoder};
use ctf::model::EnvironmentValue;
use ctf::{Metadata, MetadataError};

use crate::must;

fn read(declarations: &str) -> Result<Metadata, MetadataError> {
    let trace = "/* CTF 1.8 */ trace { major = 1; minor = 8; byte_order = le; };
        typealias integer { size = 8; align = 8; } := u8;";
    Metadata::read(format!("{trace}{declarations}").as_bytes())
}

fn metadata(declarations: &str) -> Metadata {
    read(declarations).unwrap()
}

fn assert_refused(declarations: &str, why: &str) {
    let error = read(declarations).unwrap_err().to_string();
    assert!(error.contains(why), "{error}");
}

/// Events have the number of their class in a byte.
const STREAM: &str = "stream { event.header := struct { u8 id; }; };";

#[test]
fn elements_of_zero_bits_are_limited_in_every_kind_of_array() {
    for payload in [
        "struct {} a[0x7fffffff];",
        "struct {} a[65536][65536];",
        "struct { struct {} a[65536]; } b[65536];",
        "u8 n; struct {} a[65000][n];",
        "u8 n; struct { struct {} a[65000]; } b[n];",
    ] {
        let mut metadata = metadata(&format!(
            "{STREAM} event {{ name = e; fields := struct {{ {payload} }}; }};"
        ));
        let packet = [0, 100, 0, 0, 0, 0, 0, 0];
        let mut decoder = StreamDecoder::new();
        decoder.begin_packet(metadata.trace(), &packet).unwrap();
        let refused = decoder.advance(metadata.trace(), &packet);
        let Err(DecodeError::Field {
            what: FieldError::TooMany { .. },
            ..
        }) = refused
        else {
            panic!("{payload}: {refused:?}");
        };
        must::decode(&mut metadata, None, &packet);
    }
}

#[test]
fn elements_of_zero_bits_are_limited_by_the_bits_of_the_packet() {
    let fields = "event { name = e; fields := struct { struct {} a[60000]; }; };";
    let work = must::decode(
        &mut metadata(&format!("{STREAM}{fields}")),
        None,
        &[0; 4096],
    );
    assert_eq!(work.events, 1);
    // But what an event of the usual length may have, all may have.
    let fields = "event { name = e; fields := struct { struct {} a[7]; }; };";
    let work = must::decode(
        &mut metadata(&format!("{STREAM}{fields}")),
        None,
        &[0; 40_000],
    );
    assert_eq!(work.events, 40_000);
}

#[test]
fn bits_that_have_been_removed_allow_for_elements_of_zero_bits_too() {
    let long = "event { name = long; id = 0; fields := struct { u8 a[100]; }; };";
    let nothings = "event { name = nothings; id = 1; fields := struct { u8 a[20]; struct {} b[60000]; struct {} c[6000]; }; };";
    let mut packet = [0; 122];
    packet[101] = 1;
    // In parts, the first event has been removed when the second is found.
    let work = must::decode(
        &mut metadata(&format!("{STREAM}{long}{nothings}")),
        None,
        &packet,
    );
    assert_eq!(work.events, 2);
}

#[test]
fn an_array_length_declared_after_its_packet_has_begun_is_decoded() {
    let stream = "stream {
        packet.context := struct { u8 n; }; event.header := struct { u8 id; };
    };";
    let first = "event { name = e; id = 0; };";
    let second =
        "event { name = e; id = 1; fields := struct { u8 a[stream.packet.context.n]; }; };";
    let packet = [3, 0, 1, b'a', b'b', b'c', 0];
    let mut metadata = metadata(&format!("{stream}{first}"));
    let work = must::decode(&mut metadata, Some(second.as_bytes()), &packet);
    assert_eq!((work.packets, work.events), (1, 3));
}

#[test]
fn a_narrow_packet_begin_is_the_same_when_the_head_is_read_again_with_more_bytes() {
    let clock = "clock { name = c; freq = 1000000000; };
        typealias integer { size = 16; align = 8; map = clock.c.value; } := t16;";
    let context = "stream { packet.context := struct { t16 timestamp_begin; u8 rest[20]; }; };";
    let metadata = metadata(&format!("{clock}{context}"));
    let packet = [9; 22];
    let mut decoder = StreamDecoder::new();
    for given in [0, 2, 3, 21] {
        let cut = decoder.begin_part(metadata.trace(), &packet[..given], 22);
        assert!(cut.unwrap_err().is_cut(), "{given}");
    }
    let head = decoder.begin_packet(metadata.trace(), &packet).unwrap();
    assert_eq!(head.begin, Some(0x0909));
}

#[test]
fn many_environment_entries_are_read_in_linear_time() {
    // Sixteen seconds once.
    let entries: String = (0..64_000)
        .map(|number| format!("e{number} = 1;"))
        .collect();
    let metadata = metadata(&format!("env {{ {entries} }}; env {{ e1 = 2; }};"));
    let trace = metadata.trace();
    assert_eq!(trace.environment().len(), 64_000);
    let value = |name| trace.environment_value(name);
    assert_eq!(value("e1"), Some(&EnvironmentValue::Integer(2)));
    assert_eq!(value("e63999"), Some(&EnvironmentValue::Integer(1)));
    assert_eq!(value("e64000"), None);
}

#[test]
fn a_trace_with_thousands_of_clocks_is_refused() {
    let clocks = |count: usize| -> String {
        let clock = |number| format!("clock {{ name = c{number}; freq = 1; }};");
        (0..count).map(clock).collect()
    };
    assert_eq!(metadata(&clocks(1024)).trace().clocks().len(), 1024);
    assert_refused(&clocks(1025), "more than 1024 clocks");
}

#[test]
fn field_references_that_take_too_many_comparisons_are_refused() {
    let labels: String = (0..12_000)
        .map(|number| format!("l{number} = {number},"))
        .collect();
    let options: String = (0..12_000).map(|number| format!("u8 l{number};")).collect();
    let fields = format!(
        "struct {{ enum : integer {{ size = 16; }} {{ {labels} }} t; variant <t> {{ {options} }} v; }}"
    );
    let event = format!("{STREAM} event {{ name = e; fields := {fields}; }};");
    assert_refused(&event, "takes too long to find");
}

#[test]
fn positions_near_u64_max_do_not_overflow() {
    let stream = "stream {
        packet.context := struct {
            integer { size = 8; } far[0x1fffffffffffffff];
            struct { u8 a; } align(4096) aligned;
        };
    };";
    let metadata = metadata(stream);
    for available in [8, 1 << 60, u64::MAX / 8, u64::MAX] {
        let head = PacketHead::read(metadata.trace(), &[0; 8], available);
        assert!(head.is_err_and(|error| error.is_cut()), "{available}");
    }
}

#[test]
fn order_dependent_declarations_give_the_same_result_in_any_chunks() {
    let trace = "/* CTF 1.8 */ trace { major = 1; minor = 8; byte_order = le;
        packet.header := struct { integer { size = 8; } stream_id; }; };";
    let timed = "event.header := struct { integer { size = 8; } timestamp; };";
    for rest in [
        // An event of the only stream class so far.
        "stream { id = 1; }; event { name = e; }; stream { id = 2; };".to_owned(),
        "event { name = e; }; stream { id = 1; }; stream { id = 2; };".to_owned(),
        // Times of the only clock so far.
        format!("stream {{ {timed} }}; clock {{ name = c; freq = 7; }};"),
        format!("clock {{ name = a; freq = 7; }}; stream {{ {timed} }}; clock {{ name = b; }};"),
    ] {
        let text = format!("{trace}{rest}");
        Metadata::read(text.as_bytes()).unwrap();
        must::read_metadata_alike_in(text.as_bytes().chunks(1));
    }
}

/// Labels or options `a0`, `a1`, ... of the text that `each` makes of the number.
fn list(count: u32, each: impl Fn(u32) -> String) -> String {
    (0..count).map(each).collect::<Vec<_>>().join(" ")
}

#[test]
fn variant_options_are_looked_up_in_logarithmic_time() {
    let count = 10_000;
    let labels = list(count, |number| format!("a{number} = {number},"));
    let options = list(count, |number| format!("u8 a{number};"));
    // All elements choose the last option; a search from the first takes 10,000 steps for each.
    let mut metadata = metadata(&format!(
        "typealias integer {{ size = 16; align = 8; }} := u16;
        {STREAM} event {{ name = e; fields := struct {{
            enum : u16 {{ {labels} }} tag; variant <tag> {{ {options} }} elements[60000];
        }}; }};"
    ));
    let mut packet = vec![7; 3 + 60_000];
    packet[0] = 0;
    packet[1..3].copy_from_slice(&9_999_u16.to_le_bytes());
    let work = must::decode(&mut metadata, None, &packet);
    assert_eq!(work.events, 1);
}

#[test]
fn enumeration_labels_are_looked_up_in_logarithmic_time() {
    let labels = list(60_000, |number| format!("a{number} = {number},"));
    let mut metadata = metadata(&format!(
        "typealias integer {{ size = 16; align = 8; }} := u16;
        {STREAM} event {{ name = e; fields := struct {{
            enum : u16 {{ {labels} }} elements[60000];
        }}; }};"
    ));
    let mut packet = vec![0];
    packet.extend((0..60_000_u16).flat_map(u16::to_le_bytes));
    struct Named(u64);
    impl ctf::decode::Visitor for Named {
        fn unsigned(&mut self, value: u64, format: ctf::decode::NumberFormat<'_>) {
            let labels = format.labels.unwrap();
            let names: Vec<_> = labels.of(value.into()).collect();
            assert_eq!(names, [format!("a{value}")]);
            self.0 += 1;
        }
    }
    let mut decoder = StreamDecoder::new();
    let trace = metadata.trace();
    decoder.begin_packet(trace, &packet).unwrap();
    assert!(decoder.advance(trace, &packet).unwrap());
    let mut named = Named(0);
    let event = decoder.event(trace, &packet).unwrap();
    event.visit_fields(&mut named).unwrap();
    assert_eq!(named.0, 60_000);
    must::decode(&mut metadata, None, &packet);
}

#[test]
fn large_event_header_and_context_are_not_walked_for_each_event_class() {
    let fields = list(40_000, |number| format!("string c{number};"));
    let header = list(40_000, |number| format!("u8 h{number};"));
    let events = list(40_000, |number| {
        format!("event {{ name = e{number}; id = {number}; }};")
    });
    // With a plan over the context for each event class they would take 50 gigabytes.
    let metadata = metadata(&format!(
        "typealias integer {{ size = 32; align = 8; }} := u32;
        stream {{ event.header := struct {{ {header} u32 id; }};
        event.context := struct {{ {fields} }}; }}; {events}"
    ));
    let stream = metadata.trace().stream(0).unwrap();
    assert_eq!(stream.events().len(), 40_000);
    let mut packet = vec![0; 40_000 + 4 + 40_000];
    packet[40_000] = 7;
    let mut decoder = StreamDecoder::new();
    decoder.begin_packet(metadata.trace(), &packet).unwrap();
    assert!(decoder.advance(metadata.trace(), &packet).unwrap());
    let event = decoder.event(metadata.trace(), &packet).unwrap();
    assert_eq!(event.class().id(), 7);
    assert!(!decoder.advance(metadata.trace(), &packet).unwrap());
}
