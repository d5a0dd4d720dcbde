//! `relayd doctor` and `consumer doctor`: what they find with real relays, and without one.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::chown;
use std::path::Path;

use tests::binaries;
use tests::certificates::Certificates;
use tests::lab::Lab;
use tests::peers;
use tests::process::Process;
use tests::relay::{Relay, free_addresses, port_options, producer_url};

use crate::error_texts::fail;

/// Runs a `doctor`. Returns its exit status and what it prints.
fn doctor(lab: &Lab, program: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = lab.command(program);
    let ended = Process::start(command.arg("doctor").args(arguments)).wait();
    assert!(ended.stderr.is_empty(), "{:?}", ended.stderr);
    (ended.status.code(), ended.stdout.join("\n"))
}

fn relay_doctor(
    lab: &Lab,
    addresses: [std::net::SocketAddr; 3],
    output: &Path,
) -> (Option<i32>, String) {
    let [control, data, live] = port_options(addresses);
    let output = format!("--output={}", output.display());
    doctor(lab, binaries::relayd(), &[&control, &data, &live, &output])
}

#[test]
fn a_relay_that_runs_is_found_by_both() {
    let (lab, relay) = Relay::start_in_new_lab();
    let (status, text) = relay_doctor(&lab, relay.addresses(), &relay.output);
    assert_eq!(status, Some(0), "{text}");
    let listens = format!("relayd listens (process {})", relay.id());
    assert_eq!(text.matches(&listens).count(), 3, "{text}");
    assert!(text.contains("0 problems"), "{text}");
    let url = relay.producer_url();
    let (status, text) = doctor(&lab, binaries::consumer(), &["-U", &url]);
    assert_eq!(status, Some(0), "{text}");
    assert!(text.contains("speaks protocol 2.15"), "{text}");
    assert!(text.contains("continues sessions"), "{text}");
    // Both have the same clock.
    let clock = "ok       the clock of the relay is ";
    assert!(text.contains(clock), "{text}");
    assert_no_warnings(relay);
}

/// Checks that a doctor has left no warning in the log of a relay.
fn assert_no_warnings(relay: Relay) {
    let stopped = relay.stop();
    let warnings = stopped.stderr.iter().filter(|line| line.contains(" WARN "));
    assert_eq!(warnings.count(), 0, "{:#?}", stopped.stderr);
}

#[test]
fn the_relay_that_runs_is_examined_with_its_own_settings() {
    let lab = Lab::new();
    let pid_file = format!("--pid-file={}", lab.path().join("pid").display());
    let relay = Relay::start_with(&lab, &[&pid_file, "--http=0"]);
    let (status, text) = doctor(&lab, binaries::relayd(), &[&pid_file]);
    assert_eq!(status, Some(0), "{text}");
    let pid = relay.id();
    for what in [
        format!("examined in the place of process {pid}, "),
        format!("output {}: writable", relay.output.display()),
        format!(
            "viewers port tcp://{}: relayd listens (process {pid})",
            relay.live
        ),
    ] {
        assert!(text.contains(&what), "{what}: {text}");
    }
    relay.stop().expect_success();
    let (status, text) = fail(&lab, binaries::relayd(), &["doctor", &pid_file]);
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains("No such file or directory"), "{text}");
}

#[test]
fn a_relay_in_a_removed_directory_is_examined() {
    let lab = Lab::new();
    let directory = lab.directory("first");
    let pid_file = format!("--pid-file={}", lab.path().join("pid").display());
    let mut command = lab.command(binaries::relayd());
    command.arg(&pid_file).current_dir(&directory);
    let relay = Relay::start_from_command(&lab, command);
    fs::remove_dir_all(&directory).unwrap();
    let (status, text) = doctor(&lab, binaries::relayd(), &[&pid_file]);
    assert_eq!(status, Some(0), "{text}");
    let place = format!("examined in the place of process {}, ", relay.id());
    assert!(text.contains(&place), "{text}");
    relay.stop().expect_success();
}

#[test]
fn root_examines_a_relay_as_the_user_that_it_has() {
    const USER: u32 = 65534;
    let lab = Lab::new();
    if chown(lab.path(), Some(USER), Some(USER)).is_err() {
        eprintln!("only root can examine as another user: test skipped");
        return;
    }
    let mut command = lab.command(peers::program("setpriv"));
    command
        .args([format!("--reuid={USER}"), format!("--regid={USER}")])
        .arg("--clear-groups")
        .arg(binaries::relayd())
        .arg(format!("--pid-file={}", lab.path().join("pid").display()));
    let relay = Relay::start_from_command(&lab, command);
    // Root could write there, the relay cannot any more.
    chown(&relay.output, Some(0), Some(0)).unwrap();
    let problem = "no file can be created: Permission denied";
    let pid_file = format!("--pid-file={}", lab.path().join("pid").display());
    let (status, text) = doctor(&lab, binaries::relayd(), &[&pid_file]);
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains(problem), "{text}");
    // With settings of its own, too: a port shows which relay it is about.
    let (status, text) = relay_doctor(&lab, relay.addresses(), &relay.output);
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains(problem), "{text}");
    chown(&relay.output, Some(USER), Some(USER)).unwrap();
    let (status, text) = doctor(&lab, binaries::relayd(), &[&pid_file]);
    assert_eq!(status, Some(0), "{text}");
}

