//! Programs that are killed, networks that are cut and disks that are full, at random instants
//! under load: every accepted event is in the recorded trace exactly once and in order, and a
//! viewer shows it exactly once.
//!
//! Each test is a [`Scenario`]: which programs on which hosts and disks, which faults and how
//! often. `FAULT_SEED` repeats a schedule, `FAULT_ROUNDS` runs every test so many times, and with
//! `FAULT_LONG` those run, too, that take minutes.

mod comparison;
mod history;
mod load;
mod program;
mod scenario;
mod system;

use load::TraceNames;
use scenario::{Fault, Scenario};
use system::Setup;

/// All programs on one host, with their defaults.
const ONE_HOST: Setup = Setup {
    relay: &[],
    consumer: &[],
    has_spool: true,
    names: TraceNames::OfGeneration,
    has_network: false,
    has_small_output: false,
    has_small_spool: false,
};

#[test]
fn a_killed_relay_loses_and_repeats_no_event() {
    let scenario = Scenario {
        setup: ONE_HOST,
        faults: &[(Fault::KillRelay, 8)],
        max_uptime_ms: 1500,
        max_downtime_ms: 1000,
    };
    scenario.run("a killed relay");
}

#[test]
fn a_killed_relay_loses_and_repeats_no_event_of_a_consumer_without_a_spool() {
    let scenario = Scenario {
        setup: Setup {
            has_spool: false,
            ..ONE_HOST
        },
        faults: &[(Fault::KillRelay, 3)],
        max_uptime_ms: 1500,
        max_downtime_ms: 1000,
    };
    scenario.run("a killed relay without a spool");
}

#[test]
fn a_relay_that_is_killed_thirty_times_loses_and_repeats_no_event() {
    let scenario = Scenario {
        setup: ONE_HOST,
        faults: &[(Fault::KillRelay, 30)],
        max_uptime_ms: 3000,
        max_downtime_ms: 2000,
    };
    scenario.run_if_long("a relay killed thirty times");
}

#[test]
fn a_relay_with_durability_packet_that_is_killed_loses_and_repeats_no_event() {
    let scenario = Scenario {
        setup: Setup {
            relay: &["--durability=packet"],
            ..ONE_HOST
        },
        faults: &[(Fault::KillRelay, 4)],
        max_uptime_ms: 1500,
        max_downtime_ms: 1000,
    };
    scenario.run("a killed relay with durability packet");
}

#[test]
fn a_killed_consumer_loses_no_accepted_event() {
    let scenario = Scenario {
        setup: ONE_HOST,
        faults: &[(Fault::KillConsumer, 5)],
        max_uptime_ms: 2000,
        max_downtime_ms: 500,
    };
    scenario.run("a killed consumer");
}

#[test]
fn a_killed_consumer_loses_no_accepted_event_of_traces_that_clients_open_again() {
    let scenario = Scenario {
        setup: Setup {
            names: TraceNames::Reused,
            ..ONE_HOST
        },
        faults: &[(Fault::KillConsumer, 3), (Fault::KillBoth, 1)],
        max_uptime_ms: 2000,
        max_downtime_ms: 500,
    };
    scenario.run("a killed consumer with traces opened again");
}

#[test]
fn a_killed_relay_and_consumer_lose_no_accepted_event() {
    let scenario = Scenario {
        setup: ONE_HOST,
        faults: &[(Fault::KillBoth, 4)],
        max_uptime_ms: 1500,
        // Relay and consumer are down apart from each other for up to four times as long, so that
        // events wait in the spool until the consumer is killed.
        max_downtime_ms: 1000,
    };
    scenario.run("a killed relay and consumer");
}

#[test]
fn a_killed_viewer_disturbs_neither_the_trace_nor_its_successor() {
    let scenario = Scenario {
        setup: ONE_HOST,
        faults: &[(Fault::KillViewer, 6)],
        max_uptime_ms: 700,
        max_downtime_ms: 0,
    };
    scenario.run("a killed viewer");
}

#[test]
fn programs_that_are_killed_in_any_order_lose_no_accepted_event() {
    let scenario = Scenario {
        setup: Setup {
            relay: &["--durability=interval"],
            ..ONE_HOST
        },
        faults: &[
            (Fault::KillRelay, 2),
            (Fault::StopRelay, 1),
            (Fault::KillConsumer, 2),
            (Fault::KillBoth, 1),
            (Fault::KillViewer, 2),
        ],
        max_uptime_ms: 1000,
        max_downtime_ms: 500,
    };
    scenario.run("all programs killed");
}

const TWO_HOSTS: Setup = Setup {
    has_network: true,
    ..ONE_HOST
};

#[test]
fn a_network_cut_of_five_seconds_loses_and_repeats_no_event() {
    let scenario = Scenario {
        setup: TWO_HOSTS,
        faults: &[
            (Fault::CutNetwork(5), 1),
            (Fault::CutNetworkAndKillRelay(5), 1),
        ],
        max_uptime_ms: 1500,
        max_downtime_ms: 1000,
    };
    scenario.run("a network cut");
}

#[test]
fn a_network_cut_of_a_minute_loses_and_repeats_no_event() {
    let scenario = Scenario {
        setup: TWO_HOSTS,
        faults: &[
            (Fault::CutNetwork(60), 1),
            (Fault::CutNetworkAndKillRelay(60), 1),
        ],
        max_uptime_ms: 5000,
        max_downtime_ms: 2000,
    };
    scenario.run_if_long("a network cut of a minute");
}

#[test]
fn a_full_disk_of_the_relay_loses_and_repeats_no_event() {
    let scenario = Scenario {
        setup: Setup {
            has_small_output: true,
            ..ONE_HOST
        },
        faults: &[
            (Fault::FillOutput(2), 1),
            (Fault::FillOutputAndKillRelay(3), 1),
        ],
        max_uptime_ms: 1500,
        max_downtime_ms: 500,
    };
    scenario.run("a full disk of the relay");
}

#[test]
fn a_full_disk_of_the_spool_loses_and_repeats_no_event() {
    let scenario = Scenario {
        setup: Setup {
            consumer: &["--on-full=block"],
            has_small_spool: true,
            ..ONE_HOST
        },
        faults: &[(Fault::FillSpool(2), 2), (Fault::KillRelay, 1)],
        max_uptime_ms: 1500,
        max_downtime_ms: 500,
    };
    scenario.run("a full disk of the spool");
}
