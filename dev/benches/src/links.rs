//! Cost of encryption: `consumer` and `relayd` over plain TCP and over TLS, in turns, and the
//! processor time of both programs together. Once the consumer replays packets that exist already,
//! and once it makes them from events.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tests::certificates::Certificates;
use tests::lab::Lab;
use tests::relay::Relay;

use crate::process::{children_cpu, cpu};
use crate::tldrs::load::{self, Writes};
use crate::viewer::{size, trace};

/// Minimum size of the trace, in bytes.
const TRACE_BYTES: u64 = 500_000_000;
/// Clients of an agent, and the events that each sends.
const CLIENTS: usize = 4;
const CLIENT_EVENTS: usize = 500_000;
/// Number of pairs of runs. The median of their ratios is printed.
const TURNS: usize = 7;

/// Processor time of one run.
#[derive(Clone, Copy)]
struct Cost {
    consumer: Duration,
    relay: Duration,
}

impl Cost {
    fn seconds(self) -> f64 {
        (self.consumer + self.relay).as_secs_f64()
    }
}

/// The work of the consumer.
#[derive(Clone, Copy)]
enum Work<'a> {
    /// Sends the packets of a trace.
    Replay(&'a Path),
    /// Makes packets from the events of clients.
    Serve,
}

pub(crate) fn run() {
    let lab = Lab::new();
    let certificates = Certificates::create(&lab, "certs");
    let directory = lab.path().join("trace");
    eprintln!("writing a trace of {} MB", TRACE_BYTES / 1_000_000);
    trace::write(&directory, TRACE_BYTES).unwrap();
    let gigabytes = size(&directory) as f64 / 1e9;
    println!("{TURNS} pairs; seconds of processor time");
    println!(
        "{:<40}{:<7}{:>10}{:>10}{:>10}",
        "", "", "consumer", "relayd", "both"
    );
    let replay = "replay, packets of 256 KiB, for a GB";
    compare(replay, Work::Replay(&directory), &certificates, gigabytes);
    let millions = (CLIENTS * CLIENT_EVENTS) as f64 / 1e6;
    let serve = format!("serve, {CLIENTS} clients, for a million events");
    compare(&serve, Work::Serve, &certificates, millions);
}

/// Prints the cost of some work over both links, divided by its `amount`.
fn compare(name: &str, work: Work<'_>, certificates: &Certificates, amount: f64) {
    let plain = || {
        let lab = Lab::new();
        let relay = Relay::start(&lab);
        measure(work, &lab, relay, "net", &[])
    };
    let encrypted = || {
        let lab = Lab::new();
        let relay = Relay::start_with_schemes(&lab, ["tls"; 3], &certificates.of_server(true));
        let options = certificates.of_client(Some("producer"));
        measure(work, &lab, relay, "nets", &options)
    };
    // The first run of each fills the page cache.
    let _ = (plain(), encrypted());
    // In pairs, so that what slows the machine down for a while slows both links.
    let mut pairs: Vec<_> = (0..TURNS).map(|_| (plain(), encrypted())).collect();
    pairs.sort_by(|one, other| ratio(one).total_cmp(&ratio(other)));
    // Of one pair, because its runs followed each other.
    let (plain, encrypted) = pairs[pairs.len() / 2];
    for (link, cost) in [("plain", plain), ("TLS", encrypted)] {
        println!(
            "{name:<40}{link:<7}{:>10.2}{:>10.2}{:>10.2}",
            cost.consumer.as_secs_f64() / amount,
            cost.relay.as_secs_f64() / amount,
            cost.seconds() / amount,
        );
    }
    let percent = |pair: Option<&(Cost, Cost)>| (pair.map_or(1.0, ratio) - 1.0) * 100.0;
    println!(
        "{name:<40}TLS over plain: {:+.0} % (median of the pairs; {:+.0} % to {:+.0} %)",
        percent(pairs.get(pairs.len() / 2)),
        percent(pairs.first()),
        percent(pairs.last()),
    );
}

fn ratio((plain, encrypted): &(Cost, Cost)) -> f64 {
    encrypted.seconds() / plain.seconds()
}

/// Does the work once. The consumer ends when the relay has everything.
fn measure(
    work: Work<'_>,
    lab: &Lab,
    mut relay: Relay,
    scheme: &str,
    certificates: &[String],
) -> Cost {
    let ports = [relay.control, relay.data].map(|address| address.port());
    let url = format!("{scheme}://127.0.0.1:{}:{}", ports[0], ports[1]);
    let mut consumer = lab.command(tests::binaries::consumer());
    let before = children_cpu();
    match work {
        Work::Replay(trace) => {
            consumer.args(["replay", "--session", "bench", "-U", &url]);
            end(start(consumer.args(certificates).arg(trace)));
        }
        Work::Serve => {
            let socket = lab.path().join("socket");
            consumer.args(["serve", "-U", &url]).args(certificates);
            consumer.arg(format!("--tldrs={}", socket.display()));
            let consumer = start(&mut consumer);
            tests::wait_until("the consumer listens", || {
                UnixStream::connect(&socket).is_ok()
            });
            load::run(&socket, Writes::Chunks, CLIENTS, CLIENT_EVENTS);
            let pid = rustix::process::Pid::from_child(&consumer);
            // The consumer sends what is left before it ends.
            rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
            end(consumer);
        }
    }
    Cost {
        consumer: children_cpu() - before,
        relay: cpu(relay.process().id()),
    }
}

fn start(command: &mut Command) -> Child {
    command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn end(mut consumer: Child) {
    let status = consumer.wait().unwrap();
    assert!(status.success(), "{status}");
}
