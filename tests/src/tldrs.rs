//! The `tldrs` daemon as a process, its clients and the files that it writes.

use std::fs;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;

use crate::process::{CompletedProcess, Process};
use crate::{Lab, binaries, wait_until};

/// The time within which a daemon must exit once it is stopped.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(3);

/// A `tldrs` daemon that is running.
#[derive(Debug)]
pub struct Tldrs {
    process: Process,
    /// The socket on which the daemon listens.
    pub socket: PathBuf,
    /// The directory of the stored traces.
    pub data: PathBuf,
    /// The directory of the exports.
    pub out: PathBuf,
}

/// The paths of the daemon of a test, which may be started more than once.
#[derive(Debug)]
pub struct DaemonPaths {
    /// The socket, as [`Tldrs::socket`].
    pub socket: PathBuf,
    /// The directory of traces, as [`Tldrs::data`].
    pub data: PathBuf,
    /// The directory of exports, as [`Tldrs::out`].
    pub out: PathBuf,
}

impl DaemonPaths {
    /// The paths that the recorded conversations have, below the directory of the test.
    #[must_use]
    pub fn in_lab(lab: &Lab) -> Self {
        Self {
            socket: lab.directory("cwd").join("sock"),
            data: lab.directory("data"),
            out: lab.directory("out"),
        }
    }
}

impl Tldrs {
    /// Starts the daemon and waits until it is ready.
    #[must_use]
    pub fn start(lab: &Lab) -> Self {
        Self::start_with(lab, &[])
    }

    /// Starts the daemon in a directory of its own, which is returned as well and must outlive the
    /// daemon.
    #[must_use]
    pub fn start_in_new_lab() -> (Lab, Self) {
        let lab = Lab::new();
        let tldrs = Self::start(&lab);
        (lab, tldrs)
    }

    /// Starts the daemon with more options and waits until it is ready. `-d` is given unless
    /// `--into-file` is one of the options.
    ///
    /// # Panics
    /// If the daemon does not start.
    #[must_use]
    pub fn start_with(lab: &Lab, options: &[&str]) -> Self {
        let DaemonPaths { socket, data, out } = DaemonPaths::in_lab(lab);
        let mut command = lab.command(binaries::tldrs());
        command.args(["serve", "-v", "--socket"]).arg(&socket);
        if !options.contains(&"--into-file") {
            command.arg("-d").arg(&data);
        }
        command.args(options).current_dir(lab.directory("cwd"));
        let mut process = Process::start(&mut command);
        process.wait_for_stderr_text("tldrs::serve: ready");
        Self {
            process,
            socket,
            data,
            out,
        }
    }

    /// Connects a client.
    ///
    /// # Panics
    /// If the daemon does not listen.
    #[must_use]
    pub fn connect(&self) -> UnixStream {
        UnixStream::connect(&self.socket).unwrap()
    }

    /// Connects a client that sends a text, `@OUT@` replaced, and disconnects.
    ///
    /// # Panics
    /// If the daemon closes the connection before it has read the text.
    pub fn send(&self, text: &str) {
        self.connect()
            .write_all(self.expand_paths(text).as_bytes())
            .unwrap();
    }

    /// Returns the text with `@OUT@` replaced by the directory of the exports.
    #[must_use]
    pub fn expand_paths(&self, text: &str) -> String {
        text.replace("@OUT@", self.out.to_str().unwrap())
    }

    /// Waits until the file of a trace has exactly these lines.
    pub fn wait_for_trace(&self, trace: &str, lines: &str) {
        self.wait_for_file(&self.data.join(format!("{trace}.jsonl")), lines);
    }

    /// Waits until the export of this file name has exactly this text.
    pub fn wait_for_export(&self, name: &str, text: &str) {
        self.wait_for_file(&self.out.join(name), text);
    }

    /// Waits until a file has exactly this text.
    ///
    /// # Panics
    /// If the file has another text in the end.
    pub fn wait_for_file(&self, path: &Path, text: &str) {
        let read = || fs::read(path).unwrap_or_default();
        let is_there = std::panic::catch_unwind(|| {
            wait_until("the file has the expected text", || {
                read() == text.as_bytes() && path.exists()
            });
        });
        let found = read();
        let found = String::from_utf8_lossy(&found);
        assert!(
            is_there.is_ok(),
            "{}: {found}\nexpected: {text}\n{:#?}",
            path.display(),
            self.process.stderr()
        );
    }

    /// Returns the log lines so far.
    #[must_use]
    pub fn log(&self) -> Vec<String> {
        self.process.stderr()
    }

    /// Waits for a log line that contains this text.
    pub fn wait_for_log(&mut self, text: &str) {
        self.process.wait_for_stderr_text(text);
    }

    /// Returns the id of the daemon's process.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Returns a number of `/proc/PID/status`, as `VmHWM` in KiB, in the unit that the file uses.
    ///
    /// # Panics
    /// If the daemon does not run.
    #[must_use]
    pub fn proc_status(&self, name: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    /// Sends a signal to the daemon.
    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// Waits until the daemon exits by itself, within 3 seconds.
    #[must_use]
    pub fn wait_for_exit(self) -> CompletedProcess {
        self.process.wait_within(SHUTDOWN_TIMEOUT)
    }

    /// Stops the daemon by SIGTERM and waits until it has exited.
    ///
    /// If the exit status is not 0, or the socket stays.
    pub fn stop(self) {
        self.signal(Signal::TERM);
        let socket = self.socket.clone();
        let ended = self.wait_for_exit();
        assert!(ended.status.success(), "{:#?}", ended.stderr);
        assert!(!socket.exists(), "the socket stays behind");
    }

    /// Kills the daemon by SIGKILL and waits until it has exited.
    pub fn kill(self) {
        self.signal(Signal::KILL);
        let _ = self.wait_for_exit();
    }
}

/// Runs `tldrs` with these arguments until it exits.
///
/// # Panics
/// If the program cannot be started.
#[must_use]
pub fn run_tldrs(lab: &Lab, arguments: &[&str]) -> CompletedProcess {
    Process::start(lab.command(binaries::tldrs()).args(arguments)).wait()
}
