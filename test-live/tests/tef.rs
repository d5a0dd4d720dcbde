//! Lines of the Trace Event Format, recorded as a `tldrs` daemon does it and written by
//! `--sink tef`.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test stops at what it did not expect"
)]

use ctf::model::Uuid;
use ctf::write::{Appended, MetadataText, PacketSize, StreamWriter, TraceDeclaration};
use serde_json::{Number, Value, json};
use tef::Record;
use tef::ctf::{Classes, Client, Encoded, Lost};
use tempfile::TempDir;
use test_live::cli::Arguments;
use test_live::run::run;
use viewer::run::{Outcome, Stop};
use wire::Timestamp;

/// Events of every phase, some of them unusual.
const LINES: &str = include_str!("../../crates/tef/data/every-phase.jsonl");

/// A directory with a trace of the events that `events` appends, each a microsecond after the one
/// before.
fn record(events: impl FnOnce(&mut dyn FnMut(&Encoded<'_>), &Classes)) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let mut metadata = MetadataText::new(&TraceDeclaration::new(Uuid([7; 16]), "test"));
    let stream = metadata.stream(0).unwrap();
    let classes = Classes::declare(&mut metadata, &stream).unwrap();
    let mut writer = StreamWriter::new(&stream, 0, 0, PacketSize::new(1 << 20, 1 << 20));
    let mut now = Timestamp(1000);
    writer.open(now).unwrap();
    events(
        &mut |encoded| {
            now.0 += 1000;
            let appended = writer.append(encoded.class(), &encoded.at(now));
            assert_eq!(appended.unwrap(), Appended::Written);
        },
        &classes,
    );
    let path = |name| directory.path().join(name);
    std::fs::write(path("metadata"), metadata.as_str()).unwrap();
    std::fs::write(path("stream"), writer.close(now).unwrap().bytes).unwrap();
    directory
}

/// The output of the sink for a trace.
fn shown(directory: &TempDir, options: &[&str]) -> String {
    let other = tempfile::tempdir().unwrap();
    let out = other.path().join("trace.json");
    let mut arguments = vec!["test-live", "--quiet", "--sink", "tef", "--output"];
    arguments.push(out.to_str().unwrap());
    arguments.extend(options);
    arguments.push(directory.path().to_str().unwrap());
    let arguments = Arguments::from_words(arguments);
    assert_eq!(run(&arguments, &Stop::default()).unwrap(), Outcome::Whole);
    std::fs::read_to_string(out).unwrap()
}

fn records(text: &str) -> Vec<Value> {
    let whole: Value = serde_json::from_str(text).unwrap();
    whole["traceEvents"].as_array().unwrap().clone()
}

/// The value with whole numbers made equal, however they are written.
fn meaning(value: Value) -> Value {
    match value {
        Value::Number(number) if number.is_f64() => {
            let float = number.as_f64().unwrap();
            if float.trunc() == float && float.abs() < 1e15 {
                #[expect(clippy::cast_possible_truncation, reason = "it is whole and small")]
                let whole = float as i64;
                return Value::Number(Number::from(whole));
            }
            Value::Number(number)
        }
        Value::Array(values) => values.into_iter().map(meaning).collect(),
        Value::Object(members) => {
            let members = members.into_iter();
            Value::Object(
                members
                    .map(|(name, value)| (name, meaning(value)))
                    .collect(),
            )
        }
        other => other,
    }
}

#[test]
fn tldrs_records_are_written_as_they_were_sent() {
    let trace = record(|append, classes| {
        let client = Client {
            client: 1,
            pid: Some(7),
            uid: 0,
            exe: "/bin/true",
            opened: true,
            offset: None,
        };
        append(&classes.client(&client));
        for line in LINES.lines() {
            append(&classes.record(1, &Record::parse(line).unwrap()));
        }
    });
    let text = shown(&trace, &["--for", "any"]);
    assert!(text.contains(r#""ts":1754000000000000.123"#), "{text}");
    let records = records(&text);
    assert_eq!(records.len(), LINES.lines().count());
    for (got, sent) in records.into_iter().zip(LINES.lines()) {
        let sent: Value = serde_json::from_str(sent).unwrap();
        assert_eq!(meaning(got), meaning(sent.clone()), "{sent}");
    }
}

#[test]
fn with_arrival_times_a_slice_ends_at_its_arrival_and_daemon_records_are_shown() {
    let trace = record(|append, classes| {
        let lines = [
            r#"{"ph":"X","ts":77,"dur":1.5}"#,
            r#"{"ph":"i","ts":78}"#,
            r#"{"ph":"i","ts":"79"}"#,
            r#"{"ph":"M"}"#,
        ];
        for line in lines {
            append(&classes.record(1, &Record::parse(line).unwrap()));
        }
        append(&classes.lost(&Lost {
            client: 1,
            count: 3,
            reason: "no \"object\"",
        }));
    });
    let by_arrival = records(&shown(&trace, &["--for", "any", "--tef-time", "arrival"]));
    let times = by_arrival.iter().map(|record| record["ts"].clone());
    let none = Value::Null;
    let want = [json!(0.5), json!(3), json!(4), none.clone(), none, json!(6)];
    assert_eq!(times.collect::<Vec<_>>(), want);
    assert_eq!(by_arrival[5]["name"], "tef:lost");
    assert_eq!(by_arrival[5]["args"]["reason"], "no \"object\"");
    // Records of the daemon itself are not written.
    assert_eq!(records(&shown(&trace, &[])).len(), 4);
}

#[test]
fn tef_output_for_perfetto_has_no_record_that_fails_its_import() {
    let trace = record(|append, classes| {
        for line in [
            r#"{"ph":"X","name":"inner","ts":1000.5,"dur":1,"pid":1,"tid":1}"#,
            r#"{"ph":"X","name":"outer","ts":1000.5,"dur":2,"pid":1,"tid":1}"#,
            r#"{"ph":"T","name":"step","id":18446744073709551615,"ts":1000,"pid":1,"args":{"s":"\ud83d\ude00"}}"#,
            r#"{"ph":"M","name":"process_name","pid":1,"ts":5,"args":{"name":"p"}}"#,
        ] {
            append(&classes.record(1, &Record::parse(line).unwrap()));
        }
    });
    let text = shown(&trace, &["--for", "perfetto"]);
    assert_eq!(shown(&trace, &[]), text, "Perfetto is the default");
    let whole: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        whole,
        json!({
            "displayTimeUnit": "ns",
            "traceEvents": [
                {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "p"}},
                {"ph": "n", "name": "step", "id": "0xffffffffffffffff", "ts": 0, "pid": 1, "args": {"s": "😀"}},
                {"ph": "X", "name": "outer", "ts": 0.5, "dur": 2, "pid": 1, "tid": 1},
                {"ph": "X", "name": "inner", "ts": 0.5, "dur": 1, "pid": 1, "tid": 1},
            ],
            "metadata": {"ts_origin_us": 1000},
        })
    );
    assert!(text.contains('😀'));
}

#[test]
fn sent_threads_with_wide_ids_zero_and_names_are_apart_in_tef_output_for_perfetto() {
    let trace = record(|append, classes| {
        let ids = ["0", "1", "140589156634432", "140588800255680", "\"main\""];
        for (ts, id) in (1..).zip(ids) {
            for line in [
                format!(
                    r#"{{"ph":"B","name":"a","ts":{ts},"pid":{id},"tid":{id},"args":{{"n":1}}}}"#
                ),
                format!(r#"{{"ph":"B","name":"b","ts":{ts},"pid":5000000000,"tid":{id}}}"#),
            ] {
                append(&classes.record(1, &Record::parse(&line).unwrap()));
            }
        }
    });
    let records = records(&shown(&trace, &["--counter", "n=args.n"]));
    let owners = |phase| {
        let of_phase = records.iter().filter(move |record| record["ph"] == phase);
        of_phase.map(|record| (record["pid"].as_u64().unwrap(), record["tid"].as_u64()))
    };
    let is_outer = |record: &&Value| record["name"] == "a" && record["ph"] == "B";
    let spans: std::collections::HashSet<_> = owners("B").collect();
    assert_eq!(spans.len(), 10, "{spans:?}");
    for (process, thread) in &spans {
        let thread = thread.unwrap();
        assert!((1..1 << 32).contains(process) && (1..1 << 32).contains(&thread));
        assert_eq!(
            spans.iter().filter(|(other, _)| other == process).count() % 4,
            1
        );
    }
    let counted: Vec<_> = owners("C").map(|(process, _)| process).collect();
    let begun = records.iter().filter(is_outer);
    let begun: Vec<_> = begun
        .map(|record| record["pid"].as_u64().unwrap())
        .collect();
    assert_eq!(counted, begun, "a counter is of the process of its event");
    let named = |name: &str| records.iter().any(|record| record["args"]["name"] == name);
    assert!(named("140589156634432") && named("main") && named("5000000000"));
}

#[test]
fn numbers_in_the_arguments_of_sent_events_become_counters() {
    let trace = record(|append, classes| {
        for line in [
            r#"{"ph":"i","name":"push","ts":1,"pid":7,"args":{"depth":3,"of":[{"n":-1.5}]}}"#,
            r#"{"ph":"X","name":"pop","ts":2,"dur":5,"pid":8,"args":{"depth":4,"text":"depth"}}"#,
            r#"{"ph":"i","name":"none","ts":3,"pid":8,"args":{"depth":"5"}}"#,
            r#"{"ph":"i","name":"nothing","ts":4,"pid":8}"#,
        ] {
            append(&classes.record(1, &Record::parse(line).unwrap()));
        }
    });
    let options = [
        "--counter",
        "depth=args.depth",
        "--counter",
        "n=args.of[0].n",
    ];
    let records = records(&shown(&trace, &options));
    let counters = records.iter().filter(|record| record["ph"] == "C");
    let counter = |ts, pid, name, value: Value| json!({"ph": "C", "name": name, "ts": ts, "pid": pid, "args": {"value": value}});
    assert_eq!(
        counters.cloned().collect::<Vec<_>>(),
        [
            counter(0, 7, "depth", json!(3)),
            counter(0, 7, "n", json!(-1.5)),
            counter(1, 8, "depth", json!(4)),
        ]
    );
}

#[test]
fn events_of_foreign_producers_with_our_class_names_are_shown_as_ordinary_events() {
    let trace = record(|append, classes| {
        append(&classes.record(1, &Record::Raw("no {json")));
        let mut event = tef::Event::new("X");
        event.args = Some("}, {");
        append(&classes.record(1, &Record::Event(event)));
        let mut event = tef::Event::new("X");
        event.rest = "{\"ph\":".into();
        append(&classes.record(1, &Record::Event(event)));
    });
    let records = records(&shown(&trace, &[]));
    let events = records.iter().filter(|record| record["ph"] == "i");
    let names: Vec<_> = events
        .map(|record| record["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["tef:raw", "tef:complete", "tef:complete"]);
}
