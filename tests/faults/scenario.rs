//! Runs a table of faults at random instants against a system under load, and compares all events.

use std::time::{Duration, Instant};

use fastrand::Rng;
use tests::binaries;
use tests::disk::SmallDisk;

use crate::comparison::{assert_exactly_once, assert_same};
use crate::history::History;
use crate::load::{Load, Sent, TRACES};
use crate::system::{Setup, System};

/// The faults of one test.
#[derive(Debug, Clone, Copy)]
pub struct Scenario {
    /// The programs and where they run.
    pub setup: Setup,
    /// The faults, which happen in a random order: each with the number of times.
    pub faults: &'static [(Fault, usize)],
    /// The longest time without a fault between two, in milliseconds.
    pub max_uptime_ms: u64,
    /// The longest time for which a killed program does not run, in milliseconds.
    pub max_downtime_ms: u64,
}

/// Compares what is recorded and what viewers have shown with what was sent, and stops the system.
/// Returns the number of recorded events.
fn compare(system: &mut System, sent: &[Sent]) -> usize {
    let recorded = system.read_by_test_live();
    assert_exactly_once("test-live", &recorded, sent, &system.consumer_kills);
    system.wait_for_viewers();
    system.stop();
    let recorded = system.read_by_babeltrace();
    assert_exactly_once("babeltrace2", &recorded, sent, &system.consumer_kills);
    assert!(!recorded.is_empty(), "no event was recorded");
    system.assert_sessions_are_resumed();
    system.assert_nothing_is_kept();
    for (trace, is_whole, runs) in system.shown_by_viewers() {
        let expected = recorded
            .iter()
            .filter(|event| system.trace_of(event) == trace);
        let expected: Vec<_> = expected.copied().collect();
        let (last, killed) = runs.split_last().expect("every viewer was started");
        let shown = if is_whole { expected.len() } else { last.len() };
        let shown = &expected[..shown.min(expected.len())];
        assert_same(&format!("viewer of {trace}"), last, shown);
        for shown in killed {
            let expected = &expected[..shown.len().min(expected.len())];
            assert_same(&format!("killed viewer of {trace}"), shown, expected);
        }
    }
    recorded.len()
}

/// Returns the number in an environment variable, if that is set.
fn environment(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().expect("a number"))
}

/// The fault that happens at a step of a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The relay is killed.
    KillRelay,
    /// The relay is stopped by SIGTERM, as for an update.
    StopRelay,
    /// The consumer is killed.
    KillConsumer,
    /// Relay and consumer are killed, the second some time after the first, and started in a random
    /// order.
    KillBoth,
    /// A viewer is killed.
    KillViewer,
    /// The network is cut for so many seconds.
    CutNetwork(u64),
    /// The network is cut for so many seconds, and the relay is killed meanwhile.
    CutNetworkAndKillRelay(u64),
    /// The disk of the relay is full for so many seconds.
    FillOutput(u64),
    /// The disk of the relay is full for so many seconds, and the relay is killed meanwhile.
    FillOutputAndKillRelay(u64),
    /// The disk of the spool is full for so many seconds.
    FillSpool(u64),
}

impl Scenario {
    /// Runs the scenario `FAULT_ROUNDS` times (once if that is not set), with the seed `FAULT_SEED`
    /// or random ones.
    ///
    /// # Panics
    /// If an event is missing, repeated or in the wrong place, or a program does what it must not.
    pub fn run(&self, name: &str) {
        for _ in 0..environment("FAULT_ROUNDS").unwrap_or(1) {
            let seed = environment("FAULT_SEED").unwrap_or_else(|| Rng::new().u64(..1_000_000));
            self.run_once(name, seed);
        }
    }

    /// Runs the scenario once, if `FAULT_LONG` is set: it takes minutes.
    ///
    /// # Panics
    /// As [`Self::run`].
    pub fn run_if_long(&self, name: &str) {
        if environment("FAULT_LONG").is_some() {
            let seed = environment("FAULT_SEED").unwrap_or_else(|| Rng::new().u64(..1_000_000));
            self.run_once(name, seed);
        }
    }

    fn run_once(&self, name: &str, seed: u64) {
        // Built before the times of the run begin.
        let _ = [
            binaries::relayd(),
            binaries::consumer(),
            binaries::test_live(),
        ];
        let history = History::begin(name, seed);
        let Some(mut system) = System::new(&self.setup, &history) else {
            return;
        };
        let mut random = Rng::with_seed(seed);
        let load = Load::start(&system.socket(), self.setup.names, &mut random);
        system.start();
        let mut faults: Vec<_> = self
            .faults
            .iter()
            .flat_map(|(fault, times)| std::iter::repeat_n(*fault, *times))
            .collect();
        random.shuffle(&mut faults);
        let mut injector = FaultInjector {
            scenario: self,
            system: &mut system,
            load: &load,
            history: &history,
            random,
        };
        for fault in faults {
            injector.pause(self.max_uptime_ms);
            injector.cause(fault);
        }
        injector.pause(self.max_uptime_ms);
        system.wait_for_viewers_to_attach();
        history.record("clients disconnect");
        let sent = load.stop();
        history.record("clients have disconnected");
        system.wait_until_sessions_end();
        let events = compare(&mut system, &sent);
        println!("{name}: {} kills, {events} events", self.kills());
    }

