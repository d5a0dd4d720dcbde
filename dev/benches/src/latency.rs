//! Latency from an event in a traced program to a viewer's output, with the real session daemon and
//! buffers per user: one stream per CPU, of which all but one are idle, and a second channel
//! without events. Also the processor time of relay and viewer while no events occur.
//!
//! The viewers are `babeltrace2`, with each relay, and `test-live`, which opens the push
//! connection.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use tests::babeltrace::{Babeltrace, numbers};
use tests::lab::Lab;
use tests::lttng::SessionDaemon;
use tests::relay::Relay;
use tests::traced_app::TracedApp;
use tests::viewer::hostname;
use tests::wait_until;

use crate::process::{build, cpu};

/// Live timers, in microseconds.
const TIMERS: [u32; 3] = [1_000, 10_000, 100_000];
/// Events for each row.
const EVENTS: usize = 100;
/// How long the processor time without events is measured.
const IDLE: Duration = Duration::from_secs(4);

const SESSION: &str = "latency";

#[derive(Clone, Copy)]
enum Watcher {
    Babeltrace,
    BabeltraceAtReference,
    TestLive,
}

/// When each event was printed.
type Seen = Arc<Mutex<HashMap<usize, Instant>>>;

/// Prints a table of the live timers and viewers.
pub(crate) fn run() {
    println!(
        "event to screen, ms, {EVENTS} events each; CPU in % of one core while nothing happens"
    );
    println!("live timer  relay         viewer           p50     p99     max   relay  viewer");
    for timer in TIMERS {
        for (watcher, relay, viewer) in [
            (
                Watcher::BabeltraceAtReference,
                "lttng-relayd",
                "babeltrace2",
            ),
            (Watcher::Babeltrace, "relayd", "babeltrace2"),
            (Watcher::TestLive, "relayd", "test-live"),
        ] {
            let (mut taken, [relay_cpu, viewer_cpu]) = measure(watcher, timer);
            taken.sort_unstable();
            let ms = |at: usize| taken[at].as_secs_f64() * 1000.0;
            println!(
                "{:>7} ms  {relay:<12}  {viewer:<15}  {:>5.1}  {:>6.1}  {:>6.1}  {relay_cpu:>5.1}  {viewer_cpu:>5.1}",
                timer / 1000,
                ms(taken.len() / 2),
                ms(taken.len() * 99 / 100 - 1),
                ms(taken.len() - 1),
            );
        }
    }
}

/// Returns the latency of each event, and the processor time of relay and viewer without events, in
/// % of one core.
fn measure(watcher: Watcher, timer: u32) -> (Vec<Duration>, [f64; 2]) {
    let lab = Lab::new();
    let mut relay = match watcher {
        Watcher::BabeltraceAtReference => Relay::start_reference(&lab),
        Watcher::Babeltrace | Watcher::TestLive => Relay::start_with(&lab, &[]),
    };
    let daemon = SessionDaemon::start(&lab);
    daemon.create_session(SESSION, &relay, Some(timer));
    daemon.enable_channel(
        SESSION,
        "busy",
        &["--subbuf-size=16k", "--num-subbuf=8"],
        true,
    );
    daemon.enable_channel(SESSION, "idle", &[], false);
    daemon.lttng(&["start", SESSION]);
    let mut app = TracedApp::start(&lab, SESSION);
    app.emit(1);

    let seen = Seen::default();
    let mut viewer = follow(&relay, watcher, &seen);
    // Events before the viewer has attached and printed one are not measured.
    let mut emitted = 1;
    wait_until("the viewer shows events", || {
        app.emit(1);
        emitted += 1;
        thread::sleep(Duration::from_millis(200));
        !seen.lock().unwrap().is_empty()
    });
    // The events emitted while the viewer attached are printed before the processor time is
    // measured.
    thread::sleep(Duration::from_millis(500));

    let processes = [relay.process().id(), viewer.id()].map(|id| (id, cpu(id)));
    thread::sleep(IDLE);
    let share = |(id, before): (u32, Duration)| (cpu(id) - before).div_duration_f64(IDLE) * 100.0;
    let idle_cpu = processes.map(share);

    let mut taken = Vec::new();
    for round in 0..EVENTS {
        let begun = Instant::now();
        app.emit(1);
        let shown = || seen.lock().unwrap().get(&emitted).copied();
        wait_until("the event is shown", || shown().is_some());
        taken.push(shown().unwrap() - begun);
        emitted += 1;
        // Events occur at all phases of the live timer.
        thread::sleep(Duration::from_micros(
            20_000 + (round as u64 * 7919) % 100_000,
        ));
    }
    app.end();
    daemon.lttng(&["destroy", SESSION]);
    // The times have been taken: how the viewer ends does not matter.
    let _ = viewer.wait();
    (taken, idle_cpu)
}

/// Starts the viewer, and records when it prints each line.
fn follow(relay: &Relay, watcher: Watcher, seen: &Seen) -> Child {
    let mut command = match watcher {
        Watcher::Babeltrace | Watcher::BabeltraceAtReference => {
            Babeltrace::Two.follow_command(relay, SESSION)
        }
        Watcher::TestLive => {
            let mut command = Command::new(build("test-live"));
            command.arg("--quiet").arg(format!(
                "net://{}/host/{}/{SESSION}",
                relay.live,
                hostname()
            ));
            command
        }
    };
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let seen = Arc::clone(seen);
    thread::spawn(move || {
        // Read as lines come, so that the pipe never fills and delays the viewer.
        for line in lines.map_while(Result::ok) {
            let number = numbers(&[line])[0];
            seen.lock().unwrap().insert(number, Instant::now());
        }
    });
    child
}
