//! The relays, each on a host of its own, what is done to them, and what they take.

use std::fs::{self, File};
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fastrand::Rng;
use rustix::process::Signal;
use tests::binaries;
use tests::lab::Lab;
use tests::relay::{Relay, producer_url};

use super::cables::Cables;
use super::store::Place;
use crate::system::remove_output;

/// Control, data and live port of every relay.
const PORTS: [u16; 3] = [5342, 5343, 5344];

/// Parts replace commit objects again and again, and other relays take over the logs of dead ones.
const OPTIONS: &[&str] = &["--durability=archive", "--archive-part-age=15s"];

/// Longest time in seconds for which a cable is pulled or a relay stopped, and a dead relay away.
const MAX_SILENCE: u64 = 90;
const MAX_DOWNTIME: u64 = 5;

/// Ticks of the kernel in a second, in which it counts processor time: USER_HZ is 100 on Linux.
const TICKS: f64 = 100.0;

/// What is wrong with a relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RelayFault {
    /// It was killed, and its output removed.
    Killed,
    /// The cable of its host is pulled.
    CablePulled,
    /// It was stopped by SIGSTOP.
    Stopped,
}

/// A relay, and what is wrong with it at present.
struct Member {
    lab: Lab,
    relay: Relay,
    fault: Option<(RelayFault, Instant)>,
    started: Instant,
    usage: Usage,
}

/// The most that a relay has taken, over all its runs.
#[derive(Debug, Default)]
struct Usage {
    peak_memory: u64,
    descriptors: usize,
    /// Processor time of earlier runs, and of the present one, in seconds.
    earlier: f64,
    present: f64,
    /// Time for which relays ran, in seconds.
    lived: f64,
}

/// All relays.
pub(super) struct Fleet<'a> {
    members: Vec<Member>,
    cables: &'a Cables,
}

impl<'a> Fleet<'a> {
    pub(super) fn start(cables: &'a Cables, store: &Place, parent: &Path, count: usize) -> Self {
        let members = (0..count).map(|host| {
            let _ = fs::remove_file(log_file(host));
            let lab = Lab::new_in(parent);
            Member {
                relay: start_relay(&lab, cables, host, store),
                lab,
                fault: None,
                started: Instant::now(),
                usage: Usage::default(),
            }
        });
        Self {
            members: members.collect(),
            cables,
        }
    }

    /// The URLs of the relays for producers.
    pub(super) fn urls(&self) -> Vec<String> {
        let relays = self.members.iter().map(|member| &member.relay);
        let urls = relays.map(|relay| producer_url(relay.control, relay.data));
        urls.collect()
    }

    /// Chooses a relay that nothing is wrong with, unless it is the last of them.
    pub(super) fn choose(&self, random: &mut Rng) -> Option<usize> {
        let well = (0..self.members.len()).filter(|host| self.members[*host].fault.is_none());
        let well: Vec<_> = well.collect();
        (well.len() > 1).then(|| well[random.usize(..well.len())])
    }

    /// Does something to a relay. Returns for how long.
    pub(super) fn inject(&mut self, host: usize, fault: RelayFault, random: &mut Rng) -> Duration {
        let member = &mut self.members[host];
        let max = match fault {
            RelayFault::Killed => {
                member.usage.end_run(member.started);
                member.relay.kill();
                keep_log(host, &member.relay.log());
                remove_output(&member.relay.output);
                MAX_DOWNTIME
            }
            RelayFault::CablePulled => {
                self.cables.pull(host);
                MAX_SILENCE
            }
            RelayFault::Stopped => {
                member.relay.process().signal(Signal::STOP);
                MAX_SILENCE
            }
        };
        let time = Duration::from_millis(random.u64(1000..=max * 1000));
        self.members[host].fault = Some((fault, Instant::now() + time));
        time
    }

