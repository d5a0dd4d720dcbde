//! Connections that are lost, refused or left.

use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};
use viewer::attach::SourceEvent;
use viewer::attach::relay::{RelayOptions, spawn};
use viewer_proto::Command;

use crate::fake::ready;
use crate::watch::{one_stream, options, target, wait_until, watch};

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
    nowhere.relays[0].port = 1;
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
