//! A fleet of relays with many sessions under faults of every kind, for long: everything that was
//! acknowledged is in the archive, once, in order, and with the bytes that were sent.
//!
//! `FLEET_SECONDS`, `FLEET_SESSIONS` and `FAULT_SEED` set the length, the number of sessions and
//! the faults.

mod agents;
mod cables;
mod check;
mod fleet;
mod load;
mod store;

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use fastrand::Rng;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tests::lab::Lab;

use self::agents::Agents;
use self::cables::Cables;
use self::fleet::{Fleet, RelayFault};
use self::load::Load;
use self::store::Place;

/// Number of relays.
const RELAYS: usize = 3;

/// Of these sessions every so many is that of a real agent.
const SESSIONS_OF_AN_AGENT: usize = 50;

/// Milliseconds from one fault to the next.
const FAULT_INTERVAL: std::ops::Range<u64> = 5000..20_000;

/// Live timer of the sessions of the load.
const LIVE_TIMER: Duration = Duration::from_secs(1);

/// The time in which everything is acknowledged and archived when the last fault is over.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(300);

/// Time between two lines about the progress, before each of which the disk is looked at.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(10);

/// Most kilobytes that everything may take on disk.
const MAX_DISK: u64 = 8 << 20;

#[test]
#[ignore = "takes long; cargo xtask test --archive"]
fn a_fleet_under_faults_loses_doubles_and_changes_no_packet() {
    run(60, 200, |parent, _| Place::directory(parent));
}

#[test]
#[ignore = "needs Ceph; cargo xtask test --archive"]
fn a_fleet_and_a_ceph_under_faults_lose_double_and_change_no_packet() {
    run(600, 1000, Place::ceph);
}

/// Runs a fleet for some seconds with so many sessions, unless the environment says others, on the
/// archive that is made in a directory, or in a network where this test has an address.
fn run(seconds: u64, sessions: usize, place: impl FnOnce(&Path, Ipv4Addr) -> Place) {
    let Some(cables) = Cables::create(RELAYS) else {
        return;
    };
    raise_descriptor_limit();
    let seed = number("FAULT_SEED").unwrap_or_else(|| fastrand::u64(..));
    let seconds = number("FLEET_SECONDS").unwrap_or(seconds);
    let sessions = number("FLEET_SESSIONS").map_or(sessions, |sessions| sessions as usize);
    println!("FAULT_SEED={seed} FLEET_SECONDS={seconds} FLEET_SESSIONS={sessions}");
    // On a disk, while the temporary directory may be in memory.
    let lab = Lab::new_in(&tests::build_directory());
    let place = place(lab.path(), cables.switch_address());
    let agents = sessions / SESSIONS_OF_AN_AGENT;
    let mut system = System {
        fleet: Fleet::start(&cables, &place, lab.path(), RELAYS),
        random: Rng::with_seed(seed),
        faults: 0,
        lab: &lab,
        place,
    };
    let urls = system.fleet.urls();
    let real = Agents::start(&urls, agents, lab.path());
    let load = Load::start(&urls, sessions - agents);
    system.inject_faults(&load, Duration::from_secs(seconds));
    let began = Instant::now();
    let report = |what: &str| println!("{:>4} s: {what}", began.elapsed().as_secs());
    system.recover();
    report("after the faults: all runs");
    let events = real.stop();
    let (sent, mut taken) = load.stop();
    report("everything is acknowledged, and all sessions closed");
    print_times(&mut taken);
    let store = system.place.open();
    check::wait_for_ends(store.as_ref(), sessions);
    report("everything is in parts");
    system.fleet.stop();
    check::assert_packets(store.as_ref(), &sent);
    check::assert_shown(&system.place, &lab, agents, events, &sent);
    let packets: u64 = sent.iter().sum();
    println!(
        "{} faults, {sessions} sessions: {packets} packets and {} events, each once, in order and unchanged",
        system.faults,
        events * agents as u64
    );
}

/// The relays and their archive.
struct System<'a> {
    fleet: Fleet<'a>,
    random: Rng,
    faults: usize,
    lab: &'a Lab,
    place: Place,
}

