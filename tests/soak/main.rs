//! A relay at full load for as long as `SOAK_SECONDS` says: sessions that rotate, end or break off,
//! viewers that come and go, connections killed at any moment. Nothing is lost, and what the relay takes
//! stays what it was.

mod recorded;
mod sessions;
mod viewers;

use std::time::{Duration, Instant};

use tests::relay::Relay;
use tests::wait_until;

use sessions::Sessions;

/// How long it lasts, unless it is told.
const SECONDS: u64 = 15;

/// Producers, and viewers, that there are at a time.
const AT_A_TIME: u64 = 4;

/// What the relay takes at a moment.
#[derive(Debug, Clone, Copy)]
struct Sample {
    memory: u64,
    files: usize,
}

fn seconds() -> u64 {
    match std::env::var("SOAK_SECONDS") {
        Ok(seconds) => seconds.parse().expect("SOAK_SECONDS is a number"),
        Err(_) => SECONDS,
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
        let spawn_producer =
            |number| threads.spawn(move || sessions::produce(relay, sessions, number, until));
        let spawn_viewer =
            |number| threads.spawn(move || viewers::watch(relay, sessions, number, until));
        let producers: Vec<_> = (0..AT_A_TIME).map(spawn_producer).collect();
        let viewers: Vec<_> = (0..AT_A_TIME).map(spawn_viewer).collect();
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
    // Sessions that broke off linger for some seconds.
    wait_until("everything is let go of", || relay.open_files() <= before);
    is_flat(&samples);
    let log = relay.log();
    let errors: Vec<_> = log.iter().filter(|line| line.contains("ERROR")).collect();
    assert!(errors.is_empty(), "{errors:#?}");
}

/// Compares the second quarter with the last.
fn is_flat(samples: &[Sample]) {
    let quarter = samples.len() / 4;
    let most = |samples: &[Sample]| Sample {
        memory: samples.iter().map(|sample| sample.memory).max().unwrap(),
        files: samples.iter().map(|sample| sample.files).max().unwrap(),
    };
    let (early, late) = (
        most(&samples[quarter..2 * quarter]),
        most(&samples[3 * quarter..]),
    );
    println!("at most, in the second quarter: {early:?}; in the last: {late:?}");
    assert!(late.memory <= early.memory + early.memory / 4 + (8 << 20));
    assert!(late.files <= early.files + early.files / 4 + 20);
}
