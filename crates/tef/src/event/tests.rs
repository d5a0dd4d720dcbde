use proptest::prelude::*;
use serde_json::Value as Json;

use super::*;

/// Any object, most of them nearly events.
pub(crate) fn line() -> impl Strategy<Value = String> {
    let number = prop_oneof![
        "-?(0|[1-9][0-9]{0,18})(\\.[0-9]{1,5})?([eE][+-]?[0-9]{1,2})?",
        any::<i64>().prop_map(|number| number.to_string()),
        (0..100_000_i64).prop_map(|number| number.to_string()),
    ];
    let string = prop_oneof![
        r#""([a-z ,]|\\n|\\"|\\u0000|\\u00e9|é|\\ud83d\\ude00){0,8}""#,
        r#""[BEXiIRCbnestfNODMPVvcSTpF()zé]""#,
    ];
    let object = r#"\{( "a":(1|null|"x"|\[2,\{\}\]))?\}"#;
    let id2 = r#"\{("local":(1|"0x1"|null))?\}|\{"global":"1", "local" :2\}|\{"other":1\}"#;
    let value = prop_oneof![number, string, object, id2, "true|null|\\[\\]"];
    let name = prop_oneof![
        8 => prop::sample::select(&[
            "ts", "dur", "tts", "tdur", "pid", "tid", "name", "cat", "scope", "s", "bp", "id",
            "id2", "bind_id", "args", "sf", "cname", "\\u0074s",
        ][..]).prop_map(str::to_owned),
        1 => "[a-z\\\\]{0,3}".prop_map(|name| name.replace('\\', "\\\\")),
    ];
    let members = prop::collection::vec((name, value), 0..9);
    let phase = prop_oneof![
        9 => r#""[BEXiIRCbnestfNODMPVvcSTpF()zé]""#,
        1 => r#""[a-z]{0,3}"|1|"\\u0058""#,
    ];
    (phase, any::<prop::sample::Index>(), members).prop_map(|(phase, at, members)| {
        let mut members: Vec<_> = members
            .into_iter()
            .map(|(name, value)| format!("\"{name}\" : {value}"))
            .collect();
        members.insert(at.index(members.len() + 1), format!("\"ph\":{phase}"));
        format!("{{{}}}", members.join(","))
    })
}

/// The value that a text stands for, with each number as what it is worth.
pub(crate) fn meaning(json: &str) -> Json {
    let mut exact = String::new();
    let mut rest = json;
    while let Some(at) = rest.find(['"', '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9']) {
        let (before, token) = rest.split_at(at);
        exact.push_str(before);
        let end = if token.starts_with('"') {
            end_of_string(token)
        } else {
            let is_part =
                |character: char| character.is_ascii_digit() || "+-.eE".contains(character);
            token
                .find(|character| !is_part(character))
                .unwrap_or(token.len())
        };
        let (token, after) = token.split_at(end);
        if token.starts_with('"') {
            exact.push_str(token);
        } else {
            exact.push_str(&format!("{{\"number\":\"{}\"}}", worth(token)));
        }
        rest = after;
    }
    exact.push_str(rest);
    serde_json::from_str(&exact).unwrap_or_else(|error| panic!("{json}: {error}"))
}

fn end_of_string(string: &str) -> usize {
    let mut bytes = string.bytes().enumerate().skip(1);
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'"' => return at + 1,
            b'\\' => drop(bytes.next()),
            _ => {}
        }
    }
    panic!("{string} does not end");
}

