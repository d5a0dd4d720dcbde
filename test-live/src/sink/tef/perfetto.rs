//! What ui.perfetto.dev reads wrongly or not at all, said otherwise.

use std::fmt::Write;

use ::tef::Event;
use serde_json::{Map, Value};

/// The phase of an old asynchronous event as the present ones have it: `T` is something else there.
pub(super) fn phase(phase: &str) -> &str {
    match phase {
        "S" => "b",
        "T" | "p" => "n",
        "F" => "e",
        other => other,
    }
}

/// Sees to the times that are kept as they were written, finer than a nanosecond or as strings: rounded
/// they can be counted from another origin. What is no number would end the import and is dropped;
/// metadata needs none.
pub(super) fn settle_times(event: &mut Event<'_>) {
    let rest = serde_json::from_str::<Map<String, Value>>(&event.rest);
    let Ok(mut rest) = rest else { return };
    let before = rest.len();
    for (name, place) in [
        ("ts", &mut event.ts),
        ("dur", &mut event.dur),
        ("tts", &mut event.tts),
        ("tdur", &mut event.tdur),
    ] {
        let Some(written) = rest.remove(name) else {
            continue;
        };
        let microseconds = match &written {
            Value::String(text) => text.parse().ok(),
            other => other.as_f64(),
        };
        if event.phase != "M" {
            *place = microseconds.and_then(rounded);
        }
    }
    if rest.is_empty() {
        event.rest = "".into();
    } else if rest.len() < before {
        event.rest = Value::Object(rest).to_string().into();
    }
}

/// Microseconds as nanoseconds, if there is a number for them.
fn rounded(microseconds: f64) -> Option<i64> {
    let nanoseconds = (microseconds * 1000.0).round();
    #[expect(clippy::cast_possible_truncation, reason = "it is looked at first")]
    let whole = nanoseconds as i64;
    (nanoseconds.abs() < 9e18).then_some(whole)
}

/// Copies JSON, with the two tokens changed that would end the import: whole numbers beyond 64 bits
/// become strings, and surrogate pairs the characters that they stand for.
pub(super) fn copy(json: &str, out: &mut Vec<u8>) {
    let mut rest = json;
    while let Some(at) = rest.find(['"', '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9']) {
        let (before, token) = rest.split_at(at);
        out.extend_from_slice(before.as_bytes());
        rest = if token.starts_with('"') {
            string(token, out)
        } else {
            number(token, out)
        };
    }
    out.extend_from_slice(rest.as_bytes());
}

/// Copies the string that `text` begins with; gives what is behind it.
fn string<'a>(text: &'a str, out: &mut Vec<u8>) -> &'a str {
    out.push(b'"');
    let mut rest = text.strip_prefix('"').unwrap_or_default();
    while let Some(at) = rest.find(['"', '\\']) {
        let (before, special) = rest.split_at(at);
        out.extend_from_slice(before.as_bytes());
        if let Some(after) = special.strip_prefix('"') {
            out.push(b'"');
            return after;
        }
        if let Some(character) = pair(special) {
            out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            rest = special.get(12..).unwrap_or_default();
            continue;
        }
        // What is escaped may be a quotation mark; it is always ASCII.
        let (escape, after) = special.split_at_checked(2).unwrap_or((special, ""));
        out.extend_from_slice(escape.as_bytes());
        rest = after;
    }
    out.extend_from_slice(rest.as_bytes());
    ""
}

/// The character of a surrogate pair that is here.
fn pair(text: &str) -> Option<char> {
    let unit = |at: usize| {
        let digits = text.get(at..at + 6)?.strip_prefix("\\u")?;
        u16::from_str_radix(digits, 16).ok()
    };
    let first = unit(0).filter(|unit| (0xD800..0xDC00).contains(unit))?;
    char::decode_utf16([first, unit(6)?]).next()?.ok()
}

/// The same for a number.
fn number<'a>(text: &'a str, out: &mut Vec<u8>) -> &'a str {
    let is_part =
        |byte: u8| byte.is_ascii_digit() || matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E');
    let length = text.bytes().take_while(|byte| is_part(*byte)).count();
    let (number, rest) = text.split_at(length);
    let is_whole = !number.contains(['.', 'e', 'E']);
    if !is_whole || number.parse::<i64>().is_ok() {
        out.extend_from_slice(number.as_bytes());
    } else {
        let mut written = String::new();
        let _ = match number.parse::<u128>() {
            Ok(value) => write!(written, "\"{value:#x}\""),
            Err(_) => write!(written, "\"{number}\""),
        };
        out.extend_from_slice(written.as_bytes());
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn perfetto_times_finer_than_nanoseconds_or_in_strings_are_rounded() {
        let mut event = Event::new("X");
        event.rest = r#"{"ts":"12.5","dur":1.23456,"tts":"soon","cname":"good"}"#.into();
        settle_times(&mut event);
        let want = Event {
            ts: Some(12_500),
            dur: Some(1235),
            rest: r#"{"cname":"good"}"#.into(),
            ..Event::new("X")
        };
        assert_eq!(event, want);
        let mut event = Event::new("M");
        event.rest = r#"{"ts":0}"#.into();
        settle_times(&mut event);
        assert_eq!(event, Event::new("M"));
    }

    #[test]
    fn only_records_that_would_fail_the_perfetto_import_are_changed() {
        for (json, want) in [
            (r#"{"a":[1,-2.5e3],"b":"1"}"#, r#"{"a":[1,-2.5e3],"b":"1"}"#),
            ("9223372036854775807", "9223372036854775807"),
            ("-9223372036854775808", "-9223372036854775808"),
            ("[9223372036854775808]", r#"["0x8000000000000000"]"#),
            ("[-9223372036854775809]", r#"["-9223372036854775809"]"#),
            (
                "1000000000000000000000000000000000000000",
                r#""1000000000000000000000000000000000000000""#,
            ),
            ("9223372036854775808.5", "9223372036854775808.5"),
            (
                r#""\ud83d\ude00 \\ud83d\ude00 \" 9223372036854775808""#,
                r#""😀 \\ud83d\ude00 \" 9223372036854775808""#,
            ),
            (r#"{"\ud83d\ude00":1}"#, r#"{"😀":1}"#),
            (r#""\ud83dx\"""#, r#""\ud83dx\"""#),
        ] {
            let mut out = Vec::new();
            copy(json, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), want);
        }
    }
}
