//! Defects on the control and data ports.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};

use relay_proto::chunk::{CloseCommand, CreateTraceChunk};
use relay_proto::index::SendIndex;
use relay_proto::metadata::ResetMetadata;
use relay_proto::reply::{ReturnCode, StreamAdded};
use relay_proto::session::CreateSession;
use relay_proto::stream::{AddStream, CloseStream};
use relay_proto::{Command, Minor, Reply};
use tests::babeltrace::{Babeltrace, numbers};
use tests::lab::Lab;
use tests::lttng::SessionDaemon;
use tests::probe_session::{ProbeSession, start_relay_with_probe};
use tests::producer::{
    CREATED, OK, Producer, TRACE_PATH, connect, control_header, data_header, index, is_closed,
    packet, packet_of, plain_session as session, send_index, stream,
};
use tests::relay::Relay;
use tests::traced_app;
use tests::tree::{files, first_file, tree};
use tests::wait_until;
use wire::{Bytes, ChunkId, EpochSeconds, Field, Message, StreamId, Text};

fn is_refused_stream(reply: &Reply) -> bool {
    matches!(reply, Reply::StreamAdded(StreamAdded { stream: None, .. }))
}

#[test]
fn a_second_session_on_a_connection_closes_only_that_connection() {
    let (_lab, relay, mut probe) = start_relay_with_probe();
    let mut producer = Producer::open(&relay, session("twice"));
    assert_eq!(
        producer.try_request(Command::CreateSession(session("again"))),
        None
    );
    probe.assert_served();
}

#[test]
fn a_session_with_a_creation_time_out_of_range_is_refused() {
    let (_lab, relay, mut probe) = start_relay_with_probe();
    for seconds in [(1 << 63) - 1, u64::MAX, 253_402_300_800] {
        let mut producer = Producer::connect(&relay, Minor(13));
        let mut session = session("late");
        session.recording.as_mut().unwrap().created = EpochSeconds(seconds);
        assert!(!producer.request(Command::CreateSession(session)).is_ok());
    }
    Producer::connect(&relay, Minor(13)).create_session(session("after all"));
    probe.assert_served();
}

#[test]
fn host_and_base_path_too_long_together_are_refused() {
    let (_lab, relay, mut probe) = start_relay_with_probe();
    let mut producer = Producer::connect(&relay, Minor(13));
    let mut long = session("long");
    long.host = Text::from("h".repeat(200).as_str());
    long.base_path = Text::from("d/".repeat(2040).as_str());
    assert!(!producer.request(Command::CreateSession(long)).is_ok());
    probe.assert_served();
}

#[test]
fn a_huge_tracefile_count_takes_no_memory() {
    let (_lab, relay, mut probe) = start_relay_with_probe();
    let before = relay.memory();
    let mut producer = Producer::open(&relay, session("count"));
    for (name, count) in [("a_0", 1 << 60), ("b_0", 1 << 27)] {
        let stream = producer.add_stream(AddStream {
            tracefile_size: Bytes(4096),
            tracefile_count: count,
            ..stream(name, TRACE_PATH)
        });
        (0..3).for_each(|number| producer.send_packet(stream, number, 4096));
        producer.wait_while_pending(stream, 2);
    }
    assert!(
        files(&relay.output, "_0_2").len() == 2,
        "each stream has three tracefiles"
    );
    assert!(relay.memory() < before + (8 << 20));
    probe.assert_served();
}

#[test]
fn a_tracefile_size_without_count_allows_any_number_of_tracefiles() {
    const COUNT: usize = 1500;
    let (lab, relay) = Relay::start_in_new_lab();
    // An ordinary command of a user, at which the reference crashes.
    let options = [
        "--subbuf-size=4k",
        "--num-subbuf=64",
        "--blocking-timeout=inf",
        "--tracefile-size=4k",
    ];
    let daemon = SessionDaemon::start_with_channel(&lab, &relay, "endless", None, &options);
    daemon.lttng(&["start", "endless"]);
    traced_app::run(&lab, COUNT, 0, "endless");
    daemon.lttng(&["destroy", "endless"]);
    let mut seen = numbers(&Babeltrace::Two.read(&relay.output).expect_success());
    seen.sort_unstable();
    assert!(seen.into_iter().eq(0..COUNT));
    let tracefiles = files(&relay.output, "");
    assert!(
        tracefiles.keys().any(|name| name.ends_with("_5")),
        "{:?}",
        tracefiles.keys()
    );
}

