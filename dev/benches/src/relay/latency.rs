//! Latency from a packet of an LTTng-like producer to its index at a viewer.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use tests::lab::Lab;
use tests::relay::Relay;
use tests::viewer::{Viewer, by_channel};
use viewer_proto::index::IndexStatus;
use viewer_proto::session::Seek;

use super::load::{Load, SendMode, Sender};
use super::{ROUNDS, Row, Turns, Which};

/// The number of packets in a round.
const PACKETS: usize = 200;
const PAUSE: Duration = Duration::from_millis(5);
/// Time between two index requests of the viewer.
const POLL: Duration = Duration::from_micros(100);

const fn watched(send_mode: SendMode) -> Load {
    Load {
        what: "watched",
        aims: ["", ""],
        producers: 1,
        streams: 1,
        packet: 4096,
        bytes: PACKETS * 4096,
        send_mode,
    }
}

const BESIDE: Load = Load {
    what: "beside",
    aims: ["", ""],
    producers: 1,
    streams: 4,
    packet: 64 << 10,
    bytes: 1 << 30,
    send_mode: SendMode::OneInFlight,
};
/// Number of producers that load the relay meanwhile.
const OTHERS: usize = 4;

/// Prints percentiles with and without load from other producers.
pub(super) fn run() {
    for (what, send_mode, others, aim) in [
        (
            "live latency, light load",
            SendMode::OneInFlight,
            0,
            "<= 2 ms",
        ),
        (
            "live latency, light load, nodelay",
            SendMode::OneInFlightNoDelay,
            0,
            "<= 2 ms",
        ),
        (
            "live latency, full load",
            SendMode::OneInFlight,
            OTHERS,
            "<= 5 ms",
        ),
    ] {
        let [mut half, mut high] = [(); 2].map(|()| Turns::default());
        for _ in 0..ROUNDS {
            for which in [Which::Reference, Which::Ours] {
                let lab = Lab::new();
                let relay = which.start(&lab);
                let mut taken = measure(&relay, send_mode, others);
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

fn measure(relay: &Relay, send_mode: SendMode, others: usize) -> Vec<Duration> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for number in 0..others {
            // Opened here, so that its session exists before anything is measured.
            let mut sender = Sender::open(relay, &format!("beside-{number}"), &BESIDE);
            let stop = &stop;
            scope.spawn(move || {
                // Relaxed, because nothing else depends on when the others stop.
                while !stop.load(Ordering::Relaxed) {
                    sender.send_round();
                }
            });
        }
        let taken = watch(relay, send_mode);
        stop.store(true, Ordering::Relaxed);
        taken
    })
}

fn watch(relay: &Relay, send_mode: SendMode) -> Vec<Duration> {
    let mut sender = Sender::open(relay, "watched", &watched(send_mode));
    let (mut viewer, _, streams) = Viewer::attached(relay.live, "watched", Seek::Beginning);
    let stream = by_channel(&streams)["channel_0"];
    let (begin, begun) = mpsc::channel::<Instant>();
    thread::scope(|scope| {
        let sending = scope.spawn(move || {
            for _ in 0..PACKETS {
                thread::sleep(PAUSE);
                begin.send(Instant::now()).unwrap();
                sender.send_round();
            }
            sender
        });
        // At its own pace, so that requests do not coincide with packets, and more often than
        // viewers do: this measures when the relay has the packet.
        let arrived = |_| {
            while viewer.next_index(stream).status != IndexStatus::Ready {
                thread::sleep(POLL);
            }
            begun.recv().unwrap().elapsed()
        };
        let taken = (0..PACKETS).map(arrived).collect();
        sending.join().unwrap().end();
        taken
    })
}
