//! What our viewer does besides printing: lists, selects, other sinks, and how it ends.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, Weak};

use rustix::process::Signal;
use tests::babeltrace::{Babeltrace, numbers};
use tests::lab::Lab;
use tests::lttng::SessionDaemon;
use tests::process::Process;
use tests::producer::{Producer, live_session};
use tests::relay::Relay;
use tests::replay::{HOST, Idle, MetadataPieces, Replay};
use tests::tracee;
use tests::viewer::hostname;
use tests::{TEST_TIMEOUT, recording, test_live, wait_until};

/// Events of each of the two programs that are recorded.
const EVENTS: usize = 300;

/// A recording of LTTng.
struct Recorded {
    _lab: Lab,
    directory: PathBuf,
}

/// One that all tests share which run at the same time.
fn recorded() -> Arc<Recorded> {
    static RECORDED: Mutex<Weak<Recorded>> = Mutex::new(Weak::new());
    let mut shared = RECORDED.lock().unwrap();
    if let Some(recorded) = shared.upgrade() {
        return recorded;
    }
    let lab = Lab::new();
    let directory = recording::of_lttng(&lab, "--buffers-uid", EVENTS);
    let recorded = Arc::new(Recorded {
        directory,
        _lab: lab,
    });
    *shared = Arc::downgrade(&recorded);
    recorded
}

impl Recorded {
    fn read(&self, lab: &Lab, options: &[&str]) -> Vec<String> {
        test_live::read(lab, options, &self.directory).succeeded()
    }
}

/// Opens a session that has been sent and not ended, and a viewer that has shown all of it.
fn shown(lab: &Lab, relay: &Relay, directory: &Path, options: &[&str]) -> (Replay, Process) {
    let mut replay = Replay::open(
        relay,
        "watched",
        directory,
        MetadataPieces::Whole,
        Idle::One,
    );
    replay.play();
    let options = [options, &["--seek", "beginning"]].concat();
    let viewer = test_live::follow(lab, relay, (HOST, "watched"), &options);
    let events = test_live::read(lab, &[], directory).succeeded().len();
    wait_until("all has been shown", || viewer.stdout().len() == events);
    (replay, viewer)
}

fn url(relay: &Relay, session: &str) -> String {
    test_live::url(relay.live, HOST, session)
}

#[test]
fn sessions_are_listed_as_babeltrace_lists_them_and_as_json() {
    let lab = Lab::new();
    let relay = Relay::start(&lab);
    let of_relay = format!("net://{}", relay.live);
    let _first = Producer::open(&relay, live_session("first"));
    let mut second = Producer::open(&relay, live_session("second"));
    second.add_trace("ust", &["c_0", "c_1"]);
    let text = test_live::start(&lab, &["--list", &of_relay]).wait();
    assert_eq!(text.succeeded(), Babeltrace::Two.list(&relay));
    let json = test_live::start(&lab, &["--list", "--json", &url(&relay, "second")]).wait();
    let json: serde_json::Value = serde_json::from_slice(&json.printed).unwrap();
    assert_eq!(json.as_array().unwrap().len(), 1);
    assert_eq!(json[0]["session-name"], "second");
    assert_eq!(json[0]["stream-count"], 3);
}

#[test]
fn a_limit_and_a_filter_choose_events() {
    let lab = Lab::new();
    let recorded = recorded();
    let all = recorded.read(&lab, &["--no-delta"]);
    assert_eq!(all.len(), 4 * EVENTS);
    assert_eq!(
        recorded.read(&lab, &["--no-delta", "--limit", "7"]),
        all[..7]
    );
    assert_eq!(recorded.read(&lab, &["--limit", "0"]), [""; 0]);
    let filter = "number >= 10 && number < 12 && name == \"two\"";
    let chosen = recorded.read(&lab, &["--no-delta", "--filter", filter]);
    let is_meant = |line: &&String| {
        line.contains("name = \"two\"")
            && (line.contains("number = 10,") || line.contains("number = 11,"))
    };
    let want: Vec<_> = all.iter().filter(is_meant).cloned().collect();
    assert_eq!((chosen.len(), chosen), (4, want));
}

#[test]
fn two_times_choose_the_events_from_one_to_the_other() {
    let lab = Lab::new();
    let recorded = recorded();
    let options = ["--no-delta", "--clock-seconds"];
    let all = recorded.read(&lab, &options);
    let time = |place: usize| {
        let (time, _) = all[place].split_once(']').unwrap();
        time.trim_start_matches('[').to_owned()
    };
    let (begin, end) = (time(100), time(200));
    let chosen = recorded.read(
        &lab,
        &[&options[..], &["--begin", &begin, "--end", &end]].concat(),
    );
    let is_meant = |line: &&String| {
        let time = line[1..].split_once(']').unwrap().0;
        time >= begin.as_str() && time <= end.as_str()
    };
    let want: Vec<_> = all.iter().filter(is_meant).cloned().collect();
    assert!(want.len() >= 101);
    assert_eq!(chosen, want);
}

