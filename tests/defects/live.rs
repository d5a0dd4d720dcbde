//! On the port for viewers.

use std::io::{Read, Write};
use std::net::TcpStream;

use relay_proto::Minor as ProducerMinor;
use relay_proto::chunk::CloseCommand;
use relay_proto::session::{CreateSession, TraceFormat};
use tests::babeltrace::{Babeltrace, numbers};
use tests::lttng::SessionDaemon;
use tests::probe_session::start_relay_with_probe;
use tests::producer::{OK, Producer, TRACE_PATH, beacon, connect, live_session, stream};
use tests::relay::Relay;
use tests::traced_app::{self, TracedApp};
use tests::tree::files;
use tests::viewer::{Viewer, by_channel};
use tests::wait_until;
use viewer_proto::Minor;
use viewer_proto::index::{IndexStatus, NEW_STREAMS, NextIndex};
use viewer_proto::metadata::MetadataStatus;
use viewer_proto::packet::PacketStatus;
use viewer_proto::session::{AttachStatus, Seek};
use viewer_proto::stream::NewStreamsStatus;
use viewer_proto::{Command, CommandCode};
use wire::{Micros, SessionId, StreamId, Timestamp};

/// A session with one stream, and a viewer attached to it.
struct Watched {
    producer: Producer,
    stream: StreamId,
    metadata: StreamId,
    viewer: Viewer,
    session: SessionId,
}

fn watched(relay: &Relay, name: &str) -> Watched {
    let mut producer = Producer::open(relay, live_session(name));
    let stream = producer.add_trace("ust/pid/one", &["chan_0"])[0];
    let (viewer, session, streams) = Viewer::attached(relay.live, name, Seek::Beginning);
    let metadata = by_channel(&streams)["metadata"];
    Watched {
        producer,
        stream,
        metadata,
        viewer,
        session,
    }
}

/// The next index that is not "ask again".
pub(super) fn settled(viewer: &mut Viewer, stream: StreamId) -> NextIndex {
    let mut index = NextIndex::bare(IndexStatus::Retry, 0);
    wait_until("the stream has something to say", || {
        index = viewer.next_index(stream);
        index.status != IndexStatus::Retry
    });
    index
}

fn end(mut producer: Producer, stream: StreamId, last: Option<u64>) {
    assert_eq!(producer.close_stream(stream, last), OK);
    producer.disconnect();
}

#[test]
fn any_number_of_viewers_attach_to_one_session() {
    let (_lab, relay) = Relay::start_in_new_lab();
    let mut watched = watched(&relay, "many");
    let mut others: Vec<_> = (0..20)
        .map(|_| Viewer::attached(relay.live, "many", Seek::Beginning).0)
        .collect();
    assert_eq!(watched.viewer.wait_for_session("many").viewers, 21);
    (0..5).for_each(|number| watched.producer.send_packet(watched.stream, number, 100));
    for viewer in &mut others {
        for number in 0..5 {
            let index = settled(viewer, watched.stream);
            assert_eq!(
                (index.status, index.offset.0),
                (IndexStatus::Ready, number * 100)
            );
        }
    }
    // Attaching twice is refused only on the same connection.
    let (status, _) = watched.viewer.attach(watched.session, 1);
    assert_eq!(status, AttachStatus::Already);
    drop(others);
    watched
        .viewer
        .wait_for_listed("many", |listed| listed.viewers == 1);
}

