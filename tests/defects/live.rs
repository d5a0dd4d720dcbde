//! On the port for viewers.

use std::io::{Read, Write};
use std::net::TcpStream;

use relay_proto::chunk::CloseCommand;
use relay_proto::reply::ReturnCode;
use relay_proto::session::{CreateSession, TraceFormat};
use relay_proto::{Minor as ProducerMinor, Reply};
use tests::babeltrace::{Babeltrace, numbers};
use tests::bystander::Bystander;
use tests::lab::Lab;
use tests::lttng::SessionDaemon;
use tests::producer::{Producer, beacon, connect, live_session, packet, stream};
use tests::relay::Relay;
use tests::tracee::{self, Puppet};
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

pub(super) const OK: Reply = Reply::Ended(ReturnCode::OK);

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
    let mut index = NextIndex::without_packet(IndexStatus::Retry, 0);
    wait_until("the stream has something to say", || {
        index = viewer.next_index(stream);
        index.status != IndexStatus::Retry
    });
    index
}

fn end(mut producer: Producer, stream: StreamId, last: Option<u64>) {
    assert_eq!(producer.close(stream, last), OK);
    producer.hang_up();
}

#[test]
fn any_number_of_viewers_attach_to_one_session() {
    let lab = Lab::new();
    let relay = Relay::start(&lab);
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
fn a_viewer_that_sends_half_a_command_or_reads_nothing_holds_up_nobody() {
    let lab = Lab::new();
    let relay = Relay::start(&lab);
    let mut bystander = Bystander::of(&relay);
    let mut half = connect(relay.live);
    half.write_all(&[0, 0, 0, 0]).unwrap();
    bystander.is_well();
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
    bystander.is_well();
    (16..32).for_each(|number| {
        watched
            .producer
            .send_packet(watched.stream, number, 1 << 20)
    });
    assert!(relay.memory() < before + (16 << 20));
}

#[test]
fn a_viewer_without_session_or_index_gets_an_error_and_no_more() {
    let lab = Lab::new();
    let relay = Relay::start(&lab);
    let mut bystander = Bystander::of(&relay);
    let mut watched = watched(&relay, "errors");
    watched.producer.send_packet(watched.stream, 0, 100);
    let metadata = watched.metadata;
    let mut stranger = Viewer::connect(relay.live);
    for stream in [watched.stream, metadata, StreamId(0), StreamId(u64::MAX)] {
        assert_eq!(
            stranger.next_index(stream),
            NextIndex::without_packet(IndexStatus::Failed, 0)
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
    bystander.is_well();
}

#[test]
fn a_viewer_does_not_reach_streams_of_other_sessions() {
    let lab = Lab::new();
    let relay = Relay::start(&lab);
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
    let lab = Lab::new();
    let relay = Relay::start(&lab);
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
fn time_stands_at_the_beginning_of_streams_whose_metadata_is_still_to_come() {
    let lab = Lab::new();
    let relay = Relay::start(&lab);
    let mut watched = watched(&relay, "begun");
    let beacon_to = |watched: &mut Watched, time: u64| {
        let told = watched.producer.send_index(watched.stream, 0, beacon(time));
        assert_eq!(told, OK);
        settled(&mut watched.viewer, watched.stream)
    };
    let begin = |watched: &mut Watched, path: &str| {
        let added = watched.producer.add(stream("chan_0", path));
        let metadata = watched.producer.add(stream("metadata", path));
        watched.producer.ask(relay_proto::Command::StreamsSent);
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
    assert_eq!(watched.producer.close(brief, None), OK);
    assert_eq!(beacon_to(&mut watched, 200).packet.end, Timestamp(200));
}

#[test]
fn streams_that_close_before_they_are_announced_or_read_are_shown_whole() {
    let lab = Lab::new();
    let relay = Relay::start(&lab);
    let mut watched = watched(&relay, "brief");
    for number in 0..5 {
        watched.producer.send_packet(watched.stream, number, 100);
    }
    assert_eq!(watched.producer.close(watched.stream, Some(4)), OK);
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
fn nothing_is_lost_of_a_process_that_ends_at_once_with_its_session() {
    let lab = Lab::new();
    let relay = Relay::start(&lab);
    let daemon = SessionDaemon::start(&lab);
    daemon.create("atonce", &relay, Some(100_000));
    daemon.channel(
        "atonce",
        "busy",
        &["--buffers-pid", "--subbuf-size=4k"],
        true,
    );
    daemon.lttng(&["start", "atonce"]);
    let viewer = Babeltrace::Two.follow(&relay, "atonce");
    Viewer::connect(relay.live).wait_for_listed("atonce", |listed| listed.viewers == 1);
    tracee::run(&lab, 20, 0, "atonce");
    daemon.lttng(&["destroy", "atonce"]);
    assert!(numbers(&viewer.wait().succeeded()).into_iter().eq(0..20));
}

#[test]
fn a_viewer_of_a_session_that_is_stopped_cleared_and_destroyed_ends() {
    let lab = Lab::new();
    let relay = Relay::start(&lab);
    let daemon = SessionDaemon::start(&lab);
    daemon.create("cleared", &relay, Some(50_000));
    daemon.channel("cleared", "busy", &["--subbuf-size=4k"], true);
    daemon.lttng(&["start", "cleared"]);
    let mut puppet = Puppet::start(&lab, "cleared");
    puppet.emit(10);
    daemon.lttng(&["stop", "cleared"]);
    daemon.lttng(&["clear", "cleared"]);
    let viewers = [Babeltrace::Two, Babeltrace::One].map(|b| b.follow(&relay, "cleared"));
    Viewer::connect(relay.live).wait_for_listed("cleared", |listed| listed.viewers == 2);
    daemon.lttng(&["destroy", "cleared"]);
    for viewer in viewers {
        assert_eq!(viewer.wait().succeeded(), Vec::<String>::new());
    }
    puppet.end();
}

#[test]
fn metadata_that_cannot_be_read_is_not_announced() {
    let lab = Lab::new();
    let relay = Relay::start(&lab);
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
fn creating_again_forgets_no_attachment() {
    let lab = Lab::new();
    let relay = Relay::start(&lab);
    let mut watched = watched(&relay, "again");
    watched.viewer.ask(&Command::CreateViewerSession);
    assert_eq!(
        watched.viewer.attach(watched.session, 1).0,
        AttachStatus::Already
    );
    drop(watched.viewer);
    let mut next = Viewer::connect(relay.live);
    next.wait_for_listed("again", |listed| listed.viewers == 0);
    next.ask(&Command::CreateViewerSession);
    assert_eq!(next.attach(watched.session, 1).0, AttachStatus::Ok);
}

#[test]
fn a_refused_attachment_leaves_nothing_attached() {
    let lab = Lab::new();
    let relay = Relay::start(&lab);
    let mut watched = watched(&relay, "refused");
    let mut viewer = Viewer::connect(relay.live);
    assert_eq!(
        viewer.attach(watched.session, 1).0,
        AttachStatus::NoViewerSession
    );
    viewer.ask(&Command::CreateViewerSession);
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
    not_live.add_trace("ust/uid/0/64-bit", &["chan_0"]);
    assert_eq!(viewer.wait_for_session("plain").live_timer, Micros(0));
    assert_eq!(watched.viewer.wait_for_session("refused").viewers, 1);
    // A session whose producer is gone is refused as well.
    let gone = watched.session;
    end(watched.producer, watched.stream, None);
    assert_eq!(viewer.attach(gone, 1).0, AttachStatus::Unknown);
}

#[test]
fn a_stream_that_never_has_an_event_is_inactive_from_its_first_beacon() {
    let lab = Lab::new();
    let relay = Relay::start(&lab);
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
fn a_beacon_that_overtakes_a_packet_or_goes_back_in_time_is_not_passed_on() {
    let lab = Lab::new();
    let relay = Relay::start(&lab);
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
    watched
        .producer
        .data
        .write_all(&packet(watched.stream, 1, 100))
        .unwrap();
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
fn the_end_of_a_session_is_told_after_everything_in_it() {
    let lab = Lab::new();
    let relay = Relay::start(&lab);
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
    let lab = Lab::new();
    let relay = Relay::start(&lab);
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
        .rotate(Some(1), &[(watched.stream, 2), (metadata, 0)]);
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
fn one_connection_follows_several_sessions() {
    let lab = Lab::new();
    let relay = Relay::start(&lab);
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
fn a_viewer_that_has_vanished_is_noticed_by_keep_alive() {
    let lab = Lab::new();
    let relay = Relay::start(&lab);
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
fn replies_come_in_one_piece_without_a_stall() {
    let lab = Lab::new();
    let relay = Relay::start(&lab);
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
fn sessions_are_listed_in_order_with_their_open_streams() {
    let lab = Lab::new();
    let relay = Relay::start(&lab);
    let names: Vec<String> = (0..20).map(|number| format!("session-{number}")).collect();
    let mut producers: Vec<_> = names
        .iter()
        .map(|name| Producer::open(&relay, live_session(name)))
        .collect();
    let first = &mut producers[0];
    let streams = first.add_trace("ust/uid/0/64-bit", &["chan_0", "chan_1"]);
    // Not published yet.
    first.add(stream("later_0", "ust/uid/0/64-bit"));
    assert_eq!(first.close(streams[0], None), OK);
    let listed = Viewer::connect(relay.live).sessions();
    let in_order: Vec<_> = listed
        .iter()
        .map(|session| session.name.to_string())
        .collect();
    assert_eq!(in_order, names);
    assert_eq!(listed[0].streams, 2);
}

#[test]
fn a_session_that_ends_before_it_was_described_ends_for_its_viewers() {
    let lab = Lab::new();
    let relay = Relay::start(&lab);
    let mut producer = Producer::open(&relay, live_session("undescribed"));
    let stream = producer.add(stream("chan_0", "ust/uid/0/64-bit"));
    producer.add(tests::producer::stream("metadata", "ust/uid/0/64-bit"));
    producer.ask(relay_proto::Command::StreamsSent);
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
        viewer.wait().succeeded();
    }
}

#[test]
fn ctf_2_is_listed_only_for_viewers_that_can_be_told() {
    let lab = Lab::new();
    let relay = Relay::start(&lab);
    let mut producer = Producer::greet(&relay, ProducerMinor(15));
    producer.create(CreateSession {
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
    old.ask(&Command::CreateViewerSession);
    assert_eq!(old.attach(listed.session, 1).0, AttachStatus::Unknown);
    new.ask(&Command::CreateViewerSession);
    assert_eq!(new.attach(listed.session, 1).0, AttachStatus::Ok);
}

#[test]
fn a_connection_that_does_not_keep_to_the_protocol_is_ended() {
    let lab = Lab::new();
    let relay = Relay::start(&lab);
    let mut bystander = Bystander::of(&relay);
    let hello = || {
        let client = viewer_proto::client::Client::new(Minor(4));
        let mut bytes = Vec::new();
        client.connect_command().encode(&mut bytes);
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
        bystander.is_well();
    }
}
