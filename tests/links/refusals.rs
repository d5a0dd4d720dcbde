//! Peers that a relay or a client refuses: both sides say why, and nothing else is harmed.

use std::process::Command;

use tests::certificates::{Certificates, expired, valid};
use tests::lab::Lab;
use tests::process::{CompletedProcess, Process};
use tests::relay::Relay;
use tests::replay::HOST;
use tests::{binaries, consumer, test_live, traces};
use transport::role::Role;

use super::{replay_command, start_relay};

/// Runs a command, which must fail with status 1 and say `why`.
fn assert_refused(case: &str, command: &mut Command, why: &str) -> CompletedProcess {
    let ended = Process::start(command).wait();
    let printed = ended.stderr.join("\n");
    assert!(printed.contains(why), "{case}: {printed}");
    assert_eq!(ended.status.code(), Some(1), "{case}: {printed}");
    ended
}

fn list(lab: &Lab, url: &str, options: &[String]) -> Command {
    let mut list = test_live::command(lab, &["--list", url]);
    list.args(options);
    list
}

#[test]
fn producers_and_viewers_without_the_right_certificate_are_refused_on_both_sides() {
    let lab = Lab::new();
    let certificates = Certificates::create(&lab, "certs");
    let others = Certificates::create(&lab, "others");
    certificates.issue_client("old", &Role::ALL, expired());
    certificates.issue_client("none", &[], valid());
    let directory = traces::with_every_field_type(&lab);
    let trusting = |mut options: Vec<String>| {
        options[0] = certificates.of_client(None).remove(0);
        options
    };
    let stranger = trusting(others.of_client(Some("producer")));
    let role = "the certificate does not have the role that the peer requires";
    let role_log = "does not have the role that this port requires";
    let of = |name| certificates.of_client(Some(name));
    for (case, produce, view, message, logged) in [
        ("wrong role", of("viewer"), of("producer"), role, role_log),
        ("no role", of("none"), of("none"), role, role_log),
        (
            "no certificate",
            certificates.of_client(None),
            certificates.of_client(None),
            "the peer requires a certificate",
            "the peer has sent no certificate",
        ),
        (
            "expired",
            of("old"),
            of("old"),
            "expired or not valid yet",
            "the peer's certificate has expired",
        ),
        (
            "client of another CA",
            stranger.clone(),
            stranger,
            "the peer does not trust the CA of the certificate",
            "no trusted CA has issued the peer's certificate",
        ),
        (
            "another CA trusted",
            others.of_client(Some("producer")),
            others.of_client(Some("viewer")),
            "no trusted CA has issued the peer's certificate",
            "the peer does not trust the CA of the certificate",
        ),
    ] {
        let relay = start_relay(&lab, &certificates);
        let mut replay = replay_command(&lab, &relay, "refused", &directory, &produce);
        assert_refused(case, &mut replay, message);
        relay.wait_for_log(&["TLS handshake failed", "control", logged]);
        let url = format!("nets://{}", relay.live);
        assert_refused(case, &mut list(&lab, &url, &view), message);
        relay.wait_for_log(&["TLS handshake failed", "viewers", logged]);
        assert!(!relay.output.join(HOST).exists(), "{case}");
    }
}

#[test]
fn plain_clients_of_an_encrypted_port_are_told_so() {
    let lab = Lab::new();
    let certificates = Certificates::create(&lab, "certs");
    let relay = start_relay(&lab, &certificates);
    let directory = traces::with_every_field_type(&lab);
    let mut replay = consumer::replay_command(&lab, &relay, "plain", &directory);
    assert_refused("producer", &mut replay, "the port is encrypted");
    relay.wait_for_log(&["TLS handshake failed", "control", "does not speak TLS"]);
    let url = format!("net://{}", relay.live);
    assert_refused("viewer", &mut list(&lab, &url, &[]), "port is encrypted");
    relay.wait_for_log(&["TLS handshake failed", "viewers", "does not speak TLS"]);
}

#[test]
fn encrypted_clients_of_a_plain_port_are_told_so() {
    let lab = Lab::new();
    let certificates = Certificates::create(&lab, "certs");
    let relay = Relay::start(&lab);
    let directory = traces::with_every_field_type(&lab);
    let options = certificates.of_client(Some("producer"));
    let mut replay = replay_command(&lab, &relay, "plain", &directory, &options);
    replay.arg("--reconnect-timeout=0");
    let why = "during the TLS handshake; it may not speak TLS";
    assert_refused("producer", &mut replay, why);
    let log = "the peer speaks TLS, and this port does not";
    relay.wait_for_log(&["control connection closed", log]);
    let url = format!("nets://{}", relay.live);
    let options = certificates.of_client(Some("viewer"));
    assert_refused("viewer", &mut list(&lab, &url, &options), why);
    relay.wait_for_log(&["viewer connection closed", log]);
}