#[test]
fn a_viewer_that_sends_half_a_command_or_reads_nothing_blocks_no_other() {
    let (_lab, relay, mut probe) = start_relay_with_probe();
    let mut half = connect(relay.live);
    half.write_all(&[0, 0, 0, 0]).unwrap();
    probe.assert_served();
    let mut watched = watched(&relay, "large");
    for number in 0..16 {
        watched
            .producer
            .send_packet(watched.stream, number, 1 << 20);
        settled(&mut watched.viewer, watched.stream);
    }
    let before = relay.memory();
    // Asks for packets without end and reads none of them.
    let mut ask = Vec::new();
    let get = viewer_proto::packet::GetPacket {
        stream: watched.stream,
        offset: wire::Bytes(0),
        len: 16 << 20,
    };
    Command::GetPacket(get).encode(&mut ask);
    let mut socket = watched.viewer.socket();
    for _ in 0..200 {
        socket.write_all(&ask).unwrap();
    }
    probe.assert_served();
    (16..32).for_each(|number| {
        watched
            .producer
            .send_packet(watched.stream, number, 1 << 20)
    });
    assert!(relay.memory() < before + (16 << 20));
}

#[test]
fn requests_without_an_attached_session_or_index_fail() {
    let (_lab, relay, mut probe) = start_relay_with_probe();
    let mut watched = watched(&relay, "errors");
    watched.producer.send_packet(watched.stream, 0, 100);
    let metadata = watched.metadata;
    let mut stranger = Viewer::connect(relay.live);
    for stream in [watched.stream, metadata, StreamId(0), StreamId(u64::MAX)] {
        assert_eq!(
            stranger.next_index(stream),
            NextIndex::bare(IndexStatus::Failed, 0)
        );
        assert_eq!(stranger.metadata(stream).0, MetadataStatus::Failed);
        assert_eq!(
            stranger.packet(stream, 0, 100).0.status,
            PacketStatus::Failed
        );
    }
    let failed = |head: viewer_proto::packet::PacketHead| {
        assert_eq!((head.status, head.len), (PacketStatus::Failed, 0));
    };
    failed(watched.viewer.packet(watched.stream, 0, 100).0);
    assert_eq!(
        settled(&mut watched.viewer, watched.stream).status,
        IndexStatus::Ready
    );
    for (offset, len) in [
        (0, 101),
        (100, 1),
        (0, u32::MAX),
        (u64::MAX, u32::MAX),
        (0, 0),
    ] {
        failed(watched.viewer.packet(watched.stream, offset, len).0);
    }
    let (head, bytes) = watched.viewer.packet(watched.stream, 0, 100);
    assert_eq!((head.status, bytes.len()), (PacketStatus::Ok, 100));
    assert_eq!(
        watched.viewer.next_index(metadata).status,
        IndexStatus::HungUp
    );
    probe.assert_served();
}

#[test]
fn a_viewer_cannot_access_streams_of_other_sessions() {
    let (_lab, relay) = Relay::start_in_new_lab();
    let mut one = watched(&relay, "one");
    let mut other = watched(&relay, "other");
    one.producer.send_packet(one.stream, 0, 100);
    assert_eq!(
        other.viewer.next_index(one.stream).status,
        IndexStatus::Failed
    );
    assert_eq!(
        other.viewer.new_streams(one.session).0,
        NewStreamsStatus::Failed
    );
    // Nor has it moved them on.
    assert_eq!(
        settled(&mut one.viewer, one.stream).status,
        IndexStatus::Ready
    );
}

#[test]
fn new_streams_are_flagged_while_the_others_are_idle() {
    let (_lab, relay) = Relay::start_in_new_lab();
    let mut watched = watched(&relay, "idle");
    assert_eq!(
        watched.producer.send_index(watched.stream, 0, beacon(50)),
        OK
    );
    assert_eq!(
        settled(&mut watched.viewer, watched.stream).packet.end,
        Timestamp(50)
    );
    let late = watched.producer.add_trace("ust/pid/two", &["chan_0"])[0];
    watched.producer.send_packet(late, 0, 100);
    // A beacon from after the new stream's beginning: time must not move on to it.
    assert_eq!(
        watched.producer.send_index(watched.stream, 0, beacon(90)),
        OK
    );
    wait_until("the new stream is flagged", || {
        let index = watched.viewer.next_index(watched.stream);
        assert!(index.packet.end <= Timestamp(50));
        index.flags & NEW_STREAMS != 0
    });
    // Until it is fetched.
    assert!(watched.viewer.next_index(watched.stream).flags & NEW_STREAMS != 0);
    let (status, streams) = watched.viewer.new_streams(watched.session);
    assert_eq!((status, streams.len()), (NewStreamsStatus::Ok, 2));
    assert_eq!(
        settled(&mut watched.viewer, late).status,
        IndexStatus::Ready
    );
    assert_eq!(
        settled(&mut watched.viewer, watched.stream).packet.end,
        Timestamp(90)
    );
}

