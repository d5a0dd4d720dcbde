//! What is continued after a reconnect, and what has ended meanwhile.

use std::time::{Duration, Instant};

use viewer::attach::relay::{Missing, RelayOptions};
use viewer_proto::index::NextIndex;
use viewer_proto::session::{AttachStatus, Seek};
use viewer_proto::{Command, CommandCode};

use crate::fake::{Fake, Session, inactive, ready, record, trace_records};
use crate::watch::{Watch, assert_received, one_stream, reconnecting, watch as watch_fake};

/// The session `s` with the trace `a`, whose first stream has the number `first`.
pub(crate) fn session(id: u64, first: u64) -> Vec<Session> {
    vec![Session::new(id, "s", vec![trace_records(first, "a")])]
}

pub(crate) fn packets(numbers: std::ops::Range<u64>) -> impl Iterator<Item = NextIndex> {
    numbers.map(|number| ready(number, 0))
}

pub(crate) fn watch(fake: &Fake, options: RelayOptions) -> Watch {
    watch_fake(fake, "/host/vm/s", options)
}

/// A viewer that has received the packets 0, 1 and 2 of a stream.
pub(crate) fn three_packets(options: RelayOptions) -> (Fake, Watch) {
    let fake = one_stream();
    fake.put(2, packets(0..3));
    let mut watch = watch(&fake, options);
    watch.receive_until("packet a/c 2");
    (fake, watch)
}

fn has_received(watch: &Watch, part: &str) -> bool {
    watch.received.iter().any(|text| text.contains(part))
}

pub(crate) const THREE_PACKETS: [&str; 6] = [
    "trace vm/s/a",
    "stream a/c",
    "metadata vm/s/a: m1",
    "packet a/c 0",
    "packet a/c 1",
    "packet a/c 2",
];

#[test]
fn packets_continue_after_a_reconnect_without_an_end_or_a_second_request() {
    for (id, first) in [(1, 1), (7, 11)] {
        let (fake, mut watch) = three_packets(reconnecting());
        let asked = |fake: &Fake| fake.count(|asked| matches!(asked, Command::GetPacket(_)));
        assert_eq!(asked(&fake), 3);
        fake.restart(session(id, first), |world| {
            world.put_metadata(first, &["m", "1m2"]);
            world.put(first + 1, packets(0..5));
            // The bytes of a packet name its stream.
            let file = (0..5_u8).flat_map(|number| {
                let rest = 2..16_u8;
                [2, number].into_iter().chain(rest).collect::<Vec<_>>()
            });
            world.files.insert(first + 1, file.collect());
        });
        watch.receive_until("packet a/c 4");
        let restored = |text: &&String| text.contains("connection restored");
        assert_eq!(watch.received.iter().filter(restored).count(), 1);
        assert_eq!(asked(&fake), 5);
        fake.end();
        let rest = [
            "metadata vm/s/a: m2",
            "packet a/c 3",
            "packet a/c 4",
            "end a/c",
            "end vm/s/a",
            "done",
        ];
        let want = [&THREE_PACKETS[..], &rest].concat();
        assert_received(&watch.receive_rest(), &want);
    }
}

#[test]
fn a_connection_cut_within_any_reply_loses_and_repeats_nothing() {
    for command in [
        CommandCode::Connect,
        CommandCode::ListSessions,
        CommandCode::CreateViewerSession,
        CommandCode::AttachSession,
        CommandCode::GetNewStreams,
        CommandCode::GetMetadata,
        CommandCode::GetNextIndex,
        CommandCode::GetPacket,
    ] {
        for bytes in [0, 1, 3, 13, 17] {
            let (fake, mut watch) = three_packets(reconnecting());
            fake.cut_reply(command, bytes);
            fake.restart(session(1, 1), |world| {
                world.put_metadata(1, &["m1m2", "m3"]);
                world.put(2, packets(0..5));
            });
            watch.receive_until_true(|_| fake.world().cuts[&command.code()].is_empty());
            fake.restart(session(1, 1), |world| {
                world.put_metadata(1, &["m1", "m2m3"]);
                world.put(2, packets(0..6));
            });
            watch.receive_until("packet a/c 5");
            fake.end();
            let received = watch.receive_rest();
            let packets = received.iter().filter(|text| text.starts_with("packet"));
            let want = (0..6).map(|number| format!("packet a/c {number}"));
            assert!(packets.eq(&want.collect::<Vec<_>>()), "{received:#?}");
            let metadata = received
                .iter()
                .filter_map(|text| text.strip_prefix("metadata vm/s/a: "));
            assert_eq!(metadata.collect::<String>(), "m1m2m3");
            let ends = received.iter().filter(|text| text.starts_with("end"));
            assert_eq!(ends.count(), 2, "{received:#?}");
        }
    }
}

