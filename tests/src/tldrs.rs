//! The `tldrs` daemon in a lab: its socket, its directory, and programs that talk to it.

use std::fs;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;

use crate::process::{CompletedProcess, Process};
use crate::{Lab, binaries, wait_until};

/// How soon a daemon must have stopped that is told to.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(3);

/// A daemon of ours.
#[derive(Debug)]
pub struct Tldrs {
    process: Process,
    /// Where it listens.
    pub socket: PathBuf,
    /// Where it stores traces.
    pub data: PathBuf,
    /// Where programs have their exports.
    pub out: PathBuf,
}

/// The paths of a daemon that may run more than once.
#[derive(Debug)]
pub struct DaemonPaths {
    /// See [`Tldrs::socket`].
    pub socket: PathBuf,
    /// See [`Tldrs::data`].
    pub data: PathBuf,
    /// See [`Tldrs::out`].
    pub out: PathBuf,
}

impl DaemonPaths {
    /// As the recorded conversations have them.
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
    /// Starts it.
    #[must_use]
    pub fn start(lab: &Lab) -> Self {
        Self::start_with(lab, &[])
    }

    /// Starts it with more options. A directory is given unless one of them gives a file.
    ///
    /// # Panics
    /// If it does not start.
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
        process.wait_for_stderr("it is ready", |line| {
            line.contains("tldrs::serve: ready").then_some(())
        });
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
    /// If it does not listen.
    #[must_use]
    pub fn connect(&self) -> UnixStream {
        UnixStream::connect(&self.socket).unwrap()
    }

    /// A client that says all this, `@OUT@` replaced, and leaves.
    ///
    /// # Panics
    /// If it is not heard to the end.
    pub fn send(&self, text: &str) {
        self.connect()
            .write_all(self.expand_paths(text).as_bytes())
            .unwrap();
    }

    /// The text with `@OUT@` replaced.
    #[must_use]
    pub fn expand_paths(&self, text: &str) -> String {
        text.replace("@OUT@", self.out.to_str().unwrap())
    }

    /// Waits until the trace has these lines and no others.
    pub fn wait_for_trace(&self, trace: &str, lines: &str) {
        self.wait_for_file(&self.data.join(format!("{trace}.jsonl")), lines);
    }

    /// Waits until there is this export.
    pub fn wait_for_export(&self, name: &str, text: &str) {
        self.wait_for_file(&self.out.join(name), text);
    }

    /// Waits until a file has this text.
    ///
    /// # Panics
    /// If it never has.
    pub fn wait_for_file(&self, path: &Path, text: &str) {
        let read = || fs::read(path).unwrap_or_default();
        let is_there = std::panic::catch_unwind(|| {
            wait_until("the file is as it should be", || {
                read() == text.as_bytes() && path.exists()
            });
        });
        let found = read();
        let found = String::from_utf8_lossy(&found);
        assert!(
            is_there.is_ok(),
            "{}: {found}\nshould be: {text}\n{:#?}",
            path.display(),
            self.process.stderr()
        );
    }

    /// What it has complained about so far.
    #[must_use]
    pub fn log(&self) -> Vec<String> {
        self.process.stderr()
    }

    /// Waits until it has logged something with this text.
    pub fn wait_for_log(&mut self, text: &str) {
        self.process
            .wait_for_stderr(text, |line| line.contains(text).then_some(()));
    }

    /// Its process.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// A figure of `/proc/PID/status`, in the unit that it has there.
    ///
    /// # Panics
    /// If it does not run.
    #[must_use]
    pub fn proc_status(&self, name: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// Waits until it has ended of its own accord, which must be soon.
    #[must_use]
    pub fn wait_for_exit(self) -> CompletedProcess {
        self.process.wait_within(SHUTDOWN_TIMEOUT)
    }

    /// Stops it in good order.
    ///
    /// # Panics
    /// If it complains.
    pub fn stop(self) {
        self.signal(Signal::TERM);
        let socket = self.socket.clone();
        let ended = self.wait_for_exit();
        assert!(ended.status.success(), "{:#?}", ended.stderr);
        assert!(!socket.exists(), "the socket stays behind");
    }

    /// Kills it.
    pub fn kill(self) {
        self.signal(Signal::KILL);
        let _ = self.wait_for_exit();
    }
}

/// Runs one of the commands, and gives what it printed if it succeeded.
///
/// # Panics
/// If it cannot be run.
#[must_use]
pub fn run_tldrs(lab: &Lab, arguments: &[&str]) -> CompletedProcess {
    Process::start(lab.command(binaries::tldrs()).args(arguments)).wait()
}
