//! Cost of many idle streams and idle connections.

use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use tests::lab::Lab;
use tests::producer::{Producer, beacon, live_session};

use super::{ROUNDS, Row, Turns, Which};
use crate::process::cpu;

const STREAMS: usize = 10_000;
/// Number of streams in each session.
const STREAMS_EACH: usize = 500;
/// Number of beacons of each stream, to measure the cost of one.
const BEACONS: u64 = 4;

/// Prints memory and file descriptors of idle streams, and the cost of a beacon.
pub(super) fn idle_streams() {
    let [mut memory, mut files, mut beacons] = [(); 3].map(|()| Turns::default());
    for which in [Which::Reference, Which::Ours] {
        let lab = Lab::new();
        let mut relay = which.start(&lab);
        let id = relay.process().id();
        let mut producers = Vec::new();
        for session in 0..STREAMS / STREAMS_EACH {
            let mut producer = Producer::open(&relay, live_session(&format!("idle-{session}")));
            let names: Vec<_> = (0..STREAMS_EACH).map(|at| format!("idle_{at}")).collect();
            let names: Vec<_> = names.iter().map(String::as_str).collect();
            let streams = producer.add_trace("trace", &names);
            producers.push((producer, streams));
        }
        thread::sleep(Duration::from_secs(1));
        memory.add(which, relay.memory() as f64 / 1e6);
        files.add(which, relay.open_files() as f64);
        let before = cpu(id);
        for round in 1..=BEACONS {
            for (producer, streams) in &mut producers {
                for stream in streams {
                    // Later each time: a beacon that goes back is ignored.
                    producer.send_index(*stream, 0, beacon(100 * round));
                }
            }
        }
        let taken = (cpu(id) - before).as_secs_f64();
        beacons.add(which, taken * 1e6 / (STREAMS as u64 * BEACONS) as f64);
    }
    let row = |unit, aim| Row {
        what: "10,000 idle streams",
        unit,
        aim,
    };
    memory.print(&row("MB", "<= 40"));
    files.print(&row("descriptors", "<= 1000"));
    beacons.print(&row("CPU us/beacon", ""));
}

/// How long connections are opened.
const CONNECTING: Duration = Duration::from_millis(500);
/// Number of connections that are open at the same time.
const AT_ONCE: usize = 128;

/// Prints the cost of many connections without data.
pub(super) fn connections() {
    let mut made = Turns::default();
    for _ in 0..ROUNDS {
        for which in [Which::Reference, Which::Ours] {
            let lab = Lab::new();
            let relay = which.start(&lab);
            let address = relay.control;
            let begun = Instant::now();
            let mut count = 0;
            while begun.elapsed() < CONNECTING {
                // Kept open until the burst is complete, so that many are open at the same time.
                let burst: Vec<_> = (0..AT_ONCE)
                    .map(|_| TcpStream::connect(address).unwrap())
                    .collect();
                count += burst.len();
            }
            made.add(which, count as f64 / begun.elapsed().as_secs_f64());
        }
    }
    made.print(&Row {
        what: "connections",
        unit: "1/s",
        aim: ">= 10x",
    });
}
