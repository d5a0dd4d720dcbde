//! A store that goes away: nothing is acknowledged, everything else goes on, and nothing is lost
//! when it is back.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;
use tests::lab::Lab;
use tests::process::{CompletedProcess, Process};
use tests::relay::Relay;
use tests::replay::HOST;
use tests::status_endpoint::StatusEndpoint;
use tests::viewer::Viewer;
use tests::{binaries, test_live, wait_until};

use crate::agent::{self, TRACE, assert_all, event, numbers, start_consumer};
use crate::servers::{BUCKET, KEYS, S3sServer};

/// The archive in the bucket of a server.
const URL: &str = "s3://traces/fleet";

/// A relay that archives to a server, an agent with a spool, and a client of it.
struct System {
    client: UnixStream,
    consumer: Process,
    status: StatusEndpoint,
    relay: Relay,
    server: S3sServer,
    sent: u64,
    lab: Lab,
}

fn with_keys<'a>(command: &'a mut Command, server: &S3sServer) -> &'a mut Command {
    command.env("AWS_ACCESS_KEY_ID", KEYS.0);
    command.env("AWS_SECRET_ACCESS_KEY", KEYS.1);
    command.args(["--archive-endpoint", &server.url()])
}

/// Starts a relay that archives to a server.
fn start_relay(lab: &Lab, server: &S3sServer) -> Relay {
    assert!(URL.contains(BUCKET));
    let mut command = lab.command(binaries::relayd());
    with_keys(&mut command, server);
    command.args(["--archive", URL, "--durability=archive", "--http=0"]);
    command.args(["--archive-interval=50ms", "--archive-part-age=1s"]);
    Relay::start_from_command(lab, command)
}

impl System {
    fn start() -> Self {
        let lab = Lab::new();
        let server = S3sServer::start_atomic(&lab);
        Self::start_with(lab, server)
    }

    fn start_with(lab: Lab, server: S3sServer) -> Self {
        let relay = start_relay(&lab, &server);
        let status = StatusEndpoint::of(&relay);
        let mut consumer = start_consumer(&lab, relay.addresses());
        consumer.wait_for_stderr_text("consumer::agent: ready");
        let mut client = UnixStream::connect(agent::socket(&lab)).unwrap();
        writeln!(client, "OPEN {TRACE}").unwrap();
        Self {
            client,
            consumer,
            status,
            relay,
            server,
            sent: 0,
            lab,
        }
    }

    fn send(&mut self, count: u64) {
        let lines: String = (self.sent..self.sent + count).map(event).collect();
        self.client.write_all(lines.as_bytes()).unwrap();
        self.sent += count;
    }

    /// What the agent says of itself.
    fn report(&self) -> Value {
        let mut command = self.lab.command(binaries::consumer());
        command.args(["status", "--json", "--socket"]);
        command.arg(agent::status_socket(&self.lab));
        let printed = Process::start(&mut command).wait().expect_success();
        serde_json::from_str(&printed.concat()).unwrap()
    }

    /// Bytes that the agent keeps in its spool.
    fn spooled(&self) -> u64 {
        self.report()["spool"]["bytes"].as_u64().unwrap()
    }

    /// Sends the first events, and waits until they are archived.
    fn send_first(&mut self) {
        self.send(10);
        self.wait_until_acknowledged();
    }

    fn wait_until_acknowledged(&self) {
        wait_until("all is acknowledged", || {
            let session = &self.report()["sessions"][0];
            let number = |name: &str| session[name].as_u64().unwrap_or(0);
            number("sent") > 0
                && number("queued_packets") == 0
                && number("sent") == number("acknowledged")
        });
    }

    /// The value of a metric in seconds, or of any other that is no whole number.
    fn seconds(&self, series: &str) -> f64 {
        let (_, text) = self.status.get("/metrics");
        let mut lines = text.lines();
        let value = lines.find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        value.unwrap().parse().unwrap()
    }

    fn read_archive(&self) -> CompletedProcess {
        let target = format!("{URL}/host/{HOST}/{TRACE}");
        let mut command = test_live::command(&self.lab, &[]);
        Process::start(with_keys(&mut command, &self.server).arg(target)).wait()
    }
}

