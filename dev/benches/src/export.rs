//! Exports of large traces from the page cache: the sinks of `test-live` that other programs read,
//! each on one thread and on all, beside the fastest output of `babeltrace2` that has the fields.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::process::{build_with, children_cpu, peak_memory};
use crate::viewer::lttng::{self, Form, Kind, Shape};
use crate::viewer::trace;

/// Number of events of a trace in LTTng's format.
const EVENTS: u64 = 1_000_000;
/// Minimum size of the trace with all kinds of fields, in bytes.
const TRACE_BYTES: u64 = 50_000_000;
/// Number of runs for each row, of which the one with the median of the processor time counts.
const RUNS: usize = 5;
/// The exports: sink, and the name of the output.
const SINKS: [(&str, &str); 5] = [
    ("perfetto", "trace.pftrace"),
    ("parquet", "tables"),
    ("tef", "trace.json"),
    ("folded", "stacks.txt"),
    ("json", "events.jsonl"),
];

/// Result of one run.
struct Run {
    cpu: Duration,
    elapsed: Duration,
    /// Peak resident memory, in KiB.
    memory: u64,
    /// Size of the output, in bytes.
    size: u64,
}

pub(crate) fn run() {
    let lab = tempfile::tempdir().unwrap();
    let shape = Shape {
        form: Form::Tsdl,
        kind: Kind::Strings,
        streams: 4,
        packet: 256 << 10,
    };
    let (fields, texts) = (lab.path().join("fields"), lab.path().join("texts"));
    let traces = [
        (
            "all kinds of fields",
            trace::write(&fields, TRACE_BYTES),
            &fields,
        ),
        (
            "text and contexts",
            lttng::write(&texts, shape, EVENTS),
            &texts,
        ),
    ];
    let test_live = build_with("test-live", &["--features=test-live/parquet"]);
    println!(
        "{:<22}{:<14}{:>14}{:>14}{:>12}{:>8}",
        "trace", "output", "events/CPU s", "events/s", "bytes/event", "MB"
    );
    for (name, events, trace) in traces {
        let events = events.unwrap();
        let babeltrace = |output: &Path| {
            let mut command = Command::new(peers::program("babeltrace2"));
            command.args(["--clock-gmt", "--clock-date", "--output"]);
            command.arg(output).arg(trace);
            command
        };
        let output = lab.path().join("text.txt");
        print(name, "babeltrace2", events, || {
            measure(babeltrace(&output), &output)
        });
        for (sink, file) in SINKS {
            let output = lab.path().join(file);
            let command = |threads: &[&str]| {
                let mut command = Command::new(&test_live);
                command.args(["--quiet", "--sink", sink, "--output"]);
                command.arg(&output).args(threads).arg(trace);
                command
            };
            let alone = || measure(command(&["--threads", "1"]), &output);
            print(name, sink, events, alone);
            let all = || measure(command(&[]), &output);
            print(name, &format!("{sink}, all"), events, all);
        }
    }
    println!(
        "events per second of CPU in user and kernel mode, and per second that passes; size of the output; peak memory. \
         babeltrace2 has one thread and writes text"
    );
}

fn print(trace: &str, output: &str, events: u64, mut run: impl FnMut() -> Run) {
    let mut runs: Vec<_> = (0..RUNS).map(|_| run()).collect();
    runs.sort_by_key(|run| run.cpu);
    let run = &runs[RUNS / 2];
    let rate = |time: Duration| events as f64 / time.as_secs_f64();
    println!(
        "{trace:<22}{output:<14}{:>14.0}{:>14.0}{:>12.1}{:>8}",
        rate(run.cpu),
        rate(run.elapsed),
        run.size as f64 / events as f64,
        run.memory / 1024,
    );
}

/// Runs a command until it ends, and removes its output.
fn measure(mut command: Command, output: &Path) -> Run {
    let before = children_cpu();
    let begin = Instant::now();
    let mut child = command.stdout(Stdio::null()).spawn().unwrap();
    let mut memory = 0;
    let ended = loop {
        // Asked again and again: the figure is gone with the process.
        memory = memory.max(peak_memory(child.id()).unwrap_or(0));
        if let Some(ended) = child.try_wait().unwrap() {
            break ended;
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let (cpu, elapsed) = (children_cpu() - before, begin.elapsed());
    assert!(ended.success(), "{command:?}: {ended}");
    let size = size(output);
    let is_directory = output.is_dir();
    let removed = match is_directory {
        true => fs::remove_dir_all(output),
        false => fs::remove_file(output),
    };
    removed.unwrap();
    Run {
        cpu,
        elapsed,
        memory,
        size,
    }
}

/// Size of a file, or of all files below a directory, in bytes.
fn size(path: &Path) -> u64 {
    let mut open = vec![PathBuf::from(path)];
    let mut bytes = 0;
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(
                fs::read_dir(path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        } else {
            bytes += fs::metadata(path).unwrap().len();
        }
    }
    bytes
}
