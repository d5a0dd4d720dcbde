//! Connections that are lost, refused or left.

use std::time::{Duration, Instant};

use test_live::attach::SourceEvent;
use test_live::attach::relay::{RelayOptions, spawn};
use tokio::sync::{mpsc, watch};
use viewer_proto::{Command, CommandCode};

use crate::fake::{ready, trace_records};
use crate::watch::{assert_said, one_stream, options, target, wait_until, watch};

#[test]
fn after_a_reconnect_every_packet_is_delivered_exactly_once() {
    let fake = one_stream();
    fake.put(2, (0..3).map(|number| ready(number, 0)));
    let retrying = RelayOptions {
        retry: true,
        ..options()
    };
    let mut watch = watch(&fake, "/host/vm/s", retrying);
    watch.receive_until("packet a/c 2");
    {
        // As a relay does on a new connection: everything from its beginning.
        let records = trace_records(1, "a");
        fake.world().sessions[0].batches.push_back(vec![]);
        fake.answer_instead(CommandCode::GetNextIndex, &[]);
        wait_until(|| fake.world().instead[&4].is_empty());
        fake.world().sessions[0].batches = vec![records].into();
    }
    fake.put_metadata(1, &["m1"]);
    fake.put(2, (0..5).map(|number| ready(number, 0)));
    watch.receive_until("packet a/c 4");
    fake.end();
    let said = watch.receive_rest();
    assert_said(
        &said,
        &[
            "trace vm/s/a",
            "stream a/c",
            "metadata vm/s/a: m1",
            "packet a/c 0",
            "packet a/c 1",
            "packet a/c 2",
            "end a/c",
            "end vm/s/a",
            "trace vm/s/a",
            "stream a/c",
            "metadata vm/s/a: m1",
            "packet a/c 3",
            "packet a/c 4",
            "end a/c",
            "end vm/s/a",
            "done",
        ],
    );
    assert_eq!(fake.world().connections, 2);
}

#[test]
fn stopping_a_relay_source_detaches_with_or_without_a_receiver() {
    let fake = one_stream();
    fake.put(2, (0..100).map(|number| ready(number, 0)));
    let watch = watch(&fake, "/host/vm/s", options());
    // The channel is full by then: nobody takes anything out of it.
    wait_until(|| fake.count(|asked| matches!(asked, Command::GetMetadata(_))) > 0);
    let begun = Instant::now();
    watch.handle.stop();
    watch.handle.join();
    assert!(begun.elapsed() < Duration::from_secs(2));
    let detached = fake.count(|asked| matches!(asked, Command::DetachSession(_)));
    assert_eq!(detached, 1);
}

#[test]
fn an_unreachable_relay_is_reported_or_retried() {
    let fake = one_stream();
    let mut nowhere = target(&fake, "");
    nowhere.port = 1;
    let (sender, mut events) = mpsc::channel(4);
    let (_held_back, is_held_back) = watch::channel(true);
    let handle = spawn(nowhere.clone(), options(), sender, is_held_back.clone()).unwrap();
    let Some(SourceEvent::Failed(text)) = events.blocking_recv() else {
        panic!("it should fail")
    };
    assert!(text.contains("cannot connect to 127.0.0.1:1: "), "{text}");
    handle.join();

    let (sender, mut events) = mpsc::channel(4);
    let retrying = RelayOptions {
        retry: true,
        ..options()
    };
    let handle = spawn(nowhere, retrying, sender, is_held_back).unwrap();
    assert!(matches!(
        events.blocking_recv(),
        Some(SourceEvent::Notice(_))
    ));
    handle.stop();
    handle.join();
}

#[test]
fn stopping_does_not_wait_for_an_unresponsive_relay() {
    let fake = one_stream();
    let mut watch = watch(&fake, "/host/vm/s", options());
    watch.receive_until("metadata");
    let silent = fake.world();
    let begun = Instant::now();
    watch.handle.stop();
    watch.handle.join();
    assert!(begun.elapsed() < Duration::from_secs(3));
    drop(silent);
}
