//! `relayd doctor` and `consumer doctor`: what they find with real relays, and without one.

use std::fs;
use std::net::TcpListener;
use std::path::Path;

use tests::binaries;
use tests::lab::Lab;
use tests::process::Process;
use tests::relay::{Relay, free_addresses, producer_url};

/// Runs a `doctor`. Returns its exit status and what it prints.
fn doctor(lab: &Lab, program: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = lab.command(program);
    let ended = Process::start(command.arg("doctor").args(arguments)).wait();
    assert!(ended.stderr.is_empty(), "{:?}", ended.stderr);
    (ended.status.code(), ended.stdout.join("\n"))
}

/// Returns the options of `relayd` for ports of this host.
fn port_options(addresses: [std::net::SocketAddr; 3]) -> Vec<String> {
    let options = ["--control-port", "--data-port", "--live-port"];
    let pairs = options.into_iter().zip(addresses);
    pairs
        .map(|(option, address)| format!("{option}=tcp://{address}"))
        .collect()
}

fn relay_doctor(
    lab: &Lab,
    addresses: [std::net::SocketAddr; 3],
    output: &Path,
) -> (Option<i32>, String) {
    let mut options = port_options(addresses);
    options.push(format!("--output={}", output.display()));
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    doctor(lab, binaries::relayd(), &options)
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
