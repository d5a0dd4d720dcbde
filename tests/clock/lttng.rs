//! `consumer clock` beside the session daemon of LTTng: its traces have the same clock.

use tests::lab::Lab;
use tests::lttng::SessionDaemon;
use tests::process::Process;
use tests::traced_app::TracedApp;
use tests::viewer::hostname;
use tests::{test_live, wait_until};

use crate::align::{SECOND, start_relay};
use crate::samples::{clock_command_of, stop};

#[test]
fn events_of_lttng_are_aligned_by_the_samples_of_their_host() {
    let lab = Lab::new();
    let shift = -100 * SECOND;
    let relay = start_relay(&lab, shift, &[]);
    let daemon = SessionDaemon::start(&lab);
    daemon.create_session("session", &relay, Some(100_000));
    daemon.enable_channel("session", "channel", &[], true);
    daemon.lttng(&["start", "session"]);
    let host = hostname();
    let samples = Process::start(&mut clock_command_of(&lab, &host, &relay.producer_url()));
    let mut app = TracedApp::start(&lab, "app");
    app.emit(20);
    app.end();
    let read = |options: &[&str]| {
        let options = [&["--no-follow", "--clock-seconds", "--no-delta"], options].concat();
        test_live::read(&lab, &options, &relay.output)
    };
    let tracepoints = |lines: &[String]| -> Vec<i64> {
        let lines = lines.iter().filter(|line| line.contains(" tracee:"));
        let time = |line: &String| line[1..].split_once(']').unwrap().0.replace('.', "");
        lines.map(|line| time(line).parse().unwrap()).collect()
    };
    wait_until("all is recorded", || {
        let lines = read(&["--quiet"]).stdout;
        let of_samples = lines.iter().filter(|line| line.contains("clock:sample"));
        of_samples.count() > 3 && tracepoints(&lines).len() == 20
    });
    stop(samples);
    daemon.lttng(&["destroy", "session"]);
    let plain = tracepoints(&read(&["--quiet"]).stdout);
    let aligned = read(&["--align"]);
    let notice = format!("test-live: {host}: -");
    let notices = aligned
        .stderr
        .iter()
        .filter(|line| line.starts_with(&notice));
    assert_eq!(notices.count(), 1, "{:?}", aligned.stderr);
    let times = tracepoints(&aligned.stdout);
    assert_eq!(times.len(), plain.len());
    for (time, plain) in times.iter().zip(plain) {
        // The relay and this host read the same clock, at different times.
        assert!(
            (time - plain - shift).abs() < SECOND / 100,
            "{time} {plain}"
        );
    }
}
