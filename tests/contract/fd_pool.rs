//! The file pool (`--fd-pool-size`): many streams with few file descriptors.

use std::collections::BTreeSet;
use std::io::Write;

use relay_proto::Reply;
use relay_proto::chunk::CloseCommand;
use relay_proto::reply::ReturnCode;
use tests::lab::Lab;
use tests::producer::{OK, Producer, beacon, index, live_session, packet, stream};
use tests::relay::Relay;
use tests::tree::{INDEX_ENTRY, INDEX_HEADER, files};
use tests::viewer::{Viewer, by_channel};
use tests::wait_until;
use viewer_proto::index::IndexStatus;
use viewer_proto::session::Seek;
use wire::{Bytes, StreamId};

/// Returns a session with `count` data streams, in traces of a thousand each.
fn open_with_streams(relay: &Relay, name: &str, count: usize) -> (Producer, Vec<StreamId>) {
    let mut producer = Producer::open(relay, live_session(name));
    let mut streams = Vec::new();
    for first in (0..count).step_by(1000) {
        let names: Vec<_> = (first..count.min(first + 1000))
            .map(|number| format!("chan_{number}"))
            .collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let path = format!("ust/uid/{first}/64-bit");
        streams.extend(producer.add_trace(&path, &names));
    }
    (producer, streams)
}

#[test]
fn ten_thousand_idle_streams_use_few_descriptors_and_little_memory() {
    const STREAMS: usize = 10_000;
    let (_lab, relay) = Relay::start_in_new_lab();
    let (mut producer, streams) = open_with_streams(&relay, "idle", STREAMS);
    for stream in &streams {
        assert_eq!(producer.send_index(*stream, u64::MAX - 1, beacon(7)), OK);
    }
    println!(
        "{} descriptors, {} bytes",
        relay.open_files(),
        relay.memory()
    );
    assert!(relay.open_files() <= 1000, "{}", relay.open_files());
    relay.assert_memory_below((40 << 20) + 1);
    // A stream that becomes active is recorded as any other.
    producer.record_packet(streams[STREAMS / 2], 0, 4096);
    let name = format!("/chan_{}", STREAMS / 2);
    assert_eq!(
        files(&relay.output, &name).values().next().unwrap().len(),
        4096
    );
}

#[test]
fn idle_streams_close_their_files() {
    const STREAMS: usize = 1500;
    let (_lab, relay) = Relay::start_in_new_lab();
    let before = relay.open_files();
    let (mut producer, streams) = open_with_streams(&relay, "busy", STREAMS);
    for stream in &streams {
        producer.send_packet(*stream, 0, 100);
    }
    producer.wait_while_pending(streams[STREAMS - 1], 0);
    assert!(relay.open_files() > STREAMS);
    // One stream stays active and keeps its files.
    let mut sent = 1;
    wait_until("the idle streams have closed their files", || {
        producer.send_packet(streams[0], sent, 100);
        sent += 1;
        relay.open_files() < before + 20
    });
    for stream in &streams[1..] {
        producer.send_packet(*stream, 1, 100);
    }
    producer.wait_while_pending(streams[STREAMS - 1], 1);
    let (data, indexes) = (files(&relay.output, ""), files(&relay.output, ".idx"));
    let whole = |name: &String| {
        name.contains("/chan_") && !name.ends_with(".idx") && data[name].len() >= 200
    };
    assert_eq!(data.keys().filter(|name| whole(name)).count(), STREAMS);
    assert_eq!(indexes.len(), STREAMS);
}

