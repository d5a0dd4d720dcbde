//! Times of day that differ, and that are set while programs run.

use tests::binaries;
use tests::lab::Lab;
use tests::process::Process;
use tests::relay::Relay;

use crate::samples::{HOST, Sample, clock_command, read, start, stop, wait_for_more};
use crate::shifted_clock::ShiftedClock;

const HOUR: i64 = 3_600_000_000_000;

/// By how much two readings of clocks may differ beside the error that a sample states: the
/// difference of two clocks of this machine is read from two calls of the system.
const READING: u64 = 200_000;

fn assert_near(number: i64, expected: i64, sample: &Sample) {
    let most = sample.error + READING;
    assert!(number.abs_diff(expected) <= most, "{expected}: {sample:?}");
}

#[test]
fn samples_show_by_how_much_the_relay_is_ahead_and_which_clock_was_set() {
    let lab = Lab::new();
    let [of_relay, of_host] = [
        ShiftedClock::new(&lab, "relay", HOUR),
        ShiftedClock::new(&lab, "host", -3 * HOUR),
    ];
    let mut command = lab.command(binaries::relayd());
    of_relay.apply_to(&mut command);
    let relay = Relay::start_from_command(&lab, command);
    let mut command = clock_command(&lab, &relay.producer_url());
    of_host.apply_to(&mut command);
    let clock = Process::start(&mut command);
    let first = wait_for_more(&relay.output, 1);
    for sample in &first {
        assert_near(sample.ahead, 4 * HOUR, sample);
        assert_near(sample.realtime, 0, sample);
        assert_eq!(sample.boot, sample.relay_boot, "{sample:?}");
        assert_eq!(sample.relay, relay.producer_url());
    }
    // The time of day of the host is set: events keep the clock that they had.
    of_host.set(-3 * HOUR + 5_000_000);
    let second = wait_for_more(&relay.output, first.len() + 1);
    let last = second.last().unwrap();
    assert_near(last.ahead, 4 * HOUR, last);
    assert_near(last.realtime, 5_000_000, last);
    assert_near(last.relay_realtime, first[0].relay_realtime, last);
    // That of the relay is set: both that depend on it change.
    of_relay.set(HOUR - 7_000_000);
    let third = wait_for_more(&relay.output, second.len() + 1);
    let last = third.last().unwrap();
    assert_near(last.ahead, 4 * HOUR - 7_000_000, last);
    assert_near(last.realtime, 5_000_000, last);
    assert_near(
        last.relay_realtime,
        first[0].relay_realtime - 7_000_000,
        last,
    );
    stop(clock);
}

#[test]
fn killed_programs_leave_samples_that_can_be_read_and_go_on() {
    let lab = Lab::new();
    let mut relay = Relay::start(&lab);
    let clock = start(&lab, &relay);
    let before = wait_for_more(&relay.output, 1);
    relay.kill();
    let relay = Relay::start_at(&lab, relay.addresses());
    let after = wait_for_more(&relay.output, before.len() + 1);
    assert_eq!(after[..before.len()], before);
    clock.signal(rustix::process::Signal::KILL);
    assert!(!clock.wait().status.success());
    let after = read(&relay.output);
    let clock = start(&lab, &relay);
    assert_eq!(
        wait_for_more(&relay.output, after.len())[..after.len()],
        after
    );
    stop(clock);
    let _ = relay.stop();
    // Each process has a session of its own.
    let sessions = std::fs::read_dir(relay_directory(&lab)).unwrap();
    assert_eq!(sessions.count(), 2);
}

fn relay_directory(lab: &Lab) -> std::path::PathBuf {
    lab.path().join("output").join(HOST)
}
