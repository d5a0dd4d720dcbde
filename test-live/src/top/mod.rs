//! `test-live top`: rates, losses and lag of sessions while they are recorded.
//!
//! The main thread runs sources, mux and `stage`, which counts. Another thread samples the counts
//! and shows them, on a screen (`screen`) or as tables (`batch`): a slow terminal delays no event.
//!
//! Read in this order; each module uses only those before it: `text`, `messages`, `counts`,
//! `stage`, `sampler`, `state` (what keys change), `view`, `batch`, `screen`.

mod batch;
mod counts;
mod messages;
mod sampler;
mod screen;
mod stage;
mod state;
pub(crate) mod text;
mod view;

use std::collections::HashSet;
use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self as std_mpsc, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use daemon::logging;
use daemon::output::stdout;
use jiff::Timestamp;
use tokio::sync::mpsc::{self, Receiver};
use tokio::sync::watch;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use viewer::align::HostAlignment;
use viewer::align::aligner::Aligner;
use viewer::attach::target::Target;
use viewer::attach::{MemoryBudget, SourceEvent};
use viewer::filter::Filter;
use viewer::mux::{Mux, Report, Stage};
use viewer::run::{Outcome, Stop, UsageError};
use viewer::sink::SinkError;
use viewer::sources::{self, EVENT_CAPACITY};
use viewer::turn::Turn;

use self::counts::Counts;
use self::messages::{Messages, Severity};
use self::sampler::Sampler;
use self::screen::ShownScreen;
pub use self::screen::restore_terminal_before_exit;
use self::stage::{CountingStage, FilterRequest};
use self::state::State;
use crate::cli::TopArguments;

/// The number of samples over which rates on the screen are averaged. Events of a live session
/// arrive once per period of its live timer, which is often as long as the time between two
/// samples.
const RATE_WINDOW: usize = 3;

/// Time that the screen has to close. A terminal that takes no output (Ctrl-S) would delay the end
/// for ever.
const SCREEN_CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Shows the rates of the targets until the user quits, or `stop` is requested.
///
/// # Errors
/// If nothing can be read or the output cannot be written.
pub fn run(arguments: &TopArguments, stop: &Stop) -> anyhow::Result<Outcome> {
    check_terminal(arguments)?;
    let filter = match &arguments.filter {
        Some(text) => Some(Filter::parse(text).map_err(|error| UsageError(error.to_string()))?),
        None => None,
    };
    let messages = match arguments.batch {
        true => Messages::to_stderr(),
        false => Messages::for_screen(),
    };
    init_logging(arguments.verbose, &messages);
    let counts = Arc::new(Counts::default());
    let request = Arc::new(FilterRequest::default());
    let mut stage = CountingStage::new(
        Arc::clone(&counts),
        filter,
        Arc::clone(&request),
        messages.clone(),
    );
    let memory = MemoryBudget::default();
    let mut mux = Mux::with_memory(memory.clone());
    // Counts need no order: no event waits for those of another stream.
    mux.set_unordered();
    let (sender, mut source_events) = mpsc::channel(EVENT_CAPACITY);
    stop.set_waker(sender.downgrade());
    // No event is held back: watermarks are not needed.
    let (_held_back, is_held_back) = watch::channel(false);
    let align = arguments.align.by();
    let targets = (&*arguments.targets, arguments.seek.into(), align);
    let opened = sources::open(targets, &memory, &sender, &is_held_back, &mut stage)?;
    let sources = opened.running;
    for (key, trace) in opened.complete {
        mux.add_directory(key, trace, &mut stage)?;
    }
    drop(sender);
    let is_complete = Arc::new(AtomicBool::new(false));
    let display = if arguments.batch {
        Display::start_batch(arguments, counts, stop)?
    } else {
        let screen = ShownScreen {
            state: State {
                title: title(&arguments.targets),
                filter: arguments.filter.clone(),
                ..State::default()
            },
            sampler: Sampler::new(counts, RATE_WINDOW, Instant::now()),
            interval: arguments.interval,
            messages: messages.clone(),
            request,
            is_complete: Arc::clone(&is_complete),
        };
        Display::start("screen", stop, |stop, _| screen.show(&stop))?
    };
    let counting = Counting {
        mux: &mut mux,
        stage: &mut stage,
        aligner: opened.samples.as_ref().map(Aligner::new),
        hosts: HashSet::new(),
        messages: &messages,
    };
    let counted = counting.count_events(&mut source_events, stop);
    is_complete.store(true, Ordering::Relaxed);
    let has_sessions = stage.has_sessions();
    let is_stopped = stop.is_requested();
    if counted.is_err() || !has_sessions && !arguments.batch {
        // There is nothing to look at.
        stop.request();
    }
    for source in &sources {
        source.stop();
    }
    // A source that waits for room in the channel would never end.
    drop(source_events);
    let displayed = display.wait_for_end(stop);
    for source in sources {
        source.join();
    }
    // Only after the screen is left, standard error can be seen.
    messages.write_errors();
    displayed.context("cannot write to the terminal")?;
    counted?;
    let is_over = arguments.iterations.is_some() || !is_stopped;
    if !has_sessions && is_over && stage.failures() == 0 {
        bail!("no live session: nothing was counted");
    }
    Ok(match stage.failures() {
        0 => Outcome::Whole,
        _ => Outcome::Partial,
    })
}

