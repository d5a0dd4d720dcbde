//! Readiness: notifications to the service manager and to the parent process, and listening sockets
//! that the service manager passes on (`LISTEN_FDS`).

use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;

use rustix::io::{FdFlags, fcntl_setfd};
use tests::lab::Lab;
use tests::process::Process;
use tests::relay::{Relay, free_addresses, port_options};
use tests::{TEST_TIMEOUT, binaries, wait_until};

use super::{all_accept, link_as_lttng_relayd};

#[test]
fn service_manager_is_notified_of_readiness_and_stopping() {
    let lab = Lab::new();
    let path = lab.path().join("manager");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    let notification = || {
        let mut bytes = [0; 256];
        let len = manager.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..len].to_vec()).unwrap()
    };
    let addresses = free_addresses();
    let mut command = lab.command(binaries::relayd());
    let relay = Process::start(
        command
            .args(port_options(addresses))
            .env("NOTIFY_SOCKET", &path),
    );
    assert_eq!(notification(), "READY=1");
    assert!(all_accept(addresses));
    relay.signal(rustix::process::Signal::TERM);
    assert_eq!(notification(), "STOPPING=1");
    assert!(relay.wait().status.success());
}

#[test]
fn parent_process_receives_sigusr1_in_the_foreground_and_from_the_background() {
    const PARENT: &str = r#"
        trap 'echo notified; kill $(cat "$PID_FILE"); exit 0' USR1
        "$@" &
        while :; do sleep 0.05; done"#;
    for mode in [None, Some("-d")] {
        let lab = Lab::new();
        let pid_file = lab.path().join("pid");
        let mut command = lab.command("sh");
        command
            .env("PID_FILE", &pid_file)
            .args(["-c", PARENT, "sh"])
            .arg(link_as_lttng_relayd(&lab))
            .args(port_options(free_addresses()))
            .args(["-S", "-P"])
            .arg(&pid_file)
            .args(mode);
        let ended = Process::start(&mut command).wait();
        assert_eq!(ended.stdout, ["notified"], "{mode:?}: {:?}", ended.stderr);
        wait_until("the relay has ended", || !pid_file.exists());
    }
}

#[test]
fn listening_sockets_of_the_service_manager_are_used() {
    const PASS_SOCKETS: &str = r#"
        # By way of numbers from 10 on: those of the environment may be 3, 4 or 5.
        exec {control}<&"$CONTROL" {data}<&"$DATA" {live}<&"$LIVE"
        exec 3<&"$control" 4<&"$data" 5<&"$live"
        export LISTEN_PID=$$ LISTEN_FDS=3
        exec "$@""#;
    for names in ["", "live:data:control"] {
        let lab = Lab::new();
        let bound = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let mut command = lab.command("bash");
        for (listener, variable) in bound.iter().zip(["CONTROL", "DATA", "LIVE"]) {
            fcntl_setfd(listener, FdFlags::empty()).unwrap();
            command.env(variable, listener.as_raw_fd().to_string());
        }
        command
            .env("LISTEN_FDNAMES", names)
            .args(["-c", PASS_SOCKETS, "bash"])
            .arg(binaries::relayd());
        let relay = Relay::start_from_command(&lab, command);
        let mut want = bound.map(|listener| listener.local_addr().unwrap());
        if !names.is_empty() {
            want.reverse();
        }
        assert_eq!([relay.control, relay.data, relay.live], want, "{names}");
        assert!(all_accept(want));
    }
}
