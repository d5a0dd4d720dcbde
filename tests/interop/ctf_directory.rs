//! `ctf::Trace` and `ctf::TraceWriter` beside Babeltrace: the same events in the same order, and
//! written traces that are read without a message.

use std::path::Path;

use ctf::directory::StreamHandle;
use ctf::model::{EnvironmentValue, LogLevel, Uuid};
use ctf::write::{EventDeclaration, EventRecord, FieldType, TraceClock, TraceDeclaration, Width};
use ctf::{Event, Timestamp, Trace, TraceWriter};
use tests::babeltrace::Babeltrace;
use tests::lab::Lab;
use tests::traces;

use super::ctf_traces;

/// Nanoseconds of a second.
const SECOND: i64 = 1_000_000_000;

/// Seconds of a day.
const DAY: i64 = 86_400;

/// Returns the time as Babeltrace prints it, without the date: the time of day, or negative seconds
/// before 1970.
fn printed_time(event: &Event) -> String {
    let time = event.time.unwrap();
    if time < 0 {
        let time = time.unsigned_abs();
        let second = SECOND.unsigned_abs();
        return format!("-{}.{:09}", time / second, time % second);
    }
    let (seconds, nanoseconds) = (time / SECOND % DAY, time % SECOND);
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    format!(
        "{hours:02}:{minutes:02}:{:02}.{nanoseconds:09}",
        seconds % 60
    )
}

fn events(directory: &Path) -> Vec<Event> {
    let trace = Trace::open(directory).unwrap();
    trace.events().map(Result::unwrap).collect()
}

/// Compares times and names of all events with lines that Babeltrace has printed.
fn assert_same_order(what: &str, events: &[Event], lines: &[&str]) {
    for (number, (event, line)) in events.iter().zip(lines).enumerate() {
        let (time, name) = (printed_time(event), format!(" {}: ", event.name));
        let is_same = line.contains(&format!("{time}] ")) && line.contains(&name);
        assert!(is_same, "{what}, event {number}: {time} {event}\n{line}");
    }
    assert_eq!(events.len(), lines.len(), "{what}");
}

#[test]
fn events_of_several_streams_are_read_as_babeltrace2_prints_them() {
    let lab = Lab::new();
    let mut directories = vec![
        traces::with_equal_timestamps(&lab),
        traces::with_idle_streams(&lab),
        traces::with_numbered_events(&lab, "numbered", 50, 1000),
    ];
    // Two traces below one directory, whose events have the same times.
    directories.push(lab.directory("parent"));
    for name in ["parent/a", "parent/b"] {
        let mut trace = TraceWriter::create(lab.path().join(name)).unwrap();
        let tick = trace.event_class(name, &[]).unwrap();
        for time in 0..20 {
            trace.write(&tick, Timestamp(time), &[]).unwrap();
        }
        trace.finish().unwrap();
    }
    for directory in directories {
        let name = directory.display().to_string();
        let lines = Babeltrace::Two.read(&directory).expect_success();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let events = events(&directory);
        assert_same_order(&name, &events, &lines);
        for (event, line) in events.iter().zip(&lines) {
            assert!(
                line.ends_with(&format!(" {event}")),
                "{name}: {event}\n{line}"
            );
        }
    }
}

#[test]
fn a_recording_of_lttng_is_read_in_the_order_of_babeltrace2() {
    let lab = Lab::new();
    let directory = traces::recorded_by_lttng(&lab, "--buffers-pid", 200);
    let lines = Babeltrace::Two.read(&directory).expect_success();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let events = events(&directory);
    assert!(events.len() >= 200);
    assert_same_order("lttng", &events, &lines);
}

#[test]
fn every_valid_trace_of_the_collection_is_read_in_the_expected_order() {
    for case in ctf_traces::valid_cases() {
        let name = ctf_traces::name(&case);
        let expected = String::from_utf8_lossy(&ctf_traces::expected(&case).unwrap()).into_owned();
        // A text may hold line breaks.
        let lines: Vec<&str> = expected
            .lines()
            .filter(|line| line.starts_with('['))
            .collect();
        let events = events(&case.join("trace"));
        if events.iter().all(|event| event.time.is_some()) {
            assert_same_order(name, &events, &lines);
        } else {
            assert_eq!(events.len(), expected.lines().count(), "{name}");
        }
    }
}

#[test]
fn babeltrace2_reads_a_written_directory_without_a_message() {
    let lab = Lab::new();
    let directory = lab.path().join("written");
    let declaration = TraceDeclaration {
        environment: vec![("hostname".into(), EnvironmentValue::Text("host".into()))],
        clock: TraceClock {
            uuid: None,
            offset_seconds: 1_767_225_600,
            offset_nanoseconds: 7,
        },
        ..TraceDeclaration::new(Uuid(*b"0123456789abcdef"), "writer")
    };
    let mut trace = TraceWriter::create_with(&directory, &declaration).unwrap();
    let number = ("number", FieldType::Unsigned(Width::Bits32));
    let first = trace
        .event_class("first", &[number.clone(), ("text", FieldType::Text)])
        .unwrap();
    let streams = [StreamHandle::FIRST, trace.add_stream(), trace.add_stream()];
    // Some packets are longer than usual, and one stream stays empty.
    for number in 0..300_u32 {
        let text = "x".repeat(if number % 50 == 0 { 200_000 } else { 500 });
        let event = EventRecord {
            time: Timestamp(u64::from(number) * 1000),
            process: 1,
            thread: 2,
            values: &[number.into(), text.as_str().into()],
        };
        trace
            .write_to(streams[number as usize % 2], &first, &event)
            .unwrap();
    }
    trace.flush().unwrap();
    let later = EventDeclaration {
        log_level: Some(LogLevel(6)),
        fields: vec![("number".into(), FieldType::Signed(Width::Bits8))],
        ..EventDeclaration::new(70_000, "later")
    };
    let later = trace.declare(&later).unwrap();
    trace
        .write(&later, Timestamp(300_000), &[(-1_i8).into()])
        .unwrap();
    trace.finish().unwrap();

    let ended = Babeltrace::Two.read(&directory);
    assert_eq!(ended.stderr, [""; 0]);
    let lines = ended.expect_success();
    let read = events(&directory);
    assert_eq!((lines.len(), read.len()), (301, 301));
    for (event, line) in read.iter().zip(&lines) {
        assert!(line.ends_with(&format!(" {event}")), "{event}\n{line}");
    }
}

#[test]
fn babeltrace2_reads_the_trace_of_the_readme() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/ctf/tests/data/requests");
    let ended = Babeltrace::Two.read(&directory);
    assert_eq!(ended.stderr, [""; 0]);
    assert_eq!(ended.expect_success().len(), 4);
}
