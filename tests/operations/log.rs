//! The log: its format (`--log-format=json`), and its file (`--log-file`) with SIGHUP.

use std::fs;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tests::lab::Lab;
use tests::process::Process;
use tests::relay::Relay;
use tests::{binaries, wait_until};

#[test]
fn each_line_of_a_json_log_is_an_object() {
    let lab = Lab::new();
    let mut command = lab.command(binaries::relayd());
    command
        .args(["-v", "--log-format=json", "-o"])
        .arg(lab.directory("output"));
    for port in ["control", "data", "live"] {
        command.arg(format!("--{port}-port=tcp://127.0.0.1:0"));
    }
    let mut process = Process::start(&mut command);
    let line: Value = process.wait_for_stderr("the relay listens", |line| {
        line.contains("listening")
            .then(|| serde_json::from_str(line).unwrap())
    });
    assert_eq!(line["level"], "INFO");
    assert_eq!(line["fields"]["message"], "listening");
    assert!(
        line["fields"]["control"]
            .as_str()
            .unwrap()
            .starts_with("127.0.0.1:")
    );
    process.signal(Signal::TERM);
    for line in process.wait().stderr {
        serde_json::from_str::<Value>(&line).unwrap();
    }
}

/// Stops a daemon when the test ends.
struct Daemon(Pid);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::KILL);
    }
}

fn has_line(path: &Path, text: &str) -> bool {
    fs::read_to_string(path).is_ok_and(|log| log.contains(text))
}

/// Moves a log file away as logrotate does, sends SIGHUP, and waits until there is a new file.
fn rotate(log: &Path, hang_up: impl FnOnce()) {
    let moved = log.with_extension("1");
    fs::rename(log, &moved).unwrap();
    hang_up();
    wait_until("the log file is opened again", || log.exists());
}

#[test]
fn daemon_writes_its_log_to_a_file_and_opens_it_again_on_sighup() {
    let lab = Lab::new();
    let log = lab.directory("log").join("relayd.log");
    let pid_file = lab.path().join("pid");
    let mut command = lab.command(binaries::relayd());
    command
        .args(["-d", "-v", "-o"])
        .arg(lab.directory("output"));
    command.arg("--log-file").arg(&log);
    command.arg("--pid-file").arg(&pid_file);
    for port in ["control", "data", "live"] {
        command.arg(format!("--{port}-port=tcp://127.0.0.1:0"));
    }
    let started = Process::start(&mut command).wait();
    assert_eq!((started.status.code(), started.stderr), (Some(0), vec![]));
    let id = fs::read_to_string(pid_file).unwrap();
    let daemon = Daemon(Pid::from_raw(id.trim().parse().unwrap()).unwrap());
    // Written before the command returned.
    assert!(has_line(&log, " listening "));
    rotate(&log, || kill_process(daemon.0, Signal::HUP).unwrap());
    kill_process(daemon.0, Signal::TERM).unwrap();
    wait_until("the log ends in the new file", || {
        has_line(&log, " stopping")
    });
    assert!(!has_line(&log.with_extension("1"), " stopping"));
}

#[test]
fn log_file_that_cannot_be_opened_keeps_a_daemon_from_starting() {
    let lab = Lab::new();
    let mut command = lab.command(binaries::relayd());
    command.args(["-d", "--log-file=/no/such/directory/log", "-o"]);
    command.arg(lab.directory("output"));
    let ended = Process::start(&mut command).wait();
    assert_eq!(ended.status.code(), Some(1));
    let want = "relayd: cannot open log file /no/such/directory/log: No such file or directory";
    assert!(
        ended.stderr.join("\n").starts_with(want),
        "{:?}",
        ended.stderr
    );
}

#[test]
fn sighup_ends_no_daemon_with_and_without_a_log_file() {
    let lab = Lab::new();
    let log = lab.path().join("agent.log");
    let mut relay = Relay::start(&lab);
    relay.process().signal(Signal::HUP);
    let mut agent = lab.command(binaries::consumer());
    agent
        .args(["-v", "serve", "--ring"])
        .arg("--log-file")
        .arg(&log);
    agent.env("TRACE_RING_DIR", lab.directory("ring"));
    agent.arg("--socket").arg(lab.path().join("agent.socket"));
    agent.arg(format!("-C=tcp://{}", relay.control));
    agent.arg(format!("-D=tcp://{}", relay.data));
    let agent = Process::start(&mut agent);
    let tldrs_log = lab.path().join("tldrs.log");
    let mut tldrs = lab.command(binaries::tldrs());
    tldrs.args(["-v", "serve", "--log-file"]).arg(&tldrs_log);
    tldrs.arg("--socket").arg(lab.path().join("tldrs.socket"));
    tldrs.arg("-d").arg(lab.directory("traces"));
    let tldrs = Process::start(&mut tldrs);
    for (program, path) in [(agent, log), (tldrs, tldrs_log)] {
        wait_until("the program has started", || {
            !fs::read(&path).unwrap_or_default().is_empty()
        });
        rotate(&path, || program.signal(Signal::HUP));
        program.signal(Signal::TERM);
        assert_eq!(program.wait().status.code(), Some(0));
    }
    assert!(relay.stop().status.success());
}
