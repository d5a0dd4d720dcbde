//! The run: joins sources, mux and sink, and returns how it ended.

mod merge;

use std::collections::HashSet;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use daemon::output::{print_message, stdout, write_json};
use serde::Serialize;
use tokio::sync::mpsc::{self, Sender};
use tokio::sync::watch;
use viewer::align::AlignBy;
use viewer::align::aligner::Aligner;
use viewer::align::live::SampleSources;
use viewer::attach::archive::{ArchiveOptions, ArchiveSource};
use viewer::attach::follow::{self, FollowOptions};
use viewer::attach::target::{ArchiveTarget, RelayTarget, Target};
use viewer::attach::{MemoryBudget, SourceEvent, SourceHandle, list, relay};
use viewer::bound::{Bound, TypedTime};
use viewer::directories::{self, DirectoryOptions};
use viewer::filter::Filter;
use viewer::mux::{Mux, Stage};
use viewer::run::{Outcome, Stop, UsageError};
use viewer::select::{Select, Selection, Tally};
use viewer::sink::{Finished, Needs, OpenSink, SinkError};
use viewer::sources::{EVENT_CAPACITY, not_aligned};
use viewer_proto::session::Seek;

use self::merge::{Merge, SourceChannels};
use crate::cli::{Arguments, NotFound, ReadArguments};
use crate::sink::text::{ClockFormat, Times};

/// Time for which the events of other targets wait for those of a relay that has gone away.
const HOLD_TIMEOUT: Duration = Duration::from_secs(120);

/// Where the events of a run go.
pub struct RunOutput<'a> {
    /// The option or command that selects the output, for messages.
    pub name: String,
    /// What the sink needs of the events.
    pub needs: Needs,
    /// The format of times in messages.
    pub clock: ClockFormat,
    /// Largest number of events that are shown. Absent if there is no limit.
    pub limit: Option<u64>,
    /// Whether the output is written to standard output, and that is a terminal.
    pub is_terminal: bool,
    /// Opens the sink. The argument says whether further sessions may come when all that exist have
    /// ended.
    pub open: &'a dyn Fn(bool) -> anyhow::Result<OpenSink>,
}

/// Does what the command line says, until the sources end or `stop` is set.
///
/// # Errors
/// If nothing can be read or the output cannot be written.
pub fn run(arguments: &Arguments, stop: &Stop) -> anyhow::Result<Outcome> {
    if arguments.list {
        return list_sessions(arguments);
    }
    let path = arguments.output.as_deref();
    let (sink, options) = (arguments.sink, &arguments.options);
    let endpoint = arguments.read.archive.archive_endpoint.as_deref();
    let output = RunOutput {
        name: format!("--sink {}", sink.name),
        needs: sink.needs,
        clock: options.text.clock(),
        limit: arguments.limit,
        is_terminal: path.is_none() && io::stdout().is_terminal(),
        open: &|is_endless| sink.open(path, options, endpoint, is_endless),
    };
    show_selected_events(&arguments.read, &output, stop)
}

