//! `test-live` besides printing text: listing sessions, selecting events, other sinks, and exit
//! conditions.

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
use tests::replay::{HOST, Replay};
use tests::traced_app;
use tests::viewer::hostname;
use tests::{TEST_TIMEOUT, test_live, traces, wait_until};

/// The events of each of the two applications that are traced.
const EVENTS: usize = 300;

/// A trace that LTTng has recorded.
struct LttngTrace {
    _lab: Lab,
    directory: PathBuf,
}

/// Returns a recorded trace, which all tests share that run at the same time.
fn lttng_trace() -> Arc<LttngTrace> {
    static RECORDED: Mutex<Weak<LttngTrace>> = Mutex::new(Weak::new());
    let mut shared = RECORDED.lock().unwrap();
    if let Some(trace) = shared.upgrade() {
        return trace;
    }
    let lab = Lab::new();
    let directory = traces::recorded_by_lttng(&lab, "--buffers-uid", EVENTS);
    let trace = Arc::new(LttngTrace {
        directory,
        _lab: lab,
    });
    *shared = Arc::downgrade(&trace);
    trace
}

impl LttngTrace {
    fn read(&self, lab: &Lab, options: &[&str]) -> Vec<String> {
        test_live::read(lab, options, &self.directory).expect_success()
    }
}

/// Returns a replayed session that is still open, and a viewer that has printed all of its events.
fn replay_to_viewer(
    lab: &Lab,
    relay: &Relay,
    directory: &Path,
    options: &[&str],
) -> (Replay, Process) {
    let mut replay = Replay::open_with_idle_stream(relay, "watched", directory);
    replay.send_packets();
    let options = [options, &["--seek", "beginning"]].concat();
    let viewer = test_live::follow(lab, relay, HOST, "watched", &options);
    let events = test_live::read(lab, &[], directory).expect_success().len();
    wait_until("all events are printed", || {
        viewer.stdout_line_count() == events
    });
    (replay, viewer)
}

fn url(relay: &Relay, session: &str) -> String {
    test_live::url(relay.live, HOST, session)
}

#[test]
fn sessions_are_listed_as_babeltrace_lists_them_and_as_json() {
    let (lab, relay) = Relay::start_in_new_lab();
    let of_relay = format!("net://{}", relay.live);
    let _first = Producer::open(&relay, live_session("first"));
    let mut second = Producer::open(&relay, live_session("second"));
    second.add_trace("ust", &["c_0", "c_1"]);
    let text = test_live::start(&lab, &["--list", &of_relay]).wait();
    assert_eq!(text.expect_success(), Babeltrace::Two.list(&relay));
    let json = test_live::start(&lab, &["--list", "--json", &url(&relay, "second")]).wait();
    let json: serde_json::Value = serde_json::from_slice(&json.stdout_bytes).unwrap();
    assert_eq!(json.as_array().unwrap().len(), 1);
    assert_eq!(json[0]["name"], "second");
    assert_eq!(json[0]["streams"], 3);
}

#[test]
fn limit_and_filter_select_events() {
    let lab = Lab::new();
    let trace = lttng_trace();
    let all = trace.read(&lab, &["--no-delta"]);
    assert_eq!(all.len(), 4 * EVENTS);
    assert_eq!(trace.read(&lab, &["--no-delta", "--limit", "7"]), all[..7]);
    assert_eq!(trace.read(&lab, &["--limit", "0"]), [""; 0]);
    let filter = "number >= 10 && number < 12 && name == \"two\"";
    let selected = trace.read(&lab, &["--no-delta", "--filter", filter]);
    let is_selected = |line: &&String| {
        line.contains("name = \"two\"")
            && (line.contains("number = 10,") || line.contains("number = 11,"))
    };
    let want: Vec<_> = all.iter().filter(is_selected).cloned().collect();
    assert_eq!((selected.len(), selected), (4, want));
}

