//! Metadata after a reconnect: what has been handed over of it is not handed over again.

use std::time::Duration;

use viewer::attach::relay::RelayOptions;
use viewer_proto::Command;
use viewer_proto::index::NEW_METADATA;

use crate::fake::ready;
use crate::reconnect::{THREE_PACKETS, packets, session, three_packets, watch};
use crate::watch::{assert_received, one_stream, reconnecting};

#[test]
fn less_metadata_than_was_read_is_awaited_before_anything_is_continued() {
    let fake = one_stream();
    fake.put_metadata(1, &[" m2"]);
    fake.put(2, packets(0..1));
    let mut watch = watch(&fake, reconnecting());
    watch.receive_until("packet a/c 0");
    fake.restart(session(1, 1), |world| {
        world.put_metadata(1, &["m1"]);
        world.put(2, packets(0..2));
    });
    let asked = || fake.count(|asked| matches!(asked, Command::GetMetadata(_)));
    let before = asked();
    watch.receive_until_true(|_| asked() > before + 3);
    fake.put_metadata(1, &[" m2 m3"]);
    watch.receive_until("packet a/c 1");
    fake.end();
    assert_received(
        &watch.receive_rest(),
        &[
            "trace vm/s/a",
            "stream a/c",
            "metadata vm/s/a: m1",
            "metadata vm/s/a:  m2",
            "packet a/c 0",
            "metadata vm/s/a:  m3",
            "packet a/c 1",
            "end a/c",
            "end vm/s/a",
            "done",
        ],
    );
}

#[test]
fn metadata_is_not_repeated_if_the_grace_period_is_over_before_a_trace_is_recognized() {
    // As if the relay took longer to answer the first requests.
    let options = RelayOptions {
        grace_period: Duration::ZERO,
        ..reconnecting()
    };
    let (fake, mut watch) = three_packets(options);
    fake.restart(session(1, 1), |world| {
        world.put_metadata(1, &["m1", " m2"]);
        world.put(2, packets(0..4));
    });
    watch.receive_until("packet a/c 3");
    fake.end();
    let rest = [
        "metadata vm/s/a:  m2",
        "packet a/c 3",
        "end a/c",
        "end vm/s/a",
        "done",
    ];
    let want = [&THREE_PACKETS[..], &rest].concat();
    assert_received(&watch.receive_rest(), &want);
}

#[test]
fn metadata_that_a_relay_has_only_after_the_grace_period_is_not_repeated() {
    let fake = one_stream();
    fake.put_metadata(1, &[" m2"]);
    fake.put(2, packets(0..1));
    let options = RelayOptions {
        grace_period: Duration::from_millis(100),
        ..reconnecting()
    };
    let mut watch = watch(&fake, options);
    watch.receive_until("packet a/c 0");
    fake.restart(session(1, 1), |world| {
        world.put_metadata(1, &["m1"]);
        world.put(2, packets(0..2));
    });
    watch.receive_until("packet a/c 1");
    // A part of what is known, the rest with something new.
    fake.put_metadata(1, &[" "]);
    fake.put_metadata(1, &["m2 m3"]);
    fake.put(2, [ready(2, NEW_METADATA)]);
    watch.receive_until("packet a/c 2");
    fake.end();
    assert_received(
        &watch.receive_rest(),
        &[
            "trace vm/s/a",
            "stream a/c",
            "metadata vm/s/a: m1",
            "metadata vm/s/a:  m2",
            "packet a/c 0",
            "packet a/c 1",
            "metadata vm/s/a:  m3",
            "packet a/c 2",
            "end a/c",
            "end vm/s/a",
            "done",
        ],
    );
}
