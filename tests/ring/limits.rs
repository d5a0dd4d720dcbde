//! Limits of recordings and readers: what is left out is counted in the trace.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;
use tests::binaries;
use tests::lab::Lab;
use tests::process::Process;
use tests::relay::Relay;
use tests::wait_until;

use crate::system::{
    Agent, Shown, Writer, Writing, command, directories, read_trace, rings, rings_command,
    session_directory, session_directory_of,
};

/// A recording by `consumer rings --record`.
struct Recording {
    process: Process,
    output: PathBuf,
}

impl Recording {
    fn start(lab: &Lab, name: &str, options: &[&str]) -> Self {
        let _ = rings(lab);
        let output = lab.path().join(name);
        let mut command = rings_command(lab, &["-v", "--record"]);
        command.arg(&output).args(options);
        let mut process = Process::start(&mut command);
        process.wait_for_stderr_text("consumer::frontend::ring: rings");
        Self { process, output }
    }

    fn stop(self) -> (PathBuf, Vec<String>) {
        self.process.signal(Signal::INT);
        let ended = self.process.wait();
        assert!(ended.status.success(), "{:#?}", ended.stderr);
        (self.output, ended.stderr)
    }
}

/// Records a program that writes events of all severities at full speed. Returns the lines of the
/// events, the number of discarded ones, and the log.
fn record_app(lab: &Lab, name: &str, options: &[&str]) -> (Vec<String>, u64, Vec<String>) {
    let recording = Recording::start(lab, name, options);
    let mut app = command(lab, binaries::ring_app());
    app.args(["--requests", "1000"])
        .env("TRACE_RING_FILTER", "trace")
        .env("TRACE_RING_SIZE", "4M");
    let app = Process::start(&mut app);
    let pid = app.id();
    app.wait().expect_success();
    let (output, log) = recording.stop();
    let (lines, discarded) = read_trace(&session_directory_of("app", &output, pid));
    (lines, discarded, log)
}

fn count(lines: &[String], text: &str) -> usize {
    lines.iter().filter(|line| line.contains(text)).count()
}

#[test]
fn recording_shows_what_it_has_shed_under_overload() {
    let lab = Lab::new();
    let (all, discarded, _) = record_app(&lab, "all", &[]);
    assert_eq!(discarded, 0);
    let (kept, discarded, log) = record_app(&lab, "limited", &["--max-rate", "50"]);
    let steps: Vec<_> = kept
        .iter()
        .filter(|line| line.contains("consumer:shedding"))
        .collect();
    // The least important severity first, and never WARN and ERROR.
    for (step, severity) in steps.iter().zip(["debug", "info", "warn"]) {
        let message = format!("events limited to 50 per second: only {severity} and above pass");
        assert!(step.contains(&format!("message = \"{message}\"")), "{step}");
        assert!(
            step.contains(&format!("max_severity = \"{severity}\"")),
            "{step}"
        );
        assert!(step.contains("max_events_per_second = 50"), "{step}");
        assert!(count(&log, &message) > 0);
    }
    assert!(steps.len() >= 3, "{steps:#?}");
    assert_eq!(count(&kept, "no rows"), count(&all, "no rows"));
    assert!(count(&kept, "request done") < count(&all, "request done"));
    // Everything that is not shown is counted.
    let shown = kept.len() - steps.len();
    assert_eq!(shown as u64 + discarded, all.len() as u64);
}

/// Returns the sizes of the tracefiles of a recorded process, by name.
fn tracefiles(session: &Path) -> Vec<(String, u64)> {
    let files = fs::read_dir(session.join("ring")).unwrap();
    let files = files.map(|file| file.unwrap());
    let mut files: Vec<_> = files
        .map(|file| {
            (
                file.file_name().into_string().unwrap(),
                file.metadata().unwrap(),
            )
        })
        .filter(|(name, data)| data.is_file() && name != "metadata")
        .map(|(name, data)| (name, data.len()))
        .collect();
    files.sort();
    files
}

#[test]
fn recording_keeps_the_newest_files_of_a_limited_size() {
    for (count, text) in [(1, "1"), (3, "3")] {
        let lab = Lab::new();
        let options = ["--file-size", "128K", "--file-count", text];
        let recording = Recording::start(&lab, "recorded", &options);
        check_file_limits(&lab, recording, count);
    }
}