#[test]
fn nothing_is_acknowledged_while_the_store_is_away_and_nothing_is_lost() {
    let mut system = System::start();
    system.send_first();
    let url = ["--seek=beginning"];
    let viewer = test_live::follow(&system.lab, &system.relay, HOST, TRACE, &url);
    system.server.set_away(true);
    system.send(500);
    wait_until("the viewer shows events that are not archived", || {
        numbers(&viewer.stdout()).len() == 510
    });
    system.status.wait_for_metric("relayd_archive_available", 0);
    let kept = system.spooled();
    let before = system.seconds("relayd_archive_behind_seconds");
    wait_until("the archive is further behind", || {
        system.seconds("relayd_archive_behind_seconds") > before + 0.5
    });
    let (code, text) = system.status.get("/readyz");
    assert_eq!(code, 200);
    assert!(text.starts_with("ok, but the archive is"), "{text}");
    system.send(500);
    wait_until("the spool grows", || system.spooled() > kept);
    system.server.set_away(false);
    system.wait_until_acknowledged();
    system.status.wait_for_metric("relayd_archive_available", 1);
    assert_eq!(system.status.get("/readyz").1.trim(), "ok");
    system.relay.wait_for_log(&["archive available again"]);
    let log = system.relay.log();
    let away = log
        .iter()
        .filter(|line| line.contains("archive not available"));
    assert_eq!(away.count(), 1, "{log:#?}");
    system.consumer.signal(Signal::TERM);
    wait_until("the consumer has ended", || !system.consumer.is_running());
    assert_all(&viewer.wait().expect_success(), system.sent);
    assert_all(&system.read_archive().expect_success(), system.sent);
    assert!(system.relay.stop().status.success());
}

#[test]
fn a_relay_that_is_stopped_while_the_store_is_away_says_that_not_all_is_archived() {
    let mut system = System::start();
    system.send_first();
    system.server.set_away(true);
    system.send(10);
    system.status.wait_for_metric("relayd_archive_available", 0);
    let ended = system.relay.stop();
    assert_eq!(ended.status.code(), Some(1));
    let text = "not all traces are in the archive";
    assert!(
        ended.stderr.iter().any(|line| line.contains(text)),
        "{:#?}",
        ended.stderr
    );
}

#[test]
fn a_relay_that_is_started_while_the_store_is_away_archives_when_it_is_back() {
    let lab = Lab::new();
    let server = S3sServer::start_atomic(&lab);
    server.set_away(true);
    let mut system = System::start_with(lab, server);
    system.send(10);
    system.status.wait_for_metric("relayd_archive_available", 0);
    wait_until("the archive is behind", || {
        system.seconds("relayd_archive_behind_seconds") > 0.0
    });
    assert_eq!(system.report()["sessions"][0]["acknowledged"], 0);
    system.server.set_away(false);
    system.wait_until_acknowledged();
    system.consumer.signal(Signal::TERM);
    wait_until("the consumer has ended", || !system.consumer.is_running());
    system.status.wait_for_metric("relayd_archive_available", 1);
    assert_all(&system.read_archive().expect_success(), system.sent);
    system.relay.stop().expect_success();
}

#[test]
fn a_relay_that_has_nothing_to_archive_stops_though_the_store_is_away() {
    let lab = Lab::new();
    let server = S3sServer::start_atomic(&lab);
    server.set_away(true);
    let relay = start_relay(&lab, &server);
    relay.wait_for_log(&["archive not available"]);
    relay.stop().expect_success();
}

#[test]
fn a_viewer_of_all_sessions_is_shown_none_again_that_has_ended_and_is_archived() {
    let mut system = System::start();
    let relay = format!("net://{}", system.relay.live);
    let viewer = test_live::start(&system.lab, &["--seek=beginning", &relay]);
    system.send(100);
    wait_until("the viewer shows all events", || {
        numbers(&viewer.stdout()).len() == 100
    });
    system.consumer.signal(Signal::TERM);
    wait_until("the consumer has ended", || !system.consumer.is_running());
    // A viewer that connects now finds it in the archive.
    Viewer::connect(system.relay.live).wait_for_listed(TRACE, |_| true);
    // The other one looks for sessions when there is a new one.
    let mut consumer = start_consumer(&system.lab, system.relay.addresses());
    consumer.wait_for_stderr_text("consumer::agent: ready");
    let mut client = UnixStream::connect(agent::socket(&system.lab)).unwrap();
    writeln!(client, "OPEN later").unwrap();
    client.write_all(event(100).as_bytes()).unwrap();
    wait_until("the viewer shows the new session", || {
        numbers(&viewer.stdout()).contains(&100)
    });
    assert_all(&viewer.stdout(), 101);
}
