//! The spool of `consumer`: what it has accepted arrives, whether or not a relay is there, and
//! whatever ends the consumer.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use tests::babeltrace::Babeltrace;
use tests::lab::Lab;
use tests::process::Process;
use tests::relay::Relay;
use tests::{binaries, wait_for, wait_until};

/// A consumer with a spool, and the address of a relay that may be absent.
struct Agent {
    process: Process,
    socket: PathBuf,
    status: PathBuf,
}

/// Returns the command `consumer serve` with the spool of the test.
fn serve(lab: &Lab, relay: &Relay) -> Command {
    let mut command = lab.command(binaries::consumer());
    command
        .args(["serve", "-v", "--live=20000", "--hostname=host"])
        .arg("--clock-interval=0")
        .arg(format!("--ctrl-url=tcp://{}", relay.control))
        .arg(format!("--data-url=tcp://{}", relay.data))
        .arg(format!("--spool={}", lab.path().join("spool").display()))
        .arg(format!("--socket={}", lab.path().join("status").display()));
    command
}

impl Agent {
    fn start(lab: &Lab, relay: &Relay, options: &[&str]) -> Self {
        let socket = lab.path().join("tldrs.socket");
        let mut command = serve(lab, relay);
        command
            .arg(format!("--tldrs={}", socket.display()))
            .arg(format!("--tldrs-dir={}", lab.directory("data").display()))
            .args(options);
        let mut process = Process::start(&mut command);
        process.wait_for_stderr_text("consumer::agent: ready");
        let status = lab.path().join("status");
        Self {
            process,
            socket,
            status,
        }
    }

    /// Sends events of the names `e<number>`, each of which has `padding` bytes more.
    fn send(&self, numbers: std::ops::Range<usize>, padding: usize) -> UnixStream {
        let mut client = UnixStream::connect(&self.socket).unwrap();
        writeln!(client, "OPEN spooled").unwrap();
        let padding = "x".repeat(padding);
        for number in numbers {
            let mut line = String::new();
            writeln!(
                line,
                r#"{{"name":"e{number}","ph":"i","ts":{number},"pid":1,"tid":1,"args":{{"x":"{padding}"}}}}"#
            )
            .unwrap();
            client.write_all(line.as_bytes()).unwrap();
        }
        client
    }

    /// Returns what `consumer status` says about the spool.
    fn spool(&self, lab: &Lab) -> Value {
        let mut command = lab.command(binaries::consumer());
        command
            .args(["status", "--json", "--socket"])
            .arg(&self.status);
        let lines = Process::start(&mut command).wait().expect_success();
        let report: Value = serde_json::from_str(&lines.join("\n")).unwrap();
        report["spool"].clone()
    }

    /// Waits until everything that was sent is in the spool: nothing has been added for many flush
    /// intervals.
    fn wait_until_spooled(&self, lab: &Lab) {
        const QUIET: Duration = Duration::from_millis(500);
        let (mut before, mut since) = (0, Instant::now());
        wait_until("everything is in the spool", || {
            let accepted = self.spool(lab)["accepted"].as_u64().unwrap();
            if accepted != before {
                (before, since) = (accepted, Instant::now());
            }
            accepted > 0 && since.elapsed() >= QUIET
        });
    }

    fn kill(self) {
        self.process.signal(Signal::KILL);
        let _ = self.process.wait();
    }
}

/// Sends what is in the spool to the relay, and waits until the relay has acknowledged it.
fn drain(lab: &Lab, relay: &Relay) -> Vec<String> {
    let ended = Process::start(&mut serve(lab, relay)).wait();
    assert!(ended.status.success(), "{:#?}", ended.stderr);
    ended.stderr
}

/// Returns the numbers of all events below a directory, in order.
fn numbers(directory: &Path) -> (Vec<usize>, Vec<String>) {
    let read = Babeltrace::Two.read(directory);
    let number = |line: &String| {
        let (_, name) = line.split_once("name = \"e")?;
        name.split('"').next()?.parse().ok()
    };
    let numbers = read.stdout.iter().filter_map(number).collect();
    (numbers, read.stderr)
}

fn entries(directory: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name().into_string();
    entries.map(|entry| name(entry).unwrap()).collect()
}

/// Returns a relay that has exited.
fn absent_relay(lab: &Lab) -> Relay {
    let mut relay = Relay::start(lab);
    relay.kill();
    relay
}

#[test]
fn accepted_events_arrive_after_the_consumer_was_killed_without_ever_seeing_a_relay() {
    const EVENTS: usize = 3000;
    let lab = Lab::new();
    let relay = absent_relay(&lab);
    for part in 0..3 {
        let agent = Agent::start(&lab, &relay, &[]);
        let client = agent.send(part * EVENTS / 3..(part + 1) * EVENTS / 3, 10);
        drop(client);
        agent.wait_until_spooled(&lab);
        agent.kill();
    }
    assert_eq!(entries(&lab.path().join("spool")).len(), 4);
    let relay = Relay::start_at(&lab, relay.addresses());
    drain(&lab, &relay);
    let (mut found, warnings) = numbers(&relay.output);
    found.sort_unstable();
    assert_eq!(found, (0..EVENTS).collect::<Vec<_>>(), "{warnings:?}");
    let left = entries(&lab.path().join("spool"));
    assert_eq!(left, BTreeSet::from(["lock".to_owned()]));
}

