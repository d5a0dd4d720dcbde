//! Viewer connections: listing and attaching to sessions, errors, and one viewer beside others.

use relay_proto::Minor as ProducerMinor;
use relay_proto::session::{CreateSession, TraceFormat};
use std::io::Write;
use std::net::TcpStream;
use tests::probe_session::start_relay_with_probe;
use tests::producer::{OK, Producer, TRACE_PATH, connect, live_session, read_to_close, stream};
use tests::relay::Relay;
use tests::tree::files;
use tests::viewer::Viewer;
use viewer_proto::Minor;
use viewer_proto::index::{IndexStatus, NextIndex};
use viewer_proto::metadata::MetadataStatus;
use viewer_proto::packet::PacketStatus;
use viewer_proto::session::{AttachStatus, Seek};
use viewer_proto::stream::NewStreamsStatus;
use viewer_proto::{Command, CommandCode};
use wire::{Micros, SessionId, StreamId};

use super::viewed_session::ViewedSession;

#[test]
fn any_number_of_viewers_attach_to_one_session() {
    let (_lab, relay) = Relay::start_in_new_lab();
    let mut viewed = ViewedSession::open(&relay, "many");
    let mut others: Vec<_> = (0..20)
        .map(|_| Viewer::attached(relay.live, "many", Seek::Beginning).0)
        .collect();
    assert_eq!(viewed.viewer.wait_for_session("many").viewers, 21);
    (0..5).for_each(|number| viewed.producer.send_packet(viewed.stream, number, 100));
    for viewer in &mut others {
        for number in 0..5 {
            let index = viewer.wait_for_index(viewed.stream);
            assert_eq!(
                (index.status, index.offset.0),
                (IndexStatus::Ready, number * 100)
            );
        }
    }
    // Attaching twice is refused on the same connection only.
    let (status, _) = viewed.viewer.attach(viewed.session, 1);
    assert_eq!(status, AttachStatus::Already);
    drop(others);
    viewed
        .viewer
        .wait_for_listed("many", |listed| listed.viewers == 1);
}

#[test]
fn a_viewer_that_sends_half_a_command_or_reads_nothing_blocks_no_other() {
    let (_lab, relay, mut probe) = start_relay_with_probe();
    let mut half = connect(relay.live);
    half.write_all(&[0, 0, 0, 0]).unwrap();
    probe.assert_served();
    let mut viewed = ViewedSession::open(&relay, "large");
    for number in 0..16 {
        viewed.producer.send_packet(viewed.stream, number, 1 << 20);
        viewed.viewer.wait_for_index(viewed.stream);
    }
    let before = relay.memory();
    // Requests many packets and reads none of them.
    let mut ask = Vec::new();
    let get = viewer_proto::packet::GetPacket {
        stream: viewed.stream,
        offset: wire::Bytes(0),
        len: 16 << 20,
    };
    Command::GetPacket(get).encode(&mut ask);
    let mut socket = viewed.viewer.socket();
    for _ in 0..200 {
        socket.write_all(&ask).unwrap();
    }
    probe.assert_served();
    (16..32).for_each(|number| viewed.producer.send_packet(viewed.stream, number, 1 << 20));
    assert!(relay.memory() < before + (16 << 20));
}

#[test]
fn requests_without_an_attached_session_or_index_fail() {
    let (_lab, relay, mut probe) = start_relay_with_probe();
    let mut viewed = ViewedSession::open(&relay, "errors");
    viewed.producer.send_packet(viewed.stream, 0, 100);
    let metadata = viewed.metadata;
    let mut unattached = Viewer::connect(relay.live);
    for stream in [viewed.stream, metadata, StreamId(0), StreamId(u64::MAX)] {
        assert_eq!(
            unattached.next_index(stream),
            NextIndex::without_packet(IndexStatus::Failed, 0)
        );
        assert_eq!(unattached.metadata(stream).0, MetadataStatus::Failed);
        assert_eq!(
            unattached.packet(stream, 0, 100).0.status,
            PacketStatus::Failed
        );
    }
    let failed = |head: viewer_proto::packet::PacketHead| {
        assert_eq!((head.status, head.len), (PacketStatus::Failed, 0));
    };
    failed(viewed.viewer.packet(viewed.stream, 0, 100).0);
    assert_eq!(
        viewed.viewer.wait_for_index(viewed.stream).status,
        IndexStatus::Ready
    );
    for (offset, len) in [
        (0, 101),
        (100, 1),
        (0, u32::MAX),
        (u64::MAX, u32::MAX),
        (0, 0),
    ] {
        failed(viewed.viewer.packet(viewed.stream, offset, len).0);
    }
    let (head, bytes) = viewed.viewer.packet(viewed.stream, 0, 100);
    assert_eq!((head.status, bytes.len()), (PacketStatus::Ok, 100));
    assert_eq!(
        viewed.viewer.next_index(metadata).status,
        IndexStatus::HungUp
    );
    probe.assert_served();
}

