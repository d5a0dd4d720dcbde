//! Viewers with a list of relays whose relay is killed: they go on at one that has got the same
//! packets, under other numbers.

use std::path::{Path, PathBuf};

use ctf::write::{FieldType, Value, Width};
use rustix::process::Signal;
use tests::consumer::{HeldReplay, replay_command};
use tests::lab::Lab;
use tests::process::Process;
use tests::relay::Relay;
use tests::replay::HOST;
use tests::traces::TraceBuilder;
use tests::{test_live, wait_until};

const SESSION: &str = "moved";
const STREAMS: u32 = 2;
/// Times at which each stream has packets.
const TIMES: u64 = 100;
/// Packets of one time, whose index entries are equal.
const PACKETS_AT_ONE_TIME: u64 = 3;
const EVENTS: usize = STREAMS as usize * (TIMES * PACKETS_AT_ONE_TIME) as usize;
/// Nanoseconds between two times: the whole trace takes four seconds.
const INTERVAL: u64 = 20_000_000;
/// Events that are shown when the relay is killed, at least.
const SHOWN: usize = EVENTS / 4;

/// Returns a trace with one event in each packet.
fn trace_with_equal_index_entries(lab: &Lab) -> PathBuf {
    let mut trace = TraceBuilder::new(lab.directory("equal"));
    let tick = trace.event("tick", &[("number", FieldType::Unsigned(Width::Bits64))]);
    let mut streams: Vec<_> = (0..STREAMS).map(|stream| trace.stream(stream)).collect();
    for number in 0..EVENTS as u64 {
        let at_time = number / PACKETS_AT_ONE_TIME;
        let stream = usize::try_from(at_time).unwrap() % streams.len();
        let time = at_time * INTERVAL;
        streams[stream].packet((time, time), &[(time, &tick, &[Value::Unsigned(number)])]);
    }
    trace.finish(streams, true)
}

/// Opens the session at a relay.
fn open(lab: &Lab, relay: &Relay, directory: &Path, rate: &str) -> HeldReplay {
    let mut command = replay_command(lab, relay, SESSION, directory);
    command.args(["--rate", rate]);
    HeldReplay::open(command)
}

/// Starts to show the session of a list of relays from its beginning.
fn show(lab: &Lab, relays: &[&Relay], options: &[&str]) -> Process {
    let hosts: Vec<_> = relays.iter().map(|relay| relay.live.to_string()).collect();
    let url = format!("net://{}/host/{HOST}/{SESSION}", hosts.join(","));
    let options = [&["--seek=beginning", "--no-delta", &url], options].concat();
    test_live::start(lab, &options)
}

fn wait_until_shown(viewer: &Process, events: usize) {
    wait_until("events are shown", || viewer.stdout_line_count() >= events);
}

/// How far another relay is when a viewer comes to it.
#[derive(Clone, Copy)]
enum Packets {
    /// It has all packets.
    All,
    /// It does not have those that the viewer has shown last, and gets them.
    Fewer,
}

/// Kills the first of two relays in the middle of the session. The viewer shows each event once.
fn show_with_killed_relay(next: fn(&Lab) -> Relay, packets: Packets, options: &[&str]) {
    let labs = [Lab::new(), Lab::new()];
    let directory = trace_with_equal_index_entries(&labs[0]);
    let (mut first, second) = (Relay::start(&labs[0]), next(&labs[1]));
    let mut replays = [
        open(&labs[0], &first, &directory, "realtime"),
        match packets {
            Packets::All => open(&labs[1], &second, &directory, "max"),
            Packets::Fewer => open(&labs[1], &second, &directory, "50%"),
        },
    ];
    let mut viewer = show(&labs[0], &[&first, &second], options);
    viewer.wait_for_stderr_text("following session");
    for replay in &mut replays {
        replay.start_sending();
    }
    wait_until_shown(&viewer, SHOWN);
    first.kill();
    viewer.wait_for_stderr_text(&format!("connection restored, to {}", second.live));
    wait_until_shown(&viewer, EVENTS);
    let [killed, replay] = replays;
    killed.kill();
    replay.close_session().wait().expect_success();
    let shown = viewer.wait();
    let plain = test_live::read(&labs[0], &["--no-delta"], &directory).expect_success();
    assert!(shown.stdout == plain, "{:#?}", shown.stdout);
    assert_eq!(shown.status.code(), Some(0), "{:#?}", shown.stderr);
    // After this line there would be a summary, if anything were lost.
    let last = shown.stderr.last().unwrap();
    assert!(last.ends_with("has ended"), "{last}");
}

