//! The sockets of the daemon: paths, modes, allowed users, and sockets of the service manager.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use tests::process::Process;
use tests::tldrs::{DaemonPaths, Tldrs};
use tests::{Lab, binaries, wait_until};

use crate::events;

/// Starts a daemon that must fail, and returns its messages.
fn start_failure(lab: &Lab) -> String {
    let DaemonPaths { socket, data, .. } = DaemonPaths::in_lab(lab);
    let mut command = lab.command(binaries::tldrs());
    command
        .arg("serve")
        .arg("--socket")
        .arg(socket)
        .arg("-d")
        .arg(data);
    let ended = Process::start(&mut command).wait();
    assert_eq!(ended.status.code(), Some(1));
    ended.stderr.join("\n")
}

#[test]
fn second_daemon_leaves_the_socket_of_the_first_alone() {
    let (lab, tldrs) = Tldrs::start_in_new_lab();
    assert!(start_failure(&lab).contains("another tldrs daemon listens there"));
    tldrs.send(&format!("OPEN t\n{}", events(&["a"])));
    tldrs.wait_for_trace("t", &events(&["a"]));
}

#[test]
fn stale_socket_of_a_dead_daemon_is_replaced() {
    let (lab, tldrs) = Tldrs::start_in_new_lab();
    let socket = tldrs.socket.clone();
    tldrs.kill();
    assert!(socket.exists());
    Tldrs::start(&lab).stop();
}

#[test]
fn foreign_file_or_socket_at_the_socket_path_is_not_removed() {
    let lab = Lab::new();
    let socket = lab.directory("cwd").join("sock");
    fs::write(&socket, "precious").unwrap();
    assert!(start_failure(&lab).contains("it exists and is not a socket"));
    assert_eq!(fs::read(&socket).unwrap(), b"precious");
    fs::remove_file(&socket).unwrap();
    let _other = UnixListener::bind(&socket).unwrap();
    assert!(start_failure(&lab).contains("another program listens there"));
}

#[test]
fn directory_given_on_the_command_line_is_created() {
    let lab = Lab::new();
    let mut command = lab.command(binaries::tldrs());
    let daemon = Process::start(command.args(["serve", "--socket", "s", "-d", "missing"]));
    wait_until("the daemon listens", || lab.path().join("s").exists());
    assert!(lab.path().join("missing").is_dir());
    daemon.signal(Signal::TERM);
    daemon.wait().expect_success();
}

