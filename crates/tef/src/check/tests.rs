use super::*;

fn repaired(line: &[u8]) -> (String, Repairs) {
    match check(line) {
        Checked::Repaired(text, repairs) => (text, repairs),
        other => panic!("{}: {other:?}", line.escape_ascii()),
    }
}

fn rejected(line: &[u8]) -> String {
    match check(line) {
        Checked::Rejected(reason) => reason.to_string(),
        other => panic!("{}: {other:?}", line.escape_ascii()),
    }
}

#[test]
fn a_valid_line_is_not_changed() {
    for line in [
        "{}",
        "{ }",
        r#"{"ph":"X","ts":-0.50e+3,"args":{"a":[],"b":[{}],"c":[1,null,true,false,"x"]}}"#,
        "{\t\"a\" :\r1 , \"a\":2 }",
        r#"{"a":"\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00"}"#,
        "{\"a\":\"\u{7f}é€😀\u{2028}\"}",
        r#"{"":0}"#,
        r#"{"a":123456789012345678901234567890.123456789012345678901234567890e-999}"#,
    ] {
        assert_eq!(check(line.as_bytes()), Checked::Valid(line));
    }
}

#[test]
fn values_that_are_not_finite_numbers_become_strings() {
    let (text, repairs) = repaired(
        br#"{"a":nan,"b":[-inf,inf , Infinity,-Infinity],"c":{"nan":NaN},"d":"nan","e":-nan}"#,
    );
    assert_eq!(
        text,
        r#"{"a":"nan","b":["-inf","inf" , "Infinity","-Infinity"],"c":{"nan":"NaN"},"d":"nan","e":"-nan"}"#
    );
    assert_eq!((repairs.not_finite, repairs.total()), (7, 7));
}

#[test]
fn a_lone_surrogate_is_replaced_and_a_surrogate_pair_is_kept() {
    let line = br#"{"a\ud800":"\ud83d\ude00\ude00\ud83d\\ud83d\ud83d\ud83d\ude00"}"#;
    let (text, repairs) = repaired(line);
    assert_eq!(
        text,
        r#"{"a\ufffd":"\ud83d\ude00\ufffd\ufffd\\ud83d\ufffd\ud83d\ude00"}"#
    );
    assert_eq!((repairs.surrogates, repairs.total()), (4, 4));
}

#[test]
fn invalid_utf8_is_replaced_and_a_trailing_comma_is_removed() {
    let (text, repairs) = repaired(b"{\"a\":\"\xff\xc3\xa9\xe2\x82x\"} ,");
    assert_eq!(text, "{\"a\":\"\u{fffd}é\u{fffd}x\"}");
    assert_eq!((repairs.not_utf8, repairs.commas), (2, 1));
    let mut sum = repairs;
    sum += repairs;
    assert_eq!(sum.total(), 6);
}

#[test]
fn a_line_beyond_repair_is_rejected_with_fault_and_position() {
    for (line, want) in [
        (&b""[..], "cut off at byte 0"),
        (b"[1]", "no object at byte 0"),
        (b"{", "cut off at byte 1"),
        (b"{}}", "more than one object at byte 2"),
        (b"{} {}", "more than one object at byte 3"),
        (b"{},,", "more than one object at byte 2"),
        (b"{a:1}", "no name of a member at byte 1"),
        (br#"{"a" 1}"#, "no colon at byte 5"),
        (br#"{"a":}"#, "no value at byte 5"),
        (br#"{"a":nope}"#, "no value at byte 5"),
        (br#"{"a":infinite}"#, "no value at byte 5"),
        (br#"{"a":tru}"#, "no value at byte 5"),
        (br#"{"a":1,}"#, "no name of a member at byte 7"),
        (br#"{"a":[1,]}"#, "no value at byte 8"),
        (
            br#"{"a":[1}"#,
            "neither comma nor closing bracket at byte 7",
        ),
        (br#"{"a":01}"#, "no number at byte 5"),
        (br#"{"a":-}"#, "no number at byte 6"),
        (br#"{"a":1.}"#, "no number at byte 7"),
        (br#"{"a":1e}"#, "no number at byte 7"),
        (br#"{"a":.5}"#, "no value at byte 5"),
        (br#"{"a":+5}"#, "no value at byte 5"),
        (br#"{"a":"\x"}"#, "no such escape at byte 7"),
        (br#"{"a":"\u12g4"}"#, "no such escape at byte 10"),
        (b"{\"a\":\"\t\"}", "control character at byte 6"),
        (b"{\"a\":\"\0\"}", "control character at byte 6"),
        (b"{\"a\":1}\0", "more than one object at byte 7"),
        (b"{\"a\":\xff}", "no value at byte 5"),
        (br#"{"a":"b"#, "cut off at byte 7"),
        (br#"{"a":"b}"#, "cut off at byte 8"),
        (br#"{"a":1"#, "cut off at byte 6"),
    ] {
        assert_eq!(rejected(line), want, "{}", line.escape_ascii());
    }
}

#[test]
fn a_line_nested_deeper_than_the_limit_is_rejected() {
    for (open, close) in [("[", "]"), (r#"{"a":"#, "}")] {
        let nested = |levels: usize| {
            let (open, close) = (open.repeat(levels - 1), close.repeat(levels - 1));
            let inner = if open.ends_with(':') { "1" } else { "" };
            format!(r#"{{"x":{open}{inner}{close}}}"#)
        };
        let line = nested(MAX_DEPTH);
        assert_eq!(check_str(&line), Checked::Valid(&line));
        let line = nested(MAX_DEPTH + 1);
        assert!(rejected(line.as_bytes()).starts_with("more than 128 levels"));
    }
}
