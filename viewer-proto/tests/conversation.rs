//! A relay's end of a viewer's connection, before a relay made up in memory: what viewers rely on
//! holds whatever the relay's state and whatever the viewer sends.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test stops at what it did not expect"
)]

mod fake;

use std::cell::Cell;
use std::rc::Rc;

use bytes::BytesMut;
use fake::{Data, Fake, Letters, SESSION, World};
use proptest::prelude::*;
use viewer_proto::client::{Client, Head, Part};
use viewer_proto::command::CommandHeader;
use viewer_proto::error::ViewerError;
use viewer_proto::index::{IndexStatus, NEW_METADATA, NEW_STREAMS, NextIndex};
use viewer_proto::metadata::MetadataStatus;
use viewer_proto::packet::{GetPacket, PacketStatus};
use viewer_proto::server::{Connection, Progress};
use viewer_proto::session::{
    AttachSession, AttachStatus, CreateStatus, DetachStatus, ListedSession, Seek, TraceFormat,
};
use viewer_proto::stream::NewStreamsStatus;
use viewer_proto::{Command, CommandCode, Minor};
use wire::{
    Bits, Bytes, ClassId, Field, Micros, PacketIndex, SessionId, StreamId, Text, Timestamp,
};

fn packet(begin: u64, end: u64) -> PacketIndex {
    PacketIndex {
        packet_size: Bits(32768),
        content_size: Bits(672),
        begin: Timestamp(begin),
        end: Timestamp(end),
        events_discarded: 0,
        class: ClassId(0),
        instance: None,
        packet_seq: None,
    }
}

/// A viewer and the relay's end of its connection.
struct Viewer {
    world: Rc<World>,
    client: Client,
    connection: Connection<Fake>,
}

#[derive(Debug, PartialEq)]
enum Got {
    Index(NextIndex),
    Packet(PacketStatus, u32),
    Metadata(MetadataStatus, Vec<u8>),
    Streams(NewStreamsStatus, Vec<u64>),
    Attached(AttachStatus, Vec<u64>),
    Sessions(Vec<ListedSession>),
    Created(CreateStatus),
    Detached(DetachStatus),
}

impl Viewer {
    /// One that has introduced itself.
    fn of(minor: u32, world: &Rc<World>) -> Self {
        let client = Client::new(Minor(minor));
        let mut viewer = Self {
            world: Rc::clone(world),
            client,
            connection: Connection::default(),
        };
        let mut bytes = Vec::new();
        viewer
            .client
            .send(&viewer.client.connect_command(), &mut bytes)
            .unwrap();
        let replies = viewer.deliver(&bytes).unwrap();
        let mut input = &replies[..];
        while viewer.client.receive(&mut input).unwrap().is_some() {}
        assert!(input.is_empty());
        viewer
    }

    /// One that is attached to the session, as babeltrace2 does it.
    fn attached(seek: Seek, world: &Rc<World>) -> Self {
        let mut viewer = Self::of(4, world);
        viewer.ask(&Command::CreateViewerSession);
        viewer.ask(&Command::ListSessions);
        let Got::Attached(AttachStatus::Ok, _) = viewer.attach(seek.code()) else {
            panic!("not attached");
        };
        viewer
    }

    fn attach(&mut self, seek: u32) -> Got {
        self.ask(&Command::AttachSession(AttachSession {
            session: SESSION,
            offset: 0,
            seek,
        }))
    }

    fn deliver(&mut self, bytes: &[u8]) -> Result<BytesMut, ViewerError> {
        let relay = Fake(Rc::clone(&self.world));
        let mut replies = BytesMut::new();
        let mut input = bytes;
        loop {
            match self.connection.advance(&mut input, &relay, &mut replies)? {
                Progress::Advanced => {}
                Progress::Packet((_, len)) => replies.extend_from_slice(&vec![0xaa; len as usize]),
                Progress::Push(_) => panic!("not a command connection"),
                Progress::NeedsMore => return Ok(replies),
            }
        }
    }

