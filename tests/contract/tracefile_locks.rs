//! The locks of a relay on the tracefiles that it writes, by which followers and other relays know
//! that they are in use.

use std::fs::File;
use std::path::PathBuf;

use ctf::index::is_being_written;
use relay_proto::{Command, Reply, ReturnCode};
use tests::lab::Lab;
use tests::producer::{Producer, TRACE_PATH, live_session, stream};
use tests::relay::Relay;
use tests::tree::{INDEX_ENTRY, INDEX_HEADER, files, first_file};
use tests::wait_until;

/// Returns the path of the first tracefile `chan_0`.
fn tracefile_path(relay: &Relay) -> PathBuf {
    let tracefiles = files(&relay.output, "/chan_0");
    let path = tracefiles.into_keys().next().unwrap();
    relay.output.join(path.trim_start_matches('/'))
}

#[test]
fn a_tracefile_that_a_reader_has_locked_is_still_reported_as_being_written() {
    let (_lab, relay) = Relay::start_in_new_lab();
    let (mut producer, stream) = Producer::open_with_trace(&relay, live_session("followed"));
    let path = tracefile_path(&relay);
    // A tracefile is closed until its first packet arrives: the relay opens it while the reader
    // holds the lock.
    let reader = File::open(&path).unwrap();
    reader.lock_shared().unwrap();
    for number in 0..3 {
        producer.record_packet(stream, number, 1000);
        assert!(is_being_written(&path).unwrap(), "after packet {number}");
    }
    reader.unlock().unwrap();
    producer.record_packet(stream, 3, 1000);
    assert!(is_being_written(&path).unwrap());
    assert!(
        reader.try_lock_shared().is_err(),
        "the relay holds the lock"
    );
    producer.close_stream(stream, Some(3));
    assert!(!is_being_written(&path).unwrap());
    let index = first_file(&relay.output, ".idx");
    assert_eq!(
        index.len(),
        INDEX_HEADER + 4 * INDEX_ENTRY,
        "the beacon is removed"
    );
}

#[test]
fn a_second_relay_replaces_no_tracefile_that_the_first_has_closed_when_idle() {
    let lab = Lab::new();
    let first = Relay::start(&lab);
    let mut recorded = Producer::open(&first, live_session("shared"));
    let streams = recorded.add_trace(TRACE_PATH, &["chan_0", "idle_0"]);
    recorded.record_packet(streams[0], 0, 1000);
    let path = tracefile_path(&first);
    let reader = File::open(&path).unwrap();
    wait_until("the tracefile is closed when idle", || {
        let is_closed = reader.try_lock_shared().is_ok();
        reader.unlock().unwrap();
        is_closed
    });
    let second = Relay::start(&lab);
    let mut other = Producer::open(&second, live_session("shared"));
    for channel in ["chan_0", "idle_0"] {
        match other.request(Command::AddStream(stream(channel, TRACE_PATH))) {
            Reply::StreamAdded(added) => assert_ne!(added.code, ReturnCode::OK, "{channel}"),
            other => panic!("{other:?}"),
        }
    }
    second.wait_for_log(&["chan_0", "another stream is writing it"]);
    recorded.record_packet(streams[0], 1, 1000);
    assert_eq!(std::fs::read(&path).unwrap().len(), 2000);
}
