//! `test-live info`: what traces are at a glance.
//!
//! Time range, size and streams of a directory come from the heads of its packets, those of an
//! archive from the directories of its objects. The events are decoded only for their numbers by
//! name, the processes and the losses.

mod contents;
mod messages;
mod report;

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use ctf::directory::TraceDirectory;
use daemon::output::{print_message, stdout, write_json};
use tokio::sync::{mpsc, watch};
use viewer::align::AlignedHosts;
use viewer::attach::archive::{ArchiveOptions, ArchiveSource, ArchivedTrace};
use viewer::attach::target::{ArchiveTarget, Target};
use viewer::attach::{MemoryBudget, SourceHandle, TraceKey, list, relay};
use viewer::directories::open_traces;
use viewer::mux::{Mux, Report as SourceReport, Stage};
use viewer::progress;
use viewer::run::Outcome;
use viewer::select::{Select, Selection};
use viewer::sink::{Needs, OpenSink};
use viewer::sources::EVENT_CAPACITY;

use self::contents::Contents;
use self::report::{Report, TraceSummary};
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
    let mut archives = Vec::new();
    for target in &arguments.targets {
        match target {
            Target::Directory(directory) => directories.push(directory.clone()),
            Target::Archive(target) => archives.push(target.clone()),
            Target::Relay(target) => {
                let timeout = relay::RelayOptions::default().connect_timeout;
                let listing = list::list(target, timeout)?;
                if target.session.is_some() && listing.sessions.is_empty() {
                    outcome = Outcome::Partial;
                    print_message(format_args!("test-live: error: {target}: no such session"));
                }
                if arguments.json {
                    write_json(&listing, &mut out)?;
                } else {
                    report::write_sessions(&listing, &mut out)?;
                }
            }
        }
    }
    if !(directories.is_empty() && archives.is_empty()) {
        let mut report_failure = |what: &str| {
            outcome = Outcome::Partial;
            print_message(format_args!("test-live: error: {what}"));
        };
        let mut traces = Vec::new();
        if !directories.is_empty() {
            traces = open_traces(&directories, &mut report_failure)?;
        }
        let hosts = AlignedHosts::of_traces(&mut traces, None, arguments.align.by());
        for remark in hosts.remarks() {
            print_message(format_args!("test-live: {remark}"));
        }
        let (archives, archived) = open_archives(archives, report_failure)?;
        // First, because decoding the events takes the traces.
        let of_directories = traces.iter().map(TraceSummary::of_directory);
        let of_archives = archived.iter().map(TraceSummary::of_archive);
        let mut report = Report::of_traces(of_directories.chain(of_archives));
        report.set_offsets(hosts.hosts());
        if !arguments.no_events {
            let (mut contents, failures) = read_contents(traces, archives)?;
            if failures > 0 {
                outcome = Outcome::Partial;
            }
            contents.losses.is_partial = outcome == Outcome::Partial;
            report.set_contents(&contents);
        }
        if arguments.json {
            write_json(&report, &mut out)?;
        } else {
            write!(out, "{report}")?;
        }
    }
    out.flush()?;
    Ok(outcome)
}

/// Opens archives, and describes the traces of their sessions.
fn open_archives(
    targets: Vec<ArchiveTarget>,
    mut report_failure: impl FnMut(&str),
) -> anyhow::Result<(Vec<ArchiveSource>, Vec<ArchivedTrace>)> {
    let (mut archives, mut traces) = (Vec::new(), Vec::new());
    for target in targets {
        let cannot = || format!("cannot read {target}");
        let archive = ArchiveSource::open(target.clone()).with_context(cannot)?;
        let summary = archive.summary(&mut report_failure).with_context(cannot)?;
        for notice in summary.notices {
            print_message(format_args!("test-live: {notice}"));
        }
        traces.extend(summary.traces);
        archives.push(archive);
    }
    Ok((archives, traces))
}

/// Decodes all events. Returns what they are, and how many failures were reported.
fn read_contents(
    traces: Vec<TraceDirectory>,
    archives: Vec<ArchiveSource>,
) -> anyhow::Result<(Contents, u64)> {
    let (sink, contents) = contents::counting_sink();
    let times = Times::new(ClockFormat::default());
    let sink = OpenSink::Events(Box::new(sink));
    let mut select = Select::new(
        Selection::default(),
        sink,
        Needs::EVENTS,
        times.into_writer(),
    );
    if archives.is_empty() {
        select.set_progress_bar(progress::of_directories(&traces, false));
    }
    let memory = MemoryBudget::default();
    let mut mux = Mux::with_memory(memory.clone());
    for trace in traces {
        mux.add_directory(TraceKey::fresh(), trace, &mut select)?;
    }
    let (sender, mut events) = mpsc::channel(EVENT_CAPACITY);
    let (held_back, is_held_back) = watch::channel(false);
    let mut sources = Vec::new();
    for archive in archives {
        let options = ArchiveOptions {
            memory: memory.clone(),
            ..ArchiveOptions::default()
        };
        sources.push(archive.spawn(options, sender.clone(), is_held_back.clone())?);
    }
    drop(sender);
    // A signal just ends the program: nothing that it has written must be completed.
    while let Some(event) = events.blocking_recv() {
        match mux.handle(event, &mut select)? {
            Some(SourceReport::Missing(what)) => select.report_missing(&what),
            Some(SourceReport::Failed(what)) => select.report_failure(&what),
            // The archives have been opened once, and said it then.
            Some(SourceReport::Notice(_)) | None => {}
        }
        mux.run(&mut select, &|| false)?;
        held_back.send_replace(mux.holds_back());
    }
    mux.run(&mut select, &|| false)?;
    select.clear_progress_bar();
    select.finish()?;
    sources.into_iter().for_each(SourceHandle::join);
    let failures = select.tally().failures + select.tally().incomplete;
    Ok((contents.take(), failures))
}