#[test]
fn packets_after_an_overwritten_one_are_shown_and_the_gap_is_reported() {
    let (fake, mut watch) = three_packets(reconnecting());
    fake.restart(session(1, 1), |world| {
        world.put_metadata(1, &["m1"]);
        world.put(2, packets(5..7));
    });
    watch.receive_until("packet a/c 6");
    let is_gap = |text: &String| text.contains("does not have the packet that was shown last");
    assert!(watch.received.iter().any(is_gap), "{:#?}", watch.received);
    fake.end();
    let rest = [
        "packet a/c 5",
        "packet a/c 6",
        "end a/c",
        "end vm/s/a",
        "done",
    ];
    let want = [&THREE_PACKETS[..], &rest].concat();
    let mut received = watch.receive_rest();
    received.retain(|text| !text.starts_with("missing"));
    assert_received(&received, &want);
}

#[test]
fn another_session_of_the_same_name_is_shown_from_its_beginning() {
    let grace_period = Duration::from_millis(100);
    let (fake, mut watch) = three_packets(RelayOptions {
        grace_period,
        ..reconnecting()
    });
    fake.restart(session(2, 1), |world| {
        world.put_metadata(1, &["other"]);
        world.put(2, packets(0..2));
    });
    watch.receive_until("missing");
    fake.end();
    let received = watch.receive_rest();
    let missing = received
        .iter()
        .find(|text| text.starts_with("missing"))
        .unwrap();
    assert!(missing.contains("trace vm/s/a"), "{missing}");
    let other = received.iter().skip(6).map(String::as_str);
    let other: Vec<&str> = other.filter(|text| !text.starts_with("missing")).collect();
    // The old trace ends when the grace period is over, whatever the new one does meanwhile.
    let new = [
        "trace vm/s/a",
        "metadata vm/s/a: other",
        "stream a/c",
        "packet a/c 0",
        "packet a/c 1",
    ];
    assert_eq!(other[..5], new, "{received:#?}");
    let ends = other.iter().filter(|text| text.starts_with("end"));
    assert_eq!(ends.count(), 4, "{received:#?}");
}

#[test]
fn a_session_that_is_gone_ends_after_the_grace_period_and_is_reported_missing() {
    let grace_period = Duration::from_millis(300);
    let options = RelayOptions {
        grace_period,
        ..reconnecting()
    };
    let (fake, mut watch) = three_packets(options.clone());
    fake.restart(vec![], |_| ());
    watch.receive_until("notice");
    let begun = Instant::now();
    watch.receive_until("missing");
    assert!(begun.elapsed() >= grace_period / 2);
    let received = watch.receive_rest();
    let (missing, received): (Vec<_>, Vec<_>) = received
        .into_iter()
        .partition(|text| text.starts_with("missing"));
    assert!(missing[0].contains("session vm/s"), "{missing:?}");
    let (last, received) = received.split_last().unwrap();
    assert!(last.contains("not everything could be read"), "{last}");
    let want = [&THREE_PACKETS[..], &["end a/c", "end vm/s/a"]].concat();
    assert_received(received, &want);

    // A viewer of all sessions waits for others.
    let (fake, mut watch) = three_packets(RelayOptions {
        follow: true,
        ..options.clone()
    });
    fake.restart(vec![], |_| ());
    watch.receive_until("missing");
    fake.restart(session(1, 1), |world| {
        world.put_metadata(1, &["other"]);
        world.put(2, packets(0..1));
    });
    watch.receive_until("metadata vm/s/a: other");
    watch.receive_until("packet a/c 0");

    // One that is listed late has been restored.
    let (fake, mut watch) = three_packets(RelayOptions {
        grace_period: Duration::from_secs(60),
        ..options
    });
    fake.restart(vec![], |_| ());
    let listed = || fake.count(|asked| matches!(asked, Command::ListSessions));
    let before = listed();
    watch.receive_until_true(|_| listed() > before + 2);
    {
        let mut world = fake.world();
        world.sessions = session(1, 1);
        world.put_metadata(1, &["m1"]);
        world.put(2, packets(0..4));
    }
    watch.receive_until("packet a/c 3");
    fake.end();
    let rest = ["packet a/c 3", "end a/c", "end vm/s/a", "done"];
    let want = [&THREE_PACKETS[..], &rest].concat();
    assert_received(&watch.receive_rest(), &want);
}

