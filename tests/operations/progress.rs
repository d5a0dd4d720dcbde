//! The progress of conversions: on a terminal a bar with rate and remaining time, elsewhere
//! nothing. The terminal is that of `script`, which every Debian has.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use ctf::write::FieldType;
use ctf::{Timestamp, TraceWriter};
use tests::lab::Lab;
use tests::process::{CompletedProcess, Process};
use tests::relay::Relay;
use tests::{binaries, consumer, test_live};

/// More bytes than those for which no bar is shown.
const INPUT_BYTES: usize = 34 << 20;

/// The parts of a bar: bytes so far and in all, bytes per second, remaining time. A fast machine
/// may have drawn only the first state.
const BAR: [&str; 3] = [" MiB, ", "B/s, ", " left"];

/// Runs a command on a terminal that has 100 columns. Returns all that was written there as
/// standard output.
fn run_on_terminal(lab: &Lab, command: &Command) -> CompletedProcess {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let quoted = words.map(|word| format!("'{}'", word.to_str().unwrap()));
    let line = quoted.collect::<Vec<_>>().join(" ");
    let line = format!("stty cols 100 rows 24; exec {line}");
    let mut script = lab.command("script");
    script.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
    Process::start(&mut script).wait()
}

/// Runs a command with a terminal and without. Only with one it shows progress.
fn assert_progress(lab: &Lab, mut command: impl FnMut() -> Command, parts: &[&str]) {
    let shown = run_on_terminal(lab, &command());
    let text = String::from_utf8_lossy(&shown.stdout_bytes).into_owned();
    assert!(shown.status.success(), "{text}");
    for part in parts {
        assert!(text.contains(part), "no {part:?}: {text}");
    }
    let silent = Process::start(&mut command()).wait();
    let text = silent.stderr.join("\n");
    assert!(silent.status.success(), "{text}");
    assert!(!text.contains(" left"), "{text}");
}

fn large_trace(lab: &Lab) -> PathBuf {
    let directory = lab.path().join("large");
    let mut trace = TraceWriter::create(&directory).unwrap();
    let class = trace
        .event_class("large", &[("text", FieldType::Text)])
        .unwrap();
    let text = "x".repeat(60_000);
    for time in 0..INPUT_BYTES / text.len() {
        let values = [text.as_str().into()];
        trace
            .write(&class, Timestamp(time as u64 * 1000), &values)
            .unwrap();
    }
    trace.finish().unwrap();
    directory
}

/// Writes so many lines that they are a large file.
fn large_file(path: &Path, begin: &str, line: &str, separator: &str, end: &str) {
    let lines = vec![line; INPUT_BYTES / line.len()];
    fs::write(path, format!("{begin}{}{end}", lines.join(separator))).unwrap();
}

#[test]
fn conversions_of_a_large_trace_show_progress_on_a_terminal() {
    let lab = Lab::new();
    let trace = large_trace(&lab);
    let trace = trace.to_str().unwrap();
    let output = lab.path().join("trace.json");
    let convert = ["--sink", "tef", "-w", output.to_str().unwrap(), trace];
    assert_progress(&lab, || test_live::command(&lab, &convert), &BAR);
    assert_progress(&lab, || test_live::command(&lab, &["info", trace]), &BAR);

    let mut copies = 0;
    let copy = || {
        copies += 1;
        let copy = lab.path().join(format!("copy-{copies}"));
        let mut command = test_live::command(&lab, &["--sink", "ctf", trace, "-w"]);
        command.arg(copy);
        command
    };
    assert_progress(&lab, copy, &BAR);

    let quiet = [&["--quiet"][..], &convert].concat();
    let quiet = run_on_terminal(&lab, &test_live::command(&lab, &quiet));
    assert_eq!(quiet.expect_success(), [""; 0]);
}

#[test]
fn an_export_of_a_large_tldrs_trace_shows_progress_on_a_terminal() {
    let lab = Lab::new();
    let lines = lab.path().join("run-1.jsonl");
    let line = format!(
        "{{\"ph\":\"i\",\"ts\":1,\"name\":\"{}\"}}",
        "x".repeat(2000)
    );
    large_file(&lines, "", &line, "\n", "\n");
    let output = lab.path().join("trace.json");
    let export = || {
        let mut command = lab.command(binaries::tldrs());
        command.arg("get-tef").arg(&lines).arg("-o").arg(&output);
        command
    };
    assert_progress(&lab, export, &BAR);
}

#[test]
fn sending_a_large_directory_shows_progress_on_a_terminal() {
    let lab = Lab::new();
    let relay = Relay::start(&lab);
    let recording = lab.directory("recording");
    let content = "x".repeat(50_000);
    let record =
        format!("{{\"Event\":{{\"kind\":0,\"metadata\":\"\",\"content\":\"{content}\"}}}}");
    large_file(&recording.join("trace.json"), "[", &record, ",", "]");
    fs::write(
        recording.join("trace_metadata.json"),
        "{\"workdir\":\"/\",\"program\":\"p\",\"args\":[]}",
    )
    .unwrap();
    let mut sent = 0;
    let send = || {
        sent += 1;
        let mut command = lab.command(binaries::consumer());
        command
            .args(["codetracer", &format!("--session=run-{sent}")])
            .arg(format!("--ctrl-url=tcp://{}", relay.control))
            .arg(format!("--data-url=tcp://{}", relay.data))
            .arg(&recording);
        command
    };
    assert_progress(&lab, send, &BAR);

    let trace = large_trace(&lab);
    let mut replayed = 0;
    let replay = || {
        replayed += 1;
        consumer::replay_command(&lab, &relay, &format!("replay-{replayed}"), &trace)
    };
    assert_progress(&lab, replay, &["packets", "/s", " left"]);
}