fn check_terminal(arguments: &TopArguments) -> anyhow::Result<()> {
    let has_terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
    if !arguments.batch && !has_terminal {
        let what = "top needs a terminal as standard input and output; --batch prints tables \
                    instead, and -n N as many as N";
        bail!(UsageError(what.to_owned()));
    }
    Ok(())
}

/// Logs to the messages, as `RUST_LOG` says, else as often as `-v` was given.
fn init_logging(verbose: u8, messages: &Messages) {
    let targets = std::env::var("RUST_LOG")
        .ok()
        .and_then(|text| text.parse().ok());
    let layer = tracing_subscriber::fmt::layer()
        .with_writer(messages.clone())
        .with_ansi(false)
        .without_time();
    // In the tests of a program that logs already, its log stays.
    let _ = tracing_subscriber::registry()
        .with(layer)
        .with(targets.unwrap_or_else(|| Targets::new().with_default(logging::level(verbose))))
        .try_init();
}

fn title(targets: &[Target]) -> String {
    let targets: Vec<String> = targets.iter().map(ToString::to_string).collect();
    text::escape_name(&targets.join(" "))
}

/// What counts events.
struct Counting<'a> {
    mux: &'a mut Mux,
    stage: &'a mut CountingStage,
    /// Absent if times are taken as they are.
    aligner: Option<Aligner>,
    /// The hosts that users know of, and whether they are aligned.
    hosts: HashSet<(String, bool)>,
    messages: &'a Messages,
}

impl Counting<'_> {
    /// Counts events until all sources have ended, or `stop` is requested.
    fn count_events(
        mut self,
        source_events: &mut Receiver<SourceEvent>,
        stop: &Stop,
    ) -> Result<(), SinkError> {
        while !stop.is_requested() {
            let turn = Turn::begin();
            while let Some(event) = turn.next_event(source_events) {
                self.handle_event(event)?;
            }
            if let Some(aligner) = &mut self.aligner {
                for aligned in aligner.refresh([&mut *self.mux]) {
                    self.report_host(&aligned.host);
                }
            }
            self.mux.run(self.stage, &|| stop.is_requested())?;
            // Without events, the stage would not look for a request.
            self.stage.apply_filter_request();
            if stop.is_requested() {
                break;
            }
            let Some(event) = source_events.blocking_recv() else {
                self.mux.run(self.stage, &|| stop.is_requested())?;
                break;
            };
            self.handle_event(event)?;
        }
        Ok(())
    }

    /// Tells users how a host is aligned, once, and once that a trace of it is unaligned.
    fn report_host(&mut self, host: &HostAlignment) {
        if self
            .hosts
            .insert((host.host.clone(), host.offset.is_some()))
        {
            self.messages.add(Severity::Notice, &host.to_string());
        }
    }

    /// Handles what a source reports.
    fn handle_event(&mut self, event: SourceEvent) -> Result<(), SinkError> {
        sources::announce_trace(&event, self.stage);
        let metadata_of = event.metadata_of();
        let report = self.mux.handle(event, self.stage)?;
        if let (Some(aligner), Some(trace)) = (&mut self.aligner, metadata_of)
            && let Some(aligned) = aligner.add_metadata(trace, self.mux)
        {
            self.report_host(&aligned.host);
        }
        match report {
            None => {}
            Some(Report::Notice(text)) => self.messages.add(Severity::Notice, &text),
            Some(Report::Missing(text) | Report::Failed(text)) => self.stage.report_failure(&text),
        }
        Ok(())
    }
}