#[test]
fn a_chunk_named_by_its_producer_is_not_moved() {
    let (_lab, relay, mut probe) = start_relay_with_probe();
    let mut producer = Producer::connect(&relay, Minor(15));
    producer.create_session(session("named"));
    let name = Some(Text::from("snapshot-1"));
    let chunk = CreateTraceChunk {
        chunk: ChunkId(0),
        created: CREATED,
        name,
    };
    assert_eq!(producer.request(Command::CreateTraceChunk(chunk)), OK);
    let closed = producer.close_chunk(0, Some(CloseCommand::MoveToCompleted));
    assert_eq!(
        closed,
        Reply::ChunkClosed {
            code: ReturnCode::INVALID,
            path: None
        }
    );
    probe.assert_served();
}

#[test]
fn metadata_without_a_chunk_can_be_reset() {
    let (_lab, relay, mut probe) = start_relay_with_probe();
    let mut producer = Producer::open(&relay, session("reset"));
    let metadata = producer.add_stream(stream("metadata", TRACE_PATH));
    assert_eq!(producer.rotate_streams(None, &[(metadata, 0)]), OK);
    let reset = ResetMetadata {
        stream: metadata,
        version: 1,
    };
    assert_eq!(producer.request(Command::ResetMetadata(reset)), OK);
    probe.assert_served();
}

#[test]
fn bytes_received_before_a_rotation_that_belong_after_it_move_to_the_new_chunk() {
    let (_lab, relay, mut probe) = start_relay_with_probe();
    let (mut producer, stream) = Producer::open_with_stream(&relay, session("surplus"));
    producer.send_packet(stream, 0, 100);
    for number in 1..4 {
        producer.send_data(stream, number, 100 + number as usize);
    }
    let length = || first_file(&relay.output, "64-bit/chan_0").len();
    wait_until("the bytes are written", || length() == 406);
    assert_eq!(producer.create_chunk(1), OK);
    assert_eq!(producer.rotate_streams(Some(1), &[(stream, 1)]), OK);
    for number in 1..4 {
        assert_eq!(
            producer.send_index(stream, number, index(number, 100 + number)),
            OK
        );
    }
    producer.close_chunk(0, Some(CloseCommand::MoveToCompleted));
    assert_eq!(producer.close_stream(stream, Some(3)), OK);
    let data: Vec<_> = files(&relay.output, "/ust/uid/0/64-bit/chan_0")
        .into_iter()
        .collect();
    let [(new, kept), (old, first)] = &data[..] else {
        panic!("{data:?}")
    };
    assert!(old.contains("archives") ^ new.contains("archives"));
    let (archived, current) = if old.contains("archives") {
        (first, kept)
    } else {
        (kept, first)
    };
    assert_eq!(archived, &vec![0; 100]);
    assert_eq!(
        *current,
        [vec![1; 101], vec![2; 102], vec![3; 103]].concat()
    );
    probe.assert_served();
}

#[test]
fn empty_packets_are_complete_at_once_and_do_not_block_a_rotation() {
    let (_lab, relay, mut probe) = start_relay_with_probe();
    let (mut producer, stream) = Producer::open_with_stream(&relay, session("empty"));
    producer.send_data(stream, 0, 0);
    // Nothing follows on the data connection: the header alone completes the packet.
    wait_until("the empty packet is processed", || {
        !producer.is_pending(stream, 0)
    });
    producer.send_packet(stream, 1, 10);
    producer.send_data(stream, 2, 0);
    assert_eq!(producer.create_chunk(1), OK);
    assert_eq!(producer.rotate_streams(Some(1), &[(stream, 2)]), OK);
    producer.send_packet(stream, 3, 10);
    assert_eq!(producer.close_stream(stream, Some(3)), OK);
    probe.assert_served();
}

