//! Certificates of the QUIC port that are read again on SIGHUP.

use rustix::process::Signal;
use tests::process::{CompletedProcess, Process};
use tests::{Lab, test_live};

use super::QuicRelay;

fn list(lab: &Lab, relay: &QuicRelay) -> CompletedProcess {
    let url = format!("quic://{}", relay.quic);
    let mut list = test_live::command(lab, &["--list", &url]);
    list.args(relay.certificates.of_client(Some("viewer")));
    Process::start(&mut list).wait()
}

#[test]
fn sighup_reads_the_certificates_of_the_quic_port_again_and_a_broken_file_changes_nothing() {
    let lab = Lab::new();
    let mut relay = QuicRelay::start(&lab);
    list(&lab, &relay).expect_success();
    relay.certificates.issue_server(&["other.example"]);
    relay.relay.process().signal(Signal::HUP);
    relay
        .relay
        .wait_for_log(&["certificates read again port=\"quic\""]);
    assert_eq!(list(&lab, &relay).status.code(), Some(1));
    relay.certificates.issue_server(&["127.0.0.1"]);
    relay.relay.process().signal(Signal::HUP);
    tests::wait_until("the port has read its certificate twice", || {
        let log = relay.relay.log();
        let read = log
            .iter()
            .filter(|line| line.contains("certificates read again"));
        read.count() == 2
    });
    list(&lab, &relay).expect_success();
    std::fs::write(relay.certificates.file("server.pem"), "nothing").unwrap();
    relay.relay.process().signal(Signal::HUP);
    relay
        .relay
        .wait_for_log(&["certificates not read again", "port=\"quic\""]);
    list(&lab, &relay).expect_success();
}
