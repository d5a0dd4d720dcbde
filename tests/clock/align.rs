//! `test-live --align`: events of hosts whose times of day differ, in the order in which they
//! happened. The hosts are programs of one machine, so that its monotonic clock tells that order.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use tests::lab::Lab;
use tests::process::Process;
use tests::relay::Relay;
use tests::{binaries, peers, test_live, traces, wait_until};

use crate::network::{ShownOffset, offset_in};
use crate::samples::{clock_command_of, stop};
use crate::shifted_clock::ShiftedClock;

pub(crate) const SECOND: i64 = 1_000_000_000;

/// The hosts, and the shifts of their times of day.
pub(crate) const HOSTS: [(&str, i64); 2] = [("robot-7", 5 * SECOND), ("robot-8", -SECOND / 4)];

/// Records some samples of each host, at a relay with a shift.
fn record(lab: &Lab, relay_shift: i64, options: &[&str]) -> Relay {
    let relay = start_relay(lab, relay_shift, options);
    let hosts = start_hosts(lab, &relay);
    hosts.into_iter().for_each(stop);
    relay
}

pub(crate) fn start_relay(lab: &Lab, shift: i64, options: &[&str]) -> Relay {
    let clock = ShiftedClock::new(lab, "relay", shift);
    let mut command = lab.command(binaries::relayd());
    command.args(options);
    clock.apply_to(&mut command);
    Relay::start_from_command(lab, command)
}

/// Starts to take samples on all hosts, and waits until there are some of each: events before the
/// first sample of their host are not aligned.
pub(crate) fn start_hosts(lab: &Lab, relay: &Relay) -> [Process; 2] {
    let hosts = HOSTS.map(|host| start_host(lab, relay, host));
    wait_until("all hosts have samples", || {
        let lines = show(lab, &["--quiet"], &relay.output).0;
        HOSTS.iter().all(|(host, _)| {
            let samples = lines.iter().filter(|line| line.contains(host));
            samples.count() > 3
        })
    });
    hosts
}

/// Starts to take samples on a host with a shift.
fn start_host(lab: &Lab, relay: &Relay, (host, shift): (&str, i64)) -> Process {
    let clock = ShiftedClock::new(lab, host, shift);
    let mut command = clock_command_of(lab, host, &relay.producer_url());
    clock.apply_to(&mut command);
    Process::start(&mut command)
}

