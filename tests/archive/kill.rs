//! Relays that are killed at random instants under load, and whose output is removed: the archive
//! has every event that a `consumer` has accepted, once and in order.

use std::collections::BTreeSet;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use fastrand::Rng;
use rustix::process::Signal;
use tests::lab::Lab;
use tests::relay::{Relay, free_addresses};
use tests::replay::HOST;
use tests::wait_until;

use crate::agent::{self, TRACE, assert_all, event, numbers, start_consumer};
use crate::packets::Packets;
use crate::system::{ArchiveDirectory, read, remove_output, start_relay_at};

/// Relays that are killed, unless the environment says another number.
const DEFAULT_KILLS: usize = 5;

/// Longest life of a relay, and longest time without one.
const MAX_UPTIME: Duration = Duration::from_millis(1200);
const MAX_DOWNTIME: Duration = Duration::from_millis(300);

pub(crate) const RELAY: &[&str] = &[
    "--durability=archive",
    "--archive-interval=100ms",
    "--archive-part-age=1s",
];

/// How a relay ends before the next one is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// It is killed, and its output removed.
    LoseDisk,
    /// It is killed.
    Kill,
    /// It is stopped by SIGTERM.
    Stop,
    /// It is stopped by SIGTERM, and its output removed.
    StopAndLoseDisk,
}

/// A client that sends numbered events until it is stopped, or the agent has died.
pub(crate) struct Load {
    is_stopping: Arc<AtomicBool>,
    client: JoinHandle<u64>,
}

