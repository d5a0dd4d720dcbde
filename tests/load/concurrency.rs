//! Many producers and viewers at a time, and viewers that do not read.

use std::io::Read;
use std::thread;

use tests::babeltrace::{Babeltrace, numbers};
use tests::lttng::SessionDaemon;
use tests::producer::{Producer, live_session};
use tests::relay::Relay;
use tests::traced_app;
use tests::tree::files;
use tests::viewer::Viewer;
use viewer_proto::index::IndexStatus;
use viewer_proto::packet::PacketHead;
use viewer_proto::session::Seek;
use wire::Field;

use crate::payload::{attach, payload, request_payload, send_payload};

#[test]
fn concurrent_producers_are_recorded_and_viewed_independently() {
    const PRODUCERS: usize = 40;
    const PACKETS: u64 = 50;
    let (_lab, relay) = Relay::start_in_new_lab();
    thread::scope(|scope| {
        for number in 0..PRODUCERS {
            let relay = &relay;
            scope.spawn(move || {
                let name = format!("producer-{number}");
                let mut producer = Producer::open(relay, live_session(&name));
                let streams = producer.add_trace("ust/uid/0/64-bit", &["chan_0", "chan_1"]);
                let (mut viewer, ..) = Viewer::attached(relay.live, &name, Seek::Beginning);
                // Packet sizes that differ for each stream of each producer.
                let size = |stream: usize| 1000 + number * 2 + stream;
                for packet in 0..PACKETS {
                    for (at, stream) in streams.iter().enumerate() {
                        producer.send_packet(*stream, packet, size(at));
                    }
                }
                for (at, stream) in streams.iter().enumerate() {
                    for packet in 0..PACKETS {
                        let index = viewer.wait_for_index(*stream);
                        assert_eq!(index.status, IndexStatus::Ready);
                        assert_eq!(index.offset.0, packet * size(at) as u64);
                        assert_eq!(index.packet.packet_size.0, size(at) as u64 * 8);
                    }
                }
            });
        }
    });
    let written = files(&relay.output, "/chan_0");
    assert_eq!(written.len(), PRODUCERS);
    assert!(
        written
            .values()
            .all(|bytes| bytes.len() as u64 >= PACKETS * 1000)
    );
}

#[test]
fn a_viewer_that_never_reads_delays_no_other() {
    const COUNT: usize = 100_000;
    let (lab, relay) = Relay::start_in_new_lab();
    let options = [
        "--subbuf-size=64k",
        "--num-subbuf=8",
        "--blocking-timeout=inf",
    ];
    let daemon = SessionDaemon::start_with_channel(&lab, &relay, "slow", Some(100_000), &options);
    // A viewer that attaches and then neither sends nor reads.
    let (_silent, ..) = Viewer::attached(relay.live, "slow", Seek::Beginning);
    let follower = Babeltrace::Two.follow(&relay, "slow");
    Viewer::connect(relay.live).wait_for_listed("slow", |listed| listed.viewers == 2);
    let before = relay.memory();
    daemon.lttng(&["start", "slow"]);
    // The application blocks while its buffers are full, so that it exits when all events are
    // consumed.
    traced_app::run(&lab, COUNT, 0, "slow");
    daemon.lttng(&["destroy", "slow"]);
    assert!(
        numbers(&follower.wait().expect_success())
            .into_iter()
            .eq(0..COUNT)
    );
    assert!(relay.memory() < before + (16 << 20));
}

#[test]
fn viewers_that_do_not_read_their_packet_take_little_memory_and_get_it_whole() {
    const VIEWERS: usize = 64;
    const SIZE: usize = 8 << 20;
    const MAX_VIEWER_BYTES: u64 = 64 << 10;
    let (_lab, relay) = Relay::start_in_new_lab();
    let (mut producer, stream) = Producer::open_with_trace(&relay, live_session("large"));
    let payload = payload(SIZE);
    send_payload(&mut producer, stream, &payload);
    let viewers: Vec<_> = (0..VIEWERS)
        .map(|_| attach(&relay, "large", stream))
        .collect();
    let before = relay.memory();
    for viewer in &viewers {
        request_payload(viewer, stream, SIZE);
    }
    relay.assert_memory_below(before + VIEWERS as u64 * MAX_VIEWER_BYTES);
    for viewer in &viewers {
        let mut reply = vec![0; PacketHead::SIZE + SIZE];
        viewer.socket().read_exact(&mut reply).unwrap();
        assert!(
            reply[PacketHead::SIZE..] == payload,
            "the pieces are in order"
        );
    }
}
