//! `consumer replay` to `relayd` and to `lttng-relayd`: the recorded files, and what viewers show
//! live, have the events of the original.

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tests::babeltrace::{Babeltrace, numbers};
use tests::binaries;
use tests::consumer::{HeldReplay, replay_command};
use tests::lab::Lab;
use tests::process::{CompletedProcess, Process};
use tests::relay::Relay;
use tests::replay::HOST;
use tests::test_live;
use tests::traces;
use tests::tree::files;
use tests::viewer::Viewer;
use tests::wait_until;
use viewer_proto::session::ListedSession;

/// Starts `relayd` and `lttng-relayd`, the reference.
fn relays(lab: &Lab) -> [Relay; 2] {
    [Relay::start(lab), Relay::start_reference(lab)]
}

/// Returns the synthetic traces, and one that LTTng recorded.
fn trace_directories(lab: &Lab) -> [std::path::PathBuf; 5] {
    [
        traces::with_every_field_type(lab),
        traces::with_equal_timestamps(lab),
        traces::with_losses(lab),
        traces::with_idle_streams(lab),
        traces::recorded_by_lttng(lab, "--buffers-pid", 300),
    ]
}

fn name(directory: &Path) -> String {
    let name = directory.file_name().unwrap().to_str().unwrap();
    name.to_owned()
}

/// Returns the events as Babeltrace prints them, without the trace name, which is that of the
/// directory.
pub(crate) fn events(directory: &Path) -> Vec<String> {
    let shown = Babeltrace::Two.read_with(&["--no-delta", "--clock-cycles"], directory);
    shown.expect_success()
}

/// Returns the output directory of the only session of a name.
pub(crate) fn directory_of(relay: &Relay, session: &str) -> std::path::PathBuf {
    let sessions = directories_of(relay, session);
    assert_eq!(sessions.len(), 1, "{sessions:?}");
    sessions.into_iter().next().unwrap()
}

fn directories_of(relay: &Relay, session: &str) -> Vec<std::path::PathBuf> {
    // `<session>-YYYYmmdd-HHMMSS`
    const DATE: usize = "-20260101-000000".len();
    // The host directory is created with the first session.
    let host = std::fs::read_dir(relay.output.join(HOST)).ok();
    let entries = host
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().path());
    let is_of = |path: &std::path::PathBuf| {
        let name = name(path);
        name.len() == session.len() + DATE && name.starts_with(session)
    };
    let mut found: Vec<_> = entries.filter(is_of).collect();
    found.sort();
    found
}

fn replay(lab: &Lab, relay: &Relay, directory: &Path) -> CompletedProcess {
    replay_as(lab, relay, &name(directory), directory)
}

/// Replays a directory as a session of this name.
pub(crate) fn replay_as(
    lab: &Lab,
    relay: &Relay,
    session: &str,
    directory: &Path,
) -> CompletedProcess {
    Process::start(&mut replay_command(lab, relay, session, directory)).wait()
}

#[test]
fn a_replayed_directory_holds_the_events_of_the_original() {
    let lab = Lab::new();
    let relays = relays(&lab);
    for directory in trace_directories(&lab) {
        let want = events(&directory);
        assert!(want.len() > 3);
        for relay in &relays {
            replay(&lab, relay, &directory).expect_success();
            let copy = directory_of(relay, &name(&directory));
            assert!(events(&copy) == want, "{}", copy.display());
        }
    }
}

#[test]
fn a_replay_with_a_tracefile_size_records_every_event() {
    const PACKETS: u64 = 60;
    let lab = Lab::new();
    let directory = traces::with_numbered_events(&lab, "cut", PACKETS, 1000);
    // No tracefile count is given: `consumer` sends one all the same, since `lttng-relayd` crashes
    // on a tracefile size without a count.
    for relay in relays(&lab) {
        let mut command = replay_command(&lab, &relay, "cut", &directory);
        let replay = Process::start(command.arg("--tracefile-size=9000"));
        replay.wait().expect_success();
        let copy = directory_of(&relay, "cut");
        assert!(files(&copy, ".idx").len() > 20);
        assert!(events(&copy) == events(&directory));
    }
}

/// A program that views a session.
#[derive(Clone, Copy)]
pub(crate) enum ViewerProgram {
    Babeltrace,
    TestLive,
}

impl ViewerProgram {
    fn start(self, lab: &Lab, relay: &Relay, session: &str) -> Process {
        let options = ["--clock-cycles", "--no-delta"];
        match self {
            Self::Babeltrace => {
                let url = format!("net://{}/host/{HOST}/{session}", relay.live);
                let mut command = Command::new(tests::peers::program("babeltrace2"));
                command.args(options).args(["-i", "lttng-live", &url]);
                Process::start(&mut command)
            }
            Self::TestLive => test_live::follow(lab, relay, HOST, session, &options),
        }
    }
}