/// A number as digits and a power of ten.
fn worth(number: &str) -> String {
    let sign = if number.starts_with('-') { "-" } else { "" };
    let (mantissa, power) = number
        .trim_start_matches('-')
        .split_once(['e', 'E'])
        .unwrap_or((number.trim_start_matches('-'), "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let digits = digits.trim_start_matches('0');
    let significant = digits.trim_end_matches('0');
    if significant.is_empty() {
        return "0".to_owned();
    }
    let power: i64 = power.parse().unwrap();
    let zeros = i64::try_from(digits.len() - significant.len()).unwrap();
    let power = power + zeros - i64::try_from(fraction.len()).unwrap();
    format!("{sign}{significant}e{power}")
}

pub(super) fn event(line: &str) -> Event<'_> {
    match Record::parse(line) {
        Ok(Record::Event(event)) => event,
        other => panic!("{line}: {other:?}"),
    }
}

fn json(event: &Event<'_>) -> String {
    let mut out = Vec::new();
    event.write_json(&mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn an_event_is_parsed_and_written_back_as_json() {
    let line = r#"{"name":"a\"b", "cat":"c", "ph":"X","ts": 1234567890123.456,"dur":0.50,"pid":1,
        "tid":-2,"id":7,"args":{"x": [1]},"sf" : 3,"bind_id":"0x1","dup":{"ph":"Y"}}"#;
    let event = event(line);
    assert_eq!(
        event,
        Event {
            ts: Some(1_234_567_890_123_456),
            dur: Some(500),
            pid: Some(1),
            tid: Some(-2),
            name: Some("a\"b".into()),
            cat: Some("c".into()),
            bind_id: Some("\"0x1\""),
            args: Some(r#"{"x": [1]}"#),
            // A slice has no `id`.
            rest: r#"{"sf" : 3,"dup":{"ph":"Y"},"id":7}"#.into(),
            ..Event::new("X")
        }
    );
    assert_eq!(
        json(&event),
        r#"{"ph":"X","ts":1234567890123.456,"dur":0.500,"pid":1,"tid":-2,"name":"a\"b","cat":"c","bind_id":"0x1","args":{"x": [1]},"sf" : 3,"dup":{"ph":"Y"},"id":7}"#
    );
}

#[test]
fn a_member_of_an_unexpected_type_is_kept_as_it_is_written() {
    for member in [
        r#""ts":"1.5""#,
        r#""ts":1.23456"#,
        r#""ts":1e99"#,
        r#""ts":9223372036854775.808"#,
        r#""ts":null"#,
        r#""pid":"7""#,
        r#""pid":2147483648"#,
        r#""pid":1.0"#,
        r#""name":5"#,
        r#""name":"a\u0000""#,
        r#""name":"\ud800""#,
        r#""args":[1]"#,
        r#""id":{}"#,
        r#""id2":{}"#,
        r#""id2":{"local":1,"local":2}"#,
        r#""id2":{"local":true}"#,
        r#""id2":{"global":1,"local":null}"#,
        r#""id2":{"local":1,"x":2}"#,
        r#""id2":7"#,
        r#""dur":1"#,
        r#""cname":"good""#,
    ] {
        let line = format!(r#"{{"ph":"b",{member}}}"#);
        let want = Event {
            rest: format!("{{{member}}}").into(),
            ..Event::new("b")
        };
        assert_eq!(event(&line), want, "{line}");
        assert_eq!(json(&want), line);
    }
}

#[test]
fn a_line_that_is_no_event_or_repeats_a_member_is_kept_as_a_raw_record() {
    let many: Vec<_> = (0..=MAX_OTHER_MEMBERS)
        .map(|n| format!(r#""m{n}":1"#))
        .collect();
    for line in [
        "{}",
        r#"{"ph":7}"#,
        r#"{"ph":""}"#,
        r#"{"ph":"XX"}"#,
        r#"{"ph":"\u0058"}"#,
        r#"{"ph":"X","ts":1,"ts":1}"#,
        r#"{"ph":"X","ts":1,"\u0074s":1}"#,
        r#"{"ph":"X","q":1,"\u0071":1}"#,
        r#"{"ph":"X","\ud800":1}"#,
        &format!(r#"{{"ph":"X",{}}}"#, many.join(",")),
    ] {
        assert_eq!(Record::parse(line), Ok(Record::Raw(line)));
    }
    assert!(Record::parse("[]").is_err());
}

#[test]
fn the_end_of_a_slice_is_its_begin_and_duration() {
    assert_eq!(event(r#"{"ph":"X","ts":1,"dur":0.5}"#).end(), Some(1500));
    assert_eq!(event(r#"{"ph":"X","ts":1}"#).end(), Some(1000));
    assert_eq!(event(r#"{"ph":"X","dur":1}"#).end(), None);
    let line = r#"{"ph":"X","ts":9223372036854775,"dur":1}"#;
    assert_eq!(event(line).end(), None);
}

#[test]
fn event_ids_are_written_as_they_were_spelled() {
    for line in [
        r#"{"ph":"b","id":1}"#,
        r#"{"ph":"b","id":"1"}"#,
        r#"{"ph":"b","id":-5432109876543210987}"#,
        r#"{"ph":"b","id":340282366920938463463374607431768211456}"#,
        r#"{"ph":"b","id2":{"local":"0x1"}}"#,
        r#"{"ph":"b","id2":{"local":1,"global":"a\u0000"}}"#,
    ] {
        assert_eq!(json(&event(line)), line);
        assert_eq!(event(line).rest, "");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn any_json_object_is_parsed_and_written_back_with_the_same_meaning(line in line()) {
        let record = Record::parse(&line).unwrap();
        if let Record::Event(event) = &record {
            let json = json(event);
            prop_assert_eq!(meaning(&json), meaning(&line));
            let again = Record::parse(&json).unwrap();
            prop_assert_eq!(again.meaning(), record.meaning());
        }
    }
}

impl Record<'_> {
    /// Without the spelling and the order of `rest`.
    pub(crate) fn meaning(&self) -> (Option<Event<'_>>, Option<Json>) {
        match self {
            Self::Raw(line) => (None, Some(meaning(line))),
            Self::Event(event) => {
                let rest = (!event.rest.is_empty()).then(|| meaning(&event.rest));
                let event = Event {
                    rest: "".into(),
                    ..event.clone()
                };
                (Some(event), rest)
            }
        }
    }
}
