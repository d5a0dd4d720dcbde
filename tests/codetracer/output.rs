//! From `consumer` through `relayd` to the directory that `test-live` keeps: record for record, and
//! valid at any time.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use codetracer::events::Item;
use codetracer::reader::RecordingReader;
use codetracer_trace_types::{TraceLowLevelEvent, TraceMetadata};
use rustix::process::Signal;
use tests::disk::SmallDisk;
use tests::lab::Lab;
use tests::process::Process;
use tests::relay::Relay;
use tests::{TEST_TIMEOUT, binaries, test_live, wait_until};

/// Every kind of record and value, one on each line.
const LINES: &str = include_str!("../../crates/codetracer/tests/data/every-event.jsonl");
/// Every kind of record and value, as binary form 1.
const VERSION_1: &[u8] = include_bytes!("../../crates/codetracer/tests/data/every-event.v1.bin");
/// Every kind of record and value as binary form 0, which has no large integers.
const VERSION_0: &[u8] = include_bytes!("../../crates/codetracer/tests/data/every-event.v0.bin");

const METADATA: &str = r#"{"workdir":"/demo","program":"main.small","args":["a b"]}"#;
const HOST: &str = "traced";
const SESSION: &str = "run";

/// Returns the command `consumer codetracer` with this source.
fn send_command(lab: &Lab, relay: &Relay, source: impl AsRef<Path>) -> Command {
    let mut command = lab.command(binaries::consumer());
    command
        .args(["codetracer", "--live=20000"])
        .arg(format!("--hostname={HOST}"))
        .arg(format!("--session={SESSION}"))
        .arg(format!("--ctrl-url=tcp://{}", relay.control))
        .arg(format!("--data-url=tcp://{}", relay.data))
        .arg(source.as_ref());
    command
}

fn send(lab: &Lab, relay: &Relay, source: impl AsRef<Path>) {
    let sent = Process::start(&mut send_command(lab, relay, source)).wait();
    assert!(sent.status.success(), "{:#?}", sent.stderr);
}

/// Starts `test-live`, which writes to a directory, with this target.
fn keep(lab: &Lab, directory: &Path, arguments: &[&str]) -> Process {
    let mut command = test_live::command(lab, &["--sink", "codetracer", "-o"]);
    Process::start(command.arg(directory).args(arguments))
}

/// Starts `test-live`, which writes the live session to a directory. The session may begin later.
fn keep_live(lab: &Lab, relay: &Relay, directory: &Path) -> Process {
    let url = test_live::url(relay.live, HOST, SESSION);
    keep(lab, directory, &["--session-not-found=continue", &url])
}

/// Returns the records in a directory, as text. Panics if the directory is not valid.
fn read(directory: &Path) -> Vec<String> {
    let content = |name: &str| fs::read(directory.join(name)).unwrap();
    serde_json::from_slice::<TraceMetadata>(&content("trace_metadata.json")).unwrap();
    serde_json::from_slice::<Vec<PathBuf>>(&content("trace_paths.json")).unwrap();
    assert!(directory.join("files").is_dir());
    let records = match fs::read(directory.join("trace.json")) {
        Ok(records) => {
            serde_json::from_slice::<Vec<TraceLowLevelEvent>>(&records).unwrap();
            records
        }
        Err(_) => content("trace.bin"),
    };
    let mut reader = RecordingReader::new(1 << 26);
    reader.push(&records).unwrap();
    reader.end();
    let mut texts = Vec::new();
    while let Some(item) = reader.next_item() {
        let Item::Record(record) = item.unwrap() else {
            panic!("not a record");
        };
        texts.push(record.to_string());
    }
    assert!(reader.is_complete());
    texts
}

/// Returns the number of bytes of the records in a directory; 0 if there are none yet.
fn size(directory: &Path) -> u64 {
    fs::metadata(directory.join("trace.json")).map_or(0, |file| file.len())
}

