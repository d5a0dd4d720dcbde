//! Recordings of CodeTracer in traces on disk, written by `--sink codetracer` and `--sink tef`.

#![expect(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

use std::fs;
use std::path::Path;

use codetracer::events::{EventEncoder, FileChunk, Item};
use codetracer::metadata::RecordingMetadata;
use codetracer::record::Record;
use codetracer_trace_types::TraceLowLevelEvent;
use ctf::model::Uuid;
use ctf::write::{Appended, MetadataText, PacketSize, StreamWriter, TraceDeclaration};
use serde_json::{Value, json};
use tempfile::TempDir;
use test_live::cli::Arguments;
use test_live::run::run;
use viewer::run::{Outcome, Stop};
use wire::Timestamp;

/// A small recording of two functions. From the format's examples, MIT licence.
const DEMO: &str = include_str!("../../crates/codetracer/tests/data/demo.json");

fn demo() -> Vec<Record<'static>> {
    let elements: Vec<Value> = serde_json::from_str(DEMO).unwrap();
    let parse = |element: &Value| Record::parse(&element.to_string()).unwrap().into_owned();
    elements.iter().map(parse).collect()
}

/// Writes a trace with packets of `per_packet` records to a directory, without the packets that
/// `is_lost` names.
fn write_trace(
    directory: &Path,
    uuid: u8,
    records: &[Record<'static>],
    per_packet: usize,
    is_lost: impl Fn(usize) -> bool,
) {
    let mut metadata = MetadataText::new(&TraceDeclaration::new(Uuid([uuid; 16]), "test"));
    let (stream, mut encoder) = EventEncoder::declare(&mut metadata, 0).unwrap();
    let mut writer = StreamWriter::new(&stream, 0, 0, PacketSize::new(1 << 20, 1 << 20));
    let program = Item::Metadata(RecordingMetadata {
        workdir: "/demo".into(),
        program: "main.small".into(),
        args: vec!["3".into()],
        ..RecordingMetadata::default()
    });
    let file = Item::FileChunk(FileChunk {
        path: "/demo/main.small".into(),
        size: 3,
        offset: 0,
        content: b"abc"[..].into(),
        sha256: "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad".into(),
    });
    let records = records.iter().cloned().map(Item::Record);
    let items: Vec<_> = [program, file].into_iter().chain(records).collect();
    let (mut now, mut bytes, mut text) = (1000, Vec::new(), String::new());
    for (number, packet) in items.chunks(per_packet).enumerate() {
        writer.set_context(&encoder.packet_context());
        writer.open(Timestamp(now)).unwrap();
        for item in packet {
            now += 1000;
            let encoded = encoder.encode(item, &mut text);
            let appended = writer.append(encoded.class(), &encoded.at(Timestamp(now)));
            assert_eq!(appended.unwrap(), Appended::Written);
            if let Item::Record(record) = item {
                encoder.count_record(record);
            }
        }
        let packet = writer.close(Timestamp(now)).unwrap().bytes.to_vec();
        if !is_lost(number) {
            bytes.extend(packet);
        }
    }
    fs::create_dir_all(directory).unwrap();
    fs::write(directory.join("metadata"), metadata.as_str()).unwrap();
    fs::write(directory.join("stream"), bytes).unwrap();
}

/// Runs the viewer with these options for a target.
fn view(options: &[&str], target: &Path) -> anyhow::Result<Outcome> {
    let mut words = vec!["test-live", "--quiet", "--no-follow"];
    words.extend(options);
    words.push(target.to_str().unwrap());
    run(&Arguments::from_words(words), &Stop::default())
}

/// Writes the directory of a recording.
fn write_directory(directory: &Path, target: &Path, options: &[&str]) -> anyhow::Result<Outcome> {
    let mut words = vec!["--sink", "codetracer", "-o", directory.to_str().unwrap()];
    words.extend(options);
    view(&words, target)
}

fn records(directory: &Path) -> Vec<Record<'static>> {
    let text = fs::read_to_string(directory.join("trace.json")).unwrap();
    serde_json::from_str::<Vec<TraceLowLevelEvent>>(&text).unwrap();
    let elements: Vec<Value> = serde_json::from_str(&text).unwrap();
    let parse = |element: &Value| Record::parse(&element.to_string()).unwrap().into_owned();
    elements.iter().map(parse).collect()
}

