//! The whole path, live: a program that is killed, the consumer, a relay, and viewers that are attached meanwhile.

use std::time::Duration;

use tests::babeltrace::Babeltrace;
use tests::lab::Lab;
use tests::process::Process;
use tests::relay::Relay;
use tests::test_live;
use tests::viewer::{Viewer, hostname};

use crate::system::{Agent, Shown, Writer, Writing, session_directory};

/// Kills a writer while viewers watch it: they show the same events as the trace on disk, to the last one.
fn check_killed_program_is_shown_live(lab: &Lab, relay: &Relay) {
    let agent = Agent::start(lab, relay, &[]);
    let writing = Writing {
        threads: 2,
        pause: Duration::from_millis(1),
        ..Writing::default()
    };
    let writer = Writer::start(lab, "live", writing);
    let (pid, session) = (writer.pid(), writer.session());
    Viewer::connect(relay.live).wait_for_session(&session);
    let url = test_live::url(relay.live, &hostname(), &session);
    let ours = test_live::start(lab, &["--no-delta", "--seek", "beginning", &url]);
    let theirs = Process::start(&mut Babeltrace::Two.follow_command(relay, &session));
    test_live::wait_until_attached(relay, &session, 2);
    let attached_at = writer.progress().into_iter().max().unwrap();
    writer.wait_for_events(attached_at + 50);
    let written = writer.kill();
    let (ours, theirs) = (ours.wait().expect_success(), theirs.wait().expect_success());
    agent.stop(lab);
    let recorded = Shown::read(&session_directory(&relay.output, pid));
    recorded.assert_without_loss(&written);
    let mut live = Shown::default();
    ours.iter().for_each(|line| live.add(line));
    assert_eq!(live.threads, recorded.threads);
    // babeltrace2 begins where it has attached.
    let mut tail = Shown::default();
    theirs.iter().for_each(|line| tail.add(line));
    for (thread, numbers) in &tail.threads {
        assert!(recorded.threads[thread].ends_with(numbers), "{thread}");
        assert!(
            numbers.contains(&(attached_at + 40)),
            "{thread}: {numbers:?}"
        );
    }
    assert_eq!(tail.threads.len(), 2);
    for context in ["procname = ", "vpid = ", "vtid = "] {
        let is_shown = |line: &String| {
            line.contains(context) || (context == "procname = " && line.contains("ring-writer"))
        };
        assert!(ours.iter().all(is_shown), "{:?}", ours.first());
        assert!(theirs.iter().all(is_shown), "{:?}", theirs.first());
    }
}

#[test]
fn last_events_of_a_killed_program_are_shown_live_by_our_relay() {
    let (lab, relay) = Relay::start_in_new_lab();
    check_killed_program_is_shown_live(&lab, &relay);
}

#[test]
fn last_events_of_a_killed_program_are_shown_live_by_lttng_relayd() {
    let lab = Lab::new();
    let relay = Relay::start_reference(&lab);
    check_killed_program_is_shown_live(&lab, &relay);
}

#[test]
fn program_that_has_died_before_the_consumer_starts_is_sent() {
    let (lab, relay) = Relay::start_in_new_lab();
    let writing = Writing {
        threads: 3,
        events: 100,
        ..Writing::default()
    };
    let written = Writer::start(&lab, "dead", writing).end();
    let agent = Agent::start(&lab, &relay, &[]);
    agent.stop(&lab);
    let directory = session_directory(&relay.output, written.pid);
    Shown::read(&directory).assert_without_loss(&written);
}

#[test]
fn program_that_lives_when_the_consumer_stops_is_continued_by_the_next_one() {
    let (lab, relay) = Relay::start_in_new_lab();
    let writing = Writing {
        pause: Duration::from_micros(200),
        ..Writing::default()
    };
    let writer = Writer::start(&lab, "continued", writing);
    let first = Agent::start(&lab, &relay, &[]);
    Viewer::connect(relay.live).wait_for_session(&writer.session());
    writer.wait_for_events(100);
    first.stop_with_live_programs();
    writer.wait_for_events(writer.progress()[0] + 100);
    let second = Agent::start(&lab, &relay, &[]);
    let written = writer.kill();
    second.stop(&lab);
    let mut shown = Shown::default();
    let directories = crate::system::session_directories(&relay.output, written.pid);
    assert_eq!(directories.len(), 2);
    for directory in directories {
        let part = Shown::read(&directory);
        shown.discarded += part.discarded;
        for (thread, numbers) in part.threads {
            shown.threads.entry(thread).or_default().extend(numbers);
        }
    }
    shown.assert_without_loss(&written);
}

#[test]
fn events_that_a_ring_had_no_room_for_are_reported_as_discarded() {
    let (lab, relay) = Relay::start_in_new_lab();
    for (mode, threads) in [("discard", 1), ("overwrite", 2)] {
        let writing = Writing {
            threads,
            events: 20_000,
            environment: &[("TRACE_RING", mode), ("TRACE_RING_SIZE", "64K")],
            ..Writing::default()
        };
        // No consumer runs: most events do not fit.
        let written = Writer::start(&lab, mode, writing).end();
        Agent::start(&lab, &relay, &[]).stop(&lab);
        let shown = Shown::read(&session_directory(&relay.output, written.pid));
        shown.assert_complete(&written);
        assert!(shown.discarded > 0);
        let last = shown.threads[&0].last().copied();
        match mode {
            "discard" => assert!(last < Some(19_999)),
            _ => assert_eq!(last, Some(19_999)),
        }
    }
}