#[test]
fn names_that_lead_out_of_the_session_directory_are_refused() {
    let (lab, relay, mut probe) = start_relay_with_probe();
    let outside = tree(lab.path())
        .keys()
        .filter(|name| !name.starts_with("output"))
        .count();
    let inside = tree(&relay.output).len();
    for (name, host, base) in [
        ("..", "host", ""),
        ("a/../../b", "host", ""),
        (".hidden", "host", ""),
        ("name", "..", ""),
        ("name", "host/..", ""),
        ("name", "host", ".."),
        ("name", "host", "a/.."),
        ("name", "host", "a/../../.."),
        ("name", "host", "/tmp/absolute"),
    ] {
        let (name, host, base_path) = (Text::from(name), Text::from(host), Text::from(base));
        let bad = CreateSession {
            name,
            host,
            base_path,
            ..session("name")
        };
        let mut producer = Producer::connect(&relay, Minor(13));
        let reply = producer.request(Command::CreateSession(bad.clone()));
        assert!(!reply.is_ok(), "{bad:?}");
    }
    assert_eq!(tree(&relay.output).len(), inside);
    let mut producer = Producer::connect(&relay, Minor(13));
    producer.create_session(session("name"));
    for name in ["..", ".", "a/b", "../b", ".x.", ""] {
        let name = Some(Text::from(name));
        let mut producer = Producer::connect(&relay, Minor(13));
        producer.create_session(session("chunk"));
        let chunk = CreateTraceChunk {
            chunk: ChunkId(0),
            created: CREATED,
            name: name.clone(),
        };
        let reply = producer.request(Command::CreateTraceChunk(chunk));
        assert_eq!(reply, Reply::Ended(ReturnCode::INVALID), "{name:?}");
    }
    assert_eq!(producer.create_chunk(0), OK);
    for (channel, path) in [
        ("../chan", "ust"),
        ("../../../chan", "ust"),
        ("a/b", "ust"),
        ("..", "ust"),
        ("chan", "../x"),
        ("chan", "../../x"),
        ("chan", "a/../b"),
        ("chan", "a/.."),
        ("chan", ".."),
        ("chan", "//x"),
        ("metadata", "../x"),
    ] {
        let reply = producer.request(Command::AddStream(stream(channel, path)));
        assert!(is_refused_stream(&reply), "{channel:?} {path:?}: {reply:?}");
    }
    producer.add_stream(stream("chan", TRACE_PATH));
    let now = tree(lab.path())
        .keys()
        .filter(|name| !name.starts_with("output"))
        .count();
    assert_eq!(now, outside);
    assert!(!tree(&relay.output).keys().any(|name| name.contains("..")));
    probe.assert_served();
}

#[test]
fn paths_of_producers_before_2_11_that_lead_out_are_refused() {
    let (_lab, relay, mut probe) = start_relay_with_probe();
    let mut producer = Producer::connect(&relay, Minor(10));
    producer.create_session(CreateSession {
        recording: None,
        ..session("old")
    });
    for path in ["/../x", "/host/../../x", "//host/x", "/", "..", "/host/.."] {
        let reply = producer.request(Command::AddStream(stream("chan_0", path)));
        assert!(is_refused_stream(&reply), "{path:?}: {reply:?}");
    }
    let good = producer.add_stream(stream(
        "chan_0",
        "/host/old-20261120-213900//ust/uid/0/64-bit",
    ));
    producer.send_packet(good, 0, 10);
    assert!(
        relay
            .output
            .join("host/old-20261120-213900/ust/uid/0/64-bit/chan_0")
            .exists()
    );
    probe.assert_served();
}