#[test]
fn consumer_that_is_stopped_keeps_its_packets_in_the_spool() {
    let lab = Lab::new();
    let relay = absent_relay(&lab);
    let agent = Agent::start(&lab, &relay, &[]);
    let _client = agent.send(0..500, 10);
    agent.wait_until_spooled(&lab);
    agent.process.signal(Signal::TERM);
    let ended = agent.process.wait_within(Duration::from_secs(20));
    assert!(ended.status.success(), "{:#?}", ended.stderr);
    let kept = ended
        .stderr
        .iter()
        .find(|line| line.contains("stays in the spool"));
    assert!(kept.is_some(), "{:#?}", ended.stderr);
    let relay = Relay::start_at(&lab, relay.addresses());
    drain(&lab, &relay);
    assert_eq!(numbers(&relay.output).0, (0..500).collect::<Vec<_>>());
}

#[test]
fn dropped_packets_are_a_gap_in_the_trace_and_in_the_status() {
    const EVENTS: usize = 150;
    let lab = Lab::new();
    let relay = absent_relay(&lab);
    let options = ["--spool-size=1M", "--on-full=drop-oldest"];
    let agent = Agent::start(&lab, &relay, &options);
    let _client = agent.send(0..EVENTS, 60_000);
    let dropped = wait_for("packets are dropped", || {
        agent.spool(&lab)["dropped"]
            .as_u64()
            .filter(|dropped| *dropped > 0)
    });
    agent.wait_until_spooled(&lab);
    assert!(agent.spool(&lab)["dropped"].as_u64().unwrap() >= dropped);
    assert!(agent.spool(&lab)["bytes"].as_u64().unwrap() <= 1 << 20);
    agent.kill();
    let relay = Relay::start_at(&lab, relay.addresses());
    let ended = Process::start(&mut serve(&lab, &relay)).wait();
    // The packets that were dropped are lost.
    assert_eq!(ended.status.code(), Some(1), "{:#?}", ended.stderr);
    let (found, warnings) = numbers(&relay.output);
    assert!(found.len() < EVENTS && found.is_sorted(), "{found:?}");
    assert_eq!(
        (found.first(), found.last()),
        (Some(&0), Some(&(EVENTS - 1)))
    );
    let has_gap = warnings
        .iter()
        .any(|line| line.contains("discarded") && line.contains("packet"));
    assert!(has_gap, "{warnings:#?}");
}

#[test]
fn second_consumer_with_the_same_spool_is_refused() {
    let lab = Lab::new();
    let relay = absent_relay(&lab);
    let _agent = Agent::start(&lab, &relay, &[]);
    let mut command = lab.command(binaries::consumer());
    command
        .args(["serve", "-U", "net://127.0.0.1"])
        .arg(format!("--spool={}", lab.path().join("spool").display()))
        .arg(format!("--socket={}", lab.path().join("other").display()));
    let ended = Process::start(&mut command).wait();
    assert!(!ended.status.success());
    assert!(
        ended
            .stderr
            .iter()
            .any(|line| line.contains("another consumer uses it")),
        "{:?}",
        ended.stderr
    );
}

#[test]
fn damaged_segment_is_set_aside_and_the_rest_arrives() {
    let lab = Lab::new();
    let relay = absent_relay(&lab);
    let options = ["--spool-size=4M"];
    let agent = Agent::start(&lab, &relay, &options);
    // Several packets, each with events, and so several segments.
    let clients = (0..50).step_by(10).map(|first| {
        let client = agent.send(first..first + 10, 30_000);
        agent.wait_until_spooled(&lab);
        client
    });
    let _clients: Vec<UnixStream> = clients.collect();
    agent.kill();
    let spool = lab.path().join("spool");
    let session = entries(&spool)
        .into_iter()
        .find(|name| name != "lock")
        .unwrap();
    let segments = entries(&spool.join(&session));
    let segment = segments
        .iter()
        .filter(|name| name.starts_with("packets-"))
        .nth(1)
        .unwrap();
    let path = spool.join(&session).join(segment);
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    std::fs::write(&path, bytes).unwrap();
    let relay = Relay::start_at(&lab, relay.addresses());
    let ended = Process::start(&mut serve(&lab, &relay)).wait();
    assert_eq!(ended.status.code(), Some(1), "{:#?}", ended.stderr);
    let is_reported = |line: &String| line.contains("damaged segment set aside");
    assert!(ended.stderr.iter().any(is_reported), "{:#?}", ended.stderr);
    let (found, _) = numbers(&relay.output);
    assert!(
        (30..50).contains(&found.len()) && found.is_sorted(),
        "{found:?}"
    );
    assert_eq!((found.first(), found.last()), (Some(&0), Some(&49)));
    let left = entries(&spool);
    assert!(
        left.iter().any(|name| name.starts_with("quarantine-")),
        "{left:?}"
    );
}
