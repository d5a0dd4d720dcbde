//! The `tldrs` daemon with forwarding to a relay: processor time per event from the socket to the
//! relay's files, of all processes together.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tests::lab::Lab;
use tests::relay::Relay;

use super::load::{self, EVENT_BYTES, Writes};
use super::{CLIENTS, LOADS, TURNS};
use crate::process::{cpu, peak_memory};

/// Target, in microseconds per event.
const AIM: f64 = 1.5;

/// Result of one run.
struct Turn {
    events_per_second: f64,
    daemon_us: f64,
    relay_us: f64,
    peak_mb: f64,
}

/// Prints a table of the loads.
pub(super) fn run(program: &Path) {
    println!("\nwith forwarding to relayd, medians of {TURNS} turns; CPU us for an event");
    println!(
        "{:<18}{:>8}{:>12}{:>8}{:>8}{:>8}{:>10}   aim {AIM}",
        "writes", "clients", "events/s", "tldrs", "relayd", "all", "peak MB"
    );
    for (name, writes, events) in LOADS {
        for clients in CLIENTS {
            let mut turns: Vec<_> = (0..TURNS)
                .map(|_| measure(program, writes, clients, events))
                .collect();
            // By the cost of both: what the daemon saves the relay may have to do.
            turns.sort_by(|one, other| {
                let cost = |turn: &Turn| turn.daemon_us + turn.relay_us;
                cost(one).total_cmp(&cost(other))
            });
            let turn = &turns[TURNS / 2];
            println!(
                "{name:<18}{clients:>8}{:>12.0}{:>8.2}{:>8.2}{:>8.2}{:>10.1}",
                turn.events_per_second,
                turn.daemon_us,
                turn.relay_us,
                turn.daemon_us + turn.relay_us,
                turn.peak_mb,
            );
        }
    }
}

fn measure(program: &Path, writes: Writes, clients: usize, events: usize) -> Turn {
    let lab = Lab::new();
    let mut relay = Relay::start(&lab);
    let socket = lab.path().join("socket");
    let data = lab.directory("data");
    let mut daemon = Command::new(program)
        .args(["serve", "--socket"])
        .arg(&socket)
        .arg("-d")
        .arg(&data)
        .args(["-C", &format!("tcp://{}", relay.control)])
        .args(["-D", &format!("tcp://{}", relay.data)])
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    tests::wait_until("the daemon listens", || {
        std::os::unix::net::UnixStream::connect(&socket).is_ok()
    });
    // The clients are this process, whose time does not count.
    let processes = [daemon.id(), relay.process().id()];
    let before = processes.map(cpu);
    let begun = Instant::now();
    load::run(&socket, writes, clients, events / clients);
    let events = events / clients * clients;
    let stored = data.join("load.jsonl");
    let expected = (events * EVENT_BYTES) as u64;
    tests::wait_until("all events are stored", || {
        stored.metadata().map_or(0, |stored| stored.len()) >= expected
    });
    let taken = begun.elapsed();
    // The relay has received everything when no process uses the processor any more.
    let mut last = processes.map(cpu);
    loop {
        std::thread::sleep(QUIET);
        let now = processes.map(cpu);
        if now == last {
            break;
        }
        last = now;
    }
    let us = |at: usize| (last[at] - before[at]).as_secs_f64() * 1e6 / events as f64;
    let turn = Turn {
        events_per_second: events as f64 / taken.as_secs_f64(),
        daemon_us: us(0),
        relay_us: us(1),
        peak_mb: peak_memory(daemon.id()).unwrap() as f64 / 1024.0,
    };
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    turn
}

/// How long all processes must be idle at the end.
const QUIET: Duration = Duration::from_millis(700);
