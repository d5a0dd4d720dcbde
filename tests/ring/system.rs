//! The programs of these tests, and what is in the traces of the writer.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use tests::babeltrace::Babeltrace;
use tests::lab::Lab;
use tests::process::Process;
use tests::relay::Relay;
use tests::{binaries, wait_until};

/// Returns the run directory of a test.
pub(crate) fn rings(lab: &Lab) -> PathBuf {
    lab.directory("rings")
}

/// An agent that runs `consumer serve --ring`.
pub(crate) struct Agent {
    process: Process,
}

impl Agent {
    pub(crate) fn start(lab: &Lab, relay: &Relay, options: &[&str]) -> Self {
        Self::start_in(&rings(lab), lab, relay, options)
    }

    /// Starts it with another run directory.
    pub(crate) fn start_in(directory: &Path, lab: &Lab, relay: &Relay, options: &[&str]) -> Self {
        let mut command = lab.command(binaries::consumer());
        command
            .args(["serve", "-v", "--live=20000"])
            .arg(format!("--ctrl-url=tcp://{}", relay.control))
            .arg(format!("--data-url=tcp://{}", relay.data))
            .arg(format!("--ring={}", directory.display()))
            .arg(format!("--socket={}", lab.path().join("status").display()))
            .args(options);
        let mut process = Process::start(&mut command);
        process.wait_for_stderr_text("consumer::frontend::ring: rings");
        Self { process }
    }

    /// Stops it by SIGTERM, after which everything is delivered and nothing of dead programs is
    /// left.
    pub(crate) fn stop(self, lab: &Lab) {
        self.process.signal(Signal::TERM);
        let ended = self.process.wait();
        assert!(ended.status.success(), "{:#?}", ended.stderr);
        assert_eq!(directories(lab), [""; 0]);
    }

    /// Stops it by SIGTERM while there are programs that live. Returns its log.
    pub(crate) fn stop_with_live_programs(self) -> Vec<String> {
        self.process.signal(Signal::TERM);
        let ended = self.process.wait();
        assert!(ended.status.success(), "{:#?}", ended.stderr);
        ended.stderr
    }

    /// Returns the log of the agent so far.
    pub(crate) fn log(&self) -> Vec<String> {
        self.process.stderr()
    }

    pub(crate) fn kill(self) {
        self.process.signal(Signal::KILL);
        let _ = self.process.wait();
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }
}

/// Returns the largest resident memory that a process has had (`VmHWM`), in bytes.
pub(crate) fn peak_memory(id: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap();
    let mut lines = status.lines();
    let line = lines.find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// Returns the names of the process directories; without those that a program was making when it
/// was killed.
pub(crate) fn directories(lab: &Lab) -> Vec<String> {
    let entries = fs::read_dir(rings(lab)).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !name.starts_with('.'))
        .collect()
}

/// Returns a command in the environment of the test, in which programs find its rings.
pub(crate) fn command(lab: &Lab, program: &Path) -> Command {
    let mut command = lab.command(program);
    command.env("TRACE_RING_DIR", rings(lab));
    for variable in ["TRACE_RING", "TRACE_RING_SIZE", "TRACE_RING_FILTER"] {
        command.env_remove(variable);
    }
    command
}

/// Returns the command `consumer rings` with these arguments.
pub(crate) fn rings_command(lab: &Lab, arguments: &[&str]) -> Command {
    let mut command = command(lab, binaries::consumer());
    command.arg("rings").args(arguments);
    command
}

/// The traced program `ring-writer`.
pub(crate) struct Writer {
    pub(crate) process: Process,
    threads: usize,
    progress: PathBuf,
}

/// What a writer does.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Writing<'a> {
    pub(crate) threads: usize,
    /// Events of each thread; 0: without end.
    pub(crate) events: u64,
    /// Pause after each event.
    pub(crate) pause: Duration,
    /// Variables of the environment.
    pub(crate) environment: &'a [(&'a str, &'a str)],
}

