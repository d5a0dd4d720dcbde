//! `relayd` and `lttng-relayd` under the same load, in turns, with their output in memory.
//!
//! The load comes from producers made with `relay-proto`: like LTTng's (one index in flight,
//! Nagle's algorithm on), or like ours (pipelined). Only the ratio is compared: a machine that is
//! slow for a while is slow for both.

mod crowd;
mod fan_out;
mod latency;
pub(crate) mod load;
mod lower_bound;
mod matrix;
mod memory;
pub(crate) mod noise;
mod viewer_load;
mod viewers;

use std::path::Path;

use tests::lab::Lab;
use tests::relay::Relay;

use load::{Done, Load, SendMode};

/// Number of runs per relay.
const ROUNDS: usize = 3;

/// A file system in memory for the relays' output, if it exists.
const MEMORY: &str = "/dev/shm";

/// The relay that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Which {
    Reference,
    Ours,
}

impl Which {
    /// Starts the relay. `RELAYD=PATH` measures the relay of another build, and `BASE_RELAYD=PATH`
    /// compares with one instead of the reference.
    fn start(self, lab: &Lab) -> Relay {
        let variable = match self {
            Self::Reference => "BASE_RELAYD",
            Self::Ours => "RELAYD",
        };
        match (self, std::env::var_os(variable)) {
            (_, Some(relayd)) => Relay::start_from_command(lab, lab.command(relayd)),
            (Self::Reference, None) => Relay::start_reference(lab),
            (Self::Ours, None) => Relay::start(lab),
        }
    }
}

/// A row of the table: load, unit, and target.
struct Row {
    what: &'static str,
    unit: &'static str,
    aim: &'static str,
}

/// Prints a table of the loads, or the part that is asked for.
pub(crate) fn run() {
    let arguments: Vec<_> = std::env::args().skip(2).collect();
    // As long as relays are measured.
    let _kept = memory::Kept::new();
    if let Some((first, options)) = arguments.split_first()
        && first == "--matrix"
    {
        return matrix::run(options);
    }
    match arguments.first().map(String::as_str) {
        Some("--viewers") => return fan_out::run(),
        Some("--lower-bound") => return lower_bound::run(),
        _ => {}
    }
    let only = arguments.first().cloned();
    if Path::new(MEMORY).is_dir() && std::env::var_os("TMPDIR").is_none() {
        println!("# output in the default temporary directory: TMPDIR={MEMORY} keeps disks out");
    }
    println!("# in turns, {ROUNDS} rounds each; medians, and how far rounds lie apart");
    println!(
        "{:<44} {:>12} {:>12} {:>7}  {:>9}  {:<8}",
        "", "lttng-relayd", "relayd", "ratio", "spread", "aim"
    );
    let is_chosen = |name: &str| only.as_deref().is_none_or(|only| name.contains(only));
    for load in LOADS {
        if is_chosen(load.what) {
            loaded(load);
        }
    }
    for (name, part) in PARTS {
        if is_chosen(name) {
            part();
        }
    }
}

/// Benchmarks other than throughput.
const PARTS: &[(&str, fn())] = &[
    ("latency", latency::run),
    (viewers::SMALL.what, viewers::small),
    (viewers::LARGE.what, viewers::large),
    (viewers::PUSHED.what, viewers::pushed),
    (viewers::WATCHED.what, viewers::watched),
    ("idle streams", crowd::idle_streams),
    ("connections", crowd::connections),
];

const MIB: usize = 1 << 20;

const LOADS: &[Load] = &[
    Load {
        what: "1 x 1 MiB packets, one producer",
        aims: ["1.25x", "0.8x"],
        producers: 1,
        streams: 1,
        packet: MIB,
        bytes: 2048 * MIB,
        send_mode: SendMode::OneInFlight,
    },
    Load {
        what: "8 x 256 KiB, one producer",
        aims: ["1.25x", "0.8x"],
        producers: 1,
        streams: 8,
        packet: 256 << 10,
        bytes: 2048 * MIB,
        send_mode: SendMode::OneInFlight,
    },
    Load {
        what: "4 KiB, one producer",
        aims: ["1.4x", "0.7x"],
        producers: 1,
        streams: 4,
        packet: 4096,
        bytes: 160 * MIB,
        send_mode: SendMode::OneInFlight,
    },
    Load {
        what: "4 KiB, 8 producers",
        aims: ["2.5x", "0.5x"],
        producers: 8,
        streams: 4,
        packet: 4096,
        bytes: 240 * MIB,
        send_mode: SendMode::OneInFlight,
    },
    Load {
        what: "4 KiB, one producer, pipelined",
        aims: ["", "0.25x"],
        producers: 1,
        streams: 4,
        packet: 4096,
        bytes: 400 * MIB,
        send_mode: SendMode::Pipelined,
    },
    Load {
        what: "64 KiB, 8 producers",
        aims: ["2x", "0.65x"],
        producers: 8,
        streams: 4,
        packet: 64 << 10,
        bytes: 2048 * MIB,
        send_mode: SendMode::OneInFlight,
    },
];

fn loaded(load: &Load) {
    compare(load, |relay, _| load.run(relay));
}

/// Measures both relays in turns, and prints their throughput and their processor time per packet.
fn compare(load: &Load, measure: impl Fn(&mut Relay, Which) -> Done) {
    let [mut speed, mut cost] = [(); 2].map(|()| Turns::default());
    for _ in 0..ROUNDS {
        for which in [Which::Reference, Which::Ours] {
            // A new relay each time, because one that has run has the sessions of the runs before.
            let lab = Lab::new();
            let done = measure(&mut which.start(&lab), which);
            let packets = (load.bytes / load.packet) as f64;
            speed.add(which, load.bytes as f64 / 1e6 / done.taken.as_secs_f64());
            cost.add(which, done.relay_cpu.as_secs_f64() * 1e6 / packets);
        }
    }
    let [speed_aim, cost_aim] = load.aims;
    let row = |unit, aim| Row {
        what: load.what,
        unit,
        aim,
    };
    speed.print(&row("MB/s", speed_aim));
    cost.print(&row("CPU us/packet", cost_aim));
}

/// The results of both relays, one per round.
#[derive(Debug, Default)]
struct Turns {
    reference: Vec<f64>,
    ours: Vec<f64>,
}

impl Turns {
    fn add(&mut self, which: Which, value: f64) {
        match which {
            Which::Reference => self.reference.push(value),
            Which::Ours => self.ours.push(value),
        }
    }

    /// Prints a row without a value of the reference.
    fn print_ours(mut ours: Vec<f64>, row: &Row) {
        let value = median(&mut ours);
        println!(
            "{:<44} {:>12} {value:>12.1} {:>7}  {:>7.0} %  {:<8}",
            format!("{}, {}", row.what, row.unit),
            "-",
            "",
            spread(&ours) * 100.0,
            row.aim,
        );
    }

    fn print(mut self, row: &Row) {
        let (theirs, ours) = (median(&mut self.reference), median(&mut self.ours));
        let spread = spread(&self.reference).max(spread(&self.ours));
        println!(
            "{:<44} {theirs:>12.1} {ours:>12.1} {:>6.2}x  {:>7.0} %  {:<8}",
            format!("{}, {}", row.what, row.unit),
            ours / theirs,
            spread * 100.0,
            row.aim,
        );
    }
}

pub(crate) fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Difference between the largest and smallest value, relative to the largest.
fn spread(sorted: &[f64]) -> f64 {
    let (first, last) = (sorted[0], sorted[sorted.len() - 1]);
    (last - first) / last.max(f64::MIN_POSITIVE)
}
