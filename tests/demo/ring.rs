//! The demonstration of shared-memory rings: a program that is killed while it works, and whose
//! last events appear in `test-live`.

use std::fs;
use std::path::Path;

use anyhow::{Context, ensure};
use rustix::process::Signal;
use tests::lab::Lab;
use tests::process::Process;
use tests::relay::Relay;
use tests::viewer::{Viewer, hostname};
use tests::{binaries, wait_until};

use super::ViewerOutput;

/// The pause between two events, in microseconds.
const PAUSE_US: &str = "20000";
/// The program is killed when it has finished this number of events.
const EVENTS: u64 = 100;

pub(super) fn run() -> anyhow::Result<()> {
    let lab = Lab::new();
    let relay = Relay::start(&lab);
    println!("$ relayd -o {}", relay.output.display());
    let rings = lab.directory("rings");
    let agent = start_consumer(&lab, &relay, &rings);

    let progress = lab.path().join("progress");
    let mut program = lab.command(binaries::ring_writer());
    program.arg(&progress).args(["1", "0", PAUSE_US]);
    program.env("TRACE_RING_DIR", &rings);
    let mut program = Process::start(&mut program);
    println!("$ TRACE_RING_DIR={} ring-writer &", rings.display());
    let pid = program.id();
    let session = format!("ring-writer-{pid}");
    let url = format!("net://{}/host/{}/{session}", relay.live, hostname());
    println!("$ test-live --seek beginning {url}\n");
    let mut viewer = lab.command(binaries::test_live());
    let wait = ["--session-not-found=continue", "--seek=beginning"];
    viewer.args(wait).args(["--color=never", &url]);
    let viewer = Process::start(&mut viewer);
    Viewer::connect(relay.live).wait_for_listed(&session, |session| session.viewers == 1);

    let mut shown = ViewerOutput::new(viewer);
    let mut is_killed = false;
    while shown.print_new()? {
        if !is_killed && finished_events(&progress) >= EVENTS {
            program.signal(Signal::KILL);
            wait_until("the program is dead", || !program.is_running());
            println!("$ kill -9 {pid}");
            is_killed = true;
        }
    }
    let shown = shown.finish()?;
    agent.signal(Signal::TERM);
    agent.wait().expect_success();
    ensure!(
        relay.stop().status.success(),
        "relayd did not exit with success"
    );

    let finished = finished_events(&progress);
    println!("\nThe program was killed when it had finished {finished} events.");
    let last = shown.last().context("no event was shown")?;
    println!("test-live has shown {}; the last one:\n{last}", shown.len());
    let numbers: Vec<u64> = shown.iter().filter_map(|line| number(line)).collect();
    // The program may be killed after it has written an event and before it has counted that.
    let is_complete = [finished, finished + 1].contains(&(numbers.len() as u64));
    let is_in_order = (0..).zip(&numbers).all(|(expected, n)| expected == *n);
    ensure!(
        is_killed && is_complete && is_in_order,
        "events are missing"
    );
    println!("None of them is missing.");
    Ok(())
}

/// Starts `consumer serve`, and waits until it reads the rings.
pub(super) fn start_consumer(lab: &Lab, relay: &Relay, rings: &Path) -> Process {
    let url = relay.producer_url();
    let ring = format!("--ring={}", rings.display());
    let mut command = lab.command(binaries::consumer());
    command
        .args(["serve", "-v", "-U", &url, &ring])
        .arg(format!("--socket={}", lab.path().join("status").display()));
    let mut consumer = Process::start(&mut command);
    consumer.wait_for_stderr_text("consumer::frontend::ring: rings");
    println!("$ consumer serve -U {url} {ring}");
    consumer
}

/// Returns the number of events that the program has finished, by its own count.
fn finished_events(progress: &Path) -> u64 {
    let bytes = fs::read(progress).unwrap_or_default();
    bytes
        .first_chunk()
        .map_or(0, |count| u64::from_le_bytes(*count))
}

/// Returns the number of an event that the viewer shows.
fn number(line: &str) -> Option<u64> {
    let (_, rest) = line.split_once("number = ")?;
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}
