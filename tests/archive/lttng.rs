//! Sessions of LTTng that a relay archives: the archive has what the output has.

use tests::babeltrace::Babeltrace;
use tests::lab::Lab;
use tests::lttng::SessionDaemon;
use tests::relay::Relay;
use tests::traced_app::{self, TracedApp};
use tests::viewer::hostname;
use tests::wait_until;

use crate::system::{
    ArchiveDirectory, assert_same_text, read, start_relay, text, texts_of_other_relay,
};

const SESSION: &str = "archived";

/// How often commit objects are made: while LTTng records, and at the end only.
const INTERVALS: [&str; 2] = ["20ms", "1h"];

/// Has LTTng record a session, and compares the archive with the output.
fn assert_archived(
    create: &[&str],
    channel: &[&str],
    record: impl Fn(&Lab, &SessionDaemon<'_>, &Relay),
) {
    for interval in INTERVALS {
        let lab = Lab::new();
        let archive = ArchiveDirectory::new(&lab);
        let options = ["--archive-interval", interval, "--archive-part-age=300ms"];
        let relay = start_relay(&lab, &archive, &options);
        let output = relay.output.clone();
        let daemon = SessionDaemon::start(&lab);
        let url = |address| format!("tcp4://{address}");
        let control = format!("--ctrl-url={}", url(relay.control));
        let data = format!("--data-url={}", url(relay.data));
        daemon.lttng(&[&["create", SESSION, &control, &data], create].concat());
        daemon.enable_channel(SESSION, "busy", channel, true);
        daemon.lttng(&["start", SESSION]);
        record(&lab, &daemon, &relay);
        daemon.lttng(&["destroy", SESSION]);
        drop(daemon);
        wait_until("the session has ended", || {
            relay.has_logged(&["session ended"])
        });
        relay.stop().expect_success();
        assert_eq!(archive.ended(), 1, "{:?}", archive.objects("days"));
        let want = text(&lab, &output);
        assert!(!want.is_empty());
        let theirs = Babeltrace::Two.read_with(&["--clock-gmt"], &output);
        assert_same_text("babeltrace2", &theirs.expect_success(), &want);
        let got = text(&lab, archive.session_url(&hostname(), SESSION));
        assert_same_text(&format!("archive, {interval}"), &got, &want);
        let [live, theirs] = texts_of_other_relay(&archive, &hostname(), SESSION);
        let live = without_times(&live.expect_success());
        assert_same_text("another relay", &live, &without_times(&want));
        let want = read(
            &lab,
            &["--clock-gmt", "--no-delta"],
            output.to_str().unwrap(),
        )
        .expect_success();
        let theirs = without_times(&theirs.expect_success());
        assert_same_text("babeltrace2", &theirs, &without_times(&want));
    }
}

/// The lines from the host on. Viewers of a live session get one metadata for all chunks, and each
/// regeneration measures the offset of the clock again, by some nanoseconds.
fn without_times(lines: &[String]) -> Vec<String> {
    let host = format!(" {} ", hostname());
    let events = lines.iter().filter_map(|line| line.split_once(&host));
    events.map(|(_, event)| event.to_owned()).collect()
}

const PER_USER: &[&str] = &["--buffers-uid", "--subbuf-size=4k"];

#[test]
fn a_session_with_rotations_is_archived() {
    assert_archived(&[], PER_USER, |lab, daemon, _| {
        let mut app = TracedApp::start(lab, "app");
        app.emit(300);
        daemon.lttng(&["rotate", SESSION]);
        app.emit(300);
        daemon.lttng(&["stop", SESSION]);
        daemon.lttng(&["rotate", SESSION]);
        daemon.lttng(&["start", SESSION]);
        app.emit(300);
        app.end();
    });
}

#[test]
fn a_cleared_session_is_archived() {
    assert_archived(&[], PER_USER, |lab, daemon, _| {
        let mut app = TracedApp::start(lab, "app");
        app.emit(300);
        daemon.lttng(&["clear", SESSION]);
        app.emit(100);
        daemon.lttng(&["stop", SESSION]);
        daemon.lttng(&["clear", SESSION]);
        daemon.lttng(&["start", SESSION]);
        app.emit(50);
        app.end();
    });
}

#[test]
fn a_live_session_of_several_processes_is_archived() {
    let channel = ["--buffers-pid", "--subbuf-size=4k"];
    assert_archived(&["--live=50000"], &channel, |lab, _, _| {
        let apps = ["one", "two"].map(|name| traced_app::start(lab, 500, 500, name));
        for app in apps {
            app.wait().expect_success();
        }
    });
}

#[test]
fn a_session_with_regenerated_metadata_is_archived() {
    assert_archived(&[], PER_USER, |lab, daemon, _| {
        let mut app = TracedApp::start(lab, "app");
        app.emit(300);
        for _ in 0..2 {
            daemon.lttng(&["regenerate", "metadata", &format!("--session={SESSION}")]);
            app.emit(100);
        }
        daemon.lttng(&["rotate", SESSION]);
        app.emit(100);
        daemon.lttng(&["regenerate", "metadata", &format!("--session={SESSION}")]);
        app.emit(100);
        app.end();
    });
}
