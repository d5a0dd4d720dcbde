//! Latency from a packet of an LTTng-like producer to its index at a viewer.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tests::lab::Lab;
use tests::relay::Relay;
use tests::viewer::{Viewer, by_channel};
use viewer_proto::index::IndexStatus;
use viewer_proto::session::Seek;

use super::load::{Load, Manner, Sender};
use super::{ROUNDS, Row, Turns, Which};

/// Packets per round.
const PACKETS: usize = 200;
const PAUSE: Duration = Duration::from_millis(5);
/// Time between two index requests of the viewer.
const POLL: Duration = Duration::from_micros(100);

const WATCHED: Load = Load {
    what: "watched",
    aims: ["", ""],
    producers: 1,
    streams: 1,
    packet: 4096,
    bytes: PACKETS * 4096,
    manner: Manner::OneInFlight,
};

const BESIDE: Load = Load {
    what: "beside",
    aims: ["", ""],
    producers: 1,
    streams: 4,
    packet: 64 << 10,
    bytes: 1 << 30,
    manner: Manner::OneInFlight,
};
/// Number of producers that load the relay meanwhile.
const OTHERS: usize = 4;

/// Prints percentiles with and without load from other producers.
pub(super) fn run() {
    for (what, others, aim) in [
        ("live latency, light load", 0, "<= 2 ms"),
        ("live latency, full load", OTHERS, "<= 5 ms"),
    ] {
        let [mut half, mut high] = [(); 2].map(|()| Turns::default());
        for _ in 0..ROUNDS {
            for which in [Which::Reference, Which::Ours] {
                let lab = Lab::new();
                let relay = which.start(&lab);
                let mut taken = measure(&relay, others);
                taken.sort_unstable();
                let ms = |at: usize| taken[at].as_secs_f64() * 1e3;
                half.add(which, ms(PACKETS / 2));
                high.add(which, ms(PACKETS * 99 / 100));
            }
        }
        let row = |unit, aim| Row { what, unit, aim };
        half.print(&row("p50 ms", ""));
        high.print(&row("p99 ms", aim));
    }
}

fn measure(relay: &Relay, others: usize) -> Vec<Duration> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for number in 0..others {
            let mut sender = Sender::open(relay, &format!("beside-{number}"), &BESIDE);
            let stop = &stop;
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    sender.send_round();
                }
            });
        }
        let taken = watch(relay);
        stop.store(true, Ordering::Relaxed);
        taken
    })
}

fn watch(relay: &Relay) -> Vec<Duration> {
    let mut sender = Sender::open(relay, "watched", &WATCHED);
    let (mut viewer, _, streams) = Viewer::attached(relay.live, "watched", Seek::Beginning);
    let stream = by_channel(&streams)["channel_0"];
    let mut taken = Vec::new();
    for _ in 0..PACKETS {
        thread::sleep(PAUSE);
        let begun = Instant::now();
        taken.push(thread::scope(|scope| {
            scope.spawn(|| sender.send_round());
            // Requested more often than viewers do, to measure when the relay has the packet.
            while viewer.next_index(stream).status != IndexStatus::Ready {
                thread::sleep(POLL);
            }
            begun.elapsed()
        }));
    }
    sender.end();
    taken
}