impl Default for Writing<'_> {
    fn default() -> Self {
        Self {
            threads: 1,
            events: 0,
            pause: Duration::ZERO,
            environment: &[],
        }
    }
}

impl Writer {
    pub(crate) fn start(lab: &Lab, name: &str, writing: Writing<'_>) -> Self {
        let command = command(lab, binaries::ring_writer());
        Self::start_command(command, lab, name, writing)
    }

    /// Starts the program in C, which has one thread.
    pub(crate) fn start_in_c(lab: &Lab, name: &str, writing: Writing<'_>) -> Self {
        Self::start_command(command(lab, &compile_writer(lab)), lab, name, writing)
    }

    /// Starts the program by a command in which its arguments are missing.
    pub(crate) fn start_command(
        mut command: Command,
        lab: &Lab,
        name: &str,
        writing: Writing<'_>,
    ) -> Self {
        let progress = lab.path().join(format!("progress-{name}"));
        let Writing {
            threads,
            events,
            pause,
            environment,
        } = writing;
        command
            .arg(&progress)
            .args([threads.to_string(), events.to_string()])
            .arg(pause.as_micros().to_string())
            .envs(environment.iter().copied());
        Self {
            process: Process::start(&mut command),
            threads,
            progress,
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Returns the name of its session.
    pub(crate) fn session(&self) -> String {
        format!("ring-writer-{}", self.pid())
    }

    /// Returns the number of events that each thread has finished.
    pub(crate) fn progress(&self) -> Vec<u64> {
        let bytes = fs::read(&self.progress).unwrap_or_default();
        let words = bytes.chunks_exact(8);
        let mut written: Vec<_> = words
            .map(|word| u64::from_le_bytes(word.try_into().unwrap()))
            .collect();
        written.resize(self.threads, 0);
        written
    }

    pub(crate) fn wait_for_events(&self, count: u64) {
        wait_until("events are written", || {
            self.progress().iter().all(|written| *written >= count)
        });
    }

    /// Kills it. Returns the number of events that each thread has finished.
    pub(crate) fn kill(self) -> Written {
        self.process.signal(Signal::KILL);
        self.end()
    }

    /// Waits until it exits by itself.
    pub(crate) fn end(mut self) -> Written {
        wait_until("the writer ends", || !self.process.is_running());
        Written {
            pid: self.pid(),
            threads: self.progress(),
        }
    }
}

/// Compiles the traced program in C.
fn compile_writer(lab: &Lab) -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = lab.directory("c").join("ring-writer");
    let mut compile = Command::new("cc");
    compile
        .args(["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror"])
        .arg("-I")
        .arg(package.join("../crates/trace-ring/include"))
        .arg(package.join("ring/writer.c"))
        .arg("-o")
        .arg(&program)
        .arg(binaries::ring_library().join("libtrace_ring.a"))
        .args(["-lpthread", "-ldl", "-lm"]);
    Process::start(&mut compile).wait().expect_success();
    program
}

/// What a writer has written.
#[derive(Debug, Clone)]
pub(crate) struct Written {
    pub(crate) pid: u32,
    /// Events that each thread has finished; it may have committed one more.
    pub(crate) threads: Vec<u64>,
}

/// What a trace directory shows of one writer.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    /// The numbers of the events of each thread, in order.
    pub(crate) threads: BTreeMap<u64, Vec<u64>>,
    pub(crate) discarded: u64,
}

impl Shown {
    /// Reads a directory with babeltrace2, which must report nothing but discarded events.
    pub(crate) fn read(directory: &Path) -> Self {
        let (lines, discarded) = read_trace(directory);
        let mut shown = Self {
            discarded,
            ..Self::default()
        };
        lines.iter().for_each(|line| shown.add(line));
        shown
    }

