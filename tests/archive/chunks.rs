//! Chunks that a producer deletes, as `lttng clear` does, while they are archived.

use archive::catalog::{list_sessions, open_session};
use archive::store::{Store, open};
use relay_proto::chunk::CloseCommand;
use tests::lab::Lab;
use tests::producer::{OK, Producer, live_session};
use tests::wait_until;
use tokio::runtime::Runtime;

use crate::system::{ArchiveDirectory, start_relay};

/// Number of traces that readers show of the only session.
fn shown_traces(store: &dyn Store) -> Option<usize> {
    let runtime = Runtime::new().unwrap();
    let sessions = runtime.block_on(list_sessions(store, &Default::default(), &[]));
    let session = sessions.unwrap().first()?.session;
    let opened = runtime.block_on(open_session(store, session)).unwrap();
    Some(opened.view.traces.len())
}

#[test]
fn a_deleted_chunk_is_not_shown_though_no_packet_follows() {
    let lab = Lab::new();
    let archive = ArchiveDirectory::new(&lab);
    let mut relay = start_relay(&lab, &archive, &["--archive-interval=10ms"]);
    let store = open(&archive.url(), None).unwrap();
    let (mut producer, stream) = Producer::open_with_trace(&relay, live_session("cleared"));
    let metadata = producer.metadata[0];
    producer.record_packet(stream, 0, 100);
    wait_until("the packet is shown", || shown_traces(&*store) == Some(1));
    assert_eq!(producer.create_chunk(1), OK);
    let positions = [(stream, 1), (metadata, 0)];
    assert_eq!(producer.rotate_streams(Some(1), &positions), OK);
    assert!(producer.close_chunk(0, Some(CloseCommand::Delete)).is_ok());
    wait_until("the chunk is not shown", || {
        shown_traces(&*store) == Some(0)
    });
    relay.kill();
    assert_eq!(shown_traces(&*store), Some(0));
}

#[test]
fn metadata_that_was_deleted_unread_does_not_keep_the_rest_from_the_archive() {
    let lab = Lab::new();
    let archive = ArchiveDirectory::new(&lab);
    // Nothing is read before the end, and fewer files stay open than there are.
    let options = ["--archive-interval=1h", "--fd-pool-size=100"];
    let relay = start_relay(&lab, &archive, &options);
    let mut producer = Producer::open(&relay, live_session("cleared"));
    let mut positions = Vec::new();
    for trace in 0..200 {
        let stream = producer.add_trace(&format!("ust/pid/{trace}"), &["chan_0"])[0];
        let metadata = *producer.metadata.last().unwrap();
        positions.extend([(stream, 0), (metadata, 0)]);
    }
    assert_eq!(producer.create_chunk(1), OK);
    assert_eq!(producer.rotate_streams(Some(1), &positions), OK);
    assert!(producer.close_chunk(0, Some(CloseCommand::Delete)).is_ok());
    wait_until("the chunk is deleted", || !producer.chunk_exists(0));
    let (stream, _) = positions[0];
    producer.record_packet(stream, 0, 100);
    producer.disconnect();
    relay.wait_for_log(&["session ended", "cleared"]);
    relay.stop().expect_success();
    let store = open(&archive.url(), None).unwrap();
    assert_eq!(shown_traces(&*store), Some(1));
}
