//! `test-live spans` on traces of LTTng: what it shows is what the events say that `--sink json`
//! writes of the same trace.

use std::collections::HashMap;
use std::path::Path;

use rustix::process::Signal;
use serde_json::Value;
use tests::lab::Lab;
use tests::lttng::SessionDaemon;
use tests::process::Process;
use tests::relay::Relay;
use tests::viewer::hostname;
use tests::{test_live, traced_app, wait_until};

/// Callbacks of the traced application.
const CALLBACKS: u64 = 50;

/// The durations of spans by name, in nanoseconds.
type Durations = HashMap<String, Vec<u64>>;

fn span_rows(lab: &Lab, options: &[&str], directory: &Path) -> Vec<Value> {
    let lines = test_live::read(lab, options, directory).expect_success();
    serde_json::from_str(&lines.join("\n")).unwrap()
}

fn json_lines(lab: &Lab, options: &[&str], directory: &Path) -> Vec<Value> {
    let lines = test_live::read(lab, options, directory).expect_success();
    let parse = |line: &String| serde_json::from_str(line).unwrap();
    lines.iter().map(parse).collect()
}

/// Pairs begins and ends of threads by their names. `edge` says thread, name of the span and
/// whether an event is a begin.
fn durations(
    events: &[Value],
    mut edge: impl FnMut(&Value) -> Option<(u64, String, bool)>,
) -> Durations {
    let mut open: HashMap<u64, Vec<(String, u64)>> = HashMap::new();
    let mut found = Durations::new();
    for event in events {
        let Some((thread, name, is_begin)) = edge(event) else {
            continue;
        };
        let time = event["time"].as_u64().unwrap();
        let stack = open.entry(thread).or_default();
        if is_begin {
            stack.push((name, time));
        } else if let Some(place) = stack.iter().rposition(|(begun, _)| *begun == name) {
            let (name, begin) = stack[place].clone();
            stack.truncate(place);
            found.entry(name).or_default().push(time - begin);
        }
    }
    found
}

/// Checks rows against the durations that are known.
fn assert_rows(rows: &[Value], mut durations: Durations) {
    for row in rows {
        let name = row["name"].as_str().unwrap();
        let count = row["count"].as_u64().unwrap();
        let Some(mut exact) = durations.remove(name) else {
            assert_eq!(count, 0, "{row}");
            continue;
        };
        exact.sort_unstable();
        assert_eq!(count, exact.len() as u64, "{row}");
        assert_eq!(row["total_ns"], exact.iter().sum::<u64>(), "{row}");
        assert_eq!(row["max_ns"], exact[exact.len() - 1], "{row}");
        assert!(row["self_ns"].as_u64() <= row["total_ns"].as_u64(), "{row}");
        for (member, percent) in [("p50_ns", 50), ("p90_ns", 90), ("p99_ns", 99)] {
            let exact = exact[(exact.len() * percent).div_ceil(100) - 1];
            let shown = row[member].as_u64().unwrap();
            assert!(
                shown.abs_diff(exact) <= exact / 200,
                "{member} of {row}: {exact}"
            );
        }
    }
    assert!(durations.is_empty(), "not shown: {:?}", durations.keys());
}

/// Starts to record the callbacks of a node in a live session `ros`.
fn start_session<'l>(lab: &'l Lab, relay: &Relay) -> SessionDaemon<'l> {
    let daemon = SessionDaemon::start(lab);
    daemon.create_session("ros", relay, Some(100_000));
    daemon.lttng(&["enable-event", "-u", "-s", "ros", "ros2:*"]);
    for context in ["vpid", "vtid", "procname"] {
        daemon.lttng(&["add-context", "-u", "-s", "ros", "-t", context]);
    }
    daemon.lttng(&["start", "ros"]);
    daemon
}

fn run_node(lab: &Lab) {
    let node = lab.copy(traced_app::ros2_node(), "node");
    let mut command = lab.traced_command(node);
    let node = Process::start(command.args([&CALLBACKS.to_string(), "1000"]));
    node.wait().expect_success();
}

/// Returns the count in the last row of a name in tables.
fn count(tables: &[String], name: &str) -> Option<u64> {
    let row = tables.iter().rev().find(|line| line.ends_with(name))?;
    row.split_whitespace().next()?.parse().ok()
}

