//! Push connections. Here: which notifications a relay sends to a viewer, and when. `client`: the
//! viewer's end, and the bytes of all messages.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops at what it did not expect"
)]

mod client;
#[path = "../fake/mod.rs"]
mod fake;

use std::rc::Rc;

use bytes::BytesMut;
use client::greeted_client;
use fake::{Data, Fake, SESSION, World, world};
use viewer_proto::Command;
use viewer_proto::beacon_interest::BeaconInterest;
use viewer_proto::index::IndexStatus;
use viewer_proto::push::{MetadataAvailable, Notification, PacketsAvailable, PushClient, Quiet};
use viewer_proto::server::{Change, Connection, Progress};
use viewer_proto::session::{AttachSession, Seek};
use viewer_proto::version::{Connect, ConnectionKind};
use wire::{Field, StreamId, Timestamp, TraceId, ViewerId};

/// A viewer's command connection, attached to the session, with its push connection.
struct PushedViewer {
    world: Rc<World>,
    connection: Connection<Fake>,
    client: PushClient,
}

impl PushedViewer {
    fn attached(world: &Rc<World>) -> Self {
        let mut viewer = Self {
            world: Rc::clone(world),
            connection: Connection::default(),
            client: greeted_client(),
        };
        viewer.request(&Command::Connect(Connect {
            viewer: None,
            major: 2,
            minor: 15,
            kind: ConnectionKind::Command.code(),
        }));
        viewer.request(&Command::CreateViewerSession);
        viewer.request(&Command::AttachSession(AttachSession {
            session: SESSION,
            offset: 0,
            seek: Seek::Beginning.code(),
        }));
        viewer.connection.subscribe(&Fake(Rc::clone(world)));
        viewer
    }

    /// The reply to a command.
    fn request(&mut self, command: &Command) -> BytesMut {
        let mut bytes = Vec::new();
        command.encode(&mut bytes);
        let mut input = &bytes[..];
        let mut replies = BytesMut::new();
        let relay = Fake(Rc::clone(&self.world));
        loop {
            let progress = self.connection.advance(&mut input, &relay, &mut replies);
            match progress.unwrap() {
                Progress::Advanced => {}
                Progress::NeedsMore => return replies,
                other => panic!("{other:?}"),
            }
        }
    }

    fn next_index(&mut self, stream: &Data) -> IndexStatus {
        let reply = self.request(&Command::GetNextIndex(StreamId(stream.id)));
        IndexStatus::read(&mut &reply[56..]).unwrap()
    }

    /// The viewer sends the message on its push connection.
    fn set_beacon_interest(&mut self, beacon_interest: BeaconInterest) {
        let relay = Fake(Rc::clone(&self.world));
        self.connection.set_beacon_interest(beacon_interest, &relay);
    }

    /// The notifications that are pushed after a change of this stream.
    fn notifications_of(&mut self, stream: &Data) -> Vec<Notification> {
        self.notifications(&change(stream))
    }

    /// The notifications that are pushed after these changes.
    fn notifications(&mut self, changes: &[Change]) -> Vec<Notification> {
        for change in changes {
            assert!(
                self.world.subscriptions.borrow().contains(change),
                "{change:?} would not be reported"
            );
            self.connection.record_change(*change);
        }
        let mut pushed = BytesMut::new();
        self.connection.write_notifications(1 << 20, &mut pushed);
        self.client.extend(&pushed).map(Result::unwrap).collect()
    }
}

fn packets(stream: &Data, unread: u64) -> Notification {
    let stream = StreamId(stream.id);
    Notification::Packets(PacketsAvailable { stream, unread })
}

fn quiet(stream: &Data, until: u64) -> Notification {
    let (stream, until) = (StreamId(stream.id), Timestamp(until));
    Notification::Quiet(Quiet { stream, until })
}

fn change(stream: &Data) -> [Change; 1] {
    [Change::Stream(StreamId(stream.id))]
}

