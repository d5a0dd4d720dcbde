//! `--background` and `--daemonize`: when the command returns, the daemon accepts connections and
//! runs under the name that it was called by; when it is stopped, nothing of it stays.

use std::fs;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tests::lab::Lab;
use tests::relay::{free_addresses, port_options};
use tests::{binaries, peers, wait_until};

use super::{all_accept, link_as_lttng_relayd};

/// Returns the `/proc` directories of the daemons that this test has started.
fn daemons(lab: &Lab) -> Vec<PathBuf> {
    let home = lab.path().display().to_string();
    let is_it = |path: &PathBuf| {
        let line = fs::read_to_string(path.join("cmdline")).unwrap_or_default();
        let name = line.split('\0').next().unwrap_or_default();
        Path::new(name).file_name() == Some("lttng-relayd".as_ref()) && line.contains(&home)
    };
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries.map(|entry| entry.path()).filter(is_it).collect()
}

fn health_sockets(lab: &Lab) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(lab.path().join(".lttng/relayd")) else {
        return Vec::new();
    };
    let names = entries.flatten().map(|entry| entry.path());
    names
        .filter(|path| path.display().to_string().contains("/health-"))
        .collect()
}

/// Starts a daemon, which must accept connections when the command returns, and stops it.
fn start_and_stop(lab: &Lab, mut command: Command, option: &str, addresses: [SocketAddr; 3]) {
    // Not a pipe: a daemon of `--background` keeps it open, and reading to the end would wait for
    // the daemon.
    let printed_path = lab.path().join("printed");
    let printed = fs::File::create(&printed_path).unwrap();
    let output = lab.directory("output");
    command
        .args(port_options(addresses))
        .arg("-o")
        .arg(output)
        .arg(option)
        .stdout(printed.try_clone().unwrap())
        .stderr(printed);
    let status = command.status().unwrap();
    let printed = fs::read_to_string(printed_path).unwrap();
    assert_eq!(
        (status.code(), printed),
        (Some(0), String::new()),
        "{option}"
    );
    assert!(all_accept(addresses), "{option}");
    assert_eq!(health_sockets(lab).len(), 1, "{option}");
    let daemons = daemons(lab);
    assert_eq!(daemons.len(), 1, "{option}: {daemons:?}");
    let link = |name: &str| fs::read_link(daemons[0].join(name)).unwrap();
    assert_eq!(link("cwd"), Path::new("/"));
    let is_silent = link("fd/2") == Path::new("/dev/null");
    assert_eq!(is_silent, option == "-d");
    let id = daemons[0].file_name().unwrap().to_str().unwrap();
    let id = Pid::from_raw(id.parse().unwrap()).unwrap();
    let begun = Instant::now();
    kill_process(id, Signal::TERM).unwrap();
    wait_until("no daemon is left", || self::daemons(lab).is_empty());
    assert!(begun.elapsed() < Duration::from_secs(5));
    wait_until("the health socket is removed", || {
        health_sockets(lab).is_empty()
    });
}

#[test]
fn background_command_returns_when_the_daemon_is_ready() {
    for option in ["-b", "-d"] {
        let lab = Lab::new();
        let command = lab.command(link_as_lttng_relayd(&lab));
        start_and_stop(&lab, command, option, free_addresses());
    }
}

#[test]
fn daemon_started_by_its_bare_name_is_found_on_the_path() {
    let lab = Lab::new();
    link_as_lttng_relayd(&lab);
    let mut command = lab.command("sh");
    let path = std::env::var("PATH").unwrap();
    command
        .env("PATH", format!("{}:{path}", lab.path().display()))
        .args(["-c", "exec lttng-relayd \"$@\"", "sh"]);
    start_and_stop(&lab, command, "-d", free_addresses());
}

#[test]
fn daemon_whose_file_was_removed_meanwhile_starts() {
    let lab = Lab::new();
    let program = lab.path().join("relayd");
    // By another process: a file that this one has open for writing is busy, and so it is in its
    // children.
    let copied = Command::new("cp")
        .arg(binaries::relayd())
        .arg(&program)
        .status();
    assert!(copied.unwrap().success());
    let file = fs::File::open(&program).unwrap();
    fs::remove_file(&program).unwrap();
    // The file that this process has open.
    let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
    let mut command = lab.command(Path::new(&path));
    command.arg0("lttng-relayd");
    start_and_stop(&lab, command, "-b", free_addresses());
}

#[test]
fn reference_daemon_is_ready_when_its_command_returns() {
    let lab = Lab::new();
    let command = lab.traced_command(peers::program("lttng-relayd"));
    start_and_stop(&lab, command, "-d", free_addresses());
}
