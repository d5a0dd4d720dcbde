//! What the programs print if they cannot start, or are given the address of another port: the
//! fault once, with its place.

use std::fs;
use std::net::SocketAddr;

use tests::binaries;
use tests::lab::Lab;
use tests::process::Process;
use tests::relay::{Relay, free_addresses, producer_url};
use tests::status_endpoint::StatusEndpoint;

/// Runs a program that cannot start, and returns its exit status and what it prints.
pub(crate) fn fail(
    lab: &Lab,
    program: &std::path::Path,
    arguments: &[&str],
) -> (Option<i32>, String) {
    let mut command = lab.command(program);
    let ended = Process::start(command.args(arguments)).wait();
    (ended.status.code(), ended.stderr.join("\n"))
}

#[test]
fn fault_of_a_configuration_is_printed_once_with_its_line() {
    let lab = Lab::new();
    let file = |name: &str, text: &str| {
        let path = lab.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let missing = lab.path().join("missing").display().to_string();
    let (status, text) = fail(&lab, binaries::relayd(), &["--config", &missing]);
    let want = format!(
        "relayd: cannot read configuration file {missing}: No such file or directory (os error 2)"
    );
    assert_eq!((status, text), (Some(1), want));
    let value = file(
        "relayd.conf",
        "[relayd]\noutput=/traces\nreorder-packets=0\n",
    );
    let (status, text) = fail(&lab, binaries::relayd(), &["--config", &value]);
    let want = format!(
        "relayd: {value}:3: invalid value '0' for '--reorder-packets <N>': 0 is not in 1..=65536"
    );
    assert_eq!((status, text), (Some(1), want));
    let arguments = ["check-config", missing.as_str()];
    let (status, text) = fail(&lab, binaries::consumer(), &arguments);
    let want = format!("consumer: cannot read {missing}: No such file or directory (os error 2)");
    assert_eq!((status, text), (Some(2), want));
    let toml = file("consumer.toml", "[relay]\nurl = 7\n");
    let (status, text) = fail(&lab, binaries::consumer(), &["check-config", &toml]);
    assert_eq!(status, Some(2));
    assert_eq!(text.matches("line 2").count(), 1, "{text}");
}

/// Starts an agent without anything to trace.
fn start_agent(lab: &Lab, control: SocketAddr, data: SocketAddr) -> Process {
    let rings = format!("--ring={}", lab.directory("rings").display());
    let socket = format!("--socket={}", lab.path().join("agent.socket").display());
    let mut command = lab.command(binaries::consumer());
    command.args(["serve", "-U", &producer_url(control, data), &rings, &socket]);
    // Its session would say first that the relay answers.
    command.arg("--clock-interval=0");
    Process::start(&mut command)
}

#[test]
fn an_agent_without_sessions_says_that_its_relay_does_not_answer_and_when_it_does() {
    let lab = Lab::new();
    let addresses @ [control, data, _] = free_addresses();
    let mut agent = start_agent(&lab, control, data);
    agent.wait_for_stderr_text("relay not reached: cannot connect to tcp://127.0.0.1:");
    let _relay = Relay::start_at(&lab, addresses);
    agent.wait_for_stderr_text("the relay answers");
}

#[test]
fn clients_of_another_port_of_a_relay_are_told_which_is_theirs() {
    let lab = Lab::new();
    let (relay, status) = StatusEndpoint::start_relay(&lab, &[]);
    let of_producers = "producers use port 5342 unless --control-port";
    let http = "the port speaks HTTP, like --http of the relay; ";
    let uses = "producers use --control-port, 5342 by default";
    let http_of_producers = format!("{http}{uses}");
    for (port, why) in [
        (relay.live, of_producers),
        (relay.data, of_producers),
        (status.address(), http_of_producers.as_str()),
    ] {
        start_agent(&lab, port, relay.data).wait_for_stderr_text(why);
    }
    let of_viewers = "viewers use port 5344 unless --live-port";
    let http_of_viewers = format!("{http}viewers use --live-port, 5344 by default");
    for (port, why) in [
        (relay.control, of_viewers),
        (relay.data, of_viewers),
        (status.address(), http_of_viewers.as_str()),
    ] {
        let (status, text) = fail(&lab, binaries::test_live(), &["--list", &port.to_string()]);
        assert_eq!(status, Some(1));
        assert!(text.contains(why), "{text}");
    }
    relay.wait_for_log(&["the peer is a viewer, and this port is for producers"]);
}

#[test]
fn address_in_use_is_an_error_that_names_the_process() {
    let (lab, relay) = Relay::start_in_new_lab();
    let by = format!(
        ": Address already in use by relayd (process {})",
        relay.id()
    );
    let control = format!("--control-port=tcp://{}", relay.control);
    let (status, text) = fail(&lab, binaries::relayd(), &[&control]);
    let want = format!(
        "relayd: cannot listen for control on tcp://{}{by}",
        relay.control
    );
    assert_eq!((status, text), (Some(1), want));
    let (live, directory) = (relay.live.to_string(), lab.path().display().to_string());
    let web = ["web", "--listen", &live, &directory];
    let (status, text) = fail(&lab, binaries::test_live(), &web);
    let want = format!("test-live: error: cannot listen on {live}{by}");
    assert_eq!((status, text), (Some(1), want));
}
