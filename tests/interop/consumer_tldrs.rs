//! From a `tldrs` socket through a relay to viewers: every event of the Trace Event Format arrives
//! live as CTF with typed fields, and reads back as it was sent.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use serde_json::{Number, Value};
use tests::babeltrace::Babeltrace;
use tests::lab::Lab;
use tests::process::Process;
use tests::relay::Relay;
use tests::tldrs::Tldrs;
use tests::viewer::{Viewer, hostname};
use tests::{binaries, test_live, wait_until};

/// Lines with events of every phase, and unusual members.
const LINES: &str = include_str!("../../crates/tef/data/every-phase.jsonl");

const TRACE: &str = "every phase";

/// Returns the options of a program that sends to a relay.
fn relay_options(relay: &Relay) -> [String; 4] {
    [
        "-C".to_owned(),
        format!("tcp://{}", relay.control),
        "-D".to_owned(),
        format!("tcp://{}", relay.data),
    ]
}

/// `consumer serve` with a `tldrs` socket.
struct Agent {
    process: Process,
    socket: PathBuf,
}

impl Agent {
    fn start(lab: &Lab, relay: &Relay) -> Self {
        let socket = lab.path().join("tldrs.socket");
        let mut command = lab.command(binaries::consumer());
        command
            .args(["serve", "-v", "--live=20000", "--clock-interval=0"])
            .args(relay_options(relay))
            .arg(format!("--tldrs={}", socket.display()))
            .arg(format!("--tldrs-dir={}", lab.directory("data").display()))
            .arg(format!("--socket={}", lab.path().join("status").display()));
        let mut process = Process::start(&mut command);
        process.wait_for_stderr_text("consumer::agent: ready");
        Self { process, socket }
    }

    fn stop(self) {
        self.process.signal(Signal::TERM);
        let ended = self.process.wait();
        assert!(ended.status.success(), "{:#?}", ended.stderr);
    }
}

/// Connects a client and opens a trace.
fn open_trace(socket: &Path, trace: &str) -> UnixStream {
    let mut client = UnixStream::connect(socket).unwrap();
    writeln!(client, "OPEN {trace}").unwrap();
    client
}

fn send(client: &mut UnixStream, lines: &str) {
    client.write_all(lines.as_bytes()).unwrap();
}

/// Returns the URL of the live session of [`TRACE`], whose name is the trace's.
fn url(relay: &Relay) -> String {
    test_live::url(relay.live, &hostname(), TRACE)
}

/// Sends all lines while a viewer is attached, and returns what the viewer prints.
fn forward_to_viewer(lab: &Lab, relay: &Relay, options: &[&str]) -> Vec<String> {
    let agent = Agent::start(lab, relay);
    let mut one = open_trace(&agent.socket, TRACE);
    let mut viewers = Viewer::connect(relay.live);
    viewers.wait_for_session(TRACE);
    let mut viewer = test_live::command(lab, options);
    viewer.args(["--seek", "beginning", &url(relay)]);
    let viewer = Process::start(&mut viewer);
    viewers.wait_for_listed(TRACE, |session| session.viewers == 1);
    send(&mut one, LINES);
    drop(one);
    let shown = viewer.wait().expect_success();
    agent.stop();
    shown
}

/// Returns a value in which floats of whole numbers are integers, so that `1.0` equals `1`.
fn normalized(value: Value) -> Value {
    match value {
        Value::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() && float.trunc() == float && float.abs() < 1e15 => {
                Value::Number(Number::from(float as i64))
            }
            _ => Value::Number(number),
        },
        Value::Array(values) => values.into_iter().map(normalized).collect(),
        Value::Object(members) => {
            let members = members.into_iter();
            let members = members.map(|(name, value)| (name, normalized(value)));
            Value::Object(members.collect())
        }
        other => other,
    }
}

fn normalized_lines<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<Value> {
    lines
        .map(|line| normalized(serde_json::from_str(line).unwrap()))
        .collect()
}

