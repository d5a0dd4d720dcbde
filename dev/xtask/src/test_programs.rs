//! Runs the test programs of the workspace, several at the same time, because most tests wait for
//! other programs most of the time. `cargo test` runs one after the other.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use anyhow::{Context, bail};
use serde_json::Value;

/// Test programs that run at the same time.
const PROGRAMS: usize = 2;

/// Tests of one program that run at the same time.
const TEST_THREADS: &str = "4";

/// The programs that take longest: they begin first. `web` and `links` are not at the same time:
/// each needs the processor more than others do.
const LONGEST: [&str; 6] = [
    "web",
    "packages",
    "interop",
    "archive",
    "reconnect",
    "links",
];

/// Most bytes of what the failed tests of a program have printed that are repeated at the end.
const REPEATED_BYTES: usize = 20_000;

/// A test program that cargo has built.
#[derive(Debug)]
struct Program {
    /// Name of the test target, or of the package whose unit tests it has.
    name: String,
    executable: PathBuf,
    /// Directory of the package, in which cargo would run the program.
    directory: PathBuf,
}

/// Builds and runs all test programs, and prints their output: the lines of tests as they come, the
/// rest when a program has ended.
///
/// # Errors
/// If a program cannot be built or run, or a test fails.
pub(crate) fn run() -> anyhow::Result<()> {
    let mut programs = build()?;
    // The longest first, so that no program is left over at the end.
    let rank = |program: &Program| {
        let rank = LONGEST.iter().position(|name| *name == program.name);
        rank.unwrap_or(LONGEST.len())
    };
    programs.sort_by_key(rank);
    let queue = Mutex::new(VecDeque::from(programs));
    let failed = Mutex::new(Vec::new());
    let next = || queue.lock().ok()?.pop_front();
    let lane = || {
        while let Some(program) = next() {
            // The others run all the same, so that one run shows all failures.
            if let Err(error) = program.run()
                && let Ok(mut failed) = failed.lock()
            {
                failed.push(format!("{}: {error:#}", program.name));
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..PROGRAMS {
            scope.spawn(lane);
        }
    });
    let failed = failed.into_inner().unwrap_or_default();
    if !failed.is_empty() {
        bail!("tests failed:\n{}", failed.join("\n"));
    }
    Ok(())
}

/// Builds all test programs.
fn build() -> anyhow::Result<Vec<Program>> {
    let mut cargo = peers::cargo::command();
    cargo.args(["test", "--workspace", "--no-run"]);
    // The messages tell where the programs are, and errors stay readable.
    cargo.arg("--message-format=json-render-diagnostics");
    let mut child = cargo.stdout(Stdio::piped()).spawn()?;
    let messages = BufReader::new(child.stdout.take().context("cargo has no output")?);
    let mut programs = Vec::new();
    for line in messages.lines() {
        let message: Value = serde_json::from_str(&line?)?;
        programs.extend(Program::from_message(&message));
    }
    if !child.wait()?.success() {
        bail!("the tests cannot be built");
    }
    Ok(programs)
}

impl Program {
    /// The test program of which a message of cargo tells. None: the message is about something
    /// else.
    fn from_message(message: &Value) -> Option<Self> {
        let is_test = message.pointer("/profile/test")?.as_bool()?;
        let executable = message.get("executable")?.as_str().filter(|_| is_test)?;
        let manifest = PathBuf::from(message.get("manifest_path")?.as_str()?);
        let directory = manifest.parent()?.to_owned();
        let target = message.pointer("/target/name")?.as_str()?;
        let kind = message.pointer("/target/kind/0")?.as_str()?;
        let name = match kind {
            "test" => target.to_owned(),
            _ => format!("unit tests of {target} ({kind})"),
        };
        Some(Self {
            name,
            executable: executable.into(),
            directory,
        })
    }

    fn run(&self) -> anyhow::Result<()> {
        let begun = Instant::now();
        let mut child = Command::new(&self.executable)
            .current_dir(&self.directory)
            // As `cargo test` runs it: tests find their data by these.
            .env("CARGO_MANIFEST_DIR", &self.directory)
            .env("RUST_TEST_THREADS", TEST_THREADS)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let rest = print_tests(&mut child)?;
        let status = child.wait()?;
        let seconds = begun.elapsed().as_secs();
        // By one call: other programs print meanwhile.
        println!("\n{} ({seconds} s):\n{rest}", self.name);
        if !status.success() {
            // Otherwise it is lost between what the other programs print.
            bail!("{status}\n{}", failures(&rest));
        }
        Ok(())
    }
}

/// Prints a line for each test that ends. Returns the other lines of standard output.
fn print_tests(child: &mut Child) -> anyhow::Result<String> {
    let output = child.stdout.take().context("the program has no output")?;
    let mut rest = String::new();
    // By bytes, because a test may print what is no text.
    for line in BufReader::new(output).split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        if line.starts_with("test ") && line.contains(" ... ") {
            println!("{line}");
        } else if !line.is_empty() {
            rest.push_str(&line);
            rest.push('\n');
        }
    }
    Ok(rest)
}

/// What the failed tests of a program have printed, up to [`REPEATED_BYTES`].
fn failures(output: &str) -> &str {
    let begin = output.find("\nfailures:\n").unwrap_or(0);
    let end = output.floor_char_boundary(begin.saturating_add(REPEATED_BYTES));
    &output[begin..end]
}
