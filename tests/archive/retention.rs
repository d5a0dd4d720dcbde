//! Retention removes no session that is not in the archive.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use tests::lab::Lab;
use tests::producer::{Producer, plain_session};
use tests::status_endpoint::StatusEndpoint;

use crate::system::{ArchiveDirectory, start_relay};

/// Sets the time of the last write to that of all files in a directory to 1970.
pub(crate) fn make_old(directory: &Path) {
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

/// Makes a session that no relay has, and returns its directory.
pub(crate) fn make_old_session(output: &Path, name: &str) -> PathBuf {
    let session = output.join("host").join(name);
    fs::create_dir_all(session.join("ust")).unwrap();
    fs::write(session.join("ust/metadata"), "").unwrap();
    make_old(&session);
    session
}

#[test]
fn retention_keeps_a_session_that_has_ended_until_a_part_has_it() {
    let lab = Lab::new();
    let archive = ArchiveDirectory::new(&lab);
    let relay = start_relay(&lab, &archive, &["--archive-interval=1h"]);
    let (mut producer, stream) = Producer::open_with_trace(&relay, plain_session("kept"));
    producer.record_packet(stream, 0, 100);
    producer.disconnect();
    relay.wait_for_log(&["session ended", "kept"]);
    let session = relay.output.join("host/kept-20261120-213831");
    make_old(&session);
    // The first round of retention is at the start of a relay; the second would be a minute later.
    let is_kept = |removed: u64, name: &str| {
        let other = make_old_session(&relay.output, name);
        let (_next, status) = StatusEndpoint::start_relay(&lab, &["--retain-size=1"]);
        status.wait_for_metric("relayd_retention_removed_sessions_total", removed);
        assert!(!other.exists());
        session.exists()
    };
    assert!(is_kept(1, "before"));
    assert_eq!((archive.parts(), archive.ended()), (0, 0));
    let output = relay.output.clone();
    relay.stop().expect_success();
    assert_eq!((archive.parts(), archive.ended()), (1, 1));
    make_old_session(&output, "after");
    let (_next, status) = StatusEndpoint::start_relay(&lab, &["--retain-size=1"]);
    status.wait_for_metric("relayd_retention_removed_sessions_total", 2);
    assert!(!session.exists());
}
