//! Applications that LTTng-UST traces, built from `tracee/` when the tests run.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::OnceLock;

use crate::lab::Lab;
use crate::process::Process;
use crate::{peers, wait_until};

/// Runs an application that emits `count` events with a pause after each, until it has exited.
///
/// # Panics
/// If the application fails.
pub fn run(lab: &Lab, count: usize, pause_us: u32, name: &str) {
    start(lab, count, pause_us, name).wait().expect_success();
}

/// Starts an application that emits `count` events with a pause after each. `name` is a field of
/// each event.
#[must_use]
pub fn start(lab: &Lab, count: usize, pause_us: u32, name: &str) -> Process {
    let (count, pause) = (count.to_string(), pause_us.to_string());
    Process::start(
        lab.traced_command(program_in(lab))
            .args([&count, &pause, name]),
    )
}

/// An application that emits events when the test requests them.
#[derive(Debug)]
pub struct TracedApp {
    process: Process,
    stdin: ChildStdin,
    emitted: usize,
}

impl TracedApp {
    /// Starts the application. `name` is a field of each event.
    ///
    /// # Panics
    /// If the application does not start.
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

    /// Emits `count` events, which are in the tracer's buffers when this returns.
    ///
    /// # Panics
    /// If the application has exited.
    pub fn emit(&mut self, count: usize) {
        self.stdin.write_all("\n".repeat(count).as_bytes()).unwrap();
        self.emitted += count;
        wait_until("the events are emitted", || {
            self.process.stdout_line_count() == self.emitted
        });
    }

    /// Closes the standard input, which ends the application, and waits until it has exited.
    ///
    /// # Panics
    /// If the application fails.
    pub fn end(self) {
        drop(self.stdin);
        self.process.wait().expect_success();
    }
}

fn program_in(lab: &Lab) -> PathBuf {
    lab.copy(program(), "tracee")
}

/// Returns the path of the application, which is built at the first call.
///
/// # Panics
/// If the C compiler or LTTng-UST is missing.
pub fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| build("tracee", "tracee.c"))
}

/// Returns the path of a program with the events of a node of ROS 2, which is built at the first
/// call.
///
/// # Panics
/// As [`program`].
pub fn ros2_node() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| build("ros2-node", "ros2.c"))
}

fn build(name: &str, file: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tracee");
    let directory = crate::build_directory();
    let program = directory.join(name);
    // Test processes run at the same time: each builds its own copy and renames it, since another
    // may be running the older copy.
    let new = directory.join(format!("{name}-{}", std::process::id()));
    let mut cc = Command::new(peers::program("cc"));
    cc.args(["-O2", "-Wall", "-I"])
        .arg(&source)
        .arg(source.join(file));
    let built = cc
        .arg("-o")
        .arg(&new)
        .args(["-llttng-ust", "-ldl"])
        .status()
        .unwrap();
    assert!(built.success(), "the traced application cannot be built");
    std::fs::rename(&new, &program).unwrap();
    program
}
