//! `test-live --align`: events of hosts whose times of day differ, in the order in which they
//! happened. The hosts are programs of one machine, so that its monotonic clock tells that order.

use std::path::Path;

use tests::lab::Lab;
use tests::process::Process;
use tests::relay::Relay;
use tests::{binaries, test_live, traces, wait_until};

use crate::samples::{clock_command_of, stop};
use crate::shifted_clock::ShiftedClock;

const SECOND: i64 = 1_000_000_000;

/// The hosts, and the shifts of their times of day.
const HOSTS: [(&str, i64); 2] = [("robot-7", 5 * SECOND), ("robot-8", -SECOND / 4)];

/// Records some samples of each host, at a relay with a shift.
fn record(lab: &Lab, relay_shift: i64) -> Relay {
    let clock = ShiftedClock::new(lab, "relay", relay_shift);
    let mut command = lab.command(binaries::relayd());
    clock.apply_to(&mut command);
    let relay = Relay::start_from_command(lab, command);
    let hosts = HOSTS.map(|(host, shift)| {
        let clock = ShiftedClock::new(lab, host, shift);
        let mut command = clock_command_of(lab, host, &relay.producer_url());
        clock.apply_to(&mut command);
        Process::start(&mut command)
    });
    wait_until("all hosts have samples", || {
        let lines = show(lab, &["--quiet"], &relay.output).0;
        HOSTS.iter().all(|(host, _)| {
            let samples = lines.iter().filter(|line| line.contains(host));
            samples.count() > 3
        })
    });
    hosts.into_iter().for_each(stop);
    relay
}

/// Returns what `test-live` prints of a directory, and the lines on standard error.
fn show(lab: &Lab, options: &[&str], directory: &Path) -> (Vec<String>, Vec<String>) {
    let options = [&["--no-follow"], options].concat();
    let ended = test_live::read(lab, &options, directory);
    (ended.stdout, ended.stderr)
}

/// Returns the numbers in brackets at the begin of lines.
fn times(lines: &[String]) -> Vec<i64> {
    let time = |line: &String| {
        let (time, _) = line.strip_prefix('[')?.split_once(']')?;
        time.replace('.', "").parse().ok()
    };
    let times: Option<Vec<_>> = lines.iter().map(time).collect();
    times.unwrap_or_else(|| panic!("{lines:#?}"))
}

#[test]
fn events_of_hosts_with_different_times_of_day_are_shown_as_they_happened() {
    let lab = Lab::new();
    let relay_shift = -100 * SECOND;
    let relay = record(&lab, relay_shift);
    let cycles = ["--clock-cycles", "--no-delta"];
    let seconds = ["--clock-seconds", "--no-delta"];
    let (lines, notices) = show(&lab, &cycles, &relay.output);
    assert!(!times(&lines).is_sorted());
    let differ = "test-live: the clocks of hosts differ by 52";
    assert_eq!(
        notices.iter().filter(|line| line.contains(differ)).count(),
        1
    );
    let align = |options: &[&str]| show(&lab, &[options, &["--align"]].concat(), &relay.output);
    let (lines, notices) = align(&cycles);
    let happened = times(&lines);
    assert!(happened.is_sorted(), "{lines:#?}");
    for (host, shift) in HOSTS {
        let added = relay_shift - shift;
        let notice = notices.iter().find(|line| line.contains(host)).unwrap();
        let (_, number) = notice.split_once(": ").unwrap().1.split_once(": ").unwrap();
        let (number, rest) = number.split_once(" ms ± ").unwrap();
        let (error, rest) = rest.split_once(" ms (").unwrap();
        let [number, error] = [number, error].map(|number| number.parse::<f64>().unwrap());
        #[expect(clippy::cast_precision_loss, reason = "some seconds")]
        let wrong = (number - added as f64 / 1e6).abs();
        // The readings of clocks have errors of their own.
        assert!(wrong <= error + 0.2, "{notice}");
        assert!(rest.ends_with(" samples)"), "{notice}");
    }
    assert!(
        !notices.iter().any(|line| line.contains("differ")),
        "{notices:?}"
    );
    // All times are those of the relay: as far from the monotonic clock for each event.
    let (lines, _) = align(&seconds);
    let shown = times(&lines);
    assert!(shown.is_sorted());
    let offsets = shown
        .iter()
        .zip(&happened)
        .map(|(shown, happened)| shown - happened);
    let (least, most) = (offsets.clone().min().unwrap(), offsets.max().unwrap());
    assert!(most - least < 50_000_000, "{least} {most}");
    // Threads and other sinks correct the same.
    let (threads, _) = align(&[&seconds[..], &["--threads=2"]].concat());
    assert_eq!(threads, lines);
    for sink in ["--sink=json", "--sink=log"] {
        let (aligned, _) = align(&[sink]);
        assert_eq!(aligned.len(), lines.len());
        let hosts = |lines: &[String]| -> Vec<bool> {
            lines.iter().map(|line| line.contains(HOSTS[0].0)).collect()
        };
        assert_eq!(hosts(&aligned), hosts(&lines), "{sink}");
    }
}

#[test]
fn info_shows_the_offsets_and_a_host_without_samples_is_unaligned() {
    let lab = Lab::new();
    let relay = record(&lab, 0);
    let other = traces::with_numbered_events(&lab, "other", 3, 1000);
    let output = relay.output.to_str().unwrap();
    let info = |options: &[&str]| {
        let words = [&["info"], options, &[output, other.to_str().unwrap()]].concat();
        let ended = Process::start(&mut test_live::command(&lab, &words)).wait();
        ended.expect_success()
    };
    let lines = info(&[]);
    let offset = |host: &str| {
        let begin = format!("offset     {host}: ");
        let line = lines.iter().find_map(|line| line.strip_prefix(&begin));
        line.unwrap_or_else(|| panic!("{lines:#?}")).to_owned()
    };
    assert_eq!(offset("host"), "unaligned");
    let (ahead, _) = HOSTS.map(|(host, _)| offset(host)).into();
    assert!(
        ahead.starts_with("-500") || ahead.starts_with("-499"),
        "{ahead}"
    );
    // The times of the unaligned host stay.
    let mut options = vec!["--no-follow", "--align", "--clock-seconds", output];
    options.push(other.to_str().unwrap());
    let ended = Process::start(&mut test_live::command(&lab, &options)).wait();
    let stderr = ended.stderr.clone();
    assert!(
        stderr.contains(&"test-live: host: unaligned".to_owned()),
        "{stderr:?}"
    );
    let lines = ended.expect_success();
    assert!(
        lines
            .iter()
            .any(|line| line.starts_with("[1767225600.1234")),
        "{lines:#?}"
    );
}

#[test]
fn events_that_come_before_their_samples_are_not_aligned() {
    let (lab, relay) = Relay::start_in_new_lab();
    let url = test_live::url(relay.live, "robot-7", "clock");
    let mut command = test_live::command(&lab, &["--align", &url]);
    let ended = Process::start(&mut command).wait();
    assert_eq!(ended.status.code(), Some(2));
    assert!(
        ended.stderr[0].contains("--align needs samples"),
        "{:?}",
        ended.stderr
    );
}