/// Reads events, and shows those that are selected to `output`, until the sources end or `stop` is
/// set.
///
/// # Errors
/// If nothing can be read or the output cannot be written.
pub fn show_selected_events(
    arguments: &ReadArguments,
    output: &RunOutput<'_>,
    stop: &Stop,
) -> anyhow::Result<Outcome> {
    let mut complete = Vec::new();
    let mut growing = Vec::new();
    let mut relays = Vec::new();
    let mut archives = Vec::new();
    for target in &arguments.targets {
        match target {
            Target::Archive(archive) => archives.push(open_archive(archive)?),
            Target::Directory(path) if is_followed(arguments, path)? => growing.push(path.clone()),
            Target::Directory(path) => complete.push(path.clone()),
            Target::Relay(relay) => relays.push(relay.clone()),
        }
    }
    let are_alone = relays.is_empty() && growing.is_empty() && archives.is_empty();
    let mut select = open_select(arguments, output, are_alone)?;
    let samples = open_samples(arguments, are_alone, &growing, &complete)?;
    let memory = MemoryBudget::default();
    let mut mux = Mux::with_memory(memory.clone());
    if !output.needs.order {
        // Without an order, no stream waits for another.
        mux.set_unordered();
    }
    let mut sliced = None;
    if !complete.is_empty() {
        let options = directory_options(arguments, output);
        let alignment = samples.as_ref().map(SampleSources::alignment);
        let traces = directories::open(&complete, options, alignment, &mut select)?;
        let threads = arguments.threads.map(usize::from);
        // Events of other sources would have to be put in order with those of slices.
        let slices = are_alone.then_some(threads);
        sliced = directories::add(traces, slices, &mut mux, &mut select)?;
    }
    let (sender, source_events) = mpsc::channel(EVENT_CAPACITY);
    let (held_back, is_held_back) = watch::channel(false);
    let mut sources = start_sources(
        (arguments, output),
        relays,
        growing,
        &memory,
        &sender,
        &is_held_back,
    )?;
    for archive in archives {
        let options = ArchiveOptions {
            corrections: samples.as_ref().map(SampleSources::corrections),
            ..archive_options((arguments, output), &memory)
        };
        sources.push(archive.spawn(options, sender.clone(), is_held_back.clone())?);
    }
    // Wakes the main thread when it waits for an event and shall stop; does not keep it waiting.
    stop.set_waker(sender.downgrade());
    drop(sender);
    let channels = SourceChannels {
        source_events,
        held_back,
    };
    let shown = match sliced {
        Some(sliced) => sliced.show(&mut mux, &memory, &mut select, &|| stop.is_requested()),
        None => Ok(()),
    };
    let mut merge = Merge {
        mux: &mut mux,
        select: &mut select,
        aligner: samples.as_ref().map(Aligner::new),
        hosts: HashSet::new(),
        quiet: arguments.quiet,
    };
    let shown = shown.and_then(|()| merge.show_events(channels, stop));
    select.clear_progress_bar();
    // All are asked to stop before any is waited for.
    for source in &sources {
        source.stop();
    }
    // Before the sources are joined: one may still wait for its relay.
    let ended = shown.and_then(|()| select.finish());
    for source in sources {
        source.join();
    }
    match ended {
        // Nobody reads any more, from standard output or a FIFO: that is their right, and silent.
        Err(SinkError::Write(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            Ok(outcome(arguments, select.tally()))
        }
        ended => Ok(report_end(arguments, ended?, stop, &mut select)),
    }
}

/// Begins to read samples of clocks, if they are wanted and not all in complete directories:
/// `are_alone` says whether they are.
fn open_samples(
    arguments: &ReadArguments,
    are_alone: bool,
    growing: &[PathBuf],
    complete: &[PathBuf],
) -> anyhow::Result<Option<SampleSources>> {
    match arguments.align.by() {
        Some(AlignBy::Network) if !are_alone => {
            bail!(UsageError(AlignBy::NETWORK_NEEDS.to_owned()));
        }
        Some(AlignBy::Samples) if !are_alone => {}
        _ => return Ok(None),
    }
    if let Some(growing) = growing.first() {
        let what = not_aligned(growing);
        bail!(UsageError(format!("{what}, or add --no-follow")));
    }
    let mut traces = Vec::new();
    if !complete.is_empty() {
        // Failures are reported when the events are read.
        traces = directories::open_traces(complete, |_| ())?;
    }
    let (samples, is_late) = SampleSources::open(&arguments.targets, &traces)?;
    if is_late && !arguments.quiet {
        print_message(format_args!(
            "test-live: the samples of clocks are not read yet: hosts are unaligned until they are"
        ));
    }
    Ok(Some(samples))
}

/// Opens the sink, and before it the selection of events.
fn open_select(
    arguments: &ReadArguments,
    output: &RunOutput<'_>,
    are_complete: bool,
) -> anyhow::Result<Select> {
    let is_bounded = arguments.begin.is_some() || arguments.end.is_some();
    let times = Times::new(ClockFormat {
        // Users compare the times of losses with those of --begin and --end.
        date: is_bounded || output.clock.date,
        ..output.clock.clone()
    });
    let selection = selection(arguments, output)?;
    let sink = (output.open)(is_endless(arguments))?;
    let mut select = Select::new(selection, sink, output.needs, times.into_writer());
    // Of complete directories this is known before their events.
    if !are_complete && !arguments.quiet && arguments.align.by().is_none() {
        select.watch_differences();
    }
    if let Some(debug_info) = arguments.debug_info.open() {
        select.set_debug_info(debug_info);
    }
    Ok(select)
}

/// Reports what there is to say at the end, and returns what that makes of the run.
fn report_end(
    arguments: &ReadArguments,
    finished: Finished,
    stop: &Stop,
    select: &mut Select,
) -> Outcome {
    for warning in finished.warnings {
        select.report_warning(&warning);
    }
    if let Some(summary) = finished.summary.filter(|_| !arguments.quiet) {
        print_message(format_args!("test-live: {summary}"));
    }
    // A run that was stopped may not have come to the events that match.
    let has_matched = stop.is_requested() || report_no_match(arguments, finished.missing, select);
    match outcome(arguments, select.tally()) {
        Outcome::Whole if !has_matched => Outcome::Partial,
        outcome => outcome,
    }
}

fn directory_options(arguments: &ReadArguments, output: &RunOutput<'_>) -> DirectoryOptions {
    DirectoryOptions {
        // On a terminal, events and the progress bar would write over each other.
        shows_progress: !arguments.quiet && !output.is_terminal,
        is_intersection: arguments.stream_intersection,
        align: arguments.align.by(),
        is_quiet: arguments.quiet,
    }
}

/// Starts to read from relays, and from directories that grow.
fn start_sources(
    (arguments, output): (&ReadArguments, &RunOutput<'_>),
    relays: Vec<RelayTarget>,
    growing: Vec<PathBuf>,
    memory: &MemoryBudget,
    sender: &Sender<SourceEvent>,
    is_held_back: &watch::Receiver<bool>,
) -> anyhow::Result<Vec<SourceHandle>> {
    let mut sources = Vec::new();
    for target in relays {
        let options = relay::RelayOptions {
            memory: memory.clone(),
            ..relay_options(arguments, output.needs, &target)
        };
        let is_held_back = is_held_back.clone();
        sources.push(relay::spawn(target, options, sender.clone(), is_held_back)?);
    }
    for directory in growing {
        let options = FollowOptions {
            wait: arguments.follow,
            memory: memory.clone(),
            ..FollowOptions::default()
        };
        sources.push(follow::spawn(directory, options, sender.clone())?);
    }
    Ok(sources)
}

fn open_archive(target: &ArchiveTarget) -> anyhow::Result<ArchiveSource> {
    let cannot = || format!("cannot read {target}");
    ArchiveSource::open(target.clone()).with_context(cannot)
}

fn archive_options(
    (arguments, output): (&ReadArguments, &RunOutput<'_>),
    memory: &MemoryBudget,
) -> ArchiveOptions {
    let zone = output.clock.zone();
    // A time of the day is a time only when the first event is known: all is fetched then.
    let nanoseconds = |time: TypedTime| match time.in_zone(&zone) {
        Bound::At(time) => Some(time),
        Bound::OfDay(..) => None,
    };
    ArchiveOptions {
        // What is mapped in a process may have been told before.
        begin: arguments
            .begin
            .filter(|_| !arguments.debug_info.is_on())
            .and_then(nanoseconds),
        end: arguments.end.and_then(nanoseconds),
        may_be_missing: arguments.session_not_found == Some(NotFound::End),
        memory: memory.clone(),
        ..ArchiveOptions::default()
    }
}

/// Whether more may come of a directory, and is waited for.
fn is_followed(arguments: &ReadArguments, directory: &Path) -> anyhow::Result<bool> {
    let cannot = || format!("cannot read {}", directory.display());
    let is_written = || follow::is_live(directory).with_context(cannot);
    Ok(!arguments.no_follow && (arguments.follow || is_written()?))
}

/// Reports that there were events and none was selected, or none has a counter. Returns false if
/// that is an error.
fn report_no_match(
    arguments: &ReadArguments,
    mut descriptions: Vec<String>,
    select: &mut Select,
) -> bool {
    if select.tally().events == 0 {
        // What selected no event says why there was nothing.
        descriptions.clear();
    }
    descriptions.extend(select.describe_no_match());
    let is_allowed = arguments.session_not_found == Some(NotFound::End);
    let severity = if is_allowed { "" } else { "error: " };
    if !(is_allowed && arguments.quiet) {
        for description in &descriptions {
            print_message(format_args!("test-live: {severity}{description}"));
        }
    }
    is_allowed || descriptions.is_empty()
}

fn outcome(arguments: &ReadArguments, tally: Tally) -> Outcome {
    let lost = !tally.lost.is_empty();
    let is_incomplete = tally.incomplete > 0;
    // A summary is only worth a line if something was unusual.
    if !arguments.quiet && (lost || is_incomplete || tally.failures > 0 || arguments.verbose > 0) {
        let mut summary = format!("{} events shown", tally.events);
        if lost {
            summary.push_str(&format!("; lost: {}", tally.lost));
        }
        if is_incomplete {
            summary.push_str(&format!("; {} incomplete", tally.incomplete));
        }
        if tally.failures > 0 {
            summary.push_str(&format!("; {} failures", tally.failures));
        }
        print_message(format_args!("test-live: {summary}"));
    }
    if tally.failures > 0 || is_incomplete || arguments.strict && lost {
        Outcome::Partial
    } else {
        Outcome::Whole
    }
}

fn selection(arguments: &ReadArguments, output: &RunOutput<'_>) -> anyhow::Result<Selection> {
    let zone = output.clock.zone();
    let filter = match &arguments.filter {
        Some(text) => Some(Filter::parse(text).map_err(|error| UsageError(error.to_string()))?),
        None => None,
    };
    let RunOutput { name, needs, .. } = output;
    let is_partial = filter.is_some()
        || output.limit.is_some()
        || arguments.begin.is_some()
        || arguments.end.is_some()
        || arguments.align.by().is_some()
        || arguments.debug_info.is_on();
    if let Some(whole) = needs.whole.filter(|_| is_partial) {
        bail!(UsageError(format!(
            "{name} {whole}: it cannot be used with --align, --begin, --end, --filter, --limit or --debug-info"
        )));
    }
    let begin = arguments.begin.map(|time| time.in_zone(&zone));
    let end = arguments.end.map(|time| time.in_zone(&zone));
    // A time of the day is a time only when the first event is known.
    if let (Some(Bound::At(begin)), Some(Bound::At(end))) = (&begin, &end)
        && begin > end
    {
        bail!(UsageError("--begin is later than --end".to_owned()));
    }
    Ok(Selection {
        begin,
        end,
        filter,
        limit: output.limit,
        is_strict: arguments.strict,
    })
}

/// Whether further sessions may come when all that exist have ended.
fn is_endless(arguments: &ReadArguments) -> bool {
    let is_whole_relay = |target: &Target| match target {
        Target::Relay(relay) => relay.session.is_none(),
        Target::Archive(_) | Target::Directory(_) => false,
    };
    !arguments.no_follow && arguments.targets.iter().any(is_whole_relay)
}

fn relay_options(
    arguments: &ReadArguments,
    needs: Needs,
    target: &RelayTarget,
) -> relay::RelayOptions {
    // A whole relay is watched until it is left; a session until it ends.
    let follow = (target.session.is_none() || arguments.follow) && !arguments.no_follow;
    let needs_begin = needs.begin;
    let missing = match arguments.session_not_found {
        Some(NotFound::Continue) => relay::Missing::Wait,
        Some(NotFound::Fail) => relay::Missing::Fail,
        Some(NotFound::End) => relay::Missing::End,
        None if follow => relay::Missing::Wait,
        None => relay::Missing::Fail,
    };
    relay::RelayOptions {
        seek: match arguments.seek {
            _ if needs_begin => Seek::Beginning,
            seek => seek.into(),
        },
        missing,
        // A producer that is started again opens another session of the same name; the sink says
        // when to exit.
        follow: follow || needs_begin && !arguments.no_follow,
        retry: follow && !arguments.no_retry,
        reconnect_timeout: match arguments.reconnect_timeout {
            _ if arguments.no_retry => Some(Duration::ZERO),
            seconds => seconds.map(Duration::from_secs),
        },
        // A single relay has nothing to delay but its own events, whose order would be wrong.
        hold_timeout: (arguments.targets.len() > 1).then_some(HOLD_TIMEOUT),
        push: !arguments.poll,
        ..relay::RelayOptions::default()
    }
}

fn list_sessions(arguments: &Arguments) -> anyhow::Result<Outcome> {
    let mut out = stdout();
    let mut outcome = Outcome::Whole;
    for target in &arguments.read.targets {
        match target {
            Target::Relay(target) => {
                let connect_timeout = relay::RelayOptions::default().connect_timeout;
                let listing = list::list(target, connect_timeout)?;
                write_listing(&listing, arguments.json, &mut out)?;
            }
            Target::Archive(target) => {
                let listed = open_archive(target)?.list(|failure| {
                    outcome = Outcome::Partial;
                    print_message(format_args!("test-live: error: {target}: {failure}"));
                });
                let listing = listed.with_context(|| format!("cannot list {target}"))?;
                write_listing(&listing, arguments.json, &mut out)?;
            }
            Target::Directory(_) => {
                let what = format!("cannot list sessions: {target}: a directory, not a relay");
                bail!(UsageError(what));
            }
        }
    }
    out.flush()?;
    Ok(outcome)
}

fn write_listing(
    listing: &(impl Serialize + Display),
    is_json: bool,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    if is_json {
        write_json(listing, out)?;
    } else {
        write!(out, "{listing}")?;
    }
    Ok(())
}
