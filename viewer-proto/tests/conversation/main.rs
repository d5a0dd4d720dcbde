//! A relay's end of a viewer connection in front of a relay in memory: what viewers rely on holds
//! whatever the relay's state is and whatever the viewer sends.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test stops at what it did not expect"
)]

#[path = "../fake/mod.rs"]
mod fake;
mod rejected;
mod viewer;

use bytes::BytesMut;
use fake::{Fake, SESSION, world};
use viewer::{Response, Viewer};
use viewer_proto::Command;
use viewer_proto::index::{IndexStatus, NEW_METADATA, NEW_STREAMS, NextIndex};
use viewer_proto::metadata::MetadataStatus;
use viewer_proto::packet::{GetPacket, PacketStatus};
use viewer_proto::server::{Change, Progress};
use viewer_proto::session::{AttachStatus, DetachStatus, Seek};
use viewer_proto::stream::NewStreamsStatus;
use wire::{Bits, Bytes, ClassId, Field, StreamId, Timestamp};

#[test]
fn packets_are_given_once_and_in_order_before_hang_up() {
    let world = world();
    let stream = world.stream();
    stream.push(10, 20);
    stream.push(20, 30);
    let mut viewer = Viewer::attached(Seek::Beginning, &world);
    let first = viewer.next_index(&stream);
    assert_eq!((first.status, first.offset), (IndexStatus::Ready, Bytes(0)));
    stream.over.set(true);
    let second = viewer.next_index(&stream);
    assert_eq!(
        (second.status, second.offset),
        (IndexStatus::Ready, Bytes(4096))
    );
    assert_eq!(viewer.next_index(&stream).status, IndexStatus::HungUp);
    assert_eq!(viewer.next_index(&stream).status, IndexStatus::Failed);
}

#[test]
fn pipelined_commands_get_the_same_replies_as_single_ones() {
    let world = world();
    let stream = world.stream();
    let metadata = world.metadata(b"text");
    (1..9).for_each(|number| stream.push(number * 10, number * 10 + 10));
    stream.over.set(true);
    // More indexes than packets: the packets are available after the end of the stream was
    // reported.
    let mut commands = vec![Command::GetNextIndex(StreamId(stream.id)); 10];
    commands.push(Command::GetMetadata(StreamId(metadata.id)));
    commands.extend((0..9).map(|number| {
        Command::GetPacket(GetPacket {
            stream: StreamId(stream.id),
            offset: Bytes(number * 4096),
            len: 4096,
        })
    }));
    let mut viewer = Viewer::attached(Seek::Beginning, &world);
    let (mut expected, mut all) = (BytesMut::new(), Vec::new());
    for command in &commands {
        let mut bytes = Vec::new();
        command.encode(&mut bytes);
        expected.extend_from_slice(&viewer.send(&bytes).unwrap());
        all.extend(bytes);
    }
    assert!(expected.len() > 8 * 4096);
    let mut viewer = Viewer::attached(Seek::Beginning, &world);
    assert_eq!(viewer.send(&all).unwrap(), expected);
}

#[test]
fn two_viewers_of_one_session_both_get_all_packets() {
    let world = world();
    let stream = world.stream();
    stream.push(10, 20);
    stream.push(20, 30);
    let mut viewers = [(); 2].map(|()| Viewer::attached(Seek::Beginning, &world));
    let Response::Sessions(listed) = viewers[0].request(&Command::ListSessions) else {
        panic!("no list")
    };
    assert_eq!(listed[0].viewers, 2);
    for _ in 0..2 {
        for viewer in &mut viewers {
            assert_eq!(viewer.next_index(&stream).status, IndexStatus::Ready);
        }
    }
    drop(viewers);
    assert_eq!(world.viewers.get(), 0);
}