#[test]
fn a_gigabyte_of_padding_takes_neither_time_nor_disk_space() {
    use std::os::unix::fs::MetadataExt;
    let (_lab, relay, mut probe) = start_relay_with_probe();
    let (mut producer, stream) = Producer::open_with_stream(&relay, session("padding"));
    let padding = (1 << 30) - 10;
    producer
        .data
        .write_all(&packet_of(stream, 0, &[1; 10], padding))
        .unwrap();
    assert_eq!(producer.send_index(stream, 0, index(0, 1 << 30)), OK);
    assert!(producer.is_pending(stream, 7));
    producer.wait_while_pending(stream, 0);
    let file = relay
        .output
        .join("host/padding-20261120-213831/ust/uid/0/64-bit/chan_0");
    let metadata = std::fs::metadata(file).unwrap();
    assert_eq!((metadata.len(), metadata.blocks() < 100), (1 << 30, true));
    probe.assert_served();
}

#[test]
fn an_oversized_packet_closes_its_connection() {
    let (_lab, relay, mut probe) = start_relay_with_probe();
    let (mut producer, stream) = Producer::open_with_stream(&relay, session("too long"));
    // The sum of both sizes exceeds 32 bits.
    let (data_size, padding_size) = (u32::MAX, u32::MAX);
    let header = data_header(stream, 0, data_size, padding_size);
    producer.data.write_all(&header).unwrap();
    assert!(is_closed(&mut producer.data));
    let index = send_index(stream, 0, index(0, 10));
    // The session is aborted; the control connection gets a reply that says so.
    assert_eq!(producer.request(index), Reply::Ended(ReturnCode::UNKNOWN));
    probe.assert_served();
}

#[test]
fn an_announced_length_allocates_no_memory() {
    let (_lab, relay, mut probe) = start_relay_with_probe();
    let before = relay.memory();
    let sockets: Vec<TcpStream> = (0..50)
        .map(|number| {
            let mut producer = Producer::open(&relay, session(&format!("length-{number}")));
            let metadata = producer.add_stream(stream("metadata", TRACE_PATH));

            // SEND_METADATA that announces 128 MiB, of which 10 kB are sent.
            let mut bytes = control_header(6, 128 << 20);
            metadata.write(&mut bytes);
            bytes.extend_from_slice(&[0; 10_000]);
            let mut control = producer.control().try_clone().unwrap();
            control.write_all(&bytes).unwrap();
            control
        })
        .collect();
    probe.assert_served();
    relay.assert_memory_below(before + (16 << 20));
    drop(sockets);
    probe.assert_served();
}

#[test]
fn indexes_without_packets_are_bounded() {
    let (_lab, relay, mut probe) = start_relay_with_probe();
    let before = relay.memory();
    let (mut producer, stream) = Producer::open_with_stream(&relay, session("piles"));
    let mut control = producer.control().try_clone().unwrap();
    let mut numbers = 0..;
    let mut commands = || {
        let mut commands = Vec::new();
        for number in numbers.by_ref().take(1000) {
            let command = send_index(stream, number, index(number, 10));
            producer.encode_command(&command, &mut commands);
        }
        commands
    };
    let mut unsent = commands();
    control.set_nonblocking(true).unwrap();
    // Until the relay stops reading.
    while let Ok(written) = control.write(&unsent) {
        unsent.drain(..written);
        if unsent.is_empty() {
            unsent = commands();
        }
    }
    probe.assert_served();
    relay.assert_memory_below(before + (16 << 20));
    control.set_nonblocking(false).unwrap();
    let mut replies = [0; 4 * 4096];
    control.read_exact(&mut replies).unwrap();
    control.set_nonblocking(true).unwrap();
    let more = control.read(&mut [0; 4]).unwrap_err();
    assert_eq!(more.kind(), ErrorKind::WouldBlock);
    probe.assert_served();
}

