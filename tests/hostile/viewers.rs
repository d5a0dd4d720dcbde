//! Viewers that break the protocol.

use std::io::Write;

use tests::producer::{Producer, connect, live_session, read_to_close};
use tests::viewer::Viewer;
use tests::wait_until;
use viewer_proto::command::CommandHeader;
use viewer_proto::index::IndexStatus;
use viewer_proto::metadata::MetadataStatus;
use viewer_proto::session::{AttachStatus, Seek};
use viewer_proto::version::{Connect, ConnectionKind};
use viewer_proto::{Command, CommandCode};
use wire::{Field, StreamId, ViewerId};

use super::start_relay_with_probe;

fn connect_bytes(major: u32, kind: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    let viewer = Some(ViewerId(7));
    Command::Connect(Connect {
        viewer,
        major,
        minor: 15,
        kind,
    })
    .encode(&mut bytes);
    bytes
}

fn command_bytes(code: u32, data_size: u64, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    CommandHeader {
        data_size,
        code,
        code_version: 0,
    }
    .write(&mut bytes);
    bytes.extend_from_slice(payload);
    bytes
}

#[test]
fn an_unsupported_connect_is_closed_without_a_reply() {
    let (_lab, relay, mut probe) = start_relay_with_probe();
    let command = ConnectionKind::Command.code();
    for bytes in [
        connect_bytes(1, command),
        connect_bytes(3, command),
        connect_bytes(2, 0),
        connect_bytes(2, 3),
        connect_bytes(2, u32::MAX),
        // A push connection of an unknown viewer.
        connect_bytes(2, ConnectionKind::Notification.code()),
        command_bytes(CommandCode::CreateViewerSession.code(), 0, &[]),
        command_bytes(CommandCode::GetNextIndex.code(), 8, &[0; 8]),
    ] {
        let mut socket = connect(relay.live);
        socket.write_all(&bytes).unwrap();
        let answer = read_to_close(&socket);
        assert!(answer.is_empty(), "{bytes:?}: {answer:?}");
    }
    probe.assert_served();
}

#[test]
fn a_second_connect_keeps_attached_sessions() {
    let (_lab, relay, mut probe) = start_relay_with_probe();
    let mut producer = Producer::open(&relay, live_session("again"));
    let stream = producer.add_trace("ust/pid/one", &["chan_0"])[0];
    producer.send_packet(stream, 0, 100);
    let (mut viewer, session, _) = Viewer::attached(relay.live, "again", Seek::Beginning);
    let again = Connect {
        viewer: None,
        major: 2,
        minor: 15,
        kind: ConnectionKind::Command.code(),
    };
    for _ in 0..3 {
        viewer.request(&Command::Connect(again));
    }
    assert_eq!(viewer.attach(session, 1).0, AttachStatus::Already);
    assert_eq!(viewer.wait_for_session("again").viewers, 1);
    wait_until("the packet is published", || {
        viewer.next_index(stream).status == IndexStatus::Ready
    });
    probe.assert_served();
}

#[test]
fn wrong_command_sizes_are_skipped_or_close_the_connection() {
    let (_lab, relay, mut probe) = start_relay_with_probe();
    let greeting = 20;
    let index = CommandCode::GetNextIndex.code();
    for (size, sent, answered) in [
        (8, 8, true),
        // The first viewers sent the size in host byte order.
        (8u64.swap_bytes(), 8, true),
        (4096, 4096, true),
        (7, 8, false),
        (0, 8, false),
        (4097, 8, false),
        (1 << 32, 8, false),
        (u64::MAX, 8, false),
    ] {
        let mut socket = connect(relay.live);
        let mut bytes = connect_bytes(2, ConnectionKind::Command.code());
        bytes.extend(command_bytes(index, size, &vec![0; sent]));
        bytes.extend(command_bytes(
            CommandCode::CreateViewerSession.code(),
            0,
            &[],
        ));
        socket.write_all(&bytes).unwrap();
        socket.shutdown(std::net::Shutdown::Write).unwrap();
        let answer = read_to_close(&socket);
        // An index, and the reply to the command after it.
        let want = greeting + if answered { 64 + 4 } else { 0 };
        assert_eq!(answer.len(), want, "{size}");
    }
    probe.assert_served();
}

#[test]
fn an_index_of_a_metadata_stream_is_hung_up_and_metadata_of_a_data_stream_fails() {
    let (_lab, relay, mut probe) = start_relay_with_probe();
    let mut producer = Producer::open(&relay, live_session("mixed"));
    let stream = producer.add_trace("ust/pid/one", &["chan_0"])[0];
    let (mut viewer, _, streams) = Viewer::attached(relay.live, "mixed", Seek::Beginning);
    let metadata = tests::viewer::by_channel(&streams)["metadata"];
    assert_eq!(viewer.next_index(metadata).status, IndexStatus::HungUp);
    assert_eq!(viewer.metadata(stream).0, MetadataStatus::Failed);
    assert_eq!(viewer.metadata(StreamId(0)).0, MetadataStatus::Failed);
    assert_eq!(viewer.metadata(metadata).0, MetadataStatus::Ok);
    assert_eq!(viewer.next_index(stream).status, IndexStatus::Retry);
    probe.assert_served();
}

#[test]
fn unread_session_lists_take_bounded_memory() {
    let (_lab, relay, mut probe) = start_relay_with_probe();
    let _producers: Vec<_> = (0..50)
        .map(|number| Producer::open(&relay, live_session(&format!("listed {number}"))))
        .collect();
    let before = relay.memory();
    let viewer = Viewer::connect(relay.live);
    let list = command_bytes(CommandCode::ListSessions.code(), 0, &[]).repeat(1000);
    let mut socket = viewer.socket();
    socket.set_nonblocking(true).unwrap();
    // Until the relay stops reading since its replies are not read.
    while socket.write(&list).is_ok() {}
    probe.assert_served();
    relay.assert_memory_below(before + (8 << 20));
}
