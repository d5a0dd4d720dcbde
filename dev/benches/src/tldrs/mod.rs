//! The `tldrs` daemon and the reference under the same load, in turns.
//!
//! The reference is a stand-in that does the same work per event ([`mod@reference`]), or the real
//! program if `TLDRS_REFERENCE` has its path.

mod forward;
pub(crate) mod load;
pub(crate) mod reference;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use load::{EVENT_BYTES, Writes};

use crate::process::{build, cpu, peak_memory};

/// Number of runs per daemon. The median is printed.
const TURNS: usize = 3;

/// How clients write, and the number of events per run: enough for a stable result, and few enough
/// for the page cache.
const LOADS: [(&str, Writes, usize); 2] = [
    ("64 KiB", Writes::Chunks, 4_000_000),
    ("one per event", Writes::OneByOne, 1_000_000),
];

const CLIENTS: [usize; 3] = [1, 4, 16];

/// Variable with the path of the real reference.
const REFERENCE: &str = "TLDRS_REFERENCE";

/// A daemon to be measured.
struct Daemon {
    name: &'static str,
    program: PathBuf,
    /// Arguments before the socket and the directory.
    arguments: Vec<String>,
}

/// Result of one run.
#[derive(Clone, Copy)]
struct Run {
    events: usize,
    wall: Duration,
    cpu: Duration,
    /// Peak resident memory, in KiB.
    memory: u64,
}

impl Run {
    fn rate(&self) -> f64 {
        self.events as f64 / self.wall.as_secs_f64()
    }

    fn cpu_per_million(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.events as f64
    }
}

/// Prints a table of the loads and daemons.
pub(crate) fn run() {
    let ours = Daemon {
        name: "ours",
        program: build("tldrs"),
        arguments: vec!["serve".to_owned()],
    };
    let theirs = theirs();
    println!(
        "{EVENT_BYTES}-byte events into one trace, medians of {TURNS} turns; CPU of the daemon"
    );
    println!(
        "{:<18}{:>8}  {:<10}{:>12}{:>8}{:>16}{:>10}{:>8}{:>8}",
        "writes",
        "clients",
        "daemon",
        "events/s",
        "MB/s",
        "CPU-s/million",
        "peak MB",
        "rate x",
        "CPU x"
    );
    for (name, writes, events) in LOADS {
        for clients in CLIENTS {
            let (mut their, mut our) = (Vec::new(), Vec::new());
            for _ in 0..TURNS {
                their.push(measure(&theirs, writes, clients, events));
                our.push(measure(&ours, writes, clients, events));
            }
            let (their, our) = (median(&mut their), median(&mut our));
            for (daemon, run) in [(&theirs, their), (&ours, our)] {
                println!(
                    "{name:<18}{clients:>8}  {:<10}{:>12.0}{:>8.0}{:>16.3}{:>10.1}{:>8.2}{:>8.2}",
                    daemon.name,
                    run.rate(),
                    run.rate() * EVENT_BYTES as f64 / 1e6,
                    run.cpu_per_million(),
                    run.memory as f64 / 1024.0,
                    run.rate() / their.rate(),
                    their.cpu_per_million() / run.cpu_per_million(),
                );
            }
        }
    }
    println!(
        "rate x, CPU x: events per second, and per second of CPU, over those of the first daemon"
    );
    forward::run(&ours.program);
}

fn theirs() -> Daemon {
    match std::env::var_os(REFERENCE) {
        Some(program) => Daemon {
            name: "reference",
            program: program.into(),
            arguments: vec!["serve".to_owned()],
        },
        None => Daemon {
            name: "stand-in",
            program: std::env::current_exe().unwrap(),
            arguments: vec![reference::NAME.to_owned()],
        },
    }
}

/// The median of each value for itself: they may be of different runs.
fn median(runs: &mut [Run]) -> Run {
    let middle = runs.len() / 2;
    runs.sort_by_key(|run| run.wall);
    let wall = runs[middle].wall;
    runs.sort_by_key(|run| run.memory);
    let memory = runs[middle].memory;
    runs.sort_by_key(|run| run.cpu);
    Run {
        wall,
        memory,
        ..runs[middle]
    }
}

fn measure(daemon: &Daemon, writes: Writes, clients: usize, events: usize) -> Run {
    let lab = tempfile::tempdir().unwrap();
    let (socket, data) = (lab.path().join("socket"), lab.path().join("data"));
    fs::create_dir(&data).unwrap();
    let mut child = start(daemon, &socket, &data);
    let stored = data.join("load.jsonl");
    // Each client sends the same number of events.
    let expected = (events / clients * clients * EVENT_BYTES) as u64;
    let before = cpu(child.id());
    let begin = Instant::now();
    load::run(&socket, writes, clients, events / clients);
    // Neither daemon says when it is done, but the file has all events then.
    while stored.metadata().map_or(0, |stored| stored.len()) < expected {
        assert!(
            begin.elapsed() < Duration::from_secs(600),
            "events are lost"
        );
        // Short against the time of a run, and long enough to leave the processors to the daemon.
        std::thread::sleep(Duration::from_millis(1));
    }
    let run = Run {
        events: events / clients * clients,
        wall: begin.elapsed(),
        cpu: cpu(child.id()) - before,
        memory: peak_memory(child.id()).unwrap(),
    };
    // Killed, because the time of an orderly end is not measured.
    child.kill().unwrap();
    child.wait().unwrap();
    run
}

fn start(daemon: &Daemon, socket: &Path, data: &Path) -> Child {
    let child = Command::new(&daemon.program)
        .args(&daemon.arguments)
        .arg("--socket")
        .arg(socket)
        .arg("-d")
        .arg(data)
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    tests::wait_until("the daemon listens", || {
        std::os::unix::net::UnixStream::connect(socket).is_ok()
    });
    child
}
