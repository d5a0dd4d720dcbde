//! The viewer's end of a push connection, and the bytes of all messages.

use proptest::prelude::*;
use viewer_proto::beacon_interest::{BeaconInterest, BeaconInterestReader};
use viewer_proto::push::{
    Hello, MetadataAvailable, Notification, NotificationCode, PacketsAvailable, PushClient,
    PushError, Quiet, write_greeting,
};
use wire::{SessionId, StreamId, Timestamp, TraceId, ViewerId, hex};

const PUSH: &str = include_str!("../data/push.hex");

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

/// A client that has received the relay's greeting.
pub(crate) fn greeted_client() -> PushClient {
    let mut client = PushClient::default();
    let hello: Vec<_> = client.extend(&section("welcome")).collect();
    assert_eq!(hello, [Ok(Notification::Hello(Hello { version: 1 }))]);
    client
}

#[test]
fn connect_and_greeting_are_the_documented_bytes() {
    let mut bytes = Vec::new();
    PushClient::connect_command(ViewerId(3)).encode(&mut bytes);
    assert_eq!(bytes, section("connect"));
    let mut bytes = Vec::new();
    write_greeting(&mut bytes);
    assert_eq!(bytes, section("welcome"));
}

#[test]
fn notifications_decode_and_encode_to_the_documented_bytes_and_truncated_ones_wait() {
    let mut codes = vec![NotificationCode::Hello];
    for (name, notification) in every_notification() {
        let bytes = section(name);
        assert_eq!(written(&notification), bytes, "{name}");
        codes.push(notification.code());
        for cut in 0..bytes.len() {
            let mut client = greeted_client();
            assert_eq!(client.extend(&bytes[..cut]).next(), None, "{name}");
            let rest: Vec<_> = client.extend(&bytes[cut..]).collect();
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
fn push_client_is_supported_only_after_hello() {
    let mut client = PushClient::default();
    let welcome = section("welcome");
    assert_eq!(client.extend(&welcome[..19]).next(), None);
    assert!(!client.is_connected());
    assert_eq!(client.extend(&welcome[19..20]).next(), None);
    assert!(client.is_connected() && !client.is_supported());
    assert!(client.extend(&welcome[20..]).next().is_some());
    assert!(client.is_connected() && client.is_supported());
}

#[test]
fn unknown_notifications_and_fields_are_skipped() {
    let mut bytes = hex::parse("00000063 00000003 aabbcc").unwrap();
    // A known notification with two unknown bytes.
    bytes.extend(hex::parse("00000008 00000002 aabb").unwrap());
    bytes.extend(written(&PACKETS));
    let got: Vec<_> = greeted_client().extend(&bytes).collect();
    assert_eq!(got, [Ok(Notification::Sessions), Ok(PACKETS)]);
}

#[test]
fn push_client_fails_at_protocol_errors_of_a_relay() {
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
        let mut client = PushClient::default();
        let got: Vec<Result<_, PushError>> = client.extend(&bytes).collect();
        assert_eq!(got.len(), good + 1, "{case}: {got:?}");
        assert!(got[good].is_err(), "{case}: {got:?}");
        let more: Vec<_> = client.extend(&section("sessions")).collect();
        assert_eq!(more, [], "{case}");
    }
}

proptest! {
    #[test]
    fn push_client_decodes_notifications_however_they_are_split(
        which in prop::collection::vec(0..7usize, 0..20),
        cuts in prop::collection::vec(0..600usize, 0..20),
    ) {
        let all = every_notification();
        let pushed: Vec<_> = which.iter().map(|&which| all[which].1).collect();
        let mut bytes = section("welcome");
        pushed.iter().for_each(|notification| notification.encode(&mut bytes));
        let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let mut client = PushClient::default();
        let mut received = Vec::new();
        for piece in cuts.windows(2) {
            // Notifications that are not consumed must be given by the next call.
            received.extend(client.extend(&bytes[piece[0]..piece[1]]).take(2).map(Result::unwrap));
        }
        received.extend(client.extend(&[]).map(Result::unwrap));
        prop_assert_eq!(&received[1..], pushed);
    }

    #[test]
    fn push_client_survives_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut client = greeted_client();
        prop_assert!(client.extend(&bytes).count() <= 25);
    }
}

#[test]
fn beacon_interest_decodes_however_it_is_split_and_the_last_message_counts() {
    let sent = [
        BeaconInterest::Subscribed,
        BeaconInterest::Unsubscribed,
        BeaconInterest::Subscribed,
    ];
    let mut bytes = Vec::new();
    sent.iter().for_each(|message| message.encode(&mut bytes));
    assert_eq!(bytes[..8], section("waiting"));
    assert_eq!(bytes[8..16], section("at-ease"));
    for cut in 0..=bytes.len() {
        let mut reader = BeaconInterestReader::default();
        let first = cut.checked_sub(8).map(|_| sent[cut / 8 - 1]);
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
        let rejected = BeaconInterestReader::default().extend(&bytes);
        assert!(rejected.is_err(), "{wrong}");
    }
}