#[test]
fn socket_can_be_opened_only_by_its_user() {
    let (_lab, tldrs) = Tldrs::start_in_new_lab();
    let mode = tldrs.socket.metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn daemon_listens_on_the_known_socket_and_in_the_runtime_directory() {
    let lab = Lab::new();
    let mut command = lab.command(binaries::tldrs());
    let runtime = lab.directory("runtime");
    command
        .args(["serve", "-v"])
        .env("XDG_RUNTIME_DIR", &runtime)
        .env_remove("XDG_DATA_HOME");
    let mut daemon = Process::start(&mut command);
    daemon.wait_for_stderr_text("serve: ready");
    // `/tmp/tldrs.socket` may belong to another daemon of this host, which the daemon then reports.
    let is_refused = daemon
        .stderr()
        .iter()
        .any(|line| line.contains("will not find it"));
    let mut sockets = vec![runtime.join("tldrs.socket")];
    if !is_refused {
        sockets.push("/tmp/tldrs.socket".into());
    }
    for socket in &sockets {
        let mut client = UnixStream::connect(socket).unwrap();
        write!(client, "OPEN t\n{}", events(&["a"])).unwrap();
    }
    let stored = lab.path().join(".local/share/tldrs/t.jsonl");
    tests::wait_until("the events of all clients are stored", || {
        fs::read_to_string(&stored).is_ok_and(|text| text.lines().count() == sockets.len())
    });
    daemon.signal(rustix::process::Signal::TERM);
    assert!(daemon.wait().status.success());
    assert!(sockets.iter().all(|socket| !socket.exists()));
}

#[test]
fn inherited_socket_accepts_clients() {
    let lab = Lab::new();
    let DaemonPaths { socket, data, .. } = DaemonPaths::in_lab(&lab);
    let Ok(activate) = Command::new("systemd-socket-activate")
        .arg("--version")
        .output()
    else {
        eprintln!("no systemd-socket-activate: test skipped");
        return;
    };
    assert!(activate.status.success());
    let mut command = lab.command("systemd-socket-activate");
    command
        .arg("-l")
        .arg(&socket)
        .arg(binaries::tldrs())
        .args(["serve", "-d"])
        .arg(&data);
    let daemon = Process::start(&mut command);
    tests::wait_until("the socket accepts connections", || {
        UnixStream::connect(&socket).is_ok()
    });
    let mut client = UnixStream::connect(&socket).unwrap();
    write!(client, "OPEN t\n{}DIE\n", events(&["a"])).unwrap();
    assert!(daemon.wait().status.success());
    let stored = fs::read_to_string(data.join("t.jsonl")).unwrap();
    assert_eq!(stored, events(&["a"]));
}

/// A client that runs as another user.
struct OtherUser;

const NOBODY: u32 = 65_534;

impl OtherUser {
    /// Sends a text and returns whether the daemon closed the connection at once.
    fn send(tldrs: &Tldrs, text: &str) -> bool {
        const CLIENT: &str = "import socket,sys\n\
            s=socket.socket(socket.AF_UNIX)\n\
            s.connect(sys.argv[1])\n\
            s.settimeout(1)\n\
            try:\n s.sendall(sys.argv[2].encode())\n s.shutdown(1)\n print(len(s.recv(1)))\n\
            except OSError as e: print('closed', e)\n";
        let mut command = Command::new("python3");
        command
            .args(["-c", CLIENT])
            .arg(&tldrs.socket)
            .arg(tldrs.expand_paths(text));
        let client = command
            .uid(NOBODY)
            .gid(NOBODY)
            .current_dir("/")
            .stdout(Stdio::piped())
            .spawn();
        let mut printed = String::new();
        let mut client = client.unwrap();
        client
            .stdout
            .take()
            .unwrap()
            .read_to_string(&mut printed)
            .unwrap();
        assert!(client.wait().unwrap().success());
        printed.contains("closed")
    }

    fn is_possible() -> bool {
        let is_root = rustix::process::geteuid().is_root();
        let has_python = Command::new("python3").arg("--version").output().is_ok();
        if !(is_root && has_python) {
            eprintln!("not root, or no python3: test skipped");
        }
        is_root && has_python
    }
}

#[test]
fn client_of_another_user_is_accepted_only_if_that_user_is_allowed() {
    if !OtherUser::is_possible() {
        return;
    }
    let (lab, mut tldrs) = Tldrs::start_in_new_lab();
    // With the mode 0600 the kernel would refuse the client before the daemon does.
    fs::set_permissions(&tldrs.socket, fs::Permissions::from_mode(0o666)).unwrap();
    let text = format!("OPEN theirs\n{}", events(&["a"]));
    OtherUser::send(&tldrs, &text);
    tldrs.wait_for_log("not an allowed user");
    assert!(!tldrs.data.join("theirs.jsonl").exists());
    tldrs.stop();

    let tldrs = Tldrs::start_with(&lab, &["--allow-user", "65534"]);
    OtherUser::send(&tldrs, &text);
    tldrs.wait_for_trace("theirs", &events(&["a"]));
}

#[test]
fn client_of_another_user_gets_no_export_and_its_events_are_stored() {
    if !OtherUser::is_possible() {
        return;
    }
    let lab = Lab::new();
    let mut tldrs = Tldrs::start_with(&lab, &["--allow-user", "nobody"]);
    // Even where that user may write.
    fs::set_permissions(&tldrs.out, fs::Permissions::from_mode(0o777)).unwrap();
    let text = format!(
        "EMIT_TEF_AT_EXIT @OUT@/early.json\nOPEN theirs\nEMIT_TEF_AT_EXIT @OUT@/late.json\n{}\
         EMIT_TEF @OUT@/now.json\n{}",
        events(&["a"]),
        events(&["b"])
    );
    OtherUser::send(&tldrs, &text);
    let all = events(&["a"]) + &events(&["b"]);
    tldrs.wait_for_trace("theirs", &all);
    tldrs.wait_for_log("now.json");
    // The client has left before the daemon stops, which makes all exports that are due.
    let (log, out) = (tldrs.log(), tldrs.out.clone());
    tldrs.stop();
    let refusals = log
        .iter()
        .filter(|line| line.contains("only user 0") && line.contains("tldrs get-tef"));
    assert_eq!(refusals.count(), 3, "{log:#?}");
    assert_eq!(fs::read_dir(&out).unwrap().count(), 0);
}
