//! A child process of a test, which is killed when the test ends.

use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::{TEST_TIMEOUT, wait_for};

/// The time that a process has to exit after SIGTERM before it is killed.
const TERMINATION_TIMEOUT: Duration = Duration::from_secs(5);

/// The number of last lines of standard error that are printed if the test fails.
const MAX_REPORTED_LINES: usize = 20;

/// A running process. Two threads collect its standard output and standard error.
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
    line_feeds: Arc<AtomicUsize>,
    reader: Option<JoinHandle<()>>,
}

/// The exit status and the whole output of a process that has exited.
#[derive(Debug)]
pub struct CompletedProcess {
    /// The exit status, or the signal that ended the process.
    pub status: ExitStatus,
    /// The lines of its standard output; bytes that are not UTF-8 are replaced.
    pub stdout: Vec<String>,
    /// The bytes of its standard output.
    pub stdout_bytes: Vec<u8>,
    /// The lines of its standard error.
    pub stderr: Vec<String>,
}

impl Process {
    /// Starts a command with both outputs piped.
    ///
    /// # Panics
    /// If the command cannot be started.
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

    /// Returns the complete lines of standard output so far.
    #[must_use]
    pub fn stdout(&self) -> Vec<String> {
        self.stdout.complete_lines()
    }

    /// Returns the number of the complete lines of standard output so far. Unlike the length of
    /// [`Self::stdout`] it costs nothing, however often it is polled.
    #[must_use]
    pub fn stdout_line_count(&self) -> usize {
        self.stdout.line_feeds.load(Ordering::Acquire)
    }

    /// Returns the bytes of standard output so far.
    ///
    /// # Panics
    /// If the thread that collects them has panicked.
    #[must_use]
    pub fn stdout_bytes(&self) -> Vec<u8> {
        self.stdout.bytes.lock().unwrap().clone()
    }

    /// Returns the complete lines of standard error so far.
    #[must_use]
    pub fn stderr(&self) -> Vec<String> {
        self.stderr.complete_lines()
    }

    /// Returns the id of the process.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Takes the standard input; `None` if it is not a pipe.
    pub fn stdin(&mut self) -> Option<std::process::ChildStdin> {
        self.child.stdin.take()
    }

    /// Whether the process has not exited.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Sends a signal to the process.
    pub fn signal(&self, signal: Signal) {
        let _ = kill_process(Pid::from_child(&self.child), signal);
    }

    /// Waits until the process exits by itself.
    ///
    /// # Panics
    /// If the process does not exit within [`TEST_TIMEOUT`].
    #[must_use]
    pub fn wait(self) -> CompletedProcess {
        self.wait_within(TEST_TIMEOUT)
    }

    /// Waits until the process exits by itself.
    ///
    /// # Panics
    /// If the process does not exit within `timeout`.
    #[must_use]
    pub fn wait_within(mut self, timeout: Duration) -> CompletedProcess {
        let deadline = Instant::now() + timeout;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(
                Instant::now() < deadline,
                "{} does not exit: {:?}",
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

    /// Waits for a line of standard error from which `find` returns a value.
    ///
    /// # Panics
    /// If there is no such line within [`TEST_TIMEOUT`], or the process exits before.
    pub fn wait_for_stderr<T>(&mut self, what: &str, find: impl Fn(&str) -> Option<T>) -> T {
        wait_for(what, || {
            let found = self.stderr().iter().find_map(|line| find(line));
            assert!(
                found.is_some() || self.is_running(),
                "{} exited: {:?}",
                self.name,
                self.stderr()
            );
            found
        })
    }

    /// Waits for a line of standard error that contains `text`.
    ///
    /// # Panics
    /// As [`Self::wait_for_stderr`].
    pub fn wait_for_stderr_text(&mut self, text: &str) {
        self.wait_for_stderr(text, |line| line.contains(text).then_some(()));
    }

    /// Prints the state and the last lines of standard error, for a test that fails.
    fn report(&self, is_running: bool) {
        let state = if is_running { "runs" } else { "has exited" };
        let lines = self.stderr();
        let last = &lines[lines.len().saturating_sub(MAX_REPORTED_LINES)..];
        eprintln!(
            "{} {state}, {} lines printed: {last:#?}",
            self.name,
            self.stdout_line_count()
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
        let line_feeds = Arc::new(AtomicUsize::new(0));
        let (collected, counted) = (Arc::clone(&bytes), Arc::clone(&line_feeds));
        let reader = from.map(|mut from| {
            std::thread::spawn(move || {
                let mut buffer = [0; 65_536];
                while let Ok(read @ 1..) = from.read(&mut buffer) {
                    collected.lock().unwrap().extend_from_slice(&buffer[..read]);
                    let ends = buffer[..read].iter().filter(|byte| **byte == b'\n');
                    counted.fetch_add(ends.count(), Ordering::Release);
                }
            })
        });
        Self {
            bytes,
            line_feeds,
            reader,
        }
    }

    /// Returns the lines so far, without the last one while it has no line feed.
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

/// Splits text into lines; bytes that are not UTF-8 are replaced.
fn lines(bytes: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes);
    let lines = text.strip_suffix('\n').unwrap_or(&text).split('\n');
    let has_none = text.is_empty();
    lines.filter(|_| !has_none).map(str::to_owned).collect()
}

impl CompletedProcess {
    /// Returns the lines of standard output of a process that exited with status 0.
    ///
    /// # Panics
    /// If the exit status is not 0.
    pub fn expect_success(self) -> Vec<String> {
        assert!(self.status.success(), "{}: {:#?}", self.status, self.stderr);
        self.stdout
    }
}