#[test]
fn a_client_of_the_wrong_port_is_told_so() {
    let lab = Lab::new();
    let certificates = Certificates::create(&lab, "certs");
    certificates.issue_client("both", &Role::ALL, valid());
    let relay = start_relay(&lab, &certificates);
    let url = format!("nets://{}", relay.control);
    let options = certificates.of_client(Some("both"));
    let why = "the peer serves another protocol on this port";
    assert_refused("viewer", &mut list(&lab, &url, &options), why);
}

#[test]
fn certificate_of_each_relay_of_a_list_has_the_name_in_the_list() {
    let lab = Lab::new();
    let certificates = Certificates::create(&lab, "certs");
    certificates.issue_server(&["localhost"]);
    let relay = start_relay(&lab, &certificates);
    let directory = traces::with_every_field_type(&lab);
    let list_of = |hosts: &[&str], ports: &str| {
        let relays: Vec<_> = hosts.iter().map(|host| format!("{host}:{ports}")).collect();
        format!("nets://{}", relays.join(","))
    };
    let ports = format!("{}:{}", relay.control.port(), relay.data.port());
    let producer = certificates.of_client(Some("producer"));
    let replay = |hosts: &[&str]| {
        let mut command = lab.command(binaries::consumer());
        command.args(["replay", "--session=named", "--reconnect-timeout=0", "-U"]);
        command.arg(list_of(hosts, &ports)).args(&producer);
        command.arg(&directory);
        command
    };
    let viewer = certificates.of_client(Some("viewer"));
    let view = |hosts: &[&str]| {
        let url = list_of(hosts, &relay.live.port().to_string());
        list(&lab, &url, &viewer)
    };
    let wrong = ["127.0.0.1", "127.0.0.1"];
    let why = "is for other host names than the one that was connected to";
    assert_refused("producer", &mut replay(&wrong), why);
    assert_refused("viewer", &mut view(&wrong), why);
    let right = ["127.0.0.1", "localhost"];
    let sent = Process::start(&mut replay(&right)).wait();
    assert!(sent.status.success(), "{:#?}", sent.stderr);
    let listed = Process::start(&mut view(&right)).wait();
    assert!(listed.status.success(), "{:#?}", listed.stderr);
}

#[test]
fn incomplete_options_are_refused_with_a_usage_error() {
    let lab = Lab::new();
    let certificates = Certificates::create(&lab, "certs");
    let [ca, cert, key]: [String; 3] = certificates.of_client(Some("producer")).try_into().unwrap();
    let missing = "--tls-ca=/no/such/file".to_owned();
    let consumer = |options: &[&str]| {
        let mut command = lab.command(binaries::consumer());
        command.args(["replay", "-U"]).args(options).arg("/dev");
        command
    };
    let test_live = |options: &[&str]| test_live::command(&lab, options);
    for (mut command, why) in [
        (consumer(&["nets://h"]), "needs --tls-ca"),
        (consumer(&["net://h", &ca]), "need an encrypted relay"),
        (consumer(&["nets://h", &ca, &cert]), "--tls-key"),
        (
            consumer(&["nets://h", &missing]),
            "cannot read /no/such/file",
        ),
        (test_live(&["nets://h"]), "needs --tls-ca"),
        (test_live(&["nets://h", &ca, &key]), "--tls-cert"),
        (test_live(&["proxy", "net://h", &ca]), "expected nets://"),
        (test_live(&["proxy", "nets://h"]), "needs --tls-ca"),
        (
            test_live(&["proxy", "nets://h", &ca, "--listen=0.0.0.0:0"]),
            "--allow-remote",
        ),
    ] {
        let ended = Process::start(&mut command).wait();
        let printed = ended.stderr.join("\n");
        assert!(printed.contains(why), "{command:?}: {printed}");
        assert_eq!(ended.status.code(), Some(2), "{command:?}: {printed}");
    }
    for (options, why) in [
        (
            &["-L", "tls://127.0.0.1:0"][..],
            "needs --tls-cert and --tls-key",
        ),
        (&["--tls-client-ca=/ca.pem"], "there is none"),
        (
            &["-L", "tls://127.0.0.1:0", "--tls-cert=/no", "--tls-key=/no"],
            "cannot read /no",
        ),
    ] {
        let mut command = lab.command(binaries::relayd());
        command.arg("-o").arg(lab.path());
        command.args(["-C", "tcp://127.0.0.1:0", "-D", "tcp://127.0.0.1:0"]);
        assert_refused("relayd", command.args(options), why);
    }
}
