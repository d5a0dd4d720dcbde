//! A viewer that begins at the beginning of a session that has been live for long: how fast it
//! catches up.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use tests::browser::Browser;
use tests::lab::Lab;
use tests::process::Process;
use tests::relay::Relay;
use tests::{binaries, wait_for};

use super::live::start_consumer;
use super::{Web, load};
use crate::process::cpu;

/// Threads, events per second, and the live timer in microseconds: by default, and with packets of
/// an event or two.
const SESSIONS: [[u32; 3]; 2] = [[64, 50_000, 100_000], [4, 4_000, 1_000]];
/// How long the session is before the viewer begins.
const SECONDS: u32 = 40;

pub(crate) fn run() {
    for session in SESSIONS {
        run_session(session);
    }
}

fn run_session([threads, rate, live_timer]: [u32; 3]) {
    let lab = Lab::new();
    let relay = Relay::start(&lab);
    let rings = lab.directory("rings");
    let live = format!("--live={live_timer}");
    let _consumer = start_consumer(&lab, &relay, &rings, &[&live]);
    let mut command = lab.command(std::env::current_exe().unwrap());
    command
        .arg(load::NAME)
        .args([threads, rate, SECONDS].map(|number| number.to_string()))
        .env("TRACE_RING_DIR", &rings)
        .stdin(Stdio::piped());
    let load = Process::start(&mut command);
    // Longer than a wait of the tests lasts.
    let begun = Instant::now();
    while load.stdout().is_empty() {
        assert!(begun.elapsed().as_secs() < 200, "the load does not end");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    let emitted: u64 = load.stdout()[0].parse().unwrap();
    let target = format!("net://{}", relay.live);
    let begun = Instant::now();
    let web = Web::start(&lab, &["--seek=beginning", &target]);
    let browser = Browser::start(&lab);
    browser.open(&web.url);
    // Counted by the page: the time is that of what a user sees.
    wait_for("all events are read", || {
        let events = browser.run("return window.__view ? __view().sessions[0]?.events : null");
        (events.as_u64() == Some(emitted)).then_some(())
    });
    println!(
        "catching up {emitted} events of {SECONDS} s on {threads} streams, live timer {} ms: {:.1} s, of which {:.1} s \
         CPU of test-live web",
        live_timer / 1000,
        begun.elapsed().as_secs_f64(),
        cpu(web.process.id()).as_secs_f64()
    );
    // The next measurement is to have the machine for itself.
    drop((web, browser));
    println!(
        "the same by test-live --sink dummy, until it is killed after 20 s: {}",
        plain(binaries::test_live(), &target)
    );
}

/// Reads the sessions with a viewer that shows nothing, for as long as it uses the processor.
fn plain(program: &Path, target: &str) -> String {
    let mut command = Command::new(program);
    command.args(["--sink=dummy", "--seek=beginning", target]);
    let process = Process::start(&mut command);
    let begun = Instant::now();
    let (mut used, mut taken) = (std::time::Duration::ZERO, 0.0);
    while begun.elapsed().as_secs() < 20 {
        std::thread::sleep(std::time::Duration::from_millis(100));
        let now = cpu(process.id());
        // Less than a fifth of the time is what polling takes.
        if now - used > std::time::Duration::from_millis(20) {
            taken = begun.elapsed().as_secs_f64();
        }
        used = now;
    }
    format!("busy for {taken:.1} s, {:.1} s CPU", used.as_secs_f64())
}
