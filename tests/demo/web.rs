//! The demonstration of `test-live web`: a program with spans runs until it is interrupted, and a
//! URL shows them.

use std::process::Command;

use anyhow::{Context, bail};
use tests::binaries;
use tests::lab::Lab;
use tests::process::Process;
use tests::relay::Relay;
use tests::wait_for;

/// The pause between two requests of a thread, in milliseconds.
const INTERVAL_MS: &str = "30";

pub(super) fn run() -> anyhow::Result<()> {
    let lab = Lab::new();
    let relay = Relay::start(&lab);
    println!("$ relayd -o {}", relay.output.display());
    let rings = lab.directory("rings");
    let _agent = super::ring::start_consumer(&lab, &relay, &rings);

    let mut program = lab.command(binaries::ring_app());
    program.args(["--busy", "--threads", "3", "--interval", INTERVAL_MS]);
    program.env("TRACE_RING_DIR", &rings);
    let _program = Process::start(&mut program);
    println!(
        "$ TRACE_RING_DIR={} app --busy --threads 3 &",
        rings.display()
    );

    let target = format!("net://{}", relay.live);
    println!("$ test-live web {target}\n");
    let mut web = Command::new(binaries::test_live());
    web.args(["web", "--listen=127.0.0.1:0", "--seek=beginning", &target]);
    let mut web = Process::start(&mut web);
    let url = wait_for("the URL", || web.stdout().into_iter().next());
    println!("{url}\n\nInterrupt with Ctrl-C.");
    while web.is_running() {
        std::thread::sleep(super::READ_INTERVAL);
    }
    let ended = web.wait();
    let error = ended.stderr.last().context("test-live web has ended")?;
    bail!("test-live web has ended: {error}");
}