    /// Adds what another directory shows of later events.
    pub(crate) fn append(&mut self, later: Self) {
        self.discarded += later.discarded;
        for (thread, numbers) in later.threads {
            self.threads.entry(thread).or_default().extend(numbers);
        }
    }

    /// Adds a line of a viewer.
    pub(crate) fn add(&mut self, line: &str) {
        let field = |name: &str| -> u64 {
            let (_, rest) = line.split_once(name).unwrap_or_else(|| panic!("{line}"));
            let digits = rest.split(|c: char| !c.is_ascii_digit()).next();
            digits.unwrap().parse().unwrap()
        };
        let (thread, number) = (field("thread = "), field("number = "));
        self.threads.entry(thread).or_default().push(number);
    }

    pub(crate) fn count(&self) -> u64 {
        self.threads
            .values()
            .map(|numbers| numbers.len() as u64)
            .sum()
    }

    /// Checks that every event is shown at most once and in order, and that what is shown and what
    /// is discarded are all that was written: for each thread, what it has finished, and at most
    /// one more.
    pub(crate) fn assert_complete(&self, written: &Written) {
        for (thread, numbers) in &self.threads {
            let in_order = numbers.windows(2).all(|pair| pair[0] < pair[1]);
            assert!(in_order, "{written:?}: thread {thread} is out of order");
        }
        let finished: u64 = written.threads.iter().sum();
        let all = self.count() + self.discarded;
        let possible = finished..=finished + written.threads.len() as u64;
        assert!(
            possible.contains(&all),
            "{written:?}: {} shown, {} discarded",
            self.count(),
            self.discarded
        );
    }

    /// Checks that every event is shown: nothing was discarded.
    pub(crate) fn assert_without_loss(&self, written: &Written) {
        self.assert_complete(written);
        assert_eq!(self.discarded, 0);
        for numbers in self.threads.values() {
            assert!(
                (0..)
                    .zip(numbers)
                    .all(|(expected, number)| expected == *number)
            );
        }
    }
}

/// Reads a directory with babeltrace2, which must report nothing but discarded events. Returns the
/// lines of the events, and the number of discarded ones.
pub(crate) fn read_trace(directory: &Path) -> (Vec<String>, u64) {
    let read = Babeltrace::Two.read(directory);
    let mut discarded = 0;
    for line in read.stderr.iter().filter(|line| !line.is_empty()) {
        let count = line.split_once("Tracer discarded ");
        let count = count.and_then(|(_, rest)| rest.split(' ').next()?.parse::<u64>().ok());
        discarded += count.unwrap_or_else(|| panic!("{line}"));
    }
    (read.expect_success(), discarded)
}

/// Returns the directories of the sessions of a writer, below the output of a relay or a recording.
pub(crate) fn session_directories(output: &Path, pid: u32) -> Vec<PathBuf> {
    session_directories_of("ring-writer", output, pid)
}

/// Returns the directories of the sessions of any program, below the output of a relay or a
/// recording.
pub(crate) fn session_directories_of(program: &str, output: &Path, pid: u32) -> Vec<PathBuf> {
    let mut found = Vec::new();
    collect_sessions(output, &format!("{program}-{pid}-"), &mut found);
    found.sort();
    found
}

fn collect_sessions(directory: &Path, prefix: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        if !entry.file_type().unwrap().is_dir() {
            continue;
        }
        if entry.file_name().to_str().unwrap().starts_with(prefix) {
            found.push(entry.path());
        } else {
            collect_sessions(&entry.path(), prefix, found);
        }
    }
}

/// Returns the only session of a process.
pub(crate) fn session_directory(output: &Path, pid: u32) -> PathBuf {
    session_directory_of("ring-writer", output, pid)
}

/// Returns the only session of a process of any program.
pub(crate) fn session_directory_of(program: &str, output: &Path, pid: u32) -> PathBuf {
    let found = session_directories_of(program, output, pid);
    assert_eq!(found.len(), 1, "{found:?}");
    found.into_iter().next().unwrap()
}
