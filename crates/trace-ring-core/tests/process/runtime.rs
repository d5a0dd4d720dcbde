//! What one producer writes, and what other processes may do to it while it runs.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use trace_ring_core::Severity;
use trace_ring_core::format::*;
use trace_ring_core::replace_filter;

use crate::producer::Producer;
use crate::reader::{Event, read_classes, read_events};

#[test]
fn every_kind_of_value_is_read_back() {
    let mut producer = Producer::start("kinds", &[("TRACE_RING_SIZE", "4M")]);
    producer.finish();
    let process = producer.read();
    let [kinds, empty, long] = &process.rings[0].events[..] else {
        panic!("three events")
    };
    let values: Vec<&str> = kinds
        .fields
        .iter()
        .map(|(_, value)| value.as_str())
        .collect();
    let expected = [
        "1", "2", "3", "4", "-1", "-2", "-3", "-4", "0.5", "0.25", "true", "text", "[1, 2]",
        "owned", "7",
    ];
    assert_eq!(values, expected);
    assert_eq!((empty.name.as_str(), empty.fields.len()), ("empty", 0));
    assert_eq!(long.field("text"), "ä".repeat(32_767));
    let class = process
        .classes
        .values()
        .find(|class| class.name == "empty")
        .unwrap();
    assert_eq!(
        (class.severity, class.target.as_str()),
        (Severity::Error, "app::db")
    );
    assert!(class.file.ends_with("scenarios.rs") && class.line > 0);
}

#[test]
fn times_from_the_counter_are_those_of_the_clock() {
    const MAX_ERROR: u64 = 1_000;
    let variables = [
        ("TRACE_RING_CLOCK", "counter"),
        ("TRACE_RING_FILTER", "debug"),
        ("TRACE_RING_SIZE", "16M"),
    ];
    let mut producer = Producer::start("times", &variables);
    producer.finish();
    let process = producer.read();
    assert_eq!((process.rings.len(), process.lost()), (2, 0));
    // The reader has compared each event with the one before it in its ring.
    let mut events: Vec<&Event> = process.rings.iter().flat_map(|ring| &ring.events).collect();
    events.sort_by_key(|event| event.number("before"));
    for pair in events.windows(2) {
        let (before, after) = (pair[0].number("before"), pair[1].number("before"));
        let time = pair[0].timestamp;
        assert!(
            (before - MAX_ERROR..=after + MAX_ERROR).contains(&time),
            "{before} {time} {after}"
        );
    }
}

#[test]
fn a_call_site_in_a_generic_function_has_a_class_for_each_type() {
    let mut producer = Producer::start("generic", &[]);
    producer.finish();
    let process = producer.read();
    assert_eq!(process.classes.len(), 3);
    let values: Vec<&str> = process.rings[0]
        .events
        .iter()
        .map(|event| event.field("value"))
        .collect();
    assert_eq!(values[..6], ["0", "-100", "text", "1", "-99", "text"]);
}

#[test]
fn meta_grows_with_the_number_of_event_classes() {
    let mut producer = Producer::start("classes", &[("COUNT", "2000")]);
    producer.finish();
    let process = producer.read();
    assert_eq!((process.classes.len(), process.lost()), (2000, 0));
    for (n, event) in (0..).zip(&process.rings[0].events) {
        assert_eq!(event.number("n"), n);
        assert!(event.name.starts_with(&format!("event {n} ")));
    }
}

#[test]
fn files_are_private_and_a_process_with_one_thread_takes_little_memory() {
    let mut producer = Producer::start("emit", &[("COUNT", "1")]);
    producer.wait_for("written");
    let directory = producer.own_directory();
    assert_eq!(fs::metadata(&directory).unwrap().mode() & 0o777, 0o700);
    let mut size = 0;
    for entry in fs::read_dir(&directory).unwrap() {
        let metadata = entry.unwrap().metadata().unwrap();
        assert_eq!(metadata.mode() & 0o777, 0o600);
        size += metadata.len();
    }
    assert!(size < 5 << 18, "{size} bytes");
}

#[test]
fn debug_events_have_a_ring_of_their_own_and_cannot_push_out_an_error() {
    let variables = [("TRACE_RING", "overwrite"), ("TRACE_RING_FILTER", "trace")];
    let mut producer = Producer::start("debug-noise", &variables);
    producer.wait_for("before");
    assert_eq!(
        producer.read().rings.len(),
        1,
        "no ring before the first such event"
    );
    producer.finish();
    let process = producer.read();
    let normal = process.rings_of(SeverityClass::Normal);
    assert_eq!(normal[0].events[0].name, "failure");
    let debug = process.rings_of(SeverityClass::Debug);
    assert_eq!(debug[0].events.last().unwrap().number("n"), 99_999);
    assert_eq!(
        debug[0].events_before + debug[0].events.len() as u64,
        100_000
    );
}

#[test]
fn a_nested_event_of_a_signal_handler_is_counted_and_the_outer_one_is_whole() {
    let mut producer = Producer::start("nested", &[]);
    producer.finish();
    let process = producer.read();
    let ring = &process.rings[0];
    let names: Vec<&str> = ring
        .events
        .iter()
        .map(|event| event.name.as_str())
        .collect();
    assert_eq!(
        names,
        [
            "outer",
            "outer",
            "outer",
            "outer",
            "outer",
            "in the handler"
        ]
    );
    assert_eq!(
        ring.control.lost,
        Lost {
            full: 0,
            big: 0,
            nested: 5
        }
    );
}

#[test]
fn an_event_that_is_too_big_is_counted() {
    let mut producer = Producer::start("too-big", &[]);
    producer.finish();
    let process = producer.read();
    assert_eq!(process.event_count(), 2);
    assert_eq!(
        process.rings[0].control.lost,
        Lost {
            full: 0,
            big: 2,
            nested: 0
        }
    );
}

