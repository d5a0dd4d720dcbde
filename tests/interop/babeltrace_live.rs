//! LTTng as the producer and Babeltrace as the viewer: live viewers and the directory show the same
//! events.

use std::os::unix::process::ExitStatusExt;

use rustix::process::Signal;
use tests::babeltrace::{Babeltrace, numbers};
use tests::lttng::SessionDaemon;
use tests::process::{CompletedProcess, Process};
use tests::relay::Relay;
use tests::traced_app::{self, TracedApp};
use tests::viewer::Viewer;
use tests::wait_until;
use viewer_proto::session::ListedSession;

/// The live timer, in microseconds.
const LIVE_TIMER: u32 = 100_000;

/// Starts viewers of a session and waits until all are attached, or one of them has exited.
fn start_viewers(relay: &Relay, session: &str, with: &[Babeltrace]) -> Vec<Process> {
    let mut viewers: Vec<_> = with
        .iter()
        .map(|babeltrace| babeltrace.follow(relay, session))
        .collect();
    let mut viewer = Viewer::connect(relay.live);
    let is_it = |listed: &ListedSession| listed.name.as_bytes() == session.as_bytes();
    wait_until("all viewers are attached", || {
        let attached = viewer.sessions().into_iter().find(is_it);
        attached.is_some_and(|listed| listed.viewers as usize == with.len())
            || !viewers.iter_mut().all(Process::is_running)
    });
    viewers
}

/// Waits until all viewers exit with success and without messages, and returns the lines that each
/// has printed.
fn wait_for_output(viewers: Vec<Process>) -> Vec<Vec<String>> {
    viewers
        .into_iter()
        .map(|viewer| {
            let ended = viewer.wait();
            assert!(
                ended.status.success(),
                "{}: {:#?}",
                ended.status,
                ended.stderr
            );
            assert_eq!(ended.stderr, Vec::<String>::new());
            ended.stdout
        })
        .collect()
}

/// Returns the lines in alphabetical order.
fn sorted(mut lines: Vec<String>) -> Vec<String> {
    lines.sort();
    lines
}

#[test]
fn every_viewer_and_the_directory_show_every_event_once() {
    const COUNT: usize = 200_000;
    let (lab, relay) = Relay::start_in_new_lab();
    let options = [
        "--subbuf-size=64k",
        "--num-subbuf=8",
        "--blocking-timeout=inf",
    ];
    let daemon = SessionDaemon::start_with_channel(&lab, &relay, "all", Some(LIVE_TIMER), &options);
    // A channel without events: only beacons let viewers continue.
    daemon.enable_channel("all", "idle", &[], false);
    let viewers = start_viewers(
        &relay,
        "all",
        &[Babeltrace::Two, Babeltrace::Two, Babeltrace::Two],
    );
    daemon.lttng(&["start", "all"]);
    traced_app::run(&lab, COUNT, 0, "all");
    daemon.lttng(&["destroy", "all"]);
    let seen = wait_for_output(viewers);
    let directory = Babeltrace::Two.read(&relay.output).expect_success();
    let mut all = numbers(&directory);
    all.sort_unstable();
    assert!(all.into_iter().eq(0..COUNT));
    for lines in seen {
        assert_eq!(lines.len(), COUNT);
        assert!(
            lines == directory,
            "the live view differs from the directory"
        );
    }
}

#[test]
fn both_babeltrace_versions_read_the_session_and_its_directory() {
    let (lab, relay) = Relay::start_in_new_lab();
    let daemon = SessionDaemon::start_with_session(&lab, &relay, "both", Some(LIVE_TIMER));
    let listed = format!(
        "net://{}/host/{}/both",
        relay.live,
        tests::viewer::hostname()
    );
    for babeltrace in [Babeltrace::One, Babeltrace::Two] {
        let list = babeltrace.list(&relay);
        assert!(
            list.iter().any(|line| line.starts_with(&listed)),
            "{babeltrace:?}: {list:?}"
        );
    }
    let viewers = start_viewers(&relay, "both", &[Babeltrace::One, Babeltrace::Two]);
    daemon.lttng(&["start", "both"]);
    let mut app = TracedApp::start(&lab, "both");
    app.emit(40);
    app.end();
    daemon.lttng(&["destroy", "both"]);
    let mut seen = wait_for_output(viewers);
    for babeltrace in [Babeltrace::One, Babeltrace::Two] {
        seen.push(babeltrace.read(&relay.output).expect_success());
    }
    for lines in seen {
        assert!(numbers(&lines).into_iter().eq(0..40), "{lines:#?}");
    }
}