#[test]
fn new_push_connection_is_notified_of_everything_once() {
    let world = world();
    let stream = world.stream();
    stream.push(10, 20);
    let metadata = world.metadata(b"text");
    let waits = MetadataAvailable {
        stream: StreamId(metadata.id),
        trace: TraceId(1),
    };
    let mut viewer = PushedViewer::attached(&world);
    let received = viewer.notifications(&[]);
    assert_eq!(received[0], Notification::Sessions);
    assert!(received.contains(&packets(&stream, 1)), "{received:?}");
    assert!(
        received.contains(&Notification::Metadata(waits)),
        "{received:?}"
    );
    assert_eq!(received.len(), 3);
    assert_eq!(viewer.notifications_of(&stream), []);
    assert_eq!(
        viewer.notifications(&[Change::Sessions]),
        [Notification::Sessions]
    );
}

#[test]
fn packets_are_pushed_again_only_after_the_viewer_has_fetched_those_before() {
    let world = world();
    let stream = world.stream();
    let mut viewer = PushedViewer::attached(&world);
    viewer.notifications(&[]);
    for end in 1..100 {
        stream.push(end, end + 1);
        let received = viewer.notifications_of(&stream);
        assert_eq!(received.len(), usize::from(end == 1), "{received:?}");
    }
    // It was notified of one packet.
    assert_eq!(viewer.next_index(&stream), IndexStatus::Ready);
    assert_eq!(viewer.notifications(&[]), [packets(&stream, 98)]);
    for _ in 0..98 {
        assert_eq!(viewer.notifications(&[]), []);
        assert_eq!(viewer.next_index(&stream), IndexStatus::Ready);
    }
    assert_eq!(viewer.notifications_of(&stream), []);
    stream.push(100, 101);
    assert_eq!(viewer.notifications_of(&stream), [packets(&stream, 1)]);
}

#[test]
fn beacons_are_pushed_after_the_packets_and_never_decrease() {
    let world = world();
    let stream = world.stream();
    let mut viewer = PushedViewer::attached(&world);
    viewer.notifications(&[]);
    stream.beacon.set(Some(10));
    assert_eq!(viewer.notifications_of(&stream), [quiet(&stream, 10)]);
    for back in [10, 9] {
        stream.beacon.set(Some(back));
        assert_eq!(viewer.notifications_of(&stream), []);
    }
    stream.push(12, 20);
    stream.beacon.set(Some(30));
    assert_eq!(viewer.notifications_of(&stream), [packets(&stream, 1)]);
    assert_eq!(viewer.next_index(&stream), IndexStatus::Ready);
    assert_eq!(viewer.notifications(&[]), [quiet(&stream, 30)]);
    // Replies keep to the watermark that was pushed.
    stream.beacon.set(Some(25));
    assert_eq!(viewer.next_index(&stream), IndexStatus::Retry);
    stream.beacon.set(Some(30));
    assert_eq!(viewer.next_index(&stream), IndexStatus::Inactive);
    // A beacon that was replied is not pushed.
    stream.beacon.set(Some(40));
    assert_eq!(viewer.next_index(&stream), IndexStatus::Inactive);
    assert_eq!(viewer.notifications_of(&stream), []);
}

#[test]
fn beacons_are_not_pushed_until_new_streams_are_fetched() {
    let world = world();
    let old = world.stream();
    let mut viewer = PushedViewer::attached(&world);
    viewer.notifications(&[]);
    let new = world.stream();
    old.beacon.set(Some(50));
    let session = Change::Session(SESSION);
    assert_eq!(
        viewer.notifications(&[session, change(&old)[0]]),
        [Notification::NewStreams(SESSION)]
    );
    assert_eq!(viewer.notifications(&[session, change(&old)[0]]), []);
    viewer.request(&Command::GetNewStreams(SESSION));
    new.push(40, 60);
    let received = viewer.notifications(&[]);
    assert!(received.contains(&quiet(&old, 50)), "{received:?}");
    assert!(received.contains(&packets(&new, 1)), "{received:?}");
    assert_eq!(received.len(), 2);
    world.stream();
    let announced = [Notification::NewStreams(SESSION)];
    assert_eq!(viewer.notifications(&[session]), announced);
}