/// LTTng adds the streams of a process when it begins, and sends its metadata up to a live period later.
#[test]
fn watermarks_stay_at_the_beginning_of_streams_that_await_metadata() {
    let (_lab, relay) = Relay::start_in_new_lab();
    let mut watched = watched(&relay, "begun");
    let beacon_to = |watched: &mut Watched, time: u64| {
        let told = watched.producer.send_index(watched.stream, 0, beacon(time));
        assert_eq!(told, OK);
        settled(&mut watched.viewer, watched.stream)
    };
    let begin = |watched: &mut Watched, path: &str| {
        let added = watched.producer.add_stream(stream("chan_0", path));
        let metadata = watched.producer.add_stream(stream("metadata", path));
        watched.producer.request(relay_proto::Command::StreamsSent);
        (added, metadata)
    };
    assert_eq!(beacon_to(&mut watched, 50).packet.end, Timestamp(50));
    let (_, metadata) = begin(&mut watched, "ust/pid/two");
    for time in [90, 100] {
        let index = beacon_to(&mut watched, time);
        assert_eq!(
            (index.packet.end, index.flags & NEW_STREAMS),
            (Timestamp(50), 0)
        );
    }
    // One that begins later holds back later.
    let (brief, _) = begin(&mut watched, "ust/pid/brief");
    watched
        .producer
        .send_metadata(metadata, b"/* CTF 1.8 */\n", 0);
    wait_until("the new stream is flagged", || {
        watched.viewer.next_index(watched.stream).flags & NEW_STREAMS != 0
    });
    assert_eq!(watched.viewer.new_streams(watched.session).1.len(), 2);
    for time in [100, 150] {
        assert_eq!(beacon_to(&mut watched, time).packet.end, Timestamp(100));
    }
    // And one that has ended, nobody.
    assert_eq!(watched.producer.close_stream(brief, None), OK);
    assert_eq!(beacon_to(&mut watched, 200).packet.end, Timestamp(200));
}

#[test]
fn streams_closed_before_they_are_announced_or_read_are_delivered_whole() {
    let (_lab, relay) = Relay::start_in_new_lab();
    let mut watched = watched(&relay, "brief");
    for number in 0..5 {
        watched.producer.send_packet(watched.stream, number, 100);
    }
    assert_eq!(watched.producer.close_stream(watched.stream, Some(4)), OK);
    let brief = watched.producer.add_trace("ust/pid/brief", &["chan_0"])[0];
    watched.producer.send_packet(brief, 0, 100);
    end(watched.producer, brief, Some(0));
    let (status, streams) = watched.viewer.new_streams(watched.session);
    assert_eq!(
        (status, by_channel(&streams)["chan_0"]),
        (NewStreamsStatus::Ok, brief)
    );
    for (stream, packets) in [(watched.stream, 5), (brief, 1)] {
        for _ in 0..packets {
            assert_eq!(
                settled(&mut watched.viewer, stream).status,
                IndexStatus::Ready
            );
        }
        assert_eq!(
            settled(&mut watched.viewer, stream).status,
            IndexStatus::HungUp
        );
    }
    assert_eq!(
        watched.viewer.new_streams(watched.session).0,
        NewStreamsStatus::HungUp
    );
}

