//! A collection of CTF traces with expected output, in `../shared/ctf-traces` or `$CTF_TRACES`; its
//! README describes the files of a case. Without the collection the tests do nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tests::lab::Lab;
use tests::process::{CompletedProcess, Process};
use tests::relay::Relay;
use tests::replay::{HOST, IdleStream, MetadataPieces, Replay};
use tests::{test_live, wait_until};

/// The time within which a case must be read, or found to be broken.
const READ_TIMEOUT: Duration = Duration::from_secs(20);

/// The options with which `expected.txt` was made.
const OPTIONS: [&str; 2] = ["--clock-gmt", "--clock-date"];

/// The number of lines that each section of `expected-options.txt` keeps.
const MAX_OPTION_LINES: usize = 25;

/// The cases that are also replayed through `lttng-relayd`.
const THROUGH_REFERENCE: &[&str] = &[
    "bt-2packets",
    "bt-wk-heartbeat-u",
    "lttng-ust-per-pid",
    "lttng-ust-types-uid",
    "synth-discarded",
];

/// Returns the directories of all cases, if there are any.
pub(crate) fn cases() -> Vec<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/ctf-traces");
    let directory = std::env::var_os("CTF_TRACES").map_or(beside, PathBuf::from);
    let Ok(entries) = fs::read_dir(&directory) else {
        println!("{} does not exist: nothing to read", directory.display());
        return Vec::new();
    };
    let mut cases: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    cases.retain(|path| path.join("trace").is_dir());
    cases.sort();
    cases
}

/// Returns the directories of the cases with valid traces.
pub(crate) fn valid_cases() -> Vec<PathBuf> {
    let mut cases = cases();
    cases.retain(|case| !case.join("FAIL").exists());
    cases
}

/// Returns the name of a case.
pub(crate) fn name(case: &Path) -> &str {
    case.file_name().unwrap().to_str().unwrap()
}

/// Returns the expected text of a case, if there is one.
pub(crate) fn expected(case: &Path) -> Option<Vec<u8>> {
    let packed = case.join("expected.txt.gz");
    if packed.exists() {
        let output = Command::new("gzip").arg("-dc").arg(packed).output();
        return Some(output.unwrap().stdout);
    }
    fs::read(case.join("expected.txt")).ok()
}

fn read_case(lab: &Lab, case: &Path, options: &[&str]) -> CompletedProcess {
    let mut command = test_live::command(lab, options);
    // A relative path, since the expected messages contain it.
    Process::start(command.arg("trace").current_dir(case)).wait_within(READ_TIMEOUT)
}

/// Returns the differing lines among the first `max_lines`. Lines with an empty string are not
/// compared: Babeltrace 2.0.4, which made the expected text, prints the value of an earlier event
/// instead.
fn differences(ours: &[u8], theirs: &[u8], max_lines: usize) -> Vec<String> {
    let lines = |text| -> Vec<_> { split(text).into_iter().take(max_lines).collect() };
    let (ours, theirs) = (lines(ours), lines(theirs));
    let mut found = Vec::new();
    if ours.len() != theirs.len() {
        found.push(format!("{} and {} lines", ours.len(), theirs.len()));
    }
    for (ours, theirs) in ours.iter().zip(&theirs) {
        if ours != theirs && !ours.windows(2).any(|two| two == b"\"\"") {
            let text = |line| String::from_utf8_lossy(line).into_owned();
            found.push(format!("{}\n{}", text(ours), text(theirs)));
        }
    }
    found
}

fn split(text: &[u8]) -> Vec<&[u8]> {
    text.split_inclusive(|byte| *byte == b'\n').collect()
}

#[test]
fn every_valid_trace_is_printed_as_expected() {
    let lab = Lab::new();
    for case in valid_cases() {
        let shown = read_case(&lab, &case, &OPTIONS);
        let name = name(&case);
        assert!(shown.status.success(), "{name}: {:?}", shown.stderr);
        let want = expected(&case).unwrap_or_else(|| panic!("{name} has no expected text"));
        let differences = differences(&shown.stdout_bytes, &want, usize::MAX);
        assert!(differences.is_empty(), "{name}: {differences:#?}");
    }
}

