//! Commands that are rejected, hidden or malformed, and the encodings that both ends share.

use proptest::prelude::*;
use viewer_proto::client::Client;
use viewer_proto::command::CommandHeader;
use viewer_proto::index::{IndexStatus, NextIndex};
use viewer_proto::metadata::MetadataStatus;
use viewer_proto::packet::{GetPacket, PacketStatus};
use viewer_proto::server::Connection;
use viewer_proto::session::{AttachStatus, CreateStatus, ListedSession, Seek, TraceFormat};
use viewer_proto::stream::NewStreamsStatus;
use viewer_proto::{Command, CommandCode, Minor};
use wire::{Bytes, Field, Micros, SessionId, StreamId, Text};

use crate::fake::{Data, Letters, world};
use crate::viewer::{Response, Viewer, raw_command};

#[test]
fn rejected_attach_changes_no_state() {
    let world = world();
    let mut viewer = Viewer::connected(4, &world);
    let rejected = |status| Response::Attached(status, vec![]);
    assert_eq!(viewer.attach(1), rejected(AttachStatus::NoViewerSession));
    viewer.request(&Command::CreateViewerSession);
    for (set, status) in [
        ((&world.gone, true), AttachStatus::Unknown),
        ((&world.live, false), AttachStatus::NotLive),
        ((&world.ctf2, true), AttachStatus::Unknown),
    ] {
        let before = set.0.replace(set.1);
        assert_eq!(viewer.attach(1), rejected(status));
        set.0.set(before);
    }
    assert_eq!(viewer.attach(0), rejected(AttachStatus::SeekError));
    assert_eq!(world.viewers.get(), 0);
    assert_eq!(viewer.attach(1), rejected(AttachStatus::Ok));
    assert_eq!(viewer.attach(1), rejected(AttachStatus::Already));
    assert_eq!(world.viewers.get(), 1);
    // A second CREATE_VIEWER_SESSION does not detach.
    assert_eq!(
        viewer.request(&Command::CreateViewerSession),
        Response::Created(CreateStatus::Ok)
    );
    assert_eq!(viewer.attach(1), rejected(AttachStatus::Already));
}

#[test]
fn ctf2_sessions_are_hidden_from_viewers_before_2_15() {
    let world = world();
    world.ctf2.set(true);
    assert_eq!(
        Viewer::connected(14, &world).request(&Command::ListSessions),
        Response::Sessions(vec![])
    );
    let mut viewer = Viewer::connected(15, &world);
    let Response::Sessions(listed) = viewer.request(&Command::ListSessions) else {
        panic!("no list")
    };
    assert_eq!(listed[0].trace_format, TraceFormat::Ctf2);
    viewer.request(&Command::CreateViewerSession);
    assert_eq!(
        viewer.attach(1),
        Response::Attached(AttachStatus::Ok, vec![])
    );
}

#[test]
fn viewer_gets_no_data_of_sessions_that_it_is_not_attached_to() {
    let world = world();
    let stream = world.stream();
    let metadata = world.metadata(b"text");
    stream.push(10, 20);
    let mut unattached = Viewer::connected(4, &world);
    assert_eq!(
        unattached.next_index(&stream),
        NextIndex::without_packet(IndexStatus::Failed, 0)
    );
    assert_eq!(unattached.metadata(&metadata).1, MetadataStatus::Failed);
    assert_eq!(unattached.new_streams(), (NewStreamsStatus::Failed, vec![]));
    let get = |len| {
        Command::GetPacket(GetPacket {
            stream: StreamId(1),
            offset: Bytes(0),
            len,
        })
    };
    let failed = Response::Packet(PacketStatus::Failed, 0, 0);
    assert_eq!(unattached.request(&get(10)), failed);
    let mut viewer = Viewer::attached(Seek::Beginning, &world);
    // No packet has been given before the first index.
    assert_eq!(viewer.request(&get(10)), failed);
    viewer.next_index(&stream);
    assert_eq!(
        viewer.request(&get(4096)),
        Response::Packet(PacketStatus::Ok, 4096, 0)
    );
    for len in [0, 4097, u32::MAX] {
        assert_eq!(viewer.request(&get(len)), failed);
    }
    let not_packets = Data {
        id: metadata.id,
        ..Data::default()
    };
    assert_eq!(viewer.next_index(&not_packets).status, IndexStatus::HungUp);
    let not_metadata = Letters {
        id: stream.id,
        ..Letters::default()
    };
    assert_eq!(viewer.metadata(&not_metadata).1, MetadataStatus::Failed);
}