#[test]
fn a_relay_of_lttng_is_named_with_the_command_that_stops_it() {
    let lab = Lab::new();
    let relay = Relay::start_reference(&lab);
    let (status, text) = relay_doctor(&lab, relay.addresses(), &relay.output);
    assert_eq!(status, Some(0), "{text}");
    assert_eq!(
        text.matches("lttng-relayd listens (process ").count(),
        3,
        "{text}"
    );
    assert!(text.contains("-> systemctl stop lttng-relayd"), "{text}");
    let url = relay.producer_url();
    let (status, text) = doctor(&lab, binaries::consumer(), &["-U", &url]);
    assert_eq!(status, Some(0), "{text}");
    assert!(text.contains("it is not relayd"), "{text}");
    assert!(text.contains("are not compared"), "{text}");
}

#[test]
fn ports_in_use_and_an_output_that_is_a_file_are_problems_with_remedies() {
    let lab = Lab::new();
    let [control, data, live] = free_addresses();
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let file = lab.path().join("file");
    fs::write(&file, "").unwrap();
    let (status, text) = relay_doctor(&lab, [control, other.local_addr().unwrap(), live], &file);
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains("2 problems"), "{text}");
    assert!(
        text.contains(&format!("(process {})", std::process::id())),
        "{text}"
    );
    assert!(text.contains("is not a directory"), "{text}");
    assert_eq!(text.matches(": free").count(), 2, "{text}");
    drop(other);
    let (status, text) = relay_doctor(&lab, [control, data, live], &lab.path().join("new"));
    assert_eq!(status, Some(0), "{text}");
    assert!(!lab.path().join("new").exists());
}

#[test]
fn a_relay_that_cannot_be_reached_is_a_problem_with_a_remedy() {
    let lab = Lab::new();
    let [control, data, _] = free_addresses();
    let url = producer_url(control, data);
    let (status, text) = doctor(&lab, binaries::consumer(), &["-U", &url]);
    assert_eq!(status, Some(1), "{text}");
    assert_eq!(text.matches("Connection refused").count(), 2, "{text}");
    assert!(text.contains("-> start relayd on 127.0.0.1"), "{text}");
    let url = "net://host.invalid";
    let (status, text) = doctor(&lab, binaries::consumer(), &["-U", url]);
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains("-> getent hosts host.invalid"), "{text}");
    // The port for viewers is not that for producers.
    let relay = Relay::start(&lab);
    let url = producer_url(relay.live, relay.data);
    let (status, text) = doctor(&lab, binaries::consumer(), &["-U", &url]);
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains("problem  relay tcp://127.0.0.1"), "{text}");
    let spool = lab.path().join("spool");
    let spool = format!("--spool={}", spool.display());
    let url = relay.producer_url();
    let socket = lab.path().join("missing/agent.socket");
    let socket = format!("--socket={}", socket.display());
    let arguments = ["-U", url.as_str(), spool.as_str(), socket.as_str()];
    let (status, text) = doctor(&lab, binaries::consumer(), &arguments);
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains("-> mkdir -p "), "{text}");
    assert!(text.contains("spool "), "{text}");
}

#[test]
fn faults_of_certificates_and_encryption_have_remedies_of_their_own() {
    let lab = Lab::new();
    let certificates = Certificates::create(&lab, "certs");
    let other = Certificates::create(&lab, "other");
    let start = || Relay::start_with_schemes(&lab, ["tls"; 3], &certificates.of_server(true));
    let encrypted = |relay: &Relay| relay.producer_url().replacen("net://", "nets://", 1);
    let relay = start();
    let examine = |url: &str, options: &[String]| {
        let options = options.iter().map(String::as_str);
        let arguments: Vec<&str> = ["-U", url].into_iter().chain(options).collect();
        doctor(&lab, binaries::consumer(), &arguments)
    };
    let (status, text) = examine(
        &encrypted(&relay),
        &certificates.of_client(Some("producer")),
    );
    assert_eq!(status, Some(0), "{text}");
    assert_no_warnings(relay);

    let relay = start();
    let (url, nets) = (relay.producer_url(), encrypted(&relay));
    let role = "relayd certs --client NAME --role produce";
    let mut untrusting = certificates.of_client(Some("producer"));
    untrusting[0] = other.of_client(None).remove(0);
    let plain = Relay::start(&lab);
    let to_plain = encrypted(&plain);
    for (url, options, remedy) in [
        (&nets, certificates.of_client(Some("viewer")), role),
        (&nets, certificates.of_client(None), role),
        (
            &nets,
            untrusting,
            "-> --tls-ca with the CA of the relay's certificate",
        ),
        (
            &url,
            Vec::new(),
            "-> nets:// or tls:// in the URL, with --tls-ca",
        ),
        (
            &to_plain,
            certificates.of_client(Some("producer")),
            "-> net:// or tcp:// in the URL",
        ),
    ] {
        let (status, text) = examine(url, &options);
        assert_eq!(status, Some(1), "{text}");
        assert!(text.contains(remedy), "{remedy}: {text}");
        assert!(text.contains("1 problem,"), "{text}");
    }
}
