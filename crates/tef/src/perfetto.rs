//! Changes to records that ui.perfetto.dev would otherwise read wrongly or not at all.

mod owner_numbers;

use serde_json::{Map, Value};

use crate::document::{RecordTime, Records};
use crate::event::{Event, Record};

pub use owner_numbers::OwnerNumbers;

/// The phase of an old asynchronous event as the present ones have it: `T` is something else there.
#[must_use]
pub fn phase(phase: &str) -> &str {
    match phase {
        "S" => "b",
        "T" | "p" => "n",
        "F" => "e",
        other => other,
    }
}

/// Adds a record to a document, with the changes that Perfetto needs. `text` is a buffer.
pub fn add_record(
    record: Record<'_>,
    numbers: &mut OwnerNumbers,
    text: &mut Vec<u8>,
    records: &mut Records,
) {
    let mut time = RecordTime::default();
    text.clear();
    match record {
        Record::Event(mut event) => {
            round_times(&mut event);
            numbers.renumber(&mut event, records);
            time = RecordTime {
                ts: event.ts.take().map(i128::from),
                dur: event.dur.unwrap_or(0).into(),
                is_metadata: event.phase == "M",
            };
            event.phase = phase(event.phase);
            event.write_json(text);
        }
        raw @ Record::Raw(_) => raw.write_json(text),
    }
    // Copied as a whole, because what would end the import may be anywhere in the record.
    let mut copied = Vec::with_capacity(text.len());
    if let Ok(json) = std::str::from_utf8(text) {
        copy_json(json, &mut copied);
    }
    if let [b'{', members @ .., b'}'] = copied.trim_ascii() {
        records.add(time, members);
    }
}

/// Rounds the times that are kept as they were written, finer than a nanosecond or as strings, to
/// whole nanoseconds, so that they can be counted from another origin. What is no number would end
/// the import and is dropped; metadata needs none.
pub fn round_times(event: &mut Event<'_>) {
    let rest = serde_json::from_str::<Map<String, Value>>(&event.rest);
    // Most events have no other members, and an empty text is no JSON.
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
            *place = microseconds.and_then(nanoseconds);
        }
    }
    if rest.is_empty() {
        event.rest = "".into();
    } else if rest.len() < before {
        event.rest = Value::Object(rest).to_string().into();
    }
}

/// Microseconds as whole nanoseconds, if they fit.
fn nanoseconds(microseconds: f64) -> Option<i64> {
    let nanoseconds = (microseconds * 1000.0).round();
    #[expect(clippy::cast_possible_truncation, reason = "it is looked at first")]
    let whole = nanoseconds as i64;
    // Below the largest `i64`, so that the cast has not saturated.
    (nanoseconds.abs() < 9e18).then_some(whole)
}

/// Copies JSON, with the two tokens changed that would end the import: whole numbers beyond 64 bits
/// become strings, and surrogate pairs the characters that they stand for.
pub fn copy_json(json: &str, out: &mut Vec<u8>) {
    const IN_STRING: &[char] = &['"', '\\'];
    const OUTSIDE: &[char] = &['"', '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9'];
    let mut is_in_string = false;
    let mut rest = json;
    while let Some(at) = rest.find(if is_in_string { IN_STRING } else { OUTSIDE }) {
        let (before, token) = rest.split_at(at);
        out.extend_from_slice(before.as_bytes());
        let (token, after) = if token.starts_with('"') {
            is_in_string = !is_in_string;
            token.split_at(1)
        } else if !is_in_string {
            let is_end = |c: char| !c.is_ascii_digit() && !matches!(c, '-' | '+' | '.' | 'e' | 'E');
            token.split_at(token.find(is_end).unwrap_or(token.len()))
        } else if surrogate_pair(token).is_some() {
            token.split_at(PAIR_BYTES)
        } else {
            // What is escaped may be a quotation mark; it is always ASCII.
            token.split_at_checked(2).unwrap_or((token, ""))
        };
        if let Some(character) = surrogate_pair(token) {
            out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        } else if !is_in_string && is_beyond_64_bits(token) {
            let number = token.parse::<u128>();
            let text = number.map_or_else(|_| token.to_owned(), |value| format!("{value:#x}"));
            out.extend_from_slice(format!("\"{text}\"").as_bytes());
        } else {
            out.extend_from_slice(token.as_bytes());
        }
        rest = after;
    }
    out.extend_from_slice(rest.as_bytes());
}

/// Length of two escapes like `\ud83d`.
const PAIR_BYTES: usize = 12;

/// The character of a surrogate pair that `text` begins with.
fn surrogate_pair(text: &str) -> Option<char> {
    let unit = |at: usize| {
        let digits = text.get(at..at + PAIR_BYTES / 2)?.strip_prefix("\\u")?;
        u16::from_str_radix(digits, 16).ok()
    };
    let first = unit(0).filter(|unit| (0xD800..0xDC00).contains(unit))?;
    char::decode_utf16([first, unit(PAIR_BYTES / 2)?])
        .next()?
        .ok()
}

/// Whether a token is a whole number that does not fit into an `i64`.
fn is_beyond_64_bits(token: &str) -> bool {
    !token.contains(['.', 'e', 'E', '"']) && token.parse::<i64>().is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_for_perfetto_finer_than_nanoseconds_or_in_strings_are_rounded() {
        let mut event = Event::new("X");
        event.rest = r#"{"ts":"12.5","dur":1.23456,"tts":"soon","cname":"good"}"#.into();
        round_times(&mut event);
        let want = Event {
            ts: Some(12_500),
            dur: Some(1235),
            rest: r#"{"cname":"good"}"#.into(),
            ..Event::new("X")
        };
        assert_eq!(event, want);
        let mut event = Event::new("M");
        event.rest = r#"{"ts":0}"#.into();
        round_times(&mut event);
        assert_eq!(event, Event::new("M"));
    }

    #[test]
    fn lines_for_perfetto_are_in_order_with_times_since_the_first() {
        let mut records = Records::new(true);
        let mut numbers = OwnerNumbers::default();
        for line in [
            r#"{"ph":"X","name":"b","ts":1767225600000000.5,"dur":1}"#,
            r#"{"ph":"S","name":"a","ts":1767225600000000,"id":1}"#,
            r#"{"ph":"M","name":"thread_name"}"#,
        ] {
            let record = Record::parse(line).unwrap();
            add_record(record, &mut numbers, &mut Vec::new(), &mut records);
        }
        records.finish();
        let document: Value = serde_json::from_slice(&records.buffer).unwrap();
        assert_eq!(
            document,
            serde_json::json!({
                "displayTimeUnit": "ns",
                "traceEvents": [
                    {"ph": "M", "name": "thread_name"},
                    {"ph": "b", "name": "a", "ts": 0, "id": 1},
                    {"ph": "X", "name": "b", "ts": 0.5, "dur": 1},
                ],
                "metadata": {"ts_origin_us": 1_767_225_600_000_000_u64},
            })
        );
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
            copy_json(json, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), want);
        }
    }
}
