//! `test-live top`: tables for scripts, and the screen in a pseudo terminal.

use std::path::Path;
use std::process::Stdio;

use rustix::process::Signal;
use tests::lab::Lab;
use tests::lttng::SessionDaemon;
use tests::process::Process;
use tests::producer::{Producer, live_session};
use tests::relay::Relay;
use tests::replay::{HOST, Replay};
use tests::terminal::{LeftTerminal, Terminal};
use tests::traced_app::TracedApp;
use tests::viewer::hostname;
use tests::{test_live, traces, wait_for, wait_until};

/// What `top` writes when it leaves the screen.
const LEAVE_SCREEN: &str = "\u{1b}[?1049l";
const SHOW_CURSOR: &str = "\u{1b}[?25h";

/// Returns a row of a table: kind, rate, total, lag, losses and name.
fn row<'t>(table: &'t [String], kind: &str, name: &str) -> Option<[&'t str; 5]> {
    table.iter().rev().find_map(|line| {
        let mut columns = line.split_whitespace();
        let mut next = || columns.next();
        let row = [next()?, next()?, next()?, next()?, next()?];
        let is_row = row[0] == kind && columns.collect::<Vec<_>>().join(" ") == name;
        is_row.then_some(row)
    })
}

/// Returns the total in the last row of this kind and name.
fn total(table: &[String], kind: &str, name: &str) -> Option<u64> {
    row(table, kind, name)?[2].parse().ok()
}

fn start_batch(lab: &Lab, options: &[&str], target: &str) -> Process {
    let words = [&["top", "--batch", "-d", "0.1"], options, &[target]].concat();
    test_live::start(lab, &words)
}

/// Returns a replayed session of two streams with 200 events.
fn open_replay(lab: &Lab, relay: &Relay, session: &str) -> Replay {
    let directory = traces::with_numbered_events(lab, session, 200, 1_000_000);
    Replay::open_with_idle_stream(relay, session, &directory)
}

#[test]
fn tables_count_a_session_until_it_ends() {
    let (lab, relay) = Relay::start_in_new_lab();
    let mut replay = open_replay(&lab, &relay, "counted");
    let url = test_live::url(relay.live, HOST, "counted");
    let top = start_batch(&lab, &["--seek", "beginning"], &url);
    replay.send_packets();
    let name = format!("{HOST}/counted");
    wait_until("all events are counted", || {
        total(&top.stdout(), "session", &name) == Some(200)
    });
    replay.close();
    let tables = top.wait().expect_success();
    for (kind, name) in [
        ("session", &*name),
        ("event", "numbered"),
        ("process", "42 prog"),
    ] {
        assert_eq!(total(&tables, kind, name), Some(200), "{kind}: {tables:#?}");
    }
    let rates = tables.iter().filter(|line| line.starts_with("session"));
    let mut rates = rates.filter_map(|line| line.split_whitespace().nth(1)?.parse().ok());
    assert!(rates.any(|rate: f64| rate > 0.0), "{tables:#?}");
}

#[test]
fn tables_show_the_lag_and_the_processes_of_a_session_of_lttng() {
    let (lab, relay) = Relay::start_in_new_lab();
    let daemon = SessionDaemon::start_with_session(&lab, &relay, "live", Some(100_000));
    let context = [
        "add-context",
        "-u",
        "-s",
        "live",
        "-t",
        "vpid",
        "-t",
        "procname",
    ];
    daemon.lttng(&context);
    daemon.lttng(&["start", "live"]);
    let mut app = TracedApp::start(&lab, "one");
    app.emit(10);
    let top = start_batch(&lab, &["--seek", "beginning"], &relay.live.to_string());
    let name = format!("{}/live", hostname());
    let mut emitted = 10;
    wait_until("all events are counted", || {
        // Streams of which there is no packet yet begin with the next.
        app.emit(1);
        emitted += 1;
        total(&top.stdout(), "session", &name).is_some_and(|total| total >= 10)
    });
    let table = top.stdout();
    let lag: f64 = row(&table, "session", &name).unwrap()[3].parse().unwrap();
    assert!((0.0..3600.0).contains(&lag), "{lag}");
    let is_process = |line: &String| line.starts_with("process") && line.ends_with(" tracee");
    assert!(table.iter().any(is_process), "{table:#?}");
    app.end();
    daemon.lttng(&["destroy", "live"]);
    top.signal(Signal::TERM);
    top.wait().expect_success();
}