    /// Returns the number of programs that one run kills.
    fn kills(&self) -> usize {
        let kills = self.faults.iter().map(|(fault, times)| {
            times
                * match fault {
                    Fault::KillBoth => 2,
                    Fault::StopRelay
                    | Fault::CutNetwork(_)
                    | Fault::FillOutput(_)
                    | Fault::FillSpool(_) => 0,
                    Fault::KillRelay
                    | Fault::KillConsumer
                    | Fault::KillViewer
                    | Fault::CutNetworkAndKillRelay(_)
                    | Fault::FillOutputAndKillRelay(_) => 1,
                }
        });
        kills.sum()
    }
}

/// Causes the faults of a running scenario.
struct FaultInjector<'a> {
    scenario: &'a Scenario,
    system: &'a mut System,
    load: &'a Load,
    history: &'a History,
    random: Rng,
}

impl FaultInjector<'_> {
    /// Waits for a random time.
    fn pause(&mut self, max_ms: u64) {
        let time = Duration::from_micros(self.random.u64(..=max_ms * 1000));
        std::thread::sleep(time);
    }

    /// Causes a fault and ends it.
    fn cause(&mut self, fault: Fault) {
        let downtime = self.scenario.max_downtime_ms;
        match fault {
            Fault::KillRelay => self.restart_relay(),
            Fault::StopRelay => {
                self.system.relay.wait_for_log(" listening ");
                self.system.relay.stop();
                self.pause(downtime);
                self.system.start_relay();
            }
            Fault::KillConsumer => {
                self.system.kill_consumer();
                self.pause(downtime);
                self.start_consumer();
            }
            Fault::KillBoth => self.restart_both(),
            Fault::KillViewer => {
                let trace = self.random.u32(..TRACES);
                self.system.replace_viewer(trace);
            }
            Fault::CutNetwork(seconds) => self.cut_network(seconds, false),
            Fault::CutNetworkAndKillRelay(seconds) => self.cut_network(seconds, true),
            Fault::FillOutput(seconds) => self.fill_output(seconds, false),
            Fault::FillOutputAndKillRelay(seconds) => self.fill_output(seconds, true),
            Fault::FillSpool(seconds) => self.fill_spool(seconds),
        }
    }

    fn restart_relay(&mut self) {
        self.system.relay.kill();
        self.pause(self.scenario.max_downtime_ms);
        self.system.start_relay();
    }

    fn start_consumer(&mut self) {
        self.system.begin_generation();
        self.load.set_generation(self.system.generation);
        self.system.consumer.start();
    }

    fn restart_both(&mut self) {
        let downtime = self.scenario.max_downtime_ms;
        let is_relay_first = self.random.bool();
        if is_relay_first {
            self.system.relay.kill();
            self.pause(2 * downtime);
            self.system.kill_consumer();
        } else {
            self.system.kill_consumer();
            self.pause(downtime);
            self.system.relay.kill();
        }
        self.pause(downtime);
        if self.random.bool() {
            self.system.start_relay();
            self.pause(downtime);
            self.start_consumer();
        } else {
            self.start_consumer();
            self.pause(2 * downtime);
            self.system.start_relay();
        }
    }

    fn cut_network(&mut self, seconds: u64, kills_relay: bool) {
        let network = self.system.network.clone();
        let network = network.expect("the scenario has a network");
        self.history.record("cut the network");
        network.cut();
        self.wait_during_fault(seconds, kills_relay);
        network.reconnect();
        self.history.record("reconnect the network");
    }

    fn fill_output(&mut self, seconds: u64, kills_relay: bool) {
        let left = self.random.u64(..64);
        self.history
            .record(&format!("fill the relay's disk but for {left} KiB"));
        self.output_disk().fill(left);
        self.wait_during_fault(seconds, kills_relay);
        self.output_disk().free_space();
        self.history.record("free the relay's disk");
    }

    fn output_disk(&self) -> &SmallDisk {
        let disk = self.system.output_disk.as_ref();
        disk.expect("the scenario has a small disk for the relay")
    }

    fn fill_spool(&mut self, seconds: u64) {
        let left = self.random.u64(..64);
        self.history
            .record(&format!("fill the spool's disk but for {left} KiB"));
        let disk = self.system.spool_disk.as_ref();
        let disk = disk.expect("the scenario has a small disk for the spool");
        disk.fill(left);
        std::thread::sleep(Duration::from_secs(seconds));
        disk.free_space();
        self.history.record("free the spool's disk");
    }

    /// Waits for so many seconds, and restarts the relay at a random instant in the first half of
    /// them.
    fn wait_during_fault(&mut self, seconds: u64, kills_relay: bool) {
        let end = Instant::now() + Duration::from_secs(seconds);
        if kills_relay {
            self.pause(seconds * 500);
            self.restart_relay();
        }
        std::thread::sleep(end.saturating_duration_since(Instant::now()));
    }
}
