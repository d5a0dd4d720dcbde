//! The main job, live, with the default options: a program is traced, its events are streamed to
//! the relay and shown while they happen, and the trace stays on disk. `tests/demo` does it; this
//! builds what it needs.

use clap::Args;

use crate::{packages, stage};

/// The variant of the demonstration.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Trace a program with LTTng, instead of one that writes to the tldrs socket of the consumer
    #[arg(long)]
    lttng: bool,
    /// Kill a program that writes to shared-memory rings, and show its last events
    #[arg(long, conflicts_with = "lttng")]
    ring: bool,
    /// Trace a program until it is interrupted, and print a URL that shows it in a browser
    #[arg(long, conflicts_with_all = ["lttng", "ring"])]
    web: bool,
    /// Run three relays with one archive, kill the one that records and remove its output, and show
    /// that no event is lost
    #[arg(long, conflicts_with_all = ["lttng", "ring", "web"])]
    fleet: bool,
    /// Number of events that the program traced by LTTng emits
    #[arg(long, default_value_t = 60, requires = "lttng")]
    events: usize,
}

/// What all variants run: the second one compiles nothing new.
const TARGETS: [&str; 5] = [
    "--bin=demo",
    "--bin=relayd",
    "--bin=consumer",
    "--bin=test-live",
    "--bin=ring-writer",
];

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let arguments = if options.lttng {
        packages::install_missing()?;
        vec!["lttng".to_owned(), options.events.to_string()]
    } else if options.ring {
        vec!["ring".to_owned()]
    } else if options.web {
        vec!["web".to_owned()]
    } else if options.fleet {
        vec!["fleet".to_owned()]
    } else {
        vec!["tldrs".to_owned()]
    };
    stage::build(
        "compiling the programs (the first time 4 minutes on two processors)",
        &TARGETS,
    )?;
    stage::announce("starting them");
    stage::run_built("demo", &arguments)
}