#[test]
fn processes_have_the_names_of_the_state_dump_without_a_context_that_tells_them() {
    let (lab, relay) = Relay::start_in_new_lab();
    let daemon = SessionDaemon::start_with_session(&lab, &relay, "dumped", Some(100_000));
    daemon.lttng(&["add-context", "-u", "-s", "dumped", "-t", "vpid"]);
    let events = "lttng_ust_statedump:*";
    let enable = ["enable-event", "-u", "-s", "dumped", "-c", "busy", events];
    daemon.lttng(&enable);
    daemon.lttng(&["start", "dumped"]);
    let mut app = TracedApp::start(&lab, "one");
    app.emit(1);
    // The state dump is not selected, and says the name nevertheless.
    let options = ["--seek", "beginning", "--filter", "$name == \"tracee:*\""];
    let top = start_batch(&lab, &options, &relay.live.to_string());
    let is_named = |line: &String| line.starts_with("process") && line.ends_with(" tracee");
    wait_until("the process has a name", || {
        app.emit(1);
        top.stdout().iter().any(is_named)
    });
    app.end();
    daemon.lttng(&["destroy", "dumped"]);
    top.signal(Signal::TERM);
    top.wait().expect_success();
    let words = ["info", relay.output.to_str().unwrap()];
    let info = test_live::start(&lab, &words).wait().expect_success();
    let heading = info.iter().position(|line| line.ends_with("  PROCESS"));
    let process = &info[heading.expect("there is a process") + 1];
    assert!(process.ends_with("  tracee"), "{info:#?}");
    let twice = format!("{0}/{0}/", hostname());
    assert!(!info.join("\n").contains(&twice), "{info:#?}");
}

#[test]
fn tables_show_sessions_that_appear_and_go() {
    let (lab, relay) = Relay::start_in_new_lab();
    let target = format!("net://{}", relay.live);
    let mut top = start_batch(&lab, &["--seek=beginning"], &target);
    top.wait_for_stderr_text("waiting for a live session");
    for session in ["first", "second"] {
        let mut replay = open_replay(&lab, &relay, session);
        replay.send_packets();
        let name = format!("{HOST}/{session}");
        wait_until("all events are counted", || {
            total(&top.stdout(), "session", &name) == Some(200)
        });
        replay.close();
    }
    top.signal(Signal::TERM);
    top.wait().expect_success();
}

#[test]
fn number_of_tables_and_filter_are_obeyed() {
    let (lab, relay) = Relay::start_in_new_lab();
    let mut replay = open_replay(&lab, &relay, "filtered");
    replay.send_packets();
    let options = ["--seek=beginning", "--filter", "number < 50", "-n", "3"];
    let url = test_live::url(relay.live, HOST, "filtered");
    let tables = start_batch(&lab, &options, &url).wait().expect_success();
    let headings = tables.iter().filter(|line| line.starts_with("KIND"));
    assert_eq!(headings.count(), 3);
    let name = format!("{HOST}/filtered");
    let options = ["--seek=beginning", "--filter", "number < 50"];
    let top = start_batch(&lab, &options, &url);
    wait_until("the selected events are counted", || {
        total(&top.stdout(), "session", &name) == Some(50)
    });
    replay.close();
    let tables = top.wait().expect_success();
    assert_eq!(total(&tables, "session", &name), Some(50), "{tables:#?}");
}

#[test]
fn losses_and_rates_of_a_directory_are_shown() {
    let lab = Lab::new();
    let top = |directory: &Path| {
        start_batch(&lab, &[], directory.to_str().unwrap())
            .wait()
            .expect_success()
    };
    let tables = top(&traces::with_losses(&lab));
    let lost = row(&tables, "session", "host").unwrap()[4];
    assert!(lost.parse::<u64>().unwrap() > 0, "{tables:#?}");
    // 100 events, a second apart.
    let slow = traces::with_numbered_events(&lab, "slow", 100, 1_000_000_000);
    let tables = top(&slow);
    assert_eq!(
        row(&tables, "session", "host").unwrap()[1],
        "1.0",
        "{tables:#?}"
    );
}

#[test]
fn failures_of_tables_are_reported_and_change_the_exit_status() {
    let (lab, relay) = Relay::start_in_new_lab();
    let _producer = Producer::open(&relay, live_session("other"));
    let url = test_live::url(relay.live, HOST, "othre");
    for (options, target, status, want) in [
        (&[][..], &*url, 1, "othre"),
        (&["-n", "1"], &relay.live.to_string(), 1, "no live session"),
        (&["--filter", "a ="], &url, 2, "equality"),
    ] {
        let ended = start_batch(&lab, options, target).wait();
        assert_eq!(ended.status.code(), Some(status), "{:?}", ended.stderr);
        let stderr = ended.stderr.join("\n");
        assert!(stderr.contains(want), "{want}: {stderr}");
    }
}

