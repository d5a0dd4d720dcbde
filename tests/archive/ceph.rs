//! An archive in a real Ceph, whose daemons are killed under load. Only `cargo xtask test
//! --archive` runs these tests, because it installs Ceph.

use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use fastrand::Rng;
use rustix::process::Signal;
use serde_json::Value;
use tests::ceph::Ceph;
use tests::consumer::replay_command;
use tests::lab::Lab;
use tests::process::Process;
use tests::relay::{Relay, free_addresses};
use tests::replay::HOST;
use tests::status_endpoint::StatusEndpoint;
use tests::{binaries, test_live, traces, wait_until};

use crate::agent::{self, TRACE, assert_all, event, start_consumer};

/// Faults of each kind, unless `CEPH_KILLS` says another number.
const DEFAULT_KILLS: usize = 3;

/// The time in which everything that waits is archived after a fault. The gateway needs seconds to
/// start, and repeated requests may wait for the next attempt.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(180);

/// The archive in the bucket.
const PREFIX: &str = "fleet";

/// Options with which parts replace commit objects again and again.
const RELAY: &[&str] = &["--durability=archive", "--archive-part-age=3s", "--http=0"];

#[test]
#[ignore = "needs Ceph; cargo xtask test --archive"]
fn ceph_can_hold_an_archive() {
    let ceph = Ceph::start();
    let lab = Lab::new();
    let mut command = lab.command(binaries::relayd());
    command.args(["archive", "check", &ceph.archive(PREFIX)]);
    let lines = Process::start(ceph.configure(&mut command)).wait();
    let lines = lines.expect_success();
    assert!(lines[0].contains(" can be used: "), "{lines:#?}");
    println!("{}", lines.join("\n"));
}

#[test]
#[ignore = "needs Ceph; cargo xtask test --archive"]
fn every_packet_of_a_replayed_trace_is_in_the_archive() {
    let ceph = Ceph::start();
    let lab = Lab::new();
    let relay = start_relay(&ceph, &lab, free_addresses());
    let recorded = traces::recorded_by_lttng(&lab, "--buffers-pid", 2000);
    let made_up = traces::with_numbered_events(&lab, "numbered", 20_000, 1000);
    let mut sessions = Vec::new();
    for (name, directory) in [("recorded", &recorded), ("numbered", &made_up)] {
        let replay = Process::start(&mut replay_command(&lab, &relay, name, directory));
        let _ = replay.wait().expect_success();
        sessions.push((name, lines(&ceph, &lab, directory.as_ref()).len()));
    }
    let output = relay.output.clone();
    relay.stop().expect_success();
    let of_relay = fs::read_dir(output.join(HOST)).unwrap();
    let of_relay: Vec<_> = of_relay.map(|entry| entry.unwrap().path()).collect();
    for (name, events) in sessions {
        let shown = lines(&ceph, &lab, session_url(&ceph, name).as_ref());
        let is_of_session = |path: &&std::path::PathBuf| {
            let directory = path.file_name().unwrap().to_string_lossy();
            directory.starts_with(&format!("{name}-"))
        };
        let directory = of_relay.iter().find(is_of_session).unwrap();
        assert!(shown == lines(&ceph, &lab, directory), "{name}");
        assert_eq!(shown.len(), events);
        println!("{name}: {events} events");
    }
}

/// What is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Osd,
    Gateway,
    /// The relay, whose output is removed, too.
    Relay,
    /// The relay with its output, while the gateway does not run.
    GatewayAndRelay,
}

#[test]
#[ignore = "needs Ceph; cargo xtask test --archive"]
fn killed_osds_gateways_and_relays_lose_and_repeat_no_event() {
    let mut random = random();
    let mut system = System::start(random.fork());
    let all = [
        Fault::Osd,
        Fault::Gateway,
        Fault::Relay,
        Fault::GatewayAndRelay,
    ];
    let mut faults: Vec<_> = (0..kills()).flat_map(|_| all).collect();
    random.shuffle(&mut faults);
    for fault in faults {
        system.pause(&mut random, 5000);
        println!("{} events: {fault:?}", system.load.sent());
        system.inject(fault, &mut random);
    }
    system.pause(&mut random, 5000);
    system.finish();
}

#[test]
#[ignore = "needs Ceph; cargo xtask test --archive"]
fn nothing_is_acknowledged_while_the_quota_of_the_user_is_used_up() {
    let system = System::start(random());
    wait_until("the first events are archived", || {
        system.status.metric("relayd_archive_objects_total") > 2
    });
    system.ceph.set_max_objects(Some(1));
    system.status.wait_for_metric("relayd_archive_available", 0);
    let before = system.spooled();
    let sent = system.load.sent();
    wait_until("the load goes on", || system.load.sent() > sent + 1000);
    wait_until("the spool grows", || system.spooled() > before);
    let log = system.relay.log();
    let refused = log.iter().find(|line| line.contains("QuotaExceeded"));
    println!("{}", refused.expect("the log says why"));
    system.ceph.set_max_objects(None);
    system.status.wait_for_metric("relayd_archive_available", 1);
    system.finish();
}

/// A relay with an archive in Ceph, an agent with a spool, and a client of it.
struct System {
    load: Load,
    consumer: Process,
    status: StatusEndpoint,
    relay: Relay,
    ceph: Ceph,
    lab: Lab,
}