/// The thread that shows the counts.
struct Display {
    thread: JoinHandle<io::Result<()>>,
    /// Closed when the thread has ended.
    ended: std_mpsc::Receiver<()>,
    /// Tells the thread that all sources have ended, by being dropped.
    sources: std_mpsc::Sender<()>,
}

impl Display {
    fn start(
        name: &str,
        stop: &Stop,
        show: impl FnOnce(Stop, std_mpsc::Receiver<()>) -> io::Result<()> + Send + 'static,
    ) -> io::Result<Self> {
        let (alive, ended) = std_mpsc::channel();
        let (sources, have_ended) = std_mpsc::channel();
        let stop = stop.clone();
        let thread = thread::Builder::new().name(name.to_owned());
        let thread = thread.spawn(move || {
            // Dropped when the thread ends, also by a panic.
            let _alive: std_mpsc::Sender<()> = alive;
            show(stop, have_ended)
        })?;
        Ok(Self {
            thread,
            ended,
            sources,
        })
    }

    /// Prints a table after each interval, and one when all sources have ended.
    fn start_batch(arguments: &TopArguments, counts: Arc<Counts>, stop: &Stop) -> io::Result<Self> {
        let (interval, tables) = (arguments.interval, arguments.iterations);
        Self::start("tables", stop, move |stop, have_ended| {
            let printed = print_tables(counts, interval, tables, &stop, &have_ended);
            // When all tables have been printed, nothing has to be counted any more.
            stop.request();
            printed
        })
    }

    /// Waits until the thread has ended, which is the user's decision unless `stop` is requested.
    fn wait_for_end(self, stop: &Stop) -> io::Result<()> {
        drop(self.sources);
        let mut deadline = None;
        loop {
            // Woken by the end at once; only the stop is polled.
            let ended = self.ended.recv_timeout(Duration::from_millis(100));
            if ended == Err(RecvTimeoutError::Disconnected) {
                break;
            }
            if stop.is_requested() {
                let now = Instant::now();
                if now >= *deadline.get_or_insert(now + SCREEN_CLOSE_TIMEOUT) {
                    // The thread still waits for the terminal, and cannot restore it.
                    restore_terminal_before_exit();
                    return Err(io::Error::other("it takes no output"));
                }
            }
        }
        let displayed = self.thread.join();
        displayed.unwrap_or_else(|_| Err(io::Error::other("the thread panicked")))
    }
}

fn print_tables(
    counts: Arc<Counts>,
    interval: Duration,
    tables: Option<u64>,
    stop: &Stop,
    sources_have_ended: &std_mpsc::Receiver<()>,
) -> io::Result<()> {
    let mut sampled_at = Instant::now();
    let mut sampler = Sampler::new(counts, 1, sampled_at);
    let mut printed = 0;
    while tables.is_none_or(|tables| printed < tables) {
        // From the last sample on, so that printing is part of the interval.
        let wait = (sampled_at + interval).saturating_duration_since(Instant::now());
        let waited = sources_have_ended.recv_timeout(wait);
        if stop.is_requested() {
            break;
        }
        let now = Instant::now();
        sampler.sample(now, unix_time());
        let elapsed = now - sampled_at;
        sampled_at = now;
        // Written at once, so that messages do not come between the rows.
        let mut table = Vec::new();
        let time = format!("{:.0}", Timestamp::now());
        batch::write_table(&mut table, &sampler, &time, elapsed)?;
        let mut out = stdout();
        out.write_all(&table)?;
        out.flush()?;
        printed += 1;
        if waited == Err(RecvTimeoutError::Disconnected) {
            break;
        }
    }
    Ok(())
}

/// Returns the current time, in nanoseconds since 1970.
fn unix_time() -> i64 {
    i64::try_from(Timestamp::now().as_nanosecond()).unwrap_or(i64::MAX)
}
