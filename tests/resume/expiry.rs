//! Sessions that are not resumed in time, and logs that cannot be restored.

use std::fs;

use tests::lab::Lab;
use tests::producer::live_session;
use tests::relay::Relay;
use tests::resumable::{ResumableProducer, printable};
use tests::wait_until;

use super::{recording, session_directory};

#[test]
fn session_that_is_not_resumed_in_time_ends_and_its_trace_is_closed() {
    let (_lab, relay) = Relay::start_in_new_lab();
    let mut recording = printable(live_session("late"), 1, 10, (0, 0));
    recording.timeout = 1;
    let mut producer = ResumableProducer::new(recording);
    assert!(producer.try_send(relay.addresses(), 30_000).is_err());
    relay.wait_for_log(&["its producer has not resumed it in time"]);
    wait_until("the log is removed", || {
        !relay.output.join(".relayd").exists()
    });
    let printed =
        tests::babeltrace::Babeltrace::Two.read(&session_directory(&relay.output, "late"));
    assert!(printed.stderr.is_empty(), "{:#?}", printed.stderr);
}

#[test]
fn restored_session_that_is_not_resumed_in_time_ends() {
    let lab = Lab::new();
    let mut relay = Relay::start(&lab);
    let addresses = relay.addresses();
    let mut recording = recording("restored");
    recording.timeout = 1;
    let mut producer = ResumableProducer::new(recording);
    producer.leaves_open = true;
    assert!(producer.try_send(addresses, 2200).is_err());
    relay.kill();
    let relay = Relay::start_at(&lab, addresses);
    relay.wait_for_log(&["session restored"]);
    relay.wait_for_log(&["its producer has not resumed it in time"]);
    wait_until("the log is removed", || {
        !relay.output.join(".relayd").exists()
    });
}

#[test]
fn relay_without_the_extension_ends_sessions_with_their_connections() {
    let lab = Lab::new();
    let relay = Relay::start_with(&lab, &["--resume-timeout=0"]);
    let producer = tests::producer::Producer::open(&relay, live_session("plain"));
    producer.disconnect();
    relay.wait_for_log(&["session ended"]);
    assert!(!relay.output.join(".relayd").exists());
}

#[test]
fn logs_that_are_no_logs_are_set_aside_and_the_relay_starts() {
    let lab = Lab::new();
    let mut relay = Relay::start(&lab);
    let addresses = relay.addresses();
    let mut producer = ResumableProducer::new(recording("kept"));
    producer.leaves_open = true;
    assert!(producer.try_send(addresses, 2200).is_err());
    relay.kill();
    let logs = relay.output.join(".relayd/sessions");
    let log = fs::read_dir(&logs).unwrap().next().unwrap().unwrap().path();
    let whole = fs::read(&log).unwrap();
    fs::write(logs.join("empty.log"), "").unwrap();
    fs::write(logs.join("random.log"), [0x5a; 5000]).unwrap();
    fs::write(logs.join("copy.log"), &whole).unwrap();
    let mut changed = whole.clone();
    changed[60] ^= 1;
    fs::write(logs.join("changed.log"), changed).unwrap();
    fs::create_dir(logs.join("directory.log")).unwrap();
    let relay = Relay::start_at(&lab, addresses);
    let failed = fs::read_dir(&logs).unwrap().filter(|entry| {
        let path = entry.as_ref().unwrap().path();
        path.extension().is_some_and(|end| end == "failed")
    });
    assert_eq!(failed.count(), 5);
    assert!(relay.has_logged(&["session restored"]));
    producer.send(addresses);
    assert_eq!(producer.resumed, 1);
}

#[test]
fn session_whose_directory_is_gone_is_not_restored() {
    let lab = Lab::new();
    let mut relay = Relay::start(&lab);
    let addresses = relay.addresses();
    let mut producer = ResumableProducer::new(recording("gone"));
    producer.leaves_open = true;
    assert!(producer.try_send(addresses, 2200).is_err());
    relay.kill();
    fs::remove_dir_all(session_directory(&relay.output, "gone")).unwrap();
    let relay = Relay::start_at(&lab, addresses);
    relay.wait_for_log(&["session not restored", "does not exist"]);
    let mut again = ResumableProducer::new(recording("gone"));
    again.send(addresses);
    assert_eq!((again.resumed, again.connections), (0, 1));
}
