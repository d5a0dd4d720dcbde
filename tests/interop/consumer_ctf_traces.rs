//! Every trace with expected output that lies beside the project, sent by `consumer replay`: see
//! `ctf_traces.rs`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use ctf::directory::TraceDirectory;
use tests::babeltrace::Babeltrace;
use tests::lab::Lab;
use tests::relay::Relay;
use tests::test_live;

use crate::consumer_replay::{Watcher, directory_of, events, replay_as, watch};
use crate::ctf_traces::{good_cases, name};

/// Babeltrace cannot show it live: the first event comes before its packet begins.
const NOT_LIVE: &str = "bt-barectf-event-before-packet";

/// As our viewer shows a directory. Where Babeltrace shows an empty string as the one before, it does not.
fn by_us(lab: &Lab, directory: &Path) -> Vec<String> {
    let options = ["--clock-cycles", "--no-delta"];
    test_live::read(lab, &options, directory).expect_success()
}

/// Whether Babeltrace can read a case at all, and can show it live: it dies of some, and live of those
/// whose packets do not say when they begin and end.
fn of_babeltrace(case: &Path) -> (bool, bool) {
    let directory = case.join("trace");
    let reads = Babeltrace::Two.read(&directory).status.success();
    let traces = ctf::directory::open(&[directory]).unwrap();
    let has_times = |trace: &TraceDirectory| {
        let declared = trace.metadata.trace();
        let has_clock = |stream| declared.clock_of(stream).is_some();
        let mut streams = trace.streams.iter();
        declared.streams().all(has_clock) && streams.all(|stream| stream.span().is_some())
    };
    let shows = traces.iter().all(has_times) && name(case) != NOT_LIVE;
    (reads, reads && shows)
}

/// What differs between the original, a copy of it, and what viewers show of it, so many at a time.
fn differences(lab: &Lab, relay: &Relay, case: &Path, viewers: usize) -> Vec<String> {
    let directory = case.join("trace");
    let (reads, shows) = of_babeltrace(case);
    let mut wrong = Vec::new();
    let mut check = |what: &str, shown: &[String], want: &[String]| {
        if shown != want {
            let first = shown.iter().zip(want).find(|(shown, want)| shown != want);
            let lines = (shown.len(), want.len());
            wrong.push(format!("{} {what}: {lines:?} {first:#?}", name(case)));
        }
    };
    let ours = by_us(lab, &directory);
    let theirs = if reads {
        events(&directory)
    } else {
        Vec::new()
    };
    let session = format!("plain-{}", name(case));
    replay_as(lab, relay, &session, &directory).expect_success();
    let copy = directory_of(relay, &session);
    check("copy", &by_us(lab, &copy), &ours);
    if reads {
        check("copy", &events(&copy), &theirs);
    }
    let mut watchers = vec![Watcher::TestLive];
    watchers.extend(shows.then_some(Watcher::Babeltrace));
    for (place, watchers) in watchers.chunks(viewers).enumerate() {
        let session = format!("live{place}-{}", name(case));
        let shown = watch(lab, relay, (&directory, &session), watchers, ours.len());
        for (watcher, shown) in watchers.iter().zip(shown) {
            let what = format!("live {}: {:?}", shown.status, shown.stderr.last());
            match watcher {
                Watcher::TestLive => check(&what, &shown.stdout, &ours),
                Watcher::Babeltrace => {
                    let want = comparable(&theirs, &ours);
                    check(&what, &comparable(&shown.stdout, &ours), &want);
                }
            }
        }
        let copy = directory_of(relay, &session);
        check("live copy", &by_us(lab, &copy), &ours);
    }
    wrong
}

/// What can be compared of Babeltrace's lines: live, events of the same time come in any order; and what it
/// shows for an empty string depends on the order.
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
    let wrong = good_cases().iter().flat_map(compare).collect::<Vec<_>>();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_valid_trace_replayed_to_lttng_relayd_reads_back_unchanged() {
    let lab = Lab::new();
    let relay = Relay::start_reference(&lab);
    // It lets one viewer at a time see a session.
    let compare = |case: &PathBuf| differences(&lab, &relay, case, 1);
    let wrong = good_cases().iter().flat_map(compare).collect::<Vec<_>>();
    assert!(wrong.is_empty(), "{wrong:#?}");
}