#[test]
fn a_recording_comes_back_record_for_record() {
    let temporary = TempDir::new().unwrap();
    let (trace, out) = (temporary.path().join("trace"), temporary.path().join("out"));
    write_trace(&trace, 1, &demo(), 5, |_| false);
    // A second run finds the directory of the first.
    for _ in 0..2 {
        let outcome = write_directory(&out, &trace, &[]).unwrap();
        assert_eq!(outcome, Outcome::Whole);
        assert_eq!(records(&out), demo());
        let text = |name: &str| fs::read_to_string(out.join(name)).unwrap();
        assert_eq!(
            text("trace_metadata.json"),
            r#"{"workdir":"/demo","program":"main.small","args":["3"]}"#
        );
        assert_eq!(
            text("trace_paths.json"),
            r#"["/demo/main.small","/demo/lib.small"]"#
        );
        assert_eq!(text("files/demo/main.small"), "abc");
    }
    // `-w` means the same, and the other form takes the place of the first.
    let words = ["--sink", "codetracer", "--codetracer-format=bin", "-w"];
    view(&[&words[..], &[out.to_str().unwrap()]].concat(), &trace).unwrap();
    assert!(out.join("trace.bin").exists() && !out.join("trace.json").exists());
}

#[test]
fn every_number_of_packets_gives_a_directory_with_their_records() {
    let demo = demo();
    for packets in 1..=demo.len() / 5 {
        let temporary = TempDir::new().unwrap();
        let (trace, out) = (temporary.path().join("trace"), temporary.path().join("out"));
        write_trace(&trace, 1, &demo, 5, |number| number >= packets);
        write_directory(&out, &trace, &[]).unwrap();
        assert_eq!(records(&out), demo[..5 * packets - 2]);
    }
}

#[test]
fn lost_packets_are_counted_and_leave_a_recording_that_opens() {
    let demo = demo();
    let packets = (demo.len() + 2).div_ceil(5);
    for lost in 1..packets - 1 {
        let temporary = TempDir::new().unwrap();
        let (trace, out) = (temporary.path().join("trace"), temporary.path().join("out"));
        write_trace(&trace, 1, &demo, 5, |number| number == lost);
        write_directory(&out, &trace, &[]).unwrap();
        let found = records(&out);
        let Some(Record::Log {
            kind: 12, content, ..
        }) = found.last()
        else {
            panic!("no message at the end: {found:?}");
        };
        assert!(content.contains("5 lost"), "{content}");
        let depth = found.iter().try_fold(0_u32, |depth, record| match record {
            Record::Call { .. } => Some(depth + 1),
            Record::Return(_) => depth.checked_sub(1),
            _ => Some(depth),
        });
        assert!(depth.is_some(), "{found:?}");
        let paths = found
            .iter()
            .filter(|record| matches!(record, Record::Path(_)));
        assert!(paths.count() <= 2);
    }
}

