//! The layer in whole processes: each test runs this test program again with a scenario, and reads
//! what it leaves.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a test stops at what it did not expect; its files are small"
)]

#[path = "process/calls.rs"]
#[expect(dead_code, reason = "shared with the tests of processes")]
mod calls;
#[path = "process/producer.rs"]
#[expect(dead_code, reason = "shared with the tests of processes")]
mod producer;
#[path = "process/reader.rs"]
#[allow(dead_code, reason = "shared with the tests of processes")]
mod reader;
#[path = "layer/scenarios.rs"]
mod scenarios;

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::path::Path;

use trace_ring_core::format::{Control, EventClass, FieldType, SeverityClass};
use trace_ring_core::{Severity, replace_filter};

use crate::producer::Producer;
use crate::reader::{Event, Process, list_directories, read_process};

fn run(scenario: &str, variables: &[(&str, &str)]) -> (Process, String) {
    let mut producer = Producer::start(scenario, variables);
    let stderr = producer.finish();
    (producer.read(), stderr)
}

/// Events of the only ring, or of the one for INFO and above.
fn events(process: &Process) -> &[Event] {
    &process.rings_of(SeverityClass::Normal)[0].events
}

fn fields(event: &Event) -> Vec<(&str, &str)> {
    let fields = event.fields.iter();
    fields
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect()
}

fn class_with<'a>(process: &'a Process, field: &str) -> &'a EventClass {
    let mut classes = process.classes.values();
    classes
        .find(|class| class.fields.iter().any(|(name, _)| name == field))
        .unwrap()
}

#[test]
fn fields_keep_their_names_types_and_values() {
    let (process, _) = run("values", &[]);
    let [typed, text, named] = events(&process) else {
        panic!("three events")
    };
    let expected = [
        ("message", "typed 7"),
        ("n", "7"),
        ("signed", "-7"),
        ("float", "0.5"),
        ("yes", "true"),
        ("wide", "340282366920938463463374607431768211455"),
        ("bytes", "[1, 2]"),
    ];
    let mut found = fields(typed);
    found.sort_by_key(|(name, _)| expected.iter().position(|(wanted, _)| wanted == name));
    assert_eq!(found, expected);
    let class = class_with(&process, "float");
    let types: HashMap<_, _> = class
        .fields
        .iter()
        .map(|(name, kind)| (name.as_str(), *kind))
        .collect();
    assert_eq!(
        (
            types["n"],
            types["signed"],
            types["float"],
            types["yes"],
            types["wide"],
            types["bytes"]
        ),
        (
            FieldType::U64,
            FieldType::I64,
            FieldType::F64,
            FieldType::Bool,
            FieldType::Str,
            FieldType::Bytes
        )
    );
    assert!(class.file.ends_with("layer/scenarios.rs") && class.line > 0);
    assert_eq!(
        (class.target.as_str(), class.severity),
        ("layer::scenarios", Severity::Info)
    );

    let mut found = fields(text);
    found.sort_unstable();
    assert_eq!(
        found,
        [("debug", "Some(\"a\")"), ("display", "1.50"), ("text", "ä")]
    );

    assert_eq!(named.name, "request done");
    let class = class_with(&process, "status");
    assert_eq!(
        (class.target.as_str(), class.severity),
        ("app::db", Severity::Error)
    );
}

#[test]
fn strings_are_cut_at_65535_bytes_between_characters() {
    let (process, _) = run("long", &[("TRACE_RING_SIZE", "4M")]);
    let [text, debug] = events(&process) else {
        panic!("two events")
    };
    assert_eq!(text.field("text"), "ä".repeat(32_767));
    assert_eq!(debug.field("text"), format!("\"{}", "ä".repeat(32_767)));
}

#[test]
fn a_field_without_a_value_is_left_out_and_each_shape_has_one_class() {
    let (process, _) = run("optional", &[]);
    let found: Vec<_> = events(&process).iter().map(fields).collect();
    let with = |n| vec![("always", n), ("sometimes", n)];
    let without = |n| vec![("always", n)];
    assert_eq!(found, [with("0"), without("1"), with("2"), without("3")]);
    assert_eq!(process.classes.len(), 2);
}

#[test]
fn an_event_inside_of_a_debug_implementation_is_written_too() {
    let (process, _) = run("nested", &[]);
    let [inner, outer] = events(&process) else {
        panic!("two events")
    };
    assert_eq!(inner.field("message"), "inner");
    assert_eq!((outer.field("value"), outer.field("n")), ("Loud", "1"));
    assert_eq!(process.lost(), 0);
}

