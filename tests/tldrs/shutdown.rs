//! Shutdown, `DIE`, crashes and restarts of the daemon.

use std::fs;
use std::io::{Read, Write};

use rustix::process::Signal;
use tests::Lab;
use tests::tldrs::Tldrs;

use crate::{array, event, events};

#[test]
fn case_25_die_stores_everything_and_exits_at_once_with_success() {
    let (_lab, tldrs) = Tldrs::start_in_new_lab();
    let mut other = tldrs.connect();
    write!(other, "OPEN d2\n{}", events(&["other"])).unwrap();
    tldrs.wait_for_trace("d2", &events(&["other"]));
    let mut last = tldrs.connect();
    let (before, after) = (event("a", 1), event("after-die", 2));
    // In one write: the daemon must not store what follows DIE.
    let lines = format!("OPEN d1\n{before}\nDIE\n{after}\n");
    last.write_all(lines.as_bytes()).unwrap();
    let (socket, data) = (tldrs.socket.clone(), tldrs.data.clone());
    let ended = tldrs.wait_for_exit();
    assert_eq!(ended.status.code(), Some(0), "{:#?}", ended.stderr);
    assert!(!socket.exists());
    assert_eq!(other.read(&mut [0]).unwrap(), 0);
    let stored = fs::read_to_string(data.join("d1.jsonl")).unwrap();
    assert_eq!(stored, before + "\n");
}

#[test]
fn case_26_die_when_idle_waits_for_the_last_trace_and_for_nothing_else() {
    let (_lab, tldrs) = Tldrs::start_in_new_lab();
    let mut client = tldrs.connect();
    let request = tldrs.expand_paths("EMIT_TEF_AT_EXIT @OUT@/i1.json\n");
    write!(
        client,
        "OPEN i1\n{request}DIE_WHEN_IDLE\n{}",
        events(&["a"])
    )
    .unwrap();
    tldrs.wait_for_trace("i1", &events(&["a"]));
    writeln!(client, "{}", event("b", 2)).unwrap();
    tldrs.wait_for_trace("i1", &events(&["a", "b"]));
    let out = tldrs.out.clone();
    drop(client);
    assert_eq!(tldrs.wait_for_exit().status.code(), Some(0));
    let exported = fs::read_to_string(out.join("i1.json")).unwrap();
    assert_eq!(exported, array(&["a", "b"]));
}

#[test]
fn case_27_die_when_idle_does_not_wait_for_clients_without_a_trace() {
    let (_lab, tldrs) = Tldrs::start_in_new_lab();
    let mut client = tldrs.connect();
    writeln!(client, "DIE_WHEN_IDLE").unwrap();
    assert_eq!(tldrs.wait_for_exit().status.code(), Some(0));
}

#[test]
fn case_31_killed_daemon_has_lost_no_event_that_it_had_read() {
    let (_lab, tldrs) = Tldrs::start_in_new_lab();
    let mut client = tldrs.connect();
    let lines = (event("e", 1) + "\n").repeat(50);
    write!(client, "OPEN sk\n{lines}").unwrap();
    // The daemon has read what the socket does not hold any more.
    let queued = || rustix::io::ioctl_fionread(&client).unwrap_or(0);
    tests::wait_until("the daemon has read everything", || queued() == 0);
    tldrs.wait_for_trace("sk", &lines);
    let data = tldrs.data.clone();
    tldrs.kill();
    assert_eq!(fs::read_to_string(data.join("sk.jsonl")).unwrap(), lines);
}

#[test]
fn case_32_daemon_shuts_down_cleanly_on_a_signal() {
    for signal in [Signal::TERM, Signal::INT] {
        let (_lab, tldrs) = Tldrs::start_in_new_lab();
        let mut client = tldrs.connect();
        let request = tldrs.expand_paths("EMIT_TEF_AT_EXIT @OUT@/t.json\n");
        write!(client, "OPEN st\n{request}{}", events(&["a", "b"])).unwrap();
        tldrs.signal(signal);
        let (data, out) = (tldrs.data.clone(), tldrs.out.clone());
        let directory = tldrs.socket.parent().unwrap().to_owned();
        let ended = tldrs.wait_for_exit();
        assert_eq!(ended.status.code(), Some(0), "{:#?}", ended.stderr);
        let stored = fs::read_to_string(data.join("st.jsonl")).unwrap();
        assert_eq!(stored, events(&["a", "b"]));
        let exported = fs::read_to_string(out.join("t.json")).unwrap();
        assert_eq!(exported, array(&["a", "b"]));
        let left = fs::read_dir(directory).unwrap().count();
        assert_eq!(left, 0, "socket and lock are removed");
    }
}

