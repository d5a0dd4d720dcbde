//! What every command does whose reader is gone, as that of `head` is, and whose output is full.

use std::fs::{self, File};
use std::io::pipe;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use ::test_live::sink::SINKS;
use ::test_live::sink::row::Open;
use ctf::{Timestamp, TraceWriter};
use tests::lab::Lab;
use tests::process::Process;
use tests::relay::{Relay, free_addresses, port_options};
use tests::{binaries, traces, wait_until};

/// Returns the write end of a pipe that nobody reads.
fn closed_pipe() -> Stdio {
    let (_, writer) = pipe().unwrap();
    writer.into()
}

/// Runs a command whose standard output is closed. Expects that it ends by itself, silently and
/// with status 0.
fn expect_silent_success(mut command: Command) {
    let name = format!("{command:?}");
    let ended = command.stdin(Stdio::null()).stdout(closed_pipe()).output();
    let ended = ended.unwrap();
    let printed = String::from_utf8_lossy(&ended.stderr);
    assert_eq!((ended.status.code(), &*printed), (Some(0), ""), "{name}");
}

fn command(lab: &Lab, program: &Path, arguments: &[&str]) -> Command {
    let mut command = lab.command(program);
    command.args(arguments);
    command
}

/// Returns the arguments with which `relayd doctor` examines none of the relays of this host.
fn doctor_of_no_relay() -> Vec<String> {
    let words = ["doctor", "--output=/traces"].map(str::to_owned);
    [&words[..], &port_options(free_addresses())].concat()
}

#[test]
fn commands_of_relayd_end_silently_if_their_output_is_closed() {
    let lab = Lab::new();
    let config = lab.path().join("relayd.conf");
    fs::write(&config, "[relayd]\noutput=/traces\n").unwrap();
    let config = config.to_str().unwrap();
    let doctor = doctor_of_no_relay();
    let doctor: Vec<&str> = doctor.iter().map(String::as_str).collect();
    for arguments in [
        &["--version"][..],
        &["--help"],
        &["check-config", config],
        &doctor,
        &["certs"],
    ] {
        expect_silent_success(command(&lab, binaries::relayd(), arguments));
    }
}

#[test]
fn commands_of_consumer_end_silently_if_their_output_is_closed() {
    let (lab, relay) = Relay::start_in_new_lab();
    let config = lab.path().join("consumer.toml");
    let url = relay.producer_url();
    fs::write(&config, format!("[relay]\nurl = \"{url}\"\n")).unwrap();
    let config = config.to_str().unwrap();
    let serve = [
        "serve",
        "-v",
        "--socket=status",
        "--tldrs=tldrs",
        "-U",
        &url,
    ];
    let mut agent = Process::start(&mut command(&lab, binaries::consumer(), &serve));
    agent.wait_for_stderr_text("ready");
    for arguments in [
        &["--version"][..],
        &["--help"],
        &["status", "--socket=status"],
        &["status", "--socket=status", "--json"],
        &["doctor", "-U", &url],
        // It finds a problem that nobody reads.
        &["doctor", "-U", "net://host.invalid"],
        &["check-config", config],
    ] {
        expect_silent_success(command(&lab, binaries::consumer(), arguments));
    }
}

#[test]
fn commands_for_rings_end_silently_if_their_output_is_closed() {
    let lab = Lab::new();
    let rings = lab.directory("rings");
    let ring = format!("--ring={}", rings.display());
    let mut writer = lab.command(binaries::ring_writer());
    let pause = Duration::from_millis(1).as_micros().to_string();
    writer.args(["progress", "1", "0", &pause]);
    let writer = Process::start(writer.env("TRACE_RING_DIR", &rings));
    let pid = writer.id().to_string();
    wait_until("the writer has made its rings", || {
        let mut names = fs::read_dir(&rings).unwrap();
        names.any(|name| {
            name.unwrap()
                .file_name()
                .to_string_lossy()
                .starts_with(&pid)
        })
    });
    for action in ["--list", "--print", "--enable=app=debug"] {
        let arguments = ["rings", action, &ring];
        expect_silent_success(command(&lab, binaries::consumer(), &arguments));
    }
}

