//! Reading a large trace from the page cache: `babeltrace2` and `test-live`, in turns.

pub(crate) mod trace;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::process::{build, children_cpu, peak_memory};

/// Minimum size of the trace, in bytes.
const TRACE_BYTES: u64 = 200_000_000;
/// Number of runs per viewer. The median is printed.
const TURNS: usize = 5;

/// One row of the table: an operation on the trace.
struct Row {
    name: &'static str,
    theirs: &'static [&'static str],
    ours: &'static [&'static str],
}

const ROWS: &[Row] = &[
    Row {
        name: "decode and order only",
        theirs: &["-o", "dummy"],
        ours: &["--sink", "dummy"],
    },
    Row {
        name: "text to /dev/null",
        theirs: &["--clock-gmt", "--clock-date"],
        ours: &["--clock-gmt", "--clock-date"],
    },
];

pub(crate) fn run() {
    let lab = tempfile::tempdir().unwrap();
    // `benches viewer DIRECTORY` leaves the trace there, for a profiler.
    let kept = std::env::args_os().nth(2).map(PathBuf::from);
    let directory = kept.unwrap_or_else(|| lab.path().join("trace"));
    eprintln!("writing a trace of {} MB", TRACE_BYTES / 1_000_000);
    let events = trace::write(&directory, TRACE_BYTES).unwrap();
    let test_live = build("test-live");
    println!(
        "{events} events in {} MB, {TURNS} turns",
        size(&directory) / 1_000_000
    );
    println!(
        "{:<24}{:>14}{:>14}{:>8}{:>10}{:>12}{:>12}",
        "", "babeltrace2/s", "test-live/s", "ratio", "spread", "theirs MB", "ours MB"
    );
    for row in ROWS {
        let (mut theirs, mut ours) = (Vec::new(), Vec::new());
        for _ in 0..TURNS {
            theirs.push(measure(Path::new("babeltrace2"), row.theirs, &directory));
            ours.push(measure(&test_live, row.ours, &directory));
        }
        let (their, our) = (median(&mut theirs), median(&mut ours));
        let rate = |run: &Run| events as f64 / run.cpu.as_secs_f64();
        let spread = |runs: &[Run]| {
            let (first, last) = (runs.first().unwrap(), runs.last().unwrap());
            (last.cpu.as_secs_f64() / first.cpu.as_secs_f64() - 1.0) * 100.0
        };
        println!(
            "{:<24}{:>14.0}{:>14.0}{:>7.1}x{:>9.0}%{:>12}{:>12}",
            row.name,
            rate(&their),
            rate(&our),
            rate(&our) / rate(&their),
            spread(&theirs).max(spread(&ours)),
            their.memory / 1024,
            our.memory / 1024,
        );
    }
    println!(
        "events per second of CPU in user and kernel mode; the spread is that of the slowest turn over the fastest"
    );
}

/// Result of one run.
#[derive(Clone, Copy)]
struct Run {
    cpu: Duration,
    /// Peak resident memory, in KiB.
    memory: u64,
}

fn median(runs: &mut [Run]) -> Run {
    runs.sort_by_key(|run| run.cpu);
    runs[runs.len() / 2]
}

fn measure(program: &Path, arguments: &[&str], directory: &Path) -> Run {
    let before = children_cpu();
    let mut child = Command::new(program)
        .args(arguments)
        .arg(directory)
        .stdout(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
    let (mut memory, begin) = (0, Instant::now());
    let ended = loop {
        memory = memory.max(peak_memory(child.id()).unwrap_or(0));
        if let Some(ended) = child.try_wait().unwrap() {
            break ended;
        }
        assert!(
            begin.elapsed() < Duration::from_secs(600),
            "the viewer does not end"
        );
        std::thread::sleep(Duration::from_millis(10));
    };
    assert!(ended.success(), "{}: {ended}", program.display());
    Run {
        cpu: children_cpu() - before,
        memory,
    }
}

/// Size of all files of a directory, in bytes.
pub(crate) fn size(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).unwrap();
    entries
        .map(|entry| entry.unwrap().metadata().unwrap().len())
        .sum()
}