impl System<'_> {
    fn inject_faults(&mut self, load: &Load, length: Duration) {
        let begun = Instant::now();
        let mut next = begun + self.pause();
        let mut report = begun;
        while begun.elapsed() < length {
            self.place.recover(false);
            self.fleet.recover(&self.place, false);
            self.fleet.measure();
            if Instant::now() >= next {
                next = Instant::now() + self.pause();
                self.inject(load, begun);
            }
            if Instant::now() >= report {
                report += PROGRESS_INTERVAL;
                let (acknowledged, waiting) = load.progress();
                let disk = self.assert_disk();
                println!(
                    "{:>4} s: {acknowledged} packets acknowledged, {waiting} wait, {} MiB on disk",
                    begun.elapsed().as_secs(),
                    disk >> 10
                );
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn pause(&mut self) -> Duration {
        Duration::from_millis(self.random.u64(FAULT_INTERVAL))
    }

    fn inject(&mut self, load: &Load, begun: Instant) {
        let faults = [
            RelayFault::Killed,
            RelayFault::CablePulled,
            RelayFault::Stopped,
        ];
        // Of its own, so that the next fault does not depend on the state of the system at this
        // one.
        let mut random = self.random.fork();
        // Two more: OSDs and gateways.
        let kinds = faults.len() + if self.place.has_daemons() { 2 } else { 0 };
        let done = match faults.get(random.usize(..kinds)) {
            Some(fault) => self.inject_to_relay(load, *fault, &mut random),
            None => {
                let injected = self.place.inject(&mut random);
                injected.map(|(fault, time)| (format!("{fault:?} killed"), time))
            }
        };
        let Some((what, time)) = done else {
            return;
        };
        self.faults += 1;
        println!(
            "{:>4} s: {what} for {:.1} s",
            begun.elapsed().as_secs(),
            time.as_secs_f64()
        );
    }

    fn inject_to_relay(
        &mut self,
        load: &Load,
        fault: RelayFault,
        random: &mut Rng,
    ) -> Option<(String, Duration)> {
        let host = self.fleet.choose(random)?;
        let url = &self.fleet.urls()[host];
        let mut what = format!("relay {host}: {fault:?}");
        if fault == RelayFault::Killed {
            let lost = load.watch_relay(url);
            what.push_str(&format!(", {lost} sessions move,"));
        }
        let time = self.fleet.inject(host, fault, random);
        Some((what, time))
    }

    /// Ends all that is wrong.
    fn recover(&mut self) {
        self.place.recover(true);
        self.fleet.recover(&self.place, true);
    }

    /// Expects that everything together takes no more of the disk than it may. Returns how much it
    /// takes.
    fn assert_disk(&self) -> u64 {
        let printed = Command::new("du").arg("-sk").arg(self.lab.path()).output();
        let printed = String::from_utf8(printed.unwrap().stdout).unwrap();
        let kilobytes = printed.split_whitespace().next().unwrap().parse().unwrap();
        assert!(kilobytes < MAX_DISK, "{kilobytes} kilobytes");
        kilobytes
    }
}

/// Prints how long sessions took from the death of their relay to the next acknowledgement.
fn print_times(taken: &mut [Duration]) {
    taken.sort();
    let Some(last) = taken.len().checked_sub(1) else {
        return;
    };
    let percentile = |percent: usize| taken[last * percent / 100].as_secs_f64();
    println!(
        "from kill -9 of a relay to the next acknowledgement of another, {} times: p50 {:.2} s, p99 {:.2} s, at most {:.2} s",
        taken.len(),
        percentile(50),
        percentile(99),
        percentile(100)
    );
}

/// The relays' list for a session that begins with this one.
fn list_from(relays: &[String], first: usize) -> String {
    let in_turn = relays.iter().cycle().skip(first).take(relays.len());
    let addresses = in_turn.map(|url| url.trim_start_matches("net://"));
    format!("net://{}", addresses.collect::<Vec<_>>().join(","))
}

fn number(name: &str) -> Option<u64> {
    Some(std::env::var(name).ok()?.parse().unwrap())
}

/// Each session of the load has two connections.
fn raise_descriptor_limit() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let limit = Rlimit {
        current: maximum,
        maximum,
    };
    setrlimit(Resource::Nofile, limit).unwrap();
}