#[test]
fn begin_and_end_select_the_events_between_them() {
    let lab = Lab::new();
    let trace = lttng_trace();
    let options = ["--no-delta", "--clock-seconds"];
    let all = trace.read(&lab, &options);
    let time = |place: usize| {
        let (time, _) = all[place].split_once(']').unwrap();
        time.trim_start_matches('[').to_owned()
    };
    let (begin, end) = (time(100), time(200));
    let selected = trace.read(
        &lab,
        &[&options[..], &["--begin", &begin, "--end", &end]].concat(),
    );
    let is_selected = |line: &&String| {
        let time = line[1..].split_once(']').unwrap().0;
        time >= begin.as_str() && time <= end.as_str()
    };
    let want: Vec<_> = all.iter().filter(is_selected).cloned().collect();
    assert!(want.len() >= 101);
    assert_eq!(selected, want);
}

#[test]
fn ctf_sink_writes_a_copy_of_the_trace() {
    let lab = Lab::new();
    let trace = lttng_trace();
    let copy = lab.path().join("copy");
    trace.read(&lab, &["--sink", "ctf", "-w", copy.to_str().unwrap()]);
    let want = Babeltrace::Two.read(&trace.directory).expect_success();
    assert_eq!(Babeltrace::Two.read(&copy).expect_success(), want);
    // The sink refuses a directory that is not empty.
    let again = test_live::read(
        &lab,
        &["--sink", "ctf", "-w", copy.to_str().unwrap()],
        &trace.directory,
    );
    assert_eq!(again.status.code(), Some(1));
}

#[test]
fn ctf_sink_refuses_options_that_select_or_change_events() {
    let lab = Lab::new();
    let trace = lttng_trace();
    let copy = lab.path().join("copy");
    for refused in [
        &["--begin", "0"][..],
        &["--end", "0"],
        &["--filter", "number == 1"],
        &["--limit", "1"],
        &["--debug-info"],
        &["--debug-info-full-path"],
        &["--debug-info-dir", "/"],
        &["--debug-info-target-prefix", "/"],
    ] {
        let options = [&["--sink", "ctf", "-w", copy.to_str().unwrap()], refused].concat();
        let ended = test_live::read(&lab, &options, &trace.directory);
        assert_eq!(ended.status.code(), Some(2), "{refused:?}");
        let text = "ctf copies whole packets: it cannot be used with";
        let is_named = ended.stderr.iter().any(|line| line.contains(text));
        assert!(is_named, "{:?}", ended.stderr);
        assert!(!copy.exists(), "{refused:?}");
    }
}

#[test]
fn ctf_sink_writes_a_copy_that_babeltrace_reads_of_a_file_with_two_stream_classes() {
    let lab = Lab::new();
    let directory = lab.directory("two-classes");
    let stream = |id: u32, name: &str| {
        format!(
            "stream {{ id = {id}; packet.context := struct {{ u8 packet_size; u8 content_size; }};
            event.header := struct {{ integer {{ size = 8; map = clock.c.value; }} timestamp; }}; }};
            event {{ name = {name}; stream_id = {id}; fields := struct {{ u8 x; }}; }};"
        )
    };
    let metadata = format!(
        "/* CTF 1.8 */ typealias integer {{ size = 8; }} := u8; clock {{ name = c; freq = 1000000000; }};
        trace {{ major = 1; minor = 8; byte_order = le;
        packet.header := struct {{ u8 stream_id; }}; }};\n{}\n{}",
        stream(0, "a"),
        stream(1, "b")
    );
    std::fs::write(directory.join("metadata"), metadata).unwrap();
    let packets = [(0, 1), (1, 2), (0, 3), (1, 4)].map(|(class, time)| [class, 40, 40, time, 7]);
    std::fs::write(directory.join("data"), packets.concat()).unwrap();

    let copy = lab.path().join("copy");
    let options = ["--sink", "ctf", "-w", copy.to_str().unwrap()];
    test_live::read(&lab, &options, &directory).expect_success();
    let read = |directory| test_live::read(&lab, &["--no-delta"], directory).expect_success();
    let shown = read(&directory);
    assert_eq!(shown.len(), 4);
    assert_eq!(Babeltrace::Two.read(&copy).expect_success(), shown);
    assert_eq!(read(&copy), shown);
}