#[test]
fn no_event_is_lost_of_a_process_that_exits_just_before_its_session_is_destroyed() {
    let (lab, relay) = Relay::start_in_new_lab();
    let daemon = SessionDaemon::start(&lab);
    daemon.create_session("atonce", &relay, Some(100_000));
    daemon.enable_channel(
        "atonce",
        "busy",
        &["--buffers-pid", "--subbuf-size=4k"],
        true,
    );
    daemon.lttng(&["start", "atonce"]);
    let viewer = Babeltrace::Two.follow(&relay, "atonce");
    Viewer::connect(relay.live).wait_for_listed("atonce", |listed| listed.viewers == 1);
    traced_app::run(&lab, 20, 0, "atonce");
    daemon.lttng(&["destroy", "atonce"]);
    assert!(
        numbers(&viewer.wait().expect_success())
            .into_iter()
            .eq(0..20)
    );
}

#[test]
fn viewers_of_a_session_that_is_stopped_cleared_and_destroyed_exit() {
    let (lab, relay) = Relay::start_in_new_lab();
    let daemon = SessionDaemon::start(&lab);
    daemon.create_session("cleared", &relay, Some(50_000));
    daemon.enable_channel("cleared", "busy", &["--subbuf-size=4k"], true);
    daemon.lttng(&["start", "cleared"]);
    let mut app = TracedApp::start(&lab, "cleared");
    app.emit(10);
    daemon.lttng(&["stop", "cleared"]);
    daemon.lttng(&["clear", "cleared"]);
    let viewers = [Babeltrace::Two, Babeltrace::One].map(|b| b.follow(&relay, "cleared"));
    Viewer::connect(relay.live).wait_for_listed("cleared", |listed| listed.viewers == 2);
    daemon.lttng(&["destroy", "cleared"]);
    for viewer in viewers {
        assert_eq!(viewer.wait().expect_success(), Vec::<String>::new());
    }
    app.end();
}

#[test]
fn metadata_that_cannot_be_read_fails_and_announces_no_bytes() {
    let (_lab, relay) = Relay::start_in_new_lab();
    let mut watched = watched(&relay, "short");
    let metadata = watched.metadata;
    let path = files(&relay.output, "/metadata")
        .into_keys()
        .next()
        .unwrap();
    std::fs::File::options()
        .write(true)
        .open(relay.output.join(path))
        .unwrap()
        .set_len(0)
        .unwrap();
    assert_eq!(
        watched.viewer.metadata(metadata),
        (MetadataStatus::Failed, vec![])
    );
    // The connection has not lost its rhythm.
    watched.producer.send_packet(watched.stream, 0, 100);
    assert_eq!(
        settled(&mut watched.viewer, watched.stream).status,
        IndexStatus::Ready
    );
}

#[test]
fn a_second_create_viewer_session_keeps_attached_sessions() {
    let (_lab, relay) = Relay::start_in_new_lab();
    let mut watched = watched(&relay, "again");
    watched.viewer.request(&Command::CreateViewerSession);
    assert_eq!(
        watched.viewer.attach(watched.session, 1).0,
        AttachStatus::Already
    );
    drop(watched.viewer);
    let mut next = Viewer::connect(relay.live);
    next.wait_for_listed("again", |listed| listed.viewers == 0);
    next.request(&Command::CreateViewerSession);
    assert_eq!(next.attach(watched.session, 1).0, AttachStatus::Ok);
}

