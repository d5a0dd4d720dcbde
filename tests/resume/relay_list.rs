//! A producer and a viewer with a list of relays: they go on at the next one when theirs is killed.

use std::collections::BTreeSet;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use tests::lab::Lab;
use tests::process::Process;
use tests::relay::Relay;
use tests::{binaries, test_live, wait_until};

/// Time in which a session is to go on at the next relay.
const MAX_FAILOVER: Duration = Duration::from_secs(3);

/// Events that are sent to each relay.
const EVENTS: usize = 500;

/// An agent with a spool and a list of relays.
struct Agent {
    process: Process,
    client: UnixStream,
    sent: usize,
}

impl Agent {
    fn start(lab: &Lab, relays: &[Relay]) -> Self {
        let hosts = relays.iter().map(|relay| without_scheme(&url(relay)));
        let list = hosts.collect::<Vec<_>>().join(",");
        let path = |name: &str| lab.path().join(name).display().to_string();
        let mut command = lab.command(binaries::consumer());
        command
            .args(["serve", "-v", "--live=20000", "--clock-interval=0"])
            .args(["--hostname=host", "-U"])
            .arg(format!("net://{list}"))
            .arg(format!("--tldrs={}", path("tldrs.socket")))
            .arg(format!("--tldrs-dir={}", path("tldrs")))
            .arg(format!("--spool={}", path("spool")))
            .arg(format!("--socket={}", path("status")));
        let mut process = Process::start(&mut command);
        process.wait_for_stderr_text("consumer::agent: ready");
        let mut client = UnixStream::connect(path("tldrs.socket")).unwrap();
        writeln!(client, "OPEN moved").unwrap();
        Self {
            process,
            client,
            sent: 0,
        }
    }

    /// Sends more events, with the next numbers.
    fn send(&mut self) {
        for number in self.sent..self.sent + EVENTS {
            let line = format!(
                r#"{{"ph":"i","name":"ev","ts":{number},"pid":1,"tid":1,"args":{{"n":{number}}}}}"#
            );
            writeln!(self.client, "{line}").unwrap();
        }
        self.sent += EVENTS;
    }

    /// Waits until the log has this number of lines about a connection to the relay, and returns
    /// how long that took.
    fn wait_until_connected(&mut self, relay: &Relay, times: usize) -> Duration {
        let begun = Instant::now();
        let field = format!("relay={}", url(relay));
        wait_until("the agent is connected", || {
            let lines = self.process.stderr();
            let connected = lines
                .iter()
                .filter(|line| line.contains("connected") && line.contains(&field));
            connected.count() == times
        });
        begun.elapsed()
    }
}

fn url(relay: &Relay) -> String {
    relay.producer_url()
}

fn without_scheme(url: &str) -> String {
    url["net://".len()..].to_owned()
}

/// Starts three relays, each with an output of its own.
fn start_relays() -> (Vec<Lab>, Vec<Relay>) {
    let labs = vec![Lab::new(), Lab::new(), Lab::new()];
    let relays = labs.iter().map(Relay::start).collect();
    (labs, relays)
}

fn status(lab: &Lab) -> (Value, String) {
    let ask = |options: &[&str]| {
        let mut command = lab.command(binaries::consumer());
        command.arg("status").args(options).arg("--socket");
        command.arg(lab.path().join("status"));
        Process::start(&mut command).wait().expect_success()
    };
    let report: Value = serde_json::from_str(&ask(&["--json"]).join("\n")).unwrap();
    (report["sessions"][0].clone(), ask(&[]).join("\n"))
}

