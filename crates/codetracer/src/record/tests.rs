use super::*;

/// Every kind and every kind of value, as the published writer writes them.
const EVERY_EVENT: &str = include_str!("../../tests/data/every-event.jsonl");

#[test]
fn white_space_between_tokens_is_removed_and_in_strings_kept() {
    let json = Json::parse(" { \"a b\" : [ 1 ,\n\t2 ] , \"c\" : \" \\\" d \\\\\" } ").unwrap();
    assert_eq!(json.as_str(), r#"{"a b":[1,2],"c":" \" d \\"}"#);
    assert!(Json::parse("{} {}").is_err());
}

#[test]
fn elements_of_every_kind_are_written_as_they_were_read() {
    assert_eq!(EVERY_EVENT.lines().count(), 48);
    for line in EVERY_EVENT.lines() {
        let record = Record::parse(line).unwrap();
        assert_eq!(record.to_string(), line);
        assert!(line.contains(record.kind()), "{line}");
        assert_eq!(record.clone().into_owned(), record);
    }
}

#[test]
fn elements_that_are_written_are_read_by_the_published_types() {
    for line in EVERY_EVENT.lines() {
        let element = Record::parse(line).unwrap().to_string();
        let published: codetracer_trace_types::TraceLowLevelEvent =
            serde_json::from_str(&element).unwrap();
        assert_eq!(serde_json::to_string(&published).unwrap(), line);
    }
}

#[test]
fn kinds_that_the_format_does_not_have_keep_their_payload() {
    let record = Record::parse(r#"{"Fork\n": [1, {"a": "b c"}]}"#).unwrap();
    assert_eq!(record.kind(), "Fork\n");
    assert_eq!(record.to_string(), r#"{"Fork\n":[1,{"a":"b c"}]}"#);
    let bare = Record::parse(r#""Fork""#).unwrap();
    assert_eq!(bare.to_string(), r#"{"Fork":null}"#);
}

#[test]
fn a_dropped_step_is_read_with_and_without_payload() {
    for text in [
        r#""DropLastStep""#,
        r#"{"DropLastStep":null}"#,
        " \"DropLastStep\" ",
    ] {
        assert_eq!(Record::parse(text).unwrap(), Record::DropLastStep);
    }
}

#[test]
fn members_that_the_format_does_not_have_are_ignored() {
    let record = Record::parse(r#"{"Step":{"line":-2,"column":3,"path_id":1}}"#).unwrap();
    assert_eq!(record.to_string(), r#"{"Step":{"path_id":1,"line":-2}}"#);
}

#[test]
fn malformed_elements_are_refused() {
    for text in [
        "",
        "{}",
        "[]",
        "1",
        "null",
        r#""Step""#,
        r#"{"Step":{"path_id":-1,"line":1}}"#,
        r#"{"Step":{"path_id":0}}"#,
        r#"{"Step":{"path_id":0,"line":9223372036854775808}}"#,
        r#"{"Step":{"path_id":0,"line":1},"Path":"p"}"#,
        r#"{"Path":1}"#,
        r#"{"Path":"\ud800"}"#,
        r#"{"Event":{"kind":256,"metadata":"","content":""}}"#,
        r#"{"DropLastStep":1}"#,
        "{\"New\":\"\u{1}\"}",
    ] {
        assert!(Record::parse(text).is_err(), "{text}");
    }
    for line in EVERY_EVENT.lines() {
        for (cut, _) in line.char_indices() {
            assert!(Record::parse(&line[..cut]).is_err(), "{}", &line[..cut]);
        }
    }
}

#[test]
fn a_malformed_definition_keeps_its_position_by_a_placeholder() {
    for (text, want) in [
        (r#"{"Path":1}"#, r#"{"Path":"<invalid>"}"#),
        (
            r#"{"Function":{}}"#,
            r#"{"Function":{"path_id":0,"line":0,"name":"<invalid>"}}"#,
        ),
        (r#"{"Variable":[]}"#, r#"{"VariableName":"<invalid>"}"#),
    ] {
        assert!(Record::parse(text).is_err());
        let placeholder = Record::placeholder(text).unwrap();
        assert_eq!(placeholder.to_string(), want);
        assert!(placeholder.definition().is_some());
    }
    for text in [r#"{"Step":1}"#, r#"{"Path":1"#, r#"{"Path":1,"Path":2}"#] {
        assert_eq!(Record::placeholder(text), None);
    }
}

#[test]
fn values_may_be_nested_deeply() {
    let depth = 200_000;
    let text = format!(
        r#"{{"Return":{{"return_value":{}{}}}}}"#,
        "[".repeat(depth),
        "]".repeat(depth)
    );
    assert_eq!(Record::parse(&text).unwrap().to_string(), text);
}