#[test]
fn of_several_sessions_of_one_name_each_continues_with_its_own_metadata() {
    let sessions = |one: u64, other: u64| {
        vec![
            Session::new(1, "s", vec![trace_records(one, "a")]),
            Session::new(2, "s", vec![trace_records(other, "a")]),
        ]
    };
    let fake = Fake::start(sessions(1, 3));
    fake.put_metadata(1, &["uuid 1"]);
    fake.put_metadata(3, &["uuid 3"]);
    fake.put(2, packets(0..1));
    fake.put(4, packets(0..2));
    let mut watch = watch(&fake, reconnecting());
    watch.receive_until("packet a/c 1");
    watch.receive_until_true(|_| fake.world().streams[&2].indexes.is_empty());
    let keys: Vec<_> = watch.streams.iter().map(|(key, ..)| *key).collect();
    // The numbers are exchanged: the trace with one packet is that of session 2 now.
    fake.restart(sessions(3, 1), |world| {
        world.put_metadata(1, &["uuid 1"]);
        world.put_metadata(3, &["uuid 3"]);
        world.put(2, packets(0..3));
        world.put(4, packets(0..3));
    });
    let packets_of = |received: &[String], number: u64| {
        let packet = format!("packet a/c {number}");
        received.iter().filter(|text| **text == packet).count()
    };
    watch.receive_until_true(|watch| packets_of(&watch.received, 2) == 2);
    fake.end();
    assert_eq!(
        watch.streams.len(),
        keys.len(),
        "no stream is announced again"
    );
    let received = watch.receive_rest();
    for number in 0..3 {
        assert_eq!(packets_of(&received, number), 2, "{received:#?}");
    }
}

#[test]
fn streams_and_traces_that_have_ended_are_not_shown_again() {
    let records = || [trace_records(1, "a"), vec![record(3, 1, "a", "d")]].concat();
    let sessions = || {
        let batches = vec![[records(), trace_records(5, "b")].concat()];
        vec![Session::new(1, "s", batches)]
    };
    let fake = Fake::start(sessions());
    let fill = |world: &mut crate::fake::World| {
        world.put_metadata(1, &["m1"]);
        world.put_metadata(5, &["m5"]);
        world.put(2, packets(0..1));
        world.put(3, packets(0..1));
        world.put(6, packets(0..1));
        for stream in [3, 6] {
            world.streams.get_mut(&stream).unwrap().is_over = true;
        }
        world.metadata.get_mut(&5).unwrap().is_over = true;
    };
    fill(&mut fake.world());
    let mut watch = watch(&fake, reconnecting());
    watch.receive_until("end vm/s/b");
    watch.receive_until("end a/d");
    watch.receive_until("packet a/c 0");
    let count = watch.received.len();
    fake.restart(sessions(), |world| {
        fill(world);
        world.put(2, packets(1..2));
    });
    watch.receive_until("packet a/c 1");
    let new = watch.received.iter().skip(count);
    let new: Vec<&String> = new.filter(|text| !text.starts_with("notice")).collect();
    assert_eq!(new, ["packet a/c 1"]);
    fake.end();
    let received = watch.receive_rest();
    let ends = received.iter().filter(|text| text.starts_with("end"));
    assert_eq!(ends.count(), 5, "{received:#?}");
}

