//! The relayd program: options, output, exit codes, signals and background start.

#![expect(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

const PORTS: [&str; 3] = [
    "--control-port=tcp://127.0.0.1:0",
    "--data-port=tcp://127.0.0.1:0",
    "--live-port=tcp://127.0.0.1:0",
];

fn relayd() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_relayd"));
    // Configuration files and the run folder of this host must not affect the tests.
    static OWN: LazyLock<TempDir> = LazyLock::new(|| TempDir::new().unwrap());
    command
        .env_remove("RUST_LOG")
        .env_remove("LTTNG_HOME")
        .env("HOME", OWN.path())
        .env("LTTNG_RUNDIR", OWN.path().join("run"));
    command
}

fn run(arguments: &[&str]) -> Output {
    relayd().args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Starts a relay in the foreground, and returns the fields of its "listening" log line.
fn start(arguments: &[&str]) -> (Child, Vec<String>) {
    let mut command = relayd();
    command
        .args(PORTS)
        .args(arguments)
        .arg("-v")
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let listening = lines
        .find_map(|line| line.ok().filter(|line| line.contains(" listening ")))
        .unwrap();
    // The relay would get an error if its standard error were closed.
    std::thread::spawn(move || lines.for_each(drop));
    let field = |word: &str| word.split_once('=').map(|(_, value)| value.to_owned());
    (
        child,
        listening.split_whitespace().filter_map(field).collect(),
    )
}

fn wait_until(what: &str, is_true: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !is_true() {
        assert!(Instant::now() < deadline, "timed out waiting until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn help_shows_examples_on_standard_output() {
    for option in ["-h", "--help"] {
        let output = run(&[option]);
        assert!(output.status.success());
        assert!(output.stderr.is_empty());
        let help = text(&output.stdout);
        for part in [
            "--output",
            "--live-port",
            "--reorder-packets",
            "Examples:",
            "Variables:",
            "lttng create",
        ] {
            assert!(help.contains(part), "{part}");
        }
    }
}

#[test]
fn version_option_prints_only_the_lttng_release() {
    for option in ["-V", "--version"] {
        let output = run(&[option]);
        assert!(output.status.success());
        assert_eq!(text(&output.stdout), "2.15.0\n");
    }
    let details = text(&run(&["--version", "--verbose"]).stdout);
    assert!(details.starts_with("2.15.0\nrelayd "), "{details}");
}

#[test]
fn invalid_options_are_reported_on_standard_error_and_exit_with_1() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = format!("--control-port=tcp://{}", taken.local_addr().unwrap());
    for (arguments, part) in [
        (&["--no-such-option"][..], "--no-such-option"),
        (&["-o", "relative/path"], "must be absolute"),
        (&["-C", "localhost:5342"], "tcp://HOST[:PORT]"),
        (
            &["-o", "/tmp", "-C", "tcp://no-such-host.invalid"],
            "no-such-host.invalid",
        ),
        (
            &["-o", "/proc/nowhere", PORTS[0], PORTS[1], PORTS[2]],
            "/proc/nowhere",
        ),
        (&["-p", "-s"], "cannot be used with"),
        (&["--fd-pool-size=99"], "99"),
        (&["-o", "/tmp", "--fd-pool-size=4000000000"], "open files"),
        (&["-f", "/no/such/file"], "/no/such/file"),
        (
            &["-w", "/no/such/directory"],
            "Failed to change working directory to",
        ),
        (&["--reorder-packets=0"], "0"),
        (&["--reorder-bytes=much"], "16k"),
        (&["--reorder-memory=much"], "16k"),
        (&["-o", "/tmp", &taken], "in use"),
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        let message = text(&output.stderr);
        assert!(message.contains(part), "{arguments:?}: {message}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn relayd_exits_with_0_on_sigterm_and_sigint() {
    for signal in [Signal::TERM, Signal::INT] {
        let directory = TempDir::new().unwrap();
        let (mut child, _) = start(&["-o", directory.path().to_str().unwrap()]);
        // SIGUSR1 must be ignored: the relay itself sends it to its parent.
        kill_process(Pid::from_child(&child), Signal::USR1).unwrap();
        kill_process(Pid::from_child(&child), signal).unwrap();
        let begun = Instant::now();
        assert_eq!(child.wait().unwrap().code(), Some(0), "{signal:?}");
        assert!(begun.elapsed() < Duration::from_secs(5));
    }
}

#[test]
fn relayd_prints_nothing_without_verbose_and_ignores_operands() {
    let directory = TempDir::new().unwrap();
    let mut command = relayd();
    let output = directory.path().join("made");
    command
        .args(PORTS)
        .arg("-o")
        .arg(&output)
        .args(["some", "operands"]);
    let child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let fds = format!("/proc/{}/fd/0", child.id());
    // Standard input becomes /dev/null once the relay has started.
    wait_until("it has started", || {
        std::fs::read_link(&fds).is_ok_and(|at| at == Path::new("/dev/null"))
    });
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let ended = child.wait_with_output().unwrap();
    assert!(ended.status.success());
    assert_eq!(
        (text(&ended.stdout), text(&ended.stderr)),
        (String::new(), String::new())
    );
    assert!(output.is_dir());
}

#[test]
fn output_directory_defaults_to_lttng_traces_below_the_home_directory() {
    for (has_lttng_home, want) in [(true, "lttng"), (false, "home")] {
        let directory = TempDir::new().unwrap();
        let mut command = relayd();
        command
            .args(PORTS)
            .env("HOME", directory.path().join("home"));
        if has_lttng_home {
            command.env("LTTNG_HOME", directory.path().join("lttng"));
        }
        let mut child = command.spawn().unwrap();
        let output = directory.path().join(want).join("lttng-traces");
        wait_until("it has made its output", || output.is_dir());
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let output = relayd().args(PORTS).env_remove("HOME").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn background_start_returns_once_all_ports_accept() {
    for option in ["--background", "--daemonize"] {
        let directory = TempDir::new().unwrap();
        let ports: Vec<u16> = (0..3)
            .map(|_| {
                TcpListener::bind("127.0.0.1:0")
                    .unwrap()
                    .local_addr()
                    .unwrap()
                    .port()
            })
            .collect();
        let name = format!("lttng-relayd-{}", option.trim_start_matches('-'));
        let mut command = relayd();
        std::os::unix::process::CommandExt::arg0(&mut command, &name);
        for (port, option) in ports.iter().zip(["-C", "-D", "-L"]) {
            command.arg(option).arg(format!("tcp://127.0.0.1:{port}"));
        }
        // A file, because the relay keeps standard output and error open with --background.
        let said = std::fs::File::create(directory.path().join("said")).unwrap();
        command.stdout(said.try_clone().unwrap()).stderr(said);
        let status = command
            .arg(option)
            .arg("-o")
            .arg(directory.path())
            .status()
            .unwrap();
        let said = std::fs::read_to_string(directory.path().join("said")).unwrap();
        assert_eq!((status.code(), said), (Some(0), String::new()), "{option}");
        for port in &ports {
            assert!(TcpStream::connect(("127.0.0.1", *port)).is_ok(), "{option}");
        }
        // The daemon keeps the name that it was started by.
        let is_it = |entry: &std::fs::DirEntry| {
            std::fs::read(entry.path().join("cmdline"))
                .is_ok_and(|line| line.starts_with(name.as_bytes()))
        };
        let daemons: Vec<_> = std::fs::read_dir("/proc")
            .unwrap()
            .flatten()
            .filter(is_it)
            .collect();
        assert_eq!(daemons.len(), 1, "{option}");
        let process = daemons[0].path();
        let link = |name: &str| std::fs::read_link(process.join(name)).unwrap();
        assert_eq!(link("cwd"), Path::new("/"));
        assert_eq!(link("fd/0"), Path::new("/dev/null"));
        assert_eq!(
            link("fd/1") == Path::new("/dev/null"),
            option == "--daemonize"
        );
        let id = daemons[0].file_name().to_str().unwrap().parse().unwrap();
        let id = Pid::from_raw(id).unwrap();
        kill_process(id, Signal::TERM).unwrap();
        // The /proc entry of a zombie stays until its parent reaps it.
        wait_until("the daemon has ended", || {
            std::fs::read(process.join("cmdline")).is_ok_and(|line| line.is_empty())
                || !process.exists()
        });
    }
}

#[test]
fn failed_background_start_exits_with_1_and_prints_the_reason() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = format!("--live-port=tcp://{}", taken.local_addr().unwrap());
    let directory = TempDir::new().unwrap();
    let output = relayd()
        .args(["-d", PORTS[0], PORTS[1], &taken, "-o"])
        .arg(directory.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("in use"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn listening_addresses_are_logged() {
    let directory = TempDir::new().unwrap();
    let (mut child, fields) = start(&["-o", directory.path().to_str().unwrap()]);
    for address in &fields[..3] {
        assert!(TcpStream::connect(address).is_ok(), "{address}");
    }
    child.kill().unwrap();
    child.wait().unwrap();
}