#[test]
fn seek_last_skips_existing_packets_but_not_those_of_later_streams() {
    let world = world();
    let old = world.stream();
    old.push(10, 20);
    let mut viewer = Viewer::attached(Seek::Last, &world);
    assert_eq!(viewer.next_index(&old).status, IndexStatus::Retry);
    let new = world.stream();
    new.push(15, 25);
    assert_eq!(viewer.new_streams(), (NewStreamsStatus::Ok, vec![2]));
    assert_eq!(viewer.next_index(&new).status, IndexStatus::Ready);
}

#[test]
fn a_reply_waits_once_for_a_packet_that_is_arriving_after_the_viewer_was_told_to_retry() {
    let world = world();
    let stream = world.stream();
    stream.arriving.set(true);
    let mut viewer = Viewer::attached(Seek::Beginning, &world);
    let mut next = || (viewer.next_index(&stream).status, viewer.waits);
    assert_eq!(next(), (IndexStatus::Retry, 0));
    assert_eq!(next(), (IndexStatus::Retry, 1));
    assert_eq!(next(), (IndexStatus::Retry, 1));
    stream.push(10, 20);
    assert_eq!(next(), (IndexStatus::Ready, 1));
    assert_eq!(next(), (IndexStatus::Retry, 1));
    stream.arriving.set(false);
    assert_eq!(next(), (IndexStatus::Retry, 1));
    stream.arriving.set(true);
    stream.push(20, 30);
    assert_eq!(next(), (IndexStatus::Ready, 1));
    assert_eq!(next(), (IndexStatus::Retry, 1));
    assert_eq!(next(), (IndexStatus::Retry, 2));
    assert!(world.subscriptions.borrow().is_empty());
}

#[test]
fn the_packet_that_a_reply_waits_for_is_given_when_it_has_come() {
    let world = world();
    let stream = world.stream();
    let mut viewer = Viewer::attached(Seek::Beginning, &world);
    assert_eq!(viewer.next_index(&stream).status, IndexStatus::Retry);
    stream.arriving.set(true);
    let command = Command::GetNextIndex(StreamId(stream.id));
    let mut once = Vec::new();
    command.encode(&mut once);
    // Several commands at once are answered at once.
    assert_eq!(viewer.send(&once.repeat(2)).unwrap().len(), 2 * 64);
    assert_eq!(viewer.waits, 1, "only the last one may wait");
    stream.push(10, 20);
    assert_eq!(viewer.next_index(&stream).status, IndexStatus::Ready);
    assert_eq!(viewer.next_index(&stream).status, IndexStatus::Retry);
    let (relay, mut input, mut replies) = (Fake(world), &once[..], BytesMut::new());
    let mut advance = || viewer.connection.advance(&mut input, &relay, &mut replies);
    assert!(matches!(advance(), Ok(Progress::PacketArriving)));
    let subscribed = Change::Stream(StreamId(stream.id));
    assert!(relay.0.subscriptions.borrow().contains(&subscribed));
    stream.push(20, 30);
    assert!(matches!(advance(), Ok(Progress::Advanced)));
    assert!(relay.0.subscriptions.borrow().is_empty());
    assert!(input.is_empty());
    assert_eq!(
        IndexStatus::read(&mut &replies[56..]),
        Ok(IndexStatus::Ready)
    );
}

#[test]
fn watermark_of_a_stream_never_decreases() {
    let world = world();
    let stream = world.stream();
    stream.push(10, 20);
    let mut viewer = Viewer::attached(Seek::Beginning, &world);
    stream.beacon.set(Some(5));
    assert_eq!(viewer.next_index(&stream).status, IndexStatus::Ready);
    // The beacon is before the end of the packet.
    assert_eq!(viewer.next_index(&stream).status, IndexStatus::Retry);
    stream.beacon.set(Some(25));
    let inactive = NextIndex::inactive(Timestamp(25), ClassId(0), 0);
    assert_eq!(viewer.next_index(&stream), inactive);
    assert_eq!(viewer.next_index(&stream), inactive);
    stream.beacon.set(Some(24));
    assert_eq!(viewer.next_index(&stream).status, IndexStatus::Retry);
}

