//! A program that a test has started, and that ends with the test at the latest.

use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::{TEST_TIMEOUT, wait_for};

/// How long a program may take to end when it is told to, before it is killed.
const TERMINATION_TIMEOUT: Duration = Duration::from_secs(5);

/// Lines of a program's standard error that are shown if the test fails.
const MAX_REPORTED_LINES: usize = 20;

/// A running program, its output collected as it comes.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    stdout: Output,
    stderr: Output,
}

#[derive(Debug)]
struct Output {
    bytes: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
}

/// What a program has left.
#[derive(Debug)]
pub struct CompletedProcess {
    /// How it ended.
    pub status: ExitStatus,
    /// What it printed, in lines.
    pub stdout: Vec<String>,
    /// What it printed, to the byte.
    pub stdout_bytes: Vec<u8>,
    /// What it complained about.
    pub stderr: Vec<String>,
}

impl Process {
    /// Starts it.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn start(command: &mut Command) -> Self {
        let name = format!("{command:?}");
        let started = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = started.unwrap_or_else(|error| panic!("{name}: {error}"));
        let stdout = Output::collect(child.stdout.take());
        let stderr = Output::collect(child.stderr.take());
        Self {
            name,
            child,
            stdout,
            stderr,
        }
    }

    /// The lines that it has printed so far.
    #[must_use]
    pub fn stdout(&self) -> Vec<String> {
        self.stdout.complete_lines()
    }

    /// What it has complained about so far.
    #[must_use]
    pub fn stderr(&self) -> Vec<String> {
        self.stderr.complete_lines()
    }

    /// Its number.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its standard input, if it was given one.
    pub fn stdin(&mut self) -> Option<std::process::ChildStdin> {
        self.child.stdin.take()
    }

    /// Whether it has not ended.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        let _ = kill_process(Pid::from_child(&self.child), signal);
    }

    /// Waits until it ends by itself.
    ///
    /// # Panics
    /// If it does not.
    #[must_use]
    pub fn wait(self) -> CompletedProcess {
        self.wait_within(TEST_TIMEOUT)
    }

    /// Waits until it ends by itself, which it must do in this time.
    ///
    /// # Panics
    /// If it does not.
    #[must_use]
    pub fn wait_within(mut self, timeout: Duration) -> CompletedProcess {
        let deadline = Instant::now() + timeout;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(
                Instant::now() < deadline,
                "{} does not end: {:?}",
                self.name,
                self.stderr()
            );
            std::thread::sleep(Duration::from_millis(2));
        };
        let printed = self.stdout.finish();
        CompletedProcess {
            status,
            stdout: lines(&printed),
            stdout_bytes: printed,
            stderr: lines(&self.stderr.finish()),
        }
    }

    /// Waits for a line of its standard error in which there is something to find.
    ///
    /// # Panics
    /// If there is none, or the program ends before.
    pub fn wait_for_stderr<T>(&mut self, what: &str, find: impl Fn(&str) -> Option<T>) -> T {
        wait_for(what, || {
            let found = self.stderr().iter().find_map(|line| find(line));
            assert!(
                found.is_some() || self.is_running(),
                "{} ended: {:?}",
                self.name,
                self.stderr()
            );
            found
        })
    }
}

impl Process {
    /// What a test that fails should have said of it.
    fn report(&self, is_running: bool) {
        let state = if is_running { "runs" } else { "has ended" };
        let said = self.stderr();
        let last = &said[said.len().saturating_sub(MAX_REPORTED_LINES)..];
        eprintln!(
            "{} {state}, {} lines printed: {last:#?}",
            self.name,
            self.stdout().len()
        );
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let is_running = self.is_running();
        if std::thread::panicking() {
            self.report(is_running);
        }
        if !is_running {
            return;
        }
        self.signal(Signal::TERM);
        let deadline = Instant::now() + TERMINATION_TIMEOUT;
        while self.is_running() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Output {
    fn collect(from: Option<impl Read + Send + 'static>) -> Self {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let collected = Arc::clone(&bytes);
        let reader = from.map(|mut from| {
            std::thread::spawn(move || {
                let mut buffer = [0; 65_536];
                while let Ok(read @ 1..) = from.read(&mut buffer) {
                    collected.lock().unwrap().extend_from_slice(&buffer[..read]);
                }
            })
        });
        Self { bytes, reader }
    }

    /// Without a line that is not complete.
    fn complete_lines(&self) -> Vec<String> {
        let bytes = self.bytes.lock().unwrap();
        let end = bytes.iter().rposition(|byte| *byte == b'\n');
        end.map_or_else(Vec::new, |end| lines(&bytes[..=end]))
    }

    fn finish(&mut self) -> Vec<u8> {
        if let Some(reader) = self.reader.take() {
            reader.join().unwrap();
        }
        std::mem::take(&mut self.bytes.lock().unwrap())
    }
}

/// What is not UTF-8 is replaced.
fn lines(bytes: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes);
    let lines = text.strip_suffix('\n').unwrap_or(&text).split('\n');
    let has_none = text.is_empty();
    lines.filter(|_| !has_none).map(str::to_owned).collect()
}

impl CompletedProcess {
    /// What it printed, if all went well.
    ///
    /// # Panics
    /// If it did not end with success.
    pub fn expect_success(self) -> Vec<String> {
        assert!(self.status.success(), "{}: {:#?}", self.status, self.stderr);
        self.stdout
    }
}