#[test]
fn a_full_ring_counts_every_event_that_it_discards() {
    let mut producer = Producer::start("emit", &[("COUNT", "100000"), ("TRACE_RING_SIZE", "64K")]);
    producer.wait_for("written");
    let process = producer.read();
    assert!(process.lost() > 0);
    assert_eq!(process.event_count() + process.lost(), 100_000);
}

#[test]
fn nothing_is_made_when_tracing_is_off() {
    let mut producer = Producer::start("emit", &[("COUNT", "10"), ("TRACE_RING", "off")]);
    assert_eq!(producer.finish(), "");
    assert!(!fs::exists(producer.run_directory()).unwrap());
}

#[test]
fn nothing_is_written_when_the_filter_is_off() {
    let mut producer = Producer::start("emit", &[("COUNT", "10"), ("TRACE_RING_FILTER", "off")]);
    assert_eq!(producer.finish(), "");
    let process = producer.read();
    assert!(process.rings.is_empty() && process.classes.is_empty() && process.lost() == 0);
}

#[test]
fn a_program_without_a_run_directory_runs_on_after_one_line_on_stderr() {
    let mut producer = Producer::start(
        "emit",
        &[("COUNT", "10"), ("TRACE_RING_DIR", "/dev/null/ring")],
    );
    let stderr = producer.finish();
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.starts_with("trace-ring: cannot make a directory in /dev/null/ring: "));
}

#[test]
fn a_ring_that_does_not_fit_costs_its_events_and_one_line_on_stderr() {
    // A limit of the size of files stands for a full file system: `meta` fits, a ring does not.
    let program = std::env::current_exe().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let output = std::process::Command::new("bash")
        .args([
            "-c",
            "trap '' XFSZ; ulimit -f 512; exec \"$0\" scenarios::run --exact --ignored",
        ])
        .arg(program)
        .env("SCENARIO", "emit")
        .env("COUNT", "10")
        .env("TRACE_RING_DIR", directory.path())
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(
        stderr.starts_with("trace-ring: cannot make a ring: "),
        "{stderr}"
    );
    let [path] = &crate::reader::list_directories(directory.path())[..] else {
        panic!("one")
    };
    let process = crate::reader::read_process(path);
    assert_eq!((process.rings.len(), process.meta.lost_no_ring), (0, 10));
    let hidden = fs::read_dir(path).unwrap().filter(|entry| {
        entry
            .as_ref()
            .unwrap()
            .file_name()
            .to_str()
            .unwrap()
            .starts_with('.')
    });
    assert_eq!(hidden.count(), 0, "nothing unfinished is left");
}

/// Replaces the filter of a process, as the page on the format says.
fn change_filter(directory: &Path, directives: &str) {
    let path = directory.join(CONTROL_FILE);
    let control = Control::decode(&fs::read(&path).unwrap()).unwrap();
    let file = fs::OpenOptions::new().read(true).write(true).open(path);
    replace_filter(&file.unwrap(), control.generation, directives).unwrap();
}

#[test]
fn another_process_changes_the_filter_while_the_program_runs() {
    let mut producer = Producer::start("filter", &[]);
    producer.wait_for("off");
    let directory = producer.own_directory();
    change_filter(&directory, "info,app::db=debug");
    producer.wait_for("debug");
    change_filter(&directory, "this is = no filter");
    change_filter(&directory, "off");
    producer.finish();
}

/// Takes what is committed and says so in the file, as a drainer does.
fn drain(directory: &Path, position: &mut u64, events: &mut Vec<Event>) {
    let file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(directory.join("r0"))
        .unwrap();
    let mut head = vec![0; RING_TABLE_OFFSET];
    file.read_exact_at(&mut head, 0).unwrap();
    let header = RingHeader::decode(&head).unwrap();
    let commit = RingControl::decode(&head).unwrap().commit;
    let classes = read_classes(&fs::read(directory.join(META_FILE)).unwrap());
    events.extend(read_events(
        &header,
        *position,
        commit,
        &classes,
        |position, length| {
            let mut bytes = vec![0; length];
            file.read_exact_at(&mut bytes, header.offset_of(position))
                .unwrap();
            bytes
        },
    ));
    *position = commit;
    file.write_all_at(&commit.to_le_bytes(), RING_CONSUMED_OFFSET as u64)
        .unwrap();
}

#[test]
fn a_drainer_beside_a_running_program_sees_each_event_once_or_counted_as_lost() {
    const STEPS: u64 = 30;
    const COUNT: u64 = 10_000;
    let variables = [
        ("STEPS", "30"),
        ("COUNT", "10000"),
        ("TRACE_RING_SIZE", "64K"),
    ];
    let mut producer = Producer::start("emit-in-steps", &variables);
    producer.wait_for("step");
    let directory = producer.own_directory();
    let (mut position, mut events) = (0, Vec::new());
    let mut seen = 0;
    for _ in 1..STEPS {
        drain(&directory, &mut position, &mut events);
        assert!(events.len() > seen, "there is room again after each turn");
        seen = events.len();
        producer.go_on();
        // While the program writes.
        drain(&directory, &mut position, &mut events);
        producer.wait_for("step");
    }
    producer.finish();
    drain(&directory, &mut position, &mut events);
    let control = RingControl::decode(&fs::read(directory.join("r0")).unwrap()).unwrap();
    assert_eq!(events.len() as u64 + control.lost.total(), STEPS * COUNT);
    assert!(events.is_sorted_by(|first, second| first.number("n") < second.number("n")));
}