#[test]
fn withheld_packets_are_pushed_again_when_the_session_changes() {
    let world = world();
    let stream = world.stream();
    let mut viewer = PushedViewer::attached(&world);
    viewer.notifications(&[]);
    let session = [Change::Session(SESSION)];
    stream.push(0, 10);
    assert_eq!(viewer.notifications_of(&stream), [packets(&stream, 1)]);
    stream.withheld_from.set(Some(0));
    assert_eq!(viewer.next_index(&stream), IndexStatus::Retry);
    assert_eq!(viewer.notifications_of(&stream), []);
    assert_eq!(viewer.notifications(&session), []);
    stream.withheld_from.set(None);
    assert_eq!(viewer.notifications(&session), [packets(&stream, 1)]);
    assert_eq!(viewer.notifications(&session), []);
    assert_eq!(viewer.next_index(&stream), IndexStatus::Ready);
    // The packets are available again before the session change has been handled.
    stream.push(10, 20);
    assert_eq!(viewer.notifications_of(&stream), [packets(&stream, 1)]);
    stream.withheld_from.set(Some(1));
    assert_eq!(viewer.next_index(&stream), IndexStatus::Retry);
    stream.withheld_from.set(None);
    assert_eq!(viewer.notifications(&[]), [packets(&stream, 1)]);
    assert_eq!(viewer.next_index(&stream), IndexStatus::Ready);
}

#[test]
fn packets_requested_during_a_rotation_are_pushed_again_after_it() {
    let world = world();
    let stream = world.stream();
    let mut viewer = PushedViewer::attached(&world);
    viewer.notifications(&[]);
    stream.push(0, 10);
    assert_eq!(viewer.notifications_of(&stream), [packets(&stream, 1)]);
    world.rotating.set(true);
    assert_eq!(viewer.next_index(&stream), IndexStatus::Retry);
    assert_eq!(viewer.notifications(&[]), []);
    world.rotating.set(false);
    assert_eq!(viewer.notifications(&[]), [packets(&stream, 1)]);
}

#[test]
fn metadata_is_pushed_again_after_the_viewer_has_fetched_all() {
    let world = world();
    let metadata = world.metadata(b"01234567");
    let mut viewer = PushedViewer::attached(&world);
    assert_eq!(viewer.notifications(&[]).len(), 2);
    let id = StreamId(metadata.id);
    let changed = [Change::Stream(id)];
    // In pieces of four bytes.
    viewer.request(&Command::GetMetadata(id));
    assert_eq!(viewer.notifications(&changed), []);
    viewer.request(&Command::GetMetadata(id));
    metadata.bytes.borrow_mut().extend(b"89");
    // The viewer will ask again, because it has not been answered that there is no more.
    assert_eq!(viewer.notifications(&changed), []);
    viewer.request(&Command::GetMetadata(id));
    viewer.request(&Command::GetMetadata(id));
    assert_eq!(viewer.notifications(&changed), []);
    metadata.bytes.borrow_mut().extend(b"ab");
    assert_eq!(viewer.notifications(&changed).len(), 1);
    assert_eq!(viewer.notifications(&changed), []);
}

#[test]
fn end_of_a_stream_is_pushed_once_and_after_its_packets() {
    let world = world();
    let stream = world.stream();
    stream.push(10, 20);
    let mut viewer = PushedViewer::attached(&world);
    viewer.notifications(&[]);
    world.gone.set(true);
    stream.over.set(true);
    let all = [Change::Session(SESSION), change(&stream)[0]];
    assert_eq!(
        viewer.notifications(&all),
        [Notification::SessionOver(SESSION)]
    );
    assert_eq!(viewer.next_index(&stream), IndexStatus::Ready);
    let over = Notification::StreamOver(StreamId(stream.id));
    assert_eq!(viewer.notifications(&[]), [over]);
    assert_eq!(viewer.notifications(&all), []);
    // Requesting the index of the stream is not needed, but allowed.
    let reply = viewer.request(&Command::GetNewStreams(SESSION));
    assert_eq!(reply[..4], [0, 0, 0, 4]);
    assert_eq!(viewer.next_index(&stream), IndexStatus::HungUp);
    assert_eq!(viewer.notifications(&[]), []);
}

