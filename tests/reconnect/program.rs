//! The program `test-live` with connections that are cut, and relays that go away.

use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tests::cut_proxy::CutProxy;
use tests::lab::Lab;
use tests::process::Process;
use tests::relay::Relay;
use tests::replay::{HOST, IdleStream, MetadataPieces, Replay};
use tests::{test_live, wait_until};

use crate::cuts::ATTACHED_BYTES;
use crate::{EVENTS_IN_PACKET, STREAMS, interleaved_trace};

const SESSION: &str = "cut";

fn open(relay: &Relay, session: &str, directory: &Path) -> Replay {
    let (pieces, idle) = (MetadataPieces::Many, IdleStream::Absent);
    Replay::open(relay, session, directory, pieces, idle)
}

/// Starts to show a session from its beginning.
fn show(lab: &Lab, address: std::net::SocketAddr, options: &[&str]) -> Process {
    let url = test_live::url(address, HOST, SESSION);
    let options = [&["--seek=beginning", &url], options].concat();
    test_live::start(lab, &options)
}

#[test]
fn every_sink_writes_the_same_with_and_without_lost_connections() {
    const CUTS: usize = 8;
    const PACKETS: u64 = 100;
    let (lab, relay) = Relay::start_in_new_lab();
    let directory = interleaved_trace(&lab, "interleaved", PACKETS);
    let sinks = ["text", "details", "json", "tef", "ctf"];
    let output = |sink: &str| lab.path().join(format!("output-{sink}"));
    let mut replay = open(&relay, SESSION, &directory);
    let mut viewers: Vec<(Process, CutProxy)> = Vec::new();
    for (seed, sink) in sinks.iter().enumerate() {
        let proxy = CutProxy::start(relay.live, seed as u64);
        proxy.set_cutting(true);
        let path = output(sink);
        let arguments = ["--sink", sink, "-w", path.to_str().unwrap()];
        viewers.push((show(&lab, proxy.address, &arguments), proxy));
    }
    for (viewer, _) in &mut viewers {
        viewer.wait_for_stderr_text("following session");
    }
    replay.send_packets();
    for (viewer, proxy) in &mut viewers {
        wait_until("connections are cut", || proxy.cuts() >= CUTS);
        viewer.wait_for_stderr_text("connection restored");
        proxy.set_cutting(false);
        wait_until("the connection is restored", || {
            proxy.is_restored(ATTACHED_BYTES)
        });
    }
    replay.close();
    for (viewer, _) in viewers {
        viewer.wait().expect_success();
    }
    let plain = |sink: &str, directory: &Path| {
        let read = test_live::read(&lab, &["--sink", sink], directory);
        assert!(read.status.success(), "{sink}: {:?}", read.stderr);
        read.stdout_bytes
    };
    for sink in ["text", "details", "json"] {
        let shown = std::fs::read(output(sink)).unwrap();
        assert!(
            without_trace_name(&shown) == without_trace_name(&plain(sink, &directory)),
            "{sink}"
        );
    }
    let events = PACKETS * EVENTS_IN_PACKET * STREAMS;
    let tef = std::fs::read_to_string(output("tef")).unwrap();
    assert_eq!(tef.matches("\"tick\"").count() as u64, events);
    let copied = plain("text", &output("ctf"));
    assert!(copied == plain("text", &directory), "ctf");
}

/// Returns the output without what names the trace: it is another on disk than in a session.
fn without_trace_name(output: &[u8]) -> Vec<String> {
    let text = String::from_utf8(output.to_vec()).unwrap();
    let is_named = |line: &&str| !line.contains("host/") && !line.contains("interleaved");
    text.lines().filter(is_named).map(str::to_owned).collect()
}