/// Returns what `test-live` prints of a directory, and the lines on standard error.
pub(crate) fn show(lab: &Lab, options: &[&str], directory: &Path) -> (Vec<String>, Vec<String>) {
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

/// Whether no event is shown before one that happened earlier by more than the errors of the
/// samples, which the lines show.
pub(crate) fn are_in_order(lines: &[String]) -> bool {
    let error = |line: &String| -> i64 {
        let (_, rest) = line.split_once(" error = ").unwrap();
        rest.split(',').next().unwrap().parse().unwrap()
    };
    // The readings of clocks have errors of their own.
    let errors = 2 * lines.iter().map(error).max().unwrap() + 200_000;
    let mut latest = i64::MIN;
    times(lines).iter().all(|time| {
        latest = latest.max(*time);
        latest - time <= errors
    })
}

/// Checks an offset that was measured from time to time.
pub(crate) fn assert_is_near(offset: &ShownOffset, true_offset: i64) {
    let wrong = (offset.ahead - true_offset).abs();
    // The readings of clocks have errors of their own.
    assert!(wrong <= offset.error + 200_000, "{offset:?} {true_offset}");
    assert!(offset.count > 1, "{offset:?}");
}

#[test]
fn events_of_hosts_with_different_times_of_day_are_shown_as_they_happened() {
    let lab = Lab::new();
    let relay_shift = -100 * SECOND;
    let relay = record(&lab, relay_shift, &[]);
    let cycles = ["--clock-cycles", "--no-delta"];
    let seconds = ["--clock-seconds", "--no-delta"];
    let (lines, notices) = show(&lab, &cycles, &relay.output);
    assert!(!are_in_order(&lines));
    let differ = "test-live: the clocks of hosts differ by 52";
    assert_eq!(
        notices.iter().filter(|line| line.contains(differ)).count(),
        1
    );
    let align = |options: &[&str]| show(&lab, &[options, &["--align"]].concat(), &relay.output);
    let (lines, notices) = align(&cycles);
    let happened = times(&lines);
    assert!(are_in_order(&lines), "{lines:#?}");
    for (host, shift) in HOSTS {
        let added = relay_shift - shift;
        assert_is_near(&offset_in(&notices, host), added);
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
    let relay = record(&lab, 0, &[]);
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
fn events_of_live_sessions_are_shown_as_they_happened() {
    let lab = Lab::new();
    let relay_shift = -100 * SECOND;
    let relay = start_relay(&lab, relay_shift, &[]);
    let hosts = start_hosts(&lab, &relay);
    let url = format!("net://{}", relay.live);
    let read = |options: &[&str]| {
        let words = [
            &["--align", "--seek=beginning", "--limit=12", "--no-delta"],
            options,
        ]
        .concat();
        let ended = Process::start(&mut test_live::command(&lab, &words)).wait();
        (ended.stdout.clone(), ended.stderr.clone())
    };
    // Some samples are there before, others come while they are shown.
    let (lines, notices) = read(&["--clock-cycles", &url]);
    assert_eq!(lines.len(), 12, "{notices:?}");
    assert!(are_in_order(&lines), "{lines:#?}");
    for (host, _) in HOSTS {
        let of_host = |line: &&String| line.contains(&format!("{host}: ")) && line.contains(" ± ");
        assert_eq!(notices.iter().filter(of_host).count(), 1, "{notices:?}");
    }
    // Times that are shown as they are: the samples say that this may mislead.
    let mut unaligned = Process::start(&mut test_live::command(&lab, &[&url]));
    unaligned.wait_for_stderr_text("test-live: the clocks of hosts differ by 52");
    stop(unaligned);
    // A session that is named, at the time of the relay.
    let (lines, notices) = read(&[
        "--clock-seconds",
        &test_live::url(relay.live, "robot-7", "clock"),
    ]);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let now = i64::try_from(now.as_nanos()).unwrap() + relay_shift;
    hosts.into_iter().for_each(stop);
    let all_are_near = times(&lines)
        .iter()
        .all(|time| (now - time).abs() < 100 * SECOND);
    assert!(all_are_near, "{now} {lines:#?}");
    assert!(
        notices.iter().any(|line| line.contains("robot-7: -10")),
        "{notices:?}"
    );
}

#[test]
fn events_of_an_archive_are_shown_as_they_happened_also_between_two_times() {
    let lab = Lab::new();
    let archive = lab.path().join("archive");
    let url = format!("file://{}", archive.display());
    let relay = record(&lab, 0, &[&format!("--archive={url}")]);
    let output = relay.output.clone();
    relay.stop().expect_success();
    let align = |target: &str, options: &[&str]| {
        let words = [
            &["--align", "--no-follow", "--no-delta", "--clock-seconds"],
            options,
        ]
        .concat();
        let ended = Process::start(test_live::command(&lab, &words).arg(target)).wait();
        ended.expect_success()
    };
    let wanted = align(output.to_str().unwrap(), &[]);
    let lines = align(&url, &[]);
    assert_eq!(lines, wanted);
    let [begin, end] = [&lines[2], &lines[lines.len() - 3]]
        .map(|line| line[1..].split_once(']').unwrap().0.to_owned());
    let part = align(&url, &["--begin", &begin, "--end", &end]);
    assert_eq!(part, lines[2..lines.len() - 2]);
}

#[test]
fn tables_say_by_how_much_the_time_of_each_event_may_be_wrong() {
    let lab = Lab::new();
    let relay = record(&lab, 0, &[]);
    let read = |name: &str, options: &[&str]| {
        let tables = lab.path().join(name);
        let options = [options, &["--sink=parquet", "-o", tables.to_str().unwrap()]];
        let notices = show(&lab, &options.concat(), &relay.output).1;
        let script = "import duckdb, sys
rows = duckdb.sql(f\"FROM '{sys.argv[1]}/**/*.parquet'\")
for row in rows.aggregate('host, count(*), count(ts_error), arg_max(ts_error, ts)').fetchall():
    print(*row)";
        let mut python = peers::python_with_duckdb();
        python.args(["-c", script]).arg(tables);
        (Process::start(&mut python).wait().expect_success(), notices)
    };
    let words = |line: &String| -> Vec<String> { line.split(' ').map(str::to_owned).collect() };
    let (plain, _) = read("plain", &["--quiet"]);
    let (aligned, notices) = read("aligned", &["--align"]);
    assert_eq!((plain.len(), aligned.len()), (2, 2));
    for line in &plain {
        assert_eq!(words(line)[2..], ["0", "None"]);
    }
    for line in &aligned {
        let [host, count, known, error] = words(line).try_into().unwrap();
        assert_eq!(count, known, "{line}");
        // The last event of a host is its last sample, whose error is printed, rounded up.
        let notice = notices
            .iter()
            .find(|notice| notice.contains(&host))
            .unwrap();
        let (_, printed) = notice.split_once(" ± ").unwrap();
        let (milliseconds, micros) = printed
            .split_once(" ms")
            .unwrap()
            .0
            .split_once('.')
            .unwrap();
        let micros: i64 = format!("{milliseconds}{micros}").parse().unwrap();
        let error: i64 = error.parse().unwrap();
        assert!(
            (micros - 1..=micros + 1).contains(&(error / 1000)),
            "{line} {notice}"
        );
    }
}