#[test]
fn a_copy_is_what_was_read() {
    let lab = Lab::new();
    let recorded = recorded();
    let copy = lab.path().join("copy");
    recorded.read(&lab, &["--sink", "ctf", "-w", copy.to_str().unwrap()]);
    let want = Babeltrace::Two.read(&recorded.directory).succeeded();
    assert_eq!(Babeltrace::Two.read(&copy).succeeded(), want);
    // There is something in it now.
    let again = test_live::read(
        &lab,
        &["--sink", "ctf", "-w", copy.to_str().unwrap()],
        &recorded.directory,
    );
    assert_eq!(again.status.code(), Some(1));
}

#[test]
fn every_other_sink_takes_every_event() {
    let lab = Lab::new();
    let recorded = recorded();
    let json = recorded.read(&lab, &["--sink", "json"]);
    let mut seen = Vec::new();
    for line in &json {
        let event: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(event["event"], "tracee:tick");
        seen.push(event["time"].as_i64().unwrap());
    }
    assert_eq!(seen.len(), 4 * EVENTS);
    assert!(seen.is_sorted());
    let tef = recorded.read(&lab, &["--sink", "tef"]).join("\n");
    let tef: serde_json::Value = serde_json::from_str(&tef).unwrap();
    let records = tef["traceEvents"].as_array().unwrap();
    let ticks = records
        .iter()
        .filter(|record| record["name"] == "tracee:tick");
    assert_eq!(ticks.count(), 4 * EVENTS);
    let details = recorded.read(&lab, &["--sink", "details"]);
    let ticks = details
        .iter()
        .filter(|line| line.starts_with("Event `tracee:tick`"));
    assert_eq!(ticks.count(), 4 * EVENTS);
    let counted = recorded.read(&lab, &["--sink", "counter"]).join("\n");
    assert!(
        counted.contains(&format!("{} events in all", 4 * EVENTS)),
        "{counted}"
    );
    assert_eq!(recorded.read(&lab, &["--sink", "dummy"]), [""; 0]);
}

#[test]
fn nobody_reading_any_more_is_silent_and_no_failure() {
    let lab = Lab::new();
    let recorded = recorded();
    let mut command = test_live::command(&lab, &[]);
    let mut viewer = command
        .arg(&recorded.directory)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut stdout = BufReader::with_capacity(16, viewer.stdout.take().unwrap());
    stdout.read_line(&mut line).unwrap();
    drop(stdout);
    let ended = viewer.wait_with_output().unwrap();
    assert!(line.contains("tracee:tick"));
    assert_eq!(String::from_utf8_lossy(&ended.stderr), "");
    assert!(ended.status.success());
}

#[test]
fn an_interrupt_ends_with_all_that_was_certain_and_leaves_the_session() {
    let lab = Lab::new();
    let recorded = recorded();
    let relay = Relay::start(&lab);
    let (replay, viewer) = shown(&lab, &relay, &recorded.directory, &["--no-delta"]);
    viewer.signal(Signal::INT);
    let ended = viewer.wait();
    assert_eq!(ended.succeeded(), recorded.read(&lab, &["--no-delta"]));
    test_live::wait_until_watched(&relay, "watched", 0);
    relay.wait_for_log(&["viewer detached"]);
    replay.end();
}

#[test]
fn losses_are_told_and_fail_if_they_must_not_be() {
    let lab = Lab::new();
    let recorded = recorded();
    let directory = recording::with_losses(&lab);
    for (options, code) in [(&["--strict"][..], 1), (&[], 0)] {
        let ended = test_live::read(&lab, options, &directory);
        assert_eq!(ended.status.code(), Some(code));
        let said = ended.stderr.join("\n");
        assert!(said.contains("Tracer discarded 2 events between"), "{said}");
        assert!(said.contains("Tracer discarded 1 packet between"), "{said}");
        assert!(said.contains("; lost: "), "{said}");
    }
    let whole = test_live::read(&lab, &["--strict"], &recorded.directory);
    assert_eq!(whole.status.code(), Some(0));
}

