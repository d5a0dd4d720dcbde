//! Reading large traces from the page cache: other readers and `test-live`, in turns. CTF 1.8 is
//! also read by `babeltrace2`, CTF 2 by those of `babeltrace2` from 2.1 and `actf` that are
//! installed.

pub(crate) mod lttng;
pub(crate) mod trace;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use lttng::{Form, Kind, Shape};

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

const PROFILES: [Profile; 8] = [
    Profile {
        name: "all kinds of fields, 4 streams, 256 KiB",
        shape: None,
    },
    Profile {
        name: "two ints, 4 streams, 256 KiB",
        shape: Some(Shape {
            form: Form::Tsdl,
            kind: Kind::Ints,
            streams: 4,
            packet: 256 << 10,
        }),
    },
    Profile {
        name: "text and contexts, 4 streams, 256 KiB",
        shape: Some(Shape {
            form: Form::Tsdl,
            kind: Kind::Strings,
            streams: 4,
            packet: 256 << 10,
        }),
    },
    Profile {
        name: "two ints, 64 streams, 64 KiB",
        shape: Some(Shape {
            form: Form::Tsdl,
            kind: Kind::Ints,
            streams: 64,
            packet: 64 << 10,
        }),
    },
    Profile {
        name: "two ints, 4 streams, 4 KiB",
        shape: Some(Shape {
            form: Form::Tsdl,
            kind: Kind::Ints,
            streams: 4,
            packet: 4 << 10,
        }),
    },
    Profile {
        name: "text and contexts, 1 stream, 1 MiB",
        shape: Some(Shape {
            form: Form::Tsdl,
            kind: Kind::Strings,
            streams: 1,
            packet: 1 << 20,
        }),
    },
    Profile {
        name: "CTF 2, two ints, 4 streams, 256 KiB",
        shape: Some(Shape {
            form: Form::Json,
            kind: Kind::Ints,
            streams: 4,
            packet: 256 << 10,
        }),
    },
    Profile {
        name: "CTF 2, text and contexts, 4 streams, 256 KiB",
        shape: Some(Shape {
            form: Form::Json,
            kind: Kind::Strings,
            streams: 4,
            packet: 256 << 10,
        }),
    },
];

impl Profile {
    fn is_ctf2(&self) -> bool {
        self.shape.is_some_and(|shape| shape.form == Form::Json)
    }
}

/// The work that is done with the events.
#[derive(Clone, Copy)]
enum Work {
    Decode,
    Text,
}

impl Work {
    const fn name(self) -> &'static str {
        match self {
            Self::Decode => "decode",
            Self::Text => "text",
        }
    }

    const fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Decode => &["--sink", "dummy"],
            Self::Text => &["--clock-gmt", "--clock-date"],
        }
    }
}

/// A reader with which `test-live` is compared.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reader {
    Babeltrace,
    Actf,
}

impl Reader {
    const fn program(self) -> &'static str {
        match self {
            Self::Babeltrace => "babeltrace2",
            Self::Actf => "actf",
        }
    }

    const fn arguments(self, work: Work) -> &'static [&'static str] {
        match (self, work) {
            (Self::Babeltrace, Work::Decode) => &["-o", "dummy"],
            (Self::Babeltrace, Work::Text) => &["--clock-gmt", "--clock-date"],
            (Self::Actf, Work::Decode) => &["-q"],
            (Self::Actf, Work::Text) => &["-gtdp", "event-common-context,event-payload"],
        }
    }

    /// Returns the readers that are installed and read CTF 2.
    fn of_ctf2() -> Vec<Self> {
        let output = |reader: Self, option| {
            let output = Command::new(reader.program()).arg(option).output().ok()?;
            Some(String::from_utf8_lossy(&output.stdout).into_owned())
        };
        // Babeltrace reads CTF 2 since 2.1.
        let reads = |reader: &Self| match *reader {
            Self::Babeltrace => output(Self::Babeltrace, "--version")
                .is_some_and(|version| !version.starts_with("Babeltrace 2.0")),
            Self::Actf => output(Self::Actf, "-h").is_some(),
        };
        [Self::Babeltrace, Self::Actf]
            .into_iter()
            .filter(reads)
            .collect()
    }
}

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
        "{:<46}{:<12}{:<8}{:>12}{:>12}{:>8}{:>14}{:>9}{:>9}{:>16}",
        "trace", "", "", "theirs/s", "ours/s", "ratio", "spread", "MB", "MB", "all processors"
    );
    let of_ctf2 = Reader::of_ctf2();
    if of_ctf2.is_empty() {
        println!("no other reader of CTF 2 is installed: no rows of CTF 2");
    }
    for (profile, (trace, events)) in PROFILES.iter().zip(&traces) {
        let readers = if profile.is_ctf2() {
            &of_ctf2[..]
        } else {
            &[Reader::Babeltrace]
        };
        for reader in readers {
            for work in [Work::Decode, Work::Text] {
                let row = row(&test_live, *reader, work, trace, *events);
                println!("{:<46}{:<12}{row}", profile.name, reader.program());
            }
        }
    }
    println!(
        "theirs: the reader that is named; ours: test-live on one thread. Events per second of CPU in user and kernel mode, medians; \
         ratio of the medians, and the range of the ratios of the pairs; peak memory of both; with a thread for each \
         processor, the time that passes relative to one thread, and the CPU"
    );
}

fn row(test_live: &Path, reader: Reader, work: Work, trace: &Path, events: u64) -> String {
    let (mut theirs, mut ours, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    let (mut faster, mut costs) = (Vec::new(), Vec::new());
    for _ in 0..PAIRS {
        let their = measure(Path::new(reader.program()), reader.arguments(work), trace);
        // The other readers have one thread.
        let alone = [work.arguments(), &["--threads", "1"]].concat();
        let our = measure(test_live, &alone, trace);
        let all = measure(test_live, work.arguments(), trace);
        // By processor time, which other programs on the machine change less than the time that
        // passes.
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
        work.name(),
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
        // Asked again and again: the figure is gone with the process.
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