#[test]
fn commands_of_tldrs_end_silently_if_their_output_is_closed() {
    let lab = Lab::new();
    let data = lab.directory("data");
    for name in ["a.jsonl", "b.jsonl"] {
        let line = r#"{"ph":"i","name":"hello","ts":1}"#;
        fs::write(data.join(name), format!("{line}\n")).unwrap();
    }
    let directory = format!("--dir={}", data.display());
    for arguments in [
        &["--version"][..],
        &["--help"],
        &["dir"],
        &["list"],
        &["list", "--long"],
        &["get-tef", "a"],
        &["get-tef", "a", "--for=any"],
        &["get-perfetto", "a"],
        &["clear", "--yes", "--dry-run"],
        &["clear", "--yes"],
    ] {
        let mut command = command(&lab, binaries::tldrs(), arguments);
        if !arguments[0].starts_with("--") {
            command.arg(&directory);
        }
        expect_silent_success(command);
    }
    // All that were named are removed, although nobody read the name of the first.
    assert_eq!(fs::read_dir(&data).unwrap().count(), 0);
}

/// Writes a trace with one span.
fn write_span(directory: &Path) {
    let mut trace = TraceWriter::create(directory).unwrap();
    for (time, name) in [(1, "step_begin"), (2, "step_end")] {
        let class = trace.event_class(name, &[]).unwrap();
        trace.write(&class, Timestamp(time), &[]).unwrap();
    }
    trace.finish().unwrap();
}

#[test]
fn commands_of_test_live_end_silently_if_their_output_is_closed() {
    let (lab, relay) = Relay::start_in_new_lab();
    let trace = traces::with_numbered_events(&lab, "trace", 1000, 10);
    let trace = trace.to_str().unwrap();
    let spans = lab.path().join("spans");
    write_span(&spans);
    let spans = spans.to_str().unwrap();
    let url = format!("net://{}", relay.live);
    let mut rows = vec![
        vec!["--version"],
        vec!["--help"],
        vec!["--list", &url],
        vec!["--list", "--json", &url],
        vec!["info", trace],
        vec!["info", "--json", trace],
        vec!["info", &url],
        vec!["top", "--batch", trace],
        vec!["spans", spans],
        vec!["spans", "--json", spans],
        vec!["web", "--listen=127.0.0.1:0", trace],
    ];
    let sinks = SINKS.iter();
    for sink in sinks.filter(|sink| matches!(sink.open, Open::Stream(_))) {
        rows.push(vec!["--sink", sink.name, trace]);
    }
    for arguments in rows {
        expect_silent_success(command(&lab, binaries::test_live(), &arguments));
    }
}

#[test]
fn full_output_and_closed_messages_are_no_panics() {
    let lab = Lab::new();
    let data = lab.directory("data");
    let directory = format!("--dir={}", data.display());
    let dir = ["dir", &directory];
    let doctor = doctor_of_no_relay();
    let doctor: Vec<&str> = doctor.iter().map(String::as_str).collect();
    for (program, arguments, status) in [
        (binaries::relayd(), &doctor[..], 1),
        (binaries::tldrs(), &dir, 1),
        (
            binaries::consumer(),
            &["rings", "--list", "--ring=/none"],
            1,
        ),
    ] {
        let mut full = command(&lab, program, arguments);
        let ended = full
            .stdout(File::create("/dev/full").unwrap())
            .output()
            .unwrap();
        let printed = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(status), "{full:?}: {printed}");
        let reason = "cannot write to standard output: No space left on device";
        assert!(printed.contains(reason), "{full:?}: {printed}");
    }
    for (program, arguments, status) in [
        (binaries::relayd(), &["check-config", "/none"][..], 1),
        (binaries::consumer(), &["check-config", "/none"], 2),
        (binaries::tldrs(), &["list", "--dir=/none"], 1),
        (binaries::test_live(), &["/none"], 2),
    ] {
        let mut closed = command(&lab, program, arguments);
        let ended = closed.stderr(closed_pipe()).output().unwrap();
        assert_eq!(ended.status.code(), Some(status), "{closed:?}");
    }
}

#[test]
fn file_that_cannot_be_written_is_named_by_the_viewer() {
    let lab = Lab::new();
    let trace = traces::with_numbered_events(&lab, "trace", 3, 1000);
    for sink in ["text", "json", "perfetto", "tef"] {
        let words = ["--no-follow", "--sink", sink, "-w", "/dev/full"];
        let mut full = command(&lab, binaries::test_live(), &words);
        let ended = full.arg(&trace).output().unwrap();
        let printed = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(1), "{printed}");
        let reason = "/dev/full: No space left on device";
        assert!(printed.contains(reason), "{sink}: {printed}");
    }
}
