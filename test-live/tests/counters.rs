//! Numbers of fields as counters in a `trace.json`: `--sink tef --counter`.
#![cfg(test)]

use ctf::directory::StreamHandle;
use ctf::write::{EventRecord, FieldType, Value, Width};
use ctf::{Timestamp, TraceWriter};
use serde_json::json;
use tempfile::TempDir;
use test_live::cli::Arguments;
use test_live::run::run;
use viewer::run::{Outcome, Stop, UsageError};

/// A trace of two processes: a queue whose depth is recorded, and something else.
fn trace() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let mut trace = TraceWriter::create(directory.path()).unwrap();
    let depth = ("depth", FieldType::Signed(Width::Bits32));
    let load = ("load", FieldType::Float);
    let push = trace
        .event_class("queue:push", &[depth.clone(), load])
        .unwrap();
    let other = trace
        .event_class("other", &[depth, ("text", FieldType::Text)])
        .unwrap();
    let mut write = |time, process, class, values: &[Value<'_>]| {
        let event = EventRecord {
            time: Timestamp(time),
            process,
            thread: process,
            values,
        };
        trace.write_to(StreamHandle::FIRST, class, &event).unwrap();
    };
    write(1000, 7, &push, &[3.into(), 0.5.into()]);
    write(2500, 8, &push, &[(-1).into(), 1.0.into()]);
    write(4000, 8, &other, &[99.into(), "x".into()]);
    write(5000, 8, &push, &[4.into(), f64::NAN.into()]);
    trace.finish().unwrap();
    directory
}

fn arguments(trace: &TempDir, options: &[&str]) -> Arguments {
    let words = [
        &["test-live", "--quiet"],
        options,
        &[trace.path().to_str().unwrap()],
    ];
    Arguments::from_words(words.concat())
}

/// The outcome, and the counters that were written: time in microseconds, process, name and value.
fn counters(options: &[&str]) -> (Outcome, Vec<serde_json::Value>) {
    let (trace, other) = (trace(), tempfile::tempdir().unwrap());
    let output = other.path().join("trace.json");
    let words = [
        &["--sink", "tef", "--output", output.to_str().unwrap()],
        options,
    ]
    .concat();
    let outcome = run(&arguments(&trace, &words), &Stop::default()).unwrap();
    let whole: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&output).unwrap()).unwrap();
    let records = whole["traceEvents"].as_array().unwrap();
    let instants = records.iter().filter(|record| record["ph"] == "i");
    assert_eq!(instants.count(), 4, "events are shown as well");
    let counters = records
        .iter()
        .filter(|record| record["ph"] == "C")
        .map(|record| {
            assert_eq!(record.as_object().unwrap().len(), 5, "{record}");
            json!([
                record["ts"],
                record["pid"],
                record["name"],
                record["args"]["value"]
            ])
        });
    (outcome, counters.collect())
}

#[test]
fn the_numbers_of_a_field_become_a_counter_of_each_process() {
    let (outcome, written) = counters(&["--counter", "queue:push.depth"]);
    assert_eq!(outcome, Outcome::Whole);
    let name = "queue:push.depth";
    assert_eq!(
        written,
        [
            json!([0, 7, name, 3]),
            json!([1.5, 8, name, -1]),
            json!([4, 8, name, 4])
        ]
    );

    let (outcome, written) = counters(&["--counter=all=depth", "--counter", "load"]);
    assert_eq!(outcome, Outcome::Whole);
    let want = [
        json!([0, 7, "all", 3]),
        json!([0, 7, "load", 0.5]),
        json!([1.5, 8, "all", -1]),
        json!([1.5, 8, "load", 1.0]),
        json!([3, 8, "all", 99]),
        json!([4, 8, "all", 4]),
    ];
    // What is not a number has no point.
    assert_eq!(written, want);
}

#[test]
fn a_counter_without_values_is_an_error_unless_that_is_allowed() {
    for expression in ["dept", "text", "queue:pop.depth", "\"other\".load"] {
        let (outcome, written) = counters(&["--counter", expression, "--counter", "load"]);
        assert_eq!(outcome, Outcome::Partial, "{expression}");
        assert_eq!(written.len(), 2, "{expression}");
        let allowed = ["--counter", expression, "--session-not-found", "end"];
        assert_eq!(counters(&allowed).0, Outcome::Whole, "{expression}");
    }
}

#[test]
fn a_counter_that_is_malformed_or_has_no_sink_is_a_usage_error() {
    let trace = trace();
    for (options, why) in [
        (
            &["--sink", "tef", "--counter", "a >"][..],
            "invalid --counter \"a >\": expected the end",
        ),
        (
            &["--counter", "depth"],
            "--counter requires --sink perfetto or --sink tef",
        ),
    ] {
        let error = run(&arguments(&trace, options), &Stop::default()).unwrap_err();
        assert!(
            error.is::<UsageError>() && error.to_string().contains(why),
            "{error}"
        );
    }
}