#[test]
fn a_small_fd_pool_serves_many_busy_streams_a_rotation_and_viewers() {
    const STREAMS: usize = 2000;
    const POOL: usize = 150;
    const SIZE: usize = 512;
    let lab = Lab::new();
    let relay = Relay::start_with(&lab, &[&format!("--fd-pool-size={POOL}")]);
    let (mut producer, streams) = open_with_streams(&relay, "busy", STREAMS);
    let max_files = relay.open_files() + POOL;
    let mut seen = BTreeSet::new();
    let mut round = |producer: &mut Producer, number: u64| {
        for stream in &streams {
            producer.send_packet(*stream, number, SIZE);
            if stream.0 % 100 == 0 {
                seen.insert(relay.open_files());
            }
        }
    };
    round(&mut producer, 0);
    round(&mut producer, 1);
    // Packets without index, in tracefiles that are evicted.
    for stream in &streams {
        let bytes = packet(*stream, 2, SIZE);
        producer.data.write_all(&bytes).unwrap();
    }
    // A rotation, during which the directory of the first chunk moves twice.
    assert_eq!(producer.create_chunk(1), OK);
    let metadata = producer.metadata.clone();
    let all = streams.iter().chain(&metadata);
    let positions: Vec<_> = all.map(|stream| (*stream, 3)).collect();
    assert_eq!(producer.rotate_streams(Some(1), &positions), OK);
    for stream in metadata {
        producer.send_metadata(stream, b"/* CTF 1.8 */\n", 0);
    }
    for stream in &streams {
        assert_eq!(producer.send_index(*stream, 2, index(2, SIZE as u64)), OK);
    }
    round(&mut producer, 3);
    let closed = producer.close_chunk(0, Some(CloseCommand::MoveToCompleted));
    assert!(matches!(
        closed,
        Reply::ChunkClosed {
            code: ReturnCode::OK,
            ..
        }
    ));
    round(&mut producer, 4);
    producer.wait_while_pending(streams[STREAMS - 1], 4);
    // Connections and metadata files add a few descriptors.
    let highest = seen.last().copied().unwrap();
    assert!(highest <= max_files + 20, "{highest} of {max_files}");
    // A viewer reads all packets; the relay opens the files for it.
    let (mut viewer, _, listed) = Viewer::attached(relay.live, "busy", Seek::Beginning);
    let by_channel = by_channel(&listed);
    for channel in (0..STREAMS).step_by(7) {
        let of_viewer = by_channel[&format!("chan_{channel}")];
        for number in 0..5 {
            let next = viewer.next_index(of_viewer);
            assert_eq!(next.status, IndexStatus::Ready, "{channel} {number}");
            let (_, bytes) = viewer.packet(of_viewer, next.offset.0, SIZE as u32);
            let fill = u8::try_from(number).unwrap();
            assert!(bytes == vec![fill; SIZE], "{channel} {number}");
        }
    }
    assert!(
        relay.open_files() <= max_files + 40,
        "{}",
        relay.open_files()
    );
    // On disk, the first chunk has three packets of each stream, the second two.
    for stream in &streams {
        assert_eq!(producer.close_stream(*stream, Some(4)), OK);
    }
    let data = files(&relay.output, "");
    let lengths = |chunk: &str, ending: &str| -> Vec<usize> {
        let is_one = |name: &&String| {
            name.contains(chunk)
                && name.contains("/chan_")
                && name.ends_with(".idx") != ending.is_empty()
        };
        data.iter()
            .filter(|(name, _)| is_one(name))
            .map(|(_, bytes)| bytes.len())
            .collect()
    };
    for (chunk, packets) in [("archives/", 3), ("-1/ust", 2)] {
        assert_eq!(lengths(chunk, ""), vec![packets * SIZE; STREAMS], "{chunk}");
        let index = INDEX_HEADER + packets * INDEX_ENTRY;
        assert_eq!(lengths(chunk, ".idx"), vec![index; STREAMS], "{chunk}");
    }
}

#[test]
fn a_tracefile_that_is_replaced_repeatedly_keeps_its_indexes() {
    let (_lab, relay) = Relay::start_in_new_lab();
    let mut producer = Producer::open(&relay, live_session("ring"));
    let mut request = stream("chan_0", "ust/uid/0/64-bit");
    (request.tracefile_size, request.tracefile_count) = (Bytes(1000), 1);
    let stream = producer.add_stream(request);
    for number in 0..4 {
        producer.send_data(stream, number, 1000);
    }
    // The indexes arrive after their tracefiles were replaced.
    for number in 0..4 {
        assert_eq!(producer.send_index(stream, number, index(number, 1000)), OK);
    }
    producer.wait_while_pending(stream, 3);
    assert_eq!(producer.close_stream(stream, Some(3)), OK);
    let data = files(&relay.output, "/chan_0_0");
    assert_eq!(data.values().next().unwrap(), &vec![3; 1000]);
    let indexes = files(&relay.output, "/chan_0_0.idx");
    assert_eq!(
        indexes.values().next().unwrap().len(),
        INDEX_HEADER + INDEX_ENTRY
    );
}

#[test]
fn metadata_files_of_many_traces_are_closed_when_descriptors_are_needed() {
    const TRACES: usize = 400;
    let lab = Lab::new();
    let relay = Relay::start_with(&lab, &["--fd-pool-size=100"]);
    let before = relay.open_files();
    let mut producer = Producer::open(&relay, live_session("processes"));
    let (mut viewer, _, _) = Viewer::attached(relay.live, "processes", Seek::Beginning);
    let path = |number: usize| format!("ust/pid/app-{number}-20260101-000000");
    let streams: Vec<_> = (0..TRACES)
        .map(|number| producer.add_trace(&path(number), &["chan_0"])[0])
        .collect();
    for stream in &streams {
        producer.send_packet(*stream, 0, 100);
    }
    producer.wait_while_pending(streams[TRACES - 1], 0);
    let open = relay.open_files() - before;
    assert!(open <= 150, "{open} descriptors");
    // More metadata is appended in reopened files, and viewers read it whole.
    let session = viewer.wait_for_session("processes").session;
    for (number, metadata) in producer.metadata.clone().into_iter().enumerate() {
        let text = format!("/* more of {number} */\n");
        producer.send_metadata(metadata, text.as_bytes(), 0);
    }
    assert!(!producer.is_pending(streams[0], 0));
    let mut seen = BTreeSet::new();
    wait_until("the metadata of all traces is read", || {
        let (_, streams) = viewer.new_streams(session);
        for record in streams.iter().filter(|record| record.is_metadata == 1) {
            let (_, text) = viewer.metadata(record.stream);
            let text = String::from_utf8(text).unwrap();
            assert!(text.starts_with("/* CTF 1.8 */\n/* more of "), "{text}");
            seen.insert(text);
        }
        seen.len() == TRACES
    });
    let open = relay.open_files() - before;
    assert!(open <= 150, "{open} descriptors");
    let output = relay.output.clone();
    assert!(relay.stop().status.success());
    let written: BTreeSet<_> = files(&output, "/metadata")
        .into_values()
        .map(|text| String::from_utf8(text).unwrap())
        .collect();
    assert_eq!(written, seen);
}