#[test]
fn every_other_sink_outputs_every_event() {
    let lab = Lab::new();
    let trace = lttng_trace();
    let json = trace.read(&lab, &["--sink", "json"]);
    let mut seen = Vec::new();
    for line in &json {
        let event: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(event["event"], "tracee:tick");
        seen.push(event["time"].as_i64().unwrap());
    }
    assert_eq!(seen.len(), 4 * EVENTS);
    assert!(seen.is_sorted());
    let tef = trace.read(&lab, &["--sink", "tef"]).join("\n");
    let tef: serde_json::Value = serde_json::from_str(&tef).unwrap();
    let records = tef["traceEvents"].as_array().unwrap();
    let ticks = records
        .iter()
        .filter(|record| record["name"] == "tracee:tick");
    assert_eq!(ticks.count(), 4 * EVENTS);
    let details = trace.read(&lab, &["--sink", "details"]);
    let ticks = details
        .iter()
        .filter(|line| line.starts_with("Event `tracee:tick`"));
    assert_eq!(ticks.count(), 4 * EVENTS);
    let counted = trace.read(&lab, &["--sink", "counter"]).join("\n");
    assert!(
        counted.contains(&format!("{} events in all", 4 * EVENTS)),
        "{counted}"
    );
    assert_eq!(trace.read(&lab, &["--sink", "dummy"]), [""; 0]);
}

#[test]
fn info_shows_the_time_range_the_size_and_the_events_of_a_trace() {
    let lab = Lab::new();
    let trace = lttng_trace();
    let directory = trace.directory.to_str().unwrap();
    let info = |options: &[&str]| {
        let words = [&["info", directory], options].concat();
        test_live::start(&lab, &words).wait().expect_success()
    };
    let json: serde_json::Value = serde_json::from_str(&info(&["--json"]).concat()).unwrap();
    let events = json["events"].as_array().unwrap();
    let tick = events
        .iter()
        .find(|event| event["name"] == "tracee:tick")
        .unwrap();
    assert_eq!(tick["count"], 4 * EVENTS);
    assert!(tick["per_second"].as_f64().unwrap() > 0.0);
    assert!(json["begin_ns"].as_i64().unwrap() < json["end_ns"].as_i64().unwrap());
    assert_eq!(json["hosts"], serde_json::json!([hostname()]));
    assert_eq!(json["losses"]["events"], 0);
    let text = info(&[]).join("\n");
    assert!(
        text.contains("nothing lost") && text.contains("  tracee:tick"),
        "{text}"
    );
    let quick = info(&["--no-events"]).join("\n");
    assert!(
        quick.contains("PACKETS") && !quick.contains("tracee:tick"),
        "{quick}"
    );
}

#[test]
fn unreadable_stream_leaves_open_what_was_lost() {
    let lab = Lab::new();
    let trace = traces::with_numbered_events(&lab, "unreadable", 10, 1_000_000);
    std::fs::write(trace.join("stray"), [0x78; 64]).unwrap();
    let trace = trace.to_str().unwrap();
    for (words, want) in [
        (&["info"][..], "nothing lost in what could be read"),
        (&["info", "--json"], "\"is_partial\": true"),
        (&["--sink", "counter"], "nothing lost in what could be read"),
        (&["top", "--batch", "-n", "1"], "  1 failure"),
    ] {
        let ended = test_live::start(&lab, &[words, &[trace]].concat()).wait();
        assert_eq!(ended.status.code(), Some(1), "{words:?}");
        let printed = ended.stdout.join("\n");
        assert!(printed.contains(want), "{words:?}: {printed}");
    }
}

#[test]
fn what_selects_nothing_is_explained_and_exits_with_1() {
    let lab = Lab::new();
    let trace = lttng_trace();
    for (options, text) in [
        (
            &["--filter", "numbr == 1"][..],
            "no event has a field numbr; did you mean number?",
        ),
        (
            &["--filter", "$name == \"tracee:tock\""],
            "did you mean tracee:tick?",
        ),
        (&["--filter", "number < 0"], "events matches --filter"),
        (
            &["--begin", "2100-01-01 00:00:00"],
            "no event at or after --begin",
        ),
        (
            &["--end", "1980-01-01 00:00:00"],
            "no event at or before --end",
        ),
    ] {
        let ended = test_live::read(&lab, options, &trace.directory);
        assert_eq!(ended.status.code(), Some(1), "{options:?}");
        assert!(ended.stdout_bytes.is_empty());
        assert!(
            ended.stderr.join("\n").contains(text),
            "{options:?}: {:?}",
            ended.stderr
        );
        let end = [options, &["--session-not-found", "end"]].concat();
        assert!(
            test_live::read(&lab, &end, &trace.directory)
                .status
                .success()
        );
    }
}

