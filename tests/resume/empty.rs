//! Sessions of producers that are killed before they have sent anything.

use relay_proto::resume::{MakeResumable, OpenStream};
use relay_proto::{Command, Minor, Reply};
use tests::producer::{OK, Producer, TRACE_PATH, live_session, stream};
use tests::relay::Relay;
use tests::tree::tree;
use wire::SeqNum;

#[test]
fn metadata_file_that_has_stayed_empty_is_removed() {
    let (_lab, relay) = Relay::start_in_new_lab();
    let mut producer = Producer::connect(&relay, Minor(15));
    producer.create_session(live_session("early"));
    let resumable = Command::MakeResumable(MakeResumable { timeout: 60 });
    assert_eq!(producer.request(resumable), OK);
    assert_eq!(producer.create_chunk(0), OK);
    let opened = producer.request(Command::OpenStream(OpenStream {
        key: 0,
        first: SeqNum(0),
        stream: stream("metadata", TRACE_PATH),
    }));
    let Reply::StreamOpened(opened) = opened else {
        panic!("{opened:?}");
    };
    let has_metadata = || {
        let files = tree(&relay.output);
        files.keys().any(|path| path.ends_with("/metadata"))
    };
    assert!(has_metadata());
    assert_eq!(producer.close_stream(opened.stream.unwrap(), None), OK);
    assert!(!has_metadata());
}
