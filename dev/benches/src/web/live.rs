//! A program emits events at a rate on 64 streams, and a page follows them: how old the newest
//! event on the screen is, how often the page is drawn, and what all this costs.

use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;
use tests::browser::Browser;
use tests::lab::Lab;
use tests::process::Process;
use tests::relay::Relay;
use tests::{binaries, wait_for};

use super::browser_processes::{self, page_memory};
use super::{Web, load};
use crate::process::{cpu, machine_cpu, peak_memory};

/// Threads of the program; each has a stream.
const THREADS: u64 = 64;
/// How long the program emits before the measurement, and during it, in seconds.
const WARM_UP: u64 = 6;
const MEASURED: u64 = 15;
/// Time for the last events to arrive.
const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(30);

/// Notes at each frame how old the newest event is that the page shows.
const SAMPLER: &str = "
    window.__samples = {lags: [], begun: performance.now(), drawn: __view().drawn, drawMs: __view().drawMs};
    const sample = () => {
        const lag = __lag();
        if (lag !== null) __samples.lags.push(lag);
        requestAnimationFrame(sample);
    };
    requestAnimationFrame(sample);
    return true";

const RESULT: &str = "
    const lags = __samples.lags.sort((a, b) => a - b), at = part => lags[Math.floor((lags.length - 1) * part)];
    const seconds = (performance.now() - __samples.begun) / 1000, view = __view();
    const drawn = view.drawn - __samples.drawn;
    return {p50: at(0.5), p99: at(0.99), max: at(1), frames: drawn / seconds,
            draw: (view.drawMs - __samples.drawMs) / drawn, heap: performance.memory.usedJSHeapSize / 1e6,
            shown: view.shown.length}";

/// Prints the head of the table.
pub(crate) fn print_head() {
    println!(
        "{THREADS} streams, {MEASURED} s each; CPU in % of one processor; memory of the page: resident, proportional, heap"
    );
    println!(
        "{:>9} {:>24} {:>9} {:>8} {:>16} {:>9} {:>9} {:>6} {:>9} {:>8} {:>8}  events",
        "events/s",
        "lag ms p50, p99, max",
        "frames/s",
        "draw ms",
        "page MB",
        "test-live",
        "peak MB",
        "relay",
        "consumer",
        "browser",
        "machine"
    );
}

/// Measures a rate, and prints its line.
pub(crate) fn run(rate: u64) {
    let lab = Lab::new();
    let mut relay = Relay::start(&lab);
    let rings = lab.directory("rings");
    let consumer = start_consumer(&lab, &relay, &rings, &[]);
    let web = Web::start(&lab, &[&format!("net://{}", relay.live)]);
    let browser = Browser::start(&lab);
    browser.open(&web.url);
    let mut command = lab.command(std::env::current_exe().unwrap());
    // Longer than is measured, so that events come until the end.
    let numbers = [THREADS, rate, WARM_UP + MEASURED + 2].map(|number| number.to_string());
    command
        .arg(load::NAME)
        .args(numbers)
        .env("TRACE_RING_DIR", &rings)
        .stdin(Stdio::piped());
    let mut load = Process::start(&mut command);
    browser.wait_for("events are shown", "return __lag() !== null");
    std::thread::sleep(Duration::from_secs(WARM_UP));
    let times = || {
        [
            cpu(web.process.id()),
            browser_processes::cpu(browser.driver_id()),
            cpu(consumer.id()),
            machine_cpu(),
        ]
    };
    // The relay apart, because `process` borrows it for a change.
    let (before, relay_before, begun) = (times(), cpu(relay.process().id()), Instant::now());
    browser.run(SAMPLER);
    std::thread::sleep(Duration::from_secs(MEASURED));
    let result = browser.run(RESULT);
    let elapsed = begun.elapsed();
    let after = times();
    let percent = |from: Duration, to: Duration| {
        // Saturating, because a process of the browser may have ended meanwhile.
        100.0 * (to.saturating_sub(from)).as_secs_f64() / elapsed.as_secs_f64()
    };
    let used = [0, 1, 2, 3].map(|at: usize| percent(before[at], after[at]));
    let relay_used = percent(relay_before, cpu(relay.process().id()));
    let page = page_memory(browser.driver_id());
    let number = |name: &str| result[name].as_f64().unwrap_or(f64::NAN);
    println!(
        "{rate:>9} {:>24} {:>9.0} {:>8.1} {:>16} {:>9.0} {:>9} {relay_used:>6.0} {:>9.0} {:>8.0} {:>8.0}  {}",
        format!(
            "{:.0}, {:.0}, {:.0}",
            number("p50"),
            number("p99"),
            number("max")
        ),
        number("frames"),
        number("draw"),
        format!("{}, {}, {:.0}", page.0, page.1, number("heap")),
        used[0],
        peak_memory(web.process.id()).unwrap_or(0) / 1024,
        used[2],
        used[1],
        used[3],
        received(&mut load, &browser)
    );
    super::screenshot(&browser, &format!("live-{rate}"));
}

/// Whether all events that the load has emitted were received.
fn received(load: &mut Process, browser: &Browser) -> String {
    let emitted: u64 = wait_for("the program has emitted all", || {
        load.stdout().first()?.parse().ok()
    });
    let sessions = || browser.run("return __view().sessions");
    let events = |sessions: &Value| -> u64 {
        let all = sessions.as_array().into_iter().flatten();
        all.map(|session| session["events"].as_u64().unwrap_or(0))
            .sum()
    };
    let begun = Instant::now();
    let mut last = sessions();
    while events(&last) < emitted && begun.elapsed() < ARRIVAL_TIMEOUT {
        std::thread::sleep(Duration::from_millis(50));
        last = sessions();
    }
    let taken = begun.elapsed();
    let shown = events(&last);
    // Until then the load has kept the session live.
    if let Some(mut stdin) = load.stdin() {
        let _ = stdin.write_all(b"\n");
    }
    match shown == emitted {
        true => format!("all {emitted} received"),
        false => format!(
            "{shown} of {emitted} received after {:.0} s; lost: {}",
            taken.as_secs_f64(),
            last[0]["lost"]
        ),
    }
}

/// Starts `consumer serve` with its defaults and these options.
pub(super) fn start_consumer(lab: &Lab, relay: &Relay, rings: &Path, options: &[&str]) -> Process {
    let (address, control, data) = (relay.control.ip(), relay.control.port(), relay.data.port());
    let mut command = lab.command(binaries::consumer());
    command
        .args(["serve", "-v"])
        .args(options)
        .arg(format!("-U=net://{address}:{control}:{data}"))
        .arg(format!("--ring={}", rings.display()))
        .arg(format!("--socket={}", lab.path().join("status").display()));
    let mut consumer = Process::start(&mut command);
    consumer.wait_for_stderr_text("consumer::frontend::ring: rings");
    consumer
}
