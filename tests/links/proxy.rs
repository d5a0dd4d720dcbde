//! `test-live proxy`: viewers that know no encryption see the events of an encrypted relay.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;

use rustix::process::Signal;
use tests::certificates::Certificates;
use tests::consumer::HeldReplay;
use tests::lab::Lab;
use tests::process::Process;
use tests::relay::Relay;
use tests::replay::HOST;
use tests::viewer::Viewer;
use tests::{peers, test_live, traces};

use super::{assert_viewers_show, directory_of, events, replay_command, start_relay};

/// Starts a proxy on a free port. Returns it with its address.
pub(super) fn start_proxy(lab: &Lab, relay: &Relay, options: &[String]) -> (Process, SocketAddr) {
    let url = format!("nets://{}", relay.live);
    let mut command = test_live::command(lab, &["proxy", "--listen=127.0.0.1:0", &url]);
    let mut proxy = Process::start(command.args(options));
    let address = proxy.wait_for_stderr("the proxy listens", |line| {
        let (_, rest) = line.split_once("forwarding ")?;
        rest.split(' ').next()?.parse().ok()
    });
    (proxy, address)
}

#[test]
fn babeltrace_and_test_live_show_a_live_session_through_the_proxy() {
    let lab = Lab::new();
    let certificates = Certificates::create(&lab, "certs");
    let relay = start_relay(&lab, &certificates);
    let (proxy, address) = start_proxy(&lab, &relay, &certificates.of_client(Some("viewer")));
    let directory = traces::with_numbered_events(&lab, "live", 500, 1000);
    let want = events(&directory);
    let options = certificates.of_client(Some("producer"));
    let command = replay_command(&lab, &relay, "live", &directory, &options);
    let held = HeldReplay::open(command);
    Viewer::connect(address).wait_for_session("live");
    let url = format!("net://{address}/host/{HOST}/live");
    let shown = ["--clock-cycles", "--no-delta"];
    let mut babeltrace = Command::new(peers::program("babeltrace2"));
    babeltrace.args(shown).args(["-i", "lttng-live", &url]);
    let mut plain = test_live::command(&lab, &shown);
    let viewers = [&mut babeltrace, plain.arg(&url)].map(Process::start);
    Viewer::connect(address).wait_for_listed("live", |listed| listed.viewers == 2);
    assert_viewers_show(&want, held, viewers);
    assert!(events(&directory_of(&relay, "live")) == want);
    proxy.signal(Signal::INT);
    proxy.wait().expect_success();
}

#[test]
fn the_proxy_says_why_a_connection_is_closed_and_serves_the_next() {
    let lab = Lab::new();
    let certificates = Certificates::create(&lab, "certs");
    let mut relay = start_relay(&lab, &certificates);
    let (mut proxy, address) = start_proxy(&lab, &relay, &certificates.of_client(Some("producer")));
    // The answer to `CONNECT` never comes: the certificate has another role.
    let mut viewer = TcpStream::connect(address).unwrap();
    viewer.write_all(&[0; 32]).unwrap();
    proxy.wait_for_stderr_text("does not have the role that the peer requires");
    assert!(matches!(viewer.read(&mut [0; 1]), Ok(0) | Err(_)));
    relay.kill();
    drop(TcpStream::connect(address).unwrap());
    proxy.wait_for_stderr_text("cannot connect to");
    assert!(proxy.is_running());
}

#[test]
fn idle_viewers_of_the_proxy_lock_nobody_out() {
    let lab = Lab::new();
    let certificates = Certificates::create(&lab, "certs");
    let relay = start_relay(&lab, &certificates);
    let (mut proxy, address) = start_proxy(&lab, &relay, &certificates.of_client(Some("viewer")));
    // As many as the proxy has, once with a handshake and once without.
    let idle: Vec<_> = (0..64).map(|_| Viewer::connect(address)).collect();
    assert!(Viewer::connect(address).sessions().is_empty());
    proxy.wait_for_stderr_text("closed: idle, and there are too many");
    let silent: Vec<_> = (0..64)
        .map(|_| TcpStream::connect(address).unwrap())
        .collect();
    assert!(Viewer::connect(address).sessions().is_empty());
    drop((idle, silent));
}
