//! The push connection: its bytes, its client, and what a relay has to say to whom, when.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops at what it did not expect"
)]

mod fake;

use std::cell::Cell;
use std::rc::Rc;

use bytes::BytesMut;
use fake::{Data, Fake, SESSION, World};
use proptest::prelude::*;
use viewer_proto::Command;
use viewer_proto::beacon_interest::{BeaconInterest, BeaconInterestReader};
use viewer_proto::index::IndexStatus;
use viewer_proto::push::{
    Hello, MetadataAvailable, Notification, NotificationCode, PacketsAvailable, PushClient,
    PushError, Quiet, write_greeting,
};
use viewer_proto::server::{Change, Connection, Progress};
use viewer_proto::session::{AttachSession, Seek};
use viewer_proto::version::{Connect, ConnectionKind};
use wire::{
    Bits, ClassId, Field, PacketIndex, SessionId, StreamId, Timestamp, TraceId, ViewerId, hex,
};

const PUSH: &str = include_str!("data/push.hex");

const PACKETS: Notification = Notification::Packets(PacketsAvailable {
    stream: StreamId(4),
    unread: 2,
});

fn section(name: &str) -> Vec<u8> {
    hex::section(PUSH, name).unwrap()
}

fn every_notification() -> [(&'static str, Notification); 7] {
    let quiet = Quiet {
        stream: StreamId(4),
        until: Timestamp(0x013a_bf60_4348),
    };
    let metadata = MetadataAvailable {
        stream: StreamId(6),
        trace: TraceId(2),
    };
    [
        ("packets", PACKETS),
        ("quiet", Notification::Quiet(quiet)),
        ("stream-over", Notification::StreamOver(StreamId(4))),
        ("metadata", Notification::Metadata(metadata)),
        ("new-streams", Notification::NewStreams(SessionId(2))),
        ("session-over", Notification::SessionOver(SessionId(2))),
        ("sessions", Notification::Sessions),
    ]
}

fn written(notification: &Notification) -> Vec<u8> {
    let mut bytes = Vec::new();
    notification.encode(&mut bytes);
    bytes
}

/// A client to which the relay has introduced itself.
fn welcomed() -> PushClient {
    let mut listener = PushClient::default();
    let hello: Vec<_> = listener.extend(&section("welcome")).collect();
    assert_eq!(hello, [Ok(Notification::Hello(Hello { version: 1 }))]);
    listener
}

#[test]
fn the_beginning_is_as_written_down() {
    let mut bytes = Vec::new();
    PushClient::connect_command(ViewerId(3)).encode(&mut bytes);
    assert_eq!(bytes, section("connect"));
    let mut bytes = Vec::new();
    write_greeting(&mut bytes);
    assert_eq!(bytes, section("welcome"));
}

#[test]
fn every_notification_reads_and_writes_back_and_shorter_ones_wait() {
    let mut codes = vec![NotificationCode::Hello];
    for (name, notification) in every_notification() {
        let bytes = section(name);
        assert_eq!(written(&notification), bytes, "{name}");
        codes.push(notification.code());
        for cut in 0..bytes.len() {
            let mut listener = welcomed();
            assert_eq!(listener.extend(&bytes[..cut]).next(), None, "{name}");
            let rest: Vec<_> = listener.extend(&bytes[cut..]).collect();
            assert_eq!(rest, [Ok(notification)], "{name} cut at {cut}");
        }
        let code = notification.code();
        for short in 0..code.size() {
            assert!(Notification::decode(code, &bytes[8..8 + short]).is_err());
        }
    }
    assert_eq!(codes, NotificationCode::ALL);
}

#[test]
fn a_relay_that_accepts_and_says_nothing_does_not_push() {
    let mut listener = PushClient::default();
    let welcome = section("welcome");
    assert_eq!(listener.extend(&welcome[..19]).next(), None);
    assert!(!listener.is_connected());
    assert_eq!(listener.extend(&welcome[19..20]).next(), None);
    assert!(listener.is_connected() && !listener.is_supported());
    assert!(listener.extend(&welcome[20..]).next().is_some());
    assert!(listener.is_connected() && listener.is_supported());
}

#[test]
fn what_a_later_version_adds_is_passed_over() {
    let mut bytes = hex::parse("00000063 00000003 aabbcc").unwrap();
    // Two bytes more than are known of it.
    bytes.extend(hex::parse("00000008 00000002 aabb").unwrap());
    bytes.extend(written(&PACKETS));
    let got: Vec<_> = welcomed().extend(&bytes).collect();
    assert_eq!(got, [Ok(Notification::Sessions), Ok(PACKETS)]);
}

#[test]
fn a_relay_that_does_not_keep_to_it_is_given_up() {
    let connect = || section("welcome")[..20].to_vec();
    let mut other_major = connect();
    other_major[11] = 3;
    let mut early = connect();
    early.extend(section("sessions"));
    let mut version = connect();
    version.extend(hex::parse("00000001 00000004 00000002").unwrap());
    let mut long = section("welcome");
    long.extend(hex::parse("00000009 00001001").unwrap());
    let mut short = section("welcome");
    short.extend(hex::parse("00000002 00000004 00000000").unwrap());
    for (case, bytes, good) in [
        ("another major", other_major, 0),
        ("no hello", early, 0),
        ("another version", version, 0),
        ("too long", long, 1),
        ("too short", short, 1),
    ] {
        let mut listener = PushClient::default();
        let got: Vec<Result<_, PushError>> = listener.extend(&bytes).collect();
        assert_eq!(got.len(), good + 1, "{case}: {got:?}");
        assert!(got[good].is_err(), "{case}: {got:?}");
        let more: Vec<_> = listener.extend(&section("sessions")).collect();
        assert_eq!(more, [], "{case}");
    }
}

proptest! {
    #[test]
    fn what_is_pushed_is_heard_however_it_is_cut(
        which in prop::collection::vec(0..7usize, 0..20),
        cuts in prop::collection::vec(0..600usize, 0..20),
    ) {
        let all = every_notification();
        let said: Vec<_> = which.iter().map(|&which| all[which].1).collect();
        let mut bytes = section("welcome");
        said.iter().for_each(|notification| notification.encode(&mut bytes));
        let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let mut listener = PushClient::default();
        let mut received = Vec::new();
        for piece in cuts.windows(2) {
            // Not all are taken at once.
            received.extend(listener.extend(&bytes[piece[0]..piece[1]]).take(2).map(Result::unwrap));
        }
        received.extend(listener.extend(&[]).map(Result::unwrap));
        prop_assert_eq!(&received[1..], said);
    }

    #[test]
    fn nothing_a_relay_pushes_does_harm(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut listener = welcomed();
        prop_assert!(listener.extend(&bytes).count() <= 25);
    }
}

// The relay's end.

/// A viewer's command connection, attached to the session, with its push connection.
struct PushedViewer {
    world: Rc<World>,
    connection: Connection<Fake>,
    listener: PushClient,
}

impl PushedViewer {
    fn of(world: &Rc<World>) -> Self {
        let mut viewer = Self {
            world: Rc::clone(world),
            connection: Connection::default(),
            listener: welcomed(),
        };
        viewer.ask(&Command::Connect(Connect {
            viewer: None,
            major: 2,
            minor: 15,
            kind: ConnectionKind::Command.code(),
        }));
        viewer.ask(&Command::CreateViewerSession);
        viewer.ask(&Command::AttachSession(AttachSession {
            session: SESSION,
            offset: 0,
            seek: Seek::Beginning.code(),
        }));
        viewer.connection.subscribe(&Fake(Rc::clone(world)));
        viewer
    }

    /// The reply to a command.
    fn ask(&mut self, command: &Command) -> BytesMut {
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

    fn next(&mut self, stream: &Data) -> IndexStatus {
        let reply = self.ask(&Command::GetNextIndex(StreamId(stream.id)));
        IndexStatus::read(&mut &reply[56..]).unwrap()
    }

    /// The viewer says so on the push connection.
    fn say(&mut self, beacon_interest: BeaconInterest) {
        let relay = Fake(Rc::clone(&self.world));
        self.connection.set_beacon_interest(beacon_interest, &relay);
    }

    /// What is pushed, of what may have changed.
    fn notified(&mut self, changes: &[Change]) -> Vec<Notification> {
        for change in changes {
            assert!(
                self.world.heard.borrow().contains(change),
                "{change:?} would not be reported"
            );
            self.connection.record_change(*change);
        }
        let mut said = BytesMut::new();
        self.connection.write_notifications(1 << 20, &mut said);
        self.listener.extend(&said).map(Result::unwrap).collect()
    }
}

fn world() -> Rc<World> {
    Rc::new(World {
        live: Cell::new(true),
        ..World::default()
    })
}

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
fn everything_there_is_is_said_at_first_and_nothing_twice() {
    let world = world();
    let stream = world.stream();
    stream.packets.borrow_mut().push(packet(10, 20));
    let metadata = world.metadata(b"text");
    let waits = MetadataAvailable {
        stream: StreamId(metadata.id),
        trace: TraceId(1),
    };
    let mut viewer = PushedViewer::of(&world);
    let received = viewer.notified(&[]);
    assert_eq!(received[0], Notification::Sessions);
    assert!(received.contains(&packets(&stream, 1)), "{received:?}");
    assert!(
        received.contains(&Notification::Metadata(waits)),
        "{received:?}"
    );
    assert_eq!(received.len(), 3);
    assert_eq!(viewer.notified(&change(&stream)), []);
    assert_eq!(
        viewer.notified(&[Change::Sessions]),
        [Notification::Sessions]
    );
}

#[test]
fn a_viewer_that_does_not_fetch_is_told_once_and_again_when_it_has() {
    let world = world();
    let stream = world.stream();
    let mut viewer = PushedViewer::of(&world);
    viewer.notified(&[]);
    for end in 1..100 {
        stream.packets.borrow_mut().push(packet(end, end + 1));
        let received = viewer.notified(&change(&stream));
        assert_eq!(received.len(), usize::from(end == 1), "{received:?}");
    }
    // It was told of one.
    assert_eq!(viewer.next(&stream), IndexStatus::Ready);
    assert_eq!(viewer.notified(&[]), [packets(&stream, 98)]);
    for _ in 0..98 {
        assert_eq!(viewer.notified(&[]), []);
        assert_eq!(viewer.next(&stream), IndexStatus::Ready);
    }
    assert_eq!(viewer.notified(&change(&stream)), []);
    stream.packets.borrow_mut().push(packet(100, 101));
    assert_eq!(viewer.notified(&change(&stream)), [packets(&stream, 1)]);
}

#[test]
fn beacons_are_pushed_behind_the_packets_and_never_go_back() {
    let world = world();
    let stream = world.stream();
    let mut viewer = PushedViewer::of(&world);
    viewer.notified(&[]);
    stream.beacon.set(Some(10));
    assert_eq!(viewer.notified(&change(&stream)), [quiet(&stream, 10)]);
    for back in [10, 9] {
        stream.beacon.set(Some(back));
        assert_eq!(viewer.notified(&change(&stream)), []);
    }
    stream.packets.borrow_mut().push(packet(12, 20));
    stream.beacon.set(Some(30));
    assert_eq!(viewer.notified(&change(&stream)), [packets(&stream, 1)]);
    assert_eq!(viewer.next(&stream), IndexStatus::Ready);
    assert_eq!(viewer.notified(&[]), [quiet(&stream, 30)]);
    // What has been pushed is what an answer goes by as well.
    stream.beacon.set(Some(25));
    assert_eq!(viewer.next(&stream), IndexStatus::Retry);
    stream.beacon.set(Some(30));
    assert_eq!(viewer.next(&stream), IndexStatus::Inactive);
    // What was told as an answer is not pushed.
    stream.beacon.set(Some(40));
    assert_eq!(viewer.next(&stream), IndexStatus::Inactive);
    assert_eq!(viewer.notified(&change(&stream)), []);
}

#[test]
fn time_stands_until_new_streams_are_fetched() {
    let world = world();
    let old = world.stream();
    let mut viewer = PushedViewer::of(&world);
    viewer.notified(&[]);
    let new = world.stream();
    old.beacon.set(Some(50));
    let session = Change::Session(SESSION);
    assert_eq!(
        viewer.notified(&[session, change(&old)[0]]),
        [Notification::NewStreams(SESSION)]
    );
    assert_eq!(viewer.notified(&[session, change(&old)[0]]), []);
    viewer.ask(&Command::GetNewStreams(SESSION));
    new.packets.borrow_mut().push(packet(40, 60));
    let received = viewer.notified(&[]);
    assert!(received.contains(&quiet(&old, 50)), "{received:?}");
    assert!(received.contains(&packets(&new, 1)), "{received:?}");
    assert_eq!(received.len(), 2);
    world.stream();
    assert_eq!(
        viewer.notified(&[session]),
        [Notification::NewStreams(SESSION)]
    );
}

#[test]
fn packets_that_were_withheld_are_announced_again_when_the_session_changes() {
    let world = world();
    let stream = world.stream();
    let mut viewer = PushedViewer::of(&world);
    viewer.notified(&[]);
    let session = [Change::Session(SESSION)];
    stream.packets.borrow_mut().push(packet(0, 10));
    assert_eq!(viewer.notified(&change(&stream)), [packets(&stream, 1)]);
    stream.withheld_from.set(Some(0));
    assert_eq!(viewer.next(&stream), IndexStatus::Retry);
    assert_eq!(viewer.notified(&change(&stream)), []);
    assert_eq!(viewer.notified(&session), []);
    stream.withheld_from.set(None);
    assert_eq!(viewer.notified(&session), [packets(&stream, 1)]);
    assert_eq!(viewer.notified(&session), []);
    assert_eq!(viewer.next(&stream), IndexStatus::Ready);
    // They may be had again before it has been looked at why they could not.
    stream.packets.borrow_mut().push(packet(10, 20));
    assert_eq!(viewer.notified(&change(&stream)), [packets(&stream, 1)]);
    stream.withheld_from.set(Some(1));
    assert_eq!(viewer.next(&stream), IndexStatus::Retry);
    stream.withheld_from.set(None);
    assert_eq!(viewer.notified(&[]), [packets(&stream, 1)]);
    assert_eq!(viewer.next(&stream), IndexStatus::Ready);
}

#[test]
fn packets_that_were_asked_for_during_a_rotation_are_announced_after_it() {
    let world = world();
    let stream = world.stream();
    let mut viewer = PushedViewer::of(&world);
    viewer.notified(&[]);
    stream.packets.borrow_mut().push(packet(0, 10));
    assert_eq!(viewer.notified(&change(&stream)), [packets(&stream, 1)]);
    world.rotating.set(true);
    assert_eq!(viewer.next(&stream), IndexStatus::Retry);
    assert_eq!(viewer.notified(&[]), []);
    world.rotating.set(false);
    assert_eq!(viewer.notified(&[]), [packets(&stream, 1)]);
}

#[test]
fn metadata_is_pushed_again_once_the_viewer_had_it_all() {
    let world = world();
    let metadata = world.metadata(b"01234567");
    let mut viewer = PushedViewer::of(&world);
    assert_eq!(viewer.notified(&[]).len(), 2);
    let id = StreamId(metadata.id);
    let changed = [Change::Stream(id)];
    // In pieces of four bytes.
    viewer.ask(&Command::GetMetadata(id));
    assert_eq!(viewer.notified(&changed), []);
    viewer.ask(&Command::GetMetadata(id));
    metadata.bytes.borrow_mut().extend(b"89");
    // It will ask again, as it has not been told that this is all.
    assert_eq!(viewer.notified(&changed), []);
    viewer.ask(&Command::GetMetadata(id));
    viewer.ask(&Command::GetMetadata(id));
    assert_eq!(viewer.notified(&changed), []);
    metadata.bytes.borrow_mut().extend(b"ab");
    assert_eq!(viewer.notified(&changed).len(), 1);
    assert_eq!(viewer.notified(&changed), []);
}

#[test]
fn the_end_comes_once_and_after_everything() {
    let world = world();
    let stream = world.stream();
    stream.packets.borrow_mut().push(packet(10, 20));
    let mut viewer = PushedViewer::of(&world);
    viewer.notified(&[]);
    world.gone.set(true);
    stream.over.set(true);
    let all = [Change::Session(SESSION), change(&stream)[0]];
    assert_eq!(viewer.notified(&all), [Notification::SessionOver(SESSION)]);
    assert_eq!(viewer.next(&stream), IndexStatus::Ready);
    let over = Notification::StreamOver(StreamId(stream.id));
    assert_eq!(viewer.notified(&[]), [over]);
    assert_eq!(viewer.notified(&all), []);
    // There was no need to ask the stream; it may be asked all the same.
    let reply = viewer.ask(&Command::GetNewStreams(SESSION));
    assert_eq!(reply[..4], [0, 0, 0, 4]);
    assert_eq!(viewer.next(&stream), IndexStatus::HungUp);
    assert_eq!(viewer.notified(&[]), []);
}

#[test]
fn a_rotation_is_waited_for() {
    let world = world();
    let stream = world.stream();
    let mut viewer = PushedViewer::of(&world);
    viewer.notified(&[]);
    assert!(!viewer.connection.awaits_rotation());
    world.rotating.set(true);
    stream.packets.borrow_mut().push(packet(10, 20));
    assert_eq!(viewer.notified(&change(&stream)), []);
    assert!(viewer.connection.awaits_rotation());
    world.rotating.set(false);
    assert_eq!(viewer.notified(&[]), [packets(&stream, 1)]);
    assert!(!viewer.connection.awaits_rotation());
}

#[test]
fn what_does_not_fit_is_said_later() {
    let world = world();
    let streams: Vec<_> = (0..10).map(|_| world.stream()).collect();
    let mut viewer = PushedViewer::of(&world);
    viewer.notified(&[]);
    for stream in &streams {
        stream.beacon.set(Some(10));
        viewer.connection.record_change(change(stream)[0]);
    }
    let mut received = 0;
    for _ in 0..5 {
        let mut said = BytesMut::new();
        // Room for two.
        viewer.connection.write_notifications(30, &mut said);
        assert_eq!(said.len(), 48);
        received += viewer.listener.extend(&said).count();
    }
    assert_eq!(received, 10);
    assert_eq!(viewer.notified(&[]), []);
}

#[test]
fn what_a_viewer_says_reads_and_writes_back_and_the_last_of_it_counts() {
    let said = [
        BeaconInterest::Subscribed,
        BeaconInterest::Unsubscribed,
        BeaconInterest::Subscribed,
    ];
    let mut bytes = Vec::new();
    said.iter().for_each(|said| said.encode(&mut bytes));
    assert_eq!(bytes[..8], section("waiting"));
    assert_eq!(bytes[8..16], section("at-ease"));
    for cut in 0..=bytes.len() {
        let mut reader = BeaconInterestReader::default();
        let first = cut.checked_sub(8).map(|_| said[cut / 8 - 1]);
        assert_eq!(reader.extend(&bytes[..cut]), Ok(first));
        let last = (cut < bytes.len()).then_some(BeaconInterest::Subscribed);
        assert_eq!(reader.extend(&bytes[cut..]), Ok(last));
    }
    for wrong in [
        "00000000 00000000",
        "00000003 00000000",
        "00000001 00000001 00",
        "00000001 00000000 ffffffff ffffffff",
    ] {
        let bytes = hex::parse(wrong).unwrap();
        let refused = BeaconInterestReader::default().extend(&bytes);
        assert!(refused.is_err(), "{wrong}");
    }
}

#[test]
fn a_viewer_at_ease_is_told_everything_but_promises_and_them_when_it_waits() {
    let world = world();
    let (quiet_one, busy, later) = (world.stream(), world.stream(), world.stream());
    let mut viewer = PushedViewer::of(&world);
    viewer.notified(&[]);
    assert!(world.heeds_beacons.get());
    viewer.say(BeaconInterest::Unsubscribed);
    assert!(!world.heeds_beacons.get());
    quiet_one.beacon.set(Some(10));
    later.beacon.set(Some(20));
    // Should it be looked at all the same.
    assert_eq!(viewer.notified(&change(&quiet_one)), []);
    busy.packets.borrow_mut().push(packet(10, 20));
    assert_eq!(viewer.notified(&change(&busy)), [packets(&busy, 1)]);
    assert_eq!(viewer.next(&busy), IndexStatus::Ready);
    busy.beacon.set(Some(30));
    assert_eq!(viewer.notified(&[]), []);
    // Nothing of this was reported, and all of it is said.
    viewer.say(BeaconInterest::Subscribed);
    assert!(world.heeds_beacons.get());
    let mut received = viewer.notified(&[]);
    received.sort_by_key(|said| match said {
        Notification::Quiet(Quiet { until, .. }) => until.0,
        other => panic!("{other:?}"),
    });
    let said = [quiet(&quiet_one, 10), quiet(&later, 20), quiet(&busy, 30)];
    assert_eq!(received, said);
    viewer.say(BeaconInterest::Subscribed);
    assert_eq!(viewer.notified(&[]), []);
    quiet_one.beacon.set(Some(40));
    assert_eq!(
        viewer.notified(&change(&quiet_one)),
        [quiet(&quiet_one, 40)]
    );
    // The end is no promise.
    viewer.say(BeaconInterest::Unsubscribed);
    later.over.set(true);
    let over = Notification::StreamOver(StreamId(later.id));
    assert_eq!(viewer.notified(&change(&later)), [over]);
}

#[test]
fn a_new_push_connection_begins_with_promises() {
    let world = world();
    let stream = world.stream();
    let mut viewer = PushedViewer::of(&world);
    viewer.notified(&[]);
    viewer.say(BeaconInterest::Unsubscribed);
    stream.beacon.set(Some(10));
    viewer.connection.subscribe(&Fake(Rc::clone(&world)));
    assert!(world.heeds_beacons.get());
    assert!(viewer.notified(&[]).contains(&quiet(&stream, 10)));
}

#[test]
fn time_stands_for_a_viewer_that_waits_again_until_new_streams_are_fetched() {
    let world = world();
    let old = world.stream();
    let mut viewer = PushedViewer::of(&world);
    viewer.notified(&[]);
    viewer.say(BeaconInterest::Unsubscribed);
    world.stream();
    old.beacon.set(Some(50));
    viewer.say(BeaconInterest::Subscribed);
    let session = Change::Session(SESSION);
    assert_eq!(
        viewer.notified(&[session]),
        [Notification::NewStreams(SESSION)]
    );
    viewer.ask(&Command::GetNewStreams(SESSION));
    assert_eq!(viewer.notified(&[]), [quiet(&old, 50)]);
}

#[test]
fn nothing_is_reported_that_nobody_listens_to() {
    let world = world();
    world.stream();
    world.metadata(b"text");
    let mut viewer = PushedViewer::of(&world);
    world.stream();
    viewer.ask(&Command::GetNewStreams(SESSION));
    assert_eq!(world.heard.borrow().len(), 5);
    viewer.connection.unsubscribe(&Fake(Rc::clone(&world)));
    assert_eq!(world.heard.borrow().len(), 0);
    assert_eq!(viewer.notified(&[]), []);
}

#[test]
fn a_push_connection_names_another_one_and_nothing_else() {
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