#[test]
fn stream_without_packets_is_inactive_from_its_first_beacon() {
    let world = world();
    let stream = world.stream();
    let mut viewer = Viewer::attached(Seek::Beginning, &world);
    stream.class.set(None);
    assert_eq!(viewer.next_index(&stream).status, IndexStatus::Retry);
    stream.class.set(Some(3));
    stream.beacon.set(Some(7));
    assert_eq!(
        viewer.next_index(&stream),
        NextIndex::inactive(Timestamp(7), ClassId(3), 0)
    );
}

#[test]
fn new_streams_are_hinted_at_once_and_flagged_until_fetched() {
    let world = world();
    let idle = world.stream();
    let mut viewer = Viewer::attached(Seek::Beginning, &world);
    idle.beacon.set(Some(50));
    assert_eq!(viewer.next_index(&idle).status, IndexStatus::Inactive);
    let late = world.stream();
    late.push(60, 70);
    idle.beacon.set(Some(90));
    let hint = viewer.next_index(&idle);
    assert_eq!((hint.status, hint.flags), (IndexStatus::Ready, NEW_STREAMS));
    assert_eq!(
        (hint.packet.packet_size, hint.packet.class),
        (Bits(0), ClassId(0))
    );
    // The watermark is held until the streams are announced: the beacon is later than their first
    // packet.
    let held = NextIndex::inactive(Timestamp(50), ClassId(0), NEW_STREAMS);
    assert_eq!(viewer.next_index(&idle), held);
    assert_eq!(viewer.new_streams(), (NewStreamsStatus::Ok, vec![2]));
    assert_eq!(
        viewer.next_index(&idle),
        NextIndex::inactive(Timestamp(90), ClassId(0), 0)
    );
    assert_eq!(viewer.next_index(&late).status, IndexStatus::Ready);
}

#[test]
fn viewer_that_lists_sessions_first_gets_no_empty_index_as_a_hint() {
    let world = world();
    let idle = world.stream();
    let mut viewer = Viewer::attached_after_list(&world);
    world.stream();
    assert_eq!(
        viewer.next_index(&idle),
        NextIndex::without_packet(IndexStatus::Retry, NEW_STREAMS)
    );
}

#[test]
fn new_metadata_is_flagged_until_it_is_fetched() {
    let world = world();
    let stream = world.stream();
    let metadata = world.metadata(b"first");
    let mut viewer = Viewer::attached(Seek::Beginning, &world);
    assert_eq!(viewer.next_index(&stream).flags, NEW_METADATA);
    assert_eq!(
        viewer.metadata(&metadata),
        (b"first".to_vec(), MetadataStatus::NoNew)
    );
    assert_eq!(viewer.next_index(&stream).flags, 0);
    metadata.bytes.borrow_mut().extend_from_slice(b", more");
    stream.push(10, 20);
    assert_eq!(viewer.next_index(&stream).flags, NEW_METADATA);
    assert_eq!(
        viewer.metadata(&metadata),
        (b", more".to_vec(), MetadataStatus::NoNew)
    );
    // The end is reported in two steps: first no metadata now, then none ever.
    metadata.over.set(true);
    assert_eq!(viewer.metadata(&metadata).1, MetadataStatus::NoNew);
    assert_eq!(viewer.metadata(&metadata).1, MetadataStatus::Failed);
}