/// Returns the numbers of the events in lines of `test-live`.
fn numbers(lines: &[String]) -> Vec<usize> {
    let number = |line: &String| {
        let (_, rest) = line.split_once(r#"{\"n\":"#)?;
        rest.split('}').next()?.parse().ok()
    };
    lines.iter().filter_map(number).collect()
}

/// Returns the numbers of the events that a relay has written, which are in order.
fn recorded(lab: &Lab, output: &Path) -> BTreeSet<usize> {
    let read = test_live::read(lab, &["--no-follow"], output);
    let numbers = numbers(&read.stdout);
    assert!(
        numbers.is_sorted_by(|one, other| one < other),
        "{numbers:?}"
    );
    numbers.into_iter().collect()
}

#[test]
fn session_goes_on_at_the_next_relay_and_a_viewer_sees_every_event_once() {
    let (labs, mut relays) = start_relays();
    let lab = Lab::new();
    let mut agent = Agent::start(&lab, &relays);
    let hosts: Vec<_> = relays.iter().map(|relay| relay.live.to_string()).collect();
    let target = format!("net://{}/host/host/moved", hosts.join(","));
    let wait = "--session-not-found=continue";
    let mut viewer = test_live::start(&lab, &["--seek=beginning", wait, &target]);

    agent.wait_until_connected(&relays[0], 1);
    for (place, next) in [(0, 1), (1, 2)] {
        agent.send();
        let sent = agent.sent;
        wait_until("the viewer shows everything", || {
            numbers(&viewer.stdout()).len() == sent
        });
        relays[place].kill();
        let took = agent.wait_until_connected(&relays[next], 1);
        assert!(took < MAX_FAILOVER, "{took:?}");
        viewer.wait_for_stderr_text(&format!("connection restored, to {}", relays[next].live));
        let (session, table) = status(&lab);
        assert_eq!(session["relay"], url(&relays[next]), "{session}");
        let since = session["since"].as_str().unwrap();
        assert!(
            table.contains(&format!("{} since {since}", url(&relays[next]))),
            "{table}"
        );
    }
    agent.send();
    let sent = agent.sent;
    wait_until("the viewer shows everything", || {
        numbers(&viewer.stdout()).len() == sent
    });
    relays[2].kill();
    // No relay is left: events wait in the spool.
    agent.send();
    agent
        .process
        .wait_for_stderr_text("reconnecting until it succeeds");
    relays[1] = Relay::start_at(&labs[1], relays[1].addresses());
    agent.wait_until_connected(&relays[1], 2);
    let sent = agent.sent;
    wait_until("the viewer shows everything", || {
        numbers(&viewer.stdout()).len() == sent
    });
    let (session, table) = status(&lab);
    assert_eq!(session["lost"], 0, "{table}");
    drop(agent.client);
    // The session has ended, and so has the viewer.
    let shown = viewer.wait().expect_success();
    assert_eq!(numbers(&shown), (0..agent.sent).collect::<Vec<_>>());
    agent.process.signal(Signal::TERM);
    let ended = agent.process.wait();
    assert!(ended.status.success(), "{:#?}", ended.stderr);

    let recorded: Vec<_> = relays
        .iter()
        .map(|relay| recorded(&lab, &relay.output))
        .collect();
    let all: BTreeSet<usize> = recorded.iter().flatten().copied().collect();
    assert!(all.into_iter().eq(0..agent.sent), "{recorded:?}");
    // What a relay has acknowledged is not sent to the next one.
    assert!(!recorded[1].contains(&0) && !recorded[2].contains(&EVENTS));
}

#[test]
fn viewer_finds_a_session_at_whichever_relay_of_its_list_has_it() {
    let (_labs, relays) = start_relays();
    let lab = Lab::new();
    let mut agent = Agent::start(&lab, &relays[1..]);
    agent.send();
    agent.wait_until_connected(&relays[1], 1);
    test_live::wait_until_attached(&relays[1], "moved", 0);
    let target = format!(
        "net://{},{}/host/host/moved",
        relays[0].live, relays[1].live
    );
    let viewer = test_live::start(&lab, &["--seek=beginning", &target]);
    let sent = agent.sent;
    wait_until("the viewer shows everything", || {
        numbers(&viewer.stdout()).len() == sent
    });
    drop(agent.client);
    assert_eq!(numbers(&viewer.wait().expect_success()).len(), sent);
    let missing = format!(
        "net://{},{}/host/host/other",
        relays[0].live, relays[1].live
    );
    let ended = test_live::start(&lab, &[&missing]).wait();
    assert_eq!(ended.status.code(), Some(1));
    assert!(
        ended
            .stderr
            .join("\n")
            .contains("no live session host/other")
    );
}

#[test]
fn doctor_checks_every_address_of_a_list() {
    let (_labs, mut relays) = start_relays();
    let lab = Lab::new();
    relays[1].kill();
    let hosts = relays.iter().map(|relay| without_scheme(&url(relay)));
    let list = format!("net://{}", hosts.collect::<Vec<_>>().join(","));
    let mut command = lab.command(binaries::consumer());
    command.args(["doctor", "-U", &list]);
    let ended = Process::start(&mut command).wait();
    assert_eq!(ended.status.code(), Some(1), "{:#?}", ended.stdout);
    let text = ended.stdout.join("\n");
    for relay in [&relays[0], &relays[2]] {
        let control = relay.control;
        assert!(
            text.contains(&format!("relay tcp://{control}: speaks protocol")),
            "{text}"
        );
    }
    let refused = format!(
        "control port tcp://{}: Connection refused",
        relays[1].control
    );
    assert!(text.contains(&refused), "{text}");
}

#[test]
fn malformed_list_is_refused_with_its_fault() {
    let lab = Lab::new();
    for (list, fault) in [
        ("net://one,,two".to_owned(), "relay 2 of the list is empty"),
        (
            format!("net://{}", ["h"; 17].join(",")),
            "17 relays are too many",
        ),
    ] {
        let mut command = lab.command(binaries::consumer());
        command.args(["serve", "--tldrs=socket", "-U", &list]);
        let consumer = Process::start(&mut command).wait();
        let viewer = test_live::start(&lab, &[&list]).wait();
        for ended in [consumer, viewer] {
            assert_eq!(ended.status.code(), Some(2), "{:#?}", ended.stderr);
            let text = ended.stderr.join("\n");
            assert!(text.contains(fault), "{text}");
        }
    }
}
