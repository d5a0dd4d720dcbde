//! A CodeTracer recording from `consumer` through `relayd` to the directory of `test-live`, and the
//! same file read and written with the published types.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use codetracer_trace_types::TraceLowLevelEvent;
use tests::lab::Lab;
use tests::process::Process;
use tests::relay::Relay;
use tests::{binaries, test_live};

use crate::process::{children_cpu, cpu};

/// Steps of the recording; every second one has a value, and every tenth a call and its return.
const STEPS: usize = 1_000_000;
/// Number of runs of each kind, in turns. The median is printed.
const TURNS: usize = 5;

/// Result of one run.
#[derive(Clone, Copy)]
struct Run {
    wall: Duration,
    cpu: Duration,
}

pub(crate) fn run() {
    let lab = Lab::new();
    let file = lab.path().join("trace.json");
    let (text, records) = recording();
    fs::write(&file, &text).unwrap();
    let megabytes = text.len() as f64 / 1e6;
    println!("{records} records, {megabytes:.0} MB of JSON, {TURNS} turns");
    println!(
        "{:<34}{:>12}{:>8}{:>10}",
        "", "records/s", "spread", "CPU s"
    );
    let (mut types, mut json, mut binary) = (Vec::new(), Vec::new(), Vec::new());
    // In turns, so that what slows the machine down for a while slows all three.
    for _ in 0..TURNS {
        types.push(measure_types(&file, &lab.path().join("copy.json")));
        json.push(measure_stream(&file, "json"));
        binary.push(measure_stream(&file, "bin"));
    }
    for (name, mut runs) in [
        ("published types, serde_json", types),
        ("consumer, relayd, test-live: json", json),
        ("consumer, relayd, test-live: bin", binary),
    ] {
        runs.sort_by_key(|run| run.wall);
        let Run { wall, cpu } = runs[runs.len() / 2];
        let (first, last) = (runs.first().unwrap(), runs.last().unwrap());
        println!(
            "{name:<34}{:>12.0}{:>7.0}%{:>10.2}",
            records as f64 / wall.as_secs_f64(),
            (last.wall.as_secs_f64() / first.wall.as_secs_f64() - 1.0) * 100.0,
            cpu.as_secs_f64(),
        );
    }
    println!(
        "from the start of the consumer to the end of the viewer; CPU of all processes together"
    );
}

/// A recording as JSON, and the number of its records.
fn recording() -> (String, usize) {
    let mut text = "[{\"Path\":\"/demo/main.small\"},\
        {\"Function\":{\"path_id\":0,\"line\":1,\"name\":\"<toplevel>\"}},\
        {\"Call\":{\"function_id\":0,\"args\":[]}},\
        {\"Type\":{\"kind\":7,\"lang_type\":\"Int\",\"specific_info\":{\"kind\":\"None\"}}},\
        {\"VariableName\":\"n\"}"
        .to_owned();
    let mut records = 5;
    for number in 0..STEPS {
        let value = format!(r#"{{"kind":"Int","i":{number},"type_id":0}}"#);
        let line = number % 1000;
        write!(text, r#",{{"Step":{{"path_id":0,"line":{line}}}}}"#).unwrap();
        records += 1;
        if number % 2 == 0 {
            write!(text, r#",{{"Value":{{"variable_id":0,"value":{value}}}}}"#).unwrap();
            records += 1;
        }
        if number % 10 == 0 {
            let argument = format!(r#"{{"variable_id":0,"value":{value}}}"#);
            write!(
                text,
                r#",{{"Call":{{"function_id":0,"args":[{argument}]}}}}"#
            )
            .unwrap();
            write!(text, r#",{{"Return":{{"return_value":{value}}}}}"#).unwrap();
            records += 2;
        }
    }
    text.push(']');
    (text, records)
}

/// Reads the file with the published types, and writes it again.
fn measure_types(file: &Path, copy: &Path) -> Run {
    let (begin, before) = (Instant::now(), cpu(std::process::id()));
    // As a whole, as programs that use the published types do.
    let records: Vec<TraceLowLevelEvent> =
        serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    fs::write(copy, serde_json::to_vec(&records).unwrap()).unwrap();
    Run {
        wall: begin.elapsed(),
        cpu: cpu(std::process::id()) - before,
    }
}

/// Sends the file to a new relay while a viewer keeps a directory of this form.
fn measure_stream(file: &Path, form: &str) -> Run {
    // A new relay each time, because one that has run has the sessions of the runs before.
    let lab = Lab::new();
    let mut relay = Relay::start(&lab);
    let url = test_live::url(relay.live, "bench", "run");
    let mut viewer = test_live::command(&lab, &["--sink", "codetracer", "--quiet", "-o"]);
    viewer
        .arg(lab.path().join("out"))
        .arg(format!("--codetracer-format={form}"))
        // The viewer starts before there is a session.
        .args(["--session-not-found=continue", &url]);
    let viewer = Process::start(&mut viewer);
    // Compiles the consumer at the first call: before the time begins.
    let mut consumer = lab.command(binaries::consumer());
    consumer
        .args(["codetracer", "--hostname=bench", "--session=run"])
        .arg(format!("--ctrl-url=tcp://{}", relay.control))
        .arg(format!("--data-url=tcp://{}", relay.data))
        .arg(file)
        .stderr(Stdio::null());
    let before = children_cpu();
    let begin = Instant::now();
    assert!(consumer.status().unwrap().success());
    viewer.wait().expect_success();
    Run {
        wall: begin.elapsed(),
        // The relay still runs: it is not among the children that have ended.
        cpu: children_cpu() - before + cpu(relay.process().id()),
    }
}
