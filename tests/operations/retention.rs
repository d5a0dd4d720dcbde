//! Removal of sessions by `--retain-age` and `--retain-size`: which of them go, and which stay.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use relay_proto::session::CreateSession;
use tests::lab::Lab;
use tests::producer::{OK, Producer, plain_session};
use tests::relay::Relay;
use tests::status_endpoint::StatusEndpoint;
use tests::tree::files;
use tests::wait_until;
use wire::Text;

/// Makes a closed session that was last written in 1970, and returns its directory.
fn make_old_session(output: &Path, name: &str) -> PathBuf {
    let session = output.join("host").join(name);
    let trace = session.join("ust/uid/0/64-bit");
    fs::create_dir_all(&trace).unwrap();
    fs::write(trace.join("metadata"), "").unwrap();
    make_old(&session);
    session
}

/// Sets the time of the last write to that of all files in a directory to 1970.
fn make_old(directory: &Path) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            make_old(&path);
        } else {
            let file = fs::File::options().write(true).open(path);
            file.unwrap().set_modified(UNIX_EPOCH).unwrap();
        }
    }
}

#[test]
fn retention_removes_an_old_closed_session_at_the_start() {
    let lab = Lab::new();
    let old = make_old_session(&lab.directory("output"), "old-20200101-000000");
    let (relay, status) = StatusEndpoint::start_relay(&lab, &["--retain-age=1d"]);
    status.wait_for_metric("relayd_retention_removed_sessions_total", 1);
    assert!(!old.exists());
    relay.wait_for_log(&["session removed by retention", "old-20200101-000000"]);
    assert_eq!(status.metric("relayd_retention_age_limit_seconds"), 86_400);
}

#[test]
fn retention_removes_a_session_with_the_longest_name_that_a_directory_can_have() {
    let lab = Lab::new();
    let old = make_old_session(&lab.directory("output"), &"n".repeat(255));
    let (_relay, status) = StatusEndpoint::start_relay(&lab, &["--retain-size=1"]);
    status.wait_for_metric("relayd_retention_removed_sessions_total", 1);
    assert!(!old.exists());
}

// What `lttng stop; lttng rotate` leaves: no open file and no marker.
#[test]
fn retention_keeps_a_session_of_another_relay_that_has_archived_all_its_chunks() {
    let lab = Lab::new();
    let relay = Relay::start(&lab);
    let (mut producer, stream) = Producer::open_with_trace(&relay, plain_session("stopped"));
    producer.record_packet(stream, 0, 100);
    let positions = [(stream, 1), (producer.metadata[0], 0)];
    assert_eq!(producer.rotate_streams(None, &positions), OK);
    producer.archive_chunk(0);
    let session = relay.output.join("host/stopped-20261120-213831");
    make_old(&session);
    let removed = make_old_session(&relay.output, "old-20200101-000000");
    let (_other, status) = StatusEndpoint::start_relay(&lab, &["--retain-age=1d"]);
    status.wait_for_metric("relayd_retention_removed_sessions_total", 1);
    assert!(!removed.exists());
    assert!(session.join("archives").exists());
    assert_eq!(producer.create_chunk(1), OK);
    producer.disconnect();
    relay.wait_for_log(&["session ended", "stopped"]);
    make_old(&session);
    let (_next, status) = StatusEndpoint::start_relay(&lab, &["--retain-age=1d"]);
    status.wait_for_metric("relayd_retention_removed_sessions_total", 1);
    assert!(!session.exists());
}

// What the relay accepts, each later stage can handle.
#[test]
fn session_with_the_deepest_directory_is_archived_repaired_and_removed() {
    let lab = Lab::new();
    let mut relay = Relay::start(&lab);
    let addresses = relay.addresses();
    let session = CreateSession {
        base_path: Text::from(vec!["b"; 116].join("/").as_str()),
        ..plain_session("deep")
    };
    let mut producer = Producer::open(&relay, session);
    let path = "ust/uid/0";
    let stream = producer.add_trace(path, &["chan_0"])[0];
    producer.record_packet(stream, 0, 100);
    let positions = [(stream, 1), (producer.metadata[0], 0)];
    assert_eq!(producer.create_chunk(1), OK);
    assert_eq!(producer.rotate_streams(Some(1), &positions), OK);
    producer.archive_chunk(0);
    producer.record_packet(stream, 1, 100);
    // A packet without an index.
    producer.send_data(stream, 2, 100);
    let lengths = || -> Vec<usize> {
        let files = files(&relay.output, "chan_0");
        files.into_values().map(|bytes| bytes.len()).collect()
    };
    wait_until("the packet has arrived", || lengths() == [200, 100]);
    relay.kill();
    let relay = Relay::start_at(&lab, addresses);
    relay.wait_for_log(&["output repaired", "failed=0"]);
    let found = files(&relay.output, "chan_0");
    assert!(found.values().all(|bytes| bytes.len() == 100), "{found:?}");
    assert_eq!(files(&relay.output, "chan_0.idx").len(), 2);
    make_old(&relay.output.join("host"));
    let (_next, status) = StatusEndpoint::start_relay(&lab, &["--retain-age=1d"]);
    status.wait_for_metric("relayd_retention_removed_sessions_total", 1);
    assert!(!relay.output.join("host/b").exists());
}
