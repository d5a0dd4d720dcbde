//! A real LTTng streams in, real Babeltraces watch live, and the directory holds the same.

use tests::babeltrace::{Babeltrace, numbers};
use tests::lab::Lab;
use tests::lttng::SessionDaemon;
use tests::process::Process;
use tests::relay::Relay;
use tests::tracee::{self, Puppet};
use tests::viewer::Viewer;

/// Microseconds.
const LIVE_TIMER: u32 = 100_000;

/// So many viewers that follow the session, all of them attached.
fn follow(relay: &Relay, session: &str, with: &[Babeltrace]) -> Vec<Process> {
    let viewers = with
        .iter()
        .map(|babeltrace| babeltrace.follow(relay, session))
        .collect();
    let mut watcher = Viewer::connect(relay.live);
    watcher.wait_for_listed(session, |listed| listed.viewers as usize == with.len());
    viewers
}

/// What each of them has printed, once the session has ended and all went well.
fn printed(viewers: Vec<Process>) -> Vec<Vec<String>> {
    viewers
        .into_iter()
        .map(|viewer| {
            let ended = viewer.wait();
            assert!(
                ended.status.success(),
                "{}: {:#?}",
                ended.status,
                ended.stderr
            );
            assert_eq!(ended.stderr, Vec::<String>::new());
            ended.stdout
        })
        .collect()
}

/// The lines without the milliseconds in which the two viewers differ in form.
fn sorted(mut lines: Vec<String>) -> Vec<String> {
    lines.sort();
    lines
}

#[test]
fn every_viewer_and_the_directory_show_every_event_once() {
    const COUNT: usize = 200_000;
    let lab = Lab::new();
    let relay = Relay::start(&lab);
    let daemon = SessionDaemon::start(&lab);
    daemon.create("all", &relay, Some(LIVE_TIMER));
    let options = [
        "--subbuf-size=64k",
        "--num-subbuf=8",
        "--blocking-timeout=inf",
    ];
    daemon.channel("all", "busy", &options, true);
    // Never has an event: only beacons let viewers go on.
    daemon.channel("all", "idle", &[], false);
    let viewers = follow(
        &relay,
        "all",
        &[Babeltrace::Two, Babeltrace::Two, Babeltrace::Two],
    );
    daemon.lttng(&["start", "all"]);
    tracee::run(&lab, COUNT, 0, "all");
    daemon.lttng(&["destroy", "all"]);
    let seen = printed(viewers);
    let directory = Babeltrace::Two.read(&relay.output).succeeded();
    let mut all = numbers(&directory);
    all.sort_unstable();
    assert!(all.into_iter().eq(0..COUNT));
    for lines in seen {
        assert_eq!(lines.len(), COUNT);
        assert!(
            lines == directory,
            "the live view differs from the directory"
        );
    }
}

#[test]
fn both_babeltraces_read_the_session_and_its_directory() {
    let lab = Lab::new();
    let relay = Relay::start(&lab);
    let daemon = SessionDaemon::start(&lab);
    daemon.create("both", &relay, Some(LIVE_TIMER));
    daemon.channel("both", "busy", &["--subbuf-size=4k"], true);
    let listed = format!(
        "net://{}/host/{}/both",
        relay.live,
        tests::viewer::hostname()
    );
    for babeltrace in [Babeltrace::One, Babeltrace::Two] {
        let list = babeltrace.list(&relay);
        assert!(
            list.iter().any(|line| line.starts_with(&listed)),
            "{babeltrace:?}: {list:?}"
        );
    }
    let viewers = follow(&relay, "both", &[Babeltrace::One, Babeltrace::Two]);
    daemon.lttng(&["start", "both"]);
    let mut puppet = Puppet::start(&lab, "both");
    puppet.emit(40);
    puppet.end();
    daemon.lttng(&["destroy", "both"]);
    let mut seen = printed(viewers);
    for babeltrace in [Babeltrace::One, Babeltrace::Two] {
        seen.push(babeltrace.read(&relay.output).succeeded());
    }
    for lines in seen {
        assert!(numbers(&lines).into_iter().eq(0..40), "{lines:#?}");
    }
}

#[test]
fn processes_with_buffers_of_their_own_are_seen_even_if_they_live_briefly() {
    let lab = Lab::new();
    let relay = Relay::start(&lab);
    let daemon = SessionDaemon::start(&lab);
    daemon.create("pid", &relay, Some(LIVE_TIMER));
    daemon.channel("pid", "busy", &["--buffers-pid", "--subbuf-size=4k"], true);
    daemon.lttng(&["start", "pid"]);
    let mut idle = Puppet::start(&lab, "idle");
    idle.emit(1);
    let mut watcher = Viewer::connect(relay.live);
    watcher.wait_for_listed("pid", |listed| listed.streams > 0);
    let viewers = follow(
        &relay,
        "pid",
        &[Babeltrace::Two, Babeltrace::One, Babeltrace::Two],
    );
    // Lives about 50 ms, while all that the viewers know of has nothing to say.
    tracee::run(&lab, 25, 2000, "brief");
    daemon.lttng(&["destroy", "pid"]);
    idle.end();
    let directory = sorted(Babeltrace::Two.read(&relay.output).succeeded());
    assert_eq!(directory.len(), 26);
    for lines in printed(viewers) {
        let brief: Vec<_> = lines
            .iter()
            .filter(|line| line.contains("\"brief\""))
            .cloned()
            .collect();
        assert!(numbers(&brief).into_iter().eq(0..25), "{lines:#?}");
    }
}

#[test]
fn tracefiles_that_are_replaced_do_not_disturb_viewers() {
    const COUNT: usize = 400;
    let lab = Lab::new();
    let relay = Relay::start(&lab);
    let daemon = SessionDaemon::start(&lab);
    daemon.create("ring", &relay, Some(LIVE_TIMER));
    let options = [
        "--subbuf-size=4k",
        "--tracefile-size=16k",
        "--tracefile-count=3",
    ];
    daemon.channel("ring", "busy", &options, true);
    daemon.channel("ring", "idle", &options, false);
    let viewers = follow(
        &relay,
        "ring",
        &[Babeltrace::Two, Babeltrace::Two, Babeltrace::Two],
    );
    daemon.lttng(&["start", "ring"]);
    // About forty packets: three times what is kept, at a pace that viewers can follow.
    tracee::run(&lab, COUNT, 10_000, "ring");
    daemon.lttng(&["destroy", "ring"]);
    let seen = printed(viewers);
    for lines in &seen {
        assert!(numbers(lines).into_iter().eq(0..COUNT));
    }
    let directory = Babeltrace::Two.read(&relay.output).succeeded();
    assert!(directory.len() < COUNT, "nothing has been replaced");
    for cpu in 0..64 {
        let cpu = format!("cpu_id = {cpu} ");
        let of_cpu = |lines: &[String]| -> Vec<String> {
            lines
                .iter()
                .filter(|line| line.contains(&cpu))
                .cloned()
                .collect()
        };
        assert!(of_cpu(&seen[0]).ends_with(&of_cpu(&directory)), "{cpu}");
    }
    let files = tests::tree::files(&relay.output, "");
    assert!(files.keys().any(|name| name.ends_with("_2")));
    assert!(!files.keys().any(|name| name.ends_with("_3")));
    assert!(files.values().all(|contents| contents.len() <= 16 << 10));
}
