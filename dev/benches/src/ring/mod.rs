//! What an event costs the thread that writes it: `trace-ring`, called directly and through
//! `tracing`, beside LTTng-UST and two subscribers of `tracing`.
//!
//! The value is the processor time of the calling thread, for batches of events of one thread that
//! stays on one processor. Systems are measured in turns. Rings in overwrite mode need no drainer;
//! a session of LTTng-UST in snapshot mode has none either. In discard mode both are drained to
//! files, and nothing may be lost. The buffers of both have the same size. LTTng-UST adds no
//! context fields, although the rings have ids and name of the thread.
//!
//! A part of a row's name as argument selects rows.

pub(crate) mod load;
mod lttng;

use std::path::PathBuf;
use std::process::{Command, Stdio};

use lttng::Lttng;
use rustix::process::Signal;
use tests::lab::Lab;
use tests::process::Process;

use crate::process::build;
use crate::relay::median;

/// The number of turns of each row.
const ROUNDS: usize = 5;
/// Batches that are measured in a turn.
const BATCHES: usize = 5;
/// Events of a batch and thread. The rings in discard mode have room for two batches.
const EVENTS: usize = 100_000;
/// Events of a batch and thread, if they are disabled: an event takes a nanosecond or so.
const DISABLED_EVENTS: usize = 10_000_000;
/// Events of a batch and thread, with more than one thread: long enough for the scheduler to spread
/// them.
const PARALLEL_EVENTS: usize = 1_000_000;
/// Pause before a batch in discard mode, in which the buffers are drained, in milliseconds.
const DRAIN_PAUSE_MS: usize = 150;
/// The content of the string field.
const TEXT: &str = "GET /index.html";
/// Where rings are made: a file system in memory.
const RINGS: &str = "/dev/shm";

/// The effect of a full buffer on an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Overwrite,
    Discard,
}

impl Mode {
    /// Sub-buffers of a ring.
    const SUB_BUFFERS: usize = 16;

    fn name(self) -> &'static str {
        match self {
            Self::Overwrite => "overwrite",
            Self::Discard => "discard",
        }
    }

    /// Size of the buffer of a thread or processor.
    fn ring_bytes(self) -> usize {
        match self {
            Self::Overwrite => 1 << 20,
            Self::Discard => 16 << 20,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum System {
    Lttng,
    Fmt,
    Chrome,
    Direct,
    Layer,
}

impl System {
    /// The name of the system as an argument of the load.
    fn argument(self) -> &'static str {
        match self {
            Self::Lttng => "lttng",
            Self::Fmt => "fmt",
            Self::Chrome => "chrome",
            Self::Direct => "direct",
            Self::Layer => "layer",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Lttng => "LTTng-UST",
            Self::Fmt => "tracing, fmt to a sink",
            Self::Chrome => "tracing-chrome to a sink",
            Self::Direct => "trace-ring, event!",
            Self::Layer => "trace-ring, tracing",
        }
    }
}

/// A row of the table: an event in a system.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Row {
    event: &'static str,
    system: System,
    /// `None` for systems without rings, and for disabled events.
    mode: Option<Mode>,
    threads: usize,
    /// Nanoseconds that the median is to be below.
    aim: Option<f64>,
}

/// The rows of a table, with those of LTTng-UST before those that are compared with them.
fn rows() -> Vec<Row> {
    let row = |event, system, mode, threads, aim| Row {
        event,
        system,
        mode,
        threads,
        aim,
    };
    let (overwrite, discard) = (Some(Mode::Overwrite), Some(Mode::Discard));
    let mut rows = Vec::new();
    for event in ["ints", "text"] {
        rows.extend([
            row(event, System::Lttng, overwrite, 1, None),
            row(event, System::Direct, overwrite, 1, Some(40.0)),
            row(event, System::Layer, overwrite, 1, Some(60.0)),
            row(event, System::Lttng, discard, 1, None),
            row(event, System::Direct, discard, 1, Some(40.0)),
            row(event, System::Layer, discard, 1, Some(60.0)),
            row(event, System::Fmt, None, 1, None),
            row(event, System::Chrome, None, 1, None),
        ]);
    }
    let disabled = |system, aim| row("disabled", system, None, 1, aim);
    rows.extend([
        disabled(System::Lttng, None),
        disabled(System::Direct, Some(2.0)),
        disabled(System::Layer, Some(2.0)),
        disabled(System::Fmt, None),
        disabled(System::Chrome, None),
    ]);
    for threads in [1, 4] {
        rows.extend([
            row("parallel", System::Lttng, overwrite, threads, None),
            row("parallel", System::Direct, overwrite, threads, None),
            row("parallel", System::Layer, overwrite, threads, None),
        ]);
    }
    rows
}

