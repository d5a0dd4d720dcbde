//! Packets that do not fit a viewer's socket, on a disk and in memory: what the relay sends of them
//! does not depend on what happens to their tracefile meanwhile.

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::path::Path;

use tests::lab::Lab;
use tests::producer::{OK, Producer, TRACE_PATH, index, live_session, read_to_close};
use tests::producer::{packet, stream};
use tests::relay::Relay;
use tests::tree::tree;
use tests::viewer::Viewer;
use viewer_proto::index::IndexStatus;
use viewer_proto::packet::PacketHead;
use viewer_proto::session::Seek;
use wire::{Bytes, Field, StreamId};

use crate::payload::{attach, payload, request_payload, send_payload};

/// A file system in memory, from which the relay sends packets without copying them.
const MEMORY: &str = "/dev/shm";

/// Size of a packet, which is more than sockets buffer.
const SIZE: usize = 16 << 20;

/// Directories for tests on a disk, if the temporary directory is on one, and in memory.
pub(crate) fn labs() -> impl Iterator<Item = Lab> {
    let memory = Path::new(MEMORY);
    let in_memory = memory.is_dir().then(|| Lab::new_in(memory));
    [Lab::new()].into_iter().chain(in_memory)
}

/// Adds a stream of a trace with metadata. With a `count`, that many tracefiles of one packet each
/// are kept.
fn add_stream(producer: &mut Producer, count: u32) -> StreamId {
    let mut request = stream("chan_0", TRACE_PATH);
    if count > 0 {
        (request.tracefile_size, request.tracefile_count) = (Bytes(SIZE as u64), count.into());
    }
    let added = producer.add_stream(request);
    producer.add_trace(TRACE_PATH, &[]);
    added
}

/// Returns a viewer that has requested packet 0. The reply has begun, and the viewer has read
/// nothing.
fn attach_and_request(relay: &Relay, session: &str, stream: StreamId) -> Viewer {
    let viewer = attach(relay, session, stream);
    request_payload(&viewer, stream, SIZE);
    viewer
}

#[test]
fn a_packet_whose_tracefile_is_replaced_while_it_is_sent_arrives_whole() {
    for lab in labs() {
        let relay = Relay::start(&lab);
        let mut producer = Producer::open(&relay, live_session("ring"));
        let stream = add_stream(&mut producer, 1);
        let payload = payload(SIZE);
        send_payload(&mut producer, stream, &payload);
        let viewer = attach_and_request(&relay, "ring", stream);
        // The second packet has a tracefile of the same name.
        producer.data.write_all(&packet(stream, 1, SIZE)).unwrap();
        assert_eq!(producer.send_index(stream, 1, index(1, SIZE as u64)), OK);
        producer.wait_while_pending(stream, 1);
        let mut reply = vec![0; PacketHead::SIZE + SIZE];
        viewer.socket().read_exact(&mut reply).unwrap();
        assert!(reply[PacketHead::SIZE..] == payload);
    }
}

#[test]
fn a_tracefile_that_is_shortened_while_its_packet_is_sent_costs_that_connection_only() {
    for lab in labs() {
        let relay = Relay::start(&lab);
        let mut producer = Producer::open(&relay, live_session("short"));
        let stream = add_stream(&mut producer, 0);
        let payload = payload(SIZE);
        send_payload(&mut producer, stream, &payload);
        let mut other = Viewer::connect(relay.live);
        let viewer = attach_and_request(&relay, "short", stream);
        let names = tree(&relay.output);
        let name = names.keys().find(|name| name.ends_with("/chan_0")).unwrap();
        let path = relay.output.join(name.trim_start_matches('/'));
        let tracefile = OpenOptions::new().write(true).open(path).unwrap();
        tracefile.set_len(4096).unwrap();
        let reply = read_to_close(viewer.socket());
        assert!(reply.len() < PacketHead::SIZE + SIZE);
        relay.wait_for_log(&["viewer connection closed", "cannot read rest of packet"]);
        other.wait_for_session("short");
    }
}

#[test]
fn a_packet_of_many_pieces_is_read_whole_from_a_disk_and_from_memory() {
    for lab in labs() {
        let relay = Relay::start(&lab);
        let mut producer = Producer::open(&relay, live_session("large"));
        let stream = add_stream(&mut producer, 0);
        let payload = payload(SIZE);
        send_payload(&mut producer, stream, &payload);
        let (mut viewer, ..) = Viewer::attached(relay.live, "large", Seek::Beginning);
        assert_eq!(viewer.wait_for_index(stream).status, IndexStatus::Ready);
        // Lengths around those of copied packets, of pages and of pieces; then all at once.
        let lengths = [1, 16 << 10, (16 << 10) + 1, 65_535, 65_536, 65_537, 200_000];
        let ranges = lengths.map(|len| (len as u64 * 3 + 1, len));
        let parts = viewer.packets(stream, &ranges);
        for ((offset, len), (_, part)) in ranges.into_iter().zip(parts) {
            let begin = usize::try_from(offset).unwrap();
            assert!(part == payload[begin..begin + len as usize], "{len}");
        }
        let (_, whole) = viewer.packet(stream, 0, u32::try_from(SIZE).unwrap());
        assert!(whole == payload);
    }
}