#[test]
fn a_refused_attach_leaves_no_session_attached() {
    let (_lab, relay) = Relay::start_in_new_lab();
    let mut watched = watched(&relay, "refused");
    let mut viewer = Viewer::connect(relay.live);
    assert_eq!(
        viewer.attach(watched.session, 1).0,
        AttachStatus::NoViewerSession
    );
    viewer.request(&Command::CreateViewerSession);
    for seek in [0, 3, u32::MAX] {
        assert_eq!(
            viewer.attach(watched.session, seek).0,
            AttachStatus::SeekError
        );
    }
    assert_eq!(viewer.attach(SessionId(12_345), 1).0, AttachStatus::Unknown);
    let plain = CreateSession {
        live_timer: Micros(0),
        ..live_session("plain")
    };
    let mut not_live = Producer::open(&relay, plain);
    assert_eq!(viewer.attach(not_live.session, 1).0, AttachStatus::NotLive);
    not_live.add_trace(TRACE_PATH, &["chan_0"]);
    assert_eq!(viewer.wait_for_session("plain").live_timer, Micros(0));
    assert_eq!(watched.viewer.wait_for_session("refused").viewers, 1);
    // A session whose producer is gone is refused as well.
    let gone = watched.session;
    end(watched.producer, watched.stream, None);
    assert_eq!(viewer.attach(gone, 1).0, AttachStatus::Unknown);
}

#[test]
fn a_stream_without_events_is_inactive_from_its_first_beacon() {
    let (_lab, relay) = Relay::start_in_new_lab();
    let mut watched = watched(&relay, "never");
    assert_eq!(
        watched.viewer.next_index(watched.stream).status,
        IndexStatus::Retry
    );
    for until in [100, 200] {
        assert_eq!(
            watched
                .producer
                .send_index(watched.stream, 0, beacon(until)),
            OK
        );
        let index = watched.viewer.next_index(watched.stream);
        assert_eq!(
            (index.status, index.packet.end),
            (IndexStatus::Inactive, Timestamp(until))
        );
    }
}

#[test]
fn a_beacon_that_overtakes_a_packet_or_goes_back_in_time_is_not_sent_to_viewers() {
    let (_lab, relay) = Relay::start_in_new_lab();
    let mut watched = watched(&relay, "overtaken");
    watched.producer.send_packet(watched.stream, 0, 100);
    assert_eq!(
        settled(&mut watched.viewer, watched.stream).status,
        IndexStatus::Ready
    );
    // The packet ends at 10.
    assert_eq!(
        watched.producer.send_index(watched.stream, 0, beacon(5)),
        OK
    );
    assert_eq!(
        watched.viewer.next_index(watched.stream).status,
        IndexStatus::Retry
    );
    // Of the next packet only the bytes are there.
    watched.producer.send_data(watched.stream, 1, 100);
    wait_until("the bytes are there", || {
        files(&relay.output, "/chan_0")
            .values()
            .any(|bytes| bytes.len() == 200)
    });
    assert_eq!(
        watched.producer.send_index(watched.stream, 1, beacon(99)),
        OK
    );
    assert_eq!(
        watched.viewer.next_index(watched.stream).status,
        IndexStatus::Retry
    );
}

#[test]
fn the_end_of_a_session_is_reported_after_its_last_packet() {
    let (_lab, relay) = Relay::start_in_new_lab();
    let mut watched = watched(&relay, "unread");
    watched.producer.send_packet(watched.stream, 0, 100);
    end(watched.producer, watched.stream, Some(0));
    let nothing_new = (NewStreamsStatus::Ok, vec![]);
    assert_eq!(watched.viewer.new_streams(watched.session), nothing_new);
    assert_eq!(
        settled(&mut watched.viewer, watched.stream).status,
        IndexStatus::Ready
    );
    assert_eq!(watched.viewer.new_streams(watched.session), nothing_new);
    assert_eq!(
        settled(&mut watched.viewer, watched.stream).status,
        IndexStatus::HungUp
    );
    assert_eq!(
        watched.viewer.new_streams(watched.session).0,
        NewStreamsStatus::HungUp
    );
}