#[test]
fn a_stream_without_packets_continues_where_the_viewer_began() {
    let batches = || vec![[trace_records(1, "a"), vec![record(3, 1, "a", "d")]].concat()];
    let fake = Fake::start(vec![Session::new(1, "s", batches())]);
    fake.put_metadata(1, &["m1"]);
    fake.put(2, packets(4..5));
    let mut watch = watch(
        &fake,
        RelayOptions {
            seek: Seek::Last,
            ..reconnecting()
        },
    );
    watch.receive_until("packet a/c 4");
    fake.restart(vec![Session::new(1, "s", batches())], |world| {
        world.put_metadata(1, &["m1"]);
        // From before the viewer, and after it began.
        world.put(2, packets(0..6));
        world.put(3, packets(0..6));
    });
    watch.receive_until("packet a/c 5");
    watch.receive_until("packet a/d 5");
    fake.end();
    let received = watch.receive_rest();
    let of_d = received
        .iter()
        .filter(|text| text.starts_with("packet a/d"));
    let of_d: Vec<&String> = of_d.collect();
    assert_eq!(of_d, ["packet a/d 3", "packet a/d 4", "packet a/d 5"]);
    let attached = fake
        .world()
        .asked
        .iter()
        .fold(Vec::new(), |mut seeks, asked| {
            if let Command::AttachSession(attach) = asked {
                seeks.push(attach.seek);
            }
            seeks
        });
    assert_eq!(attached, [Seek::Last.code(), Seek::Beginning.code()]);
}

#[test]
fn watermarks_continue_after_a_reconnect_and_never_go_back() {
    let fake = one_stream();
    fake.put(2, [ready(0, 0), inactive(30, 0)]);
    let mut watch = watch(&fake, reconnecting());
    watch.receive_until("watermark a/c 30");
    fake.restart(session(1, 1), |world| {
        world.put_metadata(1, &["m1"]);
        world.put(
            2,
            [ready(0, 0), inactive(25, 0), inactive(40, 0), ready(5, 0)],
        );
    });
    watch.receive_until("packet a/c 5");
    fake.end();
    let received = watch.receive_rest();
    let tail: Vec<&str> = received.iter().skip(4).map(String::as_str).collect();
    let want = [
        "watermark a/c 40",
        "packet a/c 5",
        "end a/c",
        "end vm/s/a",
        "done",
    ];
    assert_eq!(
        tail,
        [&["watermark a/c 30"], &want[..]].concat(),
        "{received:#?}"
    );
}

#[test]
fn a_relay_that_does_not_answer_is_lost_and_connected_again() {
    let (fake, mut watch) = three_packets(RelayOptions {
        reply_timeout: Duration::from_millis(100),
        connect_timeout: Duration::from_millis(100),
        ..reconnecting()
    });
    let silent = fake.world();
    watch.receive_until_true(|watch| has_received(watch, "no reply from the relay"));
    drop(silent);
    fake.restart(session(1, 1), |world| {
        world.put_metadata(1, &["m1"]);
        world.put(2, packets(0..4));
    });
    watch.receive_until("packet a/c 3");
}

#[test]
fn a_viewer_that_still_waits_for_a_trace_reconnects() {
    let fake = Fake::start(vec![Session::new(1, "s", Vec::new())]);
    fake.world().sessions[0].is_over = true;
    let waiting = RelayOptions {
        missing: Missing::Wait,
        ..reconnecting()
    };
    let mut watch = watch_fake(&fake, "/host/vm/s", waiting);
    let has_received = |watch: &Watch, end: &str| {
        let mut texts = watch.received.iter();
        texts.any(|text| text.ends_with(end))
    };
    watch.receive_until_true(|watch| has_received(watch, "waiting for the next one"));
    fake.restart(session(2, 11), |world| {
        world.put_metadata(11, &["m1"]);
        world.put(12, [ready(0, 0)]);
    });
    watch.receive_until("packet a/c 0");
    fake.end();
    assert_eq!(watch.receive_rest().last().unwrap(), "done");
}

