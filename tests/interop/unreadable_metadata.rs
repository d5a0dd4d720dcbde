//! A directory with a trace whose metadata is empty or cut: the other traces are shown, sent and
//! described, the bad one is named, and the exit status is 1.

use std::fs;
use std::path::PathBuf;

use rustix::process::Signal;
use tests::babeltrace::numbers;
use tests::consumer::replay_command;
use tests::lab::Lab;
use tests::process::{CompletedProcess, Process};
use tests::relay::Relay;
use tests::{test_live, traces, wait_until};

use super::consumer_replay::directory_of;

/// Returns a directory with a trace of ten events, one without metadata, and one whose metadata is
/// cut.
fn with_bad_metadata(lab: &Lab) -> PathBuf {
    let root = lab.directory("session");
    let good = traces::with_numbered_events(lab, "session/good", 10, 1000);
    for (name, bytes) in [("empty", 0), ("cut", 100)] {
        let directory = lab.directory(&format!("session/{name}"));
        let mut metadata = fs::read(good.join("metadata")).unwrap();
        metadata.truncate(bytes);
        fs::write(directory.join("metadata"), metadata).unwrap();
        fs::copy(good.join("events_0"), directory.join("events_0")).unwrap();
    }
    root
}

fn assert_names_both(ended: &CompletedProcess) {
    let says = |what: &str| ended.stderr.iter().any(|line| line.contains(what));
    assert!(
        says("empty/metadata") && says("cut/metadata"),
        "{:#?}",
        ended.stderr
    );
    assert_eq!(ended.status.code(), Some(1));
}

#[test]
fn test_live_shows_the_traces_beside_one_whose_metadata_cannot_be_read() {
    let lab = Lab::new();
    let root = with_bad_metadata(&lab);
    for threads in ["1", "2"] {
        let shown = test_live::read(&lab, &["--threads", threads], &root);
        assert_names_both(&shown);
        assert!(numbers(&shown.stdout).into_iter().eq(0..10));
    }
    let info = test_live::read(&lab, &["info"], &root);
    assert_names_both(&info);
    assert!(
        info.stdout.contains(&"events     10".to_owned()),
        "{:#?}",
        info.stdout
    );
    let top = test_live::read(&lab, &["top", "--batch", "-n", "1"], &root);
    assert_names_both(&top);
    assert!(top.stdout.iter().any(|line| line.starts_with("session")));
    let mut web = test_live::start(
        &lab,
        &["web", "--listen", "127.0.0.1:0", root.to_str().unwrap()],
    );
    web.wait_for_stderr_text("cut/metadata");
    wait_until("the page is served", || !web.stdout().is_empty());
    web.signal(Signal::TERM);
    assert_names_both(&web.wait());
}

#[test]
fn consumer_replay_sends_the_traces_beside_one_whose_metadata_cannot_be_read() {
    let (lab, relay) = Relay::start_in_new_lab();
    let root = with_bad_metadata(&lab);
    let ended = Process::start(&mut replay_command(&lab, &relay, "part", &root)).wait();
    assert_names_both(&ended);
    let copy = test_live::read(&lab, &[], &directory_of(&relay, "part"));
    assert!(numbers(&copy.expect_success()).into_iter().eq(0..10));
}
