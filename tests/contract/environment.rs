//! The run directory with port and pid files, the working directory, and environment variables.

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use tests::lab::Lab;
use tests::process::Process;
use tests::producer::is_closed;
use tests::relay::{Relay, free_addresses, port_options};
use tests::{binaries, wait_until};

#[test]
fn port_and_pid_files_exist_while_the_daemon_runs() {
    let lab = Lab::new();
    let pid_file = lab.path().join("pid");
    let relay = Relay::start_with(&lab, &["-P", pid_file.to_str().unwrap()]);
    let folder = lab.path().join(".lttng/relayd");
    let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
    wait_until("the port files are written", || {
        folder.join("live.port").exists()
    });
    for (name, address) in [
        ("control.port", relay.control),
        ("data.port", relay.data),
        ("live.port", relay.live),
    ] {
        assert_eq!(read(name), format!("{}\n", address.port()), "{name}");
    }
    let pid = fs::read_to_string(&pid_file).unwrap();
    assert_eq!(pid, format!("{}\n", relay.id()));
    let mode = fs::metadata(&folder).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o755);
    assert!(relay.stop().status.success());
    assert_eq!(fs::read_dir(folder).unwrap().count(), 0);
    assert!(!pid_file.exists());
}

#[test]
fn a_relative_pid_file_is_created_in_the_callers_working_directory() {
    let lab = Lab::new();
    let mut command = lab.command(binaries::relayd());
    command
        .args(port_options(free_addresses()))
        .args(["-P", "pid", "-d"])
        .current_dir(lab.path());
    assert!(command.status().unwrap().success());
    let pid = fs::read_to_string(lab.path().join("pid")).unwrap();
    let pid = rustix::process::Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    wait_until("the daemon has exited", || !lab.path().join("pid").exists());
}

#[test]
fn startup_fails_if_pid_file_output_or_run_directory_cannot_be_created() {
    let lab = Lab::new();
    for arguments in [["-P", "/proc/nowhere/pid"], ["-o", "/proc/nowhere"]] {
        let mut command = lab.command(binaries::relayd());
        let ended =
            Process::start(command.args(port_options(free_addresses())).args(arguments)).wait();
        assert_eq!(ended.status.code(), Some(1));
        assert!(ended.stderr.concat().contains("/proc/nowhere"));
    }
    let mut command = lab.command(binaries::relayd());
    command.env("LTTNG_RUNDIR", "/proc/nowhere");
    let ended = Process::start(command.args(port_options(free_addresses()))).wait();
    assert_eq!(ended.status.code(), Some(1));
}

#[test]
fn working_directory_is_set_by_the_environment_and_reported_if_not_writable() {
    let lab = Lab::new();
    let here = fs::canonicalize(lab.directory("here")).unwrap();
    let relay = Relay::start_with_env(&lab, "LTTNG_RELAYD_WORKING_DIRECTORY", &here);
    let cwd = fs::read_link(format!("/proc/{}/cwd", relay.id())).unwrap();
    assert_eq!(cwd, here);
    // As LTTng's user, since root may write everywhere.
    let lab = Lab::new();
    let mut command = lab.traced_command(lab.copy(binaries::relayd(), "lttng-relayd"));
    command.args(["-w", "/etc"]);
    let relay = Relay::start_from_command(&lab, command);
    relay.wait_for_log(&["Working directory \"/etc\" is not writable"]);
}

#[test]
fn socket_timeout_is_set_by_the_environment() {
    let lab = Lab::new();
    let relay = Relay::start_with_env(&lab, "LTTNG_NETWORK_SOCKET_TIMEOUT", "300");
    let mut socket = TcpStream::connect(relay.data).unwrap();
    let begun = Instant::now();
    socket.write_all(&[0; 10]).unwrap();
    assert!(is_closed(&mut socket));
    assert!(begun.elapsed() >= Duration::from_millis(300));
    relay.wait_for_log(&["0.3 seconds"]);
}

#[test]
fn invalid_environment_variables_are_reported_and_ignored() {
    let lab = Lab::new();
    let mut command = lab.command(binaries::relayd());
    command
        .env("LTTNG_RELAYD_TCP_KEEP_ALIVE", "1")
        .env("LTTNG_RELAYD_TCP_KEEP_ALIVE_IDLE_TIME", "soon");
    let relay = Relay::start_from_command(&lab, command);
    relay.wait_for_log(&["WARN", "LTTNG_RELAYD_TCP_KEEP_ALIVE_IDLE_TIME"]);
    assert!(TcpStream::connect(relay.control).is_ok());
}