#[test]
fn a_command_after_an_option_is_a_usage_error_and_no_host() {
    let lab = Lab::new();
    let refused = test_live::start(&lab, &["--quiet", "spans", "shop"]).wait();
    assert_eq!(refused.status.code(), Some(2));
    let usage = "must be the first word: test-live spans [OPTIONS] TARGET...";
    assert!(refused.stderr.join("\n").contains(usage), "{refused:#?}");
}

#[test]
fn a_session_that_does_not_exist_is_reported_with_similar_names() {
    let (lab, relay) = Relay::start_in_new_lab();
    let _session = Producer::open(&relay, live_session("my-session"));
    let typo = url(&relay, "my-sesion");
    for options in [&[][..], &["--no-follow"], &["--session-not-found", "fail"]] {
        let ended = test_live::start(&lab, &[options, &[&typo]].concat()).wait();
        assert_eq!(ended.status.code(), Some(1), "{options:?}");
        let text = ended.stderr.join("\n");
        let hint = format!("did you mean {}?", url(&relay, "my-session"));
        assert!(text.contains(&hint), "{text}");
    }
    let end = ["--session-not-found", "end", &typo];
    let ended = test_live::start(&lab, &end).wait();
    assert!(ended.status.success() && ended.stderr.join("").contains("no live session"));
    let mut waits = test_live::start(&lab, &["--follow", &typo]);
    waits.wait_for_stderr_text("did you mean");
}

