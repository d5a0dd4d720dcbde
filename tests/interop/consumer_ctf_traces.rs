//! `consumer replay` of every trace of the collection that `ctf_traces.rs` describes.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use ctf::directory::TraceDirectory;
use tests::babeltrace::Babeltrace;
use tests::lab::Lab;
use tests::relay::Relay;
use tests::test_live;

use crate::consumer_replay::{ViewerProgram, directory_of, events, replay_as, replay_with_viewers};
use crate::ctf_traces::{name, valid_cases};

/// A trace that Babeltrace cannot show live: its first event is before the begin of its packet.
const NOT_LIVE: &str = "bt-barectf-event-before-packet";

/// Returns the lines that `test-live` prints for a directory. Babeltrace prints other ones for
/// empty strings.
fn test_live_lines(lab: &Lab, directory: &Path) -> Vec<String> {
    let options = ["--clock-cycles", "--no-delta"];
    test_live::read(lab, &options, directory).expect_success()
}

/// Whether Babeltrace can read a case, and whether it can show it live. It crashes on some traces,
/// and live on those whose packets have no begin and end times.
fn babeltrace_abilities(case: &Path) -> (bool, bool) {
    let directory = case.join("trace");
    let reads = Babeltrace::Two.read(&directory).status.success();
    let traces = ctf::directory::open(&[directory]).unwrap().traces;
    let has_times = |trace: &TraceDirectory| {
        let declared = trace.metadata.trace();
        let has_clock = |stream| declared.clock_of(stream).is_some();
        let mut streams = trace.streams.iter();
        declared.streams().all(has_clock) && streams.all(|stream| stream.span().is_some())
    };
    let shows = traces.iter().all(has_times) && name(case) != NOT_LIVE;
    (reads, reads && shows)
}

/// Returns the differences between the original, its copy by the relay, and what viewers show live,
/// `viewers` at a time.
fn differences(lab: &Lab, relay: &Relay, case: &Path, viewers: usize) -> Vec<String> {
    let directory = case.join("trace");
    let (reads, shows) = babeltrace_abilities(case);
    let mut wrong = Vec::new();
    let mut check = |what: &str, shown: &[String], want: &[String]| {
        if shown != want {
            let first = shown.iter().zip(want).find(|(shown, want)| shown != want);
            let lines = (shown.len(), want.len());
            wrong.push(format!("{} {what}: {lines:?} {first:#?}", name(case)));
        }
    };
    let ours = test_live_lines(lab, &directory);
    let theirs = if reads {
        events(&directory)
    } else {
        Vec::new()
    };
    let session = format!("plain-{}", name(case));
    replay_as(lab, relay, &session, &directory).expect_success();
    let copy = directory_of(relay, &session);
    check("copy", &test_live_lines(lab, &copy), &ours);
    if reads {
        check("copy", &events(&copy), &theirs);
    }
    let mut programs = vec![ViewerProgram::TestLive];
    programs.extend(shows.then_some(ViewerProgram::Babeltrace));
    for (place, programs) in programs.chunks(viewers).enumerate() {
        let session = format!("live{place}-{}", name(case));
        let shown = replay_with_viewers(lab, relay, &directory, &session, programs, ours.len());
        for (program, shown) in programs.iter().zip(shown) {
            let what = format!("live {}: {:?}", shown.status, shown.stderr.last());
            match program {
                ViewerProgram::TestLive => check(&what, &shown.stdout, &ours),
                ViewerProgram::Babeltrace => {
                    let want = comparable(&theirs, &ours);
                    check(&what, &comparable(&shown.stdout, &ours), &want);
                }
            }
        }
        let copy = directory_of(relay, &session);
        check("live copy", &test_live_lines(lab, &copy), &ours);
    }
    wrong
}

/// Returns the lines of Babeltrace that can be compared. Live, events of the same time are in any
/// order, and what Babeltrace 2.0.4 prints for an empty string depends on the order.
fn comparable(lines: &[String], ours: &[String]) -> Vec<String> {
    let time = |line: &String| line.split(']').next().unwrap().to_owned();
    let has_empty = |line: &&String| line.contains("\"\"");
    let left_out: BTreeSet<_> = ours.iter().filter(has_empty).map(time).collect();
    let mut lines = lines.to_vec();
    lines.retain(|line| !left_out.contains(&time(line)));
    lines.sort();
    lines
}

#[test]
fn every_valid_trace_replayed_to_our_relay_reads_back_unchanged() {
    let (lab, relay) = Relay::start_in_new_lab();
    let compare = |case: &PathBuf| differences(&lab, &relay, case, 2);
    let wrong = valid_cases().iter().flat_map(compare).collect::<Vec<_>>();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_valid_trace_replayed_to_lttng_relayd_reads_back_unchanged() {
    let lab = Lab::new();
    let relay = Relay::start_reference(&lab);
    // `lttng-relayd` allows one viewer for each session.
    let compare = |case: &PathBuf| differences(&lab, &relay, case, 1);
    let wrong = valid_cases().iter().flat_map(compare).collect::<Vec<_>>();
    assert!(wrong.is_empty(), "{wrong:#?}");
}
