//! Chunks that are deleted while viewers read them.

use std::io::Write;

use relay_proto::chunk::CloseCommand;
use tests::producer::{OK, Producer, index, live_session, packet};
use tests::relay::Relay;
use tests::tree::files;
use tests::viewer::Viewer;
use tests::wait_until;
use viewer_proto::index::IndexStatus;
use viewer_proto::session::Seek;

// One viewer still reads a tracefile that was deleted with its chunk, and another one reaches it
// from an older chunk that was kept.
#[test]
fn a_chunk_that_was_deleted_before_older_ones_blocks_no_viewer() {
    let (_lab, relay) = Relay::start_in_new_lab();
    let mut producer = Producer::open(&relay, live_session("chunks"));
    let stream = producer.add_trace("ust/pid/one", &["chan_0"])[0];
    let metadata = producer.metadata[0];
    let (mut first, ..) = Viewer::attached(relay.live, "chunks", Seek::Beginning);
    let (mut second, ..) = Viewer::attached(relay.live, "chunks", Seek::Beginning);
    let commands = [CloseCommand::MoveToCompleted, CloseCommand::Delete];
    for (number, command) in (0..).zip(commands) {
        producer.record_packet(stream, number, 100);
        // The first viewer has the index and may request the packet: the relay keeps the files
        // open.
        assert_eq!(first.wait_for_index(stream).status, IndexStatus::Ready);
        assert_eq!(producer.create_chunk(number + 1), OK);
        producer.rotate_streams(Some(number + 1), &[(stream, number + 1), (metadata, 0)]);
        assert!(producer.close_chunk(number, Some(command)).is_ok());
    }
    let index = second.wait_for_index(stream);
    assert_eq!((index.status, index.offset.0), (IndexStatus::Ready, 0));
    assert_eq!(second.next_index(stream).status, IndexStatus::Retry);
    // Later packets are delivered, and new viewers are served.
    producer.send_packet(stream, 2, 100);
    assert_eq!(second.wait_for_index(stream).offset.0, 200);
    wait_until("a new viewer is served", || {
        !Viewer::connect(relay.live).sessions().is_empty()
    });
}

/// Returns the sizes of the tracefiles of a session whose chunk 0 is deleted by `lttng clear` while
/// its first packet, or a part of it, is still to arrive. `at` is the boundary of the rotation.
fn sizes_after_clear(at: u64, arrived: usize) -> Vec<usize> {
    let (_lab, relay) = Relay::start_in_new_lab();
    let mut producer = Producer::open(&relay, live_session("clear"));
    let stream = producer.add_trace("ust/uid/0/64-bit", &["chan_0"])[0];
    let metadata = producer.metadata[0];
    let first = packet(stream, 0, 100);
    producer.data.write_all(&first[..arrived]).unwrap();
    if at > 0 {
        assert_eq!(producer.send_index(stream, 0, index(0, 100)), OK);
    }
    assert_eq!(producer.create_chunk(1), OK);
    assert_eq!(
        producer.rotate_streams(Some(1), &[(stream, at), (metadata, 0)]),
        OK
    );
    let reply = producer.close_chunk(0, Some(CloseCommand::Delete));
    assert!(reply.is_ok());
    producer.data.write_all(&first[arrived..]).unwrap();
    if at == 0 {
        assert_eq!(producer.send_index(stream, 0, index(0, 100)), OK);
    }
    producer.record_packet(stream, 1, 50);
    wait_until("the chunk is deleted", || !producer.chunk_exists(0));
    producer.close_session(stream, Some(1));
    let tracefiles = files(&relay.output, "/chan_0");
    tracefiles.values().map(Vec::len).collect()
}

// Bytes of packets come on another connection than commands, so that a packet from before the clear
// may arrive when the chunk has been closed: after the clear it is in no chunk, and a packet from
// after the clear is in the new one.
#[test]
fn a_packet_that_arrives_after_its_chunk_was_deleted_is_in_no_other_chunk() {
    for arrived in [0, 10, 60] {
        assert_eq!(sizes_after_clear(1, arrived), [50], "{arrived} bytes");
    }
}

#[test]
fn the_first_packet_from_the_boundary_on_is_not_deleted_with_the_chunk_before_it() {
    for arrived in [0, 10, 60] {
        assert_eq!(sizes_after_clear(0, arrived), [150], "{arrived} bytes");
    }
}