#[test]
fn reconnecting_ends_with_an_error_when_its_timeout_is_over() {
    for (timeout, has_retried) in [(Duration::ZERO, false), (Duration::from_millis(50), true)] {
        let (fake, watch) = three_packets(RelayOptions {
            reconnect_timeout: Some(timeout),
            ..reconnecting()
        });
        fake.restart(vec![], |world| world.refuses = true);
        let received = watch.receive_rest();
        let (last, received) = received.split_last().unwrap();
        assert_received(
            received,
            &[&THREE_PACKETS[..], &["end a/c", "end vm/s/a"]].concat(),
        );
        assert!(last.starts_with("failed"), "{last}");
        assert_eq!(last.contains("not reconnected for"), has_retried, "{last}");
    }
    // A relay that was never reached is not waited for.
    let fake = one_stream();
    fake.world().refuses = true;
    let received = watch(&fake, reconnecting()).receive_rest();
    assert!(
        received[0].starts_with("failed") && received.len() == 1,
        "{received:?}"
    );
}

#[test]
fn a_source_that_waits_to_reconnect_stops_at_once() {
    let (fake, mut watch) = three_packets(RelayOptions {
        min_backoff: Duration::from_secs(60),
        ..reconnecting()
    });
    fake.restart(vec![], |world| world.refuses = true);
    watch.receive_until("notice net://");
    watch.receive_until_true(|watch| has_received(watch, "reconnecting"));
    let begun = Instant::now();
    watch.handle.stop();
    watch.handle.join();
    assert!(begun.elapsed() < Duration::from_secs(2));
}

#[test]
fn a_relay_that_stays_away_delays_other_sources_for_a_limited_time() {
    let (fake, mut watch) = three_packets(RelayOptions {
        hold_timeout: Some(Duration::from_millis(50)),
        ..reconnecting()
    });
    fake.restart(vec![], |world| world.refuses = true);
    watch.receive_until("hold a/c false");
    fake.restart(session(1, 1), |world| {
        world.refuses = false;
        world.put_metadata(1, &["m1"]);
        world.put(2, packets(0..4));
    });
    watch.receive_until("packet a/c 3");
    let place = |word: &str| watch.received.iter().position(|text| text == word).unwrap();
    assert!(place("hold a/c true") < place("packet a/c 3"));
}

#[test]
fn a_relay_that_has_not_noticed_the_lost_connection_is_asked_again() {
    let (fake, mut watch) = three_packets(RelayOptions {
        grace_period: Duration::from_millis(500),
        ..reconnecting()
    });
    let mut taken = session(1, 1);
    taken[0].attach = AttachStatus::Already;
    fake.restart(taken, |world| {
        world.put_metadata(1, &["m1"]);
        world.put(2, packets(0..4));
    });
    let attached = || fake.count(|asked| matches!(asked, Command::AttachSession(_)));
    watch.receive_until_true(|_| attached() >= 3);
    {
        let mut world = fake.world();
        world.sessions = session(1, 1);
    }
    watch.receive_until("packet a/c 3");
    assert!(
        !watch
            .received
            .iter()
            .any(|text| text.starts_with("missing"))
    );
}

#[test]
fn a_relay_that_goes_away_after_everything_has_ended_is_not_waited_for() {
    let fake = one_stream();
    fake.put(2, packets(0..1));
    fake.cut_reply(CommandCode::DetachSession, 0);
    let mut watch = watch(&fake, reconnecting());
    watch.receive_until("packet a/c 0");
    fake.world().refuses = true;
    fake.end();
    let received = watch.receive_rest();
    assert_eq!(received.last().unwrap(), "done", "{received:#?}");
}
