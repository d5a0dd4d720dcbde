//! The program itself, and how much memory it takes.

use std::io::{BufRead, BufReader, Lines, Read};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::fake::Fake;

/// A running `test-live`, with its output.
pub(crate) struct Program {
    child: Child,
    out: Option<ChildStdout>,
    err: Lines<BufReader<ChildStderr>>,
}

impl Program {
    /// Shows `path` of a relay.
    pub(crate) fn start(fake: &Fake, path: &str, options: &[&str]) -> Self {
        Self::show(&format!("net://{}{path}", fake.address), options, &[])
    }

    /// Shows `target`, with such variables in its environment.
    pub(crate) fn show(target: &str, options: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_test-live"))
            .args(options)
            .arg(target)
            .envs(variables.iter().copied())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let err = BufReader::new(child.stderr.take().unwrap()).lines();
        Self {
            out: child.stdout.take(),
            err,
            child,
        }
    }

    /// Waits until so many lines with `part` in them have been written to standard error.
    pub(crate) fn wait_for_errors(&mut self, part: &str, lines: usize) {
        let (mut seen, mut all) = (0, Vec::new());
        while seen < lines {
            let Some(line) = self.err.next() else {
                panic!("it has ended: {all:#?}");
            };
            all.push(line.unwrap());
            seen += usize::from(all.last().is_some_and(|line| line.contains(part)));
        }
    }

    /// A value of `/proc/PID/status`, in KiB.
    pub(crate) fn memory(&self, name: &str) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(path).unwrap();
        let mut lines = status.lines();
        let line = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let number = line.unwrap().split_whitespace().next().unwrap();
        number.parse().unwrap()
    }

    /// Returns in MiB the largest memory without pages of files, which here are those of the
    /// program itself.
    pub(crate) fn peak_of_own_memory(&self) -> u64 {
        (self.memory("VmHWM") - self.memory("RssFile")) >> 10
    }

    pub(crate) fn take_output(&mut self) -> ChildStdout {
        self.out.take().unwrap()
    }

    /// The lines of the program on standard output.
    pub(crate) fn lines(&mut self) -> Lines<BufReader<ChildStdout>> {
        BufReader::new(self.take_output()).lines()
    }

    /// Asks it to end.
    pub(crate) fn terminate(&self) {
        let id = i32::try_from(self.child.id()).unwrap();
        let id = Pid::from_raw(id).unwrap();
        kill_process(id, Signal::TERM).unwrap();
    }

    /// Waits for its end, and gives what else it has written to standard error.
    pub(crate) fn finish(mut self) -> (bool, String) {
        let mut rest = String::new();
        for line in self.err.by_ref() {
            rest.push_str(&line.unwrap());
            rest.push('\n');
        }
        (self.child.wait().unwrap().success(), rest)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Takes all that comes, so that who writes it is not kept waiting.
pub(crate) fn drain(mut output: impl Read + Send + 'static) {
    std::thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
}
