//! Traces of many kinds in the format of Perfetto, opened by Perfetto itself.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use serde_json::Value;
use tests::lab::Lab;
use tests::perfetto::{ERRORS, HOST, open_output, rows, wait_until_open};
use tests::{collections, test_live, traces};

use crate::perfetto_format::events;

/// Traces by their names: valid ones of the collections, and some of every kind that the tests
/// make.
fn inputs(lab: &Lab) -> BTreeMap<String, PathBuf> {
    let made = [
        ("every-field-type", traces::with_every_field_type(lab)),
        ("equal-timestamps", traces::with_equal_timestamps(lab)),
        ("losses", traces::with_losses(lab)),
        ("restarted-clock", traces::with_restarted_clock(lab)),
    ];
    let made = made.map(|(name, trace)| (name.to_owned(), trace));
    made.into_iter()
        .chain(collections::valid_traces())
        .collect()
}

/// The switches between threads that the events of a trace report: time, CPU and next thread.
fn switches(events: &[Value]) -> Vec<String> {
    let switches = events.iter().filter_map(|event| {
        let name = event["event"].as_str()?;
        let (fields, packet) = (&event["fields"], &event["packet"]);
        let (next, cpu) = match name {
            "sched_switch" => (&fields["next_tid"], &packet["cpu_id"]),
            "sched:sched_switch" => (&fields["next_pid"], &fields["perf_cpu"]),
            _ => return None,
        };
        Some(format!("{} {cpu} {next}", event["time"]))
    });
    let mut switches: Vec<_> = switches.collect();
    switches.sort();
    switches
}

#[test]
fn valid_traces_have_no_error_and_all_switches_of_threads_in_perfetto() {
    let lab = Lab::new();
    let first = |output: &str| {
        let empty = lab.directory("none");
        fs::write(empty.join("lines.jsonl"), "").unwrap();
        let ended = tests::tldrs::run_tldrs(
            &lab,
            &[
                "get-perfetto",
                empty.join("lines.jsonl").to_str().unwrap(),
                "-o",
                output,
            ],
        );
        assert!(ended.status.success());
    };
    let (browser, _server) = open_output(&lab, "empty.pftrace", first);
    let page = lab.path().join("page");
    for (name, trace) in &inputs(&lab) {
        let file = format!("{name}.pftrace");
        let output = page.join(&file);
        let words = ["--sink", "perfetto", "--output", output.to_str().unwrap()];
        test_live::read(&lab, &words, trace).expect_success();
        // Another query: the page is loaded anew.
        browser.open(&format!(
            "https://{HOST}/?{name}#!/?url=https://{HOST}/{file}"
        ));
        wait_until_open(&browser);
        fs::remove_file(output).unwrap();
        assert_eq!(rows(&browser, ERRORS), [""; 0], "{name}");
        let sched = "select ts || ' ' || c.cpu || ' ' || tid as row from sched s join thread using (utid) \
                     join cpu c on c.ucpu = s.ucpu";
        let mut shown = rows(&browser, sched);
        shown.sort();
        let want = switches(&events(&lab, trace));
        println!("{name}: {} switches", want.len());
        let differs = shown.iter().zip(&want).find(|(shown, want)| shown != want);
        assert_eq!(differs, None, "{name}");
        assert_eq!(shown.len(), want.len(), "{name}");
    }
}
