//! Viewers that attach while the streams of a session rotate: one stream is in the new chunk
//! already, the other still waits for packets of the old one. The streams are announced to them
//! when the rotation is over, and are read from where they were when the viewer attached.

use std::ops::Range;

use tests::producer::{OK, Producer, TRACE_PATH, live_session};
use tests::relay::Relay;
use tests::viewer::{Viewer, by_channel};
use viewer_proto::index::IndexStatus;
use viewer_proto::session::Seek;
use viewer_proto::stream::NewStreamsStatus;
use wire::StreamId;

/// Size of a packet in bytes.
const SIZE: usize = 100;

fn send(producer: &mut Producer, stream: StreamId, packets: Range<u64>) {
    for packet in packets {
        producer.record_packet(stream, packet, SIZE);
    }
}

/// Reads these packets of a stream, and nothing else.
fn assert_viewed(viewer: &mut Viewer, stream: StreamId, packets: Range<u64>) {
    for packet in packets {
        let index = viewer.wait_for_index(stream);
        assert_eq!(index.status, IndexStatus::Ready, "packet {packet}");
        assert_eq!(index.packet.begin.0, packet * 10);
        let length = u32::try_from(SIZE).unwrap();
        let (_, viewed) = viewer.packet(stream, index.offset.0, length);
        assert_eq!(viewed, [u8::try_from(packet).unwrap(); SIZE]);
    }
    let after = viewer.wait_for_index(stream);
    assert_eq!(after.status, IndexStatus::HungUp);
}

#[test]
fn viewers_that_attach_during_a_rotation_read_each_packet_once() {
    let (_lab, relay) = Relay::start_in_new_lab();
    let mut producer = Producer::open(&relay, live_session("rotated"));
    let streams = producer.add_trace(TRACE_PATH, &["chan_0", "chan_1"]);
    let (_, _, announced) = Viewer::attached(relay.live, "rotated", Seek::Beginning);
    let metadata = by_channel(&announced)["metadata"];
    for stream in &streams {
        send(&mut producer, *stream, 0..2);
    }
    assert_eq!(producer.create_chunk(1), OK);
    let positions = [(streams[0], 2), (streams[1], 4), (metadata, 0)];
    assert_eq!(producer.rotate_streams(Some(1), &positions), OK);
    send(&mut producer, streams[0], 2..3);
    let mut viewers = [Seek::Beginning, Seek::Last].map(|seek| {
        let (mut viewer, session, announced) = Viewer::attached(relay.live, "rotated", seek);
        assert!(announced.is_empty());
        assert_eq!(viewer.new_streams(session).0, NewStreamsStatus::NoNew);
        (viewer, session)
    });
    send(&mut producer, streams[0], 3..5);
    send(&mut producer, streams[1], 2..5);
    producer.archive_chunk(0);
    for (viewer, session) in &mut viewers {
        let (status, announced) = viewer.new_streams(*session);
        assert_eq!((status, announced.len()), (NewStreamsStatus::Ok, 3));
    }
    for stream in &streams {
        assert_eq!(producer.close_stream(*stream, Some(4)), OK);
    }
    producer.disconnect();
    let [(mut all, _), (mut new, _)] = viewers;
    for stream in &streams {
        assert_viewed(&mut all, *stream, 0..5);
    }
    assert_viewed(&mut new, streams[0], 3..5);
    assert_viewed(&mut new, streams[1], 2..5);
}
