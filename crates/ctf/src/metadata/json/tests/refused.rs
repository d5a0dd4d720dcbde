//! Refused metadata, and the texts of the errors.

use proptest::prelude::*;

use super::*;

#[test]
fn aliases_of_aliases_are_bounded_in_depth_and_number() {
    let nested = |name: usize, members: &[usize]| {
        let member =
            |(place, of): (usize, &usize)| format!(r#"{{"name":"{place}","field-class":"{of}"}}"#);
        let members: Vec<String> = members.iter().enumerate().map(member).collect();
        let members = members.join(",");
        format!(
            r#"{{"type":"field-class-alias","name":"{name}","field-class":{{"type":"structure","member-classes":[{members}]}}}}"#
        )
    };
    let mut deep = vec![nested(0, &[])];
    deep.extend((1..100).map(|name| nested(name, &[name - 1])));
    let deep: Vec<&str> = deep.iter().map(String::as_str).collect();
    assert!(refused(&deep).contains("more than 64 deep"));
    let mut wide = vec![nested(0, &[])];
    wide.extend((1..30).map(|name| nested(name, &[name - 1, name - 1])));
    let wide: Vec<&str> = wide.iter().map(String::as_str).collect();
    assert!(refused(&wide).contains("more than 1048576 field classes"));
}

#[test]
fn deeply_nested_json_is_refused() {
    let class = format!(
        "{}\"x\"{}",
        r#"{"type":"optional","field-class":"#.repeat(9000),
        "}".repeat(9000)
    );
    assert!(why(&class).contains("recursion limit"));
}

#[test]
fn each_unsupported_json_declaration_is_refused_with_its_own_error() {
    let fixed = |kind: &str, length: &str, more: &str| {
        format!(
            r#"{{"type":"fixed-length-{kind}","length":{length},"byte-order":"little-endian"{more}}}"#
        )
    };
    let u8_with = |more: &str| fixed("unsigned-integer", "8", more);
    for (class, want) in [
        (fixed("unsigned-integer", "65", ""), "fixed-length-unsigned-integer of 65 bits"),
        (fixed("signed-integer", "0", ""), "of 0 bits is not supported"),
        (fixed("bit-array", "1000", ""), "of 1000 bits is not supported"),
        (fixed("floating-point-number", "128", ""), "of 128 bits is not supported"),
        (fixed("floating-point-number", "16", ""), "of 16 bits is not supported"),
        (fixed("boolean", "8.0", ""), "invalid type: floating point"),
        (fixed("boolean", "1e999", ""), "number out of range"),
        (fixed("boolean", "-1", ""), "invalid value: integer `-1`"),
        (u8_with(r#","bit-order":"sideways""#), "unknown bit order \"sideways\""),
        (u8_with(r#","alignment":3"#), "alignment 3 is not a power of two"),
        (u8_with(r#","alignment":0"#), "alignment 0 is not"),
        (u8_with(r#","preferred-display-base":7"#), "unknown base 7"),
        (u8_with(r#","roles":["king"]"#), "unknown role \"king\""),
        (u8_with(r#","mappings":{"a":[[2,1]]}"#), "a range from 2 to 1"),
        (u8_with(r#","mappings":{"a":[]}"#), "a set without a range"),
        (u8_with(r#","mappings":{"a":[[-1,1]]}"#), "a label for -1 of an unsigned integer"),
        (u8_with(r#","mappings":{"a":[[1,1]],"a":[[2,2]]}"#), "\"a\" twice"),
        (u8_with(r#","length":9"#), "duplicate field `length`"),
        (u8_with(r#","extensions":{"x":{}}"#), "unknown extension \"x\""),
        (u8_with(r#","attributes":"x""#), "expected a map"),
        (fixed("bit-map", "8", r#","flags":{}"#), "a bit map without flags"),
        (r#"{"type":"fixed-length-boolean","length":8}"#.into(), "missing property \"byte-order\""),
        (r#"{"type":"static-length-string"}"#.into(), "missing property \"length\""),
        (r#"{"type":"tensor"}"#.into(), "unknown field class \"tensor\""),
        ("{}".into(), "missing field `type`"),
        ("7".into(), "a field class or the name of one"),
        (
            r#"{"type":"dynamic-length-string","length-field-location":{"path":["a",null]}}"#.into(),
            "does not end with a name",
        ),
        (
            r#"{"type":"dynamic-length-string","length-field-location":{"origin":"moon","path":["a"]}}"#.into(),
            "unknown origin \"moon\"",
        ),
        (
            r#"{"type":"variant","selector-field-location":{"path":["a"]},"options":[]}"#.into(),
            "a variant without options",
        ),
        (
            r#"{"type":"variant","selector-field-location":{"path":["a"]},"options":[
                {"field-class":{"type":"structure"},"selector-field-ranges":[[0,9]]},
                {"field-class":{"type":"structure"},"selector-field-ranges":[[12,12],[9,10]]}]}"#
                .into(),
            "two options for the value 9",
        ),
        (
            r#"{"type":"structure","member-classes":[{"name":"a","field-class":{"type":"structure"}},{"name":"a","field-class":{"type":"structure"}}]}"#.into(),
            "a second member \"a\"",
        ),
    ] {
        let why = why(&class);
        assert!(why.contains(want), "{why}, not {want}");
        assert!(why.contains("fragment 3: "), "{why}");
    }
}

#[test]
fn a_json_fragment_in_the_wrong_order_is_refused() {
    let trace = r#"{"type":"trace-class"}"#;
    let clock = r#"{"type":"clock-class","id":"c","frequency":1}"#;
    for (fragments, want) in [
        (&[PREAMBLE][..], "fragment 2: a second preamble"),
        (&[trace, trace], "fragment 3: a second trace class"),
        (&[STREAM, trace], "one behind a data stream class"),
        (&[clock, clock], "a second clock \"c\""),
        (
            &[r#"{"type":"data-stream-class","default-clock-class-id":"c"}"#],
            "no clock \"c\" before it",
        ),
        (
            &[r#"{"type":"clock-class","id":"c","frequency":0}"#],
            "frequency 0",
        ),
        (
            &[r#"{"type":"clock-class","id":"c","frequency":1,"origin":"big-bang"}"#],
            "unknown clock origin",
        ),
        (&[r#"{"type":"poem"}"#], "unknown type \"poem\""),
        (
            &[r#"{"type":"trace-class","extensions":{"me":{"x":true}}}"#],
            "unknown extension \"me\"",
        ),
        (
            &[r#"{"type":"trace-class","environment":{"a":9223372036854775808}}"#],
            "an integer of 64 bits with sign",
        ),
        (
            &[
                r#"{"type":"trace-class","packet-header-field-class":{"type":"null-terminated-string"}}"#,
            ],
            "a root that is no structure",
        ),
        (
            &[
                r#"{"type":"data-stream-class","packet-context-field-class":{"type":"structure","member-classes":[{"name":"t","field-class":{"type":"variable-length-unsigned-integer","roles":["default-clock-timestamp"]}}]}}"#,
            ],
            "a timestamp without default clock",
        ),
    ] {
        let why = refused(fragments);
        assert!(why.contains(want), "{why}, not {want}");
    }
    let bare = parse_all(&sequence(&[trace])).unwrap_err().to_string();
    assert!(
        bare.contains("begins with something but a preamble"),
        "{bare}"
    );
    let old = sequence(&[r#"{"type":"preamble","version":3}"#]);
    let old = parse_all(&old).unwrap_err().to_string();
    assert!(old.contains("CTF of unknown version 3"), "{old}");
    let short = sequence(&[r#"{"type":"preamble","version":2,"uuid":[1,2,3]}"#]);
    assert!(parse_all(&short).is_err());
}

#[test]
fn unknown_json_attributes_without_effect_are_ignored() {
    let trace =
        r#"{"type":"trace-class","attributes":{"me":[1,{"a":2.5}]},"extensions":{},"new":1}"#;
    let event = r#"{"type":"event-record-class","attributes":{"lttng.org,2009":{"log-level":7,"emf-uri":[]}}}"#;
    let clock = r#"{"type":"clock-class","id":"c","frequency":1,"origin":{"name":"x","uid":"y"},"accuracy":3}"#;
    let declarations = parse_all(&sequence(&[PREAMBLE, trace, clock, STREAM, event])).unwrap();
    let Some(Declaration::Event(event)) = declarations.last() else {
        panic!("{declarations:?}")
    };
    assert_eq!((event.log_level, &event.emf_uri), (None, &None));
    let absolute = declarations
        .iter()
        .find_map(|declaration| match declaration {
            Declaration::Clock(clock, _) => Some(clock.absolute),
            _ => None,
        });
    assert_eq!(absolute, Some(false));
}

#[test]
fn a_json_error_has_its_position_in_the_whole_text_and_is_repeated() {
    let mut parser = Parser::new();
    let text = format!("\x1e{PREAMBLE}\n\x1e{{\n \"type\":\"trace-class\",\n \"\u{e4}\": ?}}");
    let error = parser.extend(text.as_bytes()).unwrap_err();
    let MetadataError::Text { at, what } = &error else {
        panic!("{error}")
    };
    assert_eq!(*at, Position { line: 4, column: 7 });
    assert_eq!(what, "fragment 2: expected value");
    assert_eq!(parser.extend(b"\x1e{}"), Err(error.clone()));
    assert_eq!(parser.finish(), Err(error));
}

proptest! {
    #[test]
    fn json_metadata_with_one_byte_changed_is_read_or_refused(at: prop::sample::Index, byte: u8) {
        let mut text = lttng().into_bytes();
        let at = at.index(text.len());
        text[at] = byte;
        let mut parser = Parser::new();
        let _ = parser.extend(&text);
        let _ = parser.finish();
    }
}
