//! The periodic work of the relay: beacons are written to disk in turns, and an idle relay has
//! none.

use std::collections::BTreeMap;
use std::fs;

use tests::producer::{OK, Producer, beacon, live_session};
use tests::relay::Relay;
use tests::tree::files;
use tests::viewer::Viewer;
use tests::wait_until;
use viewer_proto::session::Seek;

#[test]
fn the_last_beacon_of_each_of_many_streams_is_written_to_disk() {
    // More than are written in one turn.
    const STREAMS: usize = 600;
    let (_lab, relay) = Relay::start_in_new_lab();
    let mut producer = Producer::open(&relay, live_session("beacons"));
    let names: Vec<_> = (0..STREAMS).map(|at| format!("chan_{at}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let streams = producer.add_trace("ust/uid/0/64-bit", &names);
    let on_disk = || {
        let indexes = files(&relay.output, ".idx").into_values();
        let last = indexes.filter_map(|index| index.last_chunk().copied());
        let mut beacons: Vec<_> = last.map(u64::from_be_bytes).collect();
        beacons.sort_unstable();
        beacons
    };
    for until in [7, 8] {
        for stream in &streams {
            assert_eq!(
                producer.send_index(*stream, u64::MAX - 1, beacon(until)),
                OK
            );
        }
        wait_until("all beacons are on disk", || on_disk() == [until; STREAMS]);
    }
    // Streams of which one has had its turn just before.
    let mut expected = [8; STREAMS];
    for (at, stream) in [streams[0], streams[STREAMS - 1], streams[1]]
        .iter()
        .enumerate()
    {
        producer.send_index(*stream, u64::MAX - 1, beacon(9));
        expected[STREAMS - 1 - at] = 9;
        wait_until("the beacon is on disk", || on_disk() == expected);
    }
}

#[test]
fn workers_of_an_idle_relay_are_not_woken_up() {
    let (_lab, relay) = Relay::start_in_new_lab();
    let names: Vec<_> = (0..20).map(|at| format!("idle-{at}")).collect();
    let producers = names.iter().map(|name| {
        let (mut producer, stream) = Producer::open_with_trace(&relay, live_session(name));
        producer.record_packet(stream, 0, 4096);
        producer.send_index(stream, u64::MAX - 1, beacon(20));
        producer
    });
    let producers: Vec<_> = producers.collect();
    let viewers = names
        .iter()
        .map(|name| Viewer::attached(relay.live, name, Seek::Last));
    let viewers: Vec<_> = viewers.collect();
    // Until the beacons are on disk, and the tracefiles are closed.
    wait_until("no worker has been woken up in three ticks", || {
        let before = wake_ups(&relay);
        wait_until("three ticks", || {
            wake_ups(&relay)["accept"] >= before["accept"] + 3
        });
        let after = wake_ups(&relay);
        let is_asleep = |name| before[name] == after[name];
        // The threads for file calls end when they have nothing to do.
        let file_calls = |wake_ups: &BTreeMap<_, _>| wake_ups.get("tokio-rt-worker").copied();
        is_asleep("ingest") && is_asleep("live") && file_calls(&before) == file_calls(&after)
    });
    drop((producers, viewers));
}

/// Returns how often the threads of the relay have waited for something, by the name of the
/// threads.
fn wake_ups(relay: &Relay) -> BTreeMap<String, u64> {
    let mut by_name = BTreeMap::new();
    for thread in fs::read_dir(format!("/proc/{}/task", relay.id())).unwrap() {
        let status = fs::read_to_string(thread.unwrap().path().join("status"));
        // None: the thread has ended.
        let Ok(status) = status else { continue };
        let field = |name| {
            status
                .lines()
                .find_map(|line| line.strip_prefix(name))
                .unwrap()
                .trim()
        };
        let switches: u64 = field("voluntary_ctxt_switches:").parse().unwrap();
        *by_name.entry(field("Name:").to_owned()).or_default() += switches;
    }
    by_name
}
