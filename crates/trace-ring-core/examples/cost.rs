//! What an event costs the thread that writes it:
//! `cargo run --release -p trace-ring-core --example cost`.
//!
//! Prints the median of several rounds, in CPU time.

use std::env;
use std::hint::black_box;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use trace_ring_core::event;
use tracing::{debug, info, info_span};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

const ROUNDS: usize = 21;
const EVENTS: u32 = 200_000;

/// Returns the CPU time of this thread in nanoseconds.
fn cpu_time() -> f64 {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime))
        .unwrap_or_default()
        .as_secs_f64()
        * 1e9
}

/// Prints the median of the rounds, in nanoseconds per call.
fn measure(what: &str, mut call: impl FnMut(u32)) {
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = cpu_time();
            (0..EVENTS).for_each(|n| call(black_box(n)));
            (cpu_time() - start) / f64::from(EVENTS)
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    let median = rounds.get(ROUNDS / 2).copied().unwrap_or_default();
    println!("{what:<58} {median:6.1} ns");
}

fn main() {
    if env::var_os("TRACE_RING_DIR").is_none() {
        println!(
            "set TRACE_RING_DIR to an empty directory, best below /dev/shm, and TRACE_RING=overwrite"
        );
        return;
    }
    tracing_subscriber::registry()
        .with(trace_ring_core::layer())
        .init();
    let text = "twenty-three characters";
    measure("event!, two integers", |n| {
        event!(Info, "a", n = n, m = 2_u64)
    });
    measure("event!, two integers and a string of 23 bytes", |n| {
        event!(Info, "b", n = n, m = 2_u64, text = text);
    });
    measure("event!, off", |n| event!(Debug, "c", n = n));
    measure("info!, two integers", |n| info!(n, m = 2_u64));
    measure("info!, two integers and a string of 23 bytes", |n| {
        info!(n, m = 2_u64, text);
    });
    measure("info!, two integers and a message without arguments", |n| {
        info!(n, m = 2_u64, "done");
    });
    measure("info!, a message with one argument", |n| info!("done {n}"));
    measure("debug!, off", |n| debug!(n, m = 2_u64));
    let span = info_span!("entered");
    measure("a span: enter, exit", |_| span.in_scope(|| ()));
    measure("a span: new, enter, exit, close", |n| {
        info_span!("new", n).in_scope(|| ());
    });
}
