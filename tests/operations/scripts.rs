//! What scripts rely on, as `doc/scripts.md` says it: JSON of every listing, with the fields that
//! the page of each program names; no colors with `NO_COLOR`; and the exit status.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use ctf::{Timestamp, TraceWriter};
use serde_json::Value;
use tests::lab::Lab;
use tests::process::Process;
use tests::relay::{Relay, free_addresses};
use tests::replay::Replay;
use tests::terminal::Terminal;
use tests::{binaries, traces, wait_until};

/// Returns the one JSON document that a command prints.
fn document(command: &mut Command) -> Value {
    let ended = command.stdin(Stdio::null()).output().unwrap();
    let printed = String::from_utf8(ended.stdout).unwrap();
    let errors = String::from_utf8_lossy(&ended.stderr);
    assert!(printed.ends_with('\n'), "{command:?}: {printed}{errors}");
    serde_json::from_str(&printed).unwrap_or_else(|error| panic!("{command:?}: {error}: {printed}"))
}

fn add_fields(document: &Value, fields: &mut BTreeSet<String>) {
    match document {
        Value::Array(all) => all.iter().for_each(|one| add_fields(one, fields)),
        Value::Object(members) => {
            for (name, value) in members {
                fields.insert(name.clone());
                add_fields(value, fields);
            }
        }
        _ => {}
    }
}

/// Checks that a list is not empty, and that the section about JSON of a page names all its fields.
fn expect_documented(page: &str, document: &Value) {
    let is_empty = document.as_array().is_some_and(Vec::is_empty);
    assert!(!is_empty, "{page}: the list is empty");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let text = fs::read_to_string(root.join("doc").join(page)).unwrap();
    let section = text.split("## JSON\n").nth(1).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let mut fields = BTreeSet::new();
    add_fields(document, &mut fields);
    for field in fields {
        let quoted = format!("`{field}`");
        assert!(section.contains(&quoted), "{page} does not name {quoted}");
    }
}

fn command(lab: &Lab, program: &Path, arguments: &[&str]) -> Command {
    let mut command = lab.command(program);
    command.args(arguments);
    command
}

#[test]
fn listings_of_relayd_are_json_with_the_fields_of_its_page() {
    let lab = Lab::new();
    let archive = format!("file://{}", lab.path().join("archive").display());
    let relay = Relay::start_with(&lab, &["--archive", &archive]);
    let recorded = traces::with_numbered_events(&lab, "listed", 10, 1_000_000);
    let mut replay = Replay::open_with_idle_stream(&relay, "listed", &recorded);
    replay.send_packets();
    replay.close();
    let list = ["archive", "ls", &archive, "--json"];
    let mut sessions = Value::Null;
    wait_until("the archive lists the end of the session", || {
        sessions = document(&mut command(&lab, binaries::relayd(), &list));
        sessions[0]["packets"].as_u64() > Some(0)
    });
    expect_documented("relayd.md", &sessions);
    assert_eq!(sessions[0]["name"], "listed");
    let ports = ["-C", "-D", "-L"].into_iter().zip(free_addresses());
    let ports: Vec<String> = ports
        .flat_map(|(option, address)| [option.to_owned(), format!("tcp://{address}")])
        .collect();
    let mut doctor = command(&lab, binaries::relayd(), &["doctor", "--json", "-o", "/t"]);
    expect_documented("relayd.md", &document(doctor.args(&ports)));
    let check = ["check-config", "--json", "-o", "/t", "--retain-size=1k"];
    let settings = document(&mut command(&lab, binaries::relayd(), &check));
    assert_eq!(settings["output"], "/t");
    assert_eq!(settings["retain-size"], 1024);
    assert_eq!(settings["disallow-clear"], false);
}

#[test]
fn listings_of_consumer_are_json_with_the_fields_of_its_page() {
    let (lab, relay) = Relay::start_in_new_lab();
    let url = relay.producer_url();
    let rings = lab.directory("rings");
    let mut writer = lab.command(binaries::ring_writer());
    let pause = Duration::from_millis(1).as_micros().to_string();
    writer.args(["progress", "1", "0", &pause]);
    let _writer = Process::start(writer.env("TRACE_RING_DIR", &rings));
    let ring = format!("--ring={}", rings.display());
    let serve = [
        "serve",
        "--socket=status",
        "--spool=spool",
        &ring,
        "-U",
        &url,
    ];
    let _agent = Process::start(&mut command(&lab, binaries::consumer(), &serve));
    let list = ["rings", "--list", "--json", &ring];
    let mut listed = Value::Null;
    wait_until("the program has a ring", || {
        listed = document(&mut command(&lab, binaries::consumer(), &list));
        listed[0]["size_bytes"].as_u64() > Some(0)
    });
    expect_documented("consumer.md", &listed);
    let status = ["status", "--socket=status", "--json"];
    wait_until("the relay has opened a session", || {
        let asked = command(&lab, binaries::consumer(), &status).output();
        let printed = String::from_utf8(asked.unwrap().stdout).unwrap();
        printed.contains("\"connected\"")
    });
    let report = document(&mut command(&lab, binaries::consumer(), &status));
    expect_documented("consumer.md", &report);
    let doctor = ["doctor", "--json", "-U", &url];
    let findings = document(&mut command(&lab, binaries::consumer(), &doctor));
    expect_documented("consumer.md", &findings);
    let config = lab.path().join("consumer.toml");
    fs::write(&config, format!("[relay]\nurl = \"{url}\"\n")).unwrap();
    let check = ["check-config", "--json", config.to_str().unwrap()];
    let settings = document(&mut command(&lab, binaries::consumer(), &check));
    assert_eq!(settings["relay"]["url"], *url);
}