#[test]
fn events_of_short_lived_processes_with_per_process_buffers_are_shown_live() {
    // Each of the known defects occurs in less than one of thirty runs, and only under full load.
    const ATTEMPTS: usize = 4;
    let seen = (0..ATTEMPTS).any(|_| {
        let ended = view_short_lived_process();
        // Every viewer that has not met a known defect must have shown all events.
        let (met, others): (Vec<_>, Vec<_>) = ended
            .into_iter()
            .partition(|(babeltrace, ended)| meets_known_defect(*babeltrace, ended));
        for (babeltrace, ended) in others {
            assert!(
                ended.status.success() && ended.stderr.is_empty(),
                "{babeltrace:?}: {}: {:#?}",
                ended.status,
                ended.stderr
            );
            let is_brief = |line: &&String| line.contains("\"brief\"");
            let brief: Vec<_> = ended.stdout.iter().filter(is_brief).cloned().collect();
            assert!(numbers(&brief).into_iter().eq(0..25), "{:#?}", ended.stdout);
        }
        met.is_empty()
    });
    assert!(seen, "viewers met known defects in {ATTEMPTS} attempts");
}

/// Runs three viewers of a session in which a process lives for about 50 ms, while all other
/// streams are idle. Returns the outputs of the viewers.
fn view_short_lived_process() -> Vec<(Babeltrace, CompletedProcess)> {
    let (lab, relay) = Relay::start_in_new_lab();
    let daemon = SessionDaemon::start_with_channel(
        &lab,
        &relay,
        "pid",
        Some(LIVE_TIMER),
        &["--buffers-pid", "--subbuf-size=4k"],
    );
    daemon.lttng(&["start", "pid"]);
    let mut idle = TracedApp::start(&lab, "idle");
    idle.emit(1);
    let mut viewer = Viewer::connect(relay.live);
    viewer.wait_for_listed("pid", |listed| listed.streams > 0);
    let with = [Babeltrace::Two, Babeltrace::One, Babeltrace::Two];
    let viewers = start_viewers(&relay, "pid", &with);
    traced_app::run(&lab, 25, 2000, "brief");
    daemon.lttng(&["destroy", "pid"]);
    idle.end();
    let directory = sorted(Babeltrace::Two.read(&relay.output).expect_success());
    assert_eq!(directory.len(), 26);
    let ended = viewers.into_iter().map(Process::wait);
    with.into_iter().zip(ended).collect()
}

/// Whether a viewer has failed in a way that no relay can prevent. Under load, LTTng 2.13 sends the
/// metadata of a new process in pieces, and streams some milliseconds after their first packet
/// began, with a later time of another stream in between.
fn meets_known_defect(babeltrace: Babeltrace, ended: &CompletedProcess) -> bool {
    let says = |what: &str| ended.stderr.iter().any(|line| line.contains(what));
    match babeltrace {
        Babeltrace::One => false,
        // Babeltrace 2.0.4 writes out of bounds: the number of values that an iterator can store is
        // fixed by the metadata that has arrived when it begins.
        Babeltrace::Two if ended.status.signal() == Some(Signal::SEGV.as_raw()) => true,
        // A message with an earlier time than the last one: it fails, and prints an invalid time.
        Babeltrace::Two => says("cycles=9223372036854775808"),
    }
}

#[test]
fn replaced_tracefiles_do_not_affect_live_viewers() {
    const COUNT: usize = 400;
    let (lab, relay) = Relay::start_in_new_lab();
    let options = [
        "--subbuf-size=4k",
        "--tracefile-size=16k",
        "--tracefile-count=3",
    ];
    let daemon =
        SessionDaemon::start_with_channel(&lab, &relay, "ring", Some(LIVE_TIMER), &options);
    daemon.enable_channel("ring", "idle", &options, false);
    let viewers = start_viewers(
        &relay,
        "ring",
        &[Babeltrace::Two, Babeltrace::Two, Babeltrace::Two],
    );
    daemon.lttng(&["start", "ring"]);
    // About forty packets, three times what the tracefiles hold, at a rate that viewers can follow.
    traced_app::run(&lab, COUNT, 10_000, "ring");
    daemon.lttng(&["destroy", "ring"]);
    let seen = wait_for_output(viewers);
    for lines in &seen {
        assert!(numbers(lines).into_iter().eq(0..COUNT));
    }
    let directory = Babeltrace::Two.read(&relay.output).expect_success();
    assert!(directory.len() < COUNT, "nothing has been replaced");
    for cpu in 0..64 {
        let cpu = format!("cpu_id = {cpu} ");
        let of_cpu = |lines: &[String]| -> Vec<String> {
            lines
                .iter()
                .filter(|line| line.contains(&cpu))
                .cloned()
                .collect()
        };
        assert!(of_cpu(&seen[0]).ends_with(&of_cpu(&directory)), "{cpu}");
    }
    let files = tests::tree::files(&relay.output, "");
    assert!(files.keys().any(|name| name.ends_with("_2")));
    assert!(!files.keys().any(|name| name.ends_with("_3")));
    assert!(files.values().all(|contents| contents.len() <= 16 << 10));
}
