//! Records of traces that no daemon has written so.

#![expect(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

use std::fs;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;

use tempfile::TempDir;
use tldrs_daemon::files::TraceFiles;
use tldrs_daemon::record::{PendingExport, TraceRecord};
use tldrs_daemon::{Daemon, DaemonSettings, Storage};
use tokio_util::sync::CancellationToken;

/// Runs a daemon to which one client sends something.
fn run_daemon(directory: &Path, sent: &str) {
    let socket = directory.join("socket");
    let storage = Storage::Directory(directory.to_owned());
    let settings = DaemonSettings::new(socket.clone(), storage);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(async {
        let daemon = Daemon::start(settings, None).unwrap();
        let mut client = UnixStream::connect(&socket).unwrap();
        client.write_all(sent.as_bytes()).unwrap();
        drop(client);
        // The client is in the backlog of the socket, which is served before the daemon stops.
        let stop = CancellationToken::new();
        stop.cancel();
        daemon.run(stop).await;
    });
}

#[test]
fn counters_of_a_record_stay_at_the_largest_number() {
    let directory = TempDir::new().unwrap();
    let files = TraceFiles::in_directory(directory.path(), "run-1");
    let full = TraceRecord {
        id: "run-1".to_owned(),
        connections: u64::MAX,
        events: u64::MAX,
        refused: u64::MAX,
        lost: u64::MAX,
        ..TraceRecord::default()
    };
    full.save(&files.record, false).unwrap();
    run_daemon(directory.path(), "OPEN run-1\n{}\nHELLO\n");
    assert_eq!(TraceRecord::load(&files.record), full);
    assert_eq!(fs::read_to_string(&files.events).unwrap(), "{}\n");
}

#[test]
fn client_that_nobody_has_accepted_is_served_before_the_daemon_stops() {
    let directory = TempDir::new().unwrap();
    run_daemon(directory.path(), "OPEN run-1\n{}\n");
    let files = TraceFiles::in_directory(directory.path(), "run-1");
    assert_eq!(fs::read_to_string(&files.events).unwrap(), "{}\n");
}

#[test]
fn exports_that_are_due_are_made_whatever_id_their_record_has() {
    let directory = TempDir::new().unwrap();
    let files = TraceFiles::in_directory(directory.path(), "all");
    let path = directory.path().join("export.json");
    // As of a daemon that stored the events of all traces in one file.
    let record = TraceRecord {
        id: "default".to_owned(),
        pending_exports: vec![PendingExport {
            path: path.clone(),
            uid: rustix::process::geteuid().as_raw(),
        }],
        ..TraceRecord::default()
    };
    record.save(&files.record, false).unwrap();
    fs::write(&files.events, "{\"a\":1}\n").unwrap();
    run_daemon(directory.path(), "");
    assert_eq!(fs::read_to_string(path).unwrap(), "[{\"a\":1}]\n");
    assert_eq!(TraceRecord::load(&files.record).pending_exports, []);
}
