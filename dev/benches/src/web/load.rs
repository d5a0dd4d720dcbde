//! The traced program: threads that emit events at a rate, most of them begins and ends of nested
//! spans. Prints the number of events when it has emitted all, and exits when its standard input is
//! closed.

use std::io::Read;
use std::time::{Duration, Instant};

use trace_ring_core::event;

/// The argument that makes the benchmark program run as the load.
pub(crate) const NAME: &str = "web-load";

/// Time between two turns of a thread. In each it emits what is due.
const TURN: Duration = Duration::from_millis(10);

/// Runs `web-load THREADS EVENTS_PER_SECOND SECONDS`.
pub(crate) fn run(arguments: &[String]) {
    let numbers: Vec<u64> = arguments[1..]
        .iter()
        .map(|text| text.parse().unwrap())
        .collect();
    let [threads, rate, seconds] = numbers[..] else {
        panic!("{arguments:?}");
    };
    let emitted: u64 = std::thread::scope(|scope| {
        let thread = |number| scope.spawn(move || emit_at_rate(number, threads, rate, seconds));
        let threads: Vec<_> = (0..threads).map(thread).collect();
        let joined = threads.into_iter().map(|thread| thread.join().unwrap());
        joined.sum()
    });
    println!("{emitted}");
    // The session is live until the events have been seen.
    let _ = std::io::stdin().read(&mut [0]);
}

fn emit_at_rate(thread: u64, threads: u64, rate: u64, seconds: u64) -> u64 {
    let begin = Instant::now();
    // Threads of a program do not all wake at the same time.
    std::thread::sleep(TURN.mul_f64(thread as f64 / threads as f64));
    let mut emitted = 0;
    while begin.elapsed() < Duration::from_secs(seconds) {
        // By the clock: a turn that is late emits what is due by then.
        let due = (begin.elapsed().as_secs_f64() * rate as f64 / threads as f64) as u64;
        while emitted < due {
            emit(emitted);
            emitted += 1;
        }
        std::thread::sleep(TURN);
    }
    emitted
}

/// Emits the event of this number: requests, each with two queries, and rows within.
fn emit(number: u64) {
    macro_rules! query {
        ($($at:literal $begin:literal $end:literal;)*) => {
            match (number / 10 % 4, number % 10) {
                (_, 0) => event!(Info, "request_begin", number = number),
                (_, 9) => event!(Info, "request_end", number = number),
                $(
                    ($at, 1 | 5) => event!(Info, $begin, number = number),
                    ($at, 4 | 8) => event!(Info, $end, number = number),
                )*
                _ => event!(Info, "row", number = number),
            }
        };
    }
    query! {
        0 "orders_begin" "orders_end";
        1 "users_begin" "users_end";
        2 "prices_begin" "prices_end";
        3 "stock_begin" "stock_end";
    }
}