/// Records more than `count` files of 128 KiB have room for.
fn check_file_limits(lab: &Lab, recording: Recording, count: usize) {
    const SIZE: u64 = 128 << 10;
    let writing = Writing {
        events: 30_000,
        pause: Duration::from_micros(10),
        ..Writing::default()
    };
    let written = Writer::start(lab, "size", writing).end();
    let (output, _) = recording.stop();
    let session = session_directory(&output, written.pid);
    let files = tracefiles(&session);
    assert_eq!(files.len(), count, "{files:?}");
    assert!(files.iter().all(|(_, size)| *size <= SIZE), "{files:?}");
    // Each but the last one is full, and has its index.
    let full = files.iter().filter(|(_, size)| *size > SIZE / 2).count();
    assert!(full + 1 >= count, "{files:?}");
    let indexes = fs::read_dir(session.join("ring/index")).unwrap().count();
    assert_eq!(indexes, count);
    let numbers = &Shown::read(&session).threads[&0];
    assert_eq!(numbers.last(), Some(&29_999));
    assert!(numbers.windows(2).all(|pair| pair[0] + 1 == pair[1]));
}

#[test]
fn quota_holds_for_recordings_that_follow_each_other() {
    const QUOTA: u64 = 512 << 10;
    let lab = Lab::new();
    let mut sessions = Vec::new();
    for name in ["first", "second"] {
        let recording = Recording::start(&lab, "recorded", &["--quota", "512K"]);
        let writing = Writing {
            events: 15_000,
            pause: Duration::from_micros(10),
            ..Writing::default()
        };
        let written = Writer::start(&lab, name, writing).end();
        let (output, _) = recording.stop();
        sessions.push(session_directory(&output, written.pid));
    }
    // The files of the earlier recording are the oldest.
    assert!(!sessions[0].exists());
    let bytes = bytes_below(&lab.path().join("recorded"));
    assert!((QUOTA / 2..=QUOTA).contains(&bytes), "{bytes}");
    assert_eq!(Shown::read(&sessions[1]).threads[&0].last(), Some(&14_999));
}

/// Returns the sizes of all files below a directory.
fn bytes_below(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).unwrap();
    let sizes = entries.map(|entry| {
        let entry = entry.unwrap();
        match entry.file_type().unwrap().is_dir() {
            true => bytes_below(&entry.path()),
            false => entry.metadata().unwrap().len(),
        }
    });
    sizes.sum()
}

/// Event classes of a trace, one of which may be the consumer's.
const MAX_CLASSES: u64 = 4096;

#[test]
fn events_of_classes_beyond_the_limit_are_discarded_and_named_once_in_the_log() {
    const CLASSES: u64 = 5000;
    let (lab, relay) = Relay::start_in_new_lab();
    let agent = Agent::start(&lab, &relay, &[]);
    let mut program = command(&lab, binaries::ring_classes());
    program.arg(CLASSES.to_string());
    let program = Process::start(&mut program);
    let pid = program.id();
    let writing = Writing {
        pause: Duration::from_millis(1),
        ..Writing::default()
    };
    let other = Writer::start(&lab, "other", writing);
    wait_until("all classes are written", || !program.stdout().is_empty());
    program.signal(Signal::KILL);
    let _ = program.wait();
    wait_until("the program is drained", || {
        let of_program = format!("{pid}-");
        !directories(&lab)
            .iter()
            .any(|name| name.starts_with(&of_program))
    });
    let other = other.kill();
    let log = agent.log();
    agent.stop(&lab);
    let refused = log
        .iter()
        .filter(|line| line.contains("event class not declared"));
    assert_eq!(refused.count(), 1, "{log:#?}");
    let shown = Shown::read(&session_directory_of("ring-classes", &relay.output, pid));
    assert_eq!(shown.threads[&0], (0..MAX_CLASSES).collect::<Vec<_>>());
    assert_eq!(shown.discarded, CLASSES - MAX_CLASSES);
    let directory = session_directory(&relay.output, other.pid);
    Shown::read(&directory).assert_without_loss(&other);
}