#[test]
fn a_stream_that_closes_after_its_session_was_cleared_ends_without_error() {
    let (_lab, relay) = Relay::start_in_new_lab();
    let mut watched = watched(&relay, "clear");
    watched.producer.send_packet(watched.stream, 0, 100);
    assert_eq!(
        settled(&mut watched.viewer, watched.stream).status,
        IndexStatus::Ready
    );
    watched.producer.send_packet(watched.stream, 1, 100);
    let metadata = watched.metadata;
    assert_eq!(watched.producer.create_chunk(1), OK);
    let rotated = watched
        .producer
        .rotate_streams(Some(1), &[(watched.stream, 2), (metadata, 0)]);
    assert_eq!(rotated, OK);
    assert!(
        watched
            .producer
            .close_chunk(0, Some(CloseCommand::Delete))
            .is_ok()
    );
    watched.producer.send_packet(watched.stream, 2, 100);
    end(watched.producer, watched.stream, Some(2));
    // The packet that it had not read is gone with the chunk; the one in the new chunk is not.
    let index = settled(&mut watched.viewer, watched.stream);
    assert_eq!(
        (index.status, index.packet.begin),
        (IndexStatus::Ready, Timestamp(20))
    );
    let offset = index.offset.0;
    assert_eq!(
        watched.viewer.packet(watched.stream, offset, 100).1,
        vec![2; 100]
    );
    assert_eq!(
        settled(&mut watched.viewer, watched.stream).status,
        IndexStatus::HungUp
    );
}

#[test]
fn one_viewer_connection_attaches_to_several_sessions() {
    let (_lab, relay) = Relay::start_in_new_lab();
    let mut one = watched(&relay, "one");
    let mut other = Producer::open(&relay, live_session("other"));
    let stream = other.add_trace("ust/pid/other", &["chan_0"])[0];
    let session = one.viewer.wait_for_session("other").session;
    assert_eq!(one.viewer.attach(session, 1).0, AttachStatus::Ok);
    // One of them goes over to another chunk; the other one does not care.
    assert_eq!(one.producer.create_chunk(1), OK);
    other.send_packet(stream, 0, 100);
    assert_eq!(settled(&mut one.viewer, stream).status, IndexStatus::Ready);
    assert_eq!(one.viewer.next_index(one.stream).status, IndexStatus::Retry);
}

#[test]
fn viewer_connections_use_tcp_keep_alive() {
    let (_lab, relay) = Relay::start_in_new_lab();
    let viewer = Viewer::connect(relay.live);
    // Timer 2 of a connection of the system's table is the keep-alive timer.
    let sockets = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let relay_port = format!(":{:04X} ", relay.live.port());
    let viewer_port = format!(":{:04X} ", viewer.socket().local_addr().unwrap().port());
    let theirs = |line: &&str| {
        let ports = line.split_once(": ").map_or("", |(_, rest)| rest);
        ports.find(&relay_port) == Some(8) && ports.contains(&viewer_port)
    };
    let line = sockets.lines().find(theirs).unwrap();
    let timer = line.split_whitespace().nth(5).unwrap();
    assert!(timer.starts_with("02:"), "{line}");
}

#[test]
fn replies_do_not_wait_for_delayed_acknowledgements() {
    let (_lab, relay) = Relay::start_in_new_lab();
    let mut watched = watched(&relay, "stall");
    // With head and body apart, each of these takes 40 ms, the time of a delayed acknowledgement.
    let begun = std::time::Instant::now();
    for _ in 0..100 {
        watched.viewer.sessions();
    }
    let taken = begun.elapsed();
    assert!(taken.as_millis() < 2000, "{taken:?}");
}

#[test]
fn sessions_are_listed_in_order_of_creation_with_their_open_streams() {
    let (_lab, relay) = Relay::start_in_new_lab();
    let names: Vec<String> = (0..20).map(|number| format!("session-{number}")).collect();
    let mut producers: Vec<_> = names
        .iter()
        .map(|name| Producer::open(&relay, live_session(name)))
        .collect();
    let first = &mut producers[0];
    let streams = first.add_trace(TRACE_PATH, &["chan_0", "chan_1"]);
    // Not published yet.
    first.add_stream(stream("later_0", TRACE_PATH));
    assert_eq!(first.close_stream(streams[0], None), OK);
    let listed = Viewer::connect(relay.live).sessions();
    let in_order: Vec<_> = listed
        .iter()
        .map(|session| session.name.to_string())
        .collect();
    assert_eq!(in_order, names);
    assert_eq!(listed[0].streams, 2);
}