#[test]
fn packets_are_pushed_after_a_rotation_is_complete() {
    let world = world();
    let stream = world.stream();
    let mut viewer = PushedViewer::attached(&world);
    viewer.notifications(&[]);
    assert!(!viewer.connection.awaits_rotation());
    world.rotating.set(true);
    stream.push(10, 20);
    assert_eq!(viewer.notifications_of(&stream), []);
    assert!(viewer.connection.awaits_rotation());
    world.rotating.set(false);
    assert_eq!(viewer.notifications(&[]), [packets(&stream, 1)]);
    assert!(!viewer.connection.awaits_rotation());
}

#[test]
fn notifications_beyond_the_size_limit_are_written_by_the_next_call() {
    let world = world();
    let streams: Vec<_> = (0..10).map(|_| world.stream()).collect();
    let mut viewer = PushedViewer::attached(&world);
    viewer.notifications(&[]);
    for stream in &streams {
        stream.beacon.set(Some(10));
        viewer.connection.record_change(change(stream)[0]);
    }
    let mut received = 0;
    for _ in 0..5 {
        let mut pushed = BytesMut::new();
        // Room for two notifications.
        viewer.connection.write_notifications(30, &mut pushed);
        assert_eq!(pushed.len(), 48);
        received += viewer.client.extend(&pushed).count();
    }
    assert_eq!(received, 10);
    assert_eq!(viewer.notifications(&[]), []);
}

#[test]
fn unsubscribed_viewer_gets_no_beacons_until_it_subscribes_again() {
    let world = world();
    let (idle, busy, later) = (world.stream(), world.stream(), world.stream());
    let mut viewer = PushedViewer::attached(&world);
    viewer.notifications(&[]);
    assert!(world.wants_beacons.get());
    viewer.set_beacon_interest(BeaconInterest::Unsubscribed);
    assert!(!world.wants_beacons.get());
    idle.beacon.set(Some(10));
    later.beacon.set(Some(20));
    // A change that is reported all the same is not pushed.
    assert_eq!(viewer.notifications_of(&idle), []);
    busy.push(10, 20);
    assert_eq!(viewer.notifications_of(&busy), [packets(&busy, 1)]);
    assert_eq!(viewer.next_index(&busy), IndexStatus::Ready);
    busy.beacon.set(Some(30));
    assert_eq!(viewer.notifications(&[]), []);
    // None of the beacons was reported as a change, and all of them are pushed.
    viewer.set_beacon_interest(BeaconInterest::Subscribed);
    assert!(world.wants_beacons.get());
    let mut received = viewer.notifications(&[]);
    received.sort_by_key(|notification| match notification {
        Notification::Quiet(Quiet { until, .. }) => until.0,
        other => panic!("{other:?}"),
    });
    let expected = [quiet(&idle, 10), quiet(&later, 20), quiet(&busy, 30)];
    assert_eq!(received, expected);
    viewer.set_beacon_interest(BeaconInterest::Subscribed);
    assert_eq!(viewer.notifications(&[]), []);
    idle.beacon.set(Some(40));
    assert_eq!(viewer.notifications_of(&idle), [quiet(&idle, 40)]);
    // The end of a stream is pushed to unsubscribed viewers too.
    viewer.set_beacon_interest(BeaconInterest::Unsubscribed);
    later.over.set(true);
    let over = Notification::StreamOver(StreamId(later.id));
    assert_eq!(viewer.notifications_of(&later), [over]);
}

