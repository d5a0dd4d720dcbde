//! Typical mistakes: each is answered by what is wrong and what to do, and by an exit status.

use std::path::Path;

use rustix::process::Signal;
use tests::lab::Lab;
use tests::process::Process;
use tests::relay::Relay;
use tests::{binaries, traces};

/// A command, in which `{control}`, `{data}` and `{live}` are the ports of a relay that runs,
/// `{nothing}` is a port on which nobody listens, `{trace}` is a trace, and `{output}` names no
/// file; the exit status; and parts of what is printed on standard error.
type Mistake = (&'static str, i32, &'static [&'static str]);

const MISTAKES: [Mistake; 27] = [
    // Options.
    (
        "relayd --outptu /tmp",
        1,
        &["'--outptu'", "a similar argument exists: '--output'"],
    ),
    (
        "test-live --sink jsn {trace}",
        2,
        &["'jsn'", "a similar value exists: 'json'"],
    ),
    (
        "test-live --sink parquet {trace}",
        2,
        &["--sink parquet requires a directory: --output PATH"],
    ),
    (
        "test-live --begin yesterday {trace}",
        2,
        &["'yesterday' for '--begin", "HH:MM:SS"],
    ),
    (
        "test-live --filter a=='1 {trace}",
        2,
        &["column 4 of the filter"],
    ),
    (
        "test-live --filter $nmae==\"a\" {trace}",
        2,
        &["column 1 of the filter", "is none of $name"],
    ),
    // Targets.
    (
        "test-live ./no-such-directory",
        2,
        &["no such directory", "net://"],
    ),
    (
        "test-live a-file",
        2,
        &["a-file: not a directory", "net://"],
    ),
    ("test-live empty", 1, &["no trace at or below", "/empty"]),
    (
        "test-live http://localhost",
        2,
        &["'http://localhost'", "net"],
    ),
    (
        "test-live net://localhost/session",
        2,
        &["/host/TRACED-HOST/SESSION"],
    ),
    (
        "test-live --no-retry net://localhost:{nothing}",
        1,
        &[
            "cannot connect to localhost:{nothing}",
            "Connection refused",
        ],
    ),
    (
        "test-live net://localhost:{live}/host/nowhere/nothing",
        1,
        &["no live session nowhere/nothing"],
    ),
    (
        "test-live --list net://localhost:{control}",
        1,
        &["producers", "5344"],
    ),
    (
        "test-live --list net://localhost:{data}",
        1,
        &["producers", "5344"],
    ),
    // Agents.
    ("consumer serve", 2, &["no relay is named", "-U net://HOST"]),
    (
        "consumer serve -U localhost --ring",
        2,
        &["localhost: a relay is net[s]://HOST"],
    ),
    (
        "consumer serve -U net://localhost",
        2,
        &["nothing to serve", "--tldrs", "--ring"],
    ),
    (
        "consumer status --socket ./no-agent",
        1,
        &["no agent runs that listens on ./no-agent"],
    ),
    (
        "consumer replay -U net://localhost:{nothing}:{nothing} --reconnect-timeout 0 {trace}",
        1,
        &["cannot connect to"],
    ),
    (
        "consumer replay -U net://localhost:{control}:{data} ./no-such-directory",
        1,
        &["./no-such-directory"],
    ),
    (
        "consumer codetracer -U net://localhost:{control}:{data} ./no-such-directory",
        1,
        &["./no-such-directory"],
    ),
    // Relays.
    (
        "relayd -o {output} -C tcp://localhost:{control} -D tcp://localhost:{data} -L tcp://localhost:{live}",
        1,
        &[
            "tcp://localhost:{control}",
            "Address already in use by relayd (process ",
        ],
    ),
    (
        "relayd --archive s4://bucket",
        1,
        &["s4://bucket", "none of s3, gs, az, file"],
    ),
    ("relayd -o output", 1, &["the path must be absolute"]),
    // Local traces.
    (
        "tldrs get-tef no-such-trace",
        1,
        &["no-such-trace: no such trace", "`tldrs list`"],
    ),
    ("tldrs lst", 2, &["'lst'", "'list'"]),
];

#[test]
fn typical_mistakes_are_answered_by_what_is_wrong_and_what_to_do() {
    let lab = Lab::new();
    let relay = Relay::start(&lab);
    let trace = traces::with_numbered_events(&lab, "trace", 3, 1000);
    let _ = lab.directory("empty");
    std::fs::write(lab.path().join("a-file"), "").unwrap();
    let nothing = tests::relay::free_addresses()[0].port().to_string();
    let ports = [
        ("{control}", relay.control.port().to_string()),
        ("{data}", relay.data.port().to_string()),
        ("{live}", relay.live.port().to_string()),
        ("{nothing}", nothing),
        ("{output}", lab.path().join("other").display().to_string()),
        ("{trace}", trace.to_str().unwrap().to_owned()),
    ];
    let fill = |text: &str| {
        let mut filled = text.to_owned();
        for (name, value) in &ports {
            filled = filled.replace(name, value);
        }
        filled
    };
    let mut wrong = Vec::new();
    for (command, status, parts) in MISTAKES {
        let filled = fill(command);
        let mut words = filled.split(' ');
        let mut process = lab.command(program(words.next().unwrap()));
        let ended = Process::start(process.args(words)).wait();
        let printed = ended.stderr.join("\n");
        let is_said = parts.iter().all(|part| printed.contains(&fill(part)));
        if ended.status.code() != Some(status) || !is_said {
            wrong.push((filled, ended.status, printed));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn who_prints_rings_is_told_that_there_are_none_yet() {
    let lab = Lab::new();
    let mut command = lab.command(binaries::consumer());
    command.args(["rings", "--print", "--ring=./nothing"]);
    let mut printing = Process::start(&mut command);
    printing.wait_for_stderr_text("no traced program in ./nothing; waiting for one");
    printing.signal(Signal::INT);
    printing.wait().expect_success();
}

fn program(name: &str) -> &'static Path {
    match name {
        "relayd" => binaries::relayd(),
        "consumer" => binaries::consumer(),
        "test-live" => binaries::test_live(),
        "tldrs" => binaries::tldrs(),
        other => panic!("{other} is no program"),
    }
}