#[test]
fn without_a_terminal_the_error_names_batch_mode() {
    let lab = Lab::new();
    let mut command = test_live::command(&lab, &["top", "localhost:1"]);
    let ended = Process::start(command.stdin(Stdio::null())).wait();
    assert_eq!(ended.status.code(), Some(2));
    assert!(
        ended.stderr.join("\n").contains("--batch"),
        "{:?}",
        ended.stderr
    );
}

/// Returns a screen that shows a replayed session `watched`, and the session.
fn start_screen(lab: &Lab, relay: &Relay, size: (u16, u16)) -> (Terminal, Replay) {
    let mut replay = open_replay(lab, relay, "watched");
    replay.send_packets();
    let relay = relay.live.to_string();
    let arguments = ["top", "--seek=beginning", "-d", "0.3", &relay];
    let screen = Terminal::start(lab, size, &test_live::command(lab, &arguments));
    // A message may name the session before the table has a row for it.
    screen.wait_for("1 session ");
    screen.wait_for("/watched");
    (screen, replay)
}

fn assert_restored(left: &LeftTerminal) {
    assert!(left.is_restored, "the terminal has other settings");
    for text in [LEAVE_SCREEN, SHOW_CURSOR] {
        let last = left.output.rfind(text).expect("the screen is left");
        let after = &left.output[last + text.len()..];
        assert!(
            !after.contains("events/s"),
            "something is drawn after the end"
        );
    }
}

#[test]
fn screen_follows_keys_and_the_size_of_the_terminal() {
    let (lab, relay) = Relay::start_in_new_lab();
    let (mut screen, replay) = start_screen(&lab, &relay, (80, 24));
    screen.press("\r");
    screen.wait_for("PROCESS");
    screen.wait_for("42 prog");
    screen.wait_for("Esc back");
    screen.press("\u{1b}");
    screen.wait_for("SESSION");
    screen.press("?");
    screen.wait_for("any other key closes the help");
    screen.press("x/number <\r");
    screen.wait_for("/number <  ");
    screen.press(" 10\r");
    screen.wait_for("filter: number < 10");
    screen.press("s");
    screen.wait_for("sort: total");
    screen.press(" ");
    screen.wait_for("PAUSED");
    for size in [(40, 10), (7, 3), (1, 1)] {
        let written = screen.written();
        screen.resize(size);
        wait_until("the screen is drawn again", || screen.written() > written);
    }
    screen.resize((120, 40));
    screen.wait_for("Enter session");
    screen.wait_for("host/watched");
    screen.press("q");
    let left = screen.wait();
    assert_eq!(left.status, "0");
    assert_restored(&left);
    replay.close();
}

#[test]
fn terminal_is_restored_after_control_c_and_signals() {
    let (lab, relay) = Relay::start_in_new_lab();
    let (mut screen, replay) = start_screen(&lab, &relay, (80, 24));
    screen.press("\u{3}");
    let left = screen.wait();
    assert_eq!(left.status, "0");
    assert_restored(&left);
    replay.close();
    for signal in [Signal::TERM, Signal::HUP, Signal::INT] {
        let lab = Lab::new();
        let (screen, replay) = start_screen(&lab, &relay, (40, 10));
        screen.signal(signal);
        let left = screen.wait();
        assert_eq!(left.status, "0", "{signal:?}");
        assert_restored(&left);
        replay.close();
    }
}

#[test]
fn screen_closes_with_an_error_if_the_session_does_not_exist() {
    let (lab, relay) = Relay::start_in_new_lab();
    let url = test_live::url(relay.live, HOST, "missing");
    let command = test_live::command(&lab, &["top", &url]);
    let left = Terminal::start(&lab, (80, 24), &command).wait();
    assert_eq!(left.status, "1");
    assert_restored(&left);
    let text = &left.screen;
    assert!(text.contains("error") && text.contains("missing"), "{text}");
}

#[test]
fn screen_stays_with_the_counts_of_a_recording_until_the_user_quits() {
    let lab = Lab::new();
    let directory = traces::with_numbered_events(&lab, "recording", 100, 1_000_000_000);
    let command = test_live::command(&lab, &["top", directory.to_str().unwrap()]);
    let mut screen = Terminal::start(&lab, (80, 24), &command);
    screen.wait_for("ENDED");
    let status = lab.path().join("terminal/status");
    assert!(!status.exists());
    screen.press("q");
    assert_restored(&screen.wait());
    wait_for("the status", || status.exists().then_some(()));
}