#[test]
fn spans_are_paired_by_their_ids() {
    let (process, _) = run("spans", &[]);
    let found: Vec<_> = events(&process)
        .iter()
        .map(|event| (event.name.as_str(), event.fields.len()))
        .collect();
    let outer = &events(&process)[0];
    let inner = &events(&process)[2];
    let expected = [
        ("span:new", 5),
        ("span:enter", 2),
        ("span:new", 4),
        ("span:enter", 2),
        ("span:record", 3),
        ("event", 1),
        ("span:exit", 2),
        ("span:close", 2),
        ("span:exit", 2),
        ("span:close", 2),
    ];
    let is_same = |((found, found_fields), (name, fields)): (&(&str, usize), &(&str, usize))| {
        found.starts_with(name) && found_fields == fields
    };
    assert!(
        found.iter().zip(&expected).all(is_same) && found.len() == expected.len(),
        "{found:?}"
    );
    assert_eq!(
        (
            outer.field("name"),
            outer.field("path"),
            outer.field("name_")
        ),
        ("request", "/x", "own")
    );
    assert_eq!(outer.field("parent"), "0");
    assert_eq!(
        (inner.field("name"), inner.field("parent")),
        ("query", outer.field("span"))
    );
    assert_eq!(events(&process)[4].field("rows"), "3");
    let spans = events(&process)
        .iter()
        .filter(|event| event.name.starts_with("span:"));
    let of_inner = spans.filter(|event| event.field("span") == inner.field("span"));
    assert_eq!(of_inner.count(), 5);
}

#[test]
fn debug_and_trace_go_to_the_ring_for_them_when_the_filter_lets_them_pass() {
    let (process, _) = run("levels", &[("TRACE_RING_FILTER", "trace")]);
    let names = |class| -> Vec<String> {
        let events = process.rings_of(class)[0].events.iter();
        events
            .map(|event| event.field("message").to_owned())
            .collect()
    };
    assert_eq!(names(SeverityClass::Normal), ["error", "warn", "info"]);
    assert_eq!(names(SeverityClass::Debug), ["debug", "trace"]);
    let (process, _) = run("levels", &[]);
    assert_eq!((process.rings.len(), process.event_count()), (1, 3));
    let (process, _) = run("levels", &[("TRACE_RING_FILTER", "off")]);
    assert_eq!((process.rings.len(), process.event_count()), (0, 0));
}

#[test]
fn other_layers_see_what_the_filter_of_the_ring_does_not_let_pass() {
    for filter in ["off", "warn", "trace"] {
        let (_, stderr) = run("other-layer", &[("TRACE_RING_FILTER", filter)]);
        assert_eq!(stderr, "[ERROR, WARN, INFO, DEBUG, TRACE]\n");
    }
    let mut producer = Producer::start("other-layer", &[("TRACE_RING", "off")]);
    assert_eq!(producer.finish(), "[ERROR, WARN, INFO, DEBUG, TRACE]\n");
    assert!(!producer.run_directory().exists());
}

#[test]
fn a_program_without_a_run_directory_runs_on_after_one_line_on_stderr() {
    let mut producer = Producer::start("levels", &[("TRACE_RING_DIR", "/dev/null/ring")]);
    let stderr = producer.finish();
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.starts_with("trace-ring: "), "{stderr}");
}

#[test]
fn another_process_changes_what_the_layer_writes() {
    let mut producer = Producer::start("filter", &[]);
    producer.wait_for("off");
    change_filter(&producer.own_directory());
    producer.finish();
    assert_filter_was_changed(&producer.read());
}

#[test]
fn a_forked_child_notices_a_changed_filter() {
    let mut producer = Producer::start("filter-in-child", &[]);
    producer.wait_for("off");
    let own = producer.own_directory();
    let directories = list_directories(&producer.run_directory());
    let of_child = directories.iter().find(|path| **path != own).unwrap();
    change_filter(of_child);
    producer.finish();
    assert_filter_was_changed(&read_process(of_child));
}

/// Replaces the filter of a process.
fn change_filter(directory: &Path) {
    let path = directory.join("control");
    let control = Control::decode(&std::fs::read(&path).unwrap()).unwrap();
    let file = OpenOptions::new().read(true).write(true).open(&path);
    replace_filter(&file.unwrap(), control.generation, "app::db=debug").unwrap();
}

fn assert_filter_was_changed(process: &Process) {
    let messages = |class| -> Vec<String> {
        let events = process.rings_of(class)[0].events.iter();
        events
            .map(|event| event.field("message").to_owned())
            .collect()
    };
    assert_eq!(messages(SeverityClass::Normal), ["notice"]);
    assert_eq!(messages(SeverityClass::Debug), ["query"]);
}