#[test]
fn several_recordings_are_refused_by_name_and_none_is_an_error() {
    let temporary = TempDir::new().unwrap();
    let (traces, out) = (
        temporary.path().join("traces"),
        temporary.path().join("out"),
    );
    write_trace(&traces.join("one"), 1, &demo(), 5, |_| false);
    write_trace(&traces.join("two"), 2, &demo(), 5, |_| false);
    let refused = write_directory(&out, &traces, &[]).unwrap_err();
    let text = format!("{refused:#}");
    assert!(text.contains("one") && text.contains("two"), "{text}");
    assert!(!out.join("trace.json").exists());
    // Each of them can be written, but not to the same directory.
    write_directory(&out, &traces.join("one"), &[]).unwrap();
    let refused = write_directory(&out, &traces.join("two"), &[]).unwrap_err();
    assert!(
        format!("{refused:#}").contains("has the recording"),
        "{refused:#}"
    );
    assert_eq!(records(&out), demo());

    let empty = temporary.path().join("empty");
    write_trace(&empty, 3, &[], 5, |_| true);
    let other = temporary.path().join("other");
    let none = write_directory(&other, &empty, &[]).unwrap_err();
    assert!(
        format!("{none:#}").contains("no CodeTracer recording"),
        "{none:#}"
    );
    assert!(!other.exists());
}

#[test]
fn a_limit_counts_the_lines_of_a_recording_that_are_shown() {
    let temporary = TempDir::new().unwrap();
    let (trace, out) = (temporary.path().join("trace"), temporary.path().join("log"));
    write_trace(&trace, 1, &demo(), 5, |_| false);
    let lines = |options: &[&str]| -> Vec<String> {
        let words = ["--sink", "log", "-o", out.to_str().unwrap()];
        view(&[&words[..], options].concat(), &trace).unwrap();
        let text = fs::read_to_string(&out).unwrap();
        text.lines().map(str::to_owned).collect()
    };
    let all = lines(&[]);
    assert!(all.len() < demo().len(), "definitions are not shown");
    let shown = |line: &str| line.split_once(" main.small ").unwrap().1.to_owned();
    let first: Vec<_> = all.iter().take(3).map(|line| shown(line)).collect();
    assert_eq!(
        first,
        ["-> <toplevel>", "    step main.small:1", "    value n=3"]
    );
    for limit in [1, 2, 10, all.len()] {
        assert_eq!(lines(&["--limit", &limit.to_string()]), all[..limit]);
    }
}

#[test]
fn calls_are_nested_spans_in_trace_event_format() {
    let temporary = TempDir::new().unwrap();
    let (trace, out) = (
        temporary.path().join("trace"),
        temporary.path().join("out.json"),
    );
    write_trace(&trace, 1, &demo(), 5, |_| false);
    view(&["--sink", "tef", "-o", out.to_str().unwrap()], &trace).unwrap();
    let whole: Value = serde_json::from_slice(&fs::read(out).unwrap()).unwrap();
    let events = whole["traceEvents"].as_array().unwrap();
    let with = |phases: &[&str]| {
        let has_phase = |event: &&Value| phases.contains(&event["ph"].as_str().unwrap());
        events.iter().filter(has_phase).collect::<Vec<_>>()
    };
    let spans = with(&["X"]);
    let described: Vec<_> = spans
        .iter()
        .map(|span| (span["name"].clone(), span["args"].clone()))
        .collect();
    let span = |name: &str, args: Value| (json!(name), args);
    assert_eq!(
        described,
        [
            span("<toplevel>", json!({"return": null})),
            span("sum", json!({"xs": [0, 1], "return": 1})),
            span("sum", json!({"xs": [1, 2], "return": 3})),
        ]
    );
    let [outer, first, second] = [0, 1, 2].map(|place| {
        let time = |name: &str| spans[place][name].as_f64().unwrap();
        (time("ts"), time("ts") + time("dur"))
    });
    assert!(outer.0 <= first.0 && first.1 <= second.0 && second.1 <= outer.1);
    let names: Vec<_> = with(&["M"])
        .iter()
        .map(|event| event["args"]["name"].clone())
        .collect();
    assert_eq!(names, [json!("main.small"), json!("recording")]);
    let logs = with(&["i"])
        .into_iter()
        .filter(|event| event["name"] == "ct:log");
    let contents: Vec<_> = logs.map(|event| event["args"]["content"].clone()).collect();
    assert_eq!(contents, ["computing\n", "done\n", "boom at line 4"]);
}
