//! The sessions and streams that are followed, and their end.

use viewer::attach::list::list;
use viewer::attach::relay::{Missing, RelayOptions};
use viewer_proto::Command;
use viewer_proto::CommandCode::GetNewStreams;
use viewer_proto::index::NEW_STREAMS;
use viewer_proto::session::AttachStatus;
use wire::StreamId;

use crate::fake::{Fake, Session, inactive, ready, record, retry, trace_records};
use crate::watch::{TEST_TIMEOUT, Watch, assert_received, one_stream, options, target, watch};

#[test]
fn a_session_is_followed_until_it_ends() {
    let fake = one_stream();
    let quiet = inactive(20, 0);
    fake.put(2, [ready(0, 0), retry(0), quiet, quiet, ready(2, 0)]);
    fake.end();
    fake.world().sessions[0].is_listed = true;
    let received = watch(&fake, "/host/vm/s", options()).receive_rest();
    assert_received(
        &received,
        &[
            "trace vm/s/a",
            "stream a/c",
            "metadata vm/s/a: m1",
            "packet a/c 0",
            "watermark a/c 20",
            "packet a/c 2",
            "end a/c",
            "end vm/s/a",
            "done",
        ],
    );
    let detached = fake.count(|asked| matches!(asked, Command::DetachSession(_)));
    assert_eq!(detached, 1);
    let hung_up = fake.count(|asked| *asked == Command::GetNextIndex(StreamId(2)));
    assert_eq!(hung_up, 6, "a stream that has ended is not asked again");
}

#[test]
fn all_sessions_of_the_requested_name_and_no_others_are_attached() {
    let fake = Fake::start(vec![
        Session::new(1, "s", vec![trace_records(1, "a")]),
        Session::new(2, "other", vec![]),
        Session::new(3, "s", vec![trace_records(3, "a")]),
    ]);
    fake.put_metadata(1, &["m1"]);
    fake.put_metadata(3, &["m3"]);
    fake.put(2, [ready(0, 0)]);
    fake.put(4, [ready(0, 0)]);
    let mut watch = watch(&fake, "/host/vm/s", options());
    watch.receive_until("packet");
    fake.end();
    let received = watch.receive_rest();
    let packets = received.iter().filter(|text| text.starts_with("packet"));
    assert_eq!(packets.count(), 2, "{received:#?}");
    let attached = fake.count(|asked| matches!(asked, Command::AttachSession(_)));
    assert_eq!(attached, 2);
}

#[test]
fn a_target_without_session_follows_all_sessions_as_they_come_and_go() {
    let fake = one_stream();
    let mut watch = watch(&fake, "", options());
    watch.receive_until("metadata");
    let records = trace_records(3, "b");
    fake.put_metadata(3, &["m3"]);
    fake.put(4, [ready(0, 0)]);
    fake.world()
        .sessions
        .push(Session::new(2, "late", vec![records]));
    watch.receive_until("packet b/c 0");
    fake.end();
    let received = watch.receive_rest();
    assert!(
        received.contains(&"trace vm/late/b".to_owned()),
        "{received:#?}"
    );
    let ended = received.iter().filter(|text| text.starts_with("end"));
    assert_eq!(ended.count(), 4);
}

#[test]
fn a_new_stream_is_announced_before_any_watermark_passes_its_begin() {
    for status in [
        inactive(90, NEW_STREAMS),
        retry(NEW_STREAMS),
        ready(0, NEW_STREAMS),
    ] {
        let fake = one_stream();
        fake.put(2, [status, inactive(95, 0)]);
        let late = trace_records(3, "b");
        fake.put_metadata(3, &["m3"]);
        fake.put(4, [ready(8, 0)]);
        fake.world().sessions[0].batches.push_back(late);
        let mut watch = watch(&fake, "/host/vm/s", options());
        watch.receive_until("watermark a/c 95");
        fake.end();
        let received = watch.receive_rest();
        let place = |word: &str| {
            received
                .iter()
                .position(|text| text.starts_with(word))
                .unwrap()
        };
        assert!(
            place("metadata vm/s/b") < place("watermark"),
            "{received:#?}"
        );
        assert!(place("stream b/c") < place("watermark"), "{received:#?}");
        assert!(
            received.contains(&"packet b/c 8".to_owned()),
            "{received:#?}"
        );
    }
}

#[test]
fn a_missing_session_is_awaited_or_reported_as_the_options_say() {
    let missing = |missing| RelayOptions {
        missing,
        ..options()
    };
    let fake = Fake::start(vec![]);
    let received = watch(&fake, "/host/vm/s", missing(Missing::End)).receive_rest();
    assert_received(&received, &["done"]);
    let received = watch(&fake, "/host/vm/s", missing(Missing::Fail)).receive_rest();
    assert!(
        received[0].starts_with("failed") && received[0].contains("no live session"),
        "{received:?}"
    );

    let mut waiting = watch(&fake, "/host/vm/s", missing(Missing::Wait));
    waiting.receive_until("notice");
    let records = trace_records(1, "a");
    fake.put_metadata(1, &["m1"]);
    fake.put(2, [ready(0, 0)]);
    fake.world()
        .sessions
        .push(Session::new(1, "s", vec![records]));
    waiting.receive_until("packet a/c 0");
    fake.end();
    assert_eq!(waiting.receive_rest().last().unwrap(), "done");
}

