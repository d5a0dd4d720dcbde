//! Which sessions `--retain-age` and `--retain-size` remove.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use tests::lab::Lab;
use tests::producer::{OK, Producer, plain_session};
use tests::relay::Relay;
use tests::status_endpoint::StatusEndpoint;

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
