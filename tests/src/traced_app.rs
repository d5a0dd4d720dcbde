//! The program that is traced, built from `tracee/` when the tests run.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::OnceLock;

use crate::lab::Lab;
use crate::process::Process;
use crate::{peers, wait_until};

/// Emits so many events with a pause in between, and waits until it has ended.
///
/// # Panics
/// If it fails.
pub fn run(lab: &Lab, count: usize, pause_us: u32, name: &str) {
    start(lab, count, pause_us, name).wait().expect_success();
}

/// Begins to emit so many events with a pause in between.
#[must_use]
pub fn start(lab: &Lab, count: usize, pause_us: u32, name: &str) -> Process {
    let (count, pause) = (count.to_string(), pause_us.to_string());
    Process::start(
        lab.traced_command(program_in(lab))
            .args([&count, &pause, name]),
    )
}

/// A program that emits an event whenever it is told to.
#[derive(Debug)]
pub struct TracedApp {
    process: Process,
    stdin: ChildStdin,
    emitted: usize,
}

impl TracedApp {
    /// Starts it.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn start(lab: &Lab, name: &str) -> Self {
        let mut command = lab.traced_command(program_in(lab));
        command.args(["-", "0", name]).stdin(Stdio::piped());
        let mut process = Process::start(&mut command);
        let stdin = process.stdin().unwrap();
        Self {
            process,
            stdin,
            emitted: 0,
        }
    }

    /// Emits so many events; they are in the tracer's buffers when this returns.
    ///
    /// # Panics
    /// If the program has ended.
    pub fn emit(&mut self, count: usize) {
        self.stdin.write_all("\n".repeat(count).as_bytes()).unwrap();
        self.emitted += count;
        wait_until("the events are out", || {
            self.process.stdout().len() == self.emitted
        });
    }

    /// Ends it and waits until it has.
    ///
    /// # Panics
    /// If it fails.
    pub fn end(self) {
        drop(self.stdin);
        self.process.wait().expect_success();
    }
}

fn program_in(lab: &Lab) -> PathBuf {
    lab.copy(program(), "tracee")
}

/// The program.
///
/// # Panics
/// If it cannot be built.
pub fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(build)
}

fn build() -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tracee");
    let directory = crate::build_directory();
    let program = directory.join("tracee");
    // Each process builds its own and puts it in place in one step: others may be running it.
    let new = directory.join(format!("tracee-{}", std::process::id()));
    let mut cc = Command::new(peers::program("cc"));
    cc.args(["-O2", "-Wall", "-I"])
        .arg(&source)
        .arg(source.join("tracee.c"));
    let built = cc
        .arg("-o")
        .arg(&new)
        .args(["-llttng-ust", "-ldl"])
        .status()
        .unwrap();
    assert!(built.success(), "the traced program cannot be built");
    std::fs::rename(&new, &program).unwrap();
    program
}