#[test]
fn a_viewer_cannot_access_streams_of_other_sessions() {
    let (_lab, relay) = Relay::start_in_new_lab();
    let mut one = ViewedSession::open(&relay, "one");
    let mut other = ViewedSession::open(&relay, "other");
    one.producer.send_packet(one.stream, 0, 100);
    assert_eq!(
        other.viewer.next_index(one.stream).status,
        IndexStatus::Failed
    );
    assert_eq!(
        other.viewer.new_streams(one.session).0,
        NewStreamsStatus::Failed
    );
    // The read position of the session's own viewer has not moved.
    assert_eq!(
        one.viewer.wait_for_index(one.stream).status,
        IndexStatus::Ready
    );
}

#[test]
fn metadata_that_cannot_be_read_fails_and_announces_no_bytes() {
    let (_lab, relay) = Relay::start_in_new_lab();
    let mut viewed = ViewedSession::open(&relay, "short");
    let metadata = viewed.metadata;
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
        viewed.viewer.metadata(metadata),
        (MetadataStatus::Failed, vec![])
    );
    // The connection is still synchronized.
    viewed.producer.send_packet(viewed.stream, 0, 100);
    assert_eq!(
        viewed.viewer.wait_for_index(viewed.stream).status,
        IndexStatus::Ready
    );
}

#[test]
fn a_second_create_viewer_session_keeps_attached_sessions() {
    let (_lab, relay) = Relay::start_in_new_lab();
    let mut viewed = ViewedSession::open(&relay, "again");
    viewed.viewer.request(&Command::CreateViewerSession);
    assert_eq!(
        viewed.viewer.attach(viewed.session, 1).0,
        AttachStatus::Already
    );
    drop(viewed.viewer);
    let mut next = Viewer::connect(relay.live);
    next.wait_for_listed("again", |listed| listed.viewers == 0);
    next.request(&Command::CreateViewerSession);
    assert_eq!(next.attach(viewed.session, 1).0, AttachStatus::Ok);
}

#[test]
fn a_refused_attach_leaves_no_session_attached() {
    let (_lab, relay) = Relay::start_in_new_lab();
    let mut viewed = ViewedSession::open(&relay, "refused");
    let mut viewer = Viewer::connect(relay.live);
    assert_eq!(
        viewer.attach(viewed.session, 1).0,
        AttachStatus::NoViewerSession
    );
    viewer.request(&Command::CreateViewerSession);
    for seek in [0, 3, u32::MAX] {
        assert_eq!(
            viewer.attach(viewed.session, seek).0,
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
    assert_eq!(viewed.viewer.wait_for_session("refused").viewers, 1);
    // A session whose producer has disconnected is refused as well.
    let gone = viewed.session;
    viewed.producer.close_session(viewed.stream, None);
    assert_eq!(viewer.attach(gone, 1).0, AttachStatus::Unknown);
}

#[test]
fn one_viewer_connection_attaches_to_several_sessions() {
    let (_lab, relay) = Relay::start_in_new_lab();
    let mut one = ViewedSession::open(&relay, "one");
    let mut other = Producer::open(&relay, live_session("other"));
    let stream = other.add_trace("ust/pid/other", &["chan_0"])[0];
    let session = one.viewer.wait_for_session("other").session;
    assert_eq!(one.viewer.attach(session, 1).0, AttachStatus::Ok);
    // A new chunk of one session does not affect the other.
    assert_eq!(one.producer.create_chunk(1), OK);
    other.send_packet(stream, 0, 100);
    assert_eq!(one.viewer.wait_for_index(stream).status, IndexStatus::Ready);
    assert_eq!(one.viewer.next_index(one.stream).status, IndexStatus::Retry);
}

#[test]
fn viewer_connections_use_tcp_keep_alive() {
    let (_lab, relay) = Relay::start_in_new_lab();
    let viewer = Viewer::connect(relay.live);
    // Timer 2 in `/proc/net/tcp` is the keep-alive timer.
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
    let mut viewed = ViewedSession::open(&relay, "stall");
    // If head and body were sent in two segments, each reply would take 40 ms: the delayed
    // acknowledgement of the first.
    let begun = std::time::Instant::now();
    for _ in 0..100 {
        viewed.viewer.sessions();
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
    // A stream without STREAMS_SENT is not listed.
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
    let connect_bytes = || {
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
        ("random bytes", vec![0xaa; 100], vec![0, 0, 0, 11]),
        (
            "unknown command",
            [connect_bytes(), command(99, 0, &[])].concat(),
            vec![0, 0, 0, 11],
        ),
        (
            "wrong size",
            [connect_bytes(), command(4, 9_000_000, &[0; 8])].concat(),
            vec![],
        ),
    ] {
        let mut socket = TcpStream::connect(relay.live).unwrap();
        socket.write_all(&bytes).unwrap();
        let got = read_to_close(&socket);
        let got = if bytes.starts_with(&connect_bytes()) {
            &got[20.min(got.len())..]
        } else {
            &got[..]
        };
        assert_eq!(got, answer, "{case}");
        probe.assert_served();
    }
}