#[test]
fn a_session_that_is_not_there_is_waited_for_or_not() {
    let lab = Lab::new();
    let relay = Relay::start(&lab);
    let url = url(&relay, "nowhere");
    for (action, code) in [(Some("fail"), 1), (Some("end"), 0), (None, 0)] {
        let mut arguments = vec![url.as_str()];
        arguments.extend(
            action
                .iter()
                .flat_map(|action| ["--session-not-found", action]),
        );
        let ended = test_live::start(&lab, &arguments).wait();
        assert_eq!(ended.status.code(), Some(code), "{action:?}");
        assert_eq!(ended.stdout, [""; 0]);
        let is_said = ended
            .stderr
            .iter()
            .any(|line| line.contains("no live session"));
        assert_eq!(is_said, code == 1, "{:?}", ended.stderr);
    }
    let mut viewer = test_live::follow(&lab, &relay, (HOST, "nowhere"), &[]);
    viewer.wait_for_stderr("it waits", |line| line.contains("waiting").then_some(()));
    viewer.signal(Signal::TERM);
    assert!(viewer.wait().status.success());
}

#[test]
fn a_relay_that_dies_is_an_error() {
    let lab = Lab::new();
    let recorded = recorded();
    let mut relay = Relay::start(&lab);
    let (_replay, viewer) = shown(&lab, &relay, &recorded.directory, &[]);
    relay.process().signal(Signal::KILL);
    let ended = viewer.wait();
    assert_eq!(ended.status.code(), Some(1));
    assert_eq!(ended.stdout.len(), 4 * EVENTS);
    assert!(
        ended.stderr.iter().any(|line| line.contains("error")),
        "{:?}",
        ended.stderr
    );
}

#[test]
fn one_who_follows_goes_on_with_the_next_relay_in_its_place() {
    let lab = Lab::new();
    let recorded = recorded();
    let mut relay = Relay::start(&lab);
    let (replay, mut viewer) = shown(&lab, &relay, &recorded.directory, &["--follow"]);
    relay.process().signal(Signal::KILL);
    viewer.wait_for_stderr("it tries again", |line| {
        line.contains("reconnecting").then_some(())
    });
    drop(replay);
    let addresses = [relay.control, relay.data, relay.live];
    drop(relay);
    let next_lab = Lab::new();
    let relay = Relay::start_at(&next_lab, addresses);
    let directory = recording::with_idle_streams(&lab);
    let events = test_live::read(&lab, &[], &directory).succeeded().len();
    let mut replay = Replay::open(
        &relay,
        "watched",
        &directory,
        MetadataPieces::Whole,
        Idle::One,
    );
    replay.play();
    wait_until("the next session is shown", || {
        viewer.stdout().len() == 4 * EVENTS + events
    });
    replay.end();
    viewer.signal(Signal::INT);
    assert!(viewer.wait().status.success());
}

#[test]
fn a_bare_host_is_all_of_its_sessions_and_those_that_come() {
    let lab = Lab::new();
    let relay = Relay::start(&lab);
    let directory = recording::with_idle_streams(&lab);
    let events = test_live::read(&lab, &[], &directory).succeeded().len();
    let play = |session: &str| {
        let mut replay = Replay::open(
            &relay,
            session,
            &directory,
            MetadataPieces::Whole,
            Idle::One,
        );
        replay.play();
        replay
    };
    let sessions = [play("one"), play("two")];
    let viewer = test_live::start(&lab, &[&relay.live.to_string(), "--seek", "beginning"]);
    wait_until("both are shown", || viewer.stdout().len() == 2 * events);
    let third = play("three");
    wait_until("the third is shown", || viewer.stdout().len() == 3 * events);
    sessions.into_iter().for_each(Replay::end);
    third.end();
    // It waits for others.
    viewer.signal(Signal::INT);
    assert_eq!(viewer.wait().succeeded().len(), 3 * events);
}

#[test]
fn every_viewer_of_a_session_of_lttng_shows_every_event_once() {
    const COUNT: usize = 20_000;
    let lab = Lab::new();
    let relay = Relay::start(&lab);
    let daemon = SessionDaemon::start(&lab);
    daemon.create("all", &relay, Some(100_000));
    let options = [
        "--subbuf-size=16k",
        "--num-subbuf=8",
        "--blocking-timeout=inf",
    ];
    daemon.channel("all", "busy", &options, true);
    daemon.channel("all", "idle", &[], false);
    let host = hostname();
    let mut viewers: Vec<Process> = (0..3)
        .map(|_| test_live::follow(&lab, &relay, (&host, "all"), &["--no-delta"]))
        .collect();
    viewers.push(Babeltrace::Two.follow(&relay, "all"));
    test_live::wait_until_watched(&relay, "all", 4);
    daemon.lttng(&["start", "all"]);
    tracee::run(&lab, COUNT, 0, "all");
    daemon.lttng(&["destroy", "all"]);
    let directory = Babeltrace::Two.read(&relay.output).succeeded();
    let mut all = numbers(&directory);
    all.sort_unstable();
    assert!(all.into_iter().eq(0..COUNT));
    for viewer in viewers {
        let lines = viewer.wait_at_most(TEST_TIMEOUT).succeeded();
        assert!(lines == directory, "{} of {COUNT} lines", lines.len());
    }
}
