//! Relays that are killed while LTTng records, and started again with the same output: the archive
//! gets the rest from the disk, each packet once, and retention waits for that.

use std::fs;
use std::path::{Path, PathBuf};

use tests::babeltrace::Babeltrace;
use tests::lab::Lab;
use tests::lttng::SessionDaemon;
use tests::relay::Relay;
use tests::status_endpoint::StatusEndpoint;
use tests::traced_app::{self, TracedApp};
use tests::tree::files;
use tests::viewer::hostname;
use tests::wait_until;

use crate::retention::{make_old, make_old_session};
use crate::system::{ArchiveDirectory, assert_same_text, start_relay, text};

const SESSION: &str = "archived";
const PER_USER: &[&str] = &["--buffers-uid", "--subbuf-size=4k"];

/// What the archive has of the session when its relay is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Killed {
    BeforeFirstCommit,
    BetweenCommitAndPart,
    AfterPart,
}

impl Killed {
    fn options(self) -> [&'static str; 2] {
        match self {
            Self::BeforeFirstCommit => ["--archive-interval=1h", "--archive-part-age=1h"],
            Self::BetweenCommitAndPart => ["--archive-interval=20ms", "--archive-part-age=1h"],
            Self::AfterPart => ["--archive-interval=20ms", "--archive-part-age=50ms"],
        }
    }

    fn is_reached(self, archive: &ArchiveDirectory) -> bool {
        match self {
            Self::BeforeFirstCommit => true,
            Self::BetweenCommitAndPart => archive.objects("log").len() > 3,
            Self::AfterPart => archive.parts() > 2,
        }
    }
}

