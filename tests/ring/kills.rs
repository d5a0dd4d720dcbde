//! Programs and consumers that are killed at random instants.

use std::time::Duration;

use fastrand::Rng;
use tests::relay::Relay;
use tests::viewer::Viewer;

use crate::system::{
    Agent, Shown, Writer, Writing, Written, session_directories, session_directory,
};

/// Programs that are killed, unless the environment says another number.
const DEFAULT_KILLS: usize = 20;
/// Longest life of a program that writes at full speed, after its first event.
const MAX_UPTIME: Duration = Duration::from_millis(50);

fn kills() -> usize {
    let kills = std::env::var("RING_KILLS");
    kills.map_or(DEFAULT_KILLS, |kills| kills.parse().unwrap())
}

/// Returns random numbers, whose seed is printed if the test fails.
pub(crate) fn random() -> Rng {
    let seed = std::env::var("FAULT_SEED").map(|seed| seed.parse().unwrap());
    let seed = seed.unwrap_or_else(|_| fastrand::u64(..));
    eprintln!("FAULT_SEED={seed}");
    Rng::with_seed(seed)
}

fn pause(random: &mut Rng, max: Duration) {
    let max = u64::try_from(max.as_micros()).unwrap();
    std::thread::sleep(Duration::from_micros(random.u64(0..max)));
}

#[test]
fn every_event_of_programs_killed_at_random_instants_is_recorded_once() {
    kill_writers(kills(), |round| Writing {
        threads: if round % 2 == 0 { 1 } else { 4 },
        ..Writing::default()
    });
}

#[test]
fn every_event_of_killed_flight_recorders_is_recorded_or_counted() {
    kill_writers(kills().div_ceil(4), |_| Writing {
        threads: 2,
        environment: &[("TRACE_RING", "overwrite"), ("TRACE_RING_SIZE", "64K")],
        ..Writing::default()
    });
}

/// Kills programs at random instants while a consumer reads their rings, and checks the trace of
/// each.
fn kill_writers(count: usize, writing: impl Fn(usize) -> Writing<'static>) {
    let (lab, relay) = Relay::start_in_new_lab();
    let mut random = random();
    let agent = Agent::start(&lab, &relay, &[]);
    let mut killed = Vec::new();
    for round in 0..count {
        let writer = Writer::start(&lab, &round.to_string(), writing(round));
        if round % 5 != 0 {
            // The others are killed at any instant from their start.
            writer.wait_for_events(1);
        }
        pause(&mut random, MAX_UPTIME);
        killed.push(writer.kill());
    }
    agent.stop(&lab);
    for written in &killed {
        check(&relay, written);
    }
}

/// Checks the trace of a killed program, which has none if it has written nothing.
fn check(relay: &Relay, written: &Written) {
    if session_directories(&relay.output, written.pid).is_empty() {
        assert_eq!(written.threads.iter().sum::<u64>(), 0, "{written:?}");
        return;
    }
    let directory = session_directory(&relay.output, written.pid);
    Shown::read(&directory).assert_complete(written);
}

/// Kills the consumer at random instants, while a program writes. Returns what was written, and the
/// numbers of all sessions of the program in order.
fn kill_consumers(options: &[&str]) -> (Written, Vec<Vec<u64>>) {
    let (lab, relay) = Relay::start_in_new_lab();
    let spool = lab.path().join("spool").display().to_string();
    let options: Vec<_> = options
        .iter()
        .map(|option| option.replace("SPOOL", &spool))
        .collect();
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let mut random = random();
    let writing = Writing {
        pause: Duration::from_micros(100),
        ..Writing::default()
    };
    let writer = Writer::start(&lab, "consumers", writing);
    for _ in 0..5 {
        let agent = Agent::start(&lab, &relay, &options);
        Viewer::connect(relay.live).wait_for_session(&writer.session());
        pause(&mut random, Duration::from_millis(300));
        agent.kill();
    }
    let written = writer.kill();
    Agent::start(&lab, &relay, &options).stop(&lab);
    // The relay has not been told the end of the sessions of consumers that are dead, unless there
    // is a spool.
    let output = relay.output.clone();
    assert!(relay.stop().status.success());
    let mut sessions = Vec::new();
    for directory in session_directories(&output, written.pid) {
        // A consumer that is killed while it opens a session leaves one without content.
        let metadata = std::fs::metadata(directory.join("ring/metadata"));
        if metadata.map_or(0, |metadata| metadata.len()) == 0 {
            continue;
        }
        let shown = Shown::read(&directory);
        assert_eq!(shown.discarded, 0);
        sessions.extend(shown.threads.into_values());
    }
    (written, sessions)
}

/// Checks that every event is in a session.
fn assert_none_lost(written: &Written, sessions: &[Vec<u64>]) {
    let mut numbers = sessions.concat();
    numbers.sort_unstable();
    numbers.dedup();
    let is_contiguous = (0..)
        .zip(&numbers)
        .all(|(expected, number)| expected == *number);
    assert!(is_contiguous, "events are missing");
    let finished = written.threads[0];
    assert!((finished..=finished + 1).contains(&(numbers.len() as u64)));
    for session in sessions {
        assert!(session.windows(2).all(|pair| pair[0] < pair[1]));
    }
}

#[test]
fn killed_consumer_loses_no_event() {
    let (written, sessions) = kill_consumers(&[]);
    assert_none_lost(&written, &sessions);
}

#[test]
fn killed_consumer_with_a_spool_loses_no_event() {
    let (written, sessions) = kill_consumers(&["--spool=SPOOL"]);
    assert_none_lost(&written, &sessions);
}