#[test]
fn viewer_that_lists_sessions_first_is_refused_a_packet_once_while_metadata_is_flagged() {
    let world = world();
    let stream = world.stream();
    let metadata = world.metadata(b"first");
    let ask = Command::GetPacket(GetPacket {
        stream: StreamId(stream.id),
        offset: Bytes(0),
        len: 4096,
    });
    let refused = Response::Packet(PacketStatus::Failed, 0, NEW_METADATA);
    let given = Response::Packet(PacketStatus::Ok, 4096, 0);
    for number in 0..4 {
        stream.push(number * 10, number * 10 + 10);
    }
    let mut viewer = Viewer::attached_after_list(&world);
    // It reads no metadata, and may not need it.
    assert_eq!(viewer.next_index(&stream).flags, NEW_METADATA);
    assert_eq!(viewer.request(&ask), given);
    viewer.metadata(&metadata);
    metadata.bytes.borrow_mut().extend_from_slice(b", more");
    assert_eq!(viewer.next_index(&stream).flags, NEW_METADATA);
    assert_eq!(viewer.request(&ask), refused);
    // It insists.
    assert_eq!(viewer.request(&ask), given);
    // It has fetched the metadata between the index and the packet, and before the index.
    assert_eq!(viewer.next_index(&stream).flags, NEW_METADATA);
    viewer.metadata(&metadata);
    assert_eq!(viewer.request(&ask), given);
    assert_eq!(viewer.next_index(&stream).flags, 0);
    assert_eq!(viewer.request(&ask), given);
    // Others do not overlook the flag, or have requested the packet together with the index.
    let mut other = Viewer::attached(Seek::Beginning, &world);
    other.metadata(&metadata);
    metadata.bytes.borrow_mut().extend_from_slice(b", more");
    assert_eq!(other.next_index(&stream).flags, NEW_METADATA);
    assert_eq!(other.request(&ask), given);
}

#[test]
fn end_of_a_session_is_reported_after_the_end_of_its_streams() {
    let world = world();
    let stream = world.stream();
    stream.push(10, 20);
    let mut viewer = Viewer::attached(Seek::Beginning, &world);
    world.gone.set(true);
    stream.over.set(true);
    assert_eq!(viewer.new_streams(), (NewStreamsStatus::Ok, vec![]));
    assert_eq!(viewer.next_index(&stream).status, IndexStatus::Ready);
    assert_eq!(viewer.new_streams(), (NewStreamsStatus::Ok, vec![]));
    assert_eq!(viewer.next_index(&stream).status, IndexStatus::HungUp);
    assert_eq!(viewer.new_streams(), (NewStreamsStatus::HungUp, vec![]));
    let detach = Command::DetachSession(SESSION);
    assert_eq!(
        viewer.request(&detach),
        Response::Detached(DetachStatus::Ok)
    );
    assert_eq!(
        viewer.request(&detach),
        Response::Detached(DetachStatus::Unknown)
    );
}

#[test]
fn stream_that_has_ended_before_it_was_announced_is_still_announced() {
    let world = world();
    let mut viewer = Viewer::attached(Seek::Last, &world);
    let brief = world.stream();
    brief.push(10, 20);
    brief.over.set(true);
    world.gone.set(true);
    assert_eq!(viewer.new_streams(), (NewStreamsStatus::Ok, vec![1]));
    assert_eq!(viewer.next_index(&brief).status, IndexStatus::Ready);
    assert_eq!(viewer.next_index(&brief).status, IndexStatus::HungUp);
    assert_eq!(viewer.new_streams(), (NewStreamsStatus::HungUp, vec![]));
}

#[test]
fn rotation_delays_streams_and_packets_until_it_is_complete() {
    let world = world();
    let stream = world.stream();
    stream.push(10, 20);
    world.rotating.set(true);
    let mut viewer = Viewer::connected(4, &world);
    viewer.request(&Command::CreateViewerSession);
    assert_eq!(
        viewer.attach(1),
        Response::Attached(AttachStatus::Ok, vec![])
    );
    assert_eq!(viewer.new_streams(), (NewStreamsStatus::NoNew, vec![]));
    world.rotating.set(false);
    assert_eq!(viewer.new_streams(), (NewStreamsStatus::Ok, vec![1]));
    world.rotating.set(true);
    assert_eq!(viewer.next_index(&stream).status, IndexStatus::Retry);
    world.rotating.set(false);
    assert_eq!(viewer.next_index(&stream).status, IndexStatus::Ready);
}