impl System {
    fn start(random: Rng) -> Self {
        let ceph = Ceph::start();
        let lab = Lab::new();
        let relay = start_relay(&ceph, &lab, free_addresses());
        let mut consumer = start_consumer(&lab, relay.addresses());
        consumer.wait_for_stderr_text("consumer::agent: ready");
        Self {
            load: Load::start(&agent::socket(&lab), random),
            consumer,
            status: StatusEndpoint::of(&relay),
            relay,
            ceph,
            lab,
        }
    }

    /// Waits for up to some milliseconds, under load.
    fn pause(&self, random: &mut Rng, max: u64) {
        assert!(!self.load.client.is_finished());
        std::thread::sleep(Duration::from_millis(random.u64(..max)));
    }

    fn inject(&mut self, fault: Fault, random: &mut Rng) {
        if fault == Fault::Osd {
            let osd = random.usize(..tests::ceph::OSDS);
            self.ceph.kill_osd(osd);
            self.pause(random, 5000);
            self.ceph.start_osd(osd);
            // Before the next is killed: two are needed to write.
            return self.ceph.wait_until_clean();
        }
        if fault != Fault::Relay {
            self.ceph.kill_gateway();
            self.pause(random, 3000);
        }
        if fault != Fault::Gateway {
            self.relay.kill();
            fs::remove_dir_all(&self.relay.output).unwrap();
            self.pause(random, 1000);
            // Without the gateway as well: the relay waits for it.
            self.relay = start_relay(&self.ceph, &self.lab, self.relay.addresses());
            self.status = StatusEndpoint::of(&self.relay);
        }
        if fault != Fault::Relay {
            self.pause(random, 1000);
            self.ceph.start_gateway();
        }
    }

    /// The bytes in the agent's spool, which are those that are not acknowledged.
    fn spooled(&self) -> u64 {
        let mut command = self.lab.command(binaries::consumer());
        command.args(["status", "--json", "--socket"]);
        command.arg(agent::status_socket(&self.lab));
        let printed = Process::start(&mut command).wait().expect_success();
        let report: Value = serde_json::from_str(&printed.concat()).unwrap();
        report["spool"]["bytes"].as_u64().unwrap()
    }

    /// Ends the load, the agent and the relay, and expects all events in the archive.
    fn finish(self) {
        let sent = self.load.stop();
        self.consumer.signal(Signal::TERM);
        let _ = self.consumer.wait_within(RECOVERY_TIMEOUT).expect_success();
        self.relay.stop().expect_success();
        let target = session_url(&self.ceph, TRACE);
        assert_all(&lines(&self.ceph, &self.lab, target.as_ref()), sent);
        println!("{sent} events, each once and in order");
    }
}

/// A client that sends numbered events until it is stopped.
struct Load {
    is_stopping: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    client: JoinHandle<()>,
}

impl Load {
    fn start(socket: &Path, mut random: Rng) -> Self {
        let mut stream = UnixStream::connect(socket).unwrap();
        let is_stopping = Arc::<AtomicBool>::default();
        let sent = Arc::<AtomicU64>::default();
        let (is_over, count) = (Arc::clone(&is_stopping), Arc::clone(&sent));
        let client = std::thread::spawn(move || {
            writeln!(stream, "OPEN {TRACE}").unwrap();
            while !is_over.load(Ordering::Relaxed) {
                let begin = count.load(Ordering::Relaxed);
                let end = begin + random.u64(1..50);
                let lines: String = (begin..end).map(event).collect();
                stream.write_all(lines.as_bytes()).unwrap();
                count.store(end, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        Self {
            is_stopping,
            sent,
            client,
        }
    }

    /// The number of events that have been sent.
    fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Stops the client. Returns the number of events.
    fn stop(self) -> u64 {
        self.is_stopping.store(true, Ordering::Relaxed);
        self.client.join().unwrap();
        self.sent.load(Ordering::Relaxed)
    }
}

fn start_relay(ceph: &Ceph, lab: &Lab, addresses: [SocketAddr; 3]) -> Relay {
    let mut command: Command = lab.command(binaries::relayd());
    command
        .args(["--archive", &ceph.archive(PREFIX)])
        .args(RELAY);
    ceph.configure(&mut command);
    Relay::start_from_command_at(lab, command, addresses)
}

/// The URL of a session for `test-live`.
fn session_url(ceph: &Ceph, name: &str) -> String {
    format!("{}/host/{HOST}/{name}", ceph.archive(PREFIX))
}

/// What `test-live` prints of a session in the archive, or of a directory.
fn lines(ceph: &Ceph, lab: &Lab, target: &Path) -> Vec<String> {
    let mut command = test_live::command(lab, &["--clock-gmt"]);
    let read = Process::start(ceph.configure(&mut command).arg(target));
    read.wait_within(RECOVERY_TIMEOUT).expect_success()
}

fn random() -> Rng {
    let seed = std::env::var("FAULT_SEED").map(|seed| seed.parse().unwrap());
    let seed = seed.unwrap_or_else(|_| fastrand::u64(..));
    println!("FAULT_SEED={seed}");
    Rng::with_seed(seed)
}

fn kills() -> usize {
    let kills = std::env::var("CEPH_KILLS");
    kills.map_or(DEFAULT_KILLS, |kills| kills.parse().unwrap())
}
