//! Captures conversations of a real producer with `lttng-relayd` and replays them to `relayd`: the
//! replies, the files and their permissions must be the same.

use tests::capture_proxy::CaptureProxy;
use tests::lab::Lab;
use tests::lttng::SessionDaemon;
use tests::relay::Relay;
use tests::traced_app;
use tests::tree::tree;

/// Runs `record` with the reference through a capture proxy, replays the capture to `relayd` and
/// compares the trees. `minor` is the highest minor protocol version that the proxy lets the
/// producer use.
fn assert_same_tree(minor: Option<u8>, record: impl FnOnce(&Lab, &SessionDaemon<'_>, &[&str])) {
    assert_same_tree_with(&[], "", minor, record);
}

/// Asserts the same as [`assert_same_tree`], with arguments for both relays, and with a base path
/// in the URLs.
fn assert_same_tree_with(
    arguments: &[&str],
    base_path: &str,
    minor: Option<u8>,
    record: impl FnOnce(&Lab, &SessionDaemon<'_>, &[&str]),
) {
    let lab = Lab::new();
    let reference = Relay::start_reference_with(&lab, arguments);
    let proxy = CaptureProxy::before(&reference, minor);
    let (control, data) = proxy.addresses();
    let urls = [
        format!("--ctrl-url=tcp4://{control}{base_path}"),
        format!("--data-url=tcp4://{data}{base_path}"),
    ];
    let daemon = SessionDaemon::start(&lab);
    record(&lab, &daemon, &[&urls[0], &urls[1]]);
    // The session daemon keeps the connections of snapshots open until it exits.
    drop(daemon);
    let capture = proxy.capture();
    let ours = Relay::start_with(&lab, arguments);
    capture.replay(&ours);
    let (want, got) = (tree(&reference.output), tree(&ours.output));
    assert_eq!(
        got.keys().collect::<Vec<_>>(),
        want.keys().collect::<Vec<_>>()
    );
    for (name, node) in &want {
        assert_eq!(got[name].mode, node.mode, "{name}");
        assert!(got[name].contents == node.contents, "{name} differs");
    }
    assert!(want.values().filter(|node| node.contents.is_some()).count() > 2);
}

const PER_USER_BUFFERS: &[&str] = &["--buffers-uid", "--subbuf-size=4k"];
const PER_PROCESS_BUFFERS: &[&str] = &["--buffers-pid", "--subbuf-size=4k"];
const LIMITED_TRACEFILES: &[&str] = &[
    "--buffers-uid",
    "--subbuf-size=4k",
    "--tracefile-size=16k",
    "--tracefile-count=3",
];
const LIVE: &[&str] = &["--live=50000"];

/// Returns the function that records two applications in a session with two channels. `create` are
/// further options of `lttng create`, `options` those of the channels.
fn record(
    create: &'static [&str],
    options: &'static [&str],
) -> impl FnOnce(&Lab, &SessionDaemon<'_>, &[&str]) {
    move |lab, daemon, urls| {
        daemon.lttng(&[&["create", "same"], urls, create].concat());
        daemon.enable_channel("same", "busy", options, true);
        daemon.enable_channel("same", "idle", &options[..1], false);
        daemon.lttng(&["start", "same"]);
        traced_app::run(lab, 2000, 0, "one");
        traced_app::run(lab, 50, 2000, "two");
        daemon.lttng(&["destroy", "same"]);
    }
}

/// Creates a session with one channel and starts it.
fn start_session(daemon: &SessionDaemon<'_>, urls: &[&str], create: &[&str]) {
    daemon.lttng(&[&["create", "same"], urls, create].concat());
    daemon.enable_channel("same", "busy", PER_USER_BUFFERS, true);
    daemon.lttng(&["start", "same"]);
}

#[test]
fn a_live_session_leaves_the_same_tree() {
    assert_same_tree(None, record(LIVE, PER_USER_BUFFERS));
}

#[test]
fn a_session_that_is_not_live_leaves_the_same_tree() {
    assert_same_tree(None, record(&[], PER_USER_BUFFERS));
}

#[test]
fn a_session_with_per_process_buffers_leaves_the_same_tree() {
    assert_same_tree(None, record(LIVE, PER_PROCESS_BUFFERS));
}

#[test]
fn a_session_with_limited_tracefiles_leaves_the_same_tree() {
    assert_same_tree(None, record(&[], LIMITED_TRACEFILES));
}

#[test]
fn a_producer_of_2_10_leaves_the_same_tree() {
    assert_same_tree(Some(10), record(LIVE, PER_USER_BUFFERS));
}

#[test]
fn a_producer_of_2_4_leaves_the_same_tree() {
    assert_same_tree(Some(4), record(&[], PER_USER_BUFFERS));
}

const BY_SESSION: &[&str] = &["--group-output-by-session"];

#[test]
fn a_session_grouped_by_session_leaves_the_same_tree() {
    assert_same_tree_with(BY_SESSION, "", None, record(&[], PER_USER_BUFFERS));
}

#[test]
fn a_session_named_by_date_and_grouped_by_session_leaves_the_same_tree() {
    assert_same_tree_with(BY_SESSION, "", None, |lab, daemon, urls| {
        daemon.lttng(&[&["create"], urls].concat());
        daemon.lttng(&["enable-event", "--userspace", "tracee:*"]);
        daemon.lttng(&["start"]);
        traced_app::run(lab, 50, 0, "one");
        daemon.lttng(&["destroy"]);
    });
}

#[test]
fn a_base_path_grouped_by_host_and_by_session_leaves_the_same_tree() {
    for arguments in [&[][..], BY_SESSION] {
        assert_same_tree_with(arguments, "/my/base", None, record(&[], PER_USER_BUFFERS));
    }
}

#[test]
fn a_producer_of_2_10_grouped_by_session_leaves_the_same_tree() {
    assert_same_tree_with(BY_SESSION, "", Some(10), record(&[], PER_USER_BUFFERS));
}

#[test]
fn a_rotated_session_leaves_the_same_tree() {
    assert_same_tree(None, |lab, daemon, urls| {
        start_session(daemon, urls, &[]);
        traced_app::run(lab, 300, 0, "first");
        daemon.lttng(&["rotate", "same"]);
        traced_app::run(lab, 300, 0, "second");
        daemon.lttng(&["stop", "same"]);
        daemon.lttng(&["rotate", "same"]);
        daemon.lttng(&["start", "same"]);
        traced_app::run(lab, 300, 0, "third");
        daemon.lttng(&["destroy", "same"]);
    });
}

#[test]
fn a_cleared_session_leaves_the_same_tree() {
    assert_same_tree(None, |lab, daemon, urls| {
        start_session(daemon, urls, &[]);
        traced_app::run(lab, 300, 0, "first");
        daemon.lttng(&["clear", "same"]);
        traced_app::run(lab, 30, 0, "second");
        daemon.lttng(&["stop", "same"]);
        daemon.lttng(&["clear", "same"]);
        daemon.lttng(&["start", "same"]);
        traced_app::run(lab, 30, 0, "third");
        daemon.lttng(&["destroy", "same"]);
    });
}

#[test]
fn snapshots_leave_the_same_tree() {
    assert_same_tree(None, |lab, daemon, urls| {
        start_session(daemon, urls, &["--snapshot"]);
        traced_app::run(lab, 50, 0, "first");
        daemon.lttng(&["snapshot", "record", "--session=same"]);
        traced_app::run(lab, 50, 0, "second");
        daemon.lttng(&["snapshot", "record", "--session=same"]);
        daemon.lttng(&["destroy", "same"]);
    });
}

#[test]
fn regenerated_metadata_leaves_the_same_tree() {
    assert_same_tree(None, |lab, daemon, urls| {
        start_session(daemon, urls, &[]);
        traced_app::run(lab, 50, 0, "first");
        daemon.lttng(&["regenerate", "metadata", "--session=same"]);
        traced_app::run(lab, 50, 0, "second");
        daemon.lttng(&["destroy", "same"]);
    });
}
