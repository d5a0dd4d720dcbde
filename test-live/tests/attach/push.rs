//! Relays that push, and what they are told.

use std::time::{Duration, Instant};

use viewer_proto::Command;
use viewer_proto::attention::Attention;
use viewer_proto::push::{Notification, PacketsWait, Quiet};
use wire::{SessionId, StreamId, Timestamp};

use crate::fake::{Fake, inactive, ready, record};
use crate::watch::{PATIENCE, one_stream, options, watch};

fn quiet(until: u64) -> Notification {
    Notification::Quiet(Quiet {
        stream: StreamId(2),
        until: Timestamp(until),
    })
}

#[test]
fn a_relay_that_pushes_is_asked_only_when_there_is_something() {
    let fake = one_stream();
    let pusher = fake.pusher();
    let mut watch = watch(&fake, "/host/vm/s", options());
    pusher.send(quiet(10)).unwrap();
    watch.hear_until("quiet a/c 10");
    let asked = |fake: &Fake| fake.count(|asked| matches!(asked, Command::GetNextIndex(_)));
    let before = asked(&fake);
    for until in 11..200 {
        pusher.send(quiet(until)).unwrap();
    }
    watch.hear_until("quiet a/c 199");
    // Now and then all is asked, should the relay have forgotten something.
    assert!(asked(&fake) <= before + 3, "{before} {}", asked(&fake));

    fake.put(2, [ready(20, 0)]);
    let (stream, unread) = (StreamId(2), 1);
    pusher
        .send(Notification::Packets(PacketsWait { stream, unread }))
        .unwrap();
    watch.hear_until("packet a/c 20");

    // What comes behind news of streams waits for them.
    let late = vec![record(3, 3, "b", "metadata"), record(4, 3, "b", "c")];
    fake.world().sessions[0].batches.push_back(late);
    fake.put_metadata(3, &["m3"]);
    fake.put(2, [inactive(300, 0)]);
    pusher.send(Notification::NewStreams(SessionId(1))).unwrap();
    pusher.send(quiet(300)).unwrap();
    watch.hear_until("quiet a/c 300");
    let place = |word: &str| watch.said.iter().position(|said| said.starts_with(word));
    assert!(
        place("stream b/c") < place("quiet a/c 300"),
        "{:#?}",
        watch.said
    );
    assert!(place("stream b/c").is_some());

    // Without a push connection everything goes on.
    drop(pusher);
    fake.put(2, [ready(40, 0)]);
    watch.hear_until("packet a/c 40");
    fake.end();
    assert_eq!(watch.hear_the_rest().last().unwrap(), "done");
}

#[test]
fn a_relay_that_pushes_is_told_whether_promises_are_waited_for() {
    let fake = one_stream();
    let pusher = fake.pusher();
    let mut watch = watch(&fake, "/host/vm/s", options());
    // At first it takes it that they are.
    pusher.send(quiet(10)).unwrap();
    watch.hear_until("quiet a/c 10");
    assert_eq!(fake.world().attentions, []);
    let told = [
        Attention::AtEase,
        Attention::Waiting,
        Attention::AtEase,
        Attention::Waiting,
    ];
    for number in 0..told.len() {
        watch.held_back.send_replace(number % 2 == 1);
        let deadline = Instant::now() + PATIENCE;
        while fake.world().attentions.len() <= number {
            assert!(Instant::now() < deadline);
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    assert_eq!(fake.world().attentions, told);
    fake.end();
    assert_eq!(watch.hear_the_rest().last().unwrap(), "done");
}

#[test]
fn a_relay_that_does_not_push_is_told_nothing() {
    let fake = one_stream();
    let mut watch = watch(&fake, "/host/vm/s", options());
    watch.hear_until("metadata");
    watch.held_back.send_replace(false);
    fake.put(2, [ready(0, 0)]);
    watch.hear_until("packet a/c 0");
    watch.held_back.send_replace(true);
    fake.end();
    assert_eq!(watch.hear_the_rest().last().unwrap(), "done");
    assert_eq!(fake.world().attentions, []);
}