impl Row {
    /// The event as an argument of the load.
    fn argument(&self) -> &'static str {
        match self.event {
            "parallel" => "ints",
            other => other,
        }
    }

    fn events(&self) -> usize {
        match self.event {
            "disabled" => DISABLED_EVENTS,
            "parallel" => PARALLEL_EVENTS,
            _ => EVENTS,
        }
    }

    fn name(&self) -> String {
        let event = match self.event {
            "ints" => "two ints",
            "text" => "two ints, string",
            other => other,
        };
        let mode = self.mode.map_or("", Mode::name);
        let system = self.system.name();
        format!("{event:<16}  {system:<24}  {mode:<9}  {:>7}", self.threads)
    }
}

/// The values of all batches of a row.
#[derive(Debug, Default, Clone)]
struct Values {
    /// Processor time of an event in nanoseconds.
    costs: Vec<f64>,
    /// Events per second of all threads.
    rates: Vec<f64>,
    lost: u64,
}

/// Prints a table of the systems and events.
pub(crate) fn run() {
    let only = std::env::args().nth(2);
    let mut rows = rows();
    rows.retain(|row| only.as_deref().is_none_or(|only| row.name().contains(only)));
    // Rings in memory, as in a run directory: a disk would add its own time to an event.
    let (lab, rings) = (Lab::new(), Lab::new_in(RINGS.as_ref()));
    let bench = Bench {
        lttng: Lttng::start(&lab),
        consumer: build("consumer"),
        lab: &lab,
        rings: &rings,
    };
    let mut values = vec![Values::default(); rows.len()];
    for round in 0..ROUNDS {
        for turn in 0..rows.len() {
            // Each row comes first in some round.
            let at = (turn + round * rows.len() / ROUNDS) % rows.len();
            bench.measure(&rows[at], &mut values[at]);
        }
    }
    print(&rows, &mut values);
}

fn print(rows: &[Row], values: &mut [Values]) {
    println!(
        "# processor time of the writing thread in ns per event, {} batches in {ROUNDS} turns",
        ROUNDS * BATCHES
    );
    println!("# LTTng x: that of LTTng-UST in the same mode over this; events/s: of all threads");
    println!(
        "{:<16}  {:<24}  {:<9}  {:>7}  {:>7} {:>17} {:>8} {:>12} {:>6}  aim",
        "event", "system", "mode", "threads", "p50", "range", "LTTng x", "events/s", "lost"
    );
    let medians: Vec<_> = values
        .iter_mut()
        .map(|values| (median(&mut values.costs), median(&mut values.rates)))
        .collect();
    for (at, row) in rows.iter().enumerate() {
        let (cost, rate) = medians[at];
        let of_lttng = Row {
            system: System::Lttng,
            aim: None,
            ..*row
        };
        // Not there if rows were selected by their names.
        let lttng = rows.iter().position(|other| *other == of_lttng);
        let ratio = lttng.map(|lttng| medians[lttng].0 / cost);
        let costs = &values[at].costs;
        let min = costs.iter().copied().fold(f64::MAX, f64::min);
        let max = costs.iter().copied().fold(0.0, f64::max);
        println!(
            "{}  {cost:>7.2} {:>17} {:>8} {rate:>12.0} {:>6}  {}",
            row.name(),
            format!("{min:.2}-{max:.2}"),
            ratio.map_or(String::new(), |ratio| format!("{ratio:.2}")),
            values[at].lost,
            aim(row, cost, ratio)
        );
    }
    let processors = std::thread::available_parallelism().unwrap();
    for (at, row) in rows.iter().enumerate() {
        let single = Row { threads: 1, ..*row };
        if row.threads > 1
            && let Some(single) = rows.iter().position(|other| *other == single)
        {
            println!(
                "{}: {} threads write {:.2} times the events per second of one on {processors} processors, \
                 an event takes {:.2} times the processor time",
                row.system.name(),
                row.threads,
                medians[at].1 / medians[single].1,
                medians[at].0 / medians[single].0,
            );
        }
    }
}