/// Checks that a JSON document of the viewer has all of [`LINES`], in order.
fn assert_all_received(document: &str) {
    let whole: Value = serde_json::from_str(document).unwrap();
    let received = whole["traceEvents"].as_array().unwrap().iter();
    let received: Vec<_> = received.cloned().map(normalized).collect();
    let sent = normalized_lines(LINES.lines());
    for (received, sent) in received.iter().zip(&sent) {
        assert_eq!(received, sent);
    }
    assert_eq!(received.len(), sent.len());
}

/// The events of a program with two threads, of which one is hostile to terminals.
const PROGRAM: &str = r#"{"ph":"M","name":"process_name","pid":7,"tid":8,"args":{"name":"builder"}}
{"ph":"B","name":"load","cat":"io","ts":1000,"pid":7,"tid":8,"args":{"n":3,"path":"a b"}}
{"ph":"B","name":"parse","ts":1100,"pid":7,"tid":8,"args":{"n":2}}
{"ph":"i","name":"x\u001b[2J","ts":1100,"pid":7,"tid":9,"args":{"text":"\u001b]0;x\u0007"}}
{"ph":"E","ts":1101.75,"pid":7,"tid":8}
{"ph":"E","name":"load","ts":2234.567,"pid":7,"tid":8}
{"ph":"E","name":"never begun","ts":3000,"pid":7,"tid":8}
"#;

#[test]
fn sent_events_are_shown_live_to_people_and_filters_reach_into_their_arguments() {
    let (lab, relay) = Relay::start_in_new_lab();
    let agent = Agent::start(&lab, &relay);
    let mut client = open_trace(&agent.socket, TRACE);
    let mut viewers = Viewer::connect(relay.live);
    viewers.wait_for_session(TRACE);
    let url = url(&relay);
    let start = |options: &[&str]| {
        let options = [options, &["--quiet", "--seek", "beginning", &url]].concat();
        test_live::start(&lab, &options)
    };
    let log = start(&["--sink=log"]);
    let json = start(&["--sink=json", "--filter", "args.n > 2"]);
    viewers.wait_for_listed(TRACE, |session| session.viewers == 2);
    send(&mut client, PROGRAM);
    drop(client);
    let (log, json) = (log.wait().expect_success(), json.wait().expect_success());
    agent.stop();

    let host = hostname();
    let shown: Vec<_> = log
        .iter()
        .filter(|line| !line.contains("tef:client"))
        .map(|line| line.split_once(&format!(" {host} ")).unwrap().1)
        .collect();
    assert_eq!(
        shown,
        [
            "builder[7:8] M process_name name=builder",
            "builder[7:8] B load n=3 path=\"a b\" cat=io",
            "builder[7:8]     B parse n=2",
            r#"builder[7:9] i x\u{1b}[2J text="\u{1b}]0;x\u{7}""#,
            "builder[7:8]     E parse (1.75 us)",
            "builder[7:8] E load (1.23 ms)",
            "builder[7:8] E never begun",
        ]
    );
    for line in &log {
        assert!(!line.contains(char::is_control), "{line:?}");
        for internal in ["packet_size", "content_size", "events_discarded", "cpu_id"] {
            assert!(!line.contains(internal), "{line:?}");
        }
    }

    let [only] = json.try_into().unwrap();
    let event: Value = serde_json::from_str(&only).unwrap();
    assert_eq!(event["event"], "tef:begin");
    assert_eq!(
        event["fields"]["args"],
        serde_json::json!({"n": 3, "path": "a b"})
    );
    let filtered = test_live::read(
        &lab,
        &[
            "--no-follow",
            "--sink=log",
            "--filter",
            "args.pathh == \"x\"",
        ],
        &relay.output,
    );
    assert_eq!(filtered.status.code(), Some(1), "{:#?}", filtered.stderr);
    let described = filtered.stderr.join("\n");
    let suggestion = "no event has a field args.pathh; did you mean path?";
    assert!(described.contains(suggestion), "{described}");
}

