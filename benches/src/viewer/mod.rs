//! Reading large traces from the page cache: `babeltrace2` and `test-live`, in turns.

mod lttng;
pub(crate) mod trace;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use lttng::{Kind, Shape};

use crate::process::{build, children_cpu, peak_memory};

/// Number of events of a trace in LTTng's format.
const EVENTS: u64 = 2_000_000;
/// Minimum size of the trace with all kinds of fields, in bytes.
const TRACE_BYTES: u64 = 100_000_000;
/// Number of pairs of runs for each row.
const PAIRS: usize = 5;

/// A trace that is read.
struct Profile {
    name: &'static str,
    /// None: the trace has all kinds of fields that our own producers write.
    shape: Option<Shape>,
}

const PROFILES: [Profile; 6] = [
    Profile {
        name: "all kinds of fields, 4 streams, 256 KiB",
        shape: None,
    },
    Profile {
        name: "two ints, 4 streams, 256 KiB",
        shape: Some(Shape {
            kind: Kind::Ints,
            streams: 4,
            packet: 256 << 10,
        }),
    },
    Profile {
        name: "text and contexts, 4 streams, 256 KiB",
        shape: Some(Shape {
            kind: Kind::Strings,
            streams: 4,
            packet: 256 << 10,
        }),
    },
    Profile {
        name: "two ints, 64 streams, 64 KiB",
        shape: Some(Shape {
            kind: Kind::Ints,
            streams: 64,
            packet: 64 << 10,
        }),
    },
    Profile {
        name: "two ints, 4 streams, 4 KiB",
        shape: Some(Shape {
            kind: Kind::Ints,
            streams: 4,
            packet: 4 << 10,
        }),
    },
    Profile {
        name: "text and contexts, 1 stream, 1 MiB",
        shape: Some(Shape {
            kind: Kind::Strings,
            streams: 1,
            packet: 1 << 20,
        }),
    },
];

/// What is done with the events: the arguments of both programs.
struct Work {
    name: &'static str,
    theirs: &'static [&'static str],
    ours: &'static [&'static str],
}

const WORK: [Work; 2] = [
    Work {
        name: "decode",
        theirs: &["-o", "dummy"],
        ours: &["--sink", "dummy"],
    },
    Work {
        name: "text",
        theirs: &["--clock-gmt", "--clock-date"],
        ours: &["--clock-gmt", "--clock-date"],
    },
];

pub(crate) fn run() {
    let lab = tempfile::tempdir().unwrap();
    // `benches viewer DIRECTORY` leaves the traces there, for a profiler.
    let kept = std::env::args_os().nth(2).map(PathBuf::from);
    let directory = kept.unwrap_or_else(|| lab.path().to_owned());
    let traces: Vec<_> = (0..)
        .zip(&PROFILES)
        .map(|(number, profile): (usize, _)| {
            let trace = directory.join(number.to_string());
            let events = match profile.shape {
                None => trace::write(&trace, TRACE_BYTES),
                Some(shape) => lttng::write(&trace, shape, EVENTS),
            };
            (trace, events.unwrap())
        })
        .collect();
    let test_live = build("test-live");
    println!("{PAIRS} pairs for each row");
    println!(
        "{:<42}{:<8}{:>12}{:>12}{:>8}{:>14}{:>9}{:>9}{:>16}",
        "trace", "", "theirs/s", "ours/s", "ratio", "spread", "MB", "MB", "all processors"
    );
    for (profile, (trace, events)) in PROFILES.iter().zip(&traces) {
        for work in &WORK {
            let row = row(&test_live, work, trace, *events);
            println!("{:<42}{row}", profile.name);
        }
    }
    println!(
        "theirs: babeltrace2; ours: test-live on one thread. Events per second of CPU in user and kernel mode, medians; \
         ratio of the medians, and the range of the ratios of the pairs; peak memory of both; with a thread for each \
         processor, the time that passes relative to one thread, and the CPU"
    );
}

fn row(test_live: &Path, work: &Work, trace: &Path, events: u64) -> String {
    let (mut theirs, mut ours, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    let (mut faster, mut costs) = (Vec::new(), Vec::new());
    for _ in 0..PAIRS {
        let their = measure(Path::new("babeltrace2"), work.theirs, trace);
        let alone = [work.ours, &["--threads", "1"]].concat();
        let our = measure(test_live, &alone, trace);
        let all = measure(test_live, work.ours, trace);
        ratios.push(their.cpu.as_secs_f64() / our.cpu.as_secs_f64());
        faster.push(our.elapsed.as_secs_f64() / all.elapsed.as_secs_f64());
        costs.push(all.cpu.as_secs_f64() / our.cpu.as_secs_f64());
        theirs.push(their);
        ours.push(our);
    }
    for figures in [&mut ratios, &mut faster, &mut costs] {
        figures.sort_by(f64::total_cmp);
    }
    let (their, our) = (median(&mut theirs), median(&mut ours));
    let rate = |run: &Run| events as f64 / run.cpu.as_secs_f64();
    format!(
        "{:<8}{:>12.0}{:>12.0}{:>7.1}x{:>14}{:>9}{:>9}{:>16}",
        work.name,
        rate(&their),
        rate(&our),
        rate(&our) / rate(&their),
        format!("{:.1} to {:.1}", ratios[0], ratios[PAIRS - 1]),
        their.memory / 1024,
        our.memory / 1024,
        format!("{:.2}x, {:.2}x", faster[PAIRS / 2], costs[PAIRS / 2]),
    )
}

/// Result of one run.
#[derive(Clone, Copy)]
struct Run {
    cpu: Duration,
    elapsed: Duration,
    /// Peak resident memory, in KiB.
    memory: u64,
}

fn median(runs: &mut [Run]) -> Run {
    runs.sort_by_key(|run| run.cpu);
    runs[runs.len() / 2]
}

fn measure(program: &Path, arguments: &[&str], directory: &Path) -> Run {
    let before = children_cpu();
    let begin = Instant::now();
    let mut child = Command::new(program)
        .args(arguments)
        .arg(directory)
        .stdout(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
    let mut memory = 0;
    let ended = loop {
        memory = memory.max(peak_memory(child.id()).unwrap_or(0));
        if let Some(ended) = child.try_wait().unwrap() {
            break ended;
        }
        assert!(
            begin.elapsed() < Duration::from_secs(600),
            "the viewer does not end"
        );
        std::thread::sleep(Duration::from_millis(2));
    };
    assert!(ended.success(), "{}: {ended}", program.display());
    Run {
        cpu: children_cpu() - before,
        elapsed: begin.elapsed(),
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
