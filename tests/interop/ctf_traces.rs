//! Traces with expected output that lie beside the project, if they do: `../shared/ctf-traces`, or
//! where `CTF_TRACES` says. Their README says what is in a case.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tests::lab::Lab;
use tests::process::{CompletedProcess, Process};
use tests::relay::Relay;
use tests::replay::{HOST, IdleStream, MetadataPieces, Replay};
use tests::{test_live, wait_until};

/// Within which a broken trace has been found to be broken.
const BROKEN_WITHIN: Duration = Duration::from_secs(20);

/// The options that the expected text was made with.
const OPTIONS: [&str; 2] = ["--clock-gmt", "--clock-date"];

/// So many lines of each section there are.
const OPTION_LINES: usize = 25;

/// Cases that are also played through the relay of LTTng.
const THROUGH_REFERENCE: &[&str] = &[
    "bt-2packets",
    "bt-wk-heartbeat-u",
    "lttng-ust-per-pid",
    "lttng-ust-types-uid",
    "synth-discarded",
];

/// The cases, if they are there.
fn cases() -> Vec<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/ctf-traces");
    let directory = std::env::var_os("CTF_TRACES").map_or(beside, PathBuf::from);
    let Ok(entries) = fs::read_dir(&directory) else {
        println!("{} is not there: nothing to read", directory.display());
        return Vec::new();
    };
    let mut cases: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    cases.retain(|path| path.join("trace").is_dir());
    cases.sort();
    cases
}

/// Those that can be read.
pub(crate) fn good_cases() -> Vec<PathBuf> {
    let mut cases = cases();
    cases.retain(|case| !case.join("FAIL").exists());
    cases
}

/// What a case is called.
pub(crate) fn name(case: &Path) -> &str {
    case.file_name().unwrap().to_str().unwrap()
}

/// The text that is expected of a case.
fn expected(case: &Path) -> Option<Vec<u8>> {
    let packed = case.join("expected.txt.gz");
    if packed.exists() {
        let output = Command::new("gzip").arg("-dc").arg(packed).output();
        return Some(output.unwrap().stdout);
    }
    fs::read(case.join("expected.txt")).ok()
}

fn show(lab: &Lab, case: &Path, options: &[&str]) -> CompletedProcess {
    let mut command = test_live::command(lab, options);
    // So that paths in messages are those that the expected ones were made with.
    Process::start(command.arg("trace").current_dir(case)).wait_within(BROKEN_WITHIN)
}

/// Lines that differ, but for one thing: where a string is empty, Babeltrace 2.0.4 prints the one
/// that was there before.
fn differences(ours: &[u8], theirs: &[u8], most: usize) -> Vec<String> {
    let lines = |text| -> Vec<_> { split(text).into_iter().take(most).collect() };
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
    for case in good_cases() {
        let shown = show(&lab, &case, &OPTIONS);
        let name = name(&case);
        assert!(shown.status.success(), "{name}: {:?}", shown.stderr);
        let want = expected(&case).unwrap_or_else(|| panic!("{name} expects nothing"));
        let differences = differences(&shown.stdout_bytes, &want, usize::MAX);
        assert!(differences.is_empty(), "{name}: {differences:#?}");
    }
}

#[test]
fn every_valid_trace_is_printed_as_expected_with_other_options() {
    let lab = Lab::new();
    for case in good_cases() {
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
            let shown = show(&lab, &case, &words);
            let what = format!("{} {options:?}", name(&case));
            assert!(shown.status.success(), "{what}: {:?}", shown.stderr);
            let differences = differences(&shown.stdout_bytes, &want, OPTION_LINES);
            assert!(differences.is_empty(), "{what}: {differences:#?}");
        }
    }
}

#[test]
fn losses_are_reported_as_expected() {
    let lab = Lab::new();
    for case in good_cases() {
        let want = fs::read_to_string(case.join("expected-stderr.txt")).unwrap_or_default();
        let trace = case.join("trace").canonicalize().unwrap();
        let shown = show(&lab, &case, &OPTIONS);
        let said: Vec<_> = shown
            .stderr
            .iter()
            .filter(|line| line.starts_with("WARNING: Tracer"))
            .map(|line| line.replace(trace.to_str().unwrap(), "@TRACE@"))
            .collect();
        let want: Vec<_> = want.lines().collect();
        assert_eq!(said, want, "{}", name(&case));
    }
}

#[test]
fn every_broken_trace_is_reported_as_an_error_without_a_panic() {
    let lab = Lab::new();
    for case in cases().iter().filter(|case| case.join("FAIL").exists()) {
        let shown = show(&lab, case, &OPTIONS);
        let name = name(case);
        assert_eq!(shown.status.code(), Some(1), "{name}: {:?}", shown.stderr);
        let is_panic = shown.stderr.iter().any(|line| line.contains("panicked"));
        assert!(!is_panic, "{name}: {:#?}", shown.stderr);
        assert!(
            !shown.stderr.is_empty(),
            "{name} does not say what is wrong"
        );
        if let Some(want) = expected(case) {
            let differences = differences(&shown.stdout_bytes, &want, usize::MAX);
            assert!(differences.is_empty(), "{name}: {differences:#?}");
        }
    }
}

/// Plays a case and gives what differs from the directory's text.
fn play(lab: &Lab, relay: &Relay, case: &Path, idle: IdleStream) -> Vec<String> {
    let session = name(case);
    let want = show(lab, case, &OPTIONS);
    // Wherever the viewer finds the session.
    let options = [&OPTIONS[..], &["--seek", "beginning"]].concat();
    let viewer = test_live::follow(lab, relay, (HOST, session), &options);
    let trace = case.join("trace");
    let mut replay = Replay::open(relay, session, &trace, MetadataPieces::Many, idle);
    test_live::wait_until_attached(relay, session, 1);
    replay.send_packets();
    if idle == IdleStream::Absent {
        // Before its streams end: viewers of LTTng's relay may miss what has not been read by then.
        wait_until("all has been shown", || {
            viewer.stdout().len() == want.stdout.len()
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
    for case in good_cases() {
        let differences = play(&lab, &relay, &case, IdleStream::Present);
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
    for case in good_cases() {
        if THROUGH_REFERENCE.contains(&name(&case)) {
            assert_eq!(
                play(&lab, &relay, &case, IdleStream::Absent),
                [""; 0],
                "{}",
                name(&case)
            );
        }
    }
}