#[test]
fn sent_events_have_one_name_wherever_they_are_counted_searched_for_and_selected() {
    let (lab, relay) = Relay::start_in_new_lab();
    let agent = Agent::start(&lab, &relay);
    let mut client = open_trace(&agent.socket, TRACE);
    // Two threads whose ids have more than 32 bits, and a process without a number.
    let wide = "140589156634432";
    send(
        &mut client,
        &PROGRAM.replace(r#""pid":7"#, &format!(r#""pid":{wide}"#)),
    );
    send(
        &mut client,
        &PROGRAM.replace(r#""pid":7"#, r#""pid":"main""#),
    );
    drop(client);
    relay.wait_for_log(&["session ended"]);
    agent.stop();
    let directory = relay.output.to_str().unwrap();
    let run = |words: &[&str]| {
        let words = [words, &[directory]].concat();
        test_live::start(&lab, &words).wait().expect_success()
    };
    let info = run(&["info"]);
    let counter = run(&["--quiet", "--sink", "counter"]);
    let top = run(&["top", "--batch"]);
    for lines in [&info, &counter, &top] {
        let text = lines.join("\n");
        assert!(
            text.contains(" parse") && !text.contains("tef:begin"),
            "{text}"
        );
    }
    for lines in [&info, &counter] {
        let mut parsed = lines.iter().filter(|line| line.ends_with(" parse"));
        let parsed = parsed.next().unwrap();
        assert!(
            parsed.split_whitespace().any(|word| word == "2"),
            "{parsed}"
        );
    }
    for id in [wide, "main"] {
        // The name is that of the event `process_name`.
        let named = format!("{id}  builder");
        assert!(info.iter().any(|line| line.ends_with(&named)), "{info:#?}");
        let named = format!("  {id} builder");
        let is_process = |line: &String| line.starts_with("process") && line.ends_with(&named);
        assert!(top.iter().any(is_process), "{top:#?}");
    }
    // What is shown can be searched for and selected, also by a part as `/` in `top` does.
    for name in ["parse", "*pars*"] {
        let filter = format!("$name == \"{name}\"");
        for sink in ["text", "log", "json"] {
            let shown = run(&["--quiet", "--sink", sink, "--filter", &filter]);
            assert_eq!(shown.len(), 2, "{sink}: {shown:#?}");
        }
        let top = run(&["top", "--batch", "--filter", &filter]);
        assert!(top.iter().any(|line| line.ends_with(" parse")), "{top:#?}");
        assert!(!top.iter().any(|line| line.ends_with(" load")), "{top:#?}");
    }
    let by_phase = run(&["--quiet", "--filter", "$name == \"tef:begin\""]);
    assert_eq!(by_phase.len(), 4, "{by_phase:#?}");
    let wrong = ["--no-follow", "--filter", "$name == \"pars\"", directory];
    let ended = test_live::start(&lab, &wrong).wait();
    let described = ended.stderr.join("\n");
    let suggestion = "no event is named \"pars\"; did you mean parse?";
    assert!(described.contains(suggestion), "{described}");
}

fn check_every_event_reads_back(lab: &Lab, relay: Relay) {
    let live = forward_to_viewer(lab, &relay, &["--quiet", "--sink=tef", "--for=any"]);
    assert_all_received(&live.join("\n"));
    let recorded = test_live::read(lab, &["--quiet", "--sink=tef", "--for=any"], &relay.output);
    assert_all_received(&recorded.expect_success().join("\n"));
    let shown = Babeltrace::Two.read(&relay.output);
    assert_eq!(shown.stderr, [""; 0]);
    let events = shown.expect_success();
    // Two more events say that the client connected and disconnected.
    assert_eq!(events.len(), LINES.lines().count() + 2);
    let typed = r#"name = "x", cat = "c", ts = 2000, dur = 3125, tts = 1000, tdur = 2000"#;
    assert!(
        events.iter().any(|event| event.contains(typed)),
        "{events:#?}"
    );
    assert!(relay.stop().status.success());
}

#[test]
fn every_forwarded_event_reads_back_from_our_relay() {
    let (lab, relay) = Relay::start_in_new_lab();
    check_every_event_reads_back(&lab, relay);
}

#[test]
fn every_forwarded_event_reads_back_from_lttng_relayd() {
    let lab = Lab::new();
    let relay = Relay::start_reference(&lab);
    check_every_event_reads_back(&lab, relay);
}

#[test]
fn babeltrace_shows_events_forwarded_by_tldrs_live() {
    let (lab, relay) = Relay::start_in_new_lab();
    let [control, control_url, data, data_url] = relay_options(&relay);
    let options = [&control, &control_url, &data, &data_url, "--live=20000"];
    let daemon = Tldrs::start_with(&lab, &options.map(|option: &str| option));
    let mut one = open_trace(&daemon.socket, "watched");
    let mut viewers = Viewer::connect(relay.live);
    viewers.wait_for_session("watched");
    let viewer = Process::start(&mut Babeltrace::Two.follow_command(&relay, "watched"));
    viewers.wait_for_listed("watched", |session| session.viewers == 1);
    send(&mut one, r#"{"ph":"X","name":"shown","ts":5,"dur":2}"#);
    send(&mut one, "\n");
    wait_until("the event is printed", || {
        viewer
            .stdout()
            .iter()
            .any(|line| line.contains("\"shown\""))
    });
    drop(one);
    viewer.wait().expect_success();
    daemon.stop();
}

#[test]
fn clients_of_one_trace_share_a_session_and_all_their_events_arrive() {
    const CLIENTS: usize = 64;
    const EVENTS: usize = 50;
    let (lab, relay) = Relay::start_in_new_lab();
    let agent = Agent::start(&lab, &relay);
    std::thread::scope(|scope| {
        for number in 0..CLIENTS {
            let socket = &agent.socket;
            scope.spawn(move || {
                let mut client = open_trace(socket, "build");
                for event in 0..EVENTS {
                    let line = format!(r#"{{"ph":"i","name":"{number}-{event}","ts":{event}}}"#);
                    send(&mut client, &(line + "\n"));
                }
            });
        }
    });
    let mut last = open_trace(&agent.socket, "build");
    send(
        &mut last,
        "{\"ph\":\"i\",\"name\":\"last\"}\n{\"ph\":\"cut in mid-line",
    );
    drop(last);
    agent.stop();
    let sessions = std::fs::read_dir(relay.output.join(hostname())).unwrap();
    assert_eq!(sessions.count(), 1);
    let recorded = test_live::read(&lab, &["--quiet", "--sink=tef", "--for=any"], &relay.output);
    let whole: Value = serde_json::from_str(&recorded.expect_success().join("\n")).unwrap();
    let received = whole["traceEvents"].as_array().unwrap();
    assert_eq!(
        received.len(),
        CLIENTS * EVENTS + 1,
        "{:?}",
        received.last()
    );
}

#[test]
fn events_sent_while_the_relay_is_down_arrive_after_it_restarts() {
    let (lab, mut relay) = Relay::start_in_new_lab();
    let addresses = relay.addresses();
    let agent = Agent::start(&lab, &relay);
    let mut one = open_trace(&agent.socket, "away");
    let event = |number: usize| format!("{{\"ph\":\"i\",\"name\":\"event {number}\"}}\n");
    send(&mut one, &event(0));
    wait_until("the first event is recorded", || {
        let read = test_live::read(&lab, &["--quiet", "--no-follow"], &relay.output);
        read.stdout.iter().any(|line| line.contains("event 0"))
    });
    relay.process().signal(Signal::KILL);
    drop(relay);
    send(&mut one, &event(1));
    let relay = Relay::start_at(&lab, addresses);
    send(&mut one, &event(2));
    drop(one);
    agent.stop();
    let read = test_live::read(&lab, &["--quiet"], &relay.output).expect_success();
    for number in 0..=2 {
        let name = format!("event {number}\"");
        let times = read.iter().filter(|line| line.contains(&name)).count();
        assert!(times >= 1, "{name}: {read:#?}");
    }
}
