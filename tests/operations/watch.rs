//! What a relay tells over HTTP.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::Value;
use tests::lab::Lab;
use tests::lttng::SessionDaemon;
use tests::producer::{Producer, live_session, packet};
use tests::relay::Relay;
use tests::tracee::Puppet;
use tests::viewer::{Viewer, by_channel};
use tests::wait_until;
use tests::watch::Watch;
use viewer_proto::index::IndexStatus;
use viewer_proto::session::Seek;

/// A relay, and who watches it.
fn watched(lab: &Lab) -> (Relay, Watch) {
    let relay = Relay::start_with(lab, &["--http=0"]);
    let watch = Watch::of(&relay);
    (relay, watch)
}

#[test]
fn nothing_listens_unless_it_is_asked_for_and_then_on_this_host_only() {
    let lab = Lab::new();
    let relay = Relay::start(&lab);
    assert!(!relay.has_logged(&["status endpoint enabled"]));
    let (_relay, watch) = watched(&Lab::new());
    assert!(watch.address().ip().is_loopback());
    assert_eq!(watch.get("/healthz"), (200, "ok\n".to_owned()));
    assert_eq!(watch.get("/readyz"), (200, "ok\n".to_owned()));
    assert_eq!(watch.get("/sessions?all"), (200, "[]\n".to_owned()));
    assert_eq!(watch.get("/etc/passwd").0, 404);
}

#[test]
fn numbers_are_those_of_what_was_sent_and_stay_when_the_session_has_ended() {
    let lab = Lab::new();
    let (relay, watch) = watched(&lab);
    let mut producer = Producer::open(&relay, live_session("counted"));
    let stream = producer.add_trace("ust/uid/0/64-bit", &["chan_0"])[0];
    for number in 0..10 {
        producer.send_packet(stream, number, 1000);
    }
    // The one before it does not come.
    producer.data.write_all(&packet(stream, 11, 500)).unwrap();
    wait_until("it waits", || watch.number("relayd_packets_waiting") == 1);
    for (name, value) in [
        ("relayd_packets_total", 10),
        ("relayd_bytes_total", 10_000),
        ("relayd_packets_lost_total", 0),
        ("relayd_bytes_waiting", 500),
        ("relayd_streams", 1),
        ("relayd_streams_paused", 0),
        ("relayd_sessions{state=\"connected\"}", 1),
        ("relayd_connections{port=\"control\"}", 1),
        ("relayd_connections{port=\"data\"}", 1),
        ("relayd_viewers", 0),
        ("relayd_write_errors_total{kind=\"full\"}", 0),
    ] {
        assert_eq!(watch.number(name), value, "{name}");
    }
    let sessions = watch.json("/sessions");
    let session = &sessions[0];
    assert_eq!(session["name"], "counted");
    assert_eq!(session["host"], "host");
    assert_eq!(session["live_timer_us"], 100_000);
    assert_eq!(session["state"], "recording");
    assert_eq!(
        (&session["packets"], &session["streams"]),
        (&Value::from(10), &Value::from(1))
    );
    drop(producer);
    wait_until("the session has ended", || {
        watch.json("/sessions") == Value::Array(Vec::new()) && watch.number("relayd_streams") == 0
    });
    assert_eq!(watch.number("relayd_packets_lost_total"), 1);
    assert!(watch.number("relayd_packets_total") >= 10);
    assert_eq!(watch.number("relayd_packets_waiting"), 0);
}

#[test]
fn a_viewers_lag_is_what_it_has_not_asked_for() {
    let lab = Lab::new();
    let (relay, watch) = watched(&lab);
    let mut producer = Producer::open(&relay, live_session("watched"));
    let stream = producer.add_trace("ust/uid/0/64-bit", &["chan_0"])[0];
    for number in 0..5 {
        producer.send_packet(stream, number, 100);
    }
    producer.settle(stream, 4);
    let (mut viewer, _, streams) = Viewer::attached(relay.live, "watched", Seek::Beginning);
    let seen = by_channel(&streams)["chan_0"];
    let lag_is = |packets: u64| {
        for of in ["all", "slowest"] {
            let series = format!("relayd_viewer_lag_packets{{of=\"{of}\"}}");
            assert_eq!(watch.number(&series), packets);
            let series = format!("relayd_viewer_lag_bytes{{of=\"{of}\"}}");
            assert_eq!(watch.number(&series), packets * 100);
        }
        let session = &watch.json("/sessions")[0];
        assert_eq!(session["viewers"], 1);
        assert_eq!(session["slowest_viewer_lag"]["packets"], packets);
        assert_eq!(session["slowest_viewer_lag"]["bytes"], packets * 100);
    };
    lag_is(5);
    for told in 1..=5 {
        assert_eq!(viewer.next_index(seen).status, IndexStatus::Ready);
        lag_is(5 - told);
    }
    drop(viewer);
    wait_until("it is gone", || watch.number("relayd_viewers") == 0);
}

#[test]
fn a_session_of_lttng_is_shown_with_what_it_sends() {
    let lab = Lab::new();
    let (relay, watch) = watched(&lab);
    let daemon = SessionDaemon::start(&lab);
    daemon.create("real", &relay, Some(50_000));
    daemon.channel("real", "busy", &["--subbuf-size=4k"], true);
    daemon.lttng(&["start", "real"]);
    let mut puppet = Puppet::start(&lab, "real");
    puppet.emit(50);
    wait_until("packets are counted", || {
        watch.json("/sessions").as_array().is_some_and(|sessions| {
            sessions
                .iter()
                .any(|session| session["name"] == "real" && session["packets"].as_u64() > Some(0))
        })
    });
    puppet.end();
}

#[test]
fn nonsense_is_refused_and_does_no_harm() {
    let lab = Lab::new();
    let (_relay, watch) = watched(&lab);
    for nonsense in [
        &b"\0\0\0\0\r\n\r\n"[..],
        b"GET\r\n\r\n",
        b"DELETE /sessions HTTP/1.1\r\nHost: x\r\n\r\n",
        &[b'x'; 100_000],
    ] {
        let mut socket = TcpStream::connect(watch.address()).unwrap();
        let _ = socket.write_all(nonsense);
        let _ = socket.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = socket.read_to_end(&mut answer);
        assert!(!answer.starts_with(b"HTTP/1.1 200"));
    }
    // Those who say nothing keep nobody else out for long, and never the producers.
    let silent: Vec<_> = (0..10)
        .map(|_| TcpStream::connect(watch.address()).unwrap())
        .collect();
    assert_eq!(watch.get("/healthz").0, 200);
    drop(silent);
}
