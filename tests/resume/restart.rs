//! The relay is killed or stopped, and the next one continues its sessions.

use std::path::Path;

use tests::babeltrace::{Babeltrace, numbers};
use tests::lab::Lab;
use tests::producer::live_session;
use tests::relay::Relay;
use tests::resumable::{Recording, ResumableProducer, printable};
use tests::tree::{INDEX_ENTRY, INDEX_HEADER, files};
use tests::wait_until;
use wire::Timestamp;

use super::{assert_same, recording, session_directory, session_tree};

/// Sends a recording to relays that are killed after a random number of bytes, one after the other.
/// Returns the last one.
fn send_to_killed_relays(lab: &Lab, recording: Recording, max_bytes: usize) -> (Relay, usize) {
    let mut relay = Relay::start(lab);
    let addresses = relay.addresses();
    let mut producer = ResumableProducer::new(recording);
    while producer
        .try_send(addresses, fastrand::usize(1..max_bytes))
        .is_err()
    {
        relay.kill();
        relay = Relay::start_at(lab, addresses);
        assert!(!relay.has_logged(&["ERROR"]), "{:#?}", relay.log());
    }
    (relay, producer.resumed)
}

/// Checks that babeltrace2 prints the events of a directory in order, and complains about nothing.
fn assert_prints_all(directory: &Path, events: usize) {
    let printed = Babeltrace::Two.read(directory);
    assert!(printed.stderr.is_empty(), "{:#?}", printed.stderr);
    let printed = printed.expect_success();
    assert_eq!(numbers(&printed), (0..events).collect::<Vec<_>>());
}

#[test]
fn session_whose_relay_is_killed_again_and_again_has_the_files_of_one_that_is_not() {
    let lab = Lab::new();
    let whole = Relay::start(&lab);
    let mut producer = ResumableProducer::new(recording("whole"));
    producer.send(whole.addresses());
    // Fewer bytes than the session needs, so that no connection both creates it and completes it.
    let max_bytes = producer.sent / 2;
    let want = session_tree(&whole.output, "whole");
    drop(whole);
    for round in 0..5 {
        let name = format!("killed-{round}");
        let (relay, resumed) = send_to_killed_relays(&lab, recording(&name), max_bytes);
        assert_same(&session_tree(&relay.output, &name), &want, &name);
        assert!(resumed > 0);
        assert!(!relay.output.join(".relayd").exists());
    }
}

#[test]
fn trace_whose_relay_was_killed_prints_every_event_once_and_in_order() {
    for limits in [(0, 0), (10_000, 0)] {
        let lab = Lab::new();
        let recording = printable(live_session("printed"), 3, 20, limits);
        let (relay, _) = send_to_killed_relays(&lab, recording, 60_000);
        assert_prints_all(&session_directory(&relay.output, "printed"), 60);
    }
}

#[test]
fn stopped_relay_leaves_a_readable_trace_that_the_next_one_continues() {
    let lab = Lab::new();
    let relay = Relay::start(&lab);
    let (addresses, output) = (relay.addresses(), relay.output.clone());
    let mut producer = ResumableProducer::new(printable(live_session("stopped"), 1, 10, (0, 0)));
    producer.leaves_open = true;
    // In the middle of a packet.
    assert!(producer.try_send(addresses, 30_000).is_err());
    wait_until("the relay has some packets", || {
        let indexes = files(&output, "chan_0.idx");
        let mut lengths = indexes.values().map(Vec::len);
        lengths.any(|length| length > INDEX_HEADER + 3 * INDEX_ENTRY)
    });
    let _ = relay.stop().expect_success();
    let printed = Babeltrace::Two.read(&session_directory(&output, "stopped"));
    assert!(printed.stderr.is_empty(), "{:#?}", printed.stderr);
    let printed = numbers(&printed.expect_success());
    assert_eq!(printed, (0..printed.len()).collect::<Vec<_>>());
    assert!((1..10).contains(&printed.len()), "{printed:?}");
    let relay = Relay::start_at(&lab, addresses);
    producer.send(addresses);
    assert_eq!(producer.resumed, 1);
    assert_prints_all(&session_directory(&relay.output, "stopped"), 10);
    assert!(!output.join(".relayd").exists());
}

// A clock that is set back, one of 32 bits that begins again at 0, and a trace that is in another
// format than its metadata.
#[test]
fn packets_with_an_entry_stay_whatever_is_in_them_when_the_relay_is_killed_or_stopped() {
    for is_killed in [true, false] {
        let lab = Lab::new();
        let mut relay = Relay::start(&lab);
        let (addresses, output) = (relay.addresses(), relay.output.clone());
        let mut recording = printable(live_session("odd"), 1, 10, (0, 0));
        for (number, (packet, index)) in (0..).zip(&mut recording.streams[0].packets) {
            (index.begin, index.end) = (Timestamp(900 - number), Timestamp(901 - number));
            // The magic number.
            packet[..4].fill(0xa5);
        }
        let mut producer = ResumableProducer::new(recording);
        producer.leaves_open = true;
        assert!(producer.try_send(addresses, 30_000).is_err());
        let entries = || {
            let indexes = files(&output, "chan_0.idx");
            let lengths = indexes.values().map(Vec::len).max().unwrap_or(0);
            lengths.saturating_sub(INDEX_HEADER) / INDEX_ENTRY
        };
        wait_until("the relay has some packets", || entries() > 3);
        if is_killed {
            relay.kill();
        } else {
            let _ = relay.stop().expect_success();
        }
        let (kept, entries) = (files(&output, "chan_0"), entries());
        let relay = Relay::start_at(&lab, addresses);
        assert!(!relay.has_logged(&["WARN"]), "{:#?}", relay.log());
        for (path, before) in kept {
            let after = std::fs::read(output.join(path)).unwrap();
            assert_eq!(after, before[..entries * 4096]);
        }
        producer.send(addresses);
        assert_eq!((producer.connections, producer.resumed), (2, 1));
    }
}
