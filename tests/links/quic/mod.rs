//! `quic://` between `consumer`, `relayd` and `test-live`: on bad networks every event arrives once
//! and in order, or within its deadline, and then every gap is reported; packets and indexes that
//! are far ahead of each other; hostile peers; certificates that are read again.

mod bad_network;
mod certificates;
mod deadline;
mod far_ahead;
mod hostile;
mod peer;
mod viewers;

use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::process::Signal;
use serde_json::Value;
use tests::babeltrace::Babeltrace;
use tests::certificates::Certificates;
use tests::process::Process;
use tests::relay::{Relay, free_addresses};
use tests::status_endpoint::StatusEndpoint;
use tests::viewer::hostname;
use tests::{Lab, binaries, test_live, wait_for};

/// Name of the trace, which is the name of its session.
const TRACE: &str = "links";

/// A relay with a QUIC port, and the certificates of everybody.
struct QuicRelay {
    relay: Relay,
    status: StatusEndpoint,
    quic: SocketAddr,
    certificates: Certificates,
}

impl QuicRelay {
    /// Starts a relay that asks for clients' certificates.
    fn start(lab: &Lab) -> Self {
        let certificates = Certificates::create(lab, "certificates");
        // Not a port that the system chooses: while the relay is restarted, a client could be given
        // it.
        let [quic, ..] = free_addresses();
        Self::start_at(lab, certificates, quic)
    }

    /// Kills the relay, and starts the next one at the same UDP port.
    fn restart(self, lab: &Lab) -> Self {
        let Self {
            mut relay,
            quic,
            certificates,
            ..
        } = self;
        relay.kill();
        Self::start_at(lab, certificates, quic)
    }

    fn start_at(lab: &Lab, certificates: Certificates, quic: SocketAddr) -> Self {
        let mut options = certificates.of_server(true);
        options.push(format!("--quic=quic://{quic}"));
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let (relay, status) = StatusEndpoint::start_relay(lab, &options);
        let quic = wait_for("the QUIC port is logged", || {
            let log = relay.log();
            let mut fields = log
                .iter()
                .filter_map(|line| line.split_once("QUIC port enabled quic="));
            fields.find_map(|(_, address)| address.trim().parse().ok())
        });
        Self {
            relay,
            status,
            quic,
            certificates,
        }
    }

    /// Returns the command that shows the session from its beginning, over a QUIC connection to
    /// this address.
    fn viewer(&self, lab: &Lab, address: SocketAddr) -> Command {
        let url = format!("quic://{address}/host/{}/{TRACE}", hostname());
        let mut command = test_live::command(lab, &["--seek=beginning", &url]);
        command.args(self.certificates.of_client(Some("viewer")));
        command
    }
}

/// `consumer serve` with a `tldrs` socket, which sends to a relay over QUIC.
struct Agent {
    process: Process,
    socket: PathBuf,
    status: PathBuf,
}

impl Agent {
    fn start(lab: &Lab, relay: &QuicRelay, address: SocketAddr, options: &[&str]) -> Self {
        let socket = lab.path().join("tldrs.socket");
        let status = lab.path().join("status");
        let mut command = lab.command(binaries::consumer());
        command
            .args(["serve", "-v", "-U", &format!("quic://{address}")])
            .arg("--clock-interval=0")
            .args(relay.certificates.of_client(Some("producer")))
            .arg(format!("--tldrs={}", socket.display()))
            .arg(format!("--tldrs-dir={}", lab.directory("data").display()))
            .arg(format!("--socket={}", status.display()))
            .args(options);
        let mut process = Process::start(&mut command);
        process.wait_for_stderr_text("consumer::agent: ready");
        Self {
            process,
            socket,
            status,
        }
    }

    /// Returns the status of the only session. None if it has ended.
    fn session(&self, lab: &Lab) -> Option<Value> {
        let mut command = lab.command(binaries::consumer());
        command
            .args(["status", "--json", "--socket"])
            .arg(&self.status);
        let lines = Process::start(&mut command).wait().expect_success();
        let report: Value = serde_json::from_str(&lines.join("\n")).unwrap();
        report["sessions"].get(0).cloned()
    }

    fn stop(self) -> Vec<String> {
        self.process.signal(Signal::TERM);
        self.process.wait().stderr
    }
}

/// A client of the agent that sends numbered events.
struct Events {
    client: UnixStream,
    sent: u64,
}

impl Events {
    fn open(agent: &Agent) -> Self {
        let mut client = UnixStream::connect(&agent.socket).unwrap();
        writeln!(client, "OPEN {TRACE}").unwrap();
        Self { client, sent: 0 }
    }

    /// Sends one event, with the time at which it is sent, and `padding` bytes.
    fn send(&mut self, padding: usize) {
        let (number, now) = (self.sent, epoch_micros());
        let padding = "x".repeat(padding);
        writeln!(
            self.client,
            r#"{{"ph":"i","s":"t","name":"event","ts":{now},"pid":1,"tid":1,"args":{{"number":{number},"sent":{now},"padding":"{padding}"}}}}"#
        )
        .unwrap();
        self.sent += 1;
    }

    /// Sends events at a rate that makes a packet of each few.
    fn send_slowly(&mut self, count: u64, interval: Duration, padding: usize) {
        for _ in 0..count {
            self.send(padding);
            std::thread::sleep(interval);
        }
    }

    /// Ends the client. Returns the numbers of all events that it has sent.
    fn end(self) -> Vec<u64> {
        (0..self.sent).collect()
    }
}

fn epoch_micros() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(now.as_micros()).unwrap()
}

/// Returns the value of a number in the arguments of a printed event, which are JSON in a string.
fn field(line: &str, name: &str) -> Option<u64> {
    let (_, after) = line.split_once(&format!(r#"{name}\":"#))?;
    let end = after.find(|c: char| !c.is_ascii_digit());
    after[..end.unwrap_or(after.len())].parse().ok()
}

fn numbers(lines: &[String]) -> Vec<u64> {
    let number = |line: &String| field(line, "number");
    lines.iter().filter_map(number).collect()
}

/// Returns what babeltrace2 reads from the relay's output.
fn read_output(relay: &QuicRelay) -> (Vec<u64>, Vec<String>) {
    let read = Babeltrace::Two.read(&relay.relay.output);
    assert!(read.status.success(), "{:#?}", read.stderr);
    (numbers(&read.stdout), read.stderr)
}
