//! The process that is measured: threads that emit events in batches. Prints for each batch the
//! processor time of an event in nanoseconds and the events per second of all threads, then `end`,
//! and exits when its standard input is closed. `tracepoints.c` is the same for LTTng-UST.

use std::hint::black_box;
use std::io::Read;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::prelude::*;

/// The argument that makes the benchmark program run as the load.
pub(crate) const NAME: &str = "ring-load";

/// Batches before the first that is measured: more than the largest buffer holds, so that every
/// page of it is mapped.
const WARM_UP: usize = 5;

/// The load of every thread.
struct Load {
    threads: usize,
    batches: usize,
    /// Events of a thread in a batch.
    events: i32,
    /// Pause before each batch, in which a drainer may empty the rings.
    pause: Duration,
}

/// The times of one batch of one thread.
struct BatchTimes {
    cpu: Duration,
    begin: Instant,
    end: Instant,
}

/// Runs `ring-load SYSTEM EVENT THREADS BATCHES EVENTS PAUSE_MS TEXT`.
pub(crate) fn run(arguments: &[String]) {
    let [_, system, event, numbers @ .., text] = arguments else {
        panic!("{arguments:?}");
    };
    let numbers: Vec<u32> = numbers.iter().map(|text| text.parse().unwrap()).collect();
    let load = Load {
        threads: numbers[0] as usize,
        batches: numbers[1] as usize,
        events: i32::try_from(numbers[2]).unwrap(),
        pause: Duration::from_millis(numbers[3].into()),
    };
    let is_disabled = event == "disabled";
    let _guard = (system != "direct").then(|| subscribe(system, is_disabled));
    // The compiler must not know the text, and copy it in advance.
    let text = black_box(text.as_str());
    match (system.as_str(), event.as_str()) {
        ("direct", "text") => load.run(|number| {
            trace_ring_core::event!(Info, "text", first = number, second = -number, text = text);
        }),
        ("direct", _) => load.run(|number| {
            trace_ring_core::event!(Info, "ints", first = number, second = -number);
        }),
        (_, "text") => load.run(|number| {
            tracing::info!(first = number, second = -number, text);
        }),
        (_, _) => load.run(|number| {
            tracing::info!(first = number, second = -number);
        }),
    }
    println!("end");
    // The process lives until the counters have been read.
    let _ = std::io::stdin().read(&mut [0]);
}

/// Sets the subscriber of the process. Returns what must live as long as events are emitted.
fn subscribe(system: &str, is_disabled: bool) -> Option<tracing_chrome::FlushGuard> {
    let level = if is_disabled {
        LevelFilter::OFF
    } else {
        LevelFilter::TRACE
    };
    let registry = tracing_subscriber::registry();
    match system {
        // Its own filter disables it: TRACE_RING_FILTER.
        "layer" => registry.with(trace_ring_core::layer()).init(),
        "fmt" => {
            let fmt = tracing_subscriber::fmt::layer().with_writer(std::io::sink);
            registry.with(level).with(fmt).init();
        }
        "chrome" => {
            let chrome = tracing_chrome::ChromeLayerBuilder::new().include_args(true);
            let (chrome, guard) = chrome.writer(std::io::sink()).build();
            registry.with(level).with(chrome).init();
            return Some(guard);
        }
        other => panic!("{other}"),
    }
    None
}

impl Load {
    /// Runs all threads to their end, and prints the times of each batch. A single thread stays on
    /// the last processor.
    fn run(&self, emit: impl Fn(i32) + Sync) {
        // A thread that moves to another processor finds cold caches there.
        if self.threads == 1 {
            let mut cpus = CpuSet::new();
            cpus.set(std::thread::available_parallelism().unwrap().get() - 1);
            sched_setaffinity(None, &cpus).unwrap();
        }
        let barrier = Barrier::new(self.threads);
        let times: Vec<Vec<BatchTimes>> = std::thread::scope(|scope| {
            let thread = || scope.spawn(|| self.run_thread(&barrier, &emit));
            let threads: Vec<_> = (0..self.threads).map(|_| thread()).collect();
            let joined = threads.into_iter().map(|thread| thread.join().unwrap());
            joined.collect()
        });
        let all = f64::from(self.events) * self.threads as f64;
        for batch in 0..self.batches {
            let of_batch = || times.iter().map(|thread| &thread[batch]);
            let cpu: Duration = of_batch().map(|times| times.cpu).sum();
            // From the first to begin to the last to end, because threads do not end together.
            let begin = of_batch().map(|times| times.begin).min().unwrap();
            let end = of_batch().map(|times| times.end).max().unwrap();
            let rate = all / (end - begin).as_secs_f64();
            println!("{} {rate}", cpu.as_secs_f64() * 1e9 / all);
        }
    }

    fn run_thread(&self, barrier: &Barrier, emit: impl Fn(i32)) -> Vec<BatchTimes> {
        let mut times = Vec::new();
        for batch in 0..WARM_UP + self.batches {
            std::thread::sleep(self.pause);
            // All threads begin a batch together, whatever the last one took them.
            barrier.wait();
            let (begin, cpu) = (Instant::now(), thread_cpu());
            for number in 0..self.events {
                emit(number);
            }
            if batch >= WARM_UP {
                times.push(BatchTimes {
                    cpu: thread_cpu() - cpu,
                    begin,
                    end: Instant::now(),
                });
            }
        }
        times
    }
}

/// Processor time of the calling thread.
fn thread_cpu() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap()
}
