//! A program that uses `tracing` and writes to the rings:
//! `cargo run -p trace-ring-core --example app -- --help`.

use std::process::ExitCode;
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};
// A program of another workspace depends on `trace-ring`, which has the same names.
use trace_ring_core as trace_ring;
use tracing::field::Empty;
use tracing::{debug, error, info, info_span, trace, warn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

const HELP: &str = "\
Serves made-up requests, and writes an event for each step.

Options:
  --requests N   serve N requests, then exit (default: 10)
  --busy         serve requests until the program is stopped, as fast as possible
  --interval MS  wait so many milliseconds after each request
  --threads N    serve them on N threads (default: 1)
  --tasks N      then run N tasks, each of them on two threads, one after the other (default: 0)
  --kill         end with SIGKILL in the middle of the last request
";

/// What the command line says.
#[derive(Clone, Copy)]
struct Options {
    /// Requests of each thread.
    requests: u64,
    threads: u64,
    tasks: u64,
    interval: Duration,
    is_killed: bool,
}

fn parse_options() -> Option<Options> {
    let mut options = Options {
        requests: 10,
        threads: 1,
        tasks: 0,
        interval: Duration::ZERO,
        is_killed: false,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = || arguments.next().and_then(|text| text.parse::<u64>().ok());
        match argument.as_str() {
            "--requests" => options.requests = number()?,
            "--busy" => options.requests = u64::MAX,
            "--interval" => options.interval = Duration::from_millis(number()?),
            "--threads" => options.threads = number()?,
            "--tasks" => options.tasks = number()?,
            "--kill" => options.is_killed = true,
            _ => return None,
        }
    }
    Some(options)
}

fn main() -> ExitCode {
    let Some(options) = parse_options() else {
        eprint!("{HELP}");
        return ExitCode::from(2);
    };
    tracing_subscriber::registry()
        .with(trace_ring::layer())
        .init();
    info!(
        pid = std::process::id(),
        threads = options.threads,
        "started"
    );
    std::thread::scope(|scope| {
        for thread in 0..options.threads {
            scope.spawn(move || serve(thread, options));
        }
    });
    (0..options.tasks).for_each(run_task);
    info!("finished");
    ExitCode::SUCCESS
}

fn serve(thread: u64, options: Options) {
    for n in 0..options.requests {
        let is_last = n + 1 == options.requests;
        handle_request(thread, n, options.is_killed && is_last);
        if !options.interval.is_zero() {
            std::thread::sleep(options.interval);
        }
    }
}

/// A span that is entered twice, on two threads, and one that is never entered.
fn run_task(n: u64) {
    let span = info_span!("task", n, result = Empty);
    span.in_scope(|| info!("task waits"));
    std::thread::scope(|scope| {
        scope.spawn(move || {
            span.in_scope(|| info!("task goes on"));
            span.record("result", "done");
        });
    });
    drop(info_span!("cancelled", n));
}

fn handle_request(thread: u64, n: u64, is_killed: bool) {
    let span = info_span!("request", thread, n, status = Empty);
    let _entered = span.enter();
    debug!("request received");
    let rows = info_span!("query", table = "orders").in_scope(|| {
        trace!(n, "query sent");
        n % 7
    });
    if is_killed {
        error!(n, "about to die");
        // As the kernel does when memory is short.
        kill_process(getpid(), Signal::KILL).expect("a process may kill itself");
    }
    let status = match rows {
        0 => {
            warn!(target: "app::db", n, "no rows");
            404_u64
        }
        _ => 200,
    };
    span.record("status", status);
    info!(n, status, rows, path = %format_args!("/orders/{n}"), "request done");
}
