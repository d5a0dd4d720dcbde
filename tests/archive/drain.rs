//! `relayd drain`: producers that can resume their sessions go to another relay, and those that
//! cannot, or have no other relay, are served until they end.

use tests::binaries;
use tests::lab::Lab;
use tests::lttng::SessionDaemon;
use tests::process::Process;
use tests::relay::Relay;
use tests::replay::HOST;
use tests::status_endpoint::StatusEndpoint;
use tests::traced_app::TracedApp;
use tests::{test_live, wait_until};

use crate::agent::{self, TRACE, assert_all, start_consumer, start_consumer_of};
use crate::kill::{Load, RELAY, random};
use crate::system::{ArchiveDirectory, read, start_relay, text};

/// Starts `relayd drain` for a relay with `--http=0`.
pub(crate) fn drain(lab: &Lab, relay: &Relay) -> Process {
    let http = StatusEndpoint::of(relay).address();
    let mut command = lab.command(binaries::relayd());
    command.args(["drain", "--http", &http.to_string()]);
    Process::start(&mut command)
}

fn start(lab: &Lab, archive: &ArchiveDirectory) -> Relay {
    start_relay(lab, archive, &[RELAY, &["--http=0"]].concat())
}

fn stop_consumer(consumer: Process) {
    consumer.signal(rustix::process::Signal::TERM);
    consumer.wait().expect_success();
}

#[test]
fn drain_waits_for_a_session_of_lttng_and_neither_that_nor_its_viewer_is_cut() {
    let (lab, other_lab) = (Lab::new(), Lab::new());
    let archive = ArchiveDirectory::new(&lab);
    let (relay, other) = (start(&lab, &archive), start(&other_lab, &archive));
    let daemon = SessionDaemon::start_with_session(&lab, &relay, "fixed", Some(50_000));
    daemon.lttng(&["start", "fixed"]);
    let mut app = TracedApp::start(&lab, "app");
    app.emit(100);
    let target = format!("net://{}", relay.live);
    let viewer = test_live::start(&lab, &["--seek=beginning", "--no-retry", &target]);
    let shows = |count| wait_until("events are shown", || viewer.stdout_line_count() >= count);
    shows(100);
    let addresses = [relay.addresses(), other.addresses()];
    let mut consumer = start_consumer_of(&lab, &addresses);
    consumer.wait_for_stderr_text("consumer::agent: ready");
    let load = Load::start(agent::socket(&lab), random(), 0);
    wait_until("both sessions have an owner", || {
        let objects = archive.objects("sessions");
        objects.iter().filter(|name| name.contains("/own-")).count() == 2
    });
    let draining = drain(&lab, &relay);
    other.wait_for_log(&["session is resumable"]);
    wait_until("drain reports", || {
        let lines = draining.stdout();
        lines.contains(&"draining: sessions that cannot move to another relay: 1".to_owned())
    });
    app.emit(100);
    let status = StatusEndpoint::of(&relay);
    assert_eq!(status.get("/readyz").0, 503);
    assert_eq!(status.metric("relayd_draining"), 1);
    let taken_over = "relayd_archive_sessions_taken_over_total";
    StatusEndpoint::of(&other).wait_for_metric(taken_over, 1);
    assert_eq!(status.metric(taken_over), 0);
    let sent = load.stop();
    stop_consumer(consumer);
    let session = archive.session_url(HOST, TRACE);
    shows(200);
    assert!(!draining.stdout().contains(&"drained".to_owned()));
    daemon.lttng(&["destroy", "fixed"]);
    app.end();
    let drained = draining.wait().expect_success();
    assert_eq!(drained.last().map(String::as_str), Some("drained"));
    // Viewers of both are served until the relay is stopped.
    assert!(relay.log().iter().all(|line| !line.contains("stopping")));
    let output = relay.output.clone();
    relay.stop().expect_success();
    other.stop().expect_success();
    assert_all(&read(&lab, &[], &session).expect_success(), sent);
    let of_lttng = text(&lab, output);
    assert_eq!(
        of_lttng.iter().filter(|line| line.contains("app")).count(),
        200
    );
}

#[test]
fn session_that_begins_while_its_first_relay_drains_is_opened_at_the_next_one() {
    let (lab, other_lab) = (Lab::new(), Lab::new());
    let archive = ArchiveDirectory::new(&lab);
    let (relay, other) = (start(&lab, &archive), start(&other_lab, &archive));
    drain(&lab, &relay).wait().expect_success();
    let mut consumer = start_consumer_of(&lab, &[relay.addresses(), other.addresses()]);
    consumer.wait_for_stderr_text("consumer::agent: ready");
    let load = Load::start(agent::socket(&lab), random(), 0);
    other.wait_for_log(&["session is resumable"]);
    relay.wait_for_log(&["MakeResumable refused: the relay drains"]);
    let sent = load.stop();
    stop_consumer(consumer);
    relay.stop().expect_success();
    other.stop().expect_success();
    let shown = read(&lab, &[], &archive.session_url(HOST, TRACE));
    assert_all(&shown.expect_success(), sent);
    assert_eq!(archive.ended(), 1);
}

#[test]
fn producer_without_another_relay_comes_back_to_the_one_that_drains() {
    let lab = Lab::new();
    let archive = ArchiveDirectory::new(&lab);
    let relay = start(&lab, &archive);
    let mut consumer = start_consumer(&lab, relay.addresses());
    consumer.wait_for_stderr_text("consumer::agent: ready");
    let load = Load::start(agent::socket(&lab), random(), 0);
    relay.wait_for_log(&["session is resumable"]);
    let drained = drain(&lab, &relay).wait().expect_success();
    let returned = "drained; sessions that came back, for want of another relay: 1";
    assert_eq!(drained.last().map(String::as_str), Some(returned));
    relay.wait_for_log(&["session resumed"]);
    // A new session, which the relay turns away once.
    let sent = load.stop();
    stop_consumer(consumer);
    let mut consumer = start_consumer(&lab, relay.addresses());
    consumer.wait_for_stderr_text("consumer::agent: ready");
    let more = Load::start(agent::socket(&lab), random(), sent);
    wait_until("both sessions are listed", || {
        archive.objects("days").len() > 2
    });
    let end = more.stop();
    stop_consumer(consumer);
    relay.stop().expect_success();
    let shown = read(&lab, &[], &archive.session_url(HOST, TRACE));
    assert_all(&shown.expect_success(), end);
}
