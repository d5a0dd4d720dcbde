//! Throughput of `consumer replay` into `lttng-relayd` and into `relayd`, in turns, and the
//! processor time of each.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use tests::consumer::replay_command;
use tests::lab::Lab;
use tests::relay::Relay;

use crate::process::{children_cpu, cpu};
use crate::viewer::{size, trace};

/// Minimum size of the trace, in bytes.
const TRACE_BYTES: u64 = 500_000_000;
/// Number of runs per relay. The median is printed.
const TURNS: usize = 5;

/// Result of one run.
#[derive(Clone, Copy)]
struct Run {
    wall: Duration,
    consumer_cpu: Duration,
    relay_cpu: Duration,
}

pub(crate) fn run() {
    let lab = Lab::new();
    let directory = lab.path().join("trace");
    eprintln!("writing a trace of {} MB", TRACE_BYTES / 1_000_000);
    trace::write(&directory, TRACE_BYTES).unwrap();
    let megabytes = size(&directory) as f64 / 1e6;
    println!(
        "{megabytes:.0} MB in packets of 256 KiB, {TURNS} turns; CPU seconds in user and kernel mode"
    );
    println!(
        "{:<16}{:>8}{:>8}{:>14}{:>10}{:>18}",
        "", "MB/s", "spread", "consumer CPU", "relay CPU", "MB/s of consumer"
    );
    let (mut theirs, mut ours) = (Vec::new(), Vec::new());
    // In turns, so that what slows the machine down for a while slows both.
    for _ in 0..TURNS {
        theirs.push(measure(Relay::start_reference, &directory));
        ours.push(measure(Relay::start, &directory));
    }
    for (name, mut runs) in [("lttng-relayd", theirs), ("relayd", ours)] {
        runs.sort_by_key(|run| run.wall);
        let Run {
            wall,
            consumer_cpu,
            relay_cpu,
        } = runs[runs.len() / 2];
        let (first, last) = (runs.first().unwrap(), runs.last().unwrap());
        println!(
            "{name:<16}{:>8.0}{:>7.0}%{:>14.2}{:>10.2}{:>18.0}",
            megabytes / wall.as_secs_f64(),
            (last.wall.as_secs_f64() / first.wall.as_secs_f64() - 1.0) * 100.0,
            consumer_cpu.as_secs_f64(),
            relay_cpu.as_secs_f64(),
            megabytes / consumer_cpu.as_secs_f64(),
        );
    }
    println!(
        "the spread is that of the slowest turn over the fastest; the last column: MB per second of consumer CPU"
    );
}

/// Replays the trace to a new relay with an empty output directory.
fn measure(start: impl FnOnce(&Lab) -> Relay, directory: &Path) -> Run {
    let lab = Lab::new();
    let mut relay = start(&lab);
    // The program has been built before.
    let mut replay = replay_command(&lab, &relay, "bench", directory);
    let before = children_cpu();
    let begin = Instant::now();
    let status = replay.stderr(Stdio::null()).status().unwrap();
    let wall = begin.elapsed();
    assert!(status.success(), "{status}");
    Run {
        wall,
        consumer_cpu: children_cpu() - before,
        relay_cpu: cpu(relay.process().id()),
    }
}