#[test]
fn spans_of_lttng_are_shown_while_they_are_recorded_and_from_the_directory() {
    let (lab, relay) = Relay::start_in_new_lab();
    let daemon = start_session(&lab, &relay);
    let url = test_live::url(relay.live, &hostname(), "ros");
    let words = [
        "spans",
        "--session-not-found",
        "continue",
        "--seek",
        "beginning",
    ];
    let start = |more: &[&str]| test_live::start(&lab, &[&words, more, &[&*url]].concat());
    let [until_end, until_signal] = [(); 2].map(|()| start(&["-d", "0.1"]));
    test_live::wait_until_attached(&relay, "ros", 2);
    run_node(&lab);
    for spans in [&until_end, &until_signal] {
        wait_until("a table has all callbacks", || {
            count(&spans.stdout(), "ros2:callback") == Some(CALLBACKS)
        });
    }
    until_signal.signal(Signal::INT);
    let tables = until_signal.wait().expect_success();
    assert_eq!(count(&tables, "ros2:callback"), Some(CALLBACKS));
    daemon.lttng(&["destroy", "ros"]);
    let tables = until_end.wait().expect_success();
    assert_eq!(count(&tables, "ros2:callback"), Some(CALLBACKS));

    let recorded = relay.output.as_path();
    let events = json_lines(&lab, &["--sink", "json"], recorded);
    let durations = durations(&events, |event| {
        let thread = event["context"]["vtid"].as_u64()?;
        match event["event"].as_str()? {
            "ros2:callback_start" => Some((thread, "ros2:callback".to_owned(), true)),
            "ros2:callback_end" => Some((thread, "ros2:callback".to_owned(), false)),
            _ => None,
        }
    });
    assert_eq!(durations["ros2:callback"].len() as u64, CALLBACKS);
    let by_process = ["spans", "--json", "--by", "process"];
    let rows = span_rows(&lab, &by_process, recorded);
    assert_eq!(rows[0]["process"], "node");
    assert_rows(&rows, durations);
}

#[test]
fn spans_without_a_thread_are_left_out_and_a_warning_says_how_to_record_it() {
    let (lab, relay) = Relay::start_in_new_lab();
    let daemon = SessionDaemon::start(&lab);
    daemon.create_session("plain", &relay, None);
    daemon.lttng(&["enable-event", "-u", "-s", "plain", "ros2:*"]);
    daemon.lttng(&["start", "plain"]);
    run_node(&lab);
    daemon.lttng(&["destroy", "plain"]);
    let ended = test_live::read(&lab, &["spans", "--json"], &relay.output);
    let errors = ended.stderr.join("\n");
    assert!(errors.contains("lttng add-context"), "{errors}");
    assert_eq!(ended.expect_success(), ["[]"]);
}

#[test]
fn system_calls_of_a_kernel_are_those_of_the_threads_that_its_processors_run() {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/real-traces");
    for name in ["many-threads", "uneven-streams"] {
        let trace = beside.join(name);
        if !trace.exists() {
            println!("{} does not exist: nothing to read", trace.display());
            return;
        }
        let lab = Lab::new();
        let select = "$name == \"syscall_*\" || $name == \"sched_switch\"";
        let events = json_lines(&lab, &["--sink", "json", "--filter", select], &trace);
        let mut running = HashMap::new();
        let durations = durations(&events, |event| {
            let cpu = event["packet"]["cpu_id"].as_u64()?;
            let class = event["event"].as_str()?;
            if class == "sched_switch" {
                running.insert(cpu, event["fields"]["next_tid"].as_u64()?);
                return None;
            }
            let thread = *running.get(&cpu).filter(|thread| **thread > 0)?;
            let begin = class.strip_prefix("syscall_entry_");
            let call = begin.or(class.strip_prefix("syscall_exit_"))?;
            Some((thread, format!("sys_{call}"), begin.is_some()))
        });
        assert!(durations.len() > 20, "{:?}", durations.keys());
        let mut rows = span_rows(&lab, &["spans", "--json"], &trace);
        rows.retain(|row| row["name"].as_str().unwrap().starts_with("sys_"));
        assert_rows(&rows, durations);
    }
}