#[test]
fn pending_export_survives_a_killed_daemon() {
    let (lab, tldrs) = Tldrs::start_in_new_lab();
    let mut client = tldrs.connect();
    let request = tldrs.expand_paths("EMIT_TEF_AT_EXIT @OUT@/late.json\n");
    write!(client, "OPEN a/b\n{request}{}", events(&["a"])).unwrap();
    tldrs.wait_for_trace("a%2Fb", &events(&["a"]));
    let out = tldrs.out.clone();
    tldrs.kill();
    assert!(!out.join("late.json").exists());

    let tldrs = Tldrs::start(&lab);
    tldrs.wait_for_export("late.json", &array(&["a"]));
    // An export is made once.
    fs::remove_file(out.join("late.json")).unwrap();
    tldrs.send(&format!("OPEN a/b\n{}", event("b", 2)));
    tldrs.wait_for_trace("a%2Fb", &events(&["a", "b"]));
    tldrs.stop();
    assert!(!out.join("late.json").exists());
}

#[test]
fn starting_daemon_leaves_pending_exports_of_a_running_one_alone() {
    let (lab, tldrs) = Tldrs::start_in_new_lab();
    let mut client = tldrs.connect();
    let request = tldrs.expand_paths("EMIT_TEF_AT_EXIT @OUT@/t.json\n");
    write!(client, "OPEN t\n{request}{}", events(&["a"])).unwrap();
    tldrs.wait_for_trace("t", &events(&["a"]));
    let second = tldrs.socket.with_file_name("second");
    let mut command = lab.command(tests::binaries::tldrs());
    command
        .args(["serve", "-v", "--socket"])
        .arg(&second)
        .arg("-d")
        .arg(&tldrs.data);
    let mut second = tests::process::Process::start(&mut command);
    second.wait_for_stderr_text("serve: ready");
    second.signal(Signal::TERM);
    assert!(second.wait().status.success());
    assert!(!tldrs.out.join("t.json").exists());
    drop(client);
    tldrs.wait_for_export("t.json", &array(&["a"]));
}

#[test]
fn unwritable_file_is_reported_at_startup() {
    let lab = Lab::new();
    let mut command = lab.command(tests::binaries::tldrs());
    command.args(["serve", "--socket", "s", "--into-file", "missing/all.jsonl"]);
    let ended = tests::process::Process::start(&mut command).wait();
    assert_eq!(ended.status.code(), Some(1));
    assert!(ended.stderr.join("").contains("cannot store events in"));
}

#[test]
fn line_cut_off_by_a_crash_is_not_joined_with_the_next() {
    let lab = Lab::new();
    let data = lab.directory("data");
    fs::write(
        data.join("torn.jsonl"),
        format!("{}{{\"cut", events(&["a"])),
    )
    .unwrap();
    let tldrs = Tldrs::start(&lab);
    tldrs.send(&format!(
        "OPEN torn\n{}\nEMIT_TEF @OUT@/t.json\n",
        event("b", 2)
    ));
    tldrs.wait_for_export("t.json", &array(&["a", "b"]));
}

#[test]
fn daemonized_daemon_accepts_connections_when_its_starter_returns() {
    let lab = Lab::new();
    let (socket, data) = (lab.directory("cwd").join("sock"), lab.directory("data"));
    let mut command = lab.command(tests::binaries::tldrs());
    // Paths relative to the working directory of the caller.
    command.args(["serve", "--daemonize", "--socket", "cwd/sock", "-d", "data"]);
    let started = tests::process::Process::start(&mut command).wait();
    assert!(started.status.success(), "{:#?}", started.stderr);
    let mut client = std::os::unix::net::UnixStream::connect(&socket).unwrap();
    write!(client, "OPEN bg\n{}DIE\n", events(&["a"])).unwrap();
    tests::wait_until("the daemon has exited", || !socket.exists());
    let stored = fs::read_to_string(data.join("bg.jsonl")).unwrap();
    assert_eq!(stored, events(&["a"]));

    let started = tests::process::Process::start(lab.command(tests::binaries::tldrs()).args([
        "serve",
        "--daemonize",
        "--socket",
        "cwd/sock",
        "-d",
        "/dev/null/data",
    ]));
    assert_eq!(
        started.wait().status.code(),
        Some(1),
        "errors of the background process are reported"
    );
}