#[test]
fn a_closed_output_pipe_exits_silently_with_success() {
    let lab = Lab::new();
    let trace = lttng_trace();
    let mut command = test_live::command(&lab, &[]);
    let mut viewer = command
        .arg(&trace.directory)
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
fn an_interrupt_prints_all_events_in_final_order_and_detaches() {
    let lab = Lab::new();
    let trace = lttng_trace();
    let relay = Relay::start(&lab);
    let (replay, viewer) = replay_to_viewer(&lab, &relay, &trace.directory, &["--no-delta"]);
    viewer.signal(Signal::INT);
    let ended = viewer.wait();
    assert_eq!(ended.expect_success(), trace.read(&lab, &["--no-delta"]));
    test_live::wait_until_attached(&relay, "watched", 0);
    relay.wait_for_log(&["viewer detached"]);
    replay.close();
}

#[test]
fn losses_are_reported_and_fail_with_strict() {
    let lab = Lab::new();
    let trace = lttng_trace();
    let directory = traces::with_losses(&lab);
    for (options, code) in [(&["--strict"][..], 1), (&[], 0)] {
        let ended = test_live::read(&lab, options, &directory);
        assert_eq!(ended.status.code(), Some(code));
        let warnings = ended.stderr.join("\n");
        assert!(
            warnings.contains("Tracer discarded 2 events between"),
            "{warnings}"
        );
        assert!(
            warnings.contains("Tracer discarded 1 packet between"),
            "{warnings}"
        );
        assert!(warnings.contains("; lost: "), "{warnings}");
    }
    let whole = test_live::read(&lab, &["--strict"], &trace.directory);
    assert_eq!(whole.status.code(), Some(0));
}

#[test]
fn a_missing_session_fails_ends_or_is_waited_for_as_configured() {
    let (lab, relay) = Relay::start_in_new_lab();
    let url = url(&relay, "nowhere");
    for (action, code) in [(Some("fail"), 1), (Some("end"), 0), (None, 1)] {
        let mut arguments = vec![url.as_str()];
        arguments.extend(
            action
                .iter()
                .flat_map(|action| ["--session-not-found", action]),
        );
        let ended = test_live::start(&lab, &arguments).wait();
        assert_eq!(ended.status.code(), Some(code), "{action:?}");
        assert_eq!(ended.stdout, [""; 0]);
        let is_reported = ended
            .stderr
            .iter()
            .any(|line| line.contains("no live session"));
        assert!(is_reported, "{:?}", ended.stderr);
    }
    let mut viewer = test_live::follow(&lab, &relay, HOST, "nowhere", &[]);
    viewer.wait_for_stderr_text("waiting");
    viewer.signal(Signal::TERM);
    assert!(viewer.wait().status.success());
}

#[test]
fn a_killed_relay_is_reported_as_an_error_without_reconnects() {
    let lab = Lab::new();
    let trace = lttng_trace();
    let mut relay = Relay::start(&lab);
    let options = ["--reconnect-timeout=0"];
    let (_replay, viewer) = replay_to_viewer(&lab, &relay, &trace.directory, &options);
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
fn follow_option_reconnects_to_a_restarted_relay() {
    let lab = Lab::new();
    let trace = lttng_trace();
    let mut relay = Relay::start(&lab);
    let (replay, mut viewer) = replay_to_viewer(&lab, &relay, &trace.directory, &["--follow"]);
    relay.process().signal(Signal::KILL);
    viewer.wait_for_stderr_text("reconnecting");
    drop(replay);
    let addresses = relay.addresses();
    drop(relay);
    let next_lab = Lab::new();
    let relay = Relay::start_at(&next_lab, addresses);
    let directory = traces::with_idle_streams(&lab);
    let events = test_live::read(&lab, &[], &directory)
        .expect_success()
        .len();
    let mut replay = Replay::open_with_idle_stream(&relay, "watched", &directory);
    replay.send_packets();
    wait_until("the next session is printed", || {
        viewer.stdout_line_count() == 4 * EVENTS + events
    });
    replay.close();
    viewer.signal(Signal::INT);
    assert!(viewer.wait().status.success());
}

#[test]
fn a_url_without_a_session_shows_all_present_and_later_sessions() {
    let (lab, relay) = Relay::start_in_new_lab();
    let directory = traces::with_idle_streams(&lab);
    let events = test_live::read(&lab, &[], &directory)
        .expect_success()
        .len();
    let play = |session: &str| {
        let mut replay = Replay::open_with_idle_stream(&relay, session, &directory);
        replay.send_packets();
        replay
    };
    let sessions = [play("one"), play("two")];
    let viewer = test_live::start(&lab, &[&relay.live.to_string(), "--seek", "beginning"]);
    wait_until("both sessions are printed", || {
        viewer.stdout_line_count() == 2 * events
    });
    let third = play("three");
    wait_until("the third session is printed", || {
        viewer.stdout_line_count() == 3 * events
    });
    sessions.into_iter().for_each(Replay::close);
    third.close();
    // The viewer waits for other sessions.
    viewer.signal(Signal::INT);
    assert_eq!(viewer.wait().expect_success().len(), 3 * events);
}

#[test]
fn every_viewer_of_an_lttng_session_shows_every_event_once() {
    const COUNT: usize = 20_000;
    let (lab, relay) = Relay::start_in_new_lab();
    let options = [
        "--subbuf-size=16k",
        "--num-subbuf=8",
        "--blocking-timeout=inf",
    ];
    let daemon = SessionDaemon::start_with_channel(&lab, &relay, "all", Some(100_000), &options);
    daemon.enable_channel("all", "idle", &[], false);
    let host = hostname();
    let mut viewers: Vec<Process> = (0..3)
        .map(|_| test_live::follow(&lab, &relay, &host, "all", &["--no-delta"]))
        .collect();
    viewers.push(Babeltrace::Two.follow(&relay, "all"));
    test_live::wait_until_attached(&relay, "all", 4);
    daemon.lttng(&["start", "all"]);
    traced_app::run(&lab, COUNT, 0, "all");
    daemon.lttng(&["destroy", "all"]);
    let directory = Babeltrace::Two.read(&relay.output).expect_success();
    let mut all = numbers(&directory);
    all.sort_unstable();
    assert!(all.into_iter().eq(0..COUNT));
    for viewer in viewers {
        let lines = viewer.wait_within(TEST_TIMEOUT).expect_success();
        assert!(lines == directory, "{} of {COUNT} lines", lines.len());
    }
}
