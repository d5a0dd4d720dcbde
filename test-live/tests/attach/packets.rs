//! Packets and the metadata that they need.

use std::time::{Duration, Instant};

use viewer_proto::index::{NEW_METADATA, NEW_STREAMS};
use viewer_proto::{Command, CommandCode};
use wire::Bits;

use crate::fake::{Fake, Session, inactive, ready, record};
use crate::watch::{assert_received, one_stream, options, wait_until, watch};

/// Answers the next request for a packet with this status and these flags, and without bytes.
fn refuse_packet(fake: &Fake, status: u8, flags: u8) {
    let head = [0, 0, 0, status, 0, 0, 0, 0, 0, 0, 0, flags];
    fake.answer_instead(CommandCode::GetPacket, &head);
}

#[test]
fn metadata_in_several_replies_is_delivered_before_the_packet_that_needs_it() {
    let fake = one_stream();
    // The second part comes with the second index, and empty replies mean "again".
    fake.put_metadata(1, &["", "m2"]);
    fake.put(2, [ready(0, 0)]);
    let mut watch = watch(&fake, "/host/vm/s", options());
    watch.receive_until("packet a/c 0");
    fake.put_metadata(1, &["", "m3"]);
    fake.put(2, [ready(1, NEW_METADATA)]);
    watch.receive_until("packet a/c 1");
    fake.put_metadata(1, &["m4"]);
    fake.put(2, [inactive(50, NEW_METADATA)]);
    fake.end();
    assert_received(
        &watch.receive_rest(),
        &[
            "trace vm/s/a",
            "stream a/c",
            "metadata vm/s/a: m1",
            "metadata vm/s/a: m2",
            "packet a/c 0",
            "metadata vm/s/a: m3",
            "packet a/c 1",
            "metadata vm/s/a: m4",
            "watermark a/c 50",
            "end a/c",
            "end vm/s/a",
            "done",
        ],
    );
}

#[test]
fn a_packet_in_several_replies_is_delivered_whole() {
    let fake = one_stream();
    fake.world().most_bytes = 5;
    fake.put(2, [ready(0, 0), ready(1, 0)]);
    fake.end();
    fake.world().sessions[0].is_listed = true;
    let received = watch(&fake, "/host/vm/s", options()).receive_rest();
    assert!(
        received.contains(&"packet a/c 1".to_owned()),
        "{received:#?}"
    );
    let asked = fake.count(|asked| matches!(asked, Command::GetPacket(_)));
    assert_eq!(asked, 8);
}

#[test]
fn a_packet_is_requested_again_after_its_reply_flags_are_handled() {
    let fake = one_stream();
    fake.put(2, [ready(0, 0)]);
    // Failed, with a flag: for new streams, of which there are none; then for metadata.
    refuse_packet(&fake, 3, 2);
    refuse_packet(&fake, 3, 1);
    refuse_packet(&fake, 2, 0);
    fake.end();
    fake.world().sessions[0].is_listed = true;
    let received = watch(&fake, "/host/vm/s", options()).receive_rest();
    assert!(
        received.contains(&"packet a/c 0".to_owned()),
        "{received:#?}"
    );
}

#[test]
fn a_missing_packet_is_reported_and_an_empty_one_is_not_requested() {
    let fake = one_stream();
    let mut empty = ready(1, NEW_STREAMS);
    (empty.packet.packet_size, empty.packet.content_size) = (Bits(0), Bits(0));
    fake.put(2, [ready(0, 0), empty, ready(2, 0)]);
    // Overwritten.
    refuse_packet(&fake, 4, 0);
    let mut watch = watch(&fake, "/host/vm/s", options());
    watch.receive_until("packet a/c 2");
    let is_loss = |text: &String| text.contains("lost a packet of a/c");
    assert!(watch.received.iter().any(is_loss));
    let asked = fake.count(|asked| matches!(asked, Command::GetPacket(_)));
    assert_eq!(asked, 2);
}

#[test]
fn metadata_and_streams_announced_late_are_delivered() {
    let stream = vec![record(2, 1, "a", "c")];
    let metadata = vec![record(1, 1, "a", "metadata")];
    let batches = vec![vec![], stream, vec![], metadata];
    let fake = Fake::start(vec![Session::new(1, "s", batches)]);
    fake.put(2, [ready(0, 0)]);
    let mut watch = watch(&fake, "/host/vm/s", options());
    watch.receive_until("stream a/c");
    wait_until(|| fake.count(|asked| matches!(asked, Command::GetMetadata(_))) > 0);
    fake.put_metadata(1, &["m1"]);
    watch.receive_until("packet a/c 0");
    let place = |word: &str| {
        watch
            .received
            .iter()
            .position(|text| text.starts_with(word))
    };
    assert!(place("metadata") < place("packet"), "{:#?}", watch.received);
}

#[test]
fn an_idle_session_is_polled_with_a_growing_interval() {
    let fake = one_stream();
    fake.world().sessions[0].timer = 1_000_000;
    let mut watch = watch(&fake, "/host/vm/s", options());
    watch.receive_until("metadata");
    let begun = Instant::now();
    watch.receive(begun + Duration::from_millis(500));
    let asked = fake.count(|asked| matches!(asked, Command::GetNextIndex(_)));
    // 10 + 20 + 40 + 80 + 100 + ... ms; more if this machine was slow.
    let most = 6 + begun.elapsed().as_millis() / 100;
    assert!((3..=most).contains(&(asked as u128)), "{asked}");
}

#[test]
fn a_stream_with_a_full_backlog_is_not_fetched() {
    let fake = one_stream();
    fake.put(2, (0..200).map(|number| ready(number, 0)));
    let mut watch = watch(&fake, "/host/vm/s", options());
    watch.decodes = false;
    watch.receive_until("packet a/c 127");
    assert!(!watch.receive(Instant::now() + Duration::from_millis(300)));
    watch.decodes = true;
    let (_, _, backlog) = watch.streams[0].clone();
    (0..128).for_each(|_| backlog.remove_packet());
    watch.receive_until("packet a/c 199");
}
