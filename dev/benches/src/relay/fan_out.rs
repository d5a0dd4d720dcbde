//! Many viewers on one session: how much of its speed the producer keeps, what a viewer costs in
//! memory, and whether each gets its share. And the cost of connections that are idle.

use std::thread;
use std::time::{Duration, Instant};

use tests::lab::Lab;
use tests::producer::{Producer, live_session};

use super::load::{Load, SendMode, Sender};
use super::viewer_load::{Discovery, ViewerLoad};
use super::{MIB, ROUNDS, Which, median};
use crate::process::cpu;

/// The load of the producer, whatever the number of viewers is.
const LOAD: Load = Load {
    what: "viewers on one session",
    aims: ["", ""],
    producers: 1,
    streams: 4,
    packet: 64 << 10,
    bytes: 1024 * MIB,
    send_mode: SendMode::OneInFlight,
};
const SESSION: &str = "watched";

/// The numbers of viewers that are attached, a row for each.
const VIEWERS: [usize; 5] = [0, 1, 16, 100, 1000];

/// Sessions and viewers without traffic: a control and a data connection for each session.
const IDLE_SESSIONS: usize = 250;
const IDLE_VIEWERS: usize = 500;
const IDLE_TIME: Duration = Duration::from_secs(20);

/// The result of one run with a number of viewers.
struct Run {
    /// Megabytes per second of the producer.
    speed: f64,
    /// Bytes per second of all viewers together, in megabytes.
    viewed: f64,
    /// Bytes that the slowest viewer has read, relative to those of the median viewer.
    fairness: f64,
    /// Resident memory for each viewer, in KiB.
    memory: f64,
}

/// Prints the rows, and the cost of idle connections.
pub(super) fn run() {
    println!("# one producer, 4 streams of 64 KiB packets; medians of {ROUNDS} rounds");
    println!(
        "{:<10}{:>8} {:>14} {:>8} {:>14} {:>20} {:>16}",
        "",
        "viewers",
        "producer MB/s",
        "kept",
        "viewers MB/s",
        "slowest / median",
        "KiB per viewer"
    );
    for discovery in [Discovery::Polled, Discovery::Pushed] {
        let mut alone = None;
        for viewers in VIEWERS {
            let runs: Vec<_> = (0..ROUNDS).map(|_| watched(viewers, discovery)).collect();
            let of =
                |value: fn(&Run) -> f64| median(&mut runs.iter().map(value).collect::<Vec<_>>());
            let speed = of(|run| run.speed);
            println!(
                "{:<10}{viewers:>8} {speed:>14.0} {:>6.0} % {:>14.0} {:>20.2} {:>16.1}",
                format!("{discovery:?}").to_lowercase(),
                // The first row has no viewers: it is what the producer could have.
                speed / *alone.get_or_insert(speed) * 100.0,
                of(|run| run.viewed),
                of(|run| run.fairness),
                of(|run| run.memory),
            );
        }
    }
    idle();
}

fn watched(viewers: usize, discovery: Discovery) -> Run {
    let lab = Lab::new();
    let relay = Which::Ours.start(&lab);
    let mut sender = Sender::open(&relay, SESSION, &LOAD);
    // So that the streams are listed, and the buffers of the producer's connections are no part of
    // the viewers' memory.
    sender.send_round();
    let before = relay.memory();
    let load = ViewerLoad::start(relay.live, SESSION, viewers, discovery);
    let begun = Instant::now();
    sender.send_all();
    let taken = begun.elapsed().as_secs_f64();
    let (memory, read) = (relay.memory(), load.bytes_read());
    let middle = read.get(read.len() / 2).copied().unwrap_or_default();
    Run {
        speed: LOAD.bytes as f64 / 1e6 / taken,
        viewed: read.iter().sum::<u64>() as f64 / 1e6 / taken,
        // Without viewers there is no median.
        fairness: read.first().copied().unwrap_or_default() as f64 / (middle as f64).max(1.0),
        memory: memory.saturating_sub(before) as f64 / 1024.0 / viewers.max(1) as f64,
    }
}

/// Prints the processor time of a relay with idle connections, relative to the time that passes.
fn idle() {
    let lab = Lab::new();
    let mut relay = Which::Ours.start(&lab);
    let names: Vec<_> = (0..IDLE_SESSIONS).map(|at| format!("idle-{at}")).collect();
    let _producers: Vec<_> = names
        .iter()
        .map(|name| {
            let mut producer = Producer::open(&relay, live_session(name));
            producer.add_trace("trace", &["channel_0"]);
            producer
        })
        .collect();
    let before = relay.memory();
    let _viewers = ViewerLoad::start(relay.live, "idle-0", IDLE_VIEWERS, Discovery::Idle);
    let memory = (relay.memory() - before) as f64 / 1024.0 / IDLE_VIEWERS as f64;
    let id = relay.process().id();
    // The files of the streams are closed meanwhile.
    thread::sleep(IDLE_TIME);
    let before = cpu(id);
    thread::sleep(IDLE_TIME);
    let used = (cpu(id) - before).as_secs_f64() / IDLE_TIME.as_secs_f64();
    println!(
        "{} idle connections: {:.3} % CPU, {memory:.1} KiB per attached viewer",
        2 * IDLE_SESSIONS + IDLE_VIEWERS,
        used * 100.0
    );
}