#[test]
fn every_valid_trace_is_printed_as_expected_with_other_options() {
    let lab = Lab::new();
    for case in valid_cases() {
        let Ok(expected) = fs::read(case.join("expected-options.txt")) else {
            continue;
        };
        let mut sections: Vec<(String, Vec<u8>)> = Vec::new();
        for line in split(&expected) {
            match line.strip_prefix(b"### ") {
                Some(options) => {
                    let options = String::from_utf8(options.to_vec()).unwrap();
                    sections.push((options, Vec::new()));
                }
                None => sections.last_mut().unwrap().1.extend_from_slice(line),
            }
        }
        for (options, want) in sections {
            let words: Vec<&str> = options.split_whitespace().collect();
            let shown = read_case(&lab, &case, &words);
            let what = format!("{} {options:?}", name(&case));
            assert!(shown.status.success(), "{what}: {:?}", shown.stderr);
            let differences = differences(&shown.stdout_bytes, &want, MAX_OPTION_LINES);
            assert!(differences.is_empty(), "{what}: {differences:#?}");
        }
    }
}

#[test]
fn losses_are_reported_as_expected() {
    let lab = Lab::new();
    for case in valid_cases() {
        let want = fs::read_to_string(case.join("expected-stderr.txt")).unwrap_or_default();
        let trace = case.join("trace").canonicalize().unwrap();
        let shown = read_case(&lab, &case, &OPTIONS);
        let warnings: Vec<_> = shown
            .stderr
            .iter()
            .filter(|line| line.starts_with("WARNING: Tracer"))
            .map(|line| line.replace(trace.to_str().unwrap(), "@TRACE@"))
            .collect();
        let want: Vec<_> = want.lines().collect();
        assert_eq!(warnings, want, "{}", name(&case));
    }
}

#[test]
fn every_broken_trace_is_reported_as_an_error_without_a_panic() {
    let lab = Lab::new();
    for case in cases().iter().filter(|case| case.join("FAIL").exists()) {
        let shown = read_case(&lab, case, &OPTIONS);
        let name = name(case);
        assert_eq!(shown.status.code(), Some(1), "{name}: {:?}", shown.stderr);
        let is_panic = shown.stderr.iter().any(|line| line.contains("panicked"));
        assert!(!is_panic, "{name}: {:#?}", shown.stderr);
        assert!(!shown.stderr.is_empty(), "{name} prints no error");
        if let Some(want) = expected(case) {
            let differences = differences(&shown.stdout_bytes, &want, usize::MAX);
            assert!(differences.is_empty(), "{name}: {differences:#?}");
        }
    }
}

/// Replays a case live and returns the differences from the text of its directory.
fn replay_differences(lab: &Lab, relay: &Relay, case: &Path, idle: IdleStream) -> Vec<String> {
    let session = name(case);
    let want = read_case(lab, case, &OPTIONS);
    // The viewer may attach before or after the first packets.
    let options = [&OPTIONS[..], &["--seek", "beginning"]].concat();
    let viewer = test_live::follow(lab, relay, HOST, session, &options);
    let trace = case.join("trace");
    let mut replay = Replay::open(relay, session, &trace, MetadataPieces::Many, idle);
    test_live::wait_until_attached(relay, session, 1);
    replay.send_packets();
    if idle == IdleStream::Absent {
        // Before the streams close: viewers of `lttng-relayd` may miss what they have not read by
        // then.
        wait_until("all events are printed", || {
            viewer.stdout_line_count() == want.stdout.len()
        });
    }
    replay.close();
    let ended = viewer.wait();
    let mut differences = Vec::new();
    if !ended.status.success() || ended.stdout_bytes != want.stdout_bytes {
        differences.push(format!("{}: {:#?}", ended.status, ended.stderr));
    }
    if ended.stdout_bytes != want.stdout_bytes {
        let (live, read) = (split(&ended.stdout_bytes), split(&want.stdout_bytes));
        differences.push(format!("{} and {} lines", live.len(), read.len()));
        let pairs = live.iter().zip(&read);
        let text = |line: &[u8]| String::from_utf8_lossy(line).into_owned();
        let different = pairs.filter(|(live, read)| live != read).take(1);
        differences.extend(different.map(|(live, read)| format!("{}{}", text(live), text(read))));
    }
    differences
}

#[test]
fn every_valid_trace_is_printed_the_same_live() {
    let (lab, relay) = Relay::start_in_new_lab();
    let mut wrong = Vec::new();
    for case in valid_cases() {
        let differences = replay_differences(&lab, &relay, &case, IdleStream::Present);
        if !differences.is_empty() {
            wrong.push((name(&case).to_owned(), differences));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn selected_valid_traces_are_printed_the_same_live_through_lttng_relayd() {
    let lab = Lab::new();
    let relay = Relay::start_reference(&lab);
    for case in valid_cases() {
        if THROUGH_REFERENCE.contains(&name(&case)) {
            assert_eq!(
                replay_differences(&lab, &relay, &case, IdleStream::Absent),
                [""; 0],
                "{}",
                name(&case)
            );
        }
    }
}