impl Load {
    pub(crate) fn start(socket: PathBuf, mut random: Rng, first: u64) -> Self {
        let is_stopping = Arc::<AtomicBool>::default();
        let is_over = Arc::clone(&is_stopping);
        let client = std::thread::spawn(move || {
            let mut stream = UnixStream::connect(socket).unwrap();
            writeln!(stream, "OPEN {TRACE}").unwrap();
            let mut sent = first;
            while !is_over.load(Ordering::Relaxed) {
                let end = sent + random.u64(1..50);
                let lines: String = (sent..end).map(event).collect();
                sent = end;
                if stream.write_all(lines.as_bytes()).is_err() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            sent
        });
        Self {
            is_stopping,
            client,
        }
    }

    /// Stops the client. Returns the number after that of the last event.
    pub(crate) fn stop(self) -> u64 {
        self.is_stopping.store(true, Ordering::Relaxed);
        self.client.join().unwrap()
    }
}

pub(crate) fn pause(random: &mut Rng, max: Duration) {
    let max = u64::try_from(max.as_micros()).unwrap();
    std::thread::sleep(Duration::from_micros(random.u64(..max)));
}

pub(crate) fn random() -> Rng {
    let seed = std::env::var("FAULT_SEED").map(|seed| seed.parse().unwrap());
    let seed = seed.unwrap_or_else(|_| fastrand::u64(..));
    eprintln!("FAULT_SEED={seed}");
    Rng::with_seed(seed)
}

pub(crate) fn ends() -> usize {
    let kills = std::env::var("ARCHIVE_KILLS");
    kills.map_or(DEFAULT_KILLS, |kills| kills.parse().unwrap())
}

/// Ends relays at random instants, and expects all events in the archive, in packets that have the
/// bytes which the relays received.
fn end_relays(end_of: impl Fn(&mut Rng) -> End) {
    let lab = Lab::new();
    let archive = ArchiveDirectory::new(&lab);
    let mut random = random();
    let addresses = free_addresses();
    let mut relay = start_relay_at(&lab, &archive, RELAY, addresses);
    let mut consumer = start_consumer(&lab, addresses);
    consumer.wait_for_stderr_text("consumer::agent: ready");
    let load = Load::start(agent::socket(&lab), random.fork(), 0);
    let mut received = Packets::default();
    for _ in 0..ends() {
        pause(&mut random, MAX_UPTIME);
        let end = end_of(&mut random);
        let output = relay.output.clone();
        end_relay(relay, end);
        if matches!(end, End::LoseDisk | End::StopAndLoseDisk) {
            received.add(&output);
            remove_output(&output);
        }
        pause(&mut random, MAX_DOWNTIME);
        relay = start_relay_at(&lab, &archive, RELAY, addresses);
    }
    pause(&mut random, MAX_UPTIME);
    let sent = load.stop();
    consumer.signal(Signal::TERM);
    consumer.wait().expect_success();
    received.add(&relay.output);
    relay.stop().expect_success();
    let session = archive.session_url(HOST, TRACE);
    assert_all(&read(&lab, &[], &session).expect_success(), sent);
    let directory = lab.path().join("restored");
    let options = ["--sink", "ctf", "-w", directory.to_str().unwrap()];
    read(&lab, &options, &session).expect_success();
    received.assert_are(&directory);
    assert_eq!(archive.packets_of_ended(), [received.count()]);
    println!(
        "{sent} events, {} objects in logs",
        archive.objects("log").len()
    );
}

fn end_relay(mut relay: Relay, end: End) {
    match end {
        End::LoseDisk | End::Kill => relay.kill(),
        End::Stop | End::StopAndLoseDisk => drop(relay.stop().expect_success()),
    }
}

#[test]
fn a_relay_that_loses_its_disk_loses_and_repeats_no_event() {
    end_relays(|_| End::LoseDisk);
}

#[test]
fn a_relay_that_is_killed_and_restarted_loses_and_repeats_no_event_in_the_archive() {
    end_relays(|_| End::Kill);
}

#[test]
fn a_relay_that_is_stopped_has_archived_what_it_has_acknowledged() {
    end_relays(|_| End::Stop);
}

#[test]
fn relays_that_end_in_any_way_lose_and_repeat_no_event() {
    let all = [End::LoseDisk, End::Kill, End::Stop, End::StopAndLoseDisk];
    end_relays(|random| all[random.usize(..all.len())]);
}

#[test]
fn logs_of_relays_that_are_gone_become_parts() {
    let lab = Lab::new();
    let archive = ArchiveDirectory::new(&lab);
    let addresses = free_addresses();
    let mut relay = start_relay_at(&lab, &archive, RELAY, addresses);
    let mut consumer = start_consumer(&lab, addresses);
    consumer.wait_for_stderr_text("consumer::agent: ready");
    let load = Load::start(agent::socket(&lab), random(), 0);
    let mut gone = BTreeSet::new();
    for _ in 0..3 {
        wait_until("the relay has a log", || !archive.logs().is_subset(&gone));
        relay.kill();
        remove_output(&relay.output);
        gone.append(&mut archive.logs());
        relay = start_relay_at(&lab, &archive, RELAY, addresses);
    }
    relay.wait_for_log(&["log of a relay that is gone moved to parts"]);
    wait_until("no relay that is gone has a log", || {
        archive.logs().is_disjoint(&gone)
    });
    let sent = load.stop();
    consumer.signal(Signal::TERM);
    consumer.wait().expect_success();
    relay.stop().expect_success();
    let session = archive.session_url(HOST, TRACE);
    assert_all(&read(&lab, &[], &session).expect_success(), sent);
    assert_eq!(archive.logs(), BTreeSet::new());
}

#[test]
fn a_consumer_that_is_killed_with_its_relay_repeats_no_event_and_loses_only_the_last_ones() {
    let lab = Lab::new();
    let archive = ArchiveDirectory::new(&lab);
    let mut random = random();
    let addresses = free_addresses();
    let mut next = 0;
    let rounds = ends();
    for round in 0..=rounds {
        let mut relay = start_relay_at(&lab, &archive, RELAY, addresses);
        let mut consumer = start_consumer(&lab, addresses);
        consumer.wait_for_stderr_text("consumer::agent: ready");
        let load = Load::start(agent::socket(&lab), random.fork(), next);
        pause(&mut random, MAX_UPTIME);
        if round == rounds {
            next = load.stop();
            consumer.signal(Signal::TERM);
            consumer.wait().expect_success();
            relay.stop().expect_success();
            break;
        }
        if random.bool() {
            relay.kill();
            pause(&mut random, MAX_DOWNTIME);
        }
        consumer.signal(Signal::KILL);
        let _ = consumer.wait();
        pause(&mut random, MAX_DOWNTIME);
        relay.kill();
        remove_output(&relay.output);
        next = load.stop();
    }
    let shown = read(&lab, &[], &archive.session_url(HOST, TRACE));
    let shown = numbers(&shown.expect_success());
    let gaps = shown.windows(2).filter(|pair| pair[0] + 1 != pair[1]);
    let gaps: Vec<_> = gaps.collect();
    assert!(gaps.iter().all(|pair| pair[0] < pair[1]), "{gaps:?}");
    assert!(gaps.len() <= rounds, "{gaps:?}");
    assert_eq!(shown.last().map(|last| last + 1), Some(next));
}