#[test]
fn a_viewer_goes_on_at_a_relay_that_has_all_packets() {
    show_with_killed_relay(Relay::start, Packets::All, &[]);
}

#[test]
fn a_polling_viewer_goes_on_at_a_relay_that_has_all_packets() {
    show_with_killed_relay(Relay::start, Packets::All, &["--poll"]);
}

#[test]
fn a_viewer_goes_on_at_lttng_relayd() {
    show_with_killed_relay(Relay::start_reference, Packets::All, &[]);
}

#[test]
fn a_viewer_waits_for_what_it_has_shown_at_a_relay_that_is_behind() {
    show_with_killed_relay(Relay::start, Packets::Fewer, &[]);
}

#[test]
fn a_session_that_is_not_at_the_next_relay_is_looked_for_at_the_others() {
    let labs = [Lab::new(), Lab::new(), Lab::new()];
    let directory = trace_with_equal_index_entries(&labs[0]);
    let mut relays = labs.each_ref().map(Relay::start);
    let mut replay = open(&labs[0], &relays[0], &directory, "realtime");
    let mut viewer = show(&labs[0], &relays.each_ref(), &[]);
    viewer.wait_for_stderr_text("following session");
    replay.start_sending();
    wait_until_shown(&viewer, SHOWN);
    relays[0].kill();
    replay.kill();
    viewer.wait_for_stderr_text("looking for them at the other relays");
    let mut replay = open(&labs[2], &relays[2], &directory, "max");
    replay.start_sending();
    viewer.wait_for_stderr_text(&format!("continuing session {HOST}/{SESSION} at"));
    wait_until_shown(&viewer, EVENTS);
    replay.close_session().wait().expect_success();
    let shown = viewer.wait();
    let plain = test_live::read(&labs[0], &["--no-delta"], &directory).expect_success();
    assert!(shown.stdout == plain, "{:#?}", shown.stdout);
    assert_eq!(shown.status.code(), Some(0), "{:#?}", shown.stderr);
    let notices = |text: &str| {
        shown
            .stderr
            .iter()
            .filter(|line| line.contains(text))
            .count()
    };
    for text in [
        "trying the next relay",
        "connection restored",
        "looking for them",
    ] {
        assert_eq!(notices(text), 1, "{text}: {:#?}", shown.stderr);
    }
    let found = format!("continuing session {HOST}/{SESSION} at {}", relays[2].live);
    assert_eq!(notices(&found), 1, "{:#?}", shown.stderr);
}

#[test]
fn a_viewer_that_looks_for_its_session_can_be_stopped() {
    let labs = [Lab::new(), Lab::new()];
    let directory = trace_with_equal_index_entries(&labs[0]);
    let mut relays = labs.each_ref().map(Relay::start);
    let mut replay = open(&labs[0], &relays[0], &directory, "max");
    let mut viewer = show(&labs[0], &relays.each_ref(), &[]);
    replay.send_packets();
    wait_until_shown(&viewer, EVENTS);
    relays[0].kill();
    viewer.wait_for_stderr_text("looking for them at the other relays");
    // The next relay goes away, too: no relay is left.
    relays[1].kill();
    viewer.wait_for_stderr_text("reconnecting");
    viewer.signal(Signal::INT);
    let ended = viewer.wait();
    assert_eq!(ended.stdout.len(), EVENTS);
    assert_eq!(ended.status.code(), Some(0), "{:#?}", ended.stderr);
}
