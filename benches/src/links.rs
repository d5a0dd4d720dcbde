//! Cost of encryption: `consumer replay` into `relayd` over plain TCP and over TLS, in turns, and the processor time per
//! byte of both programs together.

use std::process::{Command, Stdio};
use std::time::Duration;

use tests::certificates::Certificates;
use tests::consumer::replay_command;
use tests::lab::Lab;
use tests::relay::Relay;

use crate::process::{children_cpu, cpu};
use crate::viewer::{size, trace};

/// Minimum size of the trace, in bytes.
const TRACE_BYTES: u64 = 500_000_000;
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

pub(crate) fn run() {
    let lab = Lab::new();
    let certificates = Certificates::create(&lab, "certs");
    let directory = lab.path().join("trace");
    eprintln!("writing a trace of {} MB", TRACE_BYTES / 1_000_000);
    trace::write(&directory, TRACE_BYTES).unwrap();
    let gigabytes = size(&directory) as f64 / 1e9;
    let plain = || {
        let lab = Lab::new();
        let relay = Relay::start(&lab);
        let replay = replay_command(&lab, &relay, "bench", &directory);
        measure(relay, replay)
    };
    let encrypted = || {
        let lab = Lab::new();
        let relay = Relay::start_with_schemes(&lab, ["tls"; 3], &certificates.of_server(true));
        let mut replay = lab.command(tests::binaries::consumer());
        let url = format!(
            "nets://127.0.0.1:{}:{}",
            relay.control.port(),
            relay.data.port()
        );
        replay.args(["replay", "--session", "bench", "-U", &url]);
        replay.args(certificates.of_client(Some("producer")));
        replay.arg(&directory);
        measure(relay, replay)
    };
    // The first run of each fills the page cache.
    let _ = (plain(), encrypted());
    let mut pairs: Vec<_> = (0..TURNS).map(|_| (plain(), encrypted())).collect();
    pairs.sort_by(|one, other| ratio(one).total_cmp(&ratio(other)));
    println!("{gigabytes:.2} GB in packets of 256 KiB, {TURNS} pairs; CPU seconds per GB");
    println!("{:<8}{:>10}{:>10}{:>10}", "", "consumer", "relayd", "both");
    let (plain, encrypted) = pairs[pairs.len() / 2];
    for (name, cost) in [("plain", plain), ("TLS", encrypted)] {
        println!(
            "{name:<8}{:>10.2}{:>10.2}{:>10.2}",
            cost.consumer.as_secs_f64() / gigabytes,
            cost.relay.as_secs_f64() / gigabytes,
            cost.seconds() / gigabytes,
        );
    }
    let percent = |pair: Option<&(Cost, Cost)>| (pair.map_or(1.0, ratio) - 1.0) * 100.0;
    println!(
        "TLS over plain: {:+.0} % CPU per byte (median of the pairs; {:+.0} % to {:+.0} %)",
        percent(pairs.get(pairs.len() / 2)),
        percent(pairs.first()),
        percent(pairs.last()),
    );
}

fn ratio((plain, encrypted): &(Cost, Cost)) -> f64 {
    encrypted.seconds() / plain.seconds()
}

/// Runs the replay to its end.
fn measure(mut relay: Relay, mut replay: Command) -> Cost {
    let before = children_cpu();
    let status = replay.stderr(Stdio::null()).status().unwrap();
    assert!(status.success(), "{status}");
    Cost {
        consumer: children_cpu() - before,
        relay: cpu(relay.process().id()),
    }
}