#[test]
fn a_producer_that_reads_no_replies_blocks_no_other() {
    let (_lab, relay, mut probe) = start_relay_with_probe();
    let (deaf, stream) = Producer::open_with_stream(&relay, session("deaf"));
    let before = relay.memory();
    let mut ask = Vec::new();
    // Beacons, whose number is not limited.
    let mut header = control_header(13, 80);
    SendIndex {
        stream,
        seq: None,
        packet: tests::producer::beacon(1),
    }
    .encode(Minor(15), &mut header);
    (0..1000).for_each(|_| ask.extend_from_slice(&header));
    let mut control = deaf.control().try_clone().unwrap();
    control.set_nonblocking(true).unwrap();
    // Until the relay stops reading since its replies are not read.
    while control.write(&ask).is_ok() {}
    probe.assert_served();
    assert!(relay.memory() < before + (16 << 20));
    drop(deaf);
    probe.assert_served();
}

#[test]
fn the_relay_survives_more_connections_than_descriptors() {
    let lab = Lab::new();
    let relay = Relay::start_with_fd_limit(&lab, 64);
    let mut probe = ProbeSession::of(&relay);
    let mut sockets: Vec<TcpStream> = (0..200).map(|_| connect(relay.control)).collect();
    relay.wait_for_log(&["too many connections"]);
    probe.assert_served();
    sockets.clear();
    drop(Producer::open(&relay, session("afterwards")));
    probe.assert_served();
}

#[test]
fn a_producer_cannot_access_streams_of_other_sessions() {
    let (_lab, relay, mut probe) = start_relay_with_probe();
    let (mut owner, stream) = Producer::open_with_stream(&relay, session("owner"));
    let theirs = |stream: StreamId| {
        [
            send_index(stream, 0, index(0, 10)),
            Command::CloseStream(CloseStream { stream, last: None }),
        ]
    };
    for unknown in [stream, StreamId(99_999), StreamId(0), StreamId(u64::MAX)] {
        for command in theirs(unknown) {
            let mut attacker = Producer::open(&relay, session("attacker"));
            assert_eq!(attacker.request(command), Reply::Ended(ReturnCode::UNKNOWN));
            assert!(attacker.is_disconnected());
        }
        let mut attacker = Producer::open(&relay, session("attacker"));
        let rotated = attacker.rotate_streams(None, &[(unknown, 0)]);
        assert_eq!(rotated, Reply::Ended(ReturnCode::INVALID));
        let mut data = connect(relay.data);
        data.write_all(&packet(StreamId(77_777), 0, 10)).unwrap();
        assert!(is_closed(&mut data));
    }
    owner.send_packet(stream, 0, 10);
    probe.assert_served();
}

#[test]
fn a_data_connection_carries_packets_of_one_session_only() {
    let (_lab, relay, mut probe) = start_relay_with_probe();
    let mut one = Producer::open(&relay, session("one"));
    let mut other = Producer::open(&relay, session("other"));
    let streams = [&mut one, &mut other].map(|p| p.add_stream(stream("chan_0", TRACE_PATH)));
    one.send_packet(streams[0], 0, 10);
    one.send_data(streams[1], 0, 10);
    assert!(is_closed(&mut one.data));
    other.send_packet(streams[1], 0, 10);
    probe.assert_served();
}

#[test]
fn half_a_packet_and_half_a_header_of_a_lost_connection_are_discarded() {
    let (_lab, relay, mut probe) = start_relay_with_probe();
    let files_before = relay.open_files();
    let (mut producer, stream) = Producer::open_with_stream(&relay, session("half"));
    producer.send_packet(stream, 0, 100);
    // The first half of a packet.
    producer
        .data
        .write_all(&packet(stream, 1, 100)[..80])
        .unwrap();
    let file = relay
        .output
        .join("host/half-20261120-213831/ust/uid/0/64-bit/chan_0");
    let len = || std::fs::metadata(&file).unwrap().len();
    wait_until("half of the packet is written", || len() == 148);
    producer.data.shutdown(Shutdown::Both).unwrap();
    wait_until("half a packet is removed", || len() == 100);
    let mut control = connect(relay.control);
    control.write_all(&[0; 11]).unwrap();
    drop((producer, control));
    wait_until("all connections and files are closed", || {
        relay.open_files() == files_before
    });
    probe.assert_served();
}
