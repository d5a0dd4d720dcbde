//! Relays that push, and the beacon interest that they are sent.

use std::sync::mpsc::Sender;

use ctf::model::Uuid;
use ctf::write::{
    Appended, EventDeclaration, EventRecord, MetadataText, PacketSize, StreamWriter,
    TraceDeclaration,
};
use test_live::cli::Arguments;
use test_live::run::run;
use viewer::run::{Outcome, Stop};
use viewer_proto::beacon_interest::BeaconInterest;
use viewer_proto::index::{IndexStatus, NEW_METADATA, NextIndex};
use viewer_proto::push::{Notification, PacketsAvailable, Quiet};
use viewer_proto::{Command, CommandCode};
use wire::{PacketIndex, SessionId, StreamId, Timestamp};

use crate::fake::{Fake, Session, inactive, ready, record, retry, trace_records};
use crate::watch::{Watch, one_stream, options, wait_until, watch};

fn watermark(until: u64) -> Notification {
    Notification::Quiet(Quiet {
        stream: StreamId(2),
        until: Timestamp(until),
    })
}

#[test]
fn a_relay_that_pushes_is_polled_only_after_notifications() {
    let fake = one_stream();
    let pusher = fake.pusher();
    let mut watch = watch(&fake, "/host/vm/s", options());
    pusher.send(watermark(10)).unwrap();
    watch.receive_until("watermark a/c 10");
    let asked = |fake: &Fake| fake.count(|asked| matches!(asked, Command::GetNextIndex(_)));
    let before = asked(&fake);
    for until in 11..200 {
        pusher.send(watermark(until)).unwrap();
    }
    watch.receive_until("watermark a/c 199");
    // Everything is polled at a long interval, in case a notification is missing.
    assert!(asked(&fake) <= before + 3, "{before} {}", asked(&fake));

    fake.put(2, [ready(20, 0)]);
    pusher.send(available(1)).unwrap();
    watch.receive_until("packet a/c 20");

    // A watermark after a notification of new streams waits for their announcement.
    let late = trace_records(3, "b");
    fake.world().sessions[0].batches.push_back(late);
    fake.put_metadata(3, &["m3"]);
    fake.put(2, [inactive(300, 0)]);
    pusher.send(Notification::NewStreams(SessionId(1))).unwrap();
    pusher.send(watermark(300)).unwrap();
    watch.receive_until("watermark a/c 300");
    let place = |word: &str| {
        watch
            .received
            .iter()
            .position(|text| text.starts_with(word))
    };
    assert!(
        place("stream b/c") < place("watermark a/c 300"),
        "{:#?}",
        watch.received
    );
    assert!(place("stream b/c").is_some());

    // Without a push connection the relay is polled.
    drop(pusher);
    fake.put(2, [ready(40, 0)]);
    watch.receive_until("packet a/c 40");
    fake.end();
    assert_eq!(watch.receive_rest().last().unwrap(), "done");
}

fn available(unread: u64) -> Notification {
    let stream = StreamId(2);
    Notification::Packets(PacketsAvailable { stream, unread })
}

/// A relay with packets on a stream, whose number it has pushed.
fn with_packets(
    packets: impl IntoIterator<Item = NextIndex>,
) -> (Fake, Watch, Sender<Notification>) {
    let fake = one_stream();
    let pusher = fake.pusher();
    let mut watch = watch(&fake, "/host/vm/s", options());
    // From now on the relay is asked only for what it has pushed.
    pusher.send(watermark(1)).unwrap();
    watch.receive_until("watermark a/c 1");
    let packets: Vec<_> = packets.into_iter().collect();
    if !packets.is_empty() {
        let unread = packets.len() as u64;
        fake.put(2, packets);
        pusher.send(available(unread)).unwrap();
    }
    (fake, watch, pusher)
}

fn numbers(watch: &Watch) -> Vec<&str> {
    let packets = watch.received.iter();
    packets
        .filter_map(|text| text.strip_prefix("packet a/c "))
        .collect()
}

#[test]
fn pushed_packets_are_delivered_once_in_order_and_after_their_metadata() {
    let metadata_at = |number| if number >= 100 { NEW_METADATA } else { 0 };
    let (fake, mut watch, pusher) =
        with_packets((1..150).map(|number| ready(number, metadata_at(number))));
    fake.put_metadata(1, &["m2"]);
    watch.receive_until("packet a/c 149");
    let wanted: Vec<_> = (1..150).map(|number| number.to_string()).collect();
    assert_eq!(numbers(&watch), wanted);
    let place = |text: &str| watch.received.iter().position(|other| other == text);
    assert!(place("metadata vm/s/a: m2") < place("packet a/c 100"));
    assert!(place("metadata vm/s/a: m2").is_some());
    // No packet is requested twice.
    let packets = fake.count(|asked| matches!(asked, Command::GetPacket(_)));
    assert_eq!(packets, 149);
    fake.end();
    fake.world().sessions[0].is_listed = true;
    pusher.send(Notification::StreamOver(StreamId(2))).unwrap();
    pusher
        .send(Notification::SessionOver(SessionId(1)))
        .unwrap();
    assert!(watch.receive_rest().contains(&"end a/c".to_owned()));
}

#[test]
fn pipelined_packets_in_several_or_repeated_replies_are_delivered_whole() {
    let (fake, mut watch, pusher) = with_packets([]);
    fake.world().most_bytes = 5;
    // The first two packets are refused at first, and requested again.
    let later = [0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0];
    for _ in 0..2 {
        fake.answer_instead(CommandCode::GetPacket, &later);
    }
    fake.put(2, (1..20).map(|number| ready(number, 0)));
    pusher.send(available(19)).unwrap();
    watch.receive_until("packet a/c 19");
    let wanted: Vec<_> = (1..20).map(|number| number.to_string()).collect();
    assert_eq!(numbers(&watch), wanted);
}