#[test]
fn new_push_connection_is_subscribed_to_beacons() {
    let world = world();
    let stream = world.stream();
    let mut viewer = PushedViewer::attached(&world);
    viewer.notifications(&[]);
    viewer.set_beacon_interest(BeaconInterest::Unsubscribed);
    stream.beacon.set(Some(10));
    viewer.connection.subscribe(&Fake(Rc::clone(&world)));
    assert!(world.wants_beacons.get());
    assert!(viewer.notifications(&[]).contains(&quiet(&stream, 10)));
}

#[test]
fn viewer_that_subscribes_again_gets_no_beacons_until_new_streams_are_fetched() {
    let world = world();
    let old = world.stream();
    let mut viewer = PushedViewer::attached(&world);
    viewer.notifications(&[]);
    viewer.set_beacon_interest(BeaconInterest::Unsubscribed);
    world.stream();
    old.beacon.set(Some(50));
    viewer.set_beacon_interest(BeaconInterest::Subscribed);
    let session = Change::Session(SESSION);
    let announced = [Notification::NewStreams(SESSION)];
    assert_eq!(viewer.notifications(&[session]), announced);
    viewer.request(&Command::GetNewStreams(SESSION));
    assert_eq!(viewer.notifications(&[]), [quiet(&old, 50)]);
}

#[test]
fn unsubscribed_connection_is_reported_no_changes() {
    let world = world();
    world.stream();
    world.metadata(b"text");
    let mut viewer = PushedViewer::attached(&world);
    world.stream();
    viewer.request(&Command::GetNewStreams(SESSION));
    assert_eq!(world.subscriptions.borrow().len(), 5);
    viewer.connection.unsubscribe(&Fake(Rc::clone(&world)));
    assert_eq!(world.subscriptions.borrow().len(), 0);
    assert_eq!(viewer.notifications(&[]), []);
}

#[test]
fn viewer_with_a_push_connection_is_not_kept_waiting_for_a_packet() {
    let world = world();
    let stream = world.stream();
    let mut viewer = PushedViewer::attached(&world);
    stream.arriving.set(true);
    for _ in 0..2 {
        assert_eq!(viewer.next_index(&stream), IndexStatus::Retry);
    }
    let relay = Fake(Rc::clone(&world));
    viewer.connection.unsubscribe(&relay);
    let mut request = Vec::new();
    Command::GetNextIndex(StreamId(stream.id)).encode(&mut request);
    let (mut input, mut replies) = (&request[..], BytesMut::new());
    let waits = viewer.connection.advance(&mut input, &relay, &mut replies);
    assert!(matches!(waits, Ok(Progress::PacketArriving)));
    // A push connection that is opened meanwhile keeps its subscriptions.
    viewer.connection.subscribe(&relay);
    let answered = viewer.connection.advance(&mut input, &relay, &mut replies);
    assert!(matches!(answered, Ok(Progress::Advanced)));
    assert!(world.subscriptions.borrow().contains(&change(&stream)[0]));
}

#[test]
fn push_connection_must_name_a_viewer_and_have_no_other_command() {
    let hello = |viewer, first: bool| {
        let mut connection = Connection::<Fake>::default();
        let mut bytes = Vec::new();
        if !first {
            Command::Connect(Connect {
                viewer: None,
                major: 2,
                minor: 15,
                kind: 1,
            })
            .encode(&mut bytes);
        }
        Command::Connect(Connect {
            viewer,
            major: 2,
            minor: 15,
            kind: 2,
        })
        .encode(&mut bytes);
        let mut input = &bytes[..];
        let relay = Fake(world());
        let mut replies = BytesMut::new();
        if !first {
            let greeted = connection.advance(&mut input, &relay, &mut replies);
            assert!(matches!(greeted, Ok(Progress::Advanced)));
        }
        connection.advance(&mut input, &relay, &mut replies)
    };
    assert!(matches!(
        hello(Some(ViewerId(7)), true),
        Ok(Progress::Push(ViewerId(7)))
    ));
    assert!(hello(None, true).is_err());
    assert!(hello(Some(ViewerId(7)), false).is_err());
}
