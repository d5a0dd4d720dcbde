//! Starting this test program again as a producer.

use std::io::{BufRead, BufReader, Lines, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use tempfile::TempDir;

use crate::reader::{Process, list_directories, read_process};

/// A producer in its own run directory. Killed when dropped.
pub(crate) struct Producer {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
    directory: TempDir,
}

impl Producer {
    /// Starts the scenario with these variables.
    pub(crate) fn start(scenario: &str, variables: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let program = std::env::current_exe().unwrap();
        let mut command = Command::new(program);
        for name in [
            "TRACE_RING",
            "TRACE_RING_SIZE",
            "TRACE_RING_FILTER",
            "TRACE_RING_CLOCK",
        ] {
            command.env_remove(name);
        }
        let mut child = command
            .args(["scenarios::run", "--exact", "--nocapture", "--ignored"])
            .env("SCENARIO", scenario)
            .env("TRACE_RING_DIR", directory.path().join("run"))
            .env("PROGRESS", directory.path().join("progress"))
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self {
            child,
            stdin,
            lines,
            directory,
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until the scenario prints `line` (with the prefix of [`crate::scenarios::say`]).
    pub(crate) fn wait_for(&mut self, line: &str) {
        let wanted = format!("scenario: {line}");
        let found = self.lines.any(|text| text.unwrap().ends_with(&wanted));
        assert!(found, "the producer ended before it printed '{line}'");
    }

    /// Waits for a line of exactly this text.
    pub(crate) fn wait_for_line(&mut self, line: &str) {
        assert!(
            self.lines.any(|text| text.unwrap() == line),
            "no line '{line}'"
        );
    }

    /// Waits for the end of the process; its children can still read standard input.
    pub(crate) fn wait_for_end_but_keep_stdin(&mut self) {
        assert!(self.child.wait().unwrap().success());
    }

    /// Lets the scenario go on.
    pub(crate) fn go_on(&mut self) {
        self.write_line("");
    }

    pub(crate) fn write_line(&mut self, line: &str) {
        writeln!(self.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Closes standard input and waits for a good end; returns what was written to stderr.
    pub(crate) fn finish(&mut self) -> String {
        self.stdin = None;
        for line in self.lines.by_ref() {
            line.unwrap();
        }
        let mut stderr = String::new();
        let mut pipe = self.child.stderr.take().unwrap();
        std::io::Read::read_to_string(&mut pipe, &mut stderr).unwrap();
        assert!(self.child.wait().unwrap().success(), "{stderr}");
        stderr
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn run_directory(&self) -> PathBuf {
        self.directory.path().join("run")
    }

    pub(crate) fn progress_file(&self) -> PathBuf {
        self.directory.path().join("progress")
    }

    /// Returns the process directory of `pid`.
    pub(crate) fn directory_of(&self, pid: u32) -> PathBuf {
        let prefix = format!("{pid}-");
        let is_of = |path: &PathBuf| {
            path.file_name()
                .unwrap()
                .to_str()
                .unwrap()
                .starts_with(&prefix)
        };
        list_directories(&self.run_directory())
            .into_iter()
            .find(is_of)
            .unwrap()
    }

    pub(crate) fn own_directory(&self) -> PathBuf {
        self.directory_of(self.pid())
    }

    /// Returns what the process has left.
    pub(crate) fn read(&self) -> Process {
        read_process(&self.own_directory())
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        // The process may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether the process of a directory is alive: whether it holds its lock.
pub(crate) fn is_alive(directory: &Path) -> bool {
    let meta = std::fs::File::open(directory.join("meta")).unwrap();
    rustix::fs::flock(&meta, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_err()
}