#[test]
fn invalid_first_command_closes_the_connection_without_a_reply() {
    let hello = |major: u32, kind: u32| {
        let mut payload = vec![0xff; 8];
        [major, 4, kind]
            .iter()
            .for_each(|word| word.write(&mut payload));
        raw_command(1, 20, &payload)
    };
    for (case, bytes) in [
        ("not CONNECT", raw_command(2, 0, &[])),
        ("major 3", hello(3, 1)),
        ("no such kind", hello(2, 7)),
    ] {
        let mut viewer = Viewer {
            world: world(),
            client: Client::new(Minor(4)),
            connection: Connection::default(),
            waits: 0,
        };
        assert!(viewer.send(&bytes).is_err(), "{case}");
    }
}

#[test]
fn command_sizes_of_old_viewers_are_accepted_and_wrong_ones_rejected() {
    let world = world();
    for (case, bytes, is_accepted) in [
        (
            "host order",
            raw_command(4, 8u64.swap_bytes(), &[0; 8]),
            true,
        ),
        ("more than needed", raw_command(4, 4096, &[0; 4096]), true),
        ("far more", raw_command(4, 4097, &[0; 8]), false),
        ("less", raw_command(4, 7, &[0; 7]), false),
        (
            "of a command without payload",
            raw_command(2, u64::MAX, &[]),
            true,
        ),
        ("unknown command", raw_command(99, 0, &[]), false),
    ] {
        let mut viewer = Viewer::connected(4, &world);
        let outcome = viewer.send(&bytes);
        assert_eq!(outcome.is_ok(), is_accepted, "{case}: {outcome:?}");
        if is_accepted {
            assert!(!viewer.connection.in_command(&[]), "{case}");
            viewer.request(&Command::ListSessions);
        }
    }
}

proptest! {
    #[test]
    fn server_survives_any_commands(
        commands in prop::collection::vec(
            (0..11u32, any::<u64>(), prop::collection::vec(any::<u8>(), 0..40)), 0..20),
    ) {
        let world = world();
        world.stream().push(1, 2);
        let mut viewer = Viewer::attached(Seek::Beginning, &world);
        for (code, size, payload) in commands {
            let size = if size % 2 == 0 { payload.len() as u64 } else { size };
            if viewer.send(&raw_command(code, size, &payload)).is_err() {
                break;
            }
        }
    }

    #[test]
    fn listed_sessions_decode_to_what_was_encoded(
        names in prop::collection::vec(("[a-z]{0,63}", "[a-zA-Z0-9-]{0,254}"), 1..5),
        minor in prop::sample::select(vec![4u32, 15]),
    ) {
        let sessions: Vec<_> = names.iter().map(|(host, name)| ListedSession {
            session: SessionId(9),
            live_timer: Micros(5),
            viewers: 1,
            streams: 2,
            host: Text::from(host.as_str()),
            name: Text::from(name.as_str()),
            trace_format: TraceFormat::Ctf1,
        }).collect();
        let mut bytes = Vec::new();
        sessions.iter().for_each(|session| session.write(Minor(minor), &mut bytes));
        let mut input = &bytes[..];
        for session in sessions {
            prop_assert_eq!(ListedSession::read(Minor(minor), &mut input), Ok(session));
        }
        prop_assert!(input.is_empty());
    }
}

#[test]
fn every_command_encodes_to_its_declared_size() {
    for &code in CommandCode::ALL {
        let mut bytes = Vec::new();
        let payload = vec![0; code.size()];
        let command = Command::decode(code, &payload).unwrap();
        assert_eq!(command.code(), code);
        command.encode(&mut bytes);
        assert_eq!(bytes.len(), CommandHeader::SIZE + code.size());
    }
}
