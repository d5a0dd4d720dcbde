//! Viewers that read as fast as they can.

use std::thread;
use std::time::{Duration, Instant};

use tests::lab::Lab;
use tests::viewer::{Viewer, by_channel};
use viewer_proto::index::{IndexStatus, NextIndex};
use viewer_proto::push::Notification;
use viewer_proto::session::Seek;
use viewer_proto::stream::StreamRecord;

use wire::StreamId;

use super::load::{Done, Load, SendMode, Sender};
use super::{MIB, ROUNDS, Row, Turns, Which, compare};
use crate::process::cpu;

/// The recording that is read.
pub(super) const SMALL: Load = Load {
    what: "a viewer, 4 KiB packets",
    aims: ["1.5x", ""],
    producers: 1,
    streams: 1,
    packet: 4096,
    bytes: 80 * MIB,
    send_mode: SendMode::Pipelined,
};
pub(super) const LARGE: Load = Load {
    what: "a viewer, 256 KiB packets",
    aims: ["", ""],
    packet: 256 << 10,
    bytes: 1024 * MIB,
    ..SMALL
};
pub(super) const PUSHED: Load = Load {
    what: "a viewer that is pushed to, 4 KiB packets",
    aims: ["5x", ""],
    bytes: 400 * MIB,
    ..SMALL
};

/// Number of packets that a notified viewer requests at once, as `test-live` does.
const AT_ONCE: usize = 64;

/// The load of the producer while viewers are attached.
pub(super) const WATCHED: Load = Load {
    what: "16 viewers on one session, speed kept",
    aims: ["", ""],
    producers: 1,
    streams: 4,
    packet: 64 << 10,
    bytes: 512 * MIB,
    send_mode: SendMode::OneInFlight,
};
const VIEWERS: usize = 16;
/// Interval at which the viewers poll.
const LOOK: Duration = Duration::from_millis(10);

/// Prints the row of small packets.
pub(super) fn small() {
    read(&SMALL, |_| one_by_one);
}

/// Prints the row of large packets.
pub(super) fn large() {
    read(&LARGE, |_| one_by_one);
}

/// Prints the row of a viewer with a push connection, which the reference does not support.
pub(super) fn pushed() {
    read(&PUSHED, |which| match which {
        Which::Reference => one_by_one,
        Which::Ours => as_pushed,
    });
}

/// Reads a number of bytes of a stream.
type Reader = fn(&mut Viewer, StreamId, usize);

/// One viewer reads a recording from its beginning.
fn read(load: &Load, reader: impl Fn(Which) -> Reader) {
    compare(load, |relay, which| {
        let mut sender = Sender::open(relay, "recorded", load);
        // Before the viewer attaches: the producer must not use the processors meanwhile.
        sender.send_all();
        let (mut viewer, _, streams) = Viewer::attached(relay.live, "recorded", Seek::Beginning);
        let stream = by_channel(&streams)["channel_0"];
        let id = relay.process().id();
        let before = cpu(id);
        let begun = Instant::now();
        reader(which)(&mut viewer, stream, load.bytes);
        let taken = begun.elapsed();
        let relay_cpu = cpu(id) - before;
        sender.end();
        Done { taken, relay_cpu }
    });
}

/// Waits for each reply, as viewers without a push connection do.
fn one_by_one(viewer: &mut Viewer, stream: StreamId, bytes: usize) {
    let mut left = bytes;
    while left > 0 {
        let index = viewer.next_index(stream);
        // Else asked again at once: the viewer is to be as fast as the relay.
        if index.status == IndexStatus::Ready {
            let (_, packet) = viewer.packet(stream, index.offset.0, length(&index));
            left -= packet.len();
        }
    }
}

/// Requests as many packets as the relay has notified.
fn as_pushed(viewer: &mut Viewer, stream: StreamId, bytes: usize) {
    // Within the time: a viewer opens the connection too.
    let mut push = viewer.open_push();
    let mut left = bytes;
    while left > 0 {
        let Some(Notification::Packets(available)) = push.receive() else {
            continue;
        };
        let mut unread = usize::try_from(available.unread).unwrap();
        while unread > 0 {
            let times = unread.min(AT_ONCE);
            let indexes = viewer.next_indexes(stream, times);
            let places: Vec<_> = indexes
                .iter()
                .map(|index| (index.offset.0, length(index)))
                .collect();
            let packets = viewer.packets(stream, &places);
            left -= packets
                .iter()
                .map(|(_, packet)| packet.len())
                .sum::<usize>();
            unread -= times;
        }
    }
}

fn length(index: &NextIndex) -> u32 {
    u32::try_from(index.packet.packet_size.0 / 8).unwrap()
}

/// Prints a producer's throughput with many viewers, relative to its throughput without. The
/// reference allows one viewer per session.
pub(super) fn watched() {
    let mut kept = Vec::new();
    for _ in 0..ROUNDS {
        // One after the other, so that both have the same neighbours on the machine.
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
            // The viewers end when the session is over.
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
            what: WATCHED.what,
            unit: "%",
            aim: ">= 85 %",
        },
    );
}

/// Polls periodically, as babeltrace2 does, and reads all packets of each stream.
fn follow(viewer: &mut Viewer, streams: &[StreamRecord]) {
    let mut streams: Vec<_> = by_channel(streams)
        .into_iter()
        .filter(|(name, _)| name != "metadata")
        .map(|(_, stream)| stream)
        .collect();
    while !streams.is_empty() {
        streams.retain(|stream| read_all(viewer, *stream));
        thread::sleep(LOOK);
    }
}

/// Reads all packets of a stream. Returns whether more may follow.
fn read_all(viewer: &mut Viewer, stream: StreamId) -> bool {
    loop {
        let index = viewer.next_index(stream);
        match index.status {
            IndexStatus::Ready => {
                viewer.packet(stream, index.offset.0, length(&index));
            }
            status => return status != IndexStatus::HungUp,
        }
    }
}