/// Replays a directory live, with viewers attached from the beginning, which must print `lines`
/// lines. Returns the output of each viewer.
pub(crate) fn replay_with_viewers(
    lab: &Lab,
    relay: &Relay,
    directory: &Path,
    session: &str,
    programs: &[ViewerProgram],
    lines: usize,
) -> Vec<CompletedProcess> {
    let mut held = HeldReplay::open(replay_command(lab, relay, session, directory));
    // Babeltrace exits at once if the session does not exist.
    Viewer::connect(relay.live).wait_for_session(session);
    let start = |program: &ViewerProgram| program.start(lab, relay, session);
    let mut viewers: Vec<_> = programs.iter().map(start).collect();
    let all = |listed: &ListedSession| listed.viewers as usize == viewers.len();
    Viewer::connect(relay.live).wait_for_listed(session, all);
    held.send_packets();
    // Viewers of `lttng-relayd` may miss what they have not read when its streams close.
    for viewer in &mut viewers {
        wait_until("all events are printed", || {
            viewer.stdout_line_count() >= lines || !viewer.is_running()
        });
    }
    held.close_session().wait().expect_success();
    viewers.into_iter().map(Process::wait).collect()
}

#[test]
fn viewers_of_a_live_replay_show_the_events_of_the_original() {
    let (lab, relay) = Relay::start_in_new_lab();
    for directory in trace_directories(&lab) {
        let (want, session) = (events(&directory), name(&directory));
        let both = [ViewerProgram::Babeltrace, ViewerProgram::TestLive];
        for shown in replay_with_viewers(&lab, &relay, &directory, &session, &both, want.len()) {
            assert!(shown.expect_success() == want, "{session}");
        }
        assert!(events(&directory_of(&relay, &session)) == want, "{session}");
    }
}

#[test]
fn viewers_of_a_live_replay_through_lttng_relayd_show_the_events_of_the_original() {
    let lab = Lab::new();
    let relay = Relay::start_reference(&lab);
    for directory in trace_directories(&lab) {
        let want = events(&directory);
        // `lttng-relayd` allows one viewer for each session.
        let each = [
            ("bt", ViewerProgram::Babeltrace),
            ("tl", ViewerProgram::TestLive),
        ];
        for (prefix, program) in each {
            let session = format!("{prefix}-{}", name(&directory));
            let shown =
                replay_with_viewers(&lab, &relay, &directory, &session, &[program], want.len());
            for shown in shown {
                assert!(shown.expect_success() == want, "{session}");
            }
            assert!(events(&directory_of(&relay, &session)) == want, "{session}");
        }
    }
}

#[test]
fn a_replayed_stream_whose_clock_goes_back_keeps_the_order_of_its_file() {
    let (lab, relay) = Relay::start_in_new_lab();
    let directory = traces::with_restarted_clock(&lab);
    let programs = [ViewerProgram::TestLive];
    let viewers = replay_with_viewers(&lab, &relay, &directory, "back", &programs, 7);
    let of_first = |lines: &[String]| {
        let mut shown = numbers(lines);
        shown.retain(|number| *number < 10);
        shown
    };
    let warnings = viewers[0].stderr.iter();
    let warnings = warnings.filter(|line| line.contains("go backwards"));
    assert_eq!(warnings.count(), 1, "{:?}", viewers[0].stderr);
    assert_eq!(of_first(&viewers[0].stdout), [0, 1, 2, 3]);
    let copy = directory_of(&relay, "back");
    assert_eq!(
        files(&copy, "events_0").into_values().next().unwrap(),
        std::fs::read(directory.join("events_0")).unwrap()
    );
    let read = test_live::read(&lab, &[], &copy).stdout;
    assert_eq!(numbers(&read), [10, 0, 11, 1, 2, 3, 12]);
}

/// Replays numbered events 5 ms apart and kills the relay twice meanwhile. Each event must be in
/// one of the sessions. If the relay resumes sessions there is one, and each event is in it once.
fn check_replay_with_killed_relay(
    lab: &Lab,
    mut relay: Relay,
    again: fn(&Lab, [SocketAddr; 3]) -> Relay,
    is_resumed: bool,
) {
    const EVENTS: usize = 600;
    let directory = traces::with_numbered_events(lab, "numbered", EVENTS as u64, 5_000_000);
    let mut command = replay_command(lab, &relay, "numbered", &directory);
    let replay = Process::start(command.args(["--rate=realtime", "--live=20000"]));
    for killed in 1..=2 {
        let in_last = || {
            let sessions = directories_of(&relay, "numbered");
            sessions
                .last()
                .filter(|_| is_resumed || sessions.len() == killed)
                .cloned()
        };
        wait_until("some packets have arrived", || {
            let indexes = in_last().map(|session| files(&session, ".idx"));
            let len = if is_resumed { killed * 5000 } else { 5000 };
            indexes.is_some_and(|files| files.values().any(|file| file.len() > len))
        });
        relay.kill();
        let addresses = relay.addresses();
        drop(relay);
        relay = again(lab, addresses);
    }
    let ended = replay.wait();
    assert!(ended.status.success(), "{:#?}", ended.stderr);
    if is_resumed {
        let seen = numbers(&events(&directory_of(&relay, "numbered")));
        assert!(seen.into_iter().eq(0..EVENTS));
        return;
    }
    let mut seen = BTreeSet::new();
    for session in directories_of(&relay, "numbered") {
        // A killed relay may have left half a packet at the end, which the viewer reports.
        seen.extend(numbers(&test_live::read(lab, &[], &session).stdout));
    }
    assert!(seen.into_iter().eq(0..EVENTS));
}