    fn ask(&mut self, command: &Command) -> Got {
        let mut bytes = Vec::new();
        self.client.send(command, &mut bytes).unwrap();
        let replies = self.deliver(&bytes).unwrap();
        let mut input = &replies[..];
        let mut got = None;
        loop {
            match self.client.receive(&mut input).unwrap().unwrap() {
                Part::Head(Head::Connected { .. }) => panic!("not asked"),
                Part::Head(Head::Created(status)) => got = Some(Got::Created(status)),
                Part::Head(Head::Detached(status)) => got = Some(Got::Detached(status)),
                Part::Head(Head::Index(index)) => got = Some(Got::Index(index)),
                Part::Head(Head::Packet(head)) => got = Some(Got::Packet(head.status, head.len)),
                Part::Head(Head::Metadata(head)) => {
                    got = Some(Got::Metadata(head.status, Vec::new()))
                }
                Part::Head(Head::Sessions(_)) => got = Some(Got::Sessions(Vec::new())),
                Part::Head(Head::Attached(head)) => {
                    got = Some(Got::Attached(head.status, Vec::new()))
                }
                Part::Head(Head::NewStreams(head)) => {
                    got = Some(Got::Streams(head.status, Vec::new()))
                }
                Part::Session(session) => {
                    let Some(Got::Sessions(sessions)) = &mut got else {
                        panic!("not a list")
                    };
                    sessions.push(session);
                }
                Part::Stream(record) => {
                    let Some(Got::Attached(_, streams) | Got::Streams(_, streams)) = &mut got
                    else {
                        panic!("not a list")
                    };
                    streams.push(record.stream.0);
                }
                Part::Bytes(bytes) => {
                    if let Some(Got::Metadata(_, text)) = &mut got {
                        text.extend_from_slice(bytes);
                    }
                }
                Part::Done => break,
            }
        }
        assert!(input.is_empty());
        got.unwrap()
    }

    fn next(&mut self, stream: &Data) -> NextIndex {
        let Got::Index(index) = self.ask(&Command::GetNextIndex(StreamId(stream.id))) else {
            panic!("not an index")
        };
        index
    }

    fn new_streams(&mut self) -> Got {
        self.ask(&Command::GetNewStreams(SESSION))
    }

    /// All metadata that there is now, and how the last answer was.
    fn metadata(&mut self, stream: &Letters) -> (Vec<u8>, MetadataStatus) {
        let mut all = Vec::new();
        loop {
            match self.ask(&Command::GetMetadata(StreamId(stream.id))) {
                Got::Metadata(MetadataStatus::Ok, text) => {
                    assert!(!text.is_empty(), "viewers do not survive an empty answer");
                    all.extend_from_slice(&text);
                }
                Got::Metadata(status, _) => return (all, status),
                other => panic!("{other:?}"),
            }
        }
    }
}

fn world() -> Rc<World> {
    Rc::new(World {
        live: Cell::new(true),
        ..World::default()
    })
}

