//! A program that is killed and started again with the same command.

use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use tests::process::{CompletedProcess, Process};

use crate::history::History;

/// The number of last lines of standard error of each run that are printed if the test fails.
const MAX_REPORTED_LINES: usize = 100;

/// The number of last runs that are printed if the test fails.
const MAX_REPORTED_RUNS: usize = 6;

/// A program with its present run, and the output of those that have ended.
pub struct Program {
    name: String,
    command: Box<dyn Fn() -> Command>,
    present: Option<Process>,
    ended: Vec<CompletedProcess>,
    history: History,
}

impl Program {
    /// A program that is not started yet; `command` makes the command of each run.
    pub fn new(history: &History, name: &str, command: impl Fn() -> Command + 'static) -> Self {
        Self {
            name: name.to_owned(),
            command: Box::new(command),
            present: None,
            ended: Vec::new(),
            history: history.clone(),
        }
    }

    /// Starts the program and does not wait until it is ready.
    pub fn start(&mut self) {
        assert!(self.present.is_none(), "{} runs already", self.name);
        self.history.record(&format!("start {}", self.name));
        self.present = Some(Process::start(&mut (self.command)()));
    }

    /// Waits for a line of standard error of the present run that contains `text`.
    pub fn wait_for_log(&mut self, text: &str) {
        self.running().wait_for_stderr_text(text);
    }

    /// Kills the program by SIGKILL, and waits until it has exited.
    pub fn kill(&mut self) {
        self.assert_runs();
        self.running().signal(Signal::KILL);
        self.history.record(&format!("kill {}", self.name));
        let _ = self.wait(Duration::from_secs(10));
    }

    /// Stops the program by SIGTERM, and waits until it has exited with status 0.
    pub fn stop(&mut self) {
        self.assert_runs();
        self.terminate();
        self.finish(Duration::ZERO);
    }

    /// Stops the program by SIGTERM, and waits until it has exited with any status. It may exit by
    /// itself meanwhile.
    pub fn terminate(&mut self) {
        self.running().signal(Signal::TERM);
        self.history.record(&format!("stop {}", self.name));
        let _ = self.wait(Duration::from_secs(60));
    }

    /// Waits until the program exits by itself with status 0.
    pub fn finish(&mut self, timeout: Duration) {
        let ended = match (&self.present, self.ended.last()) {
            (None, Some(ended)) => ended,
            _ => self.wait(timeout),
        };
        let status = ended.status;
        assert!(status.success(), "{}: {status}", self.name);
    }

    /// Ends the present run if the program has exited. Returns whether the last run has ended with
    /// status 1 and has printed `text` on standard error.
    pub fn reap_failed(&mut self, text: &str) -> bool {
        if self.present.is_some() && !self.is_running() {
            let _ = self.wait(Duration::from_secs(10));
        }
        self.present.is_none()
            && self.ended.last().is_some_and(|run| {
                run.status.code() == Some(1) && run.stderr.iter().any(|line| line.contains(text))
            })
    }

    /// Whether the program has been started and has not exited.
    pub fn is_running(&mut self) -> bool {
        self.present.as_mut().is_some_and(Process::is_running)
    }

    /// Checks that the program has not exited by itself.
    pub fn assert_runs(&mut self) {
        assert!(self.is_running(), "{} has exited by itself", self.name);
    }

    /// Returns the output of the runs that have ended.
    pub fn ended(&self) -> &[CompletedProcess] {
        &self.ended
    }

    fn wait(&mut self, timeout: Duration) -> &CompletedProcess {
        let present = self.present.take().expect("the program was started");
        let ended = present.wait_within(timeout);
        self.history
            .record(&format!("{} has ended: {}", self.name, ended.status));
        self.ended.push(ended);
        self.ended.last().expect("a run was added")
    }

    fn running(&mut self) -> &mut Process {
        self.present.as_mut().expect("the program was started")
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        // The present run is reported when its process is dropped.
        let first = self.ended.len().saturating_sub(MAX_REPORTED_RUNS);
        for (number, ended) in self.ended.iter().enumerate().skip(first) {
            let lines = &ended.stderr[ended.stderr.len().saturating_sub(MAX_REPORTED_LINES)..];
            eprintln!("{}, run {number}: {}: {lines:#?}", self.name, ended.status);
        }
    }
}