#[test]
fn sessions_of_several_relays_continue_in_order_while_their_connections_are_cut() {
    const PACKETS: u64 = 60;
    let labs = [Lab::new(), Lab::new()];
    let relays = [Relay::start(&labs[0]), Relay::start(&labs[1])];
    let directory = interleaved_trace(&labs[0], "interleaved", PACKETS);
    let mut replays: Vec<Replay> = Vec::new();
    for relay in &relays {
        for session in ["one", "two"] {
            replays.push(open(relay, session, &directory));
        }
    }
    let proxies: Vec<CutProxy> = relays
        .iter()
        .zip(7..)
        .map(|(relay, seed)| {
            let proxy = CutProxy::start(relay.live, seed);
            proxy.set_cutting(true);
            proxy
        })
        .collect();
    let targets: Vec<String> = proxies
        .iter()
        .map(|proxy| proxy.address.to_string())
        .collect();
    let options = [
        "--seek=beginning",
        "--no-delta",
        "--clock-cycles",
        "--no-follow",
    ];
    let arguments: Vec<&str> = options
        .into_iter()
        .chain(targets.iter().map(String::as_str))
        .collect();
    let viewer = test_live::start(&labs[0], &arguments);
    // A stream that is announced later than events of others are shown cannot be in order.
    wait_until("all sessions are followed", || {
        let lines = viewer.stderr();
        let followed = lines
            .iter()
            .filter(|line| line.contains("following session"));
        followed.count() == 4
    });
    replays.iter_mut().for_each(Replay::send_packets);
    wait_until("connections are cut", || {
        proxies.iter().all(|proxy| proxy.cuts() >= 4)
    });
    for proxy in &proxies {
        proxy.set_cutting(false);
    }
    wait_until("the connections are restored", || {
        proxies
            .iter()
            .all(|proxy| proxy.is_restored(2 * ATTACHED_BYTES))
    });
    replays.into_iter().for_each(Replay::close);
    let shown = viewer.wait().expect_success();
    let times: Vec<u64> = shown.iter().map(|line| time_of(line)).collect();
    let events = PACKETS * EVENTS_IN_PACKET * STREAMS;
    let want = (0..events).flat_map(|time| [time; 4]);
    assert!(times.iter().copied().eq(want), "{} events", times.len());
}

/// Returns the cycles in a line of text.
fn time_of(line: &str) -> u64 {
    let (time, _) = line.trim_start_matches('[').split_once(']').unwrap();
    time.parse().unwrap()
}

#[test]
fn a_viewer_that_waits_for_a_relay_exits_as_the_options_and_signals_say() {
    let lab = Lab::new();
    let directory = interleaved_trace(&lab, "interleaved", 3);
    for (options, signal, text) in [
        (
            &["--reconnect-timeout=0"][..],
            None,
            "closed the connection",
        ),
        (&["--no-retry"], None, "closed the connection"),
        (&["--reconnect-timeout=1"], None, "not reconnected for"),
        (&[], Some(Signal::INT), "reconnecting"),
    ] {
        let relay_lab = Lab::new();
        let mut relay = Relay::start(&relay_lab);
        let mut replay = open(&relay, SESSION, &directory);
        replay.send_packets();
        let mut viewer = show(&lab, relay.live, options);
        wait_until("events are shown", || viewer.stdout_line_count() > 10);
        relay.kill();
        if let Some(signal) = signal {
            viewer.wait_for_stderr_text("reconnecting");
            viewer.signal(signal);
        }
        let begun = Instant::now();
        let ended = viewer.wait();
        assert!(begun.elapsed() < Duration::from_secs(10));
        let status = if signal.is_some() { 0 } else { 1 };
        assert_eq!(ended.status.code(), Some(status), "{options:?}");
        let is_printed = ended.stderr.iter().any(|line| line.contains(text));
        assert!(is_printed, "{options:?}: {:?}", ended.stderr);
        drop(replay);
    }
}

#[test]
fn a_session_that_a_restarted_lttng_relayd_has_lost_ends_with_an_error_after_a_while() {
    let lab = Lab::new();
    let directory = interleaved_trace(&lab, "interleaved", 3);
    let mut relay = Relay::start_reference(&lab);
    let mut replay = open(&relay, SESSION, &directory);
    replay.send_packets();
    let mut viewer = show(&lab, relay.live, &["--no-delta"]);
    let events = usize::try_from(3 * EVENTS_IN_PACKET * STREAMS).unwrap();
    wait_until("all events are shown", || {
        viewer.stdout_line_count() == events
    });
    relay.kill();
    viewer.wait_for_stderr_text("reconnecting");
    drop(replay);
    let addresses = relay.addresses();
    drop(relay);
    let next_lab = Lab::new();
    let _relay = Relay::start_reference_at(&next_lab, addresses);
    viewer.wait_for_stderr_text("connection restored");
    let ended = viewer.wait();
    assert_eq!(ended.status.code(), Some(1));
    assert_eq!(ended.stdout.len(), events);
    let is_missing = |line: &String| line.contains("does not have it any more");
    assert!(ended.stderr.iter().any(is_missing), "{:?}", ended.stderr);
}