#[test]
fn a_session_without_live_timer_is_not_attached() {
    let fake = one_stream();
    fake.world().sessions[0].timer = 0;
    let mut watch = watch(&fake, "/host/vm/s", options());
    watch.receive_until("done");
    assert!(
        watch.received[0].contains("not live"),
        "{:?}",
        watch.received
    );
}

#[test]
fn a_named_session_that_the_relay_refuses_is_an_error_and_another_one_a_notice() {
    for (status, reason) in [
        (AttachStatus::Unknown, "unknown to the relay"),
        (AttachStatus::NotLive, "not live"),
    ] {
        let fake = one_stream();
        fake.world().sessions[0].attach = status;
        let received = watch_s(&fake);
        assert_eq!(
            (received.len(), received[1].as_str()),
            (2, "done"),
            "{received:?}"
        );
        assert!(
            received[0].starts_with("missing ") && received[0].contains(reason),
            "{received:?}"
        );
        let received = watch(&fake, "", options()).receive_rest();
        assert_received(&received, &["done"]);
    }
}

#[test]
fn a_session_that_ends_between_list_and_attach_is_not_an_error_while_sessions_are_awaited() {
    let fake = one_stream();
    fake.world().sessions[0].attach = AttachStatus::Unknown;
    let waiting = RelayOptions {
        missing: Missing::Wait,
        ..options()
    };
    let mut watch = watch(&fake, "/host/vm/s", waiting);
    watch.receive_until("notice");
    fake.put_metadata(11, &["m1"]);
    fake.put(12, [ready(0, 0)]);
    let records = trace_records(11, "a");
    fake.world()
        .sessions
        .push(Session::new(2, "s", vec![records]));
    watch.receive_until("packet a/c 0");
    fake.end();
    assert_eq!(watch.receive_rest().last().unwrap(), "done");
}

#[test]
fn a_session_that_ends_before_it_has_a_trace_is_not_the_one_that_is_awaited() {
    let fake = one_stream();
    let streams = std::mem::take(&mut fake.world().sessions[0].batches);
    fake.world().sessions[0].is_over = true;
    let waiting = RelayOptions {
        missing: Missing::Wait,
        ..options()
    };
    let mut watch = watch(&fake, "/host/vm/s", waiting);
    let why = "has ended before it had any trace; waiting for the next one";
    let is_waiting = |watch: &Watch| watch.received.iter().any(|text| text.ends_with(why));
    watch.receive_until_true(is_waiting);
    fake.put(2, [ready(0, 0)]);
    fake.world()
        .sessions
        .push(Session::new(2, "s", streams.into()));
    watch.receive_until("packet a/c 0");
    fake.end();
    assert_eq!(watch.receive_rest().last().unwrap(), "done");
}

#[test]
fn an_error_of_get_new_streams_is_reported_after_which_the_streams_continue() {
    let fake = one_stream();
    fake.put(2, [ready(0, NEW_STREAMS), ready(1, 0)]);
    fake.answer_instead(GetNewStreams, &[0, 0, 0, 3, 0, 0, 0, 0]);
    let mut watch = watch(&fake, "/host/vm/s", options());
    watch.receive_until("packet a/c 1");
    fake.end();
    let received = watch.receive_rest();
    let is_error = |text: &&String| {
        text.starts_with("missing") && text.contains("new streams of session vm/s")
    };
    assert_eq!(received.iter().filter(is_error).count(), 1, "{received:#?}");
}

fn watch_s(fake: &Fake) -> Vec<String> {
    watch(fake, "/host/vm/s", options()).receive_rest()
}

#[test]
fn sessions_are_listed_with_old_and_new_protocol_versions() {
    for minor in [10, 15] {
        let fake = one_stream();
        fake.world().minor = minor;
        let listing = list(&target(&fake, ""), TEST_TIMEOUT).unwrap();
        let want = format!(
            "net://{}/host/vm/s (timer = 1000, 0 stream(s), 0 client(s) connected)\n",
            fake.address
        );
        assert_eq!(listing.to_string(), want);
    }
}

#[test]
fn a_packet_without_metadata_does_not_delay_the_end_of_its_session() {
    let records = vec![record(2, 1, "a", "c")];
    let fake = Fake::start(vec![Session::new(1, "s", vec![records])]);
    fake.put(2, [ready(0, 0)]);
    let mut watch = watch(&fake, "/host/vm/s", options());
    watch.receive_until("stream");
    fake.end();
    let received = watch.receive_rest();
    assert_received(
        &received,
        &[
            "trace vm/s/a",
            "stream a/c",
            "end a/c",
            "end vm/s/a",
            "done",
        ],
    );
}