#[test]
fn a_replay_loses_no_event_when_the_relay_is_killed() {
    let lab = Lab::new();
    check_replay_with_killed_relay(&lab, Relay::start(&lab), Relay::start_at, true);
}

#[test]
fn a_replay_loses_no_event_when_lttng_relayd_is_killed() {
    let lab = Lab::new();
    check_replay_with_killed_relay(
        &lab,
        Relay::start_reference(&lab),
        Relay::start_reference_at,
        false,
    );
}

#[test]
fn a_stopped_replay_closes_its_session_with_the_packets_sent_so_far() {
    let lab = Lab::new();
    for relay in relays(&lab) {
        let directory = traces::with_numbered_events(&lab, "stopped", 10_000, 5_000_000);
        let mut command = replay_command(&lab, &relay, "stopped", &directory);
        let replay = Process::start(command.arg("--rate=realtime"));
        wait_until("some packets have arrived", || {
            files(&relay.output, ".idx")
                .values()
                .any(|file| file.len() > 1000)
        });
        replay.signal(Signal::TERM);
        let ended = replay.wait();
        assert_eq!(ended.status.code(), Some(1));
        let summary = ended.stderr.last().unwrap();
        let packets = summary.split(' ').next().unwrap().parse().unwrap();
        assert!(summary.ends_with("; stopped before the end"), "{summary}");
        let copy = directory_of(&relay, "stopped");
        let seen = numbers(&Babeltrace::Two.read(&copy).expect_success());
        assert!(seen.into_iter().eq(0..packets));
    }
}

#[test]
fn valid_packets_of_a_broken_trace_are_sent_and_the_rest_is_an_error() {
    let (lab, relay) = Relay::start_in_new_lab();
    let directory = traces::with_numbered_events(&lab, "broken", 100, 1000);
    let mut file = OpenOptions::new()
        .append(true)
        .open(directory.join("events_1"))
        .unwrap();
    file.write_all(&[0xff; 100]).unwrap();
    let ended = replay(&lab, &relay, &directory);
    assert_eq!(ended.status.code(), Some(1));
    let says = |what: &str| ended.stderr.iter().any(|line| line.contains(what));
    assert!(says("events_1, packet at byte"), "{:#?}", ended.stderr);
    assert!(says("100 packets,") && says("1 files broken"));
    let seen = numbers(&events(&directory_of(&relay, "broken")));
    assert!(seen.into_iter().eq(0..100));
}

#[test]
fn consumer_reports_why_a_command_failed() {
    let lab = Lab::new();
    let run = |arguments: &[&str]| {
        let mut command = lab.command(binaries::consumer());
        Process::start(command.args(arguments)).wait()
    };
    let nowhere = "net://127.0.0.1:1:1";
    for (arguments, code, says) in [
        (&["status", "--socket=none"][..], 1, "no agent runs"),
        (&["replay", "none", "-U", nowhere], 1, "cannot read none"),
        (&["replay", ".", "-U", nowhere], 1, "no trace at or below"),
        (&["replay", "."], 2, "no relay is named"),
        (&["serve"], 2, "no relay is named"),
        (&["check-config", "none.toml"], 2, "cannot read none.toml"),
    ] {
        let ended = run(arguments);
        assert_eq!(ended.status.code(), Some(code), "{arguments:?}");
        let last = ended.stderr.last().unwrap();
        assert!(last.contains(says), "{arguments:?}: {last}");
    }
    let malformed = lab.path().join("malformed.toml");
    std::fs::write(&malformed, "[relay]\nurl = 1\n").unwrap();
    let ended = run(&["check-config", malformed.to_str().unwrap()]);
    assert_eq!(ended.status.code(), Some(2));
    let text = ended.stderr.join("\n");
    assert_eq!(text.matches("invalid type").count(), 1, "{text}");
    let directory = traces::with_numbered_events(&lab, "alone", 3, 1000);
    let directory = directory.to_str().unwrap();
    let begun = Instant::now();
    let ended = run(&["replay", directory, "-U", nowhere, "--reconnect-timeout=1"]);
    // Not at the pause that would end after it.
    assert!(begun.elapsed() >= Duration::from_secs(1), "{begun:?}");
    assert_eq!(ended.status.code(), Some(1));
    let says = |what: &str| ended.stderr.iter().any(|line| line.contains(what));
    assert!(
        says("0 of 3 packets acknowledged")
            && says("; 3 packets LOST")
            && says("consumer: no connection for 1 s: cannot connect to "),
        "{:#?}",
        ended.stderr
    );
    // When it fails first, and at the end; not at each attempt.
    let refused = ended.stderr.iter();
    let refused = refused.filter(|line| line.contains("Connection refused"));
    assert_eq!(refused.count(), 2, "{:#?}", ended.stderr);
}
