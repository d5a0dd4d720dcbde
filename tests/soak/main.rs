//! A soak test: a relay at full load for `SOAK_SECONDS`, with sessions that rotate, end or are
//! killed, and viewers that attach and detach. No packet is lost, and memory and file descriptors
//! stay bounded.

mod recorded;
mod sessions;
mod viewers;

use std::time::{Duration, Instant};

use tests::relay::Relay;
use tests::wait_until;

use sessions::Sessions;

/// The duration in seconds if `SOAK_SECONDS` is not set.
const DEFAULT_SECONDS: u64 = 15;

/// The number of producers, and of viewers, at a time.
const CONCURRENCY: u64 = 4;

/// The resources that the relay uses at a moment: resident bytes and file descriptors.
#[derive(Debug, Clone, Copy)]
struct Sample {
    memory: u64,
    files: usize,
}

fn seconds() -> u64 {
    match std::env::var("SOAK_SECONDS") {
        Ok(seconds) => seconds.parse().expect("SOAK_SECONDS is a number"),
        Err(_) => DEFAULT_SECONDS,
    }
}

#[test]
fn no_packet_is_lost_and_memory_and_descriptors_stay_bounded_at_full_load() {
    let (_lab, relay) = Relay::start_in_new_lab();
    let before = relay.open_files();
    let sessions = Sessions::new();
    let until = Instant::now() + Duration::from_secs(seconds());
    let mut samples = Vec::new();
    let (seen, shown) = std::thread::scope(|threads| {
        let (relay, sessions) = (&relay, &sessions);
        let spawn_producer = |number| {
            threads.spawn(move || sessions::produce_sessions(relay, sessions, number, until))
        };
        let spawn_viewer =
            |number| threads.spawn(move || viewers::view_sessions(relay, sessions, number, until));
        let producers: Vec<_> = (0..CONCURRENCY).map(spawn_producer).collect();
        let viewers: Vec<_> = (0..CONCURRENCY).map(spawn_viewer).collect();
        while Instant::now() < until {
            samples.push(Sample {
                memory: relay.memory(),
                files: relay.open_files(),
            });
            std::thread::sleep(Duration::from_millis(500));
        }
        let mut seen = sessions::Counts::default();
        for producer in producers {
            seen += producer.join().expect("a producer failed");
        }
        let shown: u64 = viewers
            .into_iter()
            .map(|viewer| viewer.join().expect("a viewer failed"))
            .sum();
        println!("{seen}; {shown} packets shown to viewers");
        (seen, shown)
    });
    assert!(shown > 0);
    assert!(seen.ended > 0 && seen.killed > 0, "{seen}");
    // The relay keeps sessions of killed producers for some seconds. Each worker keeps a pipe,
    // which has two descriptors, once it has received a large packet.
    let workers = std::thread::available_parallelism().map_or(2, |cores| cores.get().max(2));
    wait_until("all files and connections are closed", || {
        relay.open_files() <= before + 2 * workers
    });
    assert_bounded(&samples);
    let log = relay.log();
    let errors: Vec<_> = log.iter().filter(|line| line.contains("ERROR")).collect();
    assert!(errors.is_empty(), "{errors:#?}");
}

/// Checks that the maxima of the last quarter are at most a quarter (and 8 MiB, or 20 files) above
/// those of the second.
fn assert_bounded(samples: &[Sample]) {
    let quarter = samples.len() / 4;
    let max = |samples: &[Sample]| Sample {
        memory: samples.iter().map(|sample| sample.memory).max().unwrap(),
        files: samples.iter().map(|sample| sample.files).max().unwrap(),
    };
    let (early, late) = (
        max(&samples[quarter..2 * quarter]),
        max(&samples[3 * quarter..]),
    );
    println!("at most, in the second quarter: {early:?}; in the last: {late:?}");
    assert!(late.memory <= early.memory + early.memory / 4 + (8 << 20));
    assert!(late.files <= early.files + early.files / 4 + 20);
}
