//! `test-live info`: what traces are at a glance.
//!
//! Time range, size and streams of a directory come from the heads of its packets. The events are
//! decoded only for their numbers by name, the processes and the losses.

mod contents;
mod report;

use std::io::Write;
use std::path::PathBuf;

use ctf::directory::TraceDirectory;
use daemon::output::{print_message, stdout};
use viewer::attach::target::Target;
use viewer::attach::{MemoryBudget, TraceKey, list, relay};
use viewer::directories::open_traces;
use viewer::mux::Mux;
use viewer::progress;
use viewer::run::Outcome;
use viewer::select::{Select, Selection};
use viewer::sink::{Needs, OpenSink};

use self::contents::Contents;
use self::report::Report;
use crate::cli::InfoArguments;
use crate::sink::text::{ClockFormat, Times};

/// Prints what the targets of the command line are.
///
/// # Errors
/// If a target cannot be read or standard output cannot be written.
pub fn run(arguments: &InfoArguments) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome::Whole;
    let mut out = stdout();
    let mut directories: Vec<PathBuf> = Vec::new();
    for target in &arguments.targets {
        match target {
            Target::Directory(directory) => directories.push(directory.clone()),
            Target::Relay(target) => {
                let timeout = relay::RelayOptions::default().connect_timeout;
                let listing = list::list(target, timeout)?;
                if target.session.is_some() && listing.sessions.is_empty() {
                    outcome = Outcome::Partial;
                    print_message(format_args!("test-live: error: {target}: no such session"));
                }
                if arguments.json {
                    writeln!(out, "{}", serde_json::to_string_pretty(&listing)?)?;
                } else {
                    report::write_sessions(&listing, &mut out)?;
                }
            }
        }
    }
    if !directories.is_empty() {
        let traces = open_traces(&directories, |what| {
            outcome = Outcome::Partial;
            print_message(format_args!("test-live: error: {what}"));
        })?;
        // First, because decoding the events takes the traces.
        let mut report = Report::of_traces(&traces);
        if !arguments.no_events {
            let (contents, failures) = read_contents(traces)?;
            report.set_contents(&contents);
            if failures > 0 {
                outcome = Outcome::Partial;
            }
        }
        if arguments.json {
            writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?;
        } else {
            write!(out, "{report}")?;
        }
    }
    out.flush()?;
    Ok(outcome)
}

/// Decodes all events. Returns what they are, and how many failures were reported.
fn read_contents(traces: Vec<TraceDirectory>) -> anyhow::Result<(Contents, u64)> {
    let (sink, contents) = contents::counting_sink();
    let times = Times::new(ClockFormat::default());
    let sink = OpenSink::Events(Box::new(sink));
    let mut select = Select::new(
        Selection::default(),
        sink,
        Needs::EVENTS,
        times.into_writer(),
    );
    select.set_progress_bar(progress::of_directories(&traces, false));
    let mut mux = Mux::with_memory(MemoryBudget::default());
    for trace in traces {
        mux.add_directory(TraceKey::fresh(), trace, &mut select)?;
    }
    // A signal just ends the program: nothing that it has written must be completed.
    mux.run(&mut select, &|| false)?;
    select.clear_progress_bar();
    select.finish()?;
    let failures = select.tally().failures;
    Ok((contents.take(), failures))
}