#[test]
fn viewers_exit_when_a_session_without_metadata_ends() {
    let (lab, relay) = Relay::start_in_new_lab();
    let (mut producer, stream) = Producer::open_with_stream(&relay, live_session("undescribed"));
    producer.add_stream(tests::producer::stream("metadata", TRACE_PATH));
    producer.request(relay_proto::Command::StreamsSent);
    producer.send_packet(stream, 0, 100);
    let mut watcher = Viewer::connect(relay.live);
    watcher.wait_for_session("undescribed");
    let url = format!("net://{}/host/host/undescribed", relay.live);
    let viewers = ["babeltrace", "babeltrace2"].map(|program| {
        let mut command = lab.command(tests::peers::program(program));
        tests::process::Process::start(command.args(["-i", "lttng-live", &url]))
    });
    watcher.wait_for_listed("undescribed", |listed| listed.viewers == 2);
    end(producer, stream, Some(0));
    for viewer in viewers {
        viewer.wait().expect_success();
    }
}

#[test]
fn ctf_2_sessions_are_listed_only_for_viewers_that_know_the_trace_format() {
    let (_lab, relay) = Relay::start_in_new_lab();
    let mut producer = Producer::connect(&relay, ProducerMinor(15));
    producer.create_session(CreateSession {
        trace_format: TraceFormat::Ctf2,
        ..live_session("ctf2")
    });
    let mut new = Viewer::connect(relay.live);
    let listed = new.wait_for_session("ctf2");
    assert_eq!(
        listed.trace_format,
        viewer_proto::session::TraceFormat::Ctf2
    );
    let mut old = Viewer::connect_as(relay.live, Minor(4));
    assert_eq!(old.sessions(), []);
    old.request(&Command::CreateViewerSession);
    assert_eq!(old.attach(listed.session, 1).0, AttachStatus::Unknown);
    new.request(&Command::CreateViewerSession);
    assert_eq!(new.attach(listed.session, 1).0, AttachStatus::Ok);
}

#[test]
fn a_protocol_error_closes_the_viewer_connection() {
    let (_lab, relay, mut probe) = start_relay_with_probe();
    let hello = || {
        let client = viewer_proto::client::Client::new(Minor(4));
        let mut bytes = Vec::new();
        client.hello().encode(&mut bytes);
        bytes
    };
    let command = |code: u32, size: u64, payload: &[u8]| {
        [
            &size.to_be_bytes()[..],
            &code.to_be_bytes(),
            &[0; 4],
            payload,
        ]
        .concat()
    };
    for (case, bytes, answer) in [
        (
            "no CONNECT",
            command(CommandCode::ListSessions.code(), 0, &[]),
            vec![],
        ),
        ("rubbish", vec![0xaa; 100], vec![0, 0, 0, 11]),
        (
            "unknown command",
            [hello(), command(99, 0, &[])].concat(),
            vec![0, 0, 0, 11],
        ),
        (
            "wrong size",
            [hello(), command(4, 9_000_000, &[0; 8])].concat(),
            vec![],
        ),
    ] {
        let mut socket = TcpStream::connect(relay.live).unwrap();
        socket.write_all(&bytes).unwrap();
        let mut got = Vec::new();
        // It is reset where it was still sending.
        let _ = socket.read_to_end(&mut got);
        let got = if bytes.starts_with(&hello()) {
            &got[20.min(got.len())..]
        } else {
            &got[..]
        };
        assert_eq!(got, answer, "{case}");
        probe.assert_served();
    }
}