    /// Ends what was done to relays, if it is time or all are to run.
    pub(super) fn recover(&mut self, store: &Place, all: bool) {
        for (host, member) in self.members.iter_mut().enumerate() {
            let is_due = |until: Instant| all || Instant::now() >= until;
            let Some((fault, _)) = member.fault.take_if(|(_, until)| is_due(*until)) else {
                continue;
            };
            match fault {
                RelayFault::Killed => {
                    member.relay = start_relay(&member.lab, self.cables, host, store);
                    member.started = Instant::now();
                }
                RelayFault::CablePulled => self.cables.plug(host),
                RelayFault::Stopped => member.relay.process().signal(Signal::CONT),
            }
        }
    }

    /// Looks at what relays take.
    pub(super) fn measure(&mut self) {
        for member in &mut self.members {
            assert!(
                member.is_away() || member.relay.process().is_running(),
                "a relay has exited: {:#?}",
                member.relay.log()
            );
            if !member.is_away() {
                member.usage.measure(&member.relay);
            }
        }
    }

    /// Stops all relays, which must have archived everything, and prints what they took.
    pub(super) fn stop(mut self) {
        for (host, member) in self.members.iter_mut().enumerate() {
            member.usage.end_run(member.started);
            member.usage.print(host);
            // All at the same time.
            member.relay.process().signal(Signal::TERM);
        }
        for (host, member) in std::mem::take(&mut self.members).into_iter().enumerate() {
            let ended = member.relay.stop();
            keep_log(host, &ended.stderr);
            ended.expect_success();
        }
    }
}

impl Drop for Fleet<'_> {
    fn drop(&mut self) {
        for (host, member) in self.members.iter().enumerate() {
            keep_log(host, &member.relay.log());
        }
    }
}

/// The file for the logs of all runs of a relay, for those who look for a fault.
fn log_file(host: usize) -> PathBuf {
    tests::build_directory().join(format!("fleet-relay-{host}.log"))
}

fn keep_log(host: usize, lines: &[String]) {
    let file = File::options()
        .create(true)
        .append(true)
        .open(log_file(host));
    writeln!(file.unwrap(), "{}", lines.join("\n")).unwrap();
}

impl Member {
    fn is_away(&self) -> bool {
        matches!(self.fault, Some((RelayFault::Killed, _)))
    }
}

impl Usage {
    fn measure(&mut self, relay: &Relay) {
        let file = |name: &str| fs::read_to_string(format!("/proc/{}/{name}", relay.id())).unwrap();
        let status = file("status");
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let peak = peak.unwrap().trim().trim_end_matches(" kB");
        self.peak_memory = self.peak_memory.max(peak.parse().unwrap());
        self.descriptors = self.descriptors.max(relay.open_files());
        // After the name, which may have spaces: user and system time are the fields 14 and 15
        // (proc_pid_stat(5)).
        let stat = file("stat");
        let fields = stat.rsplit_once(')').unwrap().1.split_whitespace();
        let times = fields.skip(11).take(2).map(|ticks| ticks.parse::<f64>());
        self.present = times.map(Result::unwrap).sum::<f64>() / TICKS;
    }

    fn end_run(&mut self, started: Instant) {
        self.earlier += std::mem::take(&mut self.present);
        self.lived += started.elapsed().as_secs_f64();
    }

    fn print(&self, host: usize) {
        println!(
            "relay {host}: at most {} MiB and {} descriptors, {:.0} s of processor time in {:.0} s",
            self.peak_memory >> 10,
            self.descriptors,
            self.earlier,
            self.lived,
        );
    }
}

fn start_relay(lab: &Lab, cables: &Cables, host: usize, store: &Place) -> Relay {
    let mut command = cables.command(lab, host, binaries::relayd());
    command.args(["--archive", &store.url()]).args(OPTIONS);
    store.configure(&mut command);
    let addresses = PORTS.map(|port| SocketAddr::from((cables.address(host), port)));
    Relay::start_from_command_at(lab, command, addresses)
}