/// Returns the records of the fixture as they are to come back: a step that is dropped vanishes.
fn kept() -> Vec<String> {
    let lines: Vec<_> = LINES.lines().map(str::to_owned).collect();
    let at = lines.iter().position(|line| line == r#""DropLastStep""#);
    let at = at.unwrap();
    [&lines[..at - 1], &lines[at + 1..]].concat()
}

fn array(lines: &[String]) -> String {
    format!("[{}]", lines.join(","))
}

fn step(line: usize) -> String {
    format!(r#"{{"Step":{{"path_id":0,"line":{line}}}}}"#)
}

fn value(line: usize) -> String {
    let value = format!(r#"{{"kind":"Int","i":{line},"type_id":0}}"#);
    format!(r#"{{"Value":{{"variable_id":0,"value":{value}}}}}"#)
}

/// Returns the definitions that [`step`] and [`value`] need.
fn definitions() -> Vec<String> {
    [
        r#"{"Path":"/demo/main.small"}"#,
        r#"{"Function":{"path_id":0,"line":1,"name":"<toplevel>"}}"#,
        r#"{"Call":{"function_id":0,"args":[]}}"#,
        r#"{"Type":{"kind":30,"lang_type":"None","specific_info":{"kind":"None"}}}"#,
        r#"{"VariableName":"größe"}"#,
    ]
    .map(str::to_owned)
    .to_vec()
}

#[test]
fn every_form_of_a_recording_comes_back_record_for_record_in_every_form() {
    let (kept, array) = (
        kept(),
        array(&LINES.lines().map(str::to_owned).collect::<Vec<_>>()),
    );
    for (name, content) in [
        ("trace.json", array.as_bytes()),
        ("lines.jsonl", LINES.as_bytes()),
        ("v1.bin", VERSION_1),
        ("v0.bin", VERSION_0),
    ] {
        let lab = Lab::new();
        let relay = Relay::start(&lab);
        let file = lab.path().join(name);
        fs::write(&file, content).unwrap();
        send(&lab, &relay, file);
        for form in ["json", "bin"] {
            let out = lab.path().join(form);
            let option = format!("--codetracer-format={form}");
            let target = relay.output.to_str().unwrap();
            let viewer = keep(&lab, &out, &["--no-follow", &option, target]).wait();
            assert!(viewer.status.success(), "{:#?}", viewer.stderr);
            let records = read(&out);
            // Binary form 0 has no large integers, and characters as raw values.
            match name {
                "v0.bin" => assert_eq!(records.len(), kept.len() - 1),
                _ => assert_eq!(records, kept, "{name} {form}"),
            }
            let summary = viewer.stderr.last().unwrap();
            assert!(summary.contains("0 records left out, 0 lost"), "{summary}");
            assert!(out.join(format!("trace.{form}")).exists());
        }
    }
}

#[test]
fn a_directory_with_copies_of_sources_comes_back_live() {
    let lab = Lab::new();
    let relay = Relay::start(&lab);
    let source = lab.directory("source");
    fs::write(source.join("trace.json"), array(&kept())).unwrap();
    fs::write(source.join("trace_metadata.json"), METADATA).unwrap();
    fs::create_dir_all(source.join("files/demo")).unwrap();
    let large: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    fs::write(source.join("files/demo/main.small"), &large).unwrap();
    let out = lab.path().join("out");
    let mut viewer = keep_live(&lab, &relay, &out);
    // Else the session may have come and gone before.
    viewer.wait_for_stderr_text("waiting for a live session");
    send(&lab, &relay, &source);
    viewer.wait().expect_success();
    assert_eq!(read(&out), kept());
    let metadata = fs::read_to_string(out.join("trace_metadata.json")).unwrap();
    assert_eq!(metadata, METADATA);
    assert_eq!(fs::read(out.join("files/demo/main.small")).unwrap(), large);
}

#[test]
fn all_members_of_the_metadata_and_values_of_older_recorders_come_back() {
    let lab = Lab::new();
    let relay = Relay::start(&lab);
    let source = lab.directory("source");
    let metadata = r#"{"recording_id":"0199-7e9c","workdir":"/w","program":"p","args":["a"],"x":{"y":[1,null]}}"#;
    fs::write(source.join("trace_metadata.json"), metadata).unwrap();
    let value = |f: &str| {
        let value = format!(r#"{{"kind":"Float","f":{f},"type_id":0}}"#);
        format!(r#"{{"Value":{{"variable_id":0,"value":{value}}}}}"#)
    };
    let assignment =
        |from: &str| format!(r#"{{"Assignment":{{"to":0,"pass_by":"Value","from":{from}}}}}"#);
    let records = |floats: [&str; 3], from: &str| {
        let mut records = definitions();
        records.push(step(1));
        records.extend(floats.map(value));
        records.push(assignment(from));
        records
    };
    let older = records(["1.5", "null", "[1]"], r#"{"kind":"Simple","0":3}"#);
    fs::write(source.join("trace.json"), array(&older)).unwrap();
    send(&lab, &relay, &source);
    let out = lab.path().join("out");
    let target = relay.output.to_str().unwrap();
    let viewer = keep(&lab, &out, &["--no-follow", target]).wait();
    // No reader takes the last float.
    let summary = viewer.stderr.last().unwrap();
    assert!(summary.contains("1 records left out"), "{summary}");
    let mut expected = records([r#""1.5""#, r#""NaN""#, ""], r#"["Compound",3]"#);
    expected.remove(expected.len() - 2);
    assert_eq!(read(&out)[..expected.len()], expected);
    let member = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    let found = fs::read_to_string(out.join("trace_metadata.json")).unwrap();
    assert_eq!(member(&found), member(metadata));
}

#[test]
fn a_million_steps_deep_calls_and_large_values_come_back() {
    let lab = Lab::new();
    let relay = Relay::start(&lab);
    let mut lines = definitions();
    for depth in 0..20_000 {
        lines.push(step(depth));
        lines.push(lines[2].clone());
    }
    let text = "größe 😀 \\u0001".repeat(100_000);
    let large = format!(r#"{{"kind":"String","text":"{text}","type_id":0}}"#);
    lines.push(step(0));
    lines.push(format!(
        r#"{{"Value":{{"variable_id":0,"value":{large}}}}}"#
    ));
    lines.push(format!(r#"{{"Return":{{"return_value":{large}}}}}"#));
    lines.extend((0..1_000_000).map(step));
    let file = lab.path().join("trace.json");
    fs::write(&file, array(&lines)).unwrap();
    let out = lab.path().join("out");
    let mut viewer = keep_live(&lab, &relay, &out);
    viewer.wait_for_stderr_text("waiting for a live session");
    send(&lab, &relay, &file);
    viewer.wait().expect_success();
    let records = read(&out);
    assert_eq!(records.len(), lines.len());
    assert!(records == lines);
}

/// A recording that is sent through a pipe, as far as the test says.
struct Recorder {
    lab: Lab,
    relay: Relay,
    sending: Process,
    pipe: std::process::ChildStdin,
    lines: Vec<String>,
}

impl Recorder {
    fn start() -> Self {
        let lab = Lab::new();
        let relay = Relay::start(&lab);
        let mut sending = Process::start(send_command(&lab, &relay, "-").stdin(Stdio::piped()));
        let mut pipe = sending.stdin().unwrap();
        writeln!(pipe, "{METADATA}").unwrap();
        let mut recorder = Self {
            lab,
            relay,
            sending,
            pipe,
            lines: Vec::new(),
        };
        recorder.push(definitions());
        recorder
    }

    fn push(&mut self, lines: Vec<String>) {
        for line in &lines {
            writeln!(self.pipe, "{line}").unwrap();
        }
        self.pipe.flush().unwrap();
        self.lines.extend(lines);
    }

    fn push_steps(&mut self, count: usize) {
        let first = self.lines.len();
        let steps = (first..first + count).flat_map(|line| [step(line), value(line)]);
        self.push(steps.collect());
    }

    /// Waits until all but the newest step, which is held back, is in a directory.
    fn wait_until_shown(&self, out: &Path) {
        let held = self.lines.iter().rposition(|line| line.contains("Step"));
        let expected = &self.lines[..held.unwrap_or(self.lines.len())];
        wait_until("the records are shown", || {
            out.join("trace.json").exists() && read(out).len() >= expected.len()
        });
        assert_eq!(read(out)[..expected.len()], *expected);
    }

    /// Ends the recording, and waits for the viewer.
    fn finish(self, viewer: Process, out: &Path) {
        drop(self.pipe);
        let sent = self.sending.wait();
        assert!(sent.status.success(), "{:#?}", sent.stderr);
        let viewer = viewer.wait();
        assert!(viewer.status.success(), "{:#?}", viewer.stderr);
        assert_eq!(read(out), self.lines);
        let entries = fs::read_dir(out).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.filter(|name| !name.starts_with('.')).collect();
        names.sort();
        let want = [
            "files",
            "trace.json",
            "trace_metadata.json",
            "trace_paths.json",
        ];
        assert_eq!(names, want);
    }
}

/// Copies a directory. Returns false if `cp` left out a file that has changed names between its
/// `stat` and its `open`, which it says.
fn is_copied(directory: &Path, copy: &Path) -> bool {
    let mut cp = Command::new("cp");
    let output = cp.env("LC_ALL", "C").arg("-r").arg(directory).arg(copy);
    let output = output.output().unwrap();
    let messages = String::from_utf8(output.stderr).unwrap();
    let is_replaced = |line: &str| line.contains("replaced while being copied");
    assert!(messages.lines().all(is_replaced), "{messages}");
    assert_eq!(output.status.success(), messages.is_empty());
    output.status.success()
}

#[test]
fn copies_at_random_moments_are_valid_and_a_prefix() {
    let mut recorder = Recorder::start();
    let out = recorder.lab.path().join("out");
    let viewer = keep_live(&recorder.lab, &recorder.relay, &out);
    recorder.push_steps(10);
    recorder.wait_until_shown(&out);
    let mut random = fastrand::Rng::with_seed(14);
    for number in 0..50 {
        recorder.push_steps(random.usize(1..2000));
        if random.u8(..) < 50 {
            recorder.wait_until_shown(&out);
        }
        let copy = recorder.lab.path().join(format!("copy-{number}"));
        let is_copied = (0..5).any(|attempt| {
            // What an attempt has left out is not to be found in the next one.
            if attempt > 0 {
                fs::remove_dir_all(&copy).unwrap();
            }
            is_copied(&out, &copy)
        });
        assert!(is_copied, "files are replaced all the time");
        let records = read(&copy);
        assert_eq!(records, recorder.lines[..records.len()]);
    }
    recorder.wait_until_shown(&out);
    recorder.finish(viewer, &out);
}

#[test]
fn a_viewer_that_is_killed_is_started_again_and_completes_its_directory() {
    let mut recorder = Recorder::start();
    let out = recorder.lab.path().join("out");
    let mut viewer = keep_live(&recorder.lab, &recorder.relay, &out);
    let mut shown = 0;
    for round in 1..=10 {
        recorder.push_steps(10);
        recorder.wait_until_shown(&out);
        let before = size(&out);
        recorder.push_steps(round * 300);
        // Without a pause between two looks: the write that shows more may not be at its end.
        let deadline = Instant::now() + TEST_TIMEOUT;
        while size(&out) <= before {
            assert!(Instant::now() < deadline, "nothing more is shown");
        }
        viewer.signal(Signal::KILL);
        assert!(!viewer.wait().status.success());
        let records = read(&out);
        assert!(records.len() >= shown);
        shown = records.len();
        assert_eq!(records, recorder.lines[..shown]);
        viewer = keep_live(&recorder.lab, &recorder.relay, &out);
    }
    recorder.push_steps(10);
    recorder.wait_until_shown(&out);
    recorder.finish(viewer, &out);
}

#[test]
fn a_relay_that_is_killed_and_started_again_loses_nothing() {
    let mut recorder = Recorder::start();
    let out = recorder.lab.path().join("out");
    let viewer = keep_live(&recorder.lab, &recorder.relay, &out);
    for _ in 0..3 {
        recorder.push_steps(500);
        recorder.wait_until_shown(&out);
        let relay = &mut recorder.relay;
        let addresses = [relay.control, relay.data, relay.live];
        relay.kill();
        *relay = Relay::start_at(&recorder.lab, addresses);
    }
    recorder.push_steps(500);
    recorder.finish(viewer, &out);
}

#[test]
fn a_consumer_that_is_killed_is_started_again_and_the_directory_is_completed() {
    let lab = Lab::new();
    let relay = Relay::start(&lab);
    let file = lab.path().join("trace.json");
    let mut growing = File::create(&file).unwrap();
    let mut lines = definitions();
    write!(growing, "[{}", lines.join(",")).unwrap();
    let out = lab.path().join("out");
    // The relay keeps the session of a producer that has gone away for a minute.
    let viewer = keep_live(&lab, &relay, &out);
    for round in 1..=4_usize {
        let sending = Process::start(&mut send_command(&lab, &relay, &file));
        let more: Vec<_> = (0..round * 500).map(step).collect();
        write!(growing, ",{}", more.join(",")).unwrap();
        lines.extend(more);
        if round == 4 {
            write!(growing, "]").unwrap();
            sending.wait().expect_success();
            break;
        }
        wait_until("the records are shown", || {
            out.join("trace.json").exists() && read(&out).len() == lines.len() - 1
        });
        sending.signal(Signal::KILL);
        assert!(!sending.wait().status.success());
    }
    let viewer = viewer.wait();
    assert!(viewer.status.success(), "{:#?}", viewer.stderr);
    assert_eq!(read(&out), lines);
    // The same from the directories that the relay has written.
    let again = lab.path().join("again");
    let target = relay.output.to_str().unwrap();
    keep(&lab, &again, &["--no-follow", target])
        .wait()
        .expect_success();
    assert_eq!(read(&again), lines);
}

#[test]
fn a_full_disk_is_an_error_that_leaves_a_valid_directory() {
    let mut recorder = Recorder::start();
    let mount = recorder.lab.directory("disk");
    let Some(_disk) = SmallDisk::mount(&mount, 512) else {
        return;
    };
    let out = mount.join("out");
    let viewer = keep_live(&recorder.lab, &recorder.relay, &out);
    recorder.push_steps(10);
    recorder.wait_until_shown(&out);
    recorder.push_steps(20_000);
    let ended = viewer.wait();
    assert_eq!(ended.status.code(), Some(1), "{:#?}", ended.stderr);
    let error = ended.stderr.join("\n");
    assert!(error.contains("No space left on device"), "{error}");
    let records = read(&out);
    assert_eq!(records, recorder.lines[..records.len()]);
}

#[test]
fn a_target_without_recording_is_an_error() {
    let lab = Lab::new();
    let relay = Relay::start(&lab);
    let url = test_live::url(relay.live, HOST, SESSION);
    let out = lab.path().join("out");
    let ended = keep(&lab, &out, &["--session-not-found=end", &url]).wait();
    assert_eq!(ended.status.code(), Some(1));
    let error = ended.stderr.join("\n");
    assert!(error.contains("no CodeTracer recording"), "{error}");
    assert!(!out.exists());
}