fn raw(code: u32, data_size: u64, payload: &[u8]) -> Vec<u8> {
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
fn packets_come_once_and_in_order_and_hang_up_comes_last() {
    let world = world();
    let stream = world.stream();
    stream
        .packets
        .borrow_mut()
        .extend([packet(10, 20), packet(20, 30)]);
    let mut viewer = Viewer::attached(Seek::Beginning, &world);
    let first = viewer.next(&stream);
    assert_eq!((first.status, first.offset), (IndexStatus::Ready, Bytes(0)));
    stream.over.set(true);
    let second = viewer.next(&stream);
    assert_eq!(
        (second.status, second.offset),
        (IndexStatus::Ready, Bytes(4096))
    );
    assert_eq!(viewer.next(&stream).status, IndexStatus::HungUp);
    assert_eq!(viewer.next(&stream).status, IndexStatus::Failed);
}

#[test]
fn what_is_asked_at_once_is_answered_as_one_by_one() {
    let world = world();
    let stream = world.stream();
    let metadata = world.metadata(b"text");
    let packets = (1..9).map(|number| packet(number * 10, number * 10 + 10));
    stream.packets.borrow_mut().extend(packets);
    stream.over.set(true);
    // Beyond the end of the stream: its packets can be had all the same.
    let mut asked = vec![Command::GetNextIndex(StreamId(stream.id)); 10];
    asked.push(Command::GetMetadata(StreamId(metadata.id)));
    asked.extend((0..9).map(|number| {
        Command::GetPacket(GetPacket {
            stream: StreamId(stream.id),
            offset: Bytes(number * 4096),
            len: 4096,
        })
    }));
    let mut viewer = Viewer::attached(Seek::Beginning, &world);
    let (mut wanted, mut all) = (BytesMut::new(), Vec::new());
    for command in &asked {
        let mut bytes = Vec::new();
        command.encode(&mut bytes);
        wanted.extend_from_slice(&viewer.deliver(&bytes).unwrap());
        all.extend(bytes);
    }
    assert!(wanted.len() > 8 * 4096);
    let mut viewer = Viewer::attached(Seek::Beginning, &world);
    assert_eq!(viewer.deliver(&all).unwrap(), wanted);
}

#[test]
fn two_viewers_of_one_session_both_see_everything() {
    let world = world();
    let stream = world.stream();
    stream
        .packets
        .borrow_mut()
        .extend([packet(10, 20), packet(20, 30)]);
    let mut viewers = [(); 2].map(|()| Viewer::attached(Seek::Beginning, &world));
    let Got::Sessions(listed) = viewers[0].ask(&Command::ListSessions) else {
        panic!("no list")
    };
    assert_eq!(listed[0].viewers, 2);
    for _ in 0..2 {
        for viewer in &mut viewers {
            assert_eq!(viewer.next(&stream).status, IndexStatus::Ready);
        }
    }
    drop(viewers);
    assert_eq!(world.viewers.get(), 0);
}

#[test]
fn seek_last_skips_what_was_there_but_not_in_later_streams() {
    let world = world();
    let old = world.stream();
    old.packets.borrow_mut().push(packet(10, 20));
    let mut viewer = Viewer::attached(Seek::Last, &world);
    assert_eq!(viewer.next(&old).status, IndexStatus::Retry);
    let new = world.stream();
    new.packets.borrow_mut().push(packet(15, 25));
    assert_eq!(
        viewer.new_streams(),
        Got::Streams(NewStreamsStatus::Ok, vec![2])
    );
    assert_eq!(viewer.next(&new).status, IndexStatus::Ready);
}

#[test]
fn time_never_goes_back_for_a_viewer() {
    let world = world();
    let stream = world.stream();
    stream.packets.borrow_mut().push(packet(10, 20));
    let mut viewer = Viewer::attached(Seek::Beginning, &world);
    stream.beacon.set(Some(5));
    assert_eq!(viewer.next(&stream).status, IndexStatus::Ready);
    // A beacon from before the end of the packet.
    assert_eq!(viewer.next(&stream).status, IndexStatus::Retry);
    stream.beacon.set(Some(25));
    let inactive = NextIndex::inactive(Timestamp(25), ClassId(0), 0);
    assert_eq!(viewer.next(&stream), inactive);
    assert_eq!(viewer.next(&stream), inactive);
    stream.beacon.set(Some(24));
    assert_eq!(viewer.next(&stream).status, IndexStatus::Retry);
}

#[test]
fn a_stream_without_events_is_inactive_from_its_first_beacon() {
    let world = world();
    let stream = world.stream();
    let mut viewer = Viewer::attached(Seek::Beginning, &world);
    stream.class.set(None);
    assert_eq!(viewer.next(&stream).status, IndexStatus::Retry);
    stream.class.set(Some(3));
    stream.beacon.set(Some(7));
    assert_eq!(
        viewer.next(&stream),
        NextIndex::inactive(Timestamp(7), ClassId(3), 0)
    );
}

#[test]
fn new_streams_are_hinted_at_once_and_flagged_until_fetched() {
    let world = world();
    let idle = world.stream();
    let mut viewer = Viewer::attached(Seek::Beginning, &world);
    idle.beacon.set(Some(50));
    assert_eq!(viewer.next(&idle).status, IndexStatus::Inactive);
    let late = world.stream();
    late.packets.borrow_mut().push(packet(60, 70));
    idle.beacon.set(Some(90));
    let hint = viewer.next(&idle);
    assert_eq!((hint.status, hint.flags), (IndexStatus::Ready, NEW_STREAMS));
    assert_eq!(
        (hint.packet.packet_size, hint.packet.class),
        (Bits(0), ClassId(0))
    );
    // Time stands still until the streams are known: the beacon lies behind their first packet.
    let frozen = NextIndex::inactive(Timestamp(50), ClassId(0), NEW_STREAMS);
    assert_eq!(viewer.next(&idle), frozen);
    assert_eq!(
        viewer.new_streams(),
        Got::Streams(NewStreamsStatus::Ok, vec![2])
    );
    assert_eq!(
        viewer.next(&idle),
        NextIndex::inactive(Timestamp(90), ClassId(0), 0)
    );
    assert_eq!(viewer.next(&late).status, IndexStatus::Ready);
}

#[test]
fn a_viewer_that_lists_first_is_never_given_an_empty_index() {
    let world = world();
    let idle = world.stream();
    let mut viewer = Viewer::of(4, &world);
    viewer.ask(&Command::ListSessions);
    viewer.ask(&Command::CreateViewerSession);
    viewer.attach(1);
    world.stream();
    assert_eq!(
        viewer.next(&idle),
        NextIndex::without_packet(IndexStatus::Retry, NEW_STREAMS)
    );
}

#[test]
fn new_metadata_is_flagged_exactly_while_there_is_some() {
    let world = world();
    let stream = world.stream();
    let metadata = world.metadata(b"first");
    let mut viewer = Viewer::attached(Seek::Beginning, &world);
    assert_eq!(viewer.next(&stream).flags, NEW_METADATA);
    assert_eq!(
        viewer.metadata(&metadata),
        (b"first".to_vec(), MetadataStatus::NoNew)
    );
    assert_eq!(viewer.next(&stream).flags, 0);
    metadata.bytes.borrow_mut().extend_from_slice(b", more");
    stream.packets.borrow_mut().push(packet(10, 20));
    assert_eq!(viewer.next(&stream).flags, NEW_METADATA);
    assert_eq!(
        viewer.metadata(&metadata),
        (b", more".to_vec(), MetadataStatus::NoNew)
    );
    // The end is told twice: first that there is nothing now, then that there never will be.
    metadata.over.set(true);
    assert_eq!(viewer.metadata(&metadata).1, MetadataStatus::NoNew);
    assert_eq!(viewer.metadata(&metadata).1, MetadataStatus::Failed);
}

#[test]
fn the_end_of_a_session_comes_after_all_its_streams() {
    let world = world();
    let stream = world.stream();
    stream.packets.borrow_mut().push(packet(10, 20));
    let mut viewer = Viewer::attached(Seek::Beginning, &world);
    world.gone.set(true);
    stream.over.set(true);
    assert_eq!(
        viewer.new_streams(),
        Got::Streams(NewStreamsStatus::Ok, vec![])
    );
    assert_eq!(viewer.next(&stream).status, IndexStatus::Ready);
    assert_eq!(
        viewer.new_streams(),
        Got::Streams(NewStreamsStatus::Ok, vec![])
    );
    assert_eq!(viewer.next(&stream).status, IndexStatus::HungUp);
    assert_eq!(
        viewer.new_streams(),
        Got::Streams(NewStreamsStatus::HungUp, vec![])
    );
    let detach = Command::DetachSession(SESSION);
    assert_eq!(viewer.ask(&detach), Got::Detached(DetachStatus::Ok));
    assert_eq!(viewer.ask(&detach), Got::Detached(DetachStatus::Unknown));
}

#[test]
fn a_stream_that_has_come_and_gone_is_still_announced() {
    let world = world();
    let mut viewer = Viewer::attached(Seek::Last, &world);
    let brief = world.stream();
    brief.packets.borrow_mut().push(packet(10, 20));
    brief.over.set(true);
    world.gone.set(true);
    assert_eq!(
        viewer.new_streams(),
        Got::Streams(NewStreamsStatus::Ok, vec![1])
    );
    assert_eq!(viewer.next(&brief).status, IndexStatus::Ready);
    assert_eq!(viewer.next(&brief).status, IndexStatus::HungUp);
    assert_eq!(
        viewer.new_streams(),
        Got::Streams(NewStreamsStatus::HungUp, vec![])
    );
}

#[test]
fn a_rotation_holds_everything_back() {
    let world = world();
    let stream = world.stream();
    stream.packets.borrow_mut().push(packet(10, 20));
    world.rotating.set(true);
    let mut viewer = Viewer::of(4, &world);
    viewer.ask(&Command::CreateViewerSession);
    assert_eq!(viewer.attach(1), Got::Attached(AttachStatus::Ok, vec![]));
    assert_eq!(
        viewer.new_streams(),
        Got::Streams(NewStreamsStatus::NoNew, vec![])
    );
    world.rotating.set(false);
    assert_eq!(
        viewer.new_streams(),
        Got::Streams(NewStreamsStatus::Ok, vec![1])
    );
    world.rotating.set(true);
    assert_eq!(viewer.next(&stream).status, IndexStatus::Retry);
    world.rotating.set(false);
    assert_eq!(viewer.next(&stream).status, IndexStatus::Ready);
}

#[test]
fn attaching_is_refused_before_anything_changes() {
    let world = world();
    let mut viewer = Viewer::of(4, &world);
    let refused = |status| Got::Attached(status, vec![]);
    assert_eq!(viewer.attach(1), refused(AttachStatus::NoViewerSession));
    viewer.ask(&Command::CreateViewerSession);
    for (set, status) in [
        ((&world.gone, true), AttachStatus::Unknown),
        ((&world.live, false), AttachStatus::NotLive),
        ((&world.ctf2, true), AttachStatus::Unknown),
    ] {
        let before = set.0.replace(set.1);
        assert_eq!(viewer.attach(1), refused(status));
        set.0.set(before);
    }
    assert_eq!(viewer.attach(0), refused(AttachStatus::SeekError));
    assert_eq!(world.viewers.get(), 0);
    assert_eq!(viewer.attach(1), refused(AttachStatus::Ok));
    assert_eq!(viewer.attach(1), refused(AttachStatus::Already));
    assert_eq!(world.viewers.get(), 1);
    // Creating once more forgets nothing.
    assert_eq!(
        viewer.ask(&Command::CreateViewerSession),
        Got::Created(CreateStatus::Ok)
    );
    assert_eq!(viewer.attach(1), refused(AttachStatus::Already));
}

#[test]
fn ctf2_is_hidden_from_viewers_that_cannot_be_told() {
    let world = world();
    world.ctf2.set(true);
    assert_eq!(
        Viewer::of(14, &world).ask(&Command::ListSessions),
        Got::Sessions(vec![])
    );
    let mut viewer = Viewer::of(15, &world);
    let Got::Sessions(listed) = viewer.ask(&Command::ListSessions) else {
        panic!("no list")
    };
    assert_eq!(listed[0].trace_format, TraceFormat::Ctf2);
    viewer.ask(&Command::CreateViewerSession);
    assert_eq!(viewer.attach(1), Got::Attached(AttachStatus::Ok, vec![]));
}

#[test]
fn a_viewer_reaches_nothing_that_it_is_not_attached_to() {
    let world = world();
    let stream = world.stream();
    let metadata = world.metadata(b"text");
    stream.packets.borrow_mut().push(packet(10, 20));
    let mut stranger = Viewer::of(4, &world);
    assert_eq!(
        stranger.next(&stream),
        NextIndex::without_packet(IndexStatus::Failed, 0)
    );
    assert_eq!(stranger.metadata(&metadata).1, MetadataStatus::Failed);
    assert_eq!(
        stranger.new_streams(),
        Got::Streams(NewStreamsStatus::Failed, vec![])
    );
    let get = |len| {
        Command::GetPacket(GetPacket {
            stream: StreamId(1),
            offset: Bytes(0),
            len,
        })
    };
    assert_eq!(stranger.ask(&get(10)), Got::Packet(PacketStatus::Failed, 0));
    let mut viewer = Viewer::attached(Seek::Beginning, &world);
    // Before the first index no byte has been given.
    assert_eq!(viewer.ask(&get(10)), Got::Packet(PacketStatus::Failed, 0));
    viewer.next(&stream);
    assert_eq!(viewer.ask(&get(4096)), Got::Packet(PacketStatus::Ok, 4096));
    for len in [0, 4097, u32::MAX] {
        assert_eq!(viewer.ask(&get(len)), Got::Packet(PacketStatus::Failed, 0));
    }
    assert_eq!(
        viewer
            .next(&Data {
                id: 2,
                ..Data::default()
            })
            .status,
        IndexStatus::HungUp
    );
    let wrong = Letters {
        id: 1,
        ..Letters::default()
    };
    assert_eq!(viewer.metadata(&wrong).1, MetadataStatus::Failed);
}

#[test]
fn bad_first_commands_end_the_connection_without_a_reply() {
    let hello = |major: u32, kind: u32| {
        let mut payload = vec![0xff; 8];
        [major, 4, kind]
            .iter()
            .for_each(|word| word.write(&mut payload));
        raw(1, 20, &payload)
    };
    for (case, bytes) in [
        ("not CONNECT", raw(2, 0, &[])),
        ("major 3", hello(3, 1)),
        ("no such kind", hello(2, 7)),
    ] {
        let mut viewer = Viewer {
            world: world(),
            client: Client::new(Minor(4)),
            connection: Connection::default(),
        };
        assert!(viewer.deliver(&bytes).is_err(), "{case}");
    }
}

#[test]
fn sizes_of_old_viewers_are_taken_and_wrong_ones_refused() {
    let world = world();
    for (case, bytes, goes_on) in [
        ("host order", raw(4, 8u64.swap_bytes(), &[0; 8]), true),
        ("more than needed", raw(4, 4096, &[0; 4096]), true),
        ("far more", raw(4, 4097, &[0; 8]), false),
        ("less", raw(4, 7, &[0; 7]), false),
        ("of a command without payload", raw(2, u64::MAX, &[]), true),
        ("unknown command", raw(99, 0, &[]), false),
    ] {
        let mut viewer = Viewer::of(4, &world);
        let outcome = viewer.deliver(&bytes);
        assert_eq!(outcome.is_ok(), goes_on, "{case}: {outcome:?}");
        if goes_on {
            assert!(!viewer.connection.in_command(&[]), "{case}");
            viewer.ask(&Command::ListSessions);
        }
    }
}

proptest! {
    #[test]
    fn nothing_a_viewer_sends_does_harm(
        commands in prop::collection::vec(
            (0..11u32, any::<u64>(), prop::collection::vec(any::<u8>(), 0..40)), 0..20),
    ) {
        let world = world();
        world.stream().packets.borrow_mut().push(packet(1, 2));
        let mut viewer = Viewer::attached(Seek::Beginning, &world);
        for (code, size, payload) in commands {
            let size = if size % 2 == 0 { payload.len() as u64 } else { size };
            if viewer.deliver(&raw(code, size, &payload)).is_err() {
                break;
            }
        }
    }

    #[test]
    fn what_a_relay_lists_is_what_a_viewer_reads(
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
fn every_command_has_its_size() {
    for &code in CommandCode::ALL {
        let mut bytes = Vec::new();
        let payload = vec![0; code.size()];
        let command = Command::decode(code, &payload).unwrap();
        assert_eq!(command.code(), code);
        command.encode(&mut bytes);
        assert_eq!(bytes.len(), CommandHeader::SIZE + code.size());
    }
}