/// Has LTTng record a session, and kills the relay under load. Returns its output.
fn record_and_kill(
    lab: &Lab,
    archive: &ArchiveDirectory,
    killed: Killed,
    (create, channel): (&[&str], &[&str]),
    record: impl Fn(&SessionDaemon<'_>),
) -> PathBuf {
    let durable = ["--durability=archive"];
    let mut relay = start_relay(lab, archive, &[&killed.options()[..], &durable].concat());
    let daemon = SessionDaemon::start(lab);
    let url = |address| format!("tcp4://{address}");
    let control = format!("--ctrl-url={}", url(relay.control));
    let data = format!("--data-url={}", url(relay.data));
    daemon.lttng(&[&["create", SESSION, &control, &data], create].concat());
    daemon.enable_channel(SESSION, "busy", channel, true);
    daemon.lttng(&["start", SESSION]);
    record(&daemon);
    let _load = ["one", "two"].map(|name| traced_app::start(lab, 1_000_000, 100, name));
    wait_until("packets of the load come", || {
        has_event(&relay.output, b"two\0")
    });
    wait_until("the archive is as far", || killed.is_reached(archive));
    relay.kill();
    assert_eq!(archive.ended(), 0);
    relay.output.clone()
}

/// Whether a file below a directory, which a relay writes meanwhile, has these bytes.
fn has_event(directory: &Path, event: &[u8]) -> bool {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut paths = entries.map(|entry| entry.path());
    paths.any(|path| match fs::read(&path) {
        Ok(bytes) => bytes.windows(event.len()).any(|at| at == event),
        Err(_) => has_event(&path, event),
    })
}

fn logs(output: &Path) -> usize {
    let files = files(&output.join(".relayd/archive"), "");
    files.keys().filter(|name| name.ends_with(".log")).count()
}

/// Starts a relay without an archive, then one that archives the rest when it stops, and expects
/// that retention waits for that.
fn restart(lab: &Lab, archive: &ArchiveDirectory, output: &Path) {
    type Start = fn(&Lab, &ArchiveDirectory) -> Relay;
    let without: Start = |lab, _| Relay::start_with(lab, &["--retain-size=1", "--http=0"]);
    let with: Start = |lab, archive| {
        let options = ["--archive-interval=1h", "--retain-size=1", "--http=0"];
        start_relay(lab, archive, &options)
    };
    for start in [without, with] {
        assert_eq!(logs(output), 1);
        make_old(output);
        let other = make_old_session(output, "other");
        let relay = start(lab, archive);
        let status = StatusEndpoint::of(&relay);
        status.wait_for_metric("relayd_retention_removed_sessions_total", 1);
        assert!(!other.exists());
        relay.stop().expect_success();
    }
    assert_eq!(logs(output), 0);
}

/// The text of the session's archive, which is one session that has ended.
fn archived(lab: &Lab, archive: &ArchiveDirectory) -> Vec<String> {
    assert_eq!(archive.ended(), 1, "{:?}", archive.objects("days"));
    // Not those that a relay has not completed before it was killed.
    let mut days = archive.objects("days");
    days.retain(|name| !name.contains('#'));
    assert_eq!(days.len(), 2, "{days:?}");
    text(lab, archive.session_url(&hostname(), SESSION))
}

/// Expects that the archive of a session whose relay was killed has what the output has.
fn assert_rest_is_archived(
    killed: Killed,
    options: (&[&str], &[&str]),
    record: impl Fn(&Lab, &SessionDaemon<'_>),
) {
    let lab = Lab::new();
    let archive = ArchiveDirectory::new(&lab);
    let output = record_and_kill(&lab, &archive, killed, options, |daemon| {
        record(&lab, daemon);
    });
    restart(&lab, &archive, &output);
    let want = text(&lab, &output);
    assert!(want.len() > 100, "{} events", want.len());
    let theirs = Babeltrace::Two.read_with(&["--clock-gmt"], &output);
    assert_same_text("babeltrace2", &theirs.expect_success(), &want);
    assert_same_text("archive", &archived(&lab, &archive), &want);
}

fn rotate(lab: &Lab, daemon: &SessionDaemon<'_>) {
    let mut app = TracedApp::start(lab, "app");
    for _ in 0..2 {
        app.emit(200);
        daemon.lttng(&["rotate", SESSION]);
    }
    app.emit(100);
    app.end();
}

#[test]
fn a_session_that_was_in_no_commit_object_is_archived_from_disk() {
    assert_rest_is_archived(Killed::BeforeFirstCommit, (&[], PER_USER), rotate);
}

#[test]
fn a_session_that_was_in_commit_objects_only_is_archived_from_disk() {
    assert_rest_is_archived(Killed::BetweenCommitAndPart, (&[], PER_USER), rotate);
}

#[test]
fn a_session_that_was_partly_in_parts_is_archived_from_disk() {
    assert_rest_is_archived(Killed::AfterPart, (&[], PER_USER), rotate);
}

#[test]
fn a_live_session_with_buffers_of_processes_and_small_tracefiles_is_archived_from_disk() {
    let channel = ["--buffers-pid", "--subbuf-size=4k", "--tracefile-size=16k"];
    let killed = Killed::BetweenCommitAndPart;
    assert_rest_is_archived(killed, (&["--live=50000"], &channel), |lab, _| {
        traced_app::run(lab, 500, 100, "ended");
    });
}

#[test]
fn a_session_that_was_cleared_and_has_new_metadata_is_archived_from_disk() {
    let killed = Killed::BetweenCommitAndPart;
    assert_rest_is_archived(killed, (&[], PER_USER), |lab, daemon| {
        let mut app = TracedApp::start(lab, "app");
        app.emit(300);
        daemon.lttng(&["clear", SESSION]);
        app.emit(300);
        daemon.lttng(&["regenerate", "metadata", &format!("--session={SESSION}")]);
        app.emit(100);
        app.end();
    });
}

#[test]
fn a_session_in_a_ring_of_tracefiles_is_archived_from_disk_without_doubled_packets() {
    let lab = Lab::new();
    let archive = ArchiveDirectory::new(&lab);
    let ring = [
        "--buffers-uid",
        "--subbuf-size=4k",
        "--tracefile-size=8k",
        "--tracefile-count=3",
    ];
    let killed = Killed::BetweenCommitAndPart;
    let output = record_and_kill(&lab, &archive, killed, (&[], &ring), |_| {
        traced_app::run(&lab, 3000, 20, "ended");
    });
    restart(&lab, &archive, &output);
    let (left, got) = (text(&lab, &output), archived(&lab, &archive));
    assert!(left.len() > 50 && got.len() > left.len());
    // Tracefiles that were replaced are in the archive too, those that were left all.
    let mut of_output = left.iter().map(|line| event(line)).peekable();
    for line in &got {
        of_output.next_if_eq(&event(line));
    }
    assert_eq!(of_output.next(), None);
    let mut once = got.clone();
    once.sort();
    once.dedup();
    assert_eq!(once.len(), got.len());
}

/// An event without the time since the one before it.
fn event(line: &str) -> String {
    let (time, rest) = line.split_once("] (").unwrap();
    let (_, rest) = rest.split_once(')').unwrap();
    format!("{time}{rest}")
}

#[test]
fn a_relay_that_is_killed_again_and_again_archives_a_session_once() {
    let lab = Lab::new();
    let archive = ArchiveDirectory::new(&lab);
    let killed = Killed::BetweenCommitAndPart;
    let output = record_and_kill(&lab, &archive, killed, (&[], PER_USER), |daemon| {
        rotate(&lab, daemon);
    });
    for _ in 0..3 {
        let owners = archive.objects("sessions").len();
        let mut relay = start_relay(&lab, &archive, &["--archive-interval=10ms"]);
        wait_until("the session has another owner", || {
            archive.objects("sessions").len() > owners || archive.ended() > 0
        });
        relay.kill();
    }
    start_relay(&lab, &archive, &[]).stop().expect_success();
    assert_eq!(logs(&output), 0);
    assert_same_text("archive", &archived(&lab, &archive), &text(&lab, &output));
}