#[test]
fn a_stream_that_ends_after_pipelined_requests_is_delivered_whole() {
    let (fake, mut watch, pusher) = with_packets([]);
    fake.put(2, (1..10).map(|number| ready(number, 0)));
    fake.put(2, [inactive(500, 0), retry(0), ready(60, 0)]);
    let ends = [IndexStatus::HungUp, IndexStatus::Failed];
    fake.put(2, ends.map(|status| NextIndex::without_packet(status, 0)));
    // More than there are: a poll may have fetched some in between.
    pusher.send(available(14)).unwrap();
    watch.receive_until("end a/c");
    let place = |text: &str| {
        watch
            .received
            .iter()
            .position(|other| other == text)
            .unwrap()
    };
    assert!(place("packet a/c 9") < place("watermark a/c 500"));
    assert!(place("watermark a/c 500") < place("packet a/c 60"));
    assert!(place("packet a/c 60") < place("end a/c"));
}

#[test]
fn a_relay_that_pushes_is_told_whether_watermarks_are_needed() {
    let fake = one_stream();
    let pusher = fake.pusher();
    let mut watch = watch(&fake, "/host/vm/s", options());
    // A relay assumes at first that watermarks are needed.
    pusher.send(watermark(10)).unwrap();
    watch.receive_until("watermark a/c 10");
    assert_eq!(fake.world().attentions, []);
    let told = [
        BeaconInterest::Unsubscribed,
        BeaconInterest::Subscribed,
        BeaconInterest::Unsubscribed,
        BeaconInterest::Subscribed,
    ];
    for number in 0..told.len() {
        watch.held_back.send_replace(number % 2 == 1);
        wait_until(|| fake.world().attentions.len() > number);
    }
    assert_eq!(fake.world().attentions, told);
    fake.end();
    assert_eq!(watch.receive_rest().last().unwrap(), "done");
}

#[test]
fn a_relay_that_does_not_push_receives_no_beacon_interest_message() {
    let fake = one_stream();
    let mut watch = watch(&fake, "/host/vm/s", options());
    watch.receive_until("metadata");
    watch.held_back.send_replace(false);
    fake.put(2, [ready(0, 0)]);
    watch.receive_until("packet a/c 0");
    watch.held_back.send_replace(true);
    fake.end();
    assert_eq!(watch.receive_rest().last().unwrap(), "done");
    assert_eq!(fake.world().attentions, []);
}

/// One event at 500, in a packet up to 600: its metadata, its index and its bytes.
fn event_at_500() -> (String, PacketIndex, Vec<u8>) {
    let mut metadata = MetadataText::new(&TraceDeclaration::new(Uuid([7; 16]), "tracer"));
    let class = metadata.stream(0).unwrap();
    let event = EventDeclaration::new(0, "waits");
    let event = metadata.event(&class, &event).unwrap();
    let mut writer = StreamWriter::new(&class, 0, 0, PacketSize::new(4096, 4096));
    writer.open(Timestamp(400)).unwrap();
    let happened = EventRecord {
        time: Timestamp(500),
        process: 1,
        thread: 1,
        values: &[],
    };
    assert_eq!(writer.append(&event, &happened), Ok(Appended::Written));
    let packet = writer.close(Timestamp(600)).unwrap();
    let (index, bytes) = (packet.index, packet.bytes.to_vec());
    (metadata.take_new().to_owned(), index, bytes)
}

/// The relay pushes watermarks only to a viewer that has subscribed to them, and no reply carries
/// them.
#[test]
fn a_held_back_event_makes_the_relay_send_watermarks() {
    let (text, index, bytes) = event_at_500();
    let records = [trace_records(1, "a"), vec![record(3, 1, "a", "d")]].concat();
    let fake = Fake::start(vec![Session::new(1, "s", vec![records])]);
    fake.put_metadata(1, &[&text]);
    fake.world().files.insert(2, bytes);
    let mut ready = NextIndex::without_packet(IndexStatus::Ready, 0);
    ready.packet = index.into();
    let pusher = fake.pusher();
    let directory = tempfile::tempdir().unwrap();
    let shown = directory.path().join("shown");
    let url = format!("net://{}/host/vm/s", fake.address);
    let output = shown.to_str().unwrap();
    let arguments = ["test-live", "--quiet", "--output", output, &url];
    let arguments = Arguments::from_words(arguments);
    let viewer = std::thread::spawn(move || run(&arguments, &Stop::default()).unwrap());

    let shows = || std::fs::read_to_string(&shown).is_ok_and(|text| text.contains("waits"));
    wait_until(|| fake.world().attentions == [BeaconInterest::Unsubscribed]);
    fake.put(2, [ready]);
    pusher.send(available(1)).unwrap();
    wait_until(|| {
        fake.world().attentions == [BeaconInterest::Unsubscribed, BeaconInterest::Subscribed]
    });
    assert!(!shows());
    let watermark = Quiet {
        stream: StreamId(3),
        until: Timestamp(501),
    };
    pusher.send(Notification::Quiet(watermark)).unwrap();
    wait_until(shows);
    wait_until(|| fake.world().attentions.len() == 3);
    assert_eq!(fake.world().attentions[2], BeaconInterest::Unsubscribed);
    fake.end();
    assert_eq!(viewer.join().unwrap(), Outcome::Whole);
}