#[test]
fn listings_of_test_live_and_tldrs_are_json_with_the_fields_of_their_pages() {
    let (lab, relay) = Relay::start_in_new_lab();
    let recorded = traces::with_numbered_events(&lab, "listed", 10, 1_000_000);
    let replay = Replay::open_with_idle_stream(&relay, "listed", &recorded);
    let url = format!("net://{}", relay.live);
    let spans = lab.path().join("spans");
    let mut trace = TraceWriter::create(&spans).unwrap();
    for (time, name) in [(1, "step_begin"), (2, "step_end")] {
        let class = trace.event_class(name, &[]).unwrap();
        trace.write(&class, Timestamp(time), &[]).unwrap();
    }
    trace.finish().unwrap();
    let (recorded, spans) = (recorded.to_str().unwrap(), spans.to_str().unwrap());
    for arguments in [
        &["--list", "--json", &url][..],
        &["info", "--json", &url],
        &["info", "--json", recorded],
        &["spans", "--json", "--by", "thread", spans],
    ] {
        let listed = document(&mut command(&lab, binaries::test_live(), arguments));
        expect_documented("test-live.md", &listed);
    }
    replay.close();
    let stored = lab.directory("stored");
    let line = r#"{"ph":"i","name":"hello","ts":1}"#;
    fs::write(stored.join("a.jsonl"), format!("{line}\n")).unwrap();
    let list = ["list", "--json", "--dir", stored.to_str().unwrap()];
    let listed = document(&mut command(&lab, binaries::tldrs(), &list));
    expect_documented("tldrs.md", &listed);
    assert_eq!(listed[0]["events"], 1);
}

#[test]
fn no_program_writes_colors_to_a_terminal_if_the_environment_forbids_them() {
    let trace = Lab::new();
    let recorded = traces::with_numbered_events(&trace, "plain", 3, 1_000_000);
    let recorded = recorded.to_str().unwrap();
    for (program, arguments) in [
        (binaries::relayd(), &["-v", "-o", "/proc/none"][..]),
        (binaries::consumer(), &["-vvv", "replay", "-U", "x", "."]),
        (binaries::test_live(), &["-vvv", recorded]),
        (binaries::test_live(), &["--sink", "log", recorded]),
        (binaries::test_live(), &["--help"]),
        (binaries::tldrs(), &["-vvv", "get-tef", "none"]),
    ] {
        let shown = |no_color: &str| {
            let lab = Lab::new();
            let value = format!("NO_COLOR={no_color}");
            let mut env = Command::new("env");
            env.arg(value).arg(program).args(arguments);
            let left = Terminal::start(&lab, (100, 50), &env).wait();
            left.output
        };
        let plain = shown("1");
        assert!(!plain.contains("\u{1b}["), "{arguments:?}: {plain:?}");
        if program == binaries::test_live() {
            assert!(shown("").contains("\u{1b}["), "{arguments:?}");
        }
    }
}

#[test]
fn exit_status_is_that_of_the_table() {
    let lab = Lab::new();
    let trace = traces::with_numbered_events(&lab, "read", 3, 1_000_000);
    let trace = trace.to_str().unwrap();
    fs::create_dir(lab.path().join("empty")).unwrap();
    for (program, arguments, status) in [
        (binaries::relayd(), &["check-config", "-o", "/t"][..], 0),
        (binaries::relayd(), &["check-config", "none"], 1),
        (binaries::relayd(), &["--none"], 1),
        (binaries::relayd(), &["certs", "--none"], 1),
        (binaries::consumer(), &["rings", "--list", "--ring=none"], 0),
        (binaries::consumer(), &["status", "--socket=none"], 1),
        (binaries::consumer(), &["check-config", "none"], 2),
        (binaries::consumer(), &["--none"], 2),
        (binaries::test_live(), &["info", trace], 0),
        (binaries::test_live(), &["info", "./empty"], 1),
        (binaries::test_live(), &["--filter", "number < 0", trace], 1),
        (binaries::test_live(), &["--filter", "a =", trace], 2),
        (binaries::test_live(), &["info"], 2),
        (binaries::tldrs(), &["list", "--dir=."], 0),
        (binaries::tldrs(), &["get-tef", "none", "--dir=."], 1),
        (binaries::tldrs(), &["--none"], 2),
    ] {
        let ended = command(&lab, program, arguments).output().unwrap();
        let errors = String::from_utf8_lossy(&ended.stderr);
        let name = program.display();
        assert_eq!(
            ended.status.code(),
            Some(status),
            "{name} {arguments:?}: {errors}"
        );
        assert_eq!(
            errors.is_empty(),
            status == 0,
            "{name} {arguments:?}: {errors}"
        );
    }
}
