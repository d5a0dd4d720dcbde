//! The demonstration of `cargo xtask demo`: a program is traced, its events are streamed to the
//! relay and shown while they happen, and the trace stays on disk.
//!
//! `demo tldrs` traces programs that write to the tldrs socket of the consumer; `demo lttng EVENTS`
//! traces a program with LTTng; `demo ring` kills a program that writes to shared-memory rings;
//! `demo web` shows a program in a browser; `demo fleet` kills one of three relays.

mod fleet;
mod lttng;
mod ring;
mod tldrs;
mod web;

use std::io::Write;
use std::time::Duration;

use anyhow::{Context, bail};
use tests::binaries;
use tests::process::Process;

fn main() -> anyhow::Result<()> {
    // Before anything is traced: the session could be over before a viewer that has to be built
    // attaches to it.
    binaries::test_live();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["tldrs"] => tldrs::run(),
        ["ring"] => ring::run(),
        ["web"] => web::run(),
        ["fleet"] => fleet::run(),
        ["lttng", events] => lttng::run(events.parse().context("EVENTS is not a number")?),
        _ => bail!("usage: demo tldrs | demo ring | demo web | demo fleet | demo lttng EVENTS"),
    }
}

/// The interval at which the output of the viewer is read.
const READ_INTERVAL: Duration = Duration::from_millis(10);

/// A viewer whose lines are printed as they come.
struct ViewerOutput {
    viewer: Process,
    printed: usize,
    /// Number of lines after which only their number is printed.
    max: usize,
}

impl ViewerOutput {
    fn new(viewer: Process) -> Self {
        Self::of_screen(viewer, usize::MAX)
    }

    /// Prints `max` lines, and then only how many more there were.
    fn of_screen(viewer: Process, max: usize) -> Self {
        let printed = 0;
        Self {
            viewer,
            printed,
            max,
        }
    }

    /// Prints the new lines. Returns whether there may be more.
    fn print_new(&mut self) -> anyhow::Result<bool> {
        let is_running = self.viewer.is_running();
        let lines = self.viewer.stdout();
        self.print_lines(&lines)?;
        if is_running {
            std::thread::sleep(READ_INTERVAL);
        }
        Ok(is_running)
    }

    fn print_lines(&mut self, lines: &[String]) -> anyhow::Result<()> {
        print_between(lines, self.printed, self.max)?;
        self.printed = lines.len();
        Ok(())
    }

    /// Waits for the viewer to exit with success, and returns all its lines.
    fn finish(self) -> anyhow::Result<Vec<String>> {
        let lines = self.viewer.wait().expect_success();
        print_between(&lines, self.printed, self.max)?;
        if let Some(more @ 1..) = lines.len().checked_sub(self.max) {
            println!("... and {more} more lines");
        }
        Ok(lines)
    }
}

fn print_between(lines: &[String], begin: usize, end: usize) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    for line in lines.iter().take(end).skip(begin) {
        writeln!(out, "{line}")?;
    }
    Ok(())
}
