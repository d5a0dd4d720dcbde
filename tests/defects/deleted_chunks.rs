//! Chunks that are deleted while viewers read them.

use relay_proto::chunk::CloseCommand;
use tests::producer::{OK, Producer, live_session};
use tests::relay::Relay;
use tests::viewer::Viewer;
use tests::wait_until;
use viewer_proto::index::IndexStatus;
use viewer_proto::session::Seek;

// One viewer still reads a tracefile that was deleted with its chunk, and another one reaches it from an
// older chunk that was kept.
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
        // The first viewer has the index and may request the packet: the relay keeps the files open.
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
