//! The status endpoint (`--http`): metrics, sessions, health and readiness.

use std::io::Write;
use std::net::TcpStream;

use serde_json::Value;
use tests::lab::Lab;
use tests::lttng::SessionDaemon;
use tests::producer::{Producer, live_session, read_to_close};
use tests::relay::Relay;
use tests::status_endpoint::StatusEndpoint;
use tests::traced_app::TracedApp;
use tests::viewer::{Viewer, by_channel};
use tests::wait_until;
use viewer_proto::index::IndexStatus;
use viewer_proto::session::Seek;

#[test]
fn status_endpoint_is_off_by_default_and_listens_on_loopback_only() {
    let (_lab, relay) = Relay::start_in_new_lab();
    assert!(!relay.has_logged(&["status endpoint enabled"]));
    let (_relay, status) = StatusEndpoint::start_relay(&Lab::new(), &[]);
    assert!(status.address().ip().is_loopback());
    assert_eq!(status.get("/healthz"), (200, "ok\n".to_owned()));
    assert_eq!(status.get("/readyz"), (200, "ok\n".to_owned()));
    assert_eq!(status.get("/sessions?all"), (200, "[]\n".to_owned()));
    assert_eq!(status.get("/etc/passwd").0, 404);
}

#[test]
fn metrics_count_what_was_sent_and_keep_their_totals_after_the_session_ends() {
    let lab = Lab::new();
    let (relay, status) = StatusEndpoint::start_relay(&lab, &[]);
    let (mut producer, stream) = Producer::open_with_trace(&relay, live_session("counted"));
    for number in 0..10 {
        producer.send_packet(stream, number, 1000);
    }
    // Packet 10 never arrives.
    producer.send_data(stream, 11, 500);
    status.wait_for_metric("relayd_reorder_buffered_packets", 1);
    for (name, value) in [
        ("relayd_packets_total", 10),
        ("relayd_bytes_total", 10_000),
        ("relayd_packets_lost_total", 0),
        ("relayd_reorder_buffered_bytes", 500),
        ("relayd_streams", 1),
        ("relayd_streams_paused", 0),
        ("relayd_sessions{state=\"connected\"}", 1),
        ("relayd_connections{port=\"control\"}", 1),
        ("relayd_connections{port=\"data\"}", 1),
        ("relayd_viewers", 0),
        ("relayd_write_errors_total{kind=\"full\"}", 0),
    ] {
        assert_eq!(status.metric(name), value, "{name}");
    }
    let sessions = status.json("/sessions");
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
        status.json("/sessions") == Value::Array(Vec::new()) && status.metric("relayd_streams") == 0
    });
    assert_eq!(status.metric("relayd_packets_lost_total"), 1);
    assert!(status.metric("relayd_packets_total") >= 10);
    assert_eq!(status.metric("relayd_reorder_buffered_packets"), 0);
}

#[test]
fn viewer_lag_is_what_the_viewer_has_not_requested() {
    let lab = Lab::new();
    let (relay, status) = StatusEndpoint::start_relay(&lab, &[]);
    let (mut producer, stream) = Producer::open_with_trace(&relay, live_session("watched"));
    for number in 0..5 {
        producer.send_packet(stream, number, 100);
    }
    producer.wait_while_pending(stream, 4);
    let (mut viewer, _, streams) = Viewer::attached(relay.live, "watched", Seek::Beginning);
    let seen = by_channel(&streams)["chan_0"];
    let lag_is = |packets: u64| {
        for max in ["", "max_"] {
            let series = format!("relayd_viewer_lag_{max}packets");
            assert_eq!(status.metric(&series), packets);
            let series = format!("relayd_viewer_lag_{max}bytes");
            assert_eq!(status.metric(&series), packets * 100);
        }
        let session = &status.json("/sessions")[0];
        assert_eq!(session["viewers"], 1);
        assert_eq!(session["slowest_viewer_lag"]["packets"], packets);
        assert_eq!(session["slowest_viewer_lag"]["bytes"], packets * 100);
    };
    lag_is(5);
    for sent in 1..=5 {
        assert_eq!(viewer.next_index(seen).status, IndexStatus::Ready);
        lag_is(5 - sent);
    }
    drop(viewer);
    status.wait_for_metric("relayd_viewers", 0);
}

#[test]
fn a_session_of_lttng_is_listed_with_its_packet_count() {
    let lab = Lab::new();
    let (relay, status) = StatusEndpoint::start_relay(&lab, &[]);
    let daemon = SessionDaemon::start_with_session(&lab, &relay, "real", Some(50_000));
    daemon.lttng(&["start", "real"]);
    let mut app = TracedApp::start(&lab, "real");
    app.emit(50);
    wait_until("packets are counted", || {
        status.json("/sessions").as_array().is_some_and(|sessions| {
            sessions
                .iter()
                .any(|session| session["name"] == "real" && session["packets"].as_u64() > Some(0))
        })
    });
    app.end();
}

#[test]
fn malformed_http_requests_are_refused_and_block_no_other_client() {
    let lab = Lab::new();
    let (_relay, status) = StatusEndpoint::start_relay(&lab, &[]);
    for malformed in [
        &b"\0\0\0\0\r\n\r\n"[..],
        b"GET\r\n\r\n",
        b"DELETE /sessions HTTP/1.1\r\nHost: x\r\n\r\n",
        &[b'x'; 100_000],
    ] {
        let mut socket = TcpStream::connect(status.address()).unwrap();
        let _ = socket.write_all(malformed);
        let _ = socket.shutdown(std::net::Shutdown::Write);
        let answer = read_to_close(&socket);
        assert!(!answer.starts_with(b"HTTP/1.1 200"));
    }
    // Clients that send nothing block other clients only briefly, and producers never.
    let silent: Vec<_> = (0..10)
        .map(|_| TcpStream::connect(status.address()).unwrap())
        .collect();
    assert_eq!(status.get("/healthz").0, 200);
    drop(silent);
}
