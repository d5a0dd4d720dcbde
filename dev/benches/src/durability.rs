//! What `relayd --durability` costs: the same load at each level, in turns, with the output on the
//! file system of the build directory (a level costs nothing on a file system in memory).
//!
//! `BASE_RELAYD=PATH` adds the relay of another build, for example one from before a change, as
//! level `base`. A part of a row's name as argument selects rows.

use std::path::PathBuf;
use std::process::Command;

use tests::lab::Lab;
use tests::relay::Relay;

use crate::relay::load::{Done, Load, SendMode};
use crate::relay::median;

/// Number of runs per level. Odd, so that a median is one of them.
const ROUNDS: usize = 5;

/// A relay that is measured.
#[derive(Debug, Clone)]
enum Level {
    /// The program of another build.
    Base(PathBuf),
    /// The relay of this build, with `--durability`.
    Durability(&'static str),
}

/// The level that the others are compared with.
const PROCESS: Level = Level::Durability("process");

impl Level {
    fn name(&self) -> &'static str {
        match self {
            Self::Base(_) => "base",
            Self::Durability(level) => level,
        }
    }

    /// Minimum throughput relative to `process`.
    fn aim(&self) -> &'static str {
        match self {
            // `process` within 5 % of the relay before.
            Self::Base(_) => "<= 1.05x",
            Self::Durability("packet") => "0.60x",
            Self::Durability(_) => "",
        }
    }

    fn start(&self, lab: &Lab) -> Relay {
        match self {
            Self::Base(program) => Relay::start_from_command(lab, lab.command(program)),
            Self::Durability(level) => Relay::start_with(lab, &[&format!("--durability={level}")]),
        }
    }
}

const MIB: usize = 1 << 20;

/// A load of one producer with four streams. A producer that waits for each reply sends less,
/// because each of its packets is a round of its own.
const fn load(what: &'static str, packet: usize, bytes: usize, send_mode: SendMode) -> Load {
    Load {
        what,
        aims: ["", ""],
        producers: 1,
        streams: 4,
        packet,
        bytes,
        send_mode,
    }
}

const LOADS: &[Load] = &[
    load("4 KiB, pipelined", 4096, 320 * MIB, SendMode::Pipelined),
    load(
        "64 KiB, pipelined",
        64 << 10,
        1024 * MIB,
        SendMode::Pipelined,
    ),
    load("1 MiB, pipelined", MIB, 1024 * MIB, SendMode::Pipelined),
    load(
        "4 KiB, one in flight",
        4096,
        48 * MIB,
        SendMode::OneInFlight,
    ),
    load(
        "64 KiB, one in flight",
        64 << 10,
        512 * MIB,
        SendMode::OneInFlight,
    ),
    load(
        "1 MiB, one in flight",
        MIB,
        1024 * MIB,
        SendMode::OneInFlight,
    ),
    Load {
        producers: 8,
        ..load(
            "4 KiB, 8 producers, one in flight",
            4096,
            96 * MIB,
            SendMode::OneInFlight,
        )
    },
];

/// Prints a table of the relays and loads.
pub(crate) fn run() {
    let only = std::env::args().nth(2);
    let mut levels: Vec<Level> = std::env::var_os("BASE_RELAYD")
        .map(|program| Level::Base(program.into()))
        .into_iter()
        .collect();
    levels.push(PROCESS);
    levels.extend(["interval", "packet"].map(Level::Durability));
    println!(
        "# in turns, {ROUNDS} rounds each; ratios of a round to process in the same round: median, range"
    );
    println!(
        "{:<36} {:<9} {:>9} {:>7} {:>15} {:>13}  aim",
        "", "level", "MB/s", "ratio", "range", "CPU us/packet"
    );
    for load in LOADS {
        if only.as_deref().is_none_or(|only| load.what.contains(only)) {
            measure(load, &levels);
        }
    }
}

/// The throughput in MB/s, and the processor time per packet in microseconds, of each round.
#[derive(Debug, Default, Clone)]
struct Rounds {
    speed: Vec<f64>,
    cost: Vec<f64>,
}

fn measure(load: &Load, levels: &[Level]) {
    let mut all = vec![Rounds::default(); levels.len()];
    let packets = (load.bytes / load.packet) as f64;
    for round in 0..ROUNDS {
        for turn in 0..levels.len() {
            // Each level comes first in some round.
            let at = (turn + round) % levels.len();
            let Done { taken, relay_cpu } = measure_once(load, &levels[at]);
            all[at]
                .speed
                .push(load.bytes as f64 / 1e6 / taken.as_secs_f64());
            all[at].cost.push(relay_cpu.as_secs_f64() * 1e6 / packets);
        }
    }
    let process = levels.iter().position(|level| level.name() == "process");
    let process = all[process.unwrap()].speed.clone();
    for (level, mut rounds) in levels.iter().zip(all) {
        // Of one round each, because the speed of a disk changes from round to round.
        let ratios = rounds.speed.iter().zip(&process);
        let mut ratios: Vec<f64> = ratios.map(|(speed, process)| speed / process).collect();
        let ratio = median(&mut ratios);
        let range = format!("{:.2} to {:.2}", ratios[0], ratios[ratios.len() - 1]);
        println!(
            "{:<36} {:<9} {:>9.0} {ratio:>6.2}x {range:>15} {:>13.1}  {}",
            load.what,
            level.name(),
            median(&mut rounds.speed),
            median(&mut rounds.cost),
            level.aim(),
        );
    }
}

fn measure_once(load: &Load, level: &Level) -> Done {
    // On a disk, while the temporary directory may be in memory.
    let directory = tests::build_directory();
    let lab = Lab::new_in(&directory);
    let done = load.run(&mut level.start(&lab));
    drop(lab);
    // What a level has left unwritten must not be written while the next is measured.
    let synced = Command::new("sync").arg("-f").arg(directory).status();
    assert!(synced.unwrap().success());
    done
}