/// The aims of a row, and whether they are met.
fn aim(row: &Row, cost: f64, ratio: Option<f64>) -> String {
    if !matches!(row.system, System::Direct | System::Layer) {
        return String::new();
    }
    let word = |is_met| if is_met { "met" } else { "missed" };
    let mut aims = Vec::new();
    if let Some(aim) = row.aim {
        aims.push(format!("< {aim} ns: {}", word(cost < aim)));
    }
    if let Some(ratio) = ratio {
        aims.push(format!("< LTTng: {}", word(ratio > 1.0)));
    }
    aims.join(", ")
}

/// The programs and directories that all runs share.
struct Bench<'a> {
    lttng: Lttng<'a>,
    consumer: PathBuf,
    lab: &'a Lab,
    rings: &'a Lab,
}

impl Bench<'_> {
    /// Runs a row once.
    fn measure(&self, row: &Row, values: &mut Values) {
        let has_session = row.system == System::Lttng && row.mode.is_some();
        if let (true, Some(mode)) = (has_session, row.mode) {
            self.lttng.start_session(row.argument(), mode);
        }
        let is_drained = row.mode == Some(Mode::Discard);
        let drainer = (is_drained && !has_session).then(|| self.start_drainer());
        // In overwrite mode nobody reads, so that there is nothing to wait for.
        let pause = if is_drained { DRAIN_PAUSE_MS } else { 0 };
        let mut command = match row.system {
            System::Lttng => self.lttng.command(),
            _ => self.load_command(row),
        };
        command
            .arg(row.argument())
            .args([row.threads, BATCHES, row.events(), pause].map(|number| number.to_string()))
            .arg(TEXT)
            .stdin(Stdio::piped());
        let mut process = Process::start(&mut command);
        let stdin = process.stdin();
        tests::wait_until("all batches are measured", || {
            assert!(process.is_running(), "{:?}", process.stderr());
            process.stdout().last().is_some_and(|line| line == "end")
        });
        // While the process runs: its rings may be removed when it has ended.
        if has_session {
            values.lost += self.lttng.end_session();
        } else if row.mode == Some(Mode::Discard) {
            values.lost += self.lost_in_rings(process.id());
        }
        drop(stdin);
        let lines = process.wait().expect_success();
        if let Some(drainer) = drainer {
            // A recording ends with that, and writes what is left.
            drainer.signal(Signal::INT);
            drainer.wait().expect_success();
        }
        for line in lines.iter().take_while(|line| *line != "end") {
            let (cost, rate) = line.split_once(' ').unwrap();
            values.costs.push(cost.parse().unwrap());
            values.rates.push(rate.parse().unwrap());
        }
        // The next run finds no rings of this one.
        let _ = std::fs::remove_dir_all(self.rings.directory("rings"));
    }

    /// The command of this program as the load, with the arguments up to the system.
    fn load_command(&self, row: &Row) -> Command {
        let mode = row.mode.unwrap_or(Mode::Overwrite);
        let is_disabled = row.event == "disabled";
        let mut command = self.lab.command(std::env::current_exe().unwrap());
        command
            .args([load::NAME, row.system.argument()])
            .env("TRACE_RING_DIR", self.rings.directory("rings"))
            .env("TRACE_RING", mode.name())
            .env("TRACE_RING_SIZE", mode.ring_bytes().to_string())
            .env(
                "TRACE_RING_FILTER",
                if is_disabled { "off" } else { "info" },
            );
        command
    }

    fn rings_command(&self) -> Command {
        let mut command = self.lab.command(&self.consumer);
        command.arg("rings").arg("--ring");
        command.arg(self.rings.directory("rings"));
        command
    }

    /// Starts a recording of all rings.
    fn start_drainer(&self) -> Process {
        let output = self.lab.directory("recorded");
        let mut command = self.rings_command();
        let mut drainer = Process::start(command.arg("-v").arg("--record").arg(output));
        drainer.wait_for_stderr_text("consumer::frontend::ring: rings");
        drainer
    }

    /// The number of events that the rings of a process have lost.
    fn lost_in_rings(&self, process: u32) -> u64 {
        let process = process.to_string();
        let mut list = self.rings_command();
        let table = Process::start(list.args(["--list", "--pid", &process]))
            .wait()
            .expect_success();
        let column = table[0].split_whitespace().position(|word| word == "LOST");
        let column = column.unwrap_or(10);
        let lost = |line: &String| line.split_whitespace().nth(column)?.parse::<u64>().ok();
        table.iter().skip(1).filter_map(lost).sum()
    }
}
