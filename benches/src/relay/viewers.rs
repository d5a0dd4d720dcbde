//! Viewers that read as fast as the relay gives.

use std::thread;
use std::time::{Duration, Instant};

use tests::lab::Lab;
use tests::viewer::{Viewer, by_channel};
use viewer_proto::index::IndexStatus;
use viewer_proto::session::Seek;
use viewer_proto::stream::StreamRecord;

use wire::StreamId;

use super::load::{Load, Manner, Sender};
use super::{ROUNDS, Row, Turns, Which};
use crate::cost::cpu;

const MIB: usize = 1 << 20;

/// What is read, as it was recorded.
const RECORDED: [Load; 2] = [
    Load {
        what: "a viewer, 4 KiB packets",
        aims: ["1.5x", ""],
        producers: 1,
        streams: 1,
        packet: 4096,
        bytes: 80 * MIB,
        manner: Manner::Pipelined,
    },
    Load {
        what: "a viewer, 256 KiB packets",
        aims: ["", ""],
        producers: 1,
        streams: 1,
        packet: 256 << 10,
        bytes: 1024 * MIB,
        manner: Manner::Pipelined,
    },
];

/// What is sent while many watch.
const WATCHED: Load = Load {
    what: "watched",
    aims: ["", ""],
    producers: 1,
    streams: 4,
    packet: 64 << 10,
    bytes: 512 * MIB,
    manner: Manner::OneUnderWay,
};
const VIEWERS: usize = 16;
/// How often they look.
const LOOK: Duration = Duration::from_millis(10);

/// Prints the rows.
pub(super) fn run() {
    RECORDED.iter().for_each(read);
    watched();
}

/// One viewer reads a recording from its beginning.
fn read(load: &Load) {
    let [mut speed, mut cost] = [(); 2].map(|()| Turns::default());
    for _ in 0..ROUNDS {
        for which in [Which::Reference, Which::Ours] {
            let lab = Lab::new();
            let mut relay = which.start(&lab);
            let mut sender = Sender::open(&relay, "recorded", load);
            sender.send_all();
            let (mut viewer, _, streams) =
                Viewer::attached(relay.live, "recorded", Seek::Beginning);
            let stream = by_channel(&streams)["channel_0"];
            let id = relay.process().id();
            let before = cpu(id);
            let begun = Instant::now();
            let mut bytes = 0;
            while bytes < load.bytes {
                let index = viewer.next_index(stream);
                if index.status == IndexStatus::Ready {
                    let (_, packet) = viewer.packet(stream, index.offset.0, packet_len(load));
                    bytes += packet.len();
                }
            }
            let taken = begun.elapsed().as_secs_f64();
            speed.add(which, load.bytes as f64 / 1e6 / taken);
            let packets = (load.bytes / load.packet) as f64;
            cost.add(which, (cpu(id) - before).as_secs_f64() * 1e6 / packets);
            sender.end();
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

fn packet_len(load: &Load) -> u32 {
    u32::try_from(load.packet).unwrap()
}

/// A producer's speed while many watch, as a part of its speed alone. The reference lets one viewer
/// into a session.
fn watched() {
    let mut kept = Vec::new();
    for _ in 0..ROUNDS {
        let [alone, watched] = [0, VIEWERS].map(|viewers| {
            let lab = Lab::new();
            let relay = Which::Ours.start(&lab);
            let mut sender = Sender::open(&relay, "watched", &WATCHED);
            let watching: Vec<_> = (0..viewers)
                .map(|_| {
                    let (mut viewer, _, streams) =
                        Viewer::attached(relay.live, "watched", Seek::Last);
                    thread::spawn(move || follow(&mut viewer, &streams))
                })
                .collect();
            let begun = Instant::now();
            sender.send_all();
            let taken = begun.elapsed().as_secs_f64();
            sender.end();
            drop(sender);
            for viewer in watching {
                viewer.join().unwrap();
            }
            WATCHED.bytes as f64 / taken
        });
        kept.push(watched / alone * 100.0);
    }
    Turns::print_ours(
        kept,
        &Row {
            what: "16 viewers on one session, speed kept",
            unit: "%",
            aim: ">= 85 %",
        },
    );
}

/// Looks once in a while, as babeltrace2 does, and takes what there is of each stream.
fn follow(viewer: &mut Viewer, streams: &[StreamRecord]) {
    let mut streams: Vec<_> = by_channel(streams)
        .into_iter()
        .filter(|(name, _)| name != "metadata")
        .map(|(_, stream)| stream)
        .collect();
    while !streams.is_empty() {
        streams.retain(|stream| is_going_on(viewer, *stream));
        thread::sleep(LOOK);
    }
}

/// Takes what there is of a stream.
fn is_going_on(viewer: &mut Viewer, stream: StreamId) -> bool {
    loop {
        let index = viewer.next_index(stream);
        match index.status {
            IndexStatus::Ready => {
                let length = u32::try_from(index.packet.packet_size.0 / 8).unwrap();
                viewer.packet(stream, index.offset.0, length);
            }
            status => return status != IndexStatus::HungUp,
        }
    }
}
