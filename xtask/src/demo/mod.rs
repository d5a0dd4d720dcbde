//! The main job, live, on defaults: a real program is traced, its events are streamed to our relay and
//! shown while they happen, the trace is left on disk.

mod lttng;
mod tldrs;

use std::io::Write;
use std::time::Duration;

use clap::Args;
use tests::process::Process;

/// What is shown.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Trace a program with LTTng, instead of one that writes to the tldrs socket of our agent
    #[arg(long)]
    lttng: bool,
    /// Events that the program emits which LTTng traces
    #[arg(long, default_value_t = 60, requires = "lttng")]
    events: usize,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    if options.lttng {
        lttng::run(options.events)
    } else {
        tldrs::run()
    }
}

/// How often is looked what a viewer has printed.
const LOOK: Duration = Duration::from_millis(10);

/// A viewer whose lines are printed as they come.
struct Shown {
    viewer: Process,
    printed: usize,
}

impl Shown {
    fn new(viewer: Process) -> Self {
        let printed = 0;
        Self { viewer, printed }
    }

    /// Prints what is new. Whether there may be more.
    fn more(&mut self) -> anyhow::Result<bool> {
        let is_running = self.viewer.is_running();
        let lines = self.viewer.stdout();
        self.print(&lines)?;
        if is_running {
            std::thread::sleep(LOOK);
        }
        Ok(is_running)
    }

    fn print(&mut self, lines: &[String]) -> anyhow::Result<()> {
        print_from(lines, self.printed)?;
        self.printed = lines.len();
        Ok(())
    }

    /// All lines of a viewer that has ended well.
    fn end(self) -> anyhow::Result<Vec<String>> {
        let lines = self.viewer.wait().expect_success();
        print_from(&lines, self.printed)?;
        Ok(lines)
    }
}

fn print_from(lines: &[String], begin: usize) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    for line in lines.iter().skip(begin) {
        writeln!(out, "{line}")?;
    }
    Ok(())
}
